"""custom_vmap: a function with its own batching rule, and sequential_vmap.

While tracing, a call is one equation that holds the function's jaxpr and the rule; the compiler inlines the jaxpr::

    b:f32[3] = custom_vmap_call[call={...} in_tree=... out_tree=... rule=rule] a

Under ``vmap`` the rule runs on whole values. Forward differentiation keeps a rule: the derivative's rule is the
derivative of the rule. Reverse differentiation goes through the function itself and has no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from weft import errors, runtime, tree_util
from weft.autodiff import custom_jvp, jvp
from weft.batching import map as map_module
from weft.batching.batch_trace import map_flat
from weft.control import bodies
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo
from weft.core.ref_types import ProgramPrimitive
from weft.core.tangents import Zero, tangent_aval
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.dispatch.calls import call_primitive, function_names
from weft.dispatch.calls import flat_functions as flat_module
from weft.operations import linear
from weft.operations.mapped import Dim, in_front

P = ParamSpec("P")
R = TypeVar("R")

custom_vmap_call_p = ProgramPrimitive(
    "custom_vmap_call", kinds.Higher(inline=lambda params: params["call"]), multiple_results=True, memoize=False
)
custom_vmap_call_p.unnamed_params |= {"rule"}  # it has been used before a program is compiled
custom_vmap_call_p.def_effectful_abstract_eval(lambda *in_avals, call, rule: (call.out_avals, call.effects))
custom_vmap_call_p.print_params = lambda params: {
    "call": params["call"].jaxpr,
    **params["rule"].shown(),
    "rule": params["rule"],
}


class VmapRule:
    """The rule of one custom_vmap function for one call. Operands: what the function captured, then its arguments."""

    __slots__ = ("function", "in_tree", "name", "out_tree")

    def __init__(self, name: str, function: Callable[..., Any], in_tree: Any, out_tree: Any) -> None:
        self.name = name
        self.function = function
        self.in_tree = in_tree
        self.out_tree = out_tree

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", "<unnamed rule>")

    def shown(self) -> dict[str, Any]:
        return {"in_tree": self.in_tree, "out_tree": self.out_tree}

    def run(self, axis: Axis, flags: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        """(results, which of them are mapped) for whole values, whose mapped dimensions are in front."""
        count = len(values) - self.in_tree.num_leaves
        if any(flags[:count]):
            raise errors.UnexpectedTracerError(
                f"The custom_vmap function {self.name} closed over a value that is mapped. Its rule says how to map "
                "over its arguments only: pass the value as an argument."
            )
        args = runtime.tree_unflatten(self.in_tree, list(values[count:]))
        in_batched = runtime.tree_unflatten(self.in_tree, list(flags[count:]))
        made = self.function(axis.size, list(in_batched), *args)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise ValueError(
                f"custom vmap rule ({self!r}) must return a pair of the output and its batching specification (a tree "
                f"of bools of the same structure), but got {made!r}"
            )
        outs, tree = runtime.tree_flatten(made[0])
        found, flags_tree = runtime.tree_flatten(made[1])
        if tree != flags_tree:
            raise ValueError(
                "structure of output value and output batching specification returned by custom vmap rule "
                f"({self!r}) do not match.\nOutput values: {tree}\nBatching spec: {flags_tree}"
            )
        if tree != self.out_tree:
            raise ValueError(
                f"structure of output returned by custom vmap rule ({self!r}) does not match that of original "
                f"custom-vmapped function.\nOriginal output: {self.out_tree}\nRule output: {tree}"
            )
        return outs, [bool(flag) for flag in found]


class PushedRule(VmapRule):
    """The rule of a derivative: operands and results are values, followed by the tangents of the ``live`` ones."""

    __slots__ = ("call", "captured", "live", "out_live", "rule")

    def __init__(
        self, rule: VmapRule, call: ClosedJaxpr, live: tuple[bool, ...], out_live: tuple[bool, ...], captured: int
    ) -> None:
        super().__init__(rule.name, rule.function, rule.in_tree, rule.out_tree)
        self.rule = rule
        self.call = call  # the program that is differentiated
        self.live, self.out_live = live, out_live
        self.captured = captured  # the number of operands before the values

    def shown(self) -> dict[str, Any]:
        return {"in_tree": self.in_tree, "out_tree": self.out_tree, "live": self.live}

    def run(self, axis: Axis, flags: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        flags, values = list(flags[self.captured :]), list(values[self.captured :])
        count = len(self.live)
        indices = [index for index, has in enumerate(self.live) if has]
        both = flags[:count]
        for index, flag in zip(indices, flags[count:], strict=True):
            both[index] = both[index] and flag
        if not any(both):  # only values, or only tangents, are mapped: the rule runs on one element
            return self._run_elements(axis, flags, values)
        for index, flag in zip(indices, flags[count:], strict=True):
            both[index] = both[index] or flag or flags[index]
        wanted = [*both, *[both[index] for index in indices]]
        whole = [
            in_front(axis.size, x, 0 if flag else None) if want else x
            for x, flag, want in zip(values, flags, wanted, strict=True)
        ]
        out_flags: list[bool] = []

        def run(*args: Any) -> list[Any]:
            outs, out_flags[:] = self.rule.run(axis, both, args)
            return outs

        made = self._push(run, whole)
        live_flags = [flag for flag, has in zip(out_flags, self.out_live, strict=True) if has]
        return made, [*out_flags, *live_flags]

    def _push(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        """Results of a function, and the tangents of the live ones."""
        count = len(self.live)
        given = iter(values[count:])
        tangents = [
            next(given) if has else Zero(tangent_aval(get_aval(x)))
            for has, x in zip(self.live, values[:count], strict=True)
        ]
        outs, out_tangents = jvp.jvp_flat(function, values[:count], tangents)
        return [
            *outs,
            *[linear.instantiate(t) for t, has in zip(out_tangents, self.out_live, strict=True) if has],
        ]

    def _run_elements(self, axis: Axis, flags: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        """The derivative of the rule of what is not mapped, mapped over elements. If the rule gives results that are
        mapped all the same, that of the function."""
        dims: list[Dim] = [0 if flag else None for flag in flags]

        def of_element(*own: Any) -> list[Any]:
            outs, out_flags = self.rule.run(axis, [False] * len(own), own)
            return eval_jaxpr(self.call.jaxpr, self.call.consts, *own) if any(out_flags) else outs

        outs, out_dims = map_flat(lambda *args: self._push(of_element, args), Axis(axis.size), values, dims)
        whole = [x if dim is None else in_front(axis.size, x, dim) for x, dim in zip(outs, out_dims, strict=True)]
        return whole, [dim is not None for dim in out_dims]


def _batch(axis: Axis, values: list[Any], dims: list[Dim], *, call: ClosedJaxpr, rule: VmapRule) -> Any:
    flags = [dim is not None for dim in dims]
    if not any(flags):  # the function refers to the name of the axis
        return map_flat(lambda *args: eval_jaxpr(call.jaxpr, call.consts, *args), axis, values, dims)
    whole = [x if dim is None else in_front(axis.size, x, dim) for x, dim in zip(values, dims, strict=True)]
    outs, found = rule.run(axis, flags, whole)
    return outs, [0 if flag else None for flag in found]


custom_vmap_call_p.batch_axis = _batch


# -- derivatives ------------------------------------------------------------------------------------------------------


def _jvp(primals: Any, tangents: Any, *, call: ClosedJaxpr, rule: VmapRule) -> tuple[list[Any], list[Any]]:
    live = tuple([type(t) is not Zero for t in tangents])
    program, out_live = jvp.jvp_jaxpr(call, live)
    program, captured = call_primitive.close_over(program)
    operands = [*captured, *primals, *[t for t in tangents if type(t) is not Zero]]
    pushed = PushedRule(rule, call, live, out_live, len(captured))
    outs = custom_vmap_call_p.bind(*operands, call=program, rule=pushed)
    made = iter(outs[len(out_live) :])
    pairs = zip(outs[: len(out_live)], out_live, strict=True)
    return outs[: len(out_live)], [next(made) if has else Zero.from_primal_value(x) for x, has in pairs]


def _as_call(rule: VmapRule) -> dict[str, Any]:
    return {"name": rule.name, "donated_invars": (), "keep_unused": False, "inline": False}


custom_vmap_call_p.jvp = _jvp
custom_vmap_call_p.linearize = lambda live, *primals, call, rule: call_primitive.jit_p.linearize(
    live, *primals, jaxpr=call, **_as_call(rule)
)
custom_vmap_call_p.transpose = lambda cts, *operands, call, rule: call_primitive.jit_p.transpose(
    cts, *operands, jaxpr=call, **_as_call(rule)
)


# -- the public functions ---------------------------------------------------------------------------------------------


class custom_vmap(custom_jvp.Decorator, Generic[P, R]):
    """A function whose vectorisation is given by ``def_vmap(rule)``.

    ``rule(axis_size, in_batched, *args)`` gets the arguments, the mapped ones with their mapped dimension first, and
    for each argument a tree of bools that says which leaves are mapped. It returns the result and such a tree for it.
    AttributeError if the function is called before it has a rule, ValueError for a rule that returns other structures.

    >>> from weft.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def f(x):
    ...     return x + 1
    >>> @f.def_vmap
    ... def f_rule(axis_size, in_batched, x):
    ...     return x * 10, in_batched[0]
    >>> f(1).item(), weft.vmap(f)(jnp.arange(3)).tolist()
    (2, [0, 10, 20])
    """

    def __init__(self, fun: Callable[P, R]) -> None:
        functools.update_wrapper(self, fun)
        self.fun: Callable[..., Any] = fun
        self.vmap_rule: Callable[..., tuple[Any, Any]] | None = None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def def_vmap(self, vmap_rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Set the rule; usable as a decorator."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    @tracebacks.boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        name = getattr(self.fun, "__name__", str(self.fun))
        given = custom_jvp.positional(self.fun, args, kwargs, "custom_vmap")
        if self.vmap_rule is None:
            raise AttributeError(f"No batching rule defined for custom_vmap function {name} using def_vmap.")
        if not tracing.is_tracing():
            return flat_module.finished_tree(self.fun(*given))
        leaves, in_tree = runtime.tree_flatten(given)
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            outs, out_tree = runtime.tree_flatten(self.fun(*runtime.tree_unflatten(in_tree, list(values))))
            return outs

        info = DebugInfo("custom_vmap fun", function_names.source_of(self.fun))
        closed, _ = tracing.trace_to_jaxpr(flat, [bodies.aval_of(leaf) for leaf in leaves], info)
        call, captured = bodies.without_constants(closed)
        rule = VmapRule(name, self.vmap_rule, in_tree, out_tree)
        outs = custom_vmap_call_p.bind(*captured, *leaves, call=call, rule=rule)
        return runtime.tree_unflatten(out_tree, outs)


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """``f`` with a rule for ``vmap`` that runs it on one element at a time (``lax.map``), not on all at once.

    >>> from weft.custom_batching import sequential_vmap
    >>> weft.vmap(sequential_vmap(lambda x, y: x * y), in_axes=(0, None))(jnp.arange(3), 2).tolist()
    [0, 2, 4]
    """
    mapped = custom_vmap(f)

    @mapped.def_vmap
    def rule(axis_size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        leaves, tree = runtime.tree_flatten(args)
        flags = runtime.tree_flatten(tuple(in_batched))[0]
        if not any(flags):
            out = f(*args)
            return out, tree_util.tree_map(lambda _: False, out)

        def run(elements: Any) -> Any:
            given = iter(elements)
            own = [next(given) if flag else leaf for flag, leaf in zip(flags, leaves, strict=True)]
            return mapped(*runtime.tree_unflatten(tree, own))

        out = map_module.map(run, [leaf for flag, leaf in zip(flags, leaves, strict=True) if flag])
        return out, tree_util.tree_map(lambda _: True, out)

    return mapped

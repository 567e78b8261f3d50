"""custom_vjp: a function with its own rule for reverse differentiation; and custom_gradient.

``fwd`` gives the result and residuals; ``bwd`` takes the residuals and the cotangent of the result, and gives the
cotangents of the arguments. When a call is differentiated, ``fwd`` runs on the values. The tangents become one
equation, which can be transposed but not evaluated::

    t:f32[3] = custom_lin[bwd=bwd in_zeros=[False] num_res=1 symbolic_zeros=False] residual dx
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from weft import errors, runtime, tree_util
from weft._base.record import NamedTuple, Record
from weft.autodiff import custom_jvp, symbolic_zeros
from weft.autodiff.jvp import JVPTrace
from weft.autodiff.linearize import TangentTrace
from weft.core import kinds, ref_types
from weft.core.avals import get_aval, long_text
from weft.core.primitive import Primitive
from weft.core.programs import printer
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import DebugInfo
from weft.core.ref_types import CustomCallPrimitive, is_ref
from weft.core.tangents import FLOAT0, Zero, is_differentiable, tangent_aval
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import call_primitive, function_names, signature
from weft.dispatch.calls import flat_functions as flat_module
from weft.operations.pointwise import convert

P = ParamSpec("P")
R = TypeVar("R")

custom_vjp_call_p = CustomCallPrimitive(
    "custom_vjp_call", kinds.Higher(inline=lambda params: params["call_jaxpr"]), multiple_results=True, memoize=False
)
custom_vjp_call_p.unnamed_params |= {"rule", "symbolic_zeros"}  # derivatives are taken before a program is compiled
custom_vjp_call_p.def_effectful_abstract_eval(
    lambda *in_avals, call_jaxpr, **params: (call_jaxpr.out_avals, call_jaxpr.effects)
)


def _print_custom_vjp_call(eqn: Any, context: Any, settings: Any) -> Any:
    params = {**eqn.params, "bwd": _Name(eqn.params["rule"].bwd), "fwd": _Name(eqn.params["rule"].fwd)}
    names = ["name", "bwd", "call_jaxpr", "fwd", "symbolic_zeros"]
    return printer.eqn_document(eqn, names, params, context, settings)


custom_vjp_call_p.print_rule = _print_custom_vjp_call


class _Name:
    """A function, printed as its name."""

    def __init__(self, function: Any) -> None:
        self.text = getattr(function, "__name__", str(function))

    def __repr__(self) -> str:
        return self.text


custom_vjp_call_p.jvp = lambda primals, tangents, *, call_jaxpr, rule, **params: custom_jvp.pushed(
    primals, tangents, rule, call_jaxpr.out_avals, CAPTURED
)
custom_vjp_call_p.transpose = None
custom_vjp_call_p.has_hidden_rules = True

CAPTURED = (
    "Detected differentiation of the custom_vjp function {name} with respect to a value that it closed over. Its rules "
    "say how to differentiate by its arguments only: pass the value as an argument, and let fwd and bwd take it."
)


# -- the linear equation ----------------------------------------------------------------------------------------------


def _no_forward_mode(*operands: Any, **params: Any) -> Any:
    raise TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")


custom_lin_p = Primitive("custom_lin", kinds.Higher(inline=_no_forward_mode), multiple_results=True, memoize=False)
custom_lin_p.def_abstract_eval(lambda *in_avals, out_avals, **params: out_avals)
custom_lin_p.print_params = lambda params: {
    "bwd": _Name(params["rule"].bwd),
    **{name: params[name] for name in ("in_zeros", "num_res", "symbolic_zeros")},
}


def _transpose_custom_lin(cts: Any, *operands: Any, rule: VjpRule, num_res: int, in_zeros: Any, **params: Any) -> Any:
    residuals = operands[:num_res]
    back = rule.pull(params["res_tree"], params["out_tree"], residuals, cts, params["in_avals"])
    live = [ct for ct, zero in zip(back, in_zeros, strict=True) if not zero]
    return [None] * num_res + live


custom_lin_p.jvp, custom_lin_p.transpose = _no_forward_mode, _transpose_custom_lin


_PAIR = (
    "a pair (list or tuple of length two) where the first element represents the primal output (equal to {those} of "
    "the custom_vjp-decorated function {name}) and the second element represents residuals (i.e. values stored from "
    "the forward pass for use on the backward pass)"
)


class CustomVJPPrimal(Record):
    """An argument of ``fwd`` in a rule with symbolic zeros: ``perturbed`` if it is differentiated. A leaf of trees."""

    value: Any
    perturbed: bool


class HeldRefs(Record):
    """The structure of residuals that have references among them, with these: they are no operands of equations."""

    tree: Any
    refs: dict[int, Any]

    def exchanged(self, function: Callable[[Any], Any]) -> HeldRefs:
        return HeldRefs(self.tree, {index: function(ref) for index, ref in self.refs.items()})

    def filled(self, residuals: Sequence[Any]) -> Any:
        """The tree of all residuals."""
        rest = iter(residuals)
        count = self.tree.num_leaves
        return runtime.tree_unflatten(self.tree, [self.refs[k] if k in self.refs else next(rest) for k in range(count)])


def held_refs(res_tree: Any) -> list[Any]:
    """The references in the structure of residuals, which rules made from others put into tuples."""
    if type(res_tree) is HeldRefs:
        return list(res_tree.refs.values())
    return [ref for part in res_tree for ref in held_refs(part)] if type(res_tree) is tuple else []


class VjpRule:
    """The rules of one custom_vjp function for one call."""

    __slots__ = ("bwd", "fixed", "fwd", "in_tree", "name", "out_tree", "symbolic_zeros")

    def __init__(
        self, name: str, fwd: Any, bwd: Any, fixed: dict[int, Any], in_tree: Any, symbolic_zeros: bool
    ) -> None:
        self.name = name
        self.out_tree: Any = None  # that of the function's results, once it was traced
        self.fwd, self.bwd = fwd, bwd
        self.fixed = fixed  # position -> argument, for non-differentiable arguments
        self.in_tree = in_tree
        self.symbolic_zeros = symbolic_zeros

    def forward(self, primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Any, list[Any], Any]:
        """(results of fwd, their structure, residuals, their structure)."""
        given = list(primals)
        if self.symbolic_zeros:
            given = [CustomVJPPrimal(x, flag) for x, flag in zip(primals, perturbed, strict=True)]
        moved = list(runtime.tree_unflatten(self.in_tree, given))
        for index in sorted(self.fixed):
            moved.insert(index, self.fixed[index])
        made = self.fwd(*moved)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(
                f"{self.described()} must produce {_PAIR.format(those='those', name=self.name)}, but instead of a pair "
                f"the fwd rule {_Name(self.fwd)!r} produced {made}."
            )
        outs, out_tree = runtime.tree_flatten(made[0])
        residuals, res_tree = runtime.tree_flatten(made[1])
        if any(map(is_ref, residuals)):
            held = {index: x for index, x in enumerate(residuals) if is_ref(x)}
            residuals, res_tree = [x for x in residuals if not is_ref(x)], HeldRefs(res_tree, held)
        return outs, out_tree, residuals, res_tree

    def described(self) -> str:
        return f"Custom VJP fwd rule {_Name(self.fwd)!r} for function {self.name}"

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        """(results of fwd, their tangents, their structure), all flat."""
        outs, out_tree, residuals, res_tree = self.forward(primals, [type(t) is not Zero for t in tangents])
        found = [get_aval(out) for out in outs]
        pair = _PAIR.format(those="the output", name=self.name)
        custom_jvp.check_results(
            (out_tree, found),
            None if out_avals is None or self.out_tree is None else (self.out_tree, out_avals),
            f"{self.described()} must produce {pair}, but instead the fwd rule output's first element had",
            "custom_vjp",
            self.name,
        )
        expected = [tangent_aval(aval) for aval in found]
        out_tangents = custom_lin_p.bind(
            *residuals,
            *[t for t in tangents if type(t) is not Zero],
            rule=self,
            num_res=len(residuals),
            in_zeros=[type(t) is Zero for t in tangents],
            out_avals=expected,
            in_avals=[get_aval(x) for x in primals],
            res_tree=res_tree,
            out_tree=out_tree,
            symbolic_zeros=self.symbolic_zeros,
        )
        without = self.constant_results([type(t) is not Zero for t in tangents], len(outs))
        triples = zip(out_tangents, expected, range(len(outs)), strict=True)
        made = [Zero(aval) if aval.dtype == FLOAT0 or index in without else t for t, aval, index in triples]
        return outs, made, out_tree

    def constant_results(self, live: Sequence[bool], count: int) -> Sequence[int]:
        """The results that have no tangent whatever ``bwd`` says, where the ``live`` arguments have one."""
        return ()

    def pull(self, res_tree: Any, out_tree: Any, residuals: Any, cts: Any, in_avals: Any) -> list[Any]:
        """The cotangents of the argument leaves, from the user's bwd."""
        seen = [symbolic_zeros.as_user_sees(ct, self.symbolic_zeros) for ct in cts]
        fixed = [self.fixed[index] for index in sorted(self.fixed)]
        res = res_tree.filled(residuals) if type(res_tree) is HeldRefs else runtime.tree_unflatten(res_tree, residuals)
        ct = runtime.tree_unflatten(out_tree, seen)
        made = self.bwd(*fixed, res, ct)
        count = len(self.in_tree.children())
        if not isinstance(made, (tuple, list)) or len(made) != count:
            raise self._wrong_structure(made)
        leaves: list[Any] = []
        for child, part in zip(self.in_tree.children(), made, strict=True):
            found, tree = runtime.tree_flatten(part)
            leaves += found if tree == child else self._with_nones(made, child, part)
        triples = zip(leaves, in_avals, range(len(leaves)), strict=True)
        return [self._checked(leaf, aval, index) for leaf, aval, index in triples]

    def _with_nones(self, made: Any, child: Any, part: Any) -> list[Any]:
        """The cotangents of one argument, with None for every leaf of a part for which the rule gave None."""
        given, tree = runtime.tree_flatten(part, lambda x: x is None)
        try:
            indices = tree.flatten_up_to(runtime.tree_unflatten(child, [0] * child.num_leaves))
        except (TypeError, ValueError):
            raise self._wrong_structure(made) from None
        leaves: list[Any] = []
        for ct, index in zip(given, indices, strict=True):
            if index is None:  # whatever the rule gives for an argument that is None is left out
                continue
            if ct is not None and not isinstance(index, int):
                raise self._wrong_structure(made)
            leaves += [ct] if ct is not None else [None] * runtime.tree_flatten(index)[1].num_leaves
        return leaves

    def _wrong_structure(self, made: Any) -> TypeError:
        return TypeError(
            "Custom VJP bwd rule must produce an output with the same container (pytree) structure as the args tuple "
            "of the primal function, and in particular must produce a tuple of length equal to the number of arguments "
            f"to the primal function, but got bwd output structure {runtime.tree_flatten(made)[1]} for primal input "
            f"structure {self.in_tree}. The rule is {_Name(self.bwd)!r} of {self.name}."
        )

    def _path(self, index: int) -> str:
        """The path of an argument leaf."""
        tree = runtime.tree_unflatten(self.in_tree, list(range(self.in_tree.num_leaves)))
        return tree_util.keystr(tree_util.tree_flatten_with_path(tree)[0][index][0])

    def _checked(self, ct: Any, aval: Any, index: int) -> Any:
        expected = tangent_aval(aval)
        if ct is None or type(ct) is symbolic_zeros.SymbolicZero or expected.dtype == FLOAT0:
            return Zero(expected)
        found = get_aval(ct)
        if found.shape != expected.shape:
            raise ValueError(
                "Custom VJP bwd rule must produce an output with the same type as the args tuple of the primal "
                f"function, but at output{self._path(index)} the bwd rule {_Name(self.bwd)!r} of {self.name} produced "
                f"an output of type {long_text(found)} corresponding to an input of type {long_text(aval)}, so the "
                "shapes do not match"
            )
        return ct if found.dtype == expected.dtype else convert.convert(ct, expected.dtype, expected.weak_type)


# -- the public class -------------------------------------------------------------------------------------------------


class custom_vjp(custom_jvp.Decorator, Generic[P, R]):
    """A function whose reverse derivative is given by ``defvjp(fwd, bwd)``.

    AttributeError when it is called before the rules were given; TypeError for forward differentiation.

    >>> @weft.custom_vjp
    ... def f(x):
    ...     return x * 2
    >>> f.defvjp(lambda x: (f(x), None), lambda res, g: (g * 10,))
    >>> print(weft.grad(f)(1.0))
    10.0
    """

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun: Callable[..., Any] = fun
        self.nondiff_argnums = custom_jvp.positions(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        self.optimize_remat = False

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def defvjp(
        self,
        fwd: Callable[..., tuple[Any, Any]],
        bwd: Callable[..., tuple[Any, ...]],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set ``fwd(*args) -> (result, residuals)`` and ``bwd(*nondiff, residuals, ct) -> one ct per argument``."""
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros, self.optimize_remat = symbolic_zeros, optimize_remat

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        name = getattr(self.fun, "__name__", str(self.fun))
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        given = custom_jvp.positional(self.fun, args, kwargs, "custom_vjp")
        if not tracing.is_tracing():
            _check_refs(self.fun, given)
            result = self.fun(*given)
            if any(map(is_ref, runtime.tree_flatten(result)[0])):
                raise ValueError(
                    f"custom_vjp primal function {name} returned a mutable array reference: return ref[...], its value "
                    "now"
                )
            return flat_module.finished_tree(result)
        indices = custom_jvp.fixed_indices(self.nondiff_argnums, len(given))
        fixed = {index: given[index] for index in indices}
        if any(isinstance(leaf, Tracer) for leaf in runtime.tree_flatten(list(fixed.values()))[0]):
            raise errors.UnexpectedTracerError(_TRACED_NONDIFF.format(name=name))
        leaves, in_tree = runtime.tree_flatten(tuple([x for index, x in enumerate(given) if index not in indices]))
        rule = VjpRule(name, self.fwd, self.bwd, fixed, in_tree, self.symbolic_zeros)
        trace = tracing.state.trace
        if isinstance(trace, (JVPTrace, TangentTrace)) and not any(map(is_ref, leaves)):
            if not any(trace.owns(leaf) for leaf in leaves):
                return custom_jvp.undifferentiated(self, given, trace, CAPTURED.format(name=name))
            if isinstance(trace, JVPTrace):
                return trace.differentiate_by(rule.push, leaves)
        return self._record(name, rule, leaves, fixed)

    def _record(self, name: str, rule: VjpRule, leaves: list[Any], fixed: dict[int, Any]) -> Any:
        """One equation in the program being traced."""
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            moved = list(runtime.tree_unflatten(rule.in_tree, list(values)))
            for index in sorted(fixed):
                moved.insert(index, fixed[index])
            outs, out_tree = runtime.tree_flatten(self.fun(*moved))
            return outs

        info = DebugInfo("custom_vjp fun", function_names.source_of(self.fun))
        closed, _ = tracing.trace_to_jaxpr(flat, [get_aval(leaf) for leaf in leaves], info)
        program, captured = call_primitive.close_over(closed)
        rule.out_tree = out_tree
        outs = custom_vjp_call_p.bind(
            *captured, *leaves, name=name, call_jaxpr=program, rule=rule, symbolic_zeros=self.symbolic_zeros
        )
        return runtime.tree_unflatten(out_tree, outs)


def _check_refs(fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """ValueError if a reference is given twice."""
    leaves = runtime.tree_flatten(args)[0]
    if any(map(is_ref, leaves)):
        call = signature.Call(args, {}, (), len(args))
        text = f"{function_names.source_of(fun)} for custom_vjp"
        ref_types.check_distinct(leaves, lambda: signature.leaf_paths(fun, call), text)


_TRACED_NONDIFF = (
    "Found a JAX Tracer object passed as an argument to a custom_vjp function in a position indicated by "
    "nondiff_argnums as non-differentiable. Such arguments are part of the function {name}: pass functions and other "
    "static values there, and arrays as differentiable arguments for which bwd gives None."
)


# -- functions made from others ---------------------------------------------------------------------------------------


class _Closed(NamedTuple):
    """A traced pullback as a pytree: captured values are its leaves, the program is its structure."""

    consts: list[Any]
    facts: Any


tree_util.register_pytree_node(_Closed, lambda x: (x.consts, x.facts), lambda facts, rest: _Closed(list(rest), facts))


class _Facts:
    def __init__(self, jaxpr: Any, out_tree: Any) -> None:
        self.jaxpr, self.out_tree = jaxpr, out_tree


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns its own derivative: ``fun(*args)`` gives ``(result, pullback)``.

    The pullback takes the cotangent of the result and gives those of the arguments (a tuple if there are several).

    >>> @weft.custom_gradient
    ... def f(x):
    ...     return x ** 2, lambda g: g * 10 * x
    >>> print(weft.grad(f)(3.0))
    30.0
    """

    @custom_vjp
    def wrapped_fun(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)[0]

    def fwd(*args: Any, **kwargs: Any) -> Any:
        result, rule = fun(*args, **kwargs)
        leaves, tree = runtime.tree_flatten(result)
        out_tree: Any = None

        def flat(*cts: Any) -> list[Any]:
            nonlocal out_tree
            made, out_tree = runtime.tree_flatten(rule(runtime.tree_unflatten(tree, list(cts))))
            return made

        closed, _ = tracing.trace_to_jaxpr(flat, [tangent_aval(get_aval(x)) for x in leaves])
        arguments = runtime.tree_flatten(args)[1]
        return result, _Closed(list(closed.consts), _Facts(closed.jaxpr, (out_tree, arguments)))

    def bwd(res: Any, ct: Any) -> Any:
        outs = eval_jaxpr(res.facts.jaxpr, res.consts, *runtime.tree_flatten(ct)[0])
        out_tree, arguments = res.facts.out_tree
        made = runtime.tree_unflatten(out_tree, outs)
        return (made,) if len(arguments.children()) == 1 and out_tree != arguments else made

    wrapped_fun.defvjp(fwd, bwd)
    functools.update_wrapper(wrapped_fun, fun)
    return wrapped_fun


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """(``fun`` without the differentiable values it captured, those values: pass them after its arguments).

    >>> f, captured = weft.closure_convert(lambda x: x * 2.0, 1.0)
    >>> print(f(3.0, *captured), captured)
    6.0 []
    """
    leaves, in_tree = runtime.tree_flatten(example_args)
    out_tree: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = runtime.tree_flatten(fun(*runtime.tree_unflatten(in_tree, list(values))))
        return outs

    closed, _ = tracing.trace_to_jaxpr(flat, [get_aval(leaf) for leaf in leaves])
    hoisted = [isinstance(x, Tracer) and is_differentiable(x.aval.dtype) for x in closed.consts]
    captured = [x for x, out in zip(closed.consts, hoisted, strict=True) if out]

    def converted(*args: Any) -> Any:
        count = len(args) - len(captured)
        given, tree = runtime.tree_flatten(tuple(args[:count]))
        if tree != in_tree:
            raise TypeError(f"The function was converted for arguments of the structure {in_tree}, not {tree}")
        more = iter(args[count:])
        consts = [next(more) if out else x for x, out in zip(closed.consts, hoisted, strict=True)]
        return runtime.tree_unflatten(out_tree, eval_jaxpr(closed.jaxpr, consts, *given))

    return converted, captured

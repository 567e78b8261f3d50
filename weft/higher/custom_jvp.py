"""custom_jvp: a function with its own rule of forward differentiation.

While tracing, a call is one equation that holds the function's jaxpr and the rule; the compiler splices the jaxpr in::

    b:f32[3] = custom_jvp_call[name=relu call_jaxpr={...} jvp=jvp symbolic_zeros=False] a

Without a trace the function is simply called. Arguments named by ``nondiff_argnums`` are part of the function.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft.core import kinds, printer, source_info
from weft.core import trace as tracing
from weft.core.avals import get_aval
from weft.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from weft.core.primitive import Primitive
from weft.higher import calls

custom_jvp_call_p = Primitive(
    "custom_jvp_call", kinds.Higher(inline=lambda params: params["call_jaxpr"]), multiple_results=True, memoize=False
)


def _type_custom_jvp_call(*in_avals: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> tuple[list[Any], Any]:
    return call_jaxpr.out_avals, call_jaxpr.effects


custom_jvp_call_p.def_effectful_abstract_eval(_type_custom_jvp_call)


def _print_custom_jvp_call(eqn: Any, context: Any, settings: Any) -> Any:
    names = ["name", "call_jaxpr", "jvp", "symbolic_zeros"]
    return printer.eqn_document(eqn, names, eqn.params, context, settings)


custom_jvp_call_p.print_rule = _print_custom_jvp_call


_PROGRAMS_BOUND = 1024  # programs remembered for each function of weft itself


class JvpRule:
    """The rule of one custom_jvp function, as an equation carries it; it prints as its name."""

    __slots__ = ("function", "nondiff")

    def __init__(self, function: Callable[..., Any], nondiff: tuple[Any, ...]) -> None:
        self.function = function
        self.nondiff = nondiff

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", "jvp")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JvpRule) and (self.function, self.nondiff) == (other.function, other.nondiff)

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, primals: Any, tangents: Any) -> Any:
        return self.function(*self.nondiff, primals, tangents)


class custom_jvp:
    """A function whose derivative is given by ``defjvp`` (or ``defjvps``, one function per argument).

    AttributeError when it is called while tracing before a rule was given.

    >>> @weft.custom_jvp
    ... def f(x):
    ...     return x * 2
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     return f(*primals), tangents[0] * 2
    """

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = tuple(nondiff_argnums)
        self.nondiff_argnames = tuple(nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        module = getattr(self, "__module__", None) or ""
        own = module.startswith("weft.") and not module.startswith("weft.tour.")
        self._programs: dict[Any, Any] | None = {} if own and not nondiff_argnums else None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Give the rule ``jvp(*nondiff, primals, tangents) -> (primals out, tangents out)``."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give one rule per argument, ``rule(tangent, primals out, *primals)``; None for a zero derivative."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            total = functools.reduce(lambda x, y: x + y, parts) if parts else None
            return out, total

        self.defjvp(jvp)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not tracing.is_tracing():
            return self.fun(*args, **kwargs)
        if self.jvp is None:
            name = getattr(self.fun, "__name__", str(self.fun))
            raise AttributeError(f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = _positional(self.fun, args, kwargs)
        moved = [args[i] for i in range(len(args)) if i not in self.nondiff_argnums]
        fixed = tuple(args[i] for i in self.nondiff_argnums)
        leaves, in_tree = runtime.tree_flatten(tuple(moved))
        avals = tuple([_aval(leaf, position) for position, leaf in enumerate(leaves)])
        program, captured, out_tree = self._program(args, avals, in_tree)
        outs = custom_jvp_call_p.bind(
            *captured,
            *leaves,
            name=getattr(self.fun, "__name__", "custom_jvp"),
            call_jaxpr=program,
            jvp=JvpRule(self.jvp, fixed),
            symbolic_zeros=self.symbolic_zeros,
        )
        return runtime.tree_unflatten(out_tree, outs)

    def _program(self, args: tuple[Any, ...], avals: tuple[Any, ...], in_tree: Any) -> tuple[ClosedJaxpr, Any, Any]:
        """(the function's program, values that it captured, the tree of its results), a new jaxpr for every call.

        Functions of weft itself capture nothing, so theirs are copies of what was traced before for these types.
        """
        key = (avals, in_tree, runtime.get_config_token())
        known = self._programs.get(key) if self._programs is not None else None
        if known is not None:
            return ClosedJaxpr(_with_new_variables(known[0])), (), known[1]
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            given = iter(runtime.tree_unflatten(in_tree, list(values)))
            whole = [args[i] if i in self.nondiff_argnums else next(given) for i in range(len(args))]
            outs, out_tree = runtime.tree_flatten(self.fun(*whole))
            return outs

        closed, _ = tracing.trace_to_jaxpr(flat, avals, _debug_info(self.fun))
        program, captured = calls.close_over(closed)
        programs = self._programs
        if programs is not None and len(programs) < _PROGRAMS_BOUND and not closed.consts and _is_flat(closed.jaxpr):
            programs[key] = (closed.jaxpr, out_tree)
        return program, captured, out_tree


def _is_flat(jaxpr: Jaxpr) -> bool:
    """Whether the only jaxprs inside are those of jitted functions, which calls share."""
    return all(
        eqn.primitive is calls.jit_p or not any(True for _ in jaxprs_in_params(eqn.params)) for eqn in jaxpr.eqns
    )


def _with_new_variables(jaxpr: Jaxpr) -> Jaxpr:
    """The same program in variables of its own, recorded here."""
    frame = source_info.user_frame(sys._getframe(1))
    source = None if frame is None else (frame.f_code, frame.f_lasti, ())
    new: dict[Any, Any] = {v: Var(v.aval) for v in jaxpr.invars}
    eqns = []
    for eqn in jaxpr.eqns:
        invars = [atom if type(atom) is Literal else new[atom] for atom in eqn.invars]
        outvars = [type(v)(v.aval) for v in eqn.outvars]
        new.update(zip(eqn.outvars, outvars, strict=True))
        eqns.append(JaxprEqn(invars, outvars, eqn.primitive, eqn.params, eqn.effects, source))
    outvars = [atom if type(atom) is Literal else new[atom] for atom in jaxpr.outvars]
    return Jaxpr([], [new[v] for v in jaxpr.invars], outvars, eqns, jaxpr.effects, jaxpr.debug_info)


def _aval(value: Any, position: int) -> Any:
    try:
        return get_aval(value)
    except TypeError:
        raise TypeError(
            "Error interpreting argument to custom_jvp_call as a JAX value. The problematic value is of type "
            f"{type(value)} and was passed to custom_jvp_call at position {position}."
        ) from None


def _positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, defaults filled in."""
    if not kwargs:
        return args
    bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"The following keyword arguments could not be resolved to positions: {', '.join(bound.kwargs)}"
        )
    return bound.args


def _debug_info(fun: Callable[..., Any]) -> DebugInfo | None:
    code = getattr(fun, "__code__", None)
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return DebugInfo("custom_jvp fun", f"{getattr(fun, '__name__', 'fun')}{where}", None, None)

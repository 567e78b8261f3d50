"""custom_jvp: a function with its own rule for forward differentiation.

While tracing, a call is one equation that holds the function's jaxpr and the rule; the compiler inlines the jaxpr::

    b:f32[3] = custom_jvp_call[name=relu call_jaxpr={...} jvp=jvp symbolic_zeros=False] a

Without a trace the function is simply called. Arguments named by ``nondiff_argnums`` or ``nondiff_argnames`` are part
of the function: the rule gets them by position, in the order of the signature.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast

from weft import errors, runtime, tree_util
from weft.autodiff import symbolic_zeros
from weft.autodiff.jvp import JVPTrace
from weft.autodiff.linearize import TangentTrace
from weft.autodiff.transpose import backward_pass
from weft.core import kinds
from weft.core.avals import get_aval, long_text
from weft.core.caches.weak_table import WeakTable
from weft.core.programs import printer
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from weft.core.ref_types import CustomCallPrimitive, is_ref
from weft.core.symbolic import sizes
from weft.core.tangents import Zero
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive, flat_functions
from weft.dispatch.calls import jit as jit_module
from weft.operations import linear

P = ParamSpec("P")
R = TypeVar("R")

custom_jvp_call_p = CustomCallPrimitive(
    "custom_jvp_call", kinds.Higher(inline=lambda params: params["call_jaxpr"]), multiple_results=True, memoize=False
)


def _type_custom_jvp_call(*in_avals: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> tuple[list[Any], Any]:
    return call_jaxpr.out_avals, call_jaxpr.effects


custom_jvp_call_p.unnamed_params |= {"jvp", "symbolic_zeros"}  # derivatives are taken before a program is compiled
custom_jvp_call_p.def_effectful_abstract_eval(_type_custom_jvp_call)


def _print_custom_jvp_call(eqn: Any, context: Any, settings: Any) -> Any:
    names = ["name", "call_jaxpr", "jvp", "symbolic_zeros"]
    return printer.eqn_document(eqn, names, eqn.params, context, settings)


custom_jvp_call_p.print_rule = _print_custom_jvp_call


def pushed(primals: Any, tangents: Any, rule: Any, out_avals: Any, captured_error: str) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a call with a rule, whose operands are captured values before the arguments."""
    captured = len(primals) - rule.in_tree.num_leaves
    if any(type(t) is not Zero for t in tangents[:captured]):
        raise errors.UnexpectedTracerError(captured_error.format(name=rule.name))
    given = [symbolic_zeros.as_recorded(x) for x in primals[captured:]]
    outs, out_tangents, _ = rule.push(given, tangents[captured:], out_avals)
    return outs, out_tangents


CAPTURED = (
    "Detected differentiation of the custom_jvp function {name} with respect to a value that it closed over. Its rule "
    "says how to differentiate by its arguments only: pass the value as an argument, and let the rule take its tangent."
)
custom_jvp_call_p.jvp = lambda primals, tangents, *, call_jaxpr, jvp, **params: pushed(
    primals, tangents, jvp, call_jaxpr.out_avals, CAPTURED
)
custom_jvp_call_p.transpose = lambda cts, *operands, call_jaxpr, **params: backward_pass(
    call_jaxpr.jaxpr, call_jaxpr.consts, operands, cts
)


_PROGRAMS_BOUND = 1024  # programs cached for each of weft's own functions


class JvpRule:
    """The rule of one custom_jvp function for one call, a parameter of its equation; printed as its name."""

    __slots__ = ("function", "in_tree", "name", "nondiff", "out_tree", "symbolic_zeros")

    def __init__(
        self, name: str, function: Callable[..., Any], nondiff: tuple[Any, ...], in_tree: Any, symbolic_zeros: bool
    ) -> None:
        self.out_tree: Any = None  # that of the function's results, once it was traced
        self.name = name
        self.function = function
        self.nondiff = nondiff
        self.in_tree = in_tree
        self.symbolic_zeros = symbolic_zeros

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", "jvp")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JvpRule) and self._key() == other._key()

    def _key(self) -> tuple[Any, ...]:
        return self.function, self.nondiff, self.in_tree, self.symbolic_zeros

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, primals: Any, tangents: Any) -> Any:
        return self.function(*self.nondiff, primals, tangents)

    def push(self, primals: Sequence[Any], tangents: Sequence[Any], out_avals: Any = None) -> tuple[Any, Any, Any]:
        """(results, their tangents, their structure) from the user's rule, as flat lists.

        ``out_avals`` are the result types of the function itself, if they are known.
        """
        given = [symbolic_zeros.as_user_sees(t, self.symbolic_zeros) for t in tangents]
        trees = [runtime.tree_unflatten(self.in_tree, list(leaves)) for leaves in (primals, given)]
        made = self(*trees)
        rule = f"Custom JVP rule {self!r} for function {self.name}"
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(
                f"{rule} must produce a pair (list or tuple of length two) representing primal and tangent outputs, "
                f"but got {made}."
            )
        outs, out_tree = runtime.tree_flatten(made[0])
        out_tangents, tangent_tree = runtime.tree_flatten(made[1])
        if out_tree != tangent_tree:
            raise TypeError(
                f"{rule} must produce primal and tangent outputs with equal container (pytree) structures, "
                f"but got {out_tree} and {tangent_tree} respectively."
            )
        found = [get_aval(out) for out in outs]
        expected = None if out_avals is None or self.out_tree is None else (self.out_tree, out_avals)
        check_results((out_tree, found), expected, f"{rule} must produce {FIRST_OF_JVP}", "custom_jvp", self.name)
        checked = [symbolic_zeros.checked(t, aval, self) for t, aval in zip(out_tangents, found, strict=True)]
        return outs, checked, out_tree


FIRST_OF_JVP = (
    "a pair (list or tuple of length two) where the first element represents the primal output (equal in value to the "
    "output of the custom_jvp-decorated function {name}, and in particular {same}), but instead the JVP rule output's "
    "first element had"
)


def check_results(found: Any, expected: Any, text: str, word: str, name: str) -> None:
    """TypeError unless results of a rule have the structure and types, ``(tree, avals)``, of the function's own.

    ``text`` says what the rule must produce; ``word`` is that of the decorator.
    """
    if expected is None:
        return
    if found[0] != expected[0]:
        same, what, end = "of the same container/pytree structure", "container/pytree structure", "."
    elif not same_types(found[1], expected[1]):
        same, what, end = "with leaves of the same shape/dtype", "shapes/dtypes of", ""
    else:
        return
    given, own = [_shown(*side) for side in (found, expected)]
    raise TypeError(
        f"{text.format(name=name, same=same)} {what}:\n    {given}\nwhile the {word}-decorated function {name} had "
        f"output {what}:\n    {own}{end}"
    )


def _shown(tree: Any, types: Sequence[Any]) -> str:
    """The types in their structure."""
    texts = [long_text(aval.strip_weak_type()) for aval in types]
    return str(runtime.tree_unflatten(tree, texts)).replace("'", "")


def same_types(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(
        (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(found, expected, strict=True)
    )


def fixed_indices(numbers: Sequence[int], count: int) -> list[int]:
    """The positions that ``nondiff_argnums`` name among ``count`` arguments. IndexError for a number that is too large,
    ValueError for one that is too small."""
    for number in numbers:
        if not -count <= number < count:
            raise (IndexError if number >= 0 else ValueError)(
                f"nondiff_argnums names argument {number}, but the function was called with {count}"
            )
    return sorted({number % count for number in numbers})


class Decorator:
    """A function with rules of its own. If the function that it decorates is one too, that one's methods are its own:
    ``defjvp`` of ``custom_vmap(custom_jvp(f))``."""

    fun: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        fun = vars(self).get("fun")
        if isinstance(fun, Decorator) and not name.startswith("__"):
            return getattr(fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class custom_jvp(Decorator, Generic[P, R]):
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
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun: Callable[..., Any] = fun
        self.nondiff_argnums = positions(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        module = getattr(self, "__module__", None) or ""
        own = module.startswith("weft.") and not module.startswith("weft.tour.")
        self._programs: dict[Any, Any] | None = {} if own and not self.nondiff_argnums else None
        if self._programs is not None:
            _remembering.set(self, self._programs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule ``jvp(*nondiff, primals, tangents) -> (primals out, tangents out)``."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule per argument, ``rule(tangent, primals out, *primals)``; None for a zero derivative."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Any, tangents: Any) -> Any:
            out: Any = self.__call__(*primals)  # type: ignore[call-arg] - as many as the function takes
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            leaves, tree = runtime.tree_flatten(out)
            if not parts:
                return out, runtime.tree_unflatten(
                    tree, [linear.instantiate(Zero.from_primal_value(x)) for x in leaves]
                )
            total = functools.reduce(lambda x, y: tree_util.tree_map(linear.add_any, x, y), parts)
            return out, total

        self.defjvp(jvp)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {_name_of(self.fun)} using defjvp.")
        given = positional(self.fun, args, kwargs, "custom_jvp")
        if not tracing.is_tracing():
            result: Any = self.fun(*given)
            if type(result) is not runtime.Array:
                result = flat_functions.finished_tree(result)
            return cast("R", result)
        name = _name_of(self.fun)
        fixed_indices = self._fixed_indices(len(given))
        moved = [given[i] for i in range(len(given)) if i not in fixed_indices]
        fixed = tuple(given[i] for i in fixed_indices)
        leaves, in_tree = runtime.tree_flatten(tuple(moved))
        rule = JvpRule(name, self.jvp, fixed, in_tree, self.symbolic_zeros)
        trace = tracing.state.trace
        if isinstance(trace, (JVPTrace, TangentTrace)) and not any(map(is_ref, leaves)):
            if not any(trace.owns(leaf) for leaf in leaves):
                return undifferentiated(self, given, trace, CAPTURED.format(name=name))
            if isinstance(trace, JVPTrace):
                return trace.differentiate_by(rule.push, leaves)
        avals = tuple([_aval(leaf, position) for position, leaf in enumerate(leaves)])
        program, captured, out_tree = self._program(given, avals, in_tree)
        rule.out_tree = out_tree
        outs = custom_jvp_call_p.bind(
            *captured,
            *leaves,
            name=name,
            call_jaxpr=program,
            jvp=rule,
            symbolic_zeros=self.symbolic_zeros,
        )
        return runtime.tree_unflatten(out_tree, outs)

    def _fixed_indices(self, count: int) -> list[int]:
        """Which arguments are part of the function."""
        return fixed_indices(self.nondiff_argnums, count)

    def _program(self, args: tuple[Any, ...], avals: tuple[Any, ...], in_tree: Any) -> tuple[ClosedJaxpr, Any, Any]:
        """(the function's program, values that it captured, the tree of its results); the jaxpr is new in every call.

        weft's own functions capture nothing: their programs are copies of an earlier trace for the same types.
        """
        key = (avals, in_tree, runtime.get_config_token())
        programs = self._programs if sizes.keeper(key) is None else None
        known = programs.get(key) if programs is not None else None
        if known is not None:
            return ClosedJaxpr(_with_new_variables(known[0])), (), known[1]
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            given = iter(runtime.tree_unflatten(in_tree, list(values)))
            fixed = self._fixed_indices(len(args))
            whole = [args[i] if i in fixed else next(given) for i in range(len(args))]
            outs, out_tree = runtime.tree_flatten(self.fun(*whole))
            return outs

        closed, _ = tracing.trace_to_jaxpr(flat, avals, _debug_info(self.fun))
        program, captured = call_primitive.close_over(closed)
        if programs is not None and len(programs) < _PROGRAMS_BOUND and not closed.consts and _is_flat(closed.jaxpr):
            programs[key] = (closed.jaxpr, out_tree)
        return program, captured, out_tree


_remembering: WeakTable[dict[Any, Any]] = WeakTable()


def forget() -> None:
    """Drop the traces of weft's own functions (part of ``weft.clear_caches``), which refer to dropped jaxprs."""
    for programs in _remembering.values():
        programs.clear()


jit_module.on_clear_caches(forget)


def undifferentiated(function: Callable[..., Any], args: tuple[Any, ...], trace: Any, text: str) -> Any:
    """A call without differentiated arguments, run in the enclosing trace; error ``text`` if it captured one."""
    with tracing.set_current(trace.parent):
        result = function(*args)
    if any(trace.owns(leaf) for leaf in runtime.tree_flatten(result)[0]):
        raise errors.UnexpectedTracerError(text)
    return result


def _is_flat(jaxpr: Jaxpr) -> bool:
    """Whether all inner jaxprs are those of jitted functions, which may be shared."""
    return all(eqn.primitive is call_primitive.jit_p or not jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns)


def _with_new_variables(jaxpr: Jaxpr) -> Jaxpr:
    """The same program with new variables."""
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


def positions(fun: Callable[..., Any], argnums: Sequence[int], argnames: Sequence[str]) -> tuple[int, ...]:
    """The given positions, and those of the named parameters; unknown names have no effect."""
    names = (argnames,) if isinstance(argnames, str) else argnames
    numbers = tuple([operator.index(number) for number in argnums])
    if not names:
        return numbers
    parameters = list(inspect.signature(fun).parameters)
    return tuple(sorted({*numbers, *(index for index, name in enumerate(parameters) if name in names)}))


def _name_of(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", None) or str(fun)


def positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], word: str) -> tuple[Any, ...]:
    """All arguments by position, defaults filled in but for a partial; ``word`` is that of the decorator."""
    if not kwargs and (isinstance(fun, functools.partial) or _takes(getattr(fun, "__wrapped__", fun), len(args))):
        return args  # JAX does not look into a partial: what it leaves to a default is no argument of the rules
    failed = (
        f"The input arguments to the {word}-decorated function {_name_of(fun)} could not be resolved to "
        "positional-only arguments. Binding failed with the error:\n"
    )
    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{failed}{error}") from error
    bound.apply_defaults()
    if left := [name for name in bound.kwargs if name in kwargs]:
        raise TypeError(
            f"{failed}The following keyword arguments could not be resolved to positions: {', '.join(left)}. A "
            "function with rules of its own takes all arguments by position: name them before the star."
        )
    return bound.args


def _takes(fun: Callable[..., Any], count: int) -> bool:
    """Whether a plain function has ``count`` parameters, all by position and without defaults."""
    code = getattr(fun, "__code__", None)
    return (
        code is not None
        and code.co_argcount == count
        and not code.co_kwonlyargcount
        and getattr(fun, "__defaults__", fun) is None
    )


def _debug_info(fun: Callable[..., Any]) -> DebugInfo | None:
    code = getattr(fun, "__code__", None)
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return DebugInfo("custom_jvp fun", f"{getattr(fun, '__name__', 'fun')}{where}", None, None)

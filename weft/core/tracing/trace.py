"""Tracing: the current trace of the thread decides what ``Primitive.bind`` does.

Without a trace, ``bind`` evaluates (``EvalTrace``, through a hook that the compiler installs). ``trace_to_jaxpr`` runs
a function on tracers, which carry an aval and no value, under a ``DynamicJaxprTrace``, which records one equation for
each ``bind``. Operands that are not tracers of this trace become literals (scalars) or constvars (arrays, and tracers
of enclosing traces). The previous trace is always restored, also after an exception.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes, errors, runtime
from weft._base import lazy
from weft.core import avals as avals_module
from weft.core.avals import get_aval
from weft.core.programs import check
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.symbolic import open_sizes, sizes
from weft.core.tracing import provenance, source_info
from weft.core.tracing.tracer import Tracer

Evaluate = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Trace:
    """An interpretation of primitives. ``valid`` turns False when the traced call has returned.

    ``level`` counts the traces that enclose it on its thread.
    """

    __slots__ = ("__weakref__", "level", "thread", "valid")
    records_tangents = False  # True if it passes operations without tangents to its parent
    requires_low = True  # JAX's word: its primitives are those of arrays
    takes_over = False  # True if operations on its values are its own, under whatever trace they are done

    def __init__(self, level: int = 0) -> None:
        self.valid = True
        self.level = level
        self.thread = threading.get_ident()

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        """``process`` under JAX's name, for traces that users write."""
        return self.process(primitive, tuple(tracers), params)

    def stage_value(self, value: Any) -> Any:
        """The value as one of this trace: itself, since operations take values of enclosing traces."""
        return value

    full_raise = stage_value

    @property
    def main(self) -> Any:
        """What tells this transformation apart from others."""
        return self

    def invalidate(self) -> None:
        self.valid = False

    def is_valid(self) -> bool:
        return self.valid

    def owns(self, value: Any) -> bool:
        """Whether a value is a tracer of this trace; asked only by traces for which it matters."""
        return False

    def __repr__(self) -> str:
        return type(self).__name__


class EvalTrace(Trace):
    """No tracing: a primitive runs at once on concrete operands."""

    __slots__ = ("evaluate",)

    def __init__(self) -> None:
        super().__init__(0)
        self.evaluate: Evaluate | None = None

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        tracers = [x for x in args if isinstance(x, Tracer)]
        if tracers:
            return _record_in_innermost(tracers, primitive, args, params)
        if self.evaluate is None:
            raise errors.InternalError("no evaluator is installed", stage="evaluate", node=primitive.name)
        return self.evaluate(primitive, args, params)


def _record_in_innermost(tracers: list[Any], primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Inside ``eval_context``: record an operation on traced values in the innermost of their traces."""
    here = threading.get_ident()
    for tracer in tracers:
        if not tracer._trace.valid or tracer._trace.thread != here:
            raise escaped_tracer(tracer)
    innermost = max((tracer._trace for tracer in tracers), key=lambda trace: trace.level)
    return innermost.process(primitive, args, params)


EVAL = EvalTrace()


class _State(threading.local):
    """The current trace of each thread, the number of enclosing traces (suspended ones included), in a program of
    shards whose types say along which mesh axes values differ, what makes operands agree (see
    ``core.sharding.varying``), and
    whether an operand that is being read was narrowed to 32 bits."""

    def __init__(self) -> None:
        self.trace: Trace = EVAL
        self.level = 0
        self.varying: Any = None
        self.narrowed = False


state = _State()


def install_evaluate(evaluate: Evaluate) -> None:
    """Set the function that runs a primitive on concrete operands: ``evaluate(primitive, args, params)``."""
    EVAL.evaluate = evaluate


def current() -> Trace:
    """The current trace of this thread."""
    return state.trace


def is_tracing() -> bool:
    return state.trace is not EVAL


def recorder() -> Any:
    """The innermost trace that records a program, of the current trace and those around it; None if there is none."""
    trace: Any = state.trace
    while trace is not None and type(trace) is not DynamicJaxprTrace:
        trace = getattr(trace, "parent", None)
    return trace


class set_current:
    """A context manager that makes ``trace`` current; the previous trace is always restored."""

    __slots__ = ("before", "level", "trace")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __enter__(self) -> None:
        trace = self.trace
        self.before, self.level = before, level = state.trace, state.level
        state.trace = trace
        if trace.level > level:
            state.level = trace.level
        if (trace is EVAL) is not (before is EVAL):
            runtime.set_tracing(trace is not EVAL)

    def __exit__(self, *exception: object) -> None:
        now, before = state.trace, self.before
        state.trace, state.level = before, self.level
        if (now is EVAL) is not (before is EVAL):
            runtime.set_tracing(before is not EVAL)


def eval_context() -> Any:
    """A context manager inside which operations on concrete values run at once, even while a function is traced."""
    return set_current(EVAL)


# -- recording a jaxpr ------------------------------------------------------------------------------------------------


class DynamicJaxprTracer(Tracer):
    """A value of the program being recorded: ``val`` is its variable, or a Literal if it was folded to a constant."""

    __slots__ = ("source", "val")

    def __init__(self, trace: Trace, aval: Any, val: Atom, source: source_info.Captured | None) -> None:
        self._trace = trace
        self.aval = aval
        self.val = val
        self.source = source

    _repr_name = "JitTracer"

    def _origin(self) -> provenance.Origin | None:
        return self._trace.origin(self.val)  # type: ignore[attr-defined]


class DynamicJaxprTrace(Trace):
    """Records the equations of one function."""

    __slots__ = ("const_vars", "consts", "constvars", "debug_info", "eqns", "invars", "outer", "source")

    def __init__(
        self, debug_info: DebugInfo | None, level: int = 1, source: source_info.Captured | None = None
    ) -> None:
        super().__init__(level)
        self.outer = weakref.ref(state.trace)
        self.debug_info = debug_info
        self.source = source  # the position of all equations, if known
        self.invars: list[Var] = []
        self.eqns: list[JaxprEqn] = []
        self.constvars: list[Var] = []
        self.consts: list[Any] = []
        self.const_vars: dict[int, Var] = {}  # id of a captured value -> its constvar; self.consts keeps it alive

    def new_arg(self, aval: Any) -> DynamicJaxprTracer:
        v = Var(aval)
        self.invars.append(v)
        return tracer_types.get(type(aval), DynamicJaxprTracer)(self, aval, v, None)

    def atom(self, value: Any) -> Atom:
        """The variable or literal that stands for ``value`` in this program."""
        make = _LITERALS.get(type(value))
        if make is not None:
            literal = make(value)
            if literal is not None:
                return literal
        elif isinstance(value, Tracer):
            return value.val if value._trace is self else self.constant(value)  # type: ignore[attr-defined]
        elif isinstance(value, (int, float, complex)):  # an enum member or another subclass
            kind: Any = next(base for base in (bool, int, float, complex) if isinstance(value, base))
            return self.atom(kind(value))
        elif getattr(value, "is_symbolic", False):
            return self.atom(open_sizes.plain(value))
        return self.constant(value)

    def constant(self, value: Any) -> Var:
        """The constvar of a captured array, or of a value of an enclosing trace."""
        v = self.const_vars.get(id(value))
        if v is None:
            if isinstance(value, Tracer) and (not value._trace.valid or value._trace.level > self.level):
                raise escaped_tracer(value)
            aval = get_aval(value)
            if isinstance(value, np.ndarray) and value.dtype is not aval.dtype:
                state.narrowed = True
            v = self.named_constant(value, aval)
        return v

    def named_constant(self, value: Any, aval: Any) -> Var:
        """A new constvar of a type for a captured value."""
        v = self.const_vars[id(value)] = Var(aval)
        self.constvars.append(v)
        self.consts.append(value)
        return v

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not self.valid:
            raise errors.InternalError("a finished trace is still current", stage="trace", node=primitive.name)
        try:
            invars, in_avals = runtime.atoms(self, args)
        except errors.UnexpectedTracerError:
            inner = next((x._trace for x in args if isinstance(x, Tracer) and x._trace.takes_over), None)
            if inner is None or not inner.valid:
                raise
            return inner.process(primitive, args, params)
        except TypeError as error:
            _explain_operand(primitive, args, error)
            raise
        if state.narrowed:
            invars, in_avals = self._wide(args, invars)
        if explicit_types and config.mesh_state().relaxed:
            invars, in_avals = explicit_types[0](self, primitive, invars, in_avals)
        shortcut = primitive.shortcut
        if shortcut is not None:
            atom = shortcut(invars, params)
            if atom is not None:
                return DynamicJaxprTracer(self, atom.aval, atom, None)
        out_aval, effects = primitive.typed(in_avals, params)
        source = source_info.capture(2)
        return runtime.record(self, self.eqns, invars, out_aval, primitive, params, effects, source)

    def _wide(self, args: tuple[Any, ...], atoms: list[Atom]) -> tuple[list[Atom], tuple[Any, ...]]:
        """Operands and their types; host values of 64 bits keep their dtype beside a traced value of it."""
        state.narrowed = False
        for index, (value, atom) in enumerate(zip(args, atoms, strict=True)):
            aval = avals_module.host_aval(value, args)
            if aval is atom.aval or not isinstance(value, np.ndarray | np.generic):
                continue
            atoms[index] = (
                self.constant(runtime.array_from_numpy(np.asarray(value), aval)) if aval.shape else Literal(value, aval)
            )
        return atoms, tuple([atom.aval for atom in atoms])

    def origin(self, atom: Atom) -> provenance.Origin | None:
        return None if type(atom) is Literal else provenance.describe(self, atom)

    def to_jaxpr(self, outvars: Sequence[Atom]) -> ClosedJaxpr:
        """The recorded program; nothing may be recorded afterwards."""
        self.valid = False
        effects = joined_effects(self.eqns)
        jaxpr = Jaxpr(self.constvars, self.invars, outvars, self.eqns, effects, self.debug_info)
        consts = self.consts
        self.eqns, self.invars, self.constvars, self.consts, self.const_vars = [], [], [], [], {}
        return ClosedJaxpr(jaxpr, consts)


runtime.install_recording(Var, Literal, JaxprEqn, DynamicJaxprTracer)
# Functions that bring operands to types without shardings; empty until there are such types
# (``core.sharding.explicit``).
explicit_types: list[Callable[..., Any]] = []
tracer_types: dict[type, type[DynamicJaxprTracer]] = {}  # of avals that are no arrays' (references)


def wide(value: Any) -> Any:
    """A host value of 64 bits as a value of the current program, which keeps them; any other value unchanged."""
    if not isinstance(value, np.ndarray | np.generic) or not dtypes.narrows(value.dtype):
        return value
    aval, trace = runtime.ShapedArray(value.shape, value.dtype), recorder()
    if trace is None or value.ndim:
        return runtime.array_from_numpy(np.asarray(value), aval)
    return DynamicJaxprTracer(trace, aval, Literal(value, aval), None)


def literal_value(literal: Literal) -> Any:
    """The value of a literal with the literal's own dtype, as an operand of an operation."""
    value, aval = literal.val, literal.aval
    if isinstance(value, np.ndarray | np.generic):
        return wide(value)
    if type(value) is sizes.Size:
        trace = recorder()
        return np.asarray(value, aval.dtype) if trace is None else DynamicJaxprTracer(trace, aval, literal, None)
    if not dtypes.differ_in_width(avals_module.scalar_aval(type(value)).dtype, aval.dtype):
        return value
    trace = recorder()  # the program was made where numbers had another width
    if trace is None:
        return runtime.array_from_numpy(np.asarray(value, aval.dtype), aval)
    return DynamicJaxprTracer(trace, aval, literal, None)


def scalar(value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """A number in a dtype: an array of NumPy's; a literal of the program if it is a size without a number."""
    trace = recorder() if type(value) is sizes.Size else None
    if trace is None or np.dtype(dtype).kind == "c":
        return np.asarray(value).astype(dtype)
    aval = runtime.ShapedArray((), dtype, weak_type)
    whole = np.dtype(dtype).kind in "iu"
    return DynamicJaxprTracer(trace, aval, Literal(value if whole else value * 1.0, aval), None)


def _explain_operand(primitive: Any, args: tuple[Any, ...], error: TypeError) -> None:
    """Raise TypeError for the first operand that is no array; return if all are."""
    for index, x in enumerate(args):
        if not avals_module.is_valid(x):
            raise TypeError(
                f"Error interpreting argument to {primitive.name} as a JAX value. The problematic value is of type "
                f"{type(x)} and was passed to {primitive.name} at position {index}.\n{error}"
            ) from None


def _python_literal(value: Any) -> Literal:
    return Literal(value, avals_module.scalar_aval(type(value)))


def _int_literal(value: Any) -> Literal:
    return Literal(value, get_aval(value))


def _numpy_literal(value: Any) -> Literal | None:
    """A NumPy scalar or 0-d ndarray, converted to the dtype it has in programs."""
    if value.ndim != 0:
        return None
    aval = avals_module.numpy_scalar_aval(value)
    if value.dtype is aval.dtype:
        return Literal(value, aval)
    state.narrowed = True
    return Literal(np.asarray(value, dtype=aval.dtype), aval)


_LITERALS: dict[type, Callable[[Any], Literal | None]] = {
    **dict.fromkeys((bool, float, complex), _python_literal),
    int: _int_literal,
    sizes.Size: _int_literal,
    **dict.fromkeys((np.ndarray, *dtypes.SCALAR_TYPES), _numpy_literal),
}


def trace_to_jaxpr(
    fun: Callable[..., Sequence[Any]], in_avals: Sequence[Any], debug_info: DebugInfo | None = None,
    source: source_info.Captured | None = None, of_program: bool = False,
) -> tuple[ClosedJaxpr, list[Any]]:  # fmt: skip
    """Record ``fun``, which takes and gives flat lists, on values of the given avals.

    ``source`` is the position of all equations, if it is known beforehand because no user code runs in ``fun``.
    ``of_program``: ``fun`` evaluates a program and may keep traced values for a moment (see ``leaks``).

    Returns the program and the avals of its results. The program's constants are the values ``fun`` captured, in
    order of first use; a Tracer among them belongs to the enclosing trace (see ``call_primitive.close_over``).
    """
    trace = DynamicJaxprTrace(debug_info, state.level + 1, source)
    in_tracers = [trace.new_arg(aval) for aval in in_avals]
    try:
        with set_current(trace), source_info.no_scopes(source):
            outs = list(fun(*in_tracers))
            outvars = [_output_atom(trace, out, index) for index, out in enumerate(outs)]
        closed = trace.to_jaxpr(outvars)
    finally:
        trace.valid = False
    out_avals = [v.aval for v in outvars]
    if config.read("enable_checks") or config.read("check"):
        check.check_jaxpr(closed)
    if config.read("check_tracer_leaks"):
        lazy.leaks.watch(trace, debug_info)
        del trace, in_tracers, outs
        if not (of_program or debug_info is None):
            lazy.leaks.check()
    return closed, out_avals


def _output_atom(trace: DynamicJaxprTrace, out: Any, index: int) -> Atom:
    """The atom of a result, or the TypeError of a result that is no array."""
    if type(out) is DynamicJaxprTracer and out._trace is trace:
        return out.val
    if type(getattr(out, "aval", None)) in tracer_types:
        raise _returned_reference(trace, out, index)
    described = avals_module.structs.get(type(out))
    if described is not None:
        return trace.named_constant(out, described(out))
    if not avals_module.is_valid(out):
        info = trace.debug_info
        traced = f"function {info.func_src_info} traced for {info.traced_for}" if info else "the traced function"
        paths = info.result_paths if info else None
        part = f" at output component {paths[index]}" if paths and index < len(paths) and paths[index] else ""
        raise TypeError(f"{traced} returned a value of type {type(out)}{part}, which is not a valid JAX type")
    return trace.atom(out)


def _returned_reference(trace: DynamicJaxprTrace, out: Any, index: int) -> ValueError:
    """The error for a function that returns a mutable reference, which says where that comes from."""
    info = trace.debug_info
    traced = f"function {info.func_src_info} traced for {info.traced_for}" if info else "the traced function"
    paths = info.result_paths if info else None
    part = f" at output tree path result{paths[index]}" if paths and index < len(paths) and paths[index] else ""
    text = (
        f"{traced} returned a mutable array reference of type {out.aval}{part}, but mutable array references cannot "
        "be returned."
    )
    names = info.arg_names if info else None
    atom, source = getattr(out, "val", None), getattr(out, "source", None)
    if names is not None and atom in trace.invars[: len(names)]:
        text += f"\n\nThe returned mutable array was passed in as the argument {names[trace.invars.index(atom)]}."
    elif source is not None:
        text += f"\n\nThe returned mutable array was created on line {source_info.summarize(source)}."
    return ValueError(f"{text}\nWays out: return ref[...], its value now, or weft.freeze(ref), its last value.")


# -- values used after their trace has ended ---------------------------------------------------------------------------


def escaped_tracer(tracer: Tracer) -> errors.UnexpectedTracerError:
    """The error for a traced value that is used when its trace is no longer current."""
    kind = type(tracer).__name__
    info = getattr(tracer._trace, "debug_info", None)
    aval = avals_module.long_text(tracer.aval)
    text = (
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference "
        f"to an intermediate value with type {aval} wrapped in a {kind} to escape the scope of the "
        "transformation.\nJAX transformations require that functions explicitly return their outputs, and disallow "
        "saving intermediate values to global state."
    )
    if info is not None:
        text += (
            f"\nThe function being traced when the value leaked was {info.func_src_info} traced for {info.traced_for}."
        )
    source = getattr(tracer, "source", None)
    rule = "-" * 30
    if source is not None:
        text += f"\n{rule}\nThe leaked intermediate value was created on line {source_info.summarize(source)}.\n{rule}"
    elif info is not None:
        text += f"\n{rule}\nThe leaked value is an argument of {info.func_name}.\n{rule}"
    use = provenance.use_of_value()
    text += f"\nIt was used at {use}" if use.location else ""
    function = info.func_name if info is not None else "the function"
    text += (
        f"\nWays out:\n  * return the value from {function}, and use what the call gives back"
        "\n  * find where it leaks: with weft.checking_leaks(): ... (or WEFT_CHECK_TRACER_LEAKS=1)"
    )
    return errors.UnexpectedTracerError(text)

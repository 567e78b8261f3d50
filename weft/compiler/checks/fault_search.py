"""What a guard found: the equation, the element, the operands' values and the user's line, from what a step has read.

The equations of one step are evaluated once more, in NumPy by their references; the user's program is not run again. An
index vector out of bounds, and an integer that does not fit, are faults where they are. A NaN or an infinity that was
stored is followed back, element by element, to the equation that made it from operands without one. If it came with
what the step has read, that is no fault of the step.

    a = x - 1; b = log a; c = b * s    c[3] is NaN <- b[3] is NaN <- a[3] is -0.5, no NaN: log made it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple
from weft.compiler.checks import reference_interpreter
from weft.compiler.checks.fault_loops import Loops
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import DropVar, JaxprEqn, Literal
from weft.core.tracing import source_info
from weft.core.tracing.source_info import BACKWARD
from weft.errors import CheckError, IndexCheckError, NanCheckError, OverflowCheckError
from weft.loops import guards

_MOVING = (kinds.View, kinds.Reshape, kinds.Assemble, kinds.DynamicSlice, kinds.DynamicUpdateSlice, kinds.Gather)
_MOST_ELEMENTS = 4096  # bad elements of one value that are followed one by one
_MOST_OPERANDS = 4

Index = tuple[int, ...]


class Fault(NamedTuple):
    """What was wrong, where."""

    check: str  # index, nan or overflow
    equation: JaxprEqn
    what: str  # the first line of the message
    element: Index  # of the result, or of the indices
    operands: tuple[str, ...]
    values: tuple[Any, ...]
    path: tuple[str, ...]  # the loops around it, the outermost first


class Search:
    """What a guard calls: raises if a step of ``equations`` has gone wrong. ``read``: variables that it is given."""

    def __init__(
        self, name: str, option: str, equations: Sequence[JaxprEqn], read: Sequence[Any], written: Sequence[Any]
    ) -> None:
        self.name, self.option, self.equations = name, option, tuple(equations)
        self.read, self.written = tuple(read), tuple(written)

    def __call__(self, *arrays: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            fault = find(self.equations, dict(zip(self.read, arrays, strict=True)), self.written, (), self.option)
        if fault is not None:
            raise error_of(fault, self.name, runtime.loop_iterations())


def find(
    equations: Sequence[JaxprEqn], env: dict[Any, Any], written: Sequence[Any], path: tuple[str, ...], option: str
) -> Fault | None:
    """The first fault of equations on values of what they read.

    ``written``: the values that are stored; ``option``: the checks of equations that say nothing else.
    """
    return _Finder(equations, env, path, option).find(written)


def error_of(fault: Fault, program: str, iterations: Sequence[int]) -> CheckError:
    """The exception for a fault."""
    kind = {"index": IndexCheckError, "nan": NanCheckError, "overflow": OverflowCheckError}[fault.check]
    captured = fault.equation.source
    if captured is None or captured[0] is check_scopes.EAGER:  # a program for many calls, this one among them
        captured = source_info.capture()
    backward = captured is not None and BACKWARD in captured[2]
    location = source_info.summarize(captured)
    lines = [fault.what, f"at {location}"]
    if backward:
        lines.append("in the gradient of that line")
    lines += [f"{operand}" for operand in fault.operands]
    lines.append(f"equation: {fault.equation}")
    around = [f"iteration {number} of a loop" for number in iterations] + list(fault.path)
    if around:
        lines.append(f"in {', in '.join(reversed(around))}")
    lines.append(f"in jit({program})")
    return kind(
        "\n  ".join(lines), check=fault.check, primitive=fault.equation.primitive.name, index=fault.element,
        operands=fault.values, line=location, backward=backward,
    )  # fmt: skip


def is_bad(array: Any) -> np.ndarray:
    """Where elements are NaN or infinite; nowhere for integers."""
    array = np.asarray(array)
    if not guards.is_inexact(array.dtype):
        return np.zeros(array.shape, bool)
    return ~np.isfinite(array if array.dtype.kind in "fc" else array.astype(np.float32))


def _is_nan(value: Any) -> bool:
    value = np.asarray(value)
    return bool(np.isnan(value if value.dtype.kind in "fc" else value.astype(np.float32)))


class _Finder:
    """One evaluation of the equations of a step."""

    def __init__(self, equations: Sequence[JaxprEqn], env: dict[Any, Any], path: tuple[str, ...], option: str) -> None:
        self.equations, self.env, self.path, self.option = equations, env, path, option
        self.makers = {out: equation for equation in equations for out in equation.outvars}

    def read(self, atom: Any) -> np.ndarray | None:
        if isinstance(atom, Literal):
            return np.asarray(atom.val).astype(atom.aval.dtype)
        return self.env.get(atom)

    def find(self, written: Sequence[Any]) -> Fault | None:
        for equation in self.equations:
            values = [self.read(atom) for atom in equation.invars]
            fault = self._at(equation, values)
            if fault is not None:
                return fault
            if any(value is None for value in values) or all(out in self.env for out in equation.outvars):
                continue  # what the step has stored is as the machine computed it
            outs = reference_interpreter.run_equation(equation, [v for v in values if v is not None])
            for out, value in zip(equation.outvars, outs, strict=True):
                if not isinstance(out, DropVar) and out not in self.env:
                    self.env[out] = np.asarray(value).astype(out.aval.dtype, copy=False)
        for variable in written:
            fault = self._stored(variable)
            if fault is not None:
                return fault
        return None

    def _at(self, equation: JaxprEqn, values: Sequence[Any]) -> Fault | None:
        """A fault that is seen at the equation itself."""
        words = check_scopes.wanted(equation, self.option)
        kind = equation.primitive.kind
        if "index" in words and isinstance(kind, (kinds.DynamicSlice, kinds.DynamicUpdateSlice)):
            return self._start(equation, values)
        if "index" in words and isinstance(kind, (kinds.Gather, kinds.Scatter)):
            return self._window(equation, values)
        test = guards.wraps_at(equation) if check_scopes.wants_integers(equation, self.option) else None
        if test is not None and all(value is not None for value in values):
            wraps = np.asarray(test.reference(*values, **equation.params))
            if wraps.any():
                index = _first(np.broadcast_to(wraps, equation.outvars[0].aval.shape))
                dtype = equation.outvars[0].aval.dtype
                what = f"overflow: {equation.primitive.name} does not fit in {dtype}{_at_text(index)}"
                return self._fault("overflow", equation, what, index, values)
        if guards.sum_wraps(equation) and check_scopes.wants_integers(equation, self.option) and values[0] is not None:
            return self._sum(equation, values)
        if isinstance(kind, (kinds.Loop, kinds.Routine, kinds.Branch)) and all(v is not None for v in values):
            return Loops(find, self.path, self.option).find(equation, [v for v in values if v is not None])
        return None

    def _sum(self, equation: JaxprEqn, values: Sequence[Any]) -> Fault | None:
        """A sum or product of integers that does not fit."""
        kind, dtype = equation.primitive.kind, equation.outvars[0].aval.dtype
        exact = kind.wraps.reduce(values[0].astype(object), axis=kind.axes(equation.params))
        limits = np.iinfo(dtype)
        outside = np.asarray((np.asarray(exact, object) < limits.min) | (np.asarray(exact, object) > limits.max), bool)
        if not outside.any():
            return None
        index = _first(outside)
        what = f"overflow: {equation.primitive.name} does not fit in {dtype}{_at_text(index)}"
        return self._fault("overflow", equation, what, index, values)

    def _start(self, equation: JaxprEqn, values: Sequence[Any]) -> Fault | None:
        """A start of a dynamic slice, or of an update, that is clamped."""
        updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
        sizes = (equation.invars[1] if updates else equation.outvars[0]).aval.shape
        first = 2 if updates else 1
        shape = equation.invars[0].aval.shape
        for axis, (start, size, extent) in enumerate(zip(values[first:], sizes, shape, strict=True)):
            if start is None or 0 <= int(start) <= extent - size:
                continue
            what = f"index: {equation.primitive.name} starts at {int(start)} along axis {axis} of size {extent}"
            what += f", for a slice of {size}" if size != 1 else ""
            return Fault("index", equation, what, (axis,), (), (int(start), extent), self.path)
        return None

    def _window(self, equation: JaxprEqn, values: Sequence[Any]) -> Fault | None:
        """An index vector whose window is not inside the array."""
        indices = values[1]
        if indices is None or not indices.size:
            return None
        avals = [atom.aval for atom in equation.invars]
        kind = equation.primitive.kind
        other = equation.outvars[0].aval
        windows = kind.windows(avals, other, equation.params)
        most = np.asarray(windows.most, object)
        exact = indices.astype(object)
        outside = np.asarray((exact < 0) | (exact > most), bool)
        if not outside.any():
            return None
        index = _first(outside)
        axis, value = windows.starts[index[-1]], int(indices[index])
        extent = avals[0].shape[axis]
        where = f", element {index[:-1]} of the indices" if len(index) > 1 and indices.size > indices.shape[-1] else ""
        what = f"index: {equation.primitive.name} at {value} along axis {axis} of size {extent}{where}"
        return Fault("index", equation, what, index[:-1], (), (value, extent), self.path)

    # values that are stored

    def _stored(self, variable: Any) -> Fault | None:
        value = self.env.get(variable)
        if value is None or variable not in self.makers:
            return None
        for index in np.argwhere(is_bad(value))[:_MOST_ELEMENTS]:
            fault = self._origin(variable, tuple(int(i) for i in index))
            if fault is not None:
                return fault
        return None

    def _origin(self, variable: Any, index: Index) -> Fault | None:
        """The equation that made a bad element; None if it came with what the step has read."""
        while variable in self.makers:
            equation = self.makers[variable]
            value = self.env[variable][index]
            came = self._came_from(equation, variable, index)
            if came is None and any(self.read(atom) is None for atom in equation.invars):
                return self._unknown(equation, value, index)
            if came is None:
                check = "nan" if _is_nan(value) else "overflow"
                if check not in check_scopes.wanted(equation, self.option) or _is_meant(equation):
                    return None
                verb = "made nan" if check == "nan" else f"made {_text(value)} from finite numbers"
                what = f"{check}: {equation.primitive.name} {verb}{_at_text(index)}"
                return self._fault(check, equation, what, index, [self.read(atom) for atom in equation.invars])
            atom, index = came
            if isinstance(atom, Literal):
                return None
            variable = atom
        return None

    def _unknown(self, equation: JaxprEqn, value: Any, index: Index) -> Fault | None:
        """A bad element of an array that was updated in place, so that what it was made of is gone."""
        check = "nan" if _is_nan(value) else "overflow"
        words = frozenset().union(*[check_scopes.wanted(one, self.option) for one in self.equations])
        computing = [one for one in self.equations if guards.may_make(one.primitive.kind)]
        if check not in words or not computing:
            return None
        made = next((one for one in reversed(computing) if isinstance(one.primitive.kind, kinds.Elementwise)), equation)
        what = f"{check}: {made.primitive.name} gave {_text(value)} for an array updated in place{_at_text(index)}"
        note = "operands are not known any more: the update has overwritten them, and may have passed the value on"
        return Fault(check, made, what, index, (note,), (), self.path)

    def _came_from(self, equation: JaxprEqn, variable: Any, index: Index) -> tuple[Any, Index] | None:
        """(operand, index) of a bad element of an operand from which a bad element came; None if there is none."""
        kind, is_nan = equation.primitive.kind, _is_nan(self.env[variable][index])
        values = [self.read(atom) for atom in equation.invars]
        candidates: list[tuple[Any, Index]] = []
        for number, (atom, value) in enumerate(zip(equation.invars, values, strict=True)):
            if value is None or not guards.is_inexact(value.dtype):
                continue
            candidates += [(atom, at) for at in self._sources(equation, kind, values, number, index)]
        # a NaN comes from a NaN, an infinity from either
        for atom, at in candidates:
            value = np.asarray(self.read(atom))[at]
            if _is_nan(value) or (not is_nan and bool(is_bad(value))):
                return atom, at
        return None

    def _sources(self, equation: JaxprEqn, kind: Any, values: Sequence[Any], number: int, index: Index) -> list[Index]:
        """The elements of an operand that an element of the result is made of: the bad ones, where there are many."""
        value = values[number]
        if isinstance(kind, kinds.Elementwise):
            return [_broadcast_index(index, value.shape)]
        if isinstance(kind, _MOVING) and all(v is not None for v in values):
            return _moved_from(equation, values, number, index)
        bad = is_bad(value)
        if isinstance(kind, kinds.Reduction) and len(equation.outvars) == 1:
            axes = kind.axes(equation.params)
            kept = iter(index)
            part = tuple([slice(None) if d in axes else next(kept, slice(None)) for d in range(value.ndim)])
            inside = np.zeros(value.shape, bool)
            inside[part] = True
            bad = bad & inside
        return [tuple(int(i) for i in at) for at in np.argwhere(bad)[:1]] + [
            tuple(int(i) for i in at) for at in np.argwhere(bad & np.isnan(_wide(value)))[:1]
        ]

    def _fault(self, check: str, equation: JaxprEqn, what: str, index: Index, values: Sequence[Any]) -> Fault:
        texts, shown = [], []
        exact = isinstance(equation.primitive.kind, kinds.Elementwise)
        for atom, value in list(zip(equation.invars, values, strict=True))[:_MOST_OPERANDS]:
            if value is None:
                continue
            if exact or not value.shape:
                at = _broadcast_index(index, value.shape)
                shown.append(value[at])
                texts.append(f"operand {_text(value[at])} ({atom.aval.str_short()}{_at_text(at) if at else ''})")
            else:
                shown.append(value)
                texts.append(f"operand {_summary(value)} ({atom.aval.str_short()})")
        return Fault(check, equation, what, index, tuple(texts), tuple(shown), self.path)


def _is_meant(equation: JaxprEqn) -> bool:
    """Whether bad values of an equation are no fault of its own: it passes them on, or fills as the user asked."""
    filled = isinstance(equation.primitive.kind, kinds.Gather)
    given = filled and check_scopes.AS_GIVEN in check_scopes.marks(equation.source)
    return given or isinstance(equation.primitive.kind, (kinds.Branch, kinds.Identity))


def _first(where: np.ndarray) -> Index:
    return tuple(int(i) for i in np.argwhere(where)[0])


def _broadcast_index(index: Index, shape: Sequence[int]) -> Index:
    """The element of an elementwise operand for an element of the result."""
    return tuple([0 if extent == 1 else i for i, extent in zip(index, shape, strict=True)]) if shape else ()


def _moved_from(equation: JaxprEqn, values: Sequence[Any], number: int, index: Index) -> list[Index]:
    """Where an operation that only moves elements has read one: it is run on the numbers of the elements."""
    labels = [v if not guards.is_inexact(v.dtype) else np.full(v.shape, -1.0) for v in values]
    labels[number] = np.arange(values[number].size, dtype=np.float64).reshape(values[number].shape)
    try:
        (moved,) = reference_interpreter.run_equation(equation, labels)
    except Exception:  # a reference that asks for the dtype of its operands
        return [tuple(int(i) for i in at) for at in np.argwhere(is_bad(values[number]))[:1]]
    label = float(np.asarray(moved)[index])
    if not 0 <= label < values[number].size:
        return []
    return [tuple(int(i) for i in np.unravel_index(int(label), values[number].shape))]


def _wide(value: np.ndarray) -> np.ndarray:
    return value if value.dtype.kind in "fc" else value.astype(np.float32)


def _at_text(index: Index) -> str:
    return f" at element {index if len(index) != 1 else index[0]}" if index else ""


def _text(value: Any) -> str:
    return str(np.asarray(value).item() if np.asarray(value).dtype.kind in "biufc" else value)


def _summary(value: np.ndarray) -> str:
    """A few numbers about an array that is too large to show."""
    if value.size <= 8:
        return np.array2string(value, separator=", ").replace("\n", "")
    wide = _wide(value) if guards.is_inexact(value.dtype) else value
    if wide.dtype.kind == "c":
        return f"of {value.size} complex numbers"
    return f"from {wide.min()} to {wide.max()}"

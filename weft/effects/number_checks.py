"""debug_nans and debug_infs: find the operation, and the user's line, that made the first NaN or infinity of a result.

If a result holds a bad value, its program runs once more, operation by operation. Each bad value has an origin: the
operation that made it from operands without bad values. Loops run step by step up to the first step with a bad value;
calls and branches are entered. Bad values that a ``where`` discards are not reported.

    FloatingPointError: invalid value (nan) encountered in log
      at model.py:12:8 (loss)
      operands: Array(-1., dtype=float32)
      in step 3 of a scan, in jit(loss)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft import config, dtypes, runtime
from weft._base import lazy
from weft._base.record import NamedTuple, Record
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import call_primitive
from weft.distributed import processes

_SHOWN_OPERANDS = 3
_enabled: dict[int, bool] = {}


def enabled() -> bool:
    """Whether results are checked on this thread."""
    token = runtime.get_config_token()
    found = _enabled.get(token)
    if found is None:
        found = _enabled[token] = bool(config.read("debug_nans") or config.read("debug_infs"))
    return found


class _Wanted(NamedTuple):
    """Which values count as bad: NaN, infinities, or both."""

    nans: bool
    infs: bool


def _wanted() -> _Wanted:
    return _Wanted(config.read("debug_nans"), config.read("debug_infs"))


def _here(value: Any) -> np.ndarray:
    """The elements of a value; only those of this process, if it is an array across processes."""
    return np.asarray(
        lazy.submodule("weft.dispatch.calls.process_calls").block_of(value) if type(value) is runtime.Array else value
    )


def _bad(value: Any, wanted: _Wanted) -> np.ndarray | None:
    """A mask of the bad elements; None if there are none."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if dtypes.is_extended(dtype) or not dtypes.issubdtype(dtype, np.inexact):
        return None
    array = _here(value)
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    where = np.zeros(array.shape, bool)
    if wanted.nans:
        where = where | np.isnan(array)
    if wanted.infs:
        where = where | np.isinf(array)
    return where if where.any() else None


def _word(value: Any, wanted: _Wanted) -> str:
    """The word for a bad value in the error: nan or inf."""
    array = _here(value)
    array = array.astype(np.float32) if array.dtype.kind == "V" else array
    return "nan" if wanted.nans and np.isnan(array).any() else "inf"


class Origin(Record):
    """Where a bad value comes from. ``order`` is the number of operations before it; an argument has no operation."""

    order: int
    name: str
    word: str = "nan"
    source: Any = None
    operands: tuple[Any, ...] = ()
    path: tuple[str, ...] = ()
    argument: str = ""

    def text(self) -> str:
        lines = [f"invalid value ({self.word}) encountered in {self.name}"]
        if self.source is not None:
            lines.append(f"at {source_info.summarize(self.source)}")
        if self.argument:
            lines.append(f"the value came with {self.argument}")
        elif self.operands:
            shown = [_short(value) for value in self.operands[:_SHOWN_OPERANDS]]
            lines.append(f"operands: {', '.join(shown)}{', ...' if len(self.operands) > _SHOWN_OPERANDS else ''}")
        if self.path:
            lines.append(f"in {', in '.join(reversed(self.path))}")
        return "\n  ".join(lines)


def _short(value: Any) -> str:
    aval = get_aval(value)
    return repr(value) if aval.size <= 4 else aval.str_short()


def _refuse_search(values: Sequence[Any], word: str, name: str) -> None:
    """A program of several processes is not run again, by one of them alone."""
    if lazy.submodule("weft.dispatch.calls.process_calls").is_across(values):
        raise FloatingPointError(
            f"invalid value ({word}) encountered in {name}, in the part that process {processes.rank()} has of "
            'arrays across processes. For the operation and its line use weft.jit(f, checks=("nan", "overflow"))'
        )


def check(outs: Sequence[Any], closed: ClosedJaxpr, args: Sequence[Any], name: str) -> None:
    """Raise FloatingPointError if a result of ``closed`` on ``args`` is bad, and name its origin."""
    wanted = _wanted()
    bad = [index for index, out in enumerate(outs) if _bad(out, wanted) is not None]
    if not bad:
        return
    _refuse_search([*args, *outs], _word(outs[bad[0]], wanted), name)
    here, own = source_info.capture(), _is_own(closed.jaxpr)
    paths = (closed.jaxpr.debug_info.arg_names if closed.jaxpr.debug_info is not None else None) or ()
    given: list[Value] = []
    for index, value in enumerate(args):
        origin = None
        if _bad(value, wanted) is not None:
            shown = paths[index] if not own and index < len(paths) else f"number {index}"
            origin = Origin(-1, name, _word(value, wanted), here, argument=f"argument {shown}")
        given.append((value, origin))
    with _unchecked():
        search = _Search(wanted)
        results = search.run(closed.jaxpr, closed.consts, given, () if own else (name,), here if own else None)
    _raise([results[index][1] for index in bad])
    # the second run gave other values: an effect, or memory that was changed from outside
    raise FloatingPointError(f"invalid value ({_word(outs[bad[0]], wanted)}) encountered in {name}")


def check_operation(primitive: Any, params: dict[str, Any], args: Sequence[Any], outs: Sequence[Any]) -> None:
    """``check`` for one operation outside ``jit``."""
    wanted = _wanted()
    bad = [out for out in outs if _bad(out, wanted) is not None]
    if not bad:
        return
    _refuse_search([*args, *outs], _word(bad[0], wanted), primitive.name)
    source = source_info.capture()
    with _unchecked():
        results = _Search(wanted).operation(primitive, params, [(x, None) for x in args], (), source, None)
    _raise([origin for _, origin in results])


def check_results(name: str, args: Sequence[Any], outs: Sequence[Any]) -> None:
    """``check`` for a user's function, which must not run again."""
    wanted = _wanted()
    for out in outs:
        if _bad(out, wanted) is not None:
            raise FloatingPointError(Origin(0, name, _word(out, wanted), source_info.capture(), tuple(args)).text())


def _raise(origins: Sequence[Origin | None]) -> None:
    found = [origin for origin in origins if origin is not None]
    if found:
        raise FloatingPointError(min(found, key=lambda origin: origin.order).text())


@contextmanager
def _unchecked() -> Iterator[None]:
    """A context in which operations run at once, without checks."""
    with config.context("debug_nans", False), config.context("debug_infs", False), tracing.eval_context():
        yield


def _is_own(jaxpr: Jaxpr) -> bool:
    """Whether a program is that of one of weft's own functions, whose source lines would not help the user."""
    info = jaxpr.debug_info
    if info is None:
        return False
    _, _, location = info.func_src_info.rpartition(" at ")
    return source_info.is_internal(location.rpartition(":")[0])


Value = tuple[Any, "Origin | None"]


class _Search:
    """One run of a program, operation by operation."""

    def __init__(self, wanted: _Wanted) -> None:
        self.wanted = wanted
        self.count = 0

    def run(
        self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Value], path: tuple[str, ...], line: Any
    ) -> list[Value]:
        """The results of a program. ``line`` is the user's line for all of it, if the program is weft's own."""
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, [(const, None) for const in consts], strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Value:
            return (tracing.literal_value(atom), None) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            if eqn.effects and not eqn.outvars:
                continue  # prints and checks happened in the first run
            values = [read(atom) for atom in eqn.invars]
            outs = self.operation(eqn.primitive, eqn.params, values, path, line or eqn.source, line)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def operation(
        self, primitive: Any, params: Any, values: Sequence[Value], path: tuple[str, ...], source: Any, line: Any
    ) -> list[Value]:
        """The results of one operation, each with the origin of its bad values."""
        self.count += 1
        out = primitive.bind(*[value for value, _ in values], **params)
        outs = list(out) if primitive.multiple_results else [out]
        wheres = [_bad(out, self.wanted) for out in outs]
        if all(where is None for where in wheres):
            return [(out, None) for out in outs]
        inner = self.inside(primitive, params, values, path, source, line)
        if inner is not None:
            first = min([origin for _, origin in inner if origin is not None], key=lambda o: o.order, default=None)
            own = [origin for _, origin in inner]
            return [
                (out, None if where is None else origin or first)
                for out, where, origin in zip(outs, wheres, own, strict=True)
            ]
        exact = isinstance(primitive.kind, kinds.Elementwise)
        made = Origin(self.count, primitive.name, "", source, tuple([value for value, _ in values]), path)
        found: list[Value] = []
        for out, where in zip(outs, wheres, strict=True):
            origin = None
            if where is not None:
                before = [o for v, o in values if o is not None and (not exact or self.explains(v, where))]
                origin = min(before, key=lambda o: o.order) if before else made.replace(word=_word(out, self.wanted))
                if origin.argument and origin.source is not None and origin.order < 0:
                    origin = origin.replace(order=self.count, name=primitive.name, source=source)
            found.append((out, origin))
        return found

    def inside(
        self, primitive: Any, params: Any, values: Sequence[Value], path: tuple[str, ...], source: Any, line: Any
    ) -> list[Value] | None:
        """The results, found by running the programs that an operation carries; None if it carries none."""
        kind = primitive.kind
        if isinstance(kind, kinds.Higher):
            closed = kind.inline(params)
            if closed is None:
                return None
            own = _is_own(closed.jaxpr)
            name = params.get("name")
            deeper = path if own or name is None else (*path, f"{primitive.name}({name})")
            return self.run(closed.jaxpr, closed.consts, values, deeper, source if own else line)
        if isinstance(kind, kinds.Branch):
            branches = kind.branches(params)
            which = min(max(int(np.asarray(values[0][0])), 0), len(branches) - 1)
            closed = branches[which]
            deeper = (*path, f"branch {which} of a {primitive.name}")
            return self.run(closed.jaxpr, closed.consts, values[1:], deeper, line)
        if isinstance(kind, kinds.Loop):
            return self.loop(primitive.name, kind.parts(params), values, path, line)
        return None

    def loop(
        self, name: str, parts: kinds.LoopParts, values: Sequence[Value], path: tuple[str, ...], line: Any
    ) -> list[Value]:
        """The origin of the first bad value of a loop, for all of its results."""
        first = parts.n_cond_consts + parts.n_consts
        tested, captured = values[: parts.n_cond_consts], values[parts.n_cond_consts : first]
        state, rows = list(values[first : first + parts.n_carry]), values[first + parts.n_carry :]
        body, n_outs = parts.body, len(parts.body.out_avals)
        trips = range(parts.trips or 0)
        steps = reversed(trips) if parts.reverse else iter(trips)
        number = 0
        while True:
            if parts.cond is not None:
                if not bool(np.asarray(_program(parts.cond, [v for v, _ in (*tested, *state)])[0])):
                    break
            elif (number := next(steps, -1)) < 0:
                break
            elements: list[Value] = [
                (x[number], origin if _bad(x[number], self.wanted) is not None else None) for x, origin in rows
            ]
            given = [*captured, *state, *elements]
            outs = _program(body, [value for value, _ in given])
            if any(_bad(out, self.wanted) is not None for out in outs):
                deeper = (*path, f"step {number} of a {name}")
                found = self.run(body.jaxpr, body.consts, given, deeper, line)
                origins = [origin for _, origin in found if origin is not None]
                if origins:
                    worst = min(origins, key=lambda origin: origin.order)
                    return [(None, worst)] * n_outs
            state = [(out, None) for out in outs[: parts.n_carry]]
            number += 1
        return [(None, None)] * n_outs

    def element(self, value: Any, origin: Origin | None) -> Value:
        """One element of an operand, with the operand's origin if the element is bad."""
        return value, None if origin is None or _bad(value, self.wanted) is None else origin

    def explains(self, value: Any, where: np.ndarray) -> bool:
        """Whether an operand of an elementwise operation is bad at an element where the result is bad."""
        bad = _bad(value, self.wanted)
        return bad is not None and bool(np.any(bad & where))


def _program(closed: ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """The results of a program, compiled as a whole."""
    return call_primitive.call(closed, values, name="step")

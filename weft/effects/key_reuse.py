"""debug_key_reuse: raise where a random key is used twice, which would give two results the same random bits.

A program is followed key by key: each element of an array of keys has a number, operations that hand keys on (reshape,
squeeze, copy, ...) hand on the numbers, and those that draw from keys, split or slice them consume the numbers. The
body of a loop is followed twice, as though it ran twice. Outside of ``jit`` an Array of keys remembers its use::

    key = random.key(0);  random.normal(key);  random.normal(key)
    KeyReuseError: Previously-consumed key passed to jit-compiled function at index 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes, errors, runtime
from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.caches.weak_table import WeakTable
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal

Numbers = np.ndarray
"""The number of each element of an array of keys."""

# operations that use up their keys; and those whose results are their keys in another order
_CONSUMING = {"random_bits", "random_split", "slice", "rev", "concatenate", "stack", "select_n"}
_MOVES: dict[str, Callable[[Numbers, Any], Numbers]] = {
    "reshape": lambda x, params: x.reshape(params["new_sizes"]),
    "squeeze": lambda x, params: np.squeeze(x, tuple(params["dimensions"])),
    "transpose": lambda x, params: np.transpose(x, params["permutation"]),
    "broadcast_in_dim": lambda x, params: _broadcast(x, params["shape"], params["broadcast_dimensions"]),
    "slice": lambda x, params: x[_slices(params)],
    "dynamic_slice": lambda x, params: x[tuple(map(slice, params["slice_sizes"]))],  # as though it began at 0
}
_HANDED_ON = {"copy", "device_put", "stop_gradient", "optimization_barrier", "name"}
_enabled: dict[int, bool] = {}
_consumed: WeakTable[Numbers] = WeakTable()
"""What is consumed of the Arrays of keys that were used."""


def enabled() -> bool:
    """Whether keys are tracked on this thread."""
    token = runtime.get_config_token()
    found = _enabled.get(token)
    if found is None:
        found = _enabled[token] = bool(config.read("debug_key_reuse"))
    return found


def check(closed: ClosedJaxpr) -> None:
    """KeyReuseError if a program uses a key twice."""
    keys = _Keys()
    numbers = [keys.new(v.aval) for v in (*closed.jaxpr.constvars, *closed.jaxpr.invars)]
    _outermost("", keys, numbers, lambda: keys.program(closed.jaxpr, numbers))


class Use(NamedTuple):
    """A call that may use keys: those it takes and captures, what is consumed after it, the numbers of its results."""

    keys: _Keys
    results: list[Numbers | None]

    def done(self, results: Sequence[Any]) -> None:
        """Remember what the call consumed, of the Arrays it took and of its results."""
        for value, numbers in (*self.keys.known.values(), *zip(results, self.results, strict=True)):
            if numbers is not None and isinstance(value, runtime.Array):
                _remember(value, self.keys.consumed(numbers))


def use_program(closed: ClosedJaxpr, args: Sequence[Any]) -> Use:
    """The use of keys by a call of a jitted function; KeyReuseError if one of them, or one it captures, is consumed."""
    keys = _Keys()
    numbers = [keys.of_value(value) for value in (*args, *closed.consts)]
    order = [*numbers[len(args) :], *numbers[: len(args)]]
    results = _outermost("jit-compiled function", keys, numbers, lambda: keys.program(closed.jaxpr, order))
    return Use(keys, results)


def use_operation(primitive: Any, params: dict[str, Any], args: Sequence[Any]) -> Use:
    """The use of keys by one operation outside of ``jit``; KeyReuseError if one of them is consumed."""
    keys = _Keys()
    numbers = [keys.of_value(value) for value in args]
    outs = primitive.typed(tuple([get_aval(x) for x in args]), params)[0]
    outs = list(outs) if primitive.multiple_results else [outs]
    return Use(
        keys,
        _outermost(primitive.name, keys, numbers, lambda: keys.operation(primitive, params, numbers, outs)),
    )


def _outermost(name: str, keys: _Keys, numbers: Sequence[Numbers | None], run: Callable[[], Any]) -> Any:
    """The results of ``run``. If it uses a key that was consumed before, the error says that ``name`` did."""
    before = keys.used.copy()
    try:
        return run()
    except _Reuse as reuse:
        index = reuse.among(numbers, before)
        if index is None:
            raise errors.KeyReuseError(str(reuse)) from None
        raise errors.KeyReuseError(f"Previously-consumed key passed to {name} at index {index}") from None


def _is_key(aval: Any) -> bool:
    return dtypes.issubdtype(aval.dtype, dtypes.prng_key)


def _remember(array: Any, consumed: Numbers) -> None:
    if consumed.any():
        _consumed.set(array, consumed)


def _slices(params: Any) -> tuple[slice, ...]:
    strides = params["strides"] or (1,) * len(params["start_indices"])
    return tuple(map(slice, params["start_indices"], params["limit_indices"], strides))


def _broadcast(x: Numbers, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Numbers:
    extents = [1] * len(shape)
    for axis, extent in zip(dimensions, x.shape, strict=True):
        extents[axis] = extent
    return np.broadcast_to(x.reshape(extents), shape)


class _Reuse(Exception):
    """Keys that were consumed are used again; ``numbers`` says which."""

    def __init__(self, text: str, numbers: Numbers) -> None:
        super().__init__(text)
        self.numbers = numbers

    def among(self, args: Sequence[Numbers | None], before: Numbers) -> int | None:
        """The argument that holds one of the keys, if that was consumed before the call with these arguments."""
        inside = self.numbers < len(before)  # later numbers were given during the call
        old = self.numbers[inside][before[self.numbers[inside]]]
        found = [index for index, x in enumerate(args) if x is not None and np.isin(x, old).any()]
        return found[0] if len(old) and found else None


class _Keys:
    """The numbers that were given to keys, and which of them are consumed."""

    def __init__(self) -> None:
        self.used = np.zeros(0, bool)
        self.known: dict[int, tuple[Any, Numbers | None]] = {}  # by the id of an Array: itself, its numbers

    def new(self, aval: Any, shape: tuple[int, ...] | None = None) -> Numbers | None:
        """Fresh numbers for the keys of a type; None for other types."""
        if not _is_key(aval):
            return None
        shape = tuple(aval.shape) if shape is None else shape
        first, count = len(self.used), int(np.prod(shape))
        self.used = np.append(self.used, np.zeros(count, bool))
        return np.arange(first, first + count).reshape(shape)

    def of_value(self, value: Any) -> Numbers | None:
        """Numbers for the keys of a concrete value, those consumed by earlier calls marked as such."""
        if not isinstance(value, runtime.Array):
            return None
        if id(value) in self.known:  # given twice
            return self.known[id(value)][1]
        numbers = self.new(value)
        self.known[id(value)] = value, numbers
        known = _consumed.get(value)
        if numbers is not None and known is not None:
            self.used[numbers] |= known
        return numbers

    def consumed(self, numbers: Numbers) -> Numbers:
        return self.used[numbers]

    def consume(self, numbers: Numbers, what: str) -> None:
        if self.used[numbers].any():
            raise _Reuse(f"In {what} is already consumed.", numbers[self.used[numbers]])
        self.used[numbers] = True

    def program(self, jaxpr: Jaxpr, args: Sequence[Numbers | None]) -> list[Numbers | None]:
        """Follow a program from the numbers of its constants and arguments to those of its results."""
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))

        def read(atom: Any) -> Numbers | None:
            return None if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            outs = self.operation(
                eqn.primitive, eqn.params, [read(x) for x in eqn.invars], [v.aval for v in eqn.outvars]
            )
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def operation(
        self, primitive: Any, params: Any, args: Sequence[Numbers | None], outs: Sequence[Any]
    ) -> list[Numbers | None]:
        """The numbers of the results of an operation, which consumes what it consumes."""
        name, kind = primitive.name, primitive.kind
        if isinstance(kind, kinds.Higher):
            closed = kind.inline(params)
            if closed is not None:
                return self.called(name, closed, args)
        if isinstance(kind, kinds.Branch):
            return self.branches(kind.branches(params), args[1:], outs)
        if isinstance(kind, kinds.Loop):
            return self.loop(name, kind.parts(params), args, outs)
        if name in _CONSUMING:
            for index, x in enumerate(args):
                if x is not None:
                    part = _MOVES[name](x, params) if name in _MOVES else x
                    self.consume(part, f"{name}, argument {index}")
        elif name in _MOVES and args[0] is not None:
            return [_MOVES[name](args[0], params)]
        elif name in _HANDED_ON:
            return list(args)
        return [self.new(aval) for aval in outs]

    def called(self, name: str, closed: ClosedJaxpr, args: Sequence[Numbers | None]) -> list[Numbers | None]:
        before = self.used.copy()
        try:
            return self.program(closed.jaxpr, [*[self.of_value(x) for x in closed.consts], *args])
        except _Reuse as reuse:
            index = reuse.among(args, before)
            if index is None:
                raise
            raise _Reuse(f"In {name}, argument {index} is already consumed.", reuse.numbers) from None

    def branches(
        self, branches: Sequence[ClosedJaxpr], args: Sequence[Numbers | None], outs: Sequence[Any]
    ) -> list[Numbers | None]:
        """A key is consumed if any branch consumes it; a key that all branches give is the same key."""
        before, after, results = self.used, self.used, []
        for branch in branches:
            self.used = np.append(before, np.zeros(len(after) - len(before), bool))
            results.append(self.called("cond", branch, args))
            after = self.used | np.append(after, np.zeros(len(self.used) - len(after), bool))
        self.used = after
        return [
            found[0] if all(x is not None and np.array_equal(x, found[0]) for x in found) else self.new(aval)
            for found, aval in zip(zip(*results, strict=True), outs, strict=True)
        ]

    def loop(
        self, name: str, parts: kinds.LoopParts, args: Sequence[Numbers | None], outs: Sequence[Any]
    ) -> list[Numbers | None]:
        """Follow two iterations of a loop; inputs give each of them elements of their own."""
        first = parts.n_cond_consts + parts.n_consts
        tested, captured, state = args[: parts.n_cond_consts], args[parts.n_cond_consts : first], list(args[first:])
        state, rows = state[: parts.n_carry], state[parts.n_carry :]
        types = parts.body.in_avals[parts.n_consts + parts.n_carry :]
        stacked: Sequence[Numbers | None] = []
        for again in (False, True):
            tests, before = self.used, self.used.copy()
            if parts.cond is not None:
                self.called(name, parts.cond, [*tested, *state])
                tests = np.flatnonzero(self.used[: len(before)] & ~before)
            elements = [self.new(aval) for aval in types]
            try:
                found = self.called(name, parts.body, [*captured, *state, *elements])
            except _Reuse as reuse:
                if parts.cond is not None and np.isin(reuse.numbers, tests).any():
                    raise errors.KeyReuseError("while_loop cond and body functions both use the same key") from None
                if not again:
                    raise
                kind = "while_loop" if parts.cond is not None else "scan"
                raise errors.KeyReuseError(
                    f"{kind} body function leads to key reuse when repeatedly executed: a key that it captures, or "
                    "that it carries unchanged, is consumed in each iteration. Split the key that is carried, or fold "
                    "the number of the iteration into it."
                ) from None
            state, stacked = found[: parts.n_carry], found[parts.n_carry :]
            for row, element in zip(rows, elements, strict=True):
                if not again and row is not None and element is not None and self.used[element].any():
                    self.consume(row[:, self.used[element]], f"{name}, an input")
        ends = [None if x is None else self.new(aval) for x, aval in zip(stacked, outs[parts.n_carry :], strict=True)]
        for x, end in zip(stacked, ends, strict=True):
            if x is not None and end is not None:
                self.used[end] = self.used[x]
        return [*state, *ends]

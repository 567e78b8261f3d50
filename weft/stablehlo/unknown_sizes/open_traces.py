"""Traces for unknown sizes: a function is traced with integers at several sizes. The sizes that it reads, and the
numbers in which the traces differ, are fitted by formulas.

    at b = 83, 89, 251, ...: the function reads 83, 89, 251   ->   it is told b; extents 166, 178, 502   ->   2*b

The user's lines must not see the integers. What they read is therefore found first: a trace is made at each size, the
shapes that are read are fitted in their order, and the function is traced again, now told sizes. A trace may show new
reads, since a comparison of sizes is decided otherwise than one of integers; so it goes on until nothing new is read.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from weft import config, runtime
from weft.core.symbolic import open_sizes
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.errors import InconclusiveDimensionOperation
from weft.stablehlo.unknown_sizes import size_fits
from weft.stablehlo.unknown_sizes.size_fits import MorePoints
from weft.stablehlo.unknown_sizes.symbolic_dims import SymbolicDim, variable

T = TypeVar("T")
_numbers = itertools.count(1)
# Where sizes are looked for: all but one are of the first range (small ones are special), and one is large, so that
# quotients by some hundred are seen. Where constraints forbid these, the others follow.
_RANGES = ((83, 160), (64, 700), (8, 260), (2, 64), (1, 16), (1, 4))
_LARGE = (1000, 2500)
_FAR = ((160, 5000), (2000, 40000), (1 << 15, 1 << 20))  # where formulas that agreed so far may differ
_BEYOND = (1 << 20, 1 << 40)  # elements along a dimension; no array of so many is traced
_TRIES, _ROUNDS, _SAMPLES = 4000, 32, 400
MOST_POINTS = 18
_IN_SHAPE = re.compile(r"(?<=[\[(, ])\d+(?=[\]),])")


def scope_of(leaves: Sequence[Any]) -> Any:
    """The scope of the unknown sizes in the shapes of structs; None if there are none."""
    found: list[SymbolicDim] = []
    for leaf in leaves:
        if isinstance(leaf, ShapeDtypeStruct):
            found += [dim for dim in leaf.shape if isinstance(dim, SymbolicDim)]
    for dim in found[1:]:
        if dim.scope is not found[0].scope:
            raise ValueError(
                f"Invalid mixing of symbolic scopes in the arguments: '{found[0]}' has scope {found[0].scope}\nand "
                f"'{dim}' scope {dim.scope}\nMake the sizes of one function by one symbolic_shape, or with one "
                "scope=SymbolicScope()."
            )
    return found[0].scope if found else None


def names_in(leaves: Sequence[Any]) -> list[str]:
    """The unknown sizes in the shapes of structs."""
    dims = [dim for leaf in leaves if isinstance(leaf, ShapeDtypeStruct) for dim in leaf.shape]
    return sorted({name for dim in dims if isinstance(dim, SymbolicDim) for name in dim.names()})


def allowed(scope: Any, sizes: Mapping[str, int]) -> bool:
    """Whether sizes hold the constraints of a scope that they decide."""
    for check in scope.checks:
        if check.difference.names() <= set(sizes):
            value = check.difference.at(sizes)
            if value < 0 or (check.is_equation and value):
                return False
    return True


def points_of(names: Sequence[str], scope: Any, extents: Sequence[SymbolicDim], count: int) -> list[dict[str, int]]:
    """``count`` sizes to trace at, which the constraints allow; fewer where there are no more."""
    rng = random.Random(len(names))
    points: list[dict[str, int]] = []
    for most, (low, high) in ((count - 1, _RANGES[0]), (count, _LARGE), *[(count, pair) for pair in _RANGES]):
        for _ in range(_TRIES):
            if len(points) >= most:
                break
            sizes = {name: rng.randint(low, high) for name in names}
            distinct = len(set(sizes.values())) == len(names) and not any(
                sizes[name] == other[name] for other in points for name in names if low > 16
            )
            if distinct and sizes not in points and _is_one(scope, extents, sizes):
                points.append(sizes)
    if not points:
        raise ValueError(f"[symbolic_shape] no sizes were found that hold all constraints of the scope {scope}")
    return points


def _is_one(scope: Any, extents: Sequence[SymbolicDim], sizes: Mapping[str, int]) -> bool:
    return allowed(scope, sizes) and all(n.at(sizes) >= 0 for n in extents)


def small_points(names: Sequence[str], scope: Any, extents: Sequence[SymbolicDim]) -> list[dict[str, int]]:
    """Small sizes, where slices and windows may be cut short."""
    rng = random.Random(1)
    least = [max(2, int(scope.ranges.get(name, (1, 0))[0])) for name in names]
    points: list[dict[str, int]] = [dict.fromkeys(names, 1)]
    if not allowed(scope, points[0]) or any(n.at(points[0]) < 0 for n in extents):
        points = []
    for spread in (0, 1, 2, 3, 5, 8):
        for _ in range(20):
            sizes = {name: low + rng.randint(0, spread) for name, low in zip(names, least, strict=True)}
            if sizes not in points and allowed(scope, sizes) and all(n.at(sizes) >= 0 for n in extents):
                points.append(sizes)
                break
    return points[:5]


class Session:
    """The traces of one function for unknown sizes.

    ``table`` holds the shapes that the user's lines read, in their order, as far as they are known.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.scope = scope_of(leaves)
        self.names = names_in(leaves)
        shapes = [leaf.shape for leaf in leaves if isinstance(leaf, ShapeDtypeStruct)]
        self.extents = [n for shape in shapes for n in shape if isinstance(n, SymbolicDim)]
        self.points = points_of(self.names, self.scope, self.extents, len(self.names) + 4)
        self.hints: dict[SymbolicDim, None] = dict.fromkeys(
            [*[variable(name, self.scope) for name in self.names], *self.extents]
        )
        self.table: list[tuple[Any, ...]] = []
        self.memo: dict[tuple[int | str, ...], Any] = {}
        self.sizes: Mapping[str, int] = {}
        self._index = 0
        self._new: list[tuple[int, ...]] = []

    def extend(self, point: Mapping[str, int] | None = None) -> None:
        """Trace at more points from now on: at this one too, or at many."""
        if len(self.points) > 3 * MOST_POINTS:
            raise self.refused(f"{len(self.points)} traces do not tell which")
        many = points_of(self.names, self.scope, self.extents, MOST_POINTS) if point is None else [*self.points, point]
        self.points = many
        self.table, self.memo = [], {}

    # -- what the user's lines ask ------------------------------------------------------------------------------------

    def seen(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """The shape that a line reads: with sizes, once they are known."""
        index, self._index = self._index, self._index + 1
        if index >= len(self.table):
            self._new.append(shape)
            return shape
        known = self.table[index]
        if tuple([n.at(self.sizes) if isinstance(n, SymbolicDim) else n for n in known]) != shape:
            raise self.refused(f"a shape that it reads is {shape} where {dict(self.sizes)}, and {known} elsewhere")
        return known

    def value_of(self, dim: SymbolicDim) -> int:
        """The integer that stands for a size in this trace."""
        if dim.scope is not self.scope or not dim.names() <= set(self.sizes):
            raise ValueError(
                f"Encountered dimension variable(s) of '{dim}' that do not appear in the shapes of the function "
                f"arguments: {', '.join(sorted(dim.names()))}. Those that appear are {self.names}."
            )
        self.hints.setdefault(dim)
        return dim.at(self.sizes)

    def refused(self, what: str) -> InconclusiveDimensionOperation:
        return InconclusiveDimensionOperation(
            f"the function depends on an unknown size in a way that has no form: {what}"
        )

    # -- traces -------------------------------------------------------------------------------------------------------

    @contextmanager
    def at(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Trace at these sizes on this thread."""
        outer, open_sizes.thread.session = open_sizes.thread.session, self
        self.sizes, self._index, self._new = sizes, 0, []
        try:
            with config.sizes_open(next(_numbers)):
                yield
        finally:
            open_sizes.thread.session = outer

    def traces(self, trace: Callable[[Mapping[str, int]], T]) -> list[T]:
        """``trace(sizes)`` at each of the points, where its lines are told sizes."""
        for _ in range(_ROUNDS):
            reads, found, errors = self._round(trace)
            if not any(reads):
                self._check_told_apart()
                return found
            known = len(self.table)
            self._learn(reads)
            if len(self.table) == known:
                raise errors[0] if errors else self.refused("the shapes that it reads differ in number or kind")
        raise self.refused(f"what it reads still changed after {_ROUNDS} traces")

    def _round(self, trace: Callable[[Mapping[str, int]], T]) -> tuple[list[Any], list[T], list[Exception]]:
        """(for each point the shapes that lines read, not known yet; the traces; errors that they may cause)."""
        reads: list[Any] = []
        found: list[T] = []
        errors: list[Exception] = []
        final: Exception | None = None
        for sizes in self.points:
            with self.at(sizes):
                try:
                    found.append(trace(sizes))
                except Exception as error:
                    if not self._new:
                        self._in_words(error)
                        if isinstance(error, InconclusiveDimensionOperation):
                            raise
                        final = final or error
                    errors.append(error)
            reads.append(self._new)
        if final is not None and len(errors) == len(self.points):
            raise final
        if final is not None:
            raise self.refused(f"it raises for some sizes only, {type(final).__name__}: {final}") from final
        return reads, found, errors

    def computes_with(self, dim: Any) -> None:
        """The program has a size in it that no line of the user's asked for."""
        if isinstance(dim, SymbolicDim) and dim not in self.hints:
            self.hints[dim] = None
            self._check_told_apart()

    def _check_told_apart(self) -> None:
        """Raise MorePoints unless the points tell sizes that are computed with from each other, and from numbers.

        b and min(b, 4096) may be alike at all of them, or floordiv(b, 512) and 0.
        """
        alike: dict[tuple[int, ...], list[Any]] = {}
        for dim in self.hints:
            if isinstance(dim, SymbolicDim):
                values = tuple([dim.at(sizes) for sizes in self.points])
                alike.setdefault(values, [values[0]] if len(set(values)) == 1 else []).append(dim)
        for first, *others in alike.values():
            for other in others:
                point = self.telling_point([first, other])
                if point is not None:
                    raise MorePoints(f"it may be {first} or {other}", point)

    def telling_point(self, forms: Sequence[Any], some: Sequence[Mapping[str, int]] = ()) -> dict[str, int] | None:
        """Large sizes where most of some forms (numbers and sizes) differ; None if they are the same for all sizes.

        ``some`` are sizes of single names at which it is worth to look.
        """
        rng, most, found = random.Random(7), 1, None
        for low, high in (*_FAR, _BEYOND):
            for number in range(_SAMPLES):
                sizes = {name: rng.randint(low, high) for name in self.names}
                sizes |= some[number % len(some)] if some and high == _FAR[0][1] else {}
                count = len({size_fits.value_at(form, sizes) for form in forms})
                if count > most and _is_one(self.scope, self.extents, sizes):
                    most, found = count, sizes
            if found is not None and high >= _FAR[1][1]:
                if high == _BEYOND[1]:
                    raise self.refused(f"{forms[0]} and {forms[-1]} differ, but not at sizes below {low}")
                return found
        return None

    def _in_words(self, error: Exception) -> None:
        """Name sizes in the text of an error that shows the integers of the trace."""
        if not error.args or not isinstance(error.args[0], str):
            return
        words = {n.at(self.sizes): str(n) for row in self.table for n in row if isinstance(n, SymbolicDim)}
        words |= {n.at(self.sizes): str(n) for n in self.extents} | {size: name for name, size in self.sizes.items()}
        text = _IN_SHAPE.sub(lambda found: words.get(int(found[0]), found[0]), error.args[0])
        error.args = (text, *error.args[1:])

    def more(self, trace: Callable[[Mapping[str, int]], T], points: Sequence[Mapping[str, int]]) -> list[T | None]:
        """Traces at further sizes; None where the function is traced in another way there."""
        found: list[T | None] = []
        for sizes in points:
            with self.at(sizes):
                try:
                    result = trace(sizes)
                except Exception:
                    result = None
                found.append(None if self._new or self._index != len(self.table) else result)
        return found

    def _learn(self, reads: Sequence[Sequence[tuple[int, ...]]]) -> None:
        for row in zip(*reads):
            if len({len(shape) for shape in row}) > 1:
                return
            try:
                shape = tuple([self.fitted(extents) for extents in zip(*row, strict=True)])
            except MorePoints:
                raise
            except InconclusiveDimensionOperation:
                return
            self.table.append(shape)

    def fitted(self, values: Sequence[int], more: Sequence[Mapping[str, int]] = ()) -> Any:
        """The size that has these values at the points (and at some more)."""
        key = (*values, *map(str, more))
        if key not in self.memo:
            try:
                self.memo[key] = size_fits.fitted(self, [*self.points, *more][: len(values)], values)
            except MorePoints:
                raise
            except InconclusiveDimensionOperation as error:
                if len(self.points) < MOST_POINTS and len(values) >= len(self.points) and not more:
                    raise MorePoints(str(error)) from None
                raise
        return self.memo[key]


def with_integers(leaf: Any, sizes: Mapping[str, int]) -> Any:
    """A struct with the integers of a trace."""
    if not isinstance(leaf, ShapeDtypeStruct):
        return leaf
    return leaf.update(shape=tuple(dim.at(sizes) if isinstance(dim, SymbolicDim) else dim for dim in leaf.shape))


# -- eval_shape -------------------------------------------------------------------------------------------------------


def eval_shape(structs: Callable[..., Any], leaves: Sequence[Any], treedef: Any) -> Any:
    """``structs(*args, **kwargs)`` at several sizes, with the extents that fit all of them."""
    session = Session(leaves)

    def trace(sizes: Mapping[str, int]) -> tuple[list[Any], Any]:
        args, kwargs = runtime.tree_unflatten(treedef, [with_integers(leaf, sizes) for leaf in leaves])
        return runtime.tree_flatten(structs(*args, **kwargs))

    while True:
        try:
            return _structs(session, trace)
        except MorePoints as more:
            session.extend(more.point)


def _structs(session: Session, trace: Callable[[Mapping[str, int]], tuple[list[Any], Any]]) -> Any:
    found = session.traces(trace)
    if any(tree != found[0][1] for _, tree in found):
        raise InconclusiveDimensionOperation("[eval_shape] the structure of the result depends on an unknown size")
    small = small_points(session.names, session.scope, session.extents)
    pairs = zip(small, session.more(trace, small), strict=True)
    alike = [(sizes, result[0]) for sizes, result in pairs if result is not None and result[1] == found[0][1]]
    points, rows = [sizes for sizes, _ in alike], [*[outs for outs, _ in found], *[outs for _, outs in alike]]
    results = []
    for outs in zip(*rows, strict=True):
        if any((len(out.shape), out.dtype) != (len(outs[0].shape), outs[0].dtype) for out in outs):
            raise InconclusiveDimensionOperation(
                "[eval_shape] the rank or dtype of a result depends on an unknown size"
            )
        shape = [session.fitted(extents, points) for extents in zip(*[out.shape for out in outs], strict=True)]
        results.append(outs[0].update(shape=tuple(shape)))
    return runtime.tree_unflatten(found[0][1], results)

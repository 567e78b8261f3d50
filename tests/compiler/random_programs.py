"""Random programs over every kind of operation, for tests that compare the rungs of the oracle ladder.

Operations are such that NumPy and machine code agree bit for bit: no transcendental functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax

SHAPES = [(), (1,), (7,), (5, 7), (1, 7), (5, 1), (3, 5, 7), (0, 4), (2, 1, 3, 2)]


class Generator:
    """Grows a program by applying random operations to random values of the right shape."""

    def __init__(self, seed: int, length: int, operations: Sequence[Operation] | None = None) -> None:
        self.random = np.random.default_rng(seed)
        self.length = length
        self.operations = operations or OPERATIONS
        self.shapes = [SHAPES[self.random.integers(len(SHAPES))] for _ in range(int(self.random.integers(1, 4)))]
        self.choices = self.random.integers(0, 1 << 30, (length, 8))

    def inputs(self) -> list[np.ndarray]:
        return [np.asarray(self.random.integers(-9, 10, shape) / 4, np.float32) for shape in self.shapes]

    def program(self, *args: Any) -> list[Any]:
        """The program itself; the same choices at every call."""
        values = list(args)
        for row in self.choices:
            operation = self.operations[row[0] % len(self.operations)]
            operand = values[-1 - row[1] % min(len(values), 4)]
            result = operation(operand, values, [int(n) for n in row[2:]])
            if result is not None and np.prod(result.shape, dtype=np.int64) <= 2000:
                values.append(result)
        outs = values[len(args) :][-3:]
        return outs or args


Operation = Callable[[Any, Sequence[Any], Sequence[int]], Any]


def _same_shape(x: Any, values: Sequence[Any], pick: int) -> Any:
    found = [value for value in values if value.shape == x.shape]
    return found[pick % len(found)]


def _damped(x: Any) -> Any:
    """Keep numbers small, so that sums stay exact enough and products do not overflow."""
    return lax.clamp(np.float32(-64), x, np.float32(64))


def binary(name: str) -> Operation:
    return lambda x, values, n: _damped(getattr(lax, name)(x, _same_shape(x, values, n[0])))


def unary(name: str) -> Operation:
    return lambda x, values, n: getattr(lax, name)(x)


def with_scalar(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return _damped(lax.add(lax.mul(x, np.float32(0.5)), np.float32(n[0] % 5)))


def choose(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    y = _same_shape(x, values, n[0])
    return lax.select(lax.gt(x, y), x, lax.neg(y))


def stretch(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    """Add an operand stretched along one dimension."""
    if not x.shape:
        return None
    axis = n[0] % len(x.shape)
    if not x.shape[axis]:
        return None
    one = lax.slice_in_dim(x, 0, 1, axis=axis)
    return _damped(lax.sub(x, one))


def reduce_and_spread(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape:
        return None
    axis = n[0] % len(x.shape)
    total = lax.reduce_max(x, (axis,)) if n[1] % 2 else lax.reduce_sum(x, (axis,))
    kept = tuple(dim for dim in range(len(x.shape)) if dim != axis)
    return _damped(lax.sub(x, lax.broadcast_in_dim(total, x.shape, kept)))


def reduce(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    axes = tuple(dim for dim in range(len(x.shape)) if n[0] >> dim & 1)
    return _damped(lax.reduce_sum(x, axes)) if axes else None


def transpose(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return lax.transpose(x, tuple(np.random.default_rng(n[0]).permutation(len(x.shape))))


def reverse(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return lax.rev(x, (n[0] % len(x.shape),)) if x.shape else None


def cut(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    starts = tuple(n[0] % (extent + 1) // 2 for extent in x.shape)
    return lax.slice(x, starts, x.shape, tuple(1 + n[1] % 2 for _ in x.shape))


def flatten(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    size = int(np.prod(x.shape, dtype=np.int64))
    shapes = [(size,), (1, size), (*x.shape, 1)] + ([(2, size // 2)] if size % 2 == 0 else [])
    return lax.reshape(x, shapes[n[0] % len(shapes)])


def widen(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    dims = len(x.shape)
    if n[0] % 2:
        return lax.broadcast_in_dim(x, (*x.shape, 2), tuple(range(dims)))
    return lax.expand_dims(x, (n[1] % (dims + 1),))


def join(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return lax.concatenate([x, _same_shape(x, values, n[0])], n[1] % len(x.shape)) if x.shape else None


def pad(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return lax.pad(x, np.float32(2), [(n[dim % 4] % 3, n[1] % 2, n[2] % 2) for dim in range(len(x.shape))])


def index(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape:
        return None
    return lax.add(x, lax.broadcasted_iota(np.float32, x.shape, n[0] % len(x.shape)))


def running(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape:
        return None
    function = lax.cumsum if n[0] % 2 else lax.cummax
    return _damped(function(x, axis=n[1] % len(x.shape), reverse=bool(n[2] % 2)))


def dynamic(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape or 0 in x.shape:
        return None
    first = lax.convert_element_type(lax.reduce_max(x, tuple(range(len(x.shape)))), np.int32)
    starts = [first] + [np.int32(n[0] % 3)] * (len(x.shape) - 1)
    part = lax.dynamic_slice(x, starts, tuple(max(extent - 1, 1) for extent in x.shape))
    return lax.dynamic_update_slice(x, lax.neg(part), starts) if n[1] % 2 else part


def product(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if len(x.shape) != 2:
        return None
    return _damped(lax.dot_general(x, _same_shape(x, values, n[0]), (((1,), (1,)), ((), ()))))


def hold(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    return lax.optimization_barrier(x)


def _indices(x: Any, n: Sequence[int], bound: int) -> Any:
    """A flat vector of computed indices from a value, some of them outside [0, bound)."""
    size = int(np.prod(x.shape, dtype=np.int64))
    flat = lax.slice(lax.reshape(x, (size,)), (0,), (min(size, 9),))
    scaled = lax.convert_element_type(lax.mul(flat, np.float32(2)), [np.int32, np.int8, np.int16][n[0] % 3])
    return lax.add(lax.rem(scaled, scaled.dtype.type(bound + 2)), scaled.dtype.type(n[1] % 3))


def _columns(x: Any, n: Sequence[int], dims: Sequence[int]) -> Any:
    """Index vectors for some dimensions, as concatenated columns."""
    parts = [_indices(x, [n[0], n[k + 1]], x.shape[dim]) for k, dim in enumerate(dims)]
    return lax.concatenate([lax.expand_dims(part, (1,)) for part in parts], 1)


def _index_space(x: Any, n: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(indexed dimensions, thin ones among them, sizes of windows)."""
    rank = len(x.shape)
    dims = tuple(dim for dim in range(rank) if n[0] >> dim & 1) or (n[1] % rank,)
    thin = tuple(dim for dim in dims if n[2] >> dim & 1)
    sizes = [1 if d in thin else max(n_ - n[3] % 2, 1) if d in dims else n_ for d, n_ in enumerate(x.shape)]
    return dims[:2], tuple(d for d in thin if d in dims[:2]), tuple(sizes)


def take(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape or 0 in x.shape:
        return None
    dims, thin, sizes = _index_space(x, n)
    sizes = tuple(1 if d in thin else size for d, size in enumerate(sizes))
    window = len(x.shape) - len(thin)
    offsets = tuple(range(1, window + 1)) if n[4] % 2 else tuple(range(window))
    numbers = lax.GatherDimensionNumbers(offsets, thin, dims)
    mode = ["clip", "fill", "promise_in_bounds"][n[5] % 3]
    return lax.gather(x, _columns(x, n[1:], dims), numbers, sizes, mode=mode, fill_value=1.5)


def put(x: Any, values: Sequence[Any], n: Sequence[int]) -> Any:
    if not x.shape or 0 in x.shape:
        return None
    dims, thin, sizes = _index_space(x, n)
    indices = _columns(x, n[1:], dims)
    window = [size for d, size in enumerate(sizes) if d not in thin]
    wanted = (indices.shape[0], *window)
    source = values[n[4] % len(values)]
    if source.shape != wanted:
        source = lax.broadcast_in_dim(lax.reduce_max(x, (0,)), wanted, ()) if len(x.shape) == 1 else None
    if source is None:
        source = lax.mul(lax.broadcasted_iota(np.float32, wanted, n[4] % len(wanted)), np.float32(0.25))
    numbers = lax.ScatterDimensionNumbers(tuple(range(1, len(wanted))), thin, dims)
    name = ["scatter", "scatter_add", "scatter_max", "scatter_sub"][n[5] % 4]
    return _damped(getattr(lax, name)(x, indices, source, numbers, mode="clip" if n[3] % 3 == 0 else "drop"))


OPERATIONS: list[Operation] = [
    binary("add"), binary("sub"), binary("mul"), binary("max"), binary("min"), binary("add"), unary("neg"),
    unary("abs"), unary("floor"), with_scalar, choose, stretch, reduce_and_spread, reduce, transpose, reverse, cut,
    flatten, widen, join, pad, index, running, dynamic, product, hold, with_scalar, binary("mul"),
]  # fmt: skip

INDEXED: list[Operation] = [*OPERATIONS[::2], take, put, take, put, take]

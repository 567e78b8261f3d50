"""The text of one function of a StableHLO module: operations in generic form, regions, constants, locations.

    %3 = "stablehlo.add"(%1, %2) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>

The generic form is read by every version of MLIR's parser, which is why nothing is abbreviated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.stablehlo import types
from weft.stablehlo.unknown_sizes import open_text

Type = tuple[types.Shape, np.dtype]


class Tensor:
    """A value of a function: its name and type."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, shape: types.Shape, dtype: np.dtype) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype

    @property
    def type(self) -> str:
        return types.tensor(self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Text:
    """The lines of a function that is being written; ``where`` is the location of the operations that follow."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.where = ""
        self.sizes: dict[str, Tensor] = {}  # the values of unknown sizes, where extents are open
        self.extents: dict[Any, Tensor] = {}  # the values of sizes that are computed from them
        self.tokens: dict[str, Tensor] = {}  # tokens, by the names of values that stand for their words
        self._constants: dict[Any, Tensor] = {}

    def fresh(self, shape: types.Shape, dtype: np.dtype) -> Tensor:
        """A new name."""
        self.count += 1
        return Tensor(f"%{self.count}", shape, dtype)

    def op(
        self,
        name: str,
        operands: Sequence[Tensor],
        shape: types.Shape,
        dtype: np.dtype,
        attributes: str = "",
        regions: Sequence[str] = (),
    ) -> Tensor:
        """Write ``"stablehlo.<name>"`` with one result; a name with a dot has its dialect."""
        return self.ops(name, operands, [(shape, dtype)], attributes, regions)[0]

    def ops(
        self,
        name: str,
        operands: Sequence[Tensor],
        results: Sequence[Type],
        attributes: str = "",
        regions: Sequence[str] = (),
        dialect: str = "stablehlo",
        discardable: str = "",
    ) -> list[Tensor]:
        """Write an operation and return its results; ``discardable``: attributes that are not the operation's own."""
        listed = ", ".join([x.name for x in operands])
        inputs = ", ".join([x.type for x in operands])
        outputs = ", ".join([types.tensor(*result) for result in results])
        inner = f" ({', '.join(regions)})" if regions else ""
        given = f" <{{{attributes}}}>" if attributes else ""
        more = f" {{{discardable}}}" if discardable else ""
        name = name if "." in name else f"{dialect}.{name}"
        end = f'"{name}"({listed}){given}{inner}{more} : ({inputs}) -> '
        end += outputs if len(results) == 1 else f"({outputs})"
        if not results:
            self.lines.append(end + self.where)
            return []
        self.count += 1
        number = self.count
        if len(results) == 1:
            self.lines.append(f"%{number} = {end}{self.where}")
            return [Tensor(f"%{number}", *results[0])]
        self.lines.append(f"%{number}:{len(results)} = {end}{self.where}")
        return [Tensor(f"%{number}#{index}", *result) for index, result in enumerate(results)]

    def constant(self, value: Any, shape: types.Shape, dtype: np.dtype) -> Tensor:
        """A constant: one value everywhere, or the elements of an array."""
        if any(map(types.is_open, shape)):
            return self.broadcast(self.constant(value, (), dtype), shape, ())
        dense = types.dense(value, shape, dtype)
        found = self._constants.get(dense)
        if found is None:
            found = self._constants[dense] = self.op("constant", (), shape, dtype, f"value = {dense}")
        return found

    def is_constant(self, x: Tensor) -> bool:
        return any(x is constant for constant in self._constants.values())

    # -- open extents -------------------------------------------------------------------------------------------------

    def extent(self, n: Any) -> Tensor:
        """An extent, or a sum of unknown sizes, as a 0-d integer."""
        return open_text.extent(self, n)

    def vector(self, extents: Sequence[Any]) -> Tensor:
        """Extents as a vector of integers."""
        if not any(map(types.is_open, extents)):
            return self.constant(np.asarray(extents, np.int32), (len(extents),), types.INT32)
        return self.concatenate([self.reshape(self.extent(n), (1,)) for n in extents], 0)

    def region(
        self, arguments: Sequence[Type], body: Callable[..., Sequence[Tensor]], dialect: str = "stablehlo"
    ) -> str:
        """A region that returns what ``body`` makes of its arguments, by the return of a dialect."""
        outer, constants, extents = self.lines, self._constants, self.extents
        self.lines, self._constants, self.extents = [], {}, dict(extents)
        values = [self.fresh(*argument) for argument in arguments]
        results = body(*values)
        self.ops("return", results, (), dialect=dialect)
        header = ", ".join([f"{x.name}: {x.type}" for x in values])
        lines = [f"^bb0({header}):" if values else "^bb0:", *self.lines]
        self.lines, self._constants, self.extents = outer, constants, extents
        return "{\n" + "\n".join(lines) + "\n}"

    # -- what most writers need ---------------------------------------------------------------------------------------

    def convert(self, x: Tensor, dtype: np.dtype) -> Tensor:
        return x if x.dtype == dtype else self.op("convert", [x], x.shape, dtype)

    def reshape(self, x: Tensor, shape: types.Shape) -> Tensor:
        if x.shape == shape:
            return x
        if any(map(types.is_open, shape)):
            return self.op("dynamic_reshape", [x, self.vector(shape)], shape, x.dtype)
        return self.op("reshape", [x], shape, x.dtype)

    def broadcast(self, x: Tensor, shape: types.Shape, dims: Sequence[int]) -> Tensor:
        """``broadcast_in_dim``: dimension i of x is dimension ``dims[i]`` of the result."""
        if x.shape == shape and tuple(dims) == tuple(range(len(shape))):
            return x
        given = f"broadcast_dimensions = {types.array(dims)}"
        if any(map(types.is_open, shape)):
            return self.op("dynamic_broadcast_in_dim", [x, self.vector(shape)], shape, x.dtype, given)
        return self.op("broadcast_in_dim", [x], shape, x.dtype, given)

    def spread(self, x: Tensor, shape: types.Shape) -> Tensor:
        """An operand of an elementwise operation at the shape of its result: it is 0-d, or of the same rank."""
        return x if x.shape == shape else self.broadcast(x, shape, range(x.ndim))

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if tuple(permutation) == tuple(range(x.ndim)):
            return x
        shape = tuple([x.shape[d] for d in permutation])
        return self.op("transpose", [x], shape, x.dtype, f"permutation = {types.array(permutation)}")

    def slice(self, x: Tensor, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]) -> Tensor:
        shape = tuple([_between(*bounds) for bounds in zip(starts, limits, steps, strict=True)])
        if shape == x.shape and all(k == 1 for k in steps):
            return x
        if any(map(types.is_open, (*starts, *limits))):
            bounds = [self.vector(values) for values in (starts, limits, steps)]
            return self.op("real_dynamic_slice", [x, *bounds], shape, x.dtype)
        given = f"start_indices = {types.array(starts)}, limit_indices = {types.array(limits)}"
        return self.op("slice", [x], shape, x.dtype, f"{given}, strides = {types.array(steps)}")

    def dynamic_slice(self, x: Tensor, starts: Sequence[Tensor], sizes: types.Shape) -> Tensor:
        """A slice at starts that are known where the program runs; with open extents it is a gather of one window."""
        if not any(map(types.is_open, sizes)):
            return self.op("dynamic_slice", [x, *starts], sizes, x.dtype, f"slice_sizes = {types.array(sizes)}")
        every = types.listed(range(x.ndim))
        given = f"dimension_numbers = #stablehlo.gather<offset_dims = {every}, start_index_map = {every}, "
        given += "index_vector_dim = 0>, indices_are_sorted = true"
        indices = self.concatenate([self.reshape(start, (1,)) for start in starts], 0)
        return self.op("dynamic_gather", [x, indices, self.vector(sizes)], sizes, x.dtype, given)

    def cut(self, x: Tensor, axis: int, start: int, limit: int, step: int = 1) -> Tensor:
        """A slice along one dimension."""
        every = range(x.ndim)
        return self.slice(
            x,
            [start if d == axis else 0 for d in every],
            [limit if d == axis else x.shape[d] for d in every],
            [step if d == axis else 1 for d in every],
        )

    def pad(self, x: Tensor, value: Tensor, config: Sequence[tuple[int, int, int]]) -> Tensor:
        """``config``: elements before, after and between those of x, for each dimension."""
        if not any(any(amounts) for amounts in config):
            return x
        low, high, inner = ([amounts[index] for amounts in config] for index in range(3))
        shape = tuple(
            [m + n + (_less_one(k) * step if step else 0) + k for m, n, step, k in zip(low, high, inner, x.shape)]
        )
        if any(map(types.is_open, (*low, *high))):
            return self.op("dynamic_pad", [x, value, *map(self.vector, (low, high, inner))], shape, x.dtype)
        given = f"edge_padding_low = {types.array(low)}, edge_padding_high = {types.array(high)}"
        return self.op("pad", [x, value], shape, x.dtype, f"{given}, interior_padding = {types.array(inner)}")

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        if len(xs) == 1:
            return xs[0]
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.op("concatenate", xs, tuple(shape), xs[0].dtype, f"dimension = {axis} : i64")

    def iota(self, shape: types.Shape, dtype: np.dtype, dimension: int) -> Tensor:
        if any(map(types.is_open, shape)):
            given = f"iota_dimension = {dimension} : i64"
            return self.op("dynamic_iota", [self.vector(shape)], shape, dtype, given)
        return self.op("iota", (), shape, dtype, f"iota_dimension = {dimension} : i64")

    def compare(self, direction: str, x: Tensor, y: Tensor, total: bool = False) -> Tensor:
        """``direction``: eq, ne, lt, le, gt or ge."""
        kind = "FLOAT"
        if total:
            kind = "TOTALORDER"
        elif x.dtype.kind in "bu" or types.element(x.dtype).startswith("ui"):
            kind = "UNSIGNED"
        elif types.element(x.dtype).startswith("i"):
            kind = "SIGNED"
        given = f"comparison_direction = #stablehlo<comparison_direction {direction.upper()}>"
        return self.op(
            "compare", [x, y], x.shape, types.BOOL, f"{given}, compare_type = #stablehlo<comparison_type {kind}>"
        )

    def select(self, which: Tensor, on_true: Tensor, on_false: Tensor) -> Tensor:
        return self.op("select", [which, on_true, on_false], on_true.shape, on_true.dtype)


def _between(start: Any, limit: Any, step: int) -> Any:
    """How many elements a slice has."""
    if types.is_open(limit - start):
        return -((start - limit) // step)
    return max(0, -(-(limit - start) // step))


def _less_one(n: Any) -> Any:
    return n - 1 if types.is_open(n) else max(0, n - 1)

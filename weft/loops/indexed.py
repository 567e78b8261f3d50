"""Data-dependent addresses in loops: from the components of an index vector to a clamped offset in elements.

    start = min(max(index, 0), most)                 in int32, or the index's own dtype where that is wider
    offset = start[0] * stride[0] + start[1] * ...   in int32 where the array has fewer than 2**31 elements
    inside = 0 <= index[0] <= most[0] and ...        one unsigned comparison each

Indices are clamped, or windows tested to be inside, before any access: no index makes a kernel access memory outside
its array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, Literal
from weft.loops import ir
from weft.loops.index_math import Sizes

INT32, INT64, BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)
FEW = 1 << 31

Number = Callable[[], int]  # gives the next value number
Scalar = Callable[[Any, Any], int]  # (value, dtype) -> the number of a scalar parameter
Bucket = list[ir.Statement]


def _clamp(emit: Any, index: Any, most: Any, dtype: np.dtype) -> Any:
    index = emit.convert(index, most.dtype)
    if most.dtype.kind == "i":
        index = emit.max(index, emit.const(0, most.dtype))
    return emit.convert(emit.min(index, most), dtype)


def _is_inside(emit: Any, index: Any, most: Any) -> Any:
    unsigned = np.dtype(f"u{most.dtype.itemsize}")
    index = emit.convert(index, most.dtype)
    return emit.compare("le", emit.bitcast(index, unsigned), emit.bitcast(most, unsigned))


CLAMP = kinds.Elementwise(
    scalar=_clamp,
    reference=lambda index, most, dtype: np.clip(index.astype(most.dtype), 0, most).astype(dtype),
    cost=3.0,
)
INSIDE = kinds.Elementwise(
    scalar=_is_inside,
    reference=lambda index, most: (index.astype(most.dtype) >= 0) & (index.astype(most.dtype) <= most),
    cost=1.0,
)
GIVEN = kinds.Elementwise(
    scalar=lambda emit, index, dtype: emit.convert(index, dtype),
    reference=lambda index, dtype: index.astype(dtype),
    cost=1.0,
)
SCALED = kinds.Elementwise(scalar=lambda emit, start, stride: emit.mul(start, stride), reference=np.multiply, cost=1.0)
SUM = kinds.Elementwise(scalar=lambda emit, x, y: emit.add(x, y), reference=np.add, cost=1.0)
BOTH = kinds.Elementwise(scalar=lambda emit, x, y: emit.and_(x, y), reference=np.logical_and, cost=1.0)
CHOOSE = kinds.Elementwise(
    scalar=lambda emit, inside, found, fill: emit.select(inside, fill, found),
    reference=lambda inside, found, fill: np.where(inside, found, fill).astype(found.dtype),
    cost=1.0,
)


class Windowed(NamedTuple):
    """Windows of an array; the dimensions of the variable ``walked`` iterate over them."""

    array: Any
    windows: kinds.Windows
    walked: Any


class IndexWriter:
    """Writes the statements of offsets and updates for one lowering."""

    def __init__(self, number: Number, scalar: Scalar, sizes: Sizes) -> None:
        self.number, self.scalar, self.sizes = number, scalar, sizes

    def apply(self, bucket: Bucket, name: str, kind: kinds.Elementwise, args: Sequence[int], dtype: Any) -> int:
        out = self.number()
        params = (("dtype", dtype),) if kind is CLAMP or kind is GIVEN else ()
        bucket.append(ir.Apply(out, name, kind, params, tuple(args), np.dtype(dtype)))
        return out

    def offset(
        self, bucket: Bucket, windowed: Windowed, values: Sequence[int], dtypes: Sequence[Any], clamped: bool = True
    ) -> int:
        """The offset of windows that start at the index values; valid only for windows inside unless ``clamped``."""
        array = windowed.array.aval
        dtype = INT32 if array.size < FEW else INT64
        total: int | None = None
        for k, (value, index, dim) in enumerate(zip(values, dtypes, windowed.windows.starts, strict=True)):
            if clamped:
                start = self.apply(bucket, "start", CLAMP, (value, self._most(windowed, k, index)), dtype)
            else:
                start = self.apply(bucket, "start", GIVEN, (value,), dtype)
            if dim + 1 < array.ndim:  # the last dimension has stride 1 in every array
                stride = self.sizes.strides(windowed.array)[dim]
                stride = self.scalar(stride.elems, dtype)
                start = self.apply(bucket, "scaled", SCALED, (start, stride), dtype)
            total = start if total is None else self.apply(bucket, "sum", SUM, (total, start), dtype)
        return self.scalar(0, dtype) if total is None else total

    def inside(self, bucket: Bucket, windowed: Windowed, values: Sequence[int], dtypes: Sequence[Any]) -> int:
        """A value that tells whether the windows are inside."""
        every: int | None = None
        for k, (value, index) in enumerate(zip(values, dtypes, strict=True)):
            one = self.apply(bucket, "inside", INSIDE, (value, self._most(windowed, k, index)), BOOL)
            every = one if every is None else self.apply(bucket, "both", BOTH, (every, one), BOOL)
        return self.scalar(True, BOOL) if every is None else every

    def _most(self, windowed: Windowed, component: int, index: Any) -> int:
        """The largest start as a parameter, in the dtype of comparisons."""
        dtype = np.dtype(index)
        dtype = INT32 if dtype.itemsize < 4 else dtype
        most = windowed.windows.most[component]
        if most > int(np.iinfo(dtype).max):
            return self.scalar(int(np.iinfo(dtype).max), dtype)
        return self.scalar(most, dtype)

    def filled(self, bucket: Bucket, inside: int, found: int, fill: Any, dtype: Any) -> int:
        return self.apply(bucket, "choose", CHOOSE, (inside, found, self.scalar(fill, dtype)), dtype)

    def combination(self, jaxpr: Jaxpr | None, old: int, new: int) -> tuple[tuple[ir.Apply, ...], int]:
        """The statements of an update's computation, and the number of its result."""
        if jaxpr is None:
            return (), new
        steps: Bucket = []
        result = self._inlined(steps, jaxpr, [old, new])[0]
        return tuple([step for step in steps if isinstance(step, ir.Apply)]), result

    def _inlined(self, steps: Bucket, jaxpr: Jaxpr, args: Sequence[int]) -> list[int]:
        env: dict[Any, int] = dict(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> int:
            return self.scalar(atom.val, atom.aval.dtype) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            kind, operands = eqn.primitive.kind, [read(atom) for atom in eqn.invars]
            if isinstance(kind, kinds.Higher):
                outs = self._inlined(steps, kind.inline(eqn.params).jaxpr, operands)
            elif isinstance(kind, kinds.Identity):
                outs = operands
            else:
                outs = [self.number()]
                steps.append(ir.applied(eqn, outs[0], operands))
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

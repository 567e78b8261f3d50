"""Shared by operations on batches of matrices: declaring, typing, batching and checking them, and small algebra.

An operand is f32[..., m, n]: its last dimensions are the matrix (or vector), those before are the batch, which is the
same for all operands. The native routine and the reference work on one element of the batch at a time::

    matrix_primitive("cholesky", ranks=(2,), shapes=lambda a: a, ...)      f32[8,3,3] -> f32[8,3,3]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, errors, runtime
from weft.core import kinds
from weft.core.symbolic.sizes import whole
from weft.operations import mapped
from weft.operations.data_movement.gather import gather
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import COMPLEX, FLOAT, check_dtype, check_same_dtype
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode, Precision
from weft.runtime import Array

ArrayLike = Any
Params = dict[str, Any]

LETTERS = {np.dtype(letter): letter for letter in "fdFD"}  # the dtypes of LAPACK
INT32 = np.dtype(np.int32)
_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
_COMPLEX = {real: complex_ for complex_, real in _REAL.items()}


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of a complex number; a real dtype is unchanged."""
    return _REAL.get(dtype, dtype)


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype with parts of a dtype; a complex dtype is unchanged."""
    return _COMPLEX.get(dtype, dtype)


# ---- declaring an operation


def _check_operands(name: str, ranks: Sequence[int], avals: Sequence[Any], integers: frozenset[int]) -> None:
    for number, (rank, aval) in enumerate(zip(ranks, avals, strict=True)):
        if number not in integers:
            check_dtype(name, number, aval, FLOAT | COMPLEX)
            if aval.dtype not in LETTERS:
                raise NotImplementedError(
                    f"[{name}] operand {number} is {aval.str_short()}, and LAPACK has float32, float64, complex64 and "
                    "complex128 only. Convert it first, e.g. x.astype('float32')."
                )
        if aval.ndim < rank:
            raise TypeError(f"Input {number} to {name} must have rank at least {rank}, but got shape={aval.shape}")
    same = [aval for number, aval in enumerate(avals) if number not in integers]
    if len({aval.dtype for aval in same}) > 1:
        check_same_dtype(name, same)
    batches = [aval.ndim - rank for rank, aval in zip(ranks, avals, strict=True)]
    if len(set(batches)) > 1:
        raise TypeError(
            f"All inputs to {name} must have the same number of batch dimensions, but got {batches} batch dimensions "
            "for the inputs."
        )
    extents = [aval.shape[: aval.ndim - rank] for rank, aval in zip(ranks, avals, strict=True)]
    if len(set(extents)) > 1:
        raise TypeError(f"All inputs to {name} must have the same batch dimensions, but got {extents} for the inputs.")


def matrix_primitive(
    name: str,
    ranks: tuple[int, ...],
    shapes: Callable[..., Any],
    reference: Callable[..., Any],
    routine: Callable[..., tuple[str, tuple[int, ...]]],
    *,
    dtypes: Callable[..., Any] | None = None,
    multiple_results: bool = False,
    integers: frozenset[int] = frozenset(),
    unrolled: Callable[[Any, Params], Callable[..., Any] | None] | None = None,
    written: Callable[[Sequence[bool]], tuple[int, ...]] | None = None,
) -> core.Primitive:
    """An operation on batches of matrices.

    ``shapes(*shapes of matrices, **params)`` gives the result's matrix shape (or a list of them), ``dtypes(dtype,
    **params)`` likewise; ``reference(*matrices, **params)`` the NumPy result (a list of them) for one element of the
    batch; ``routine(*shapes, **params)`` the name of the native routine and its sizes. ``integers`` are the positions
    of int32 operands. ``written(read)`` names the results that the routine is told to write if not all are read.
    """

    def typing(*avals: Any, **params: Any) -> Any:
        _check_operands(name, ranks, avals, integers)
        cut = avals[0].ndim - ranks[0]
        batch, weak = avals[0].shape[:cut], all(aval.weak_type for aval in avals)
        found = shapes(*[aval.shape[cut:] for aval in avals], **params)
        dtype = avals[0].dtype
        kinds_of = (dtype,) * len(found) if dtypes is None else dtypes(dtype, **params)
        if not multiple_results:
            return runtime.ShapedArray((*batch, *found), kinds_of[0] if dtypes is None else kinds_of, weak)
        pairs = zip(found, kinds_of, strict=True)
        return [runtime.ShapedArray((*batch, *shape), d, weak and d != INT32) for shape, d in pairs]

    def library(avals: Any, params: Params, read: Sequence[bool]) -> kinds.Library:
        cut = avals[0].ndim - ranks[0]
        own = params if written is None else {**params, "read": read}
        word, sizes = routine(*[aval.shape[cut:] for aval in avals], **own)
        batch = math.prod(avals[0].shape[:cut])
        letter = "i" if 0 in integers else LETTERS[avals[0].dtype]
        kept = None if written is None else written(read)
        return kinds.Library(word, letter, batch, tuple(map(whole, sizes)), kept)

    def call(*arrays: Any, **params: Any) -> Any:
        return _each(reference, ranks, arrays, params, multiple_results)

    def in_common(avals: Any, params: Params) -> int:
        return avals[0].ndim - ranks[0]

    kind = kinds.External(call=call, library=library, unrolled=unrolled, batch=in_common)
    primitive = core.Primitive(name, kind=kind, multiple_results=multiple_results)
    primitive.def_abstract_eval(typing)

    def batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
        out = primitive.bind(*mapped.all_in_front(size, values, dims), **params)
        return (out, [0] * len(out)) if multiple_results else (out, 0)

    primitive.batch = batch
    primitive.jvp = primitive.transpose = None
    return primitive


def _each(
    reference: Callable[..., Any], ranks: tuple[int, ...], arrays: Sequence[Any], params: Params, several: bool
) -> Any:
    """The reference on every element of a batch; an empty batch uses a matrix of ones, for shapes and dtypes."""
    arrays = [np.asarray(x) for x in arrays]
    cut = arrays[0].ndim - ranks[0]
    batch = arrays[0].shape[:cut]
    count = math.prod(batch)
    flat = [x.reshape(count, *x.shape[cut:]) for x in arrays]
    if count == 0:
        flat = [np.ones((1, *x.shape[1:]), x.dtype) for x in flat]
    with np.errstate(all="ignore"):
        made = [reference(*[x[i] for x in flat], **params) for i in range(max(count, 1))]
    made = made if several else [(x,) for x in made]
    stacked = [np.stack([np.asarray(x) for x in column])[:count] for column in zip(*made, strict=True)]
    shaped = [x.reshape(*batch, *x.shape[1:]) for x in stacked]
    return shaped if several else shaped[0]


def nans(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array of NaN (both parts of complex numbers), the result of a failed routine."""
    return np.full(shape, complex(np.nan, np.nan) if np.dtype(dtype).kind == "c" else np.nan, dtype)


# ---- small algebra on the last two dimensions


def constant(x: Any, value: float) -> Any:
    """A number of the dtype of x."""
    return np.asarray(value, core.get_aval(x).dtype)[()]


def is_complex(x: Any) -> bool:
    return core.get_aval(x).dtype.kind == "c"


def transposed(x: Any) -> Array:
    rank = len(shape_of(x))
    return ops.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def conjugated(x: Any) -> Array:
    return ops.conj(x) if is_complex(x) else x


def adjoint(x: Any) -> Array:
    """The conjugated transpose."""
    return conjugated(transposed(x))


def symmetrized(x: Any) -> Array:
    """``(x + x') / 2``. ValueError if x is not a square matrix."""
    shape = shape_of(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise errors.ShapeError(f"A square matrix is needed here. Got shape {shape}.")
    return ops.div(ops.add(x, adjoint(x)), constant(x, 2))


def product(a: Any, b: Any) -> Array:
    """The product of matrices of the same batch."""
    batch = tuple(range(len(shape_of(a)) - 2))
    rank = len(batch)
    numbers = (((rank + 1,), (rank,)), (batch, batch))
    return ops.dot_general(a, b, numbers, precision=Precision.HIGHEST)


def _mask(shape: Sequence[int], k: int, upper: bool) -> Array:
    rows = ops.add(ops.broadcasted_iota(INT32, shape, 0), np.int32(k - upper))
    return ops.ge(rows, ops.broadcasted_iota(INT32, shape, 1))


def _masked(x: Any, k: int, upper: bool) -> Array:
    extents = shape_of(x)
    mask = _mask(extents[-2:], k, upper)
    if len(extents) > 2:
        mask = ops.broadcast(mask, extents[:-2])
    zeros = ops.full_like(x, 0)
    return ops.select(mask, zeros, x) if upper else ops.select(mask, x, zeros)


def lower(x: Any, k: int = 0) -> Array:
    """The lower triangle, up to diagonal k; zeros above."""
    return _masked(x, k, False)


def upper(x: Any, k: int = 0) -> Array:
    """The upper triangle, from diagonal k on; zeros below."""
    return _masked(x, k, True)


def identity(dtype: Any, rows: int, columns: int | None = None, batch: Sequence[int] = ()) -> Array:
    """Ones on the diagonal, zeros elsewhere."""
    shape = (rows, rows if columns is None else columns)
    left, right = ops.broadcasted_iota(INT32, shape, 0), ops.broadcasted_iota(INT32, shape, 1)
    made = ops.convert_element_type(ops.eq(left, right), dtype)
    return ops.broadcast(made, tuple(batch)) if batch else made


def identity_like(x: Any) -> Array:
    """The identity of the last dimension of x, for every element of its batch."""
    extents = shape_of(x)
    return identity(core.get_aval(x).dtype, extents[-1], batch=extents[:-2])


def diagonal(x: Any) -> Array:
    """The diagonals of the matrices: every (columns + 1)-th element."""
    *batch, rows, columns = shape_of(x)
    least, first = min(rows, columns), [0] * len(batch)
    flat = ops.reshape(x, (*batch, rows * columns))
    return ops.slice(flat, [*first, 0], [*batch, least * columns], [*[1] * len(batch), columns + 1])


def column(x: Any) -> Array:
    """f32[..., n] as f32[..., n, 1]."""
    return ops.expand_dims(x, (len(shape_of(x)),))


def row(x: Any) -> Array:
    """f32[..., n] as f32[..., 1, n]."""
    return ops.expand_dims(x, (len(shape_of(x)) - 1,))


def cast(x: Any, like: Any) -> Array:
    """x in the dtype of another array."""
    return ops.convert_element_type(x, core.get_aval(like).dtype)


def real_part(x: Any) -> Array:
    return ops.real(x) if is_complex(x) else x


def part(x: Any, rows: slice, columns: slice) -> Array:
    """A block of every matrix."""
    *batch, m, n = shape_of(x)
    (top, bottom, _), (left, right, _) = rows.indices(m), columns.indices(n)
    return ops.slice(x, [0] * len(batch) + [top, left], [*batch, max(bottom, top), max(right, left)])


def take_rows(x: Any, positions: Any) -> Array:
    """The rows at positions, int32[..., m], of every matrix."""
    extents = shape_of(x)
    if 0 in extents:
        return ops.full_like(x, 0, shape=(*extents[:-2], shape_of(positions)[-1], extents[-1]))
    rank = len(extents) - 2
    batch = tuple(range(rank))
    numbers = GatherDimensionNumbers((rank + 1,), (rank,), (rank,), batch, batch)
    sizes = (1,) * (rank + 1) + (extents[-1],)
    return gather(x, column(positions), numbers, sizes, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def take_columns(x: Any, positions: Any) -> Array:
    """The columns at positions, int32[..., n], of every matrix."""
    return transposed(take_rows(transposed(x), positions))


def lapack_name(x: np.ndarray, real: str, complex_: str | None = None) -> str:
    """The routine of ``scipy.linalg.lapack`` for the dtype of an array, for references."""
    letter = dict(zip("fdFD", "sdcz", strict=True))[LETTERS[x.dtype]]
    return letter + (complex_ if complex_ is not None and x.dtype.kind == "c" else real)

"""lax.rng_uniform: numbers without a key. Each evaluation takes the next number of a counter of the process as its key.

    b:f32[3] = rng_uniform[shape=(3,)] 0.0 1.0   ->   c:i32[2] = next_count; bits = philox c; b = 0.0 + unit(bits) * 1.0

The counter starts at zero: a program that runs the same evaluations in the same order, from one thread, draws the same
numbers in every process. Evaluations are counted as they happen, also those in a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.core import kinds
from weft.core.effects import NamedEffect
from weft.core.primitive import Primitive
from weft.random import bit_generator


class _Count(NamedEffect):
    """Two evaluations are never merged into one; an evaluation whose number nobody reads may be left out."""

    removable = True


count_effect = _Count("next_count")
_WORDS = runtime.ShapedArray((2,), np.dtype(np.int32))

next_count_p = Primitive(
    "next_count",
    kinds.External(
        call=lambda: np.asarray(next_count_p.bind()),
        library=lambda avals, params, read: kinds.Library("count", "i", 1, ()),
    ),
    memoize=False,
)
next_count_p.def_effectful_abstract_eval(lambda: (_WORDS, {count_effect}))
next_count_p.jvp = next_count_p.transpose = None


def _drawn(shape: tuple[int, ...], dtype: Any) -> Any:
    """Random bits in an unsigned dtype, of the next key."""
    count = lax.convert_element_type(next_count_p.bind(), np.uint32)
    return bit_generator.rng_bit_generator(lax.pad(count, np.uint32(0), [(0, 2, 0)]), shape, dtype)[1]


def _expand(a: Any, b: Any, *, shape: tuple[int, ...]) -> Any:
    dtype = core.get_aval(a).dtype
    return (_whole if dtypes.issubdtype(dtype, np.integer) else _fractions)(a, b, shape, dtype)


def _fractions(a: Any, b: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """a + u (b - a) for u in [0, 1), below b where rounding would reach it."""
    info = dtypes.finfo(dtype)
    word = np.dtype(f"uint{info.bits}")
    kept = lax.shift_right_logical(_drawn(shape, word), np.asarray(info.bits - info.nmant, word))
    one = np.asarray(1.0).astype(dtype)
    unit = lax.sub(lax.bitcast_convert_type(lax.bitwise_or(kept, one.view(word)), dtype), one)
    width = lax.sub(b, a)
    # of bounds so far apart that their distance overflows, the halves are drawn
    scale = lax.select(lax.is_finite(width), lax.full_like(a, 1), lax.full_like(a, 0.5))
    low, high = lax.mul(a, scale), lax.mul(b, scale)
    made = lax.div(lax.add(low, lax.mul(unit, lax.sub(high, low))), scale)
    reaches = lax.bitwise_and(lax.ge(made, b), lax.lt(a, b))
    return lax.select(reaches, lax.broadcast(lax.nextafter(b, a), shape), made)


def _whole(a: Any, b: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """a + the high word of bits * (b - a), for bits of twice the width."""
    word = np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)
    bits = _drawn((2, *shape), word)
    first, second = (lax.squeeze(lax.slice_in_dim(bits, n, n + 1), (0,)) for n in range(2))
    start = lax.convert_element_type(a, word)
    width = lax.broadcast(lax.sub(lax.convert_element_type(b, word), start), shape)
    low, carried = lax.mul(first, width), lax.mulhi(second, width)
    carry = lax.convert_element_type(lax.lt(lax.add(low, carried), low), word)
    return lax.convert_element_type(lax.add(lax.add(lax.mulhi(first, width), carry), start), dtype)


def _not_mapped(*_: Any, **params: Any) -> Any:
    raise NotImplementedError(
        "Batching rule for 'rng_uniform' not implemented: its bounds are the same for all elements. Draw from 0 to 1 "
        "and scale, or use weft.random.uniform with a key for each"
    )


def _type_rng_uniform(a: Any, b: Any, *, shape: tuple[int, ...]) -> Any:
    if a.dtype != b.dtype:
        raise ValueError(f"Arguments to rng_uniform must have identical dtypes, got {a.dtype} and {b.dtype}.")
    if a.shape or b.shape:
        raise ValueError(f"Arguments to rng_uniform must be scalars; got shapes {a.shape} and {b.shape}.")
    if not (dtypes.issubdtype(a.dtype, np.integer) or dtypes.issubdtype(a.dtype, np.floating)):
        raise TypeError(f"[rng_uniform] numbers are integers or real floats, not {a.dtype}")
    return runtime.ShapedArray(shape, a.dtype, a.weak_type and b.weak_type), {count_effect}


rng_uniform_p = Primitive("rng_uniform", kinds.Resolve(expand=_expand), memoize=False)
rng_uniform_p.def_effectful_abstract_eval(_type_rng_uniform)
rng_uniform_p.jvp = rng_uniform_p.transpose = None
rng_uniform_p.batch = _not_mapped


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Array:
    """Numbers of ``shape`` drawn evenly from ``a`` (included) to ``b`` (excluded), other ones in each evaluation.

    There is no key: each evaluation, also within a compiled program and in each step of a loop, takes the next number
    of a counter that starts at zero in every process (see ``weft.random`` for numbers that depend on a key alone).
    ``a`` and ``b`` are scalars of one integer or real float dtype, which is that of the result; if ``b <= a``, some
    number of the dtype comes out. There is no derivative, and no ``vmap`` over the bounds. ValueError for bounds of two
    dtypes or with dimensions, and for negative sizes; TypeError for other dtypes.

    >>> numbers = weft.lax.rng_uniform(2.0, 3.0, (1000,))
    >>> bool(numbers.min() >= 2) and bool(numbers.max() < 3)
    True
    """
    extents = tuple([int(extent) for extent in shape])
    if any(extent < 0 for extent in extents):
        raise ValueError(f"[rng_uniform] sizes of dimensions are not negative, got {extents}")
    return rng_uniform_p.bind(a, b, shape=extents)

"""The random bits: typed keys, their primitives, and the threefry generator behind them.

A key is an array of an extended dtype, ``key<fry>[]``; in memory it is two 32-bit words, so that an array of keys of
shape ``s`` is ``u32[*s, 2]``. The primitives resolve, before fusion, to ``threefry2x32`` over a counter per element,
and give the bits that JAX gives::

    random_bits[bit_width=32 shape=(3,)] key   ->   u32[3]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.operations import mapped
from weft.random import threefry
from weft.runtime import ShapedArray

WORDS = 2


class PRNGImpl:
    """A generator of random bits, by name; it prints as its tag."""

    def __init__(self, name: str, tag: str) -> None:
        self.name = name
        self.tag = tag

    def __repr__(self) -> str:
        return self.tag


THREEFRY = PRNGImpl("threefry2x32", "fry")


class KeyDType(dtypes.ExtendedDType):
    """The dtype of typed keys."""

    type = dtypes.prng_key
    itemsize = 4 * WORDS
    physical_dtype = np.dtype(np.uint32)
    physical_shape = (WORDS,)

    def __init__(self, impl: PRNGImpl) -> None:
        self.impl = impl
        self.name = f"key<{impl.tag}>"


key_dtype = KeyDType(THREEFRY)


def is_key_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype are typed keys."""
    return isinstance(dtype, KeyDType)


# -- the primitives ---------------------------------------------------------------------------------------------------


def check_seed(seed: Any) -> None:
    """TypeError unless ``seed`` is of an integer type or bool."""
    dtype = core.get_aval(seed).dtype
    if not dtypes.issubdtype(dtype, np.integer) and dtype != np.bool_:
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")


def _seed(seeds: Any, *, impl: PRNGImpl) -> Any:
    """A key from each integer: its high and low 32 bits."""
    check_seed(seeds)
    dtype = np.dtype(seeds.dtype)
    low = lax.convert_element_type(seeds, np.uint32)
    if dtype.itemsize > 4:
        high = lax.convert_element_type(lax.shift_right_logical(seeds, np.asarray(32, dtype)), np.uint32)
    else:
        high = lax.full_like(low, 0)
    return _joined(high, low)


def _identity(words: Any, **params: Any) -> Any:
    return words


def _joined(first: Any, second: Any) -> Any:
    """Two words side by side along a new last axis."""
    axis = len(first.shape)
    return lax.concatenate([lax.expand_dims(first, (axis,)), lax.expand_dims(second, (axis,))], axis)


def _word(words: Any, position: int) -> Any:
    axis = len(words.shape) - 1
    return lax.squeeze(lax.slice_in_dim(words, position, position + 1, axis=axis), (axis,))


def _spread(word: Any, rank: int) -> Any:
    """A word per key, ready to meet ``rank`` more axes (a single key stays rank 0)."""
    shape = word.shape
    if not shape:
        return word
    return lax.broadcast_in_dim(word, (*shape, *(1,) * rank), tuple(range(len(shape))))


def _counters(shape: tuple[int, ...], leading: tuple[int, ...]) -> tuple[Any, Any]:
    """The row-major number of each element of ``shape``, as high and low words."""
    if math.prod(shape) > 2**32:
        raise NotImplementedError("weft.random: more than 2**32 random values from one key are not implemented yet")
    low: Any = None
    for axis, extent in enumerate(shape):
        stride = math.prod(shape[axis + 1 :]) % 2**32
        steps = lax.broadcasted_iota(np.uint32, shape, axis)
        part = lax.mul(steps, np.asarray(stride, np.uint32)) if axis < len(shape) - 1 else steps
        low = part if low is None else lax.add(low, part)
        del extent
    if low is None:
        low = np.asarray(0, np.uint32)
    elif leading:
        low = lax.broadcast_in_dim(low, (*leading, *shape), tuple(range(len(leading), len(leading) + len(shape))))
    return np.asarray(0, np.uint32), low


def _hashed(words: Any, shape: tuple[int, ...], *outputs: str) -> list[Any]:
    """The threefry words of the counters of ``shape`` under each key."""
    leading = words.shape[:-1]
    key = (_spread(_word(words, 0), len(shape)), _spread(_word(words, 1), len(shape)))
    counters = _counters(shape, leading)
    target = (*leading, *shape)
    results = [threefry.threefry2x32_p.bind(*key, *counters, output=output) for output in outputs]
    return [x if x.shape == target else lax.broadcast_in_dim(x, target, ()) for x in results]


def _split(words: Any, *, shape: tuple[int, ...]) -> Any:
    return _joined(*_hashed(words, shape, "first", "second"))


def _fold_in(words: Any, data: Any) -> Any:
    operands = (_word(words, 0), _word(words, 1), lax.full_like(data, 0), data)
    return _joined(*(threefry.threefry2x32_p.bind(*operands, output=output) for output in ("first", "second")))


def _bits(words: Any, *, bit_width: int, shape: tuple[int, ...]) -> Any:
    if bit_width == 64:
        first, second = _hashed(words, shape, "first", "second")
        high = lax.shift_left(lax.convert_element_type(first, np.uint64), np.asarray(32, np.uint64))
        return lax.bitwise_or(high, lax.convert_element_type(second, np.uint64))
    (mixed,) = _hashed(words, shape, "mixed")
    return mixed if bit_width == 32 else lax.convert_element_type(mixed, np.dtype(f"uint{bit_width}"))


def _primitive(name: str, expand: Callable[..., Any], typing: Callable[..., Any]) -> Primitive:
    """A primitive on keys; ``expand`` is given the words of the keys and gives words."""
    primitive = Primitive(name, kinds.Resolve(expand))
    primitive.def_abstract_eval(typing)
    primitive.jvp, primitive.transpose = None, None  # keys and bits have no tangents

    def batch(size: int, values: list[Any], dims: list[Any], **params: Any) -> Any:
        """Every primitive takes arrays of keys: what is mapped is one dimension more, in front."""
        moved = [x if dim is None else mapped.at(x, dim, 0) for x, dim in zip(values, dims, strict=True)]
        return primitive.bind(*moved, **params), 0

    primitive.batch = batch
    return primitive


def _keys(shape: tuple[int, ...]) -> ShapedArray:
    return ShapedArray(tuple(shape), key_dtype)


random_seed_p = _primitive("random_seed", _seed, lambda seeds, *, impl: _keys(seeds.shape))
random_wrap_p = _primitive("random_wrap", _identity, lambda words, *, impl: _keys(words.shape[:-1]))
random_unwrap_p = _primitive(
    "random_unwrap", _identity, lambda keys: ShapedArray((*keys.shape, WORDS), np.dtype(np.uint32))
)
random_split_p = _primitive("random_split", _split, lambda keys, *, shape: _keys((*keys.shape, *shape)))
random_fold_in_p = _primitive("random_fold_in", _fold_in, lambda keys, data: _keys(data.shape or keys.shape))
random_clone_p = _primitive("random_clone", _identity, lambda keys: keys)
random_bits_p = _primitive(
    "random_bits",
    _bits,
    lambda keys, *, bit_width, shape: ShapedArray((*keys.shape, *shape), np.dtype(f"uint{bit_width}")),
)

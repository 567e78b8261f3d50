"""The random bits: typed keys, their primitives, and the threefry generator behind them.

A key is an array of an extended dtype that names its generator, ``key<fry>[]``; in memory it is some 32-bit words, two
for threefry, so that an array of its keys of shape ``s`` is ``u32[*s, 2]``. The primitives resolve, before fusion, to
the functions of the generator on words, and give the bits that JAX gives::

    random_bits[bit_width=32 shape=(3,)] key   ->   threefry2x32 over a counter per element   ->   u32[3]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft.core import kinds
from weft.core.caches.fingerprint import serial
from weft.core.primitive import Primitive
from weft.operations import mapped
from weft.random import threefry
from weft.runtime import ShapedArray

WORDS = 2
Expansion = Callable[..., Any]


class PRNGImpl:
    """A generator of random bits: how its keys look, and how its primitives work on their words.

    ``key_words`` is the number of words of a key, and ``tag`` what is printed. The functions take the words of an array
    of keys, u32[*s, key_words]: ``seed(seeds)``, ``split(words, shape=)``, ``fold_in(words, data)``,
    ``bits(words, bit_width=, shape=)``.
    """

    def __init__(
        self, name: str, tag: str, key_words: int, *, seed: Expansion, split: Expansion, fold_in: Expansion,
        bits: Expansion, key_shape: tuple[int, ...] | None = None
    ) -> None:  # fmt: skip
        self.name, self.tag, self.key_words = name, tag, key_words
        self.seed, self.split, self.fold_in, self.bits = seed, split, fold_in, bits
        self.key_shape = (key_words,) if key_shape is None else key_shape
        self.is_own = key_shape is None  # one of weft's, which are found by name
        self.key_dtype = KeyDType(self)
        if self.is_own:
            IMPLS[name] = self

    def __repr__(self) -> str:
        return self.tag

    def __fingerprint__(self) -> str:
        return self.name if self.is_own else f"{self.name}{serial(self)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return impl_named, (self.name,)


IMPLS: dict[str, PRNGImpl] = {}


def impl_named(name: str) -> PRNGImpl:
    """The generator of a name; KeyError if there is none."""
    return IMPLS[name]


class KeyDType(dtypes.ExtendedDType):
    """The dtype of typed keys; there is one for each generator."""

    type = dtypes.prng_key
    physical_dtype = np.dtype(np.uint32)

    def __init__(self, impl: PRNGImpl) -> None:
        self.impl = impl
        self.name = f"key<{impl.tag}>"
        self.is_own = impl.is_own  # its name says which generator it is of
        self.itemsize = 4 * impl.key_words
        self.physical_shape = impl.key_shape

    def of_words(self, words: Any) -> Any:
        """Typed keys from their words, whose last axes are the key's."""
        return random_wrap_p.bind(words, impl=self.impl)

    def __reduce__(self) -> tuple[Any, ...]:
        return _dtype_of, (self.impl,)


def _dtype_of(impl: PRNGImpl) -> KeyDType:
    return impl.key_dtype


def is_key_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype are typed keys."""
    return isinstance(dtype, KeyDType)


# -- threefry ---------------------------------------------------------------------------------------------------------


def check_seed(seed: Any) -> None:
    """TypeError unless ``seed`` is of an integer type or bool."""
    dtype = core.get_aval(seed).dtype
    if not dtypes.issubdtype(dtype, np.integer) and dtype != np.bool_:
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")


def _seed(seeds: Any) -> Any:
    """A key from each integer: its high and low 32 bits."""
    check_seed(seeds)
    dtype = np.dtype(core.get_aval(seeds).dtype)  # a constant of a program is a Python number
    low = lax.convert_element_type(seeds, np.uint32)
    if dtype.itemsize > 4:
        high = lax.convert_element_type(lax.shift_right_logical(seeds, np.asarray(32, dtype)), np.uint32)
    else:
        high = lax.full_like(low, 0)
    return _joined(high, low)


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


THREEFRY = PRNGImpl("threefry2x32", "fry", WORDS, seed=_seed, split=_split, fold_in=_fold_in, bits=_bits)


# -- the primitives ---------------------------------------------------------------------------------------------------


def _identity(words: Any, **params: Any) -> Any:
    return words


def _of_generator(function: str) -> Expansion:
    """The expansion that calls a function of the generator of the keys."""

    def expand(*args: Any, key_type: KeyDType, **params: Any) -> Any:
        params.pop("impl", None)
        return getattr(key_type.impl, function)(*args, **params)

    return expand


def _primitive(
    name: str,
    expand: Expansion,
    typing: Callable[..., Any],
    of_words: bool = False,
) -> Primitive:
    """A primitive on keys; ``expand`` is given the words of the keys and gives words.

    ``of_words``: the operand of the primitive is words already, with a last dimension of their own.
    """
    primitive = Primitive(name, kinds.Resolve(expand, of_keys=True))
    primitive.def_abstract_eval(typing)
    primitive.jvp, primitive.transpose = None, None  # keys and bits have no tangents

    def batch(size: int, values: list[Any], dims: list[Any], **params: Any) -> Any:
        """Every primitive takes arrays of keys: a mapped dimension is one more of them, where it lies or in front."""
        dim = None if of_words else _shared(values, dims)
        if dim is not None:
            return primitive.bind(*values, **params), dim
        return primitive.bind(*_in_front(values, dims), **params), 0

    primitive.batch = batch
    return primitive


def _shared(values: list[Any], dims: list[Any]) -> int | None:
    """The mapped dimension, if all values that have dimensions have the same ones, and the same one is mapped."""
    found = {(x.shape, dim) for x, dim in zip(values, dims, strict=True) if x.shape}
    return found.pop()[1] if len(found) == 1 else None


def _in_front(values: list[Any], dims: list[Any]) -> list[Any]:
    """The values with their mapped dimension, if they have one, in front.

    Beside each other, two values that both have dimensions get one rank by dimensions of extent 1.
    """
    moved = [x if dim is None else mapped.at(x, dim, 0) for x, dim in zip(values, dims, strict=True)]
    inner = [len(x.shape) - (dim is not None) for x, dim in zip(moved, dims, strict=True)]
    rank = max(inner)
    if rank == 0 or not all(x.shape for x in moved):
        return moved
    return [
        lax.expand_dims(x, tuple(range(0 if dim is None else 1, 1 + rank - own))) if len(x.shape) <= rank else x
        for x, dim, own in zip(moved, dims, inner, strict=True)
    ]


def _keys(shape: tuple[int, ...], impl: PRNGImpl) -> ShapedArray:
    return ShapedArray(tuple(shape), impl.key_dtype)


def _folded(keys: ShapedArray, data: ShapedArray) -> ShapedArray:
    return ShapedArray(np.broadcast_shapes(keys.shape, data.shape), keys.dtype)


random_seed_p = _primitive("random_seed", _of_generator("seed"), lambda seeds, *, impl: _keys(seeds.shape, impl))
random_wrap_p = _primitive(
    "random_wrap",
    _identity,
    lambda words, *, impl: _keys(words.shape[: len(words.shape) - len(impl.key_shape)], impl),
    of_words=True,
)
random_unwrap_p = _primitive(
    "random_unwrap",
    _identity,
    lambda keys: ShapedArray((*keys.shape, *keys.dtype.physical_shape), keys.dtype.physical_dtype),
)


random_split_p = _primitive(
    "random_split",
    _of_generator("split"),
    lambda keys, *, shape: ShapedArray((*keys.shape, *shape), keys.dtype),
)
random_fold_in_p = _primitive("random_fold_in", _of_generator("fold_in"), _folded)
random_clone_p = _primitive("random_clone", _identity, lambda keys: keys)

random_bits_p = _primitive(
    "random_bits",
    _of_generator("bits"),
    lambda keys, *, bit_width, shape: ShapedArray((*keys.shape, *shape), np.dtype(f"uint{bit_width}")),
)

"""Generators of random bits that a user defines: functions of one key become a generator for arrays of keys.

define_prng_impl(key_shape=(3,), seed=..., split=..., random_bits=..., fold_in=..., name="mine", tag="m")
random.key(0, impl=that)   ->   Array((), dtype=key<m>), one key of words u32[3]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft.batching.vmap import vmap
from weft.random import prng

_defined: dict[tuple[Any, ...], prng.PRNGImpl] = {}


class PRNGSpec:
    """What ``random.key(seed, impl=...)`` and the other functions of keys take as a user's generator."""

    def __init__(self, impl: prng.PRNGImpl) -> None:
        self.impl = impl

    def __repr__(self) -> str:
        return f"PRNGSpec({self.impl.name!r})"

    def __str__(self) -> str:
        return self.impl.tag

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGSpec) and self.impl is other.impl

    def __hash__(self) -> int:
        return hash(self.impl)


class _UserImpl(prng.PRNGImpl):
    """A generator whose functions a user wrote, for one key each; they are mapped over arrays of keys."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _impl, self.definition

    definition: tuple[Any, ...]


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[[Any], Any],
    split: Callable[[Any, tuple[int, ...]], Any],
    random_bits: Callable[[Any, int, tuple[int, ...]], Any],
    fold_in: Callable[[Any, Any], Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> PRNGSpec:
    """A generator made of four functions of one key, which is given as its words, u32[*key_shape].

    ``seed(integer)`` gives a key, ``split(key, shape)`` keys u32[*shape, *key_shape], ``random_bits(key, bit_width,
    shape)`` unsigned integers of that width and shape, and ``fold_in(key, integer)`` another key. They are traced, and
    mapped over arrays of keys by ``vmap``. ``tag`` is what dtypes show, ``key<tag>``. TypeError where a result has
    another shape or dtype. Equal definitions are the same generator.

    >>> import weft.numpy as jnp
    >>> impl = define_prng_impl(
    ...     key_shape=(1,),
    ...     seed=lambda s: jnp.asarray(s, "uint32")[None],
    ...     split=lambda key, shape: key + jnp.arange(np.prod(shape), dtype="uint32").reshape(*shape, 1),
    ...     random_bits=lambda key, width, shape: jnp.full(shape, key[0], f"uint{width}"),
    ...     fold_in=lambda key, data: key ^ data,
    ...     tag="count",
    ... )
    >>> from weft import random
    >>> random.bits(random.split(random.key(5, impl=impl))[1]).item()
    6
    """
    shape = tuple(int(extent) for extent in key_shape)
    return PRNGSpec(_impl(shape, seed, split, random_bits, fold_in, str(name), str(tag)))


def _impl(
    key_shape: tuple[int, ...], seed: Any, split: Any, random_bits: Any, fold_in: Any, name: str, tag: str
) -> prng.PRNGImpl:
    definition = (key_shape, seed, split, random_bits, fold_in, name, tag)
    if definition not in _defined:
        _defined[definition] = _made(*definition)
    return _defined[definition]


def _made(
    key_shape: tuple[int, ...], seed: Any, split: Any, random_bits: Any, fold_in: Any, name: str, tag: str
) -> prng.PRNGImpl:
    rank, words = len(key_shape), np.dtype(np.uint32)

    def checked(what: str, result: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        found = (tuple(getattr(result, "shape", ())), getattr(result, "dtype", type(result)))
        if found != (shape, dtype):
            raise TypeError(
                f"[define_prng_impl] {what} of the generator {name!r} must give {dtype.name}{list(shape)}, got "
                f"{found[1]}{list(found[0])}"
            )
        return result

    def mapped(function: Callable[..., Any], leading: int) -> Callable[..., Any]:
        for _ in range(leading):
            function = vmap(function)
        return function

    def seeds(values: Any) -> Any:
        prng.check_seed(values)
        return mapped(lambda x: checked("seed", seed(x), key_shape, words), len(values.shape))(values)

    def splits(keys: Any, *, shape: tuple[int, ...]) -> Any:
        def one(key: Any) -> Any:
            return checked("split", split(key, shape), (*shape, *key_shape), words)

        return mapped(one, len(keys.shape) - rank)(keys)

    def folds(keys: Any, data: Any) -> Any:
        leading = np.broadcast_shapes(keys.shape[: len(keys.shape) - rank], data.shape)
        data = lax.convert_element_type(data, np.uint32)
        keys = _broadcast(keys, (*leading, *key_shape), rank)

        def one(key: Any, x: Any) -> Any:
            return checked("fold_in", fold_in(key, x), key_shape, words)

        return mapped(one, len(leading))(keys, _broadcast(data, leading, 0))

    def bits(keys: Any, *, bit_width: int, shape: tuple[int, ...]) -> Any:
        dtype = np.dtype(f"uint{bit_width}")

        def one(key: Any) -> Any:
            return checked("random_bits", random_bits(key, bit_width, shape), shape, dtype)

        return mapped(one, len(keys.shape) - rank)(keys)

    made = _UserImpl(
        name, tag, math.prod(key_shape), key_shape=key_shape, seed=seeds, split=splits, fold_in=folds, bits=bits
    )
    made.definition = (key_shape, seed, split, random_bits, fold_in, name, tag)
    return made


def _broadcast(x: Any, shape: tuple[int, ...], trailing: int) -> Any:
    """``x`` with its leading dimensions broadcast, all but the ``trailing`` last ones."""
    if tuple(x.shape) == shape:
        return x
    own = len(x.shape) - trailing
    kept = range(len(shape) - trailing - own, len(shape))
    return lax.broadcast_in_dim(x, shape, tuple(kept))

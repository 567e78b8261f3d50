"""Making and deriving keys: key, split, fold_in, and the raw uint32 form of old programs.

Every function takes typed keys or raw ones, the words of a key of the generator that the option ``default_prng_impl``
names (``u32[2]`` for threefry2x32); a raw key is wrapped at the entry and unwrapped at the exit::

    split(u32[2])  ->  random_wrap[impl=fry], random_split[shape=(2,)], random_unwrap
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import config, core, dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.numpy import axes, promotion
from weft.numpy.array_creation import creation
from weft.random import custom_prng, prng, rbg

BUILT = (prng.THREEFRY, rbg.RBG, rbg.UNSAFE_RBG)
_KNOWN = ("philox2x32", "philox4x32", "threefry2x32", "rbg", "unsafe_rbg", "threefry4x32")


def resolve_impl(impl: Any) -> prng.PRNGImpl:
    """The generator that a name or dtype asks for; that of the option ``default_prng_impl`` for None."""
    if impl is None:
        impl = config.read("default_prng_impl")
    if isinstance(impl, prng.PRNGImpl):
        return impl
    if isinstance(impl, custom_prng.PRNGSpec):
        return impl.impl
    if prng.is_key_dtype(impl):
        return impl.impl
    if isinstance(impl, str) and impl in prng.IMPLS:
        return prng.impl_named(impl)
    if isinstance(impl, str) and impl in _KNOWN:
        built = ", ".join(repr(each.name) for each in BUILT)
        raise NotImplementedError(f"weft.random: the generator {impl!r} is not implemented yet; use one of {built}")
    if isinstance(impl, str):
        listed = ", ".join(f'"{name}"' for name in _KNOWN)
        raise ValueError(f'unrecognized PRNG implementation "{impl}". Did you mean one of: {listed}?')
    raise TypeError(f"unrecognized type {type(impl)} for specifying PRNG implementation.")


def is_key(x: Any) -> bool:
    """Whether ``x`` is an array of typed keys."""
    return isinstance(x, runtime.Array | core.Tracer) and prng.is_key_dtype(x.dtype)


def wrap(key: Any, impl: Any = None) -> Array:
    """A typed key from typed ``key``, or raw ``key`` of a generator; TypeError if it is neither."""
    if is_key(key):
        return key
    generator = resolve_impl(impl)
    _check_words(key, generator)
    return prng.random_wrap_p.bind(key, impl=generator)


def _check_words(key: Any, impl: prng.PRNGImpl) -> None:
    if not all(hasattr(key, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError(
            "JAX encountered invalid PRNG key data: expected key_data to have ndim, shape, and dtype attributes. "
            f"Got {key}"
        )
    rank = len(impl.key_shape)
    if key.ndim < rank:
        raise TypeError(f"JAX encountered invalid PRNG key data: expected key_data.ndim >= {rank}; got ndim={key.ndim}")
    if tuple(key.shape[key.ndim - rank :]) != impl.key_shape:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected key_data.shape to end with {impl.key_shape}; "
            f"got shape={tuple(key.shape)} for impl={impl.name}"
        )
    if key.dtype != np.uint32:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; got dtype={key.dtype}"
        )


def single(name: str, key: Any) -> Array:
    """One typed key; ValueError for an array of them."""
    typed = wrap(key)
    if typed.shape:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {tuple(typed.shape)} != (). "
            "Use jax.vmap for batching."
        )
    return typed


def _seeded(name: str, seed: Any, impl: Any) -> Any:
    generator = resolve_impl(impl)
    if is_key(seed):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key")
    if isinstance(seed, bool | int):
        seed = _word_of(int(seed))
    elif isinstance(seed, np.ndarray | np.generic) and seed.dtype.kind in "iu" and seed.ndim == 0:
        seed = _word_of(int(seed)) if seed.dtype.itemsize == 8 else seed
    elif not isinstance(seed, runtime.Array | core.Tracer):
        seed = creation.asarray(seed)
    shape = promotion.shape_of(seed)
    if shape:
        raise TypeError(
            f"{name} accepts a scalar seed, but was given an array of shape {shape} != (). Use jax.vmap for batching"
        )
    if not isinstance(seed, core.Tracer):  # a traced one is refused when its program is compiled
        prng.check_seed(seed)
    offset = config.read("random_seed_offset")
    if offset:
        seed = lax.add(seed, np.asarray(offset, np.int64).astype(promotion.dtype_of(seed)))
    return prng.random_seed_p.bind(seed, impl=generator)


def _word_of(seed: int) -> Any:
    """A Python seed as the integer type of the session: the low bits of larger ones."""
    if not -(2**63) <= seed < 2**63:
        raise OverflowError("Python int too large to convert to C long")
    dtype = dtypes.canonicalize_dtype(np.int64)
    return np.asarray(seed, np.int64).astype(dtype)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A typed key from an integer seed; equal seeds give equal keys.

    ``impl`` names the generator: threefry2x32, rbg or unsafe_rbg, otherwise that of the option ``default_prng_impl``.
    The bits of the other two are cheaper, but under ``vmap`` all keys draw from the stream of the first.

    >>> key(0).shape
    ()
    """
    return _seeded("key", seed, impl if dtype is None else dtype)


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A raw key from an integer seed (with the option ``enable_custom_prng`` a typed one, as ``key``).

    Raw keys are the words of a key: ``u32[2]`` of threefry2x32, ``u32[4]`` of rbg and unsafe_rbg. Functions take raw
    keys of the generator ``default_prng_impl`` only.

    >>> PRNGKey(5).tolist()
    [0, 5]
    """
    typed = _seeded("PRNGKey", seed, impl)
    return typed if config.read("enable_custom_prng") else prng.random_unwrap_p.bind(typed)


def _like(original: Any, derived: Any) -> Any:
    return derived if is_key(original) else prng.random_unwrap_p.bind(derived)


def split(key: Any, num: Any = 2) -> Array:
    """``num`` new keys (an integer or a shape) from one key, which should not be used again.

    >>> split(key(0), 3).shape
    (3,)
    """
    typed = single("split", key)
    shape = axes.canonical_shape(num)
    return _like(key, prng.random_split_p.bind(typed, shape=shape))


def fold_in(key: Any, data: Any) -> Array:
    """A new key from a key and an integer, which is taken modulo 2**32.

    >>> fold_in(key(0), 7).shape
    ()
    """
    typed = single("fold_in", key)
    if promotion.shape_of(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {promotion.shape_of(data)} != (). "
            "Use jax.vmap for batching."
        )
    if isinstance(data, int) and not 0 <= data < 2**32:
        raise OverflowError(f"Python integer {data} out of bounds for uint32")
    if isinstance(data, int):
        data = np.uint32(data)  # all of them: a Python number would be taken for an int32
    return _like(key, prng.random_fold_in_p.bind(typed, promotion.convert(data, np.dtype(np.uint32))))


def key_data(keys: Any) -> Array:
    """The words of keys, ``u32[..., 2]`` of threefry2x32; raw keys are handed back.

    >>> key_data(key(3)).tolist()
    [0, 3]
    """
    typed = wrap(keys)
    return prng.random_unwrap_p.bind(typed) if is_key(keys) else creation.asarray(keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys from their words.

    >>> wrap_key_data(PRNGKey(5)).shape
    ()
    """
    generator = resolve_impl(impl if dtype is None else dtype)
    if is_key(key_bits_array):
        raise TypeError("wrap_key_data expects raw key data, but was given typed keys")
    return wrap(key_bits_array, generator)


def key_impl(keys: Any) -> Any:
    """The name of the generator of keys, or what ``define_prng_impl`` gave for it.

    >>> key_impl(key(0))
    'threefry2x32'
    """
    impl = wrap(keys).dtype.impl
    return impl.name if impl.name in prng.IMPLS and prng.IMPLS[impl.name] is impl else custom_prng.PRNGSpec(impl)


def key_dtype(impl_spec: Any = None) -> Any:
    """The dtype of typed keys of a generator.

    >>> key_dtype()
    key<fry>
    """
    return resolve_impl(impl_spec).key_dtype


def clone(key: Any) -> Array:
    """The same key again, marked as meant to be used twice.

    >>> clone(key(0)).shape
    ()
    """
    if not is_key(key):
        _check_words(key, resolve_impl(None))
    return prng.random_clone_p.bind(key)

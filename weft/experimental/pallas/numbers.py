"""Random numbers in kernels from a state that cells share: ``prng_seed`` sets it, each draw goes on from there.

The bits are those of threefry; a TPU has a generator of its own, whose bits are others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import random
from weft.core import avals
from weft.experimental.pallas import cells, spaces

_STATE = spaces.memory_ref((3,), np.uint32, spaces.ANY)  # the words of a key, and how often was drawn from it


def _key() -> Any:
    """A key that was not given before."""
    state = cells.shared("numbers", _STATE)
    words, drawn = state[0:2], state[2]
    state[2] = drawn + np.uint32(1)
    return random.fold_in(random.wrap_key_data(words, impl="threefry2x32"), drawn)


def prng_seed(*seeds: Any) -> None:
    """Begin with these integers, mixed together: what is drawn afterwards depends on them alone.

    ValueError outside of a kernel.
    """
    if not seeds:
        raise ValueError("[prng_seed] takes at least one integer")
    key = random.key(0, impl="threefry2x32")
    for seed in seeds:
        if avals.get_aval(seed).shape or avals.get_aval(seed).dtype.kind not in "iu":
            raise TypeError(f"[prng_seed] takes integer scalars, got {avals.get_aval(seed).str_short()}")
        key = random.fold_in(key, lax.convert_element_type(seed, np.uint32))
    state = cells.shared("numbers", _STATE)
    state[0:2] = random.key_data(key)
    state[2] = lax.full((), 0, np.uint32)


def prng_random_bits(shape: Sequence[int]) -> Any:
    """Random bits, i32[shape].

    >>> def kernel(out_ref):
    ...     pallas.tpu.prng_seed(7)
    ...     out_ref[...] = pallas.tpu.prng_random_bits((4,)) & 1
    >>> sum(pallas.pallas_call(kernel, weft.ShapeDtypeStruct((4,), "int32"))().tolist()) in range(5)
    True
    """
    return lax.bitcast_convert_type(random.bits(_key(), tuple(shape), np.uint32), np.int32)


def _stateful(draw: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        return draw(_key(), *args, **kwargs)

    drawn.__name__ = drawn.__qualname__ = f"stateful_{draw.__name__}"
    drawn.__doc__ = f"``weft.random.{draw.__name__}`` without a key: the numbers go on from ``prng_seed``."
    return drawn


stateful_bits, stateful_uniform = _stateful(random.bits), _stateful(random.uniform)
stateful_normal, stateful_bernoulli = _stateful(random.normal), _stateful(random.bernoulli)

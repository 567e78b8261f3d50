"""Random numbers that go on from a state in a kernel: those of keys that JAX makes from the same seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.numpy as jnp
from weft.experimental.pallas import tpu

ROWS = pl.BlockSpec((2, 4), lambda i: (i, 0))
every = pytest.mark.parametrize("interpret", [False, True, tpu.InterpretParams()])


def drawn(kernel: Any, shape: tuple[int, ...], dtype: str, *args: Any, **options: Any) -> np.ndarray:
    return np.asarray(weft.jit(pl.pallas_call(kernel, weft.ShapeDtypeStruct(shape, dtype), **options))(*args))


@pytest.mark.oracle
@every
def test_cells_go_on_from_one_seed(interpret: Any) -> None:
    import jax  # noqa: PLC0415 - only this test needs it

    def kernel(seed: Any, o: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            tpu.prng_seed(seed[...], 4)

        o[...] = tpu.prng_random_bits((2, 4))

    seeds = pl.BlockSpec(memory_space=tpu.SMEM)
    found = drawn(kernel, (6, 4), "int32", np.int32(-3), grid=3, in_specs=[seeds], out_specs=ROWS, interpret=interpret)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), np.uint32(2**32 - 3)), 4)
    wanted = [jax.random.bits(jax.random.fold_in(key, i), (2, 4)).view(np.int32) for i in range(3)]
    np.testing.assert_array_equal(found, np.concatenate(wanted))


@every
def test_distributions(interpret: Any) -> None:
    def kernel(o: Any) -> None:
        tpu.prng_seed(11)
        o[0] = tpu.stateful_uniform((2000,), minval=1.0, maxval=3.0)
        o[1] = tpu.stateful_normal((2000,))
        o[2] = tpu.stateful_bernoulli(0.25, (2000,)).astype("float32")
        o[3] = (tpu.stateful_bits((2000,), "uint8") < 64).astype("float32")

    found = drawn(kernel, (4, 2000), "float32", interpret=interpret)
    assert found[0].min() >= 1 and found[0].max() < 3
    np.testing.assert_allclose(found.mean(1), [2, 0, 0.25, 0.25], atol=0.06)
    np.testing.assert_allclose(found.var(1), [1 / 3, 1, 3 / 16, 3 / 16], atol=0.08)
    assert len({row.tobytes() for row in found}) == 4


def test_every_cell_with_a_seed_of_its_own() -> None:
    def kernel(x: Any, o: Any) -> None:
        tpu.prng_seed(7, pl.program_id(0))
        o[...] = x[...] + tpu.stateful_uniform((2, 4))

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((6, 4), "float32"), grid=3, in_specs=[ROWS], out_specs=ROWS)
    x = np.zeros((2, 6, 4), np.float32)
    first, again = np.asarray(run(x[0])), np.asarray(weft.vmap(run)(x))
    np.testing.assert_array_equal(again, [first, first])
    assert len(set(first.ravel().tolist())) == 24


def test_errors_of_seeds() -> None:
    with pytest.raises(ValueError, match="outside of a kernel of pallas_call"):
        tpu.prng_seed(0)
    with pytest.raises(ValueError, match="takes at least one integer"):
        drawn(lambda o: tpu.prng_seed(), (), "float32")
    with pytest.raises(TypeError, match=r"takes integer scalars, got f32\[2\]"):
        drawn(lambda o: tpu.prng_seed(jnp.ones(2)), (), "float32")

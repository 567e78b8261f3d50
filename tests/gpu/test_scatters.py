"""Scatters on the PTX machine: in order, by atomics, or of targets that are updated once, with the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import launches
from weft import lax
from weft.loops.gpu.grid_sorts import TILE

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
N, TARGETS = 5000, 200  # a single thread would make up to 4096 updates
assert N > TILE  # so that a sort of the updates has moves
INDICES = RNG.integers(-TARGETS - 20, TARGETS + 20, N).astype(np.int32)
FLOATS = np.where(RNG.random(N) < 0.02, np.inf, RNG.standard_normal(N)).astype(np.float32)
FLOATS[::97] = -0.0
START = np.linspace(-1, 1, TARGETS, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_by_atomics(device: Any, dtype: str) -> None:
    with weft.enable_x64(True):
        kind = np.dtype(dtype)
        limits = np.iinfo(kind)
        u = RNG.integers(limits.min, limits.max, N, kind, endpoint=True)
        z = RNG.integers(limits.min, limits.max, TARGETS, kind, endpoint=True)
        plan = launches(
            device,
            lambda z, i, u: (z.at[i].add(u), z.at[i].subtract(u), z.at[i].max(u), z.at[i].min(u)),
            z, INDICES, u,
        )  # fmt: skip
        assert "move" not in plan  # nothing was sorted


WAYS = ["add", "subtract", "set", "multiply", "divide", "max", "min"]


@pytest.mark.parametrize(
    ("dtype", "way"), [(dtype, way) for dtype in ("float32", "bfloat16") for way in WAYS]
    + [("complex64", way) for way in WAYS[:3]],
)  # fmt: skip
def test_in_order(device: Any, dtype: str, way: str) -> None:
    z, u = (jnp.asarray(x).astype(dtype) for x in (START, FLOATS))
    plan = launches(device, lambda z, i, u: getattr(z.at[i], way)(u), np.asarray(z), INDICES, np.asarray(u))
    assert "move" in plan


def test_integers_that_are_set_or_multiplied(device: Any) -> None:
    u = RNG.integers(-9, 9, N).astype(np.int32)
    launches(
        device, lambda z, i, u: (z.at[i].set(u), z.at[i].multiply(u)), np.arange(TARGETS, dtype=np.int32), INDICES, u
    )


@pytest.mark.parametrize("mode", ["clip", "drop"])
def test_what_is_outside(device: Any, mode: str) -> None:
    launches(device, lambda z, i, u: (z.at[i].set(u, mode=mode), z.at[i].add(u, mode=mode)), START, INDICES * 2, FLOATS)


def test_one_target_gets_all_updates_of_a_long_run(device: Any) -> None:
    i = np.where(RNG.random(N) < 0.9, 7, INDICES).astype(np.int32)
    launches(device, lambda z, i, u: (z.at[i].add(u), z.at[i].set(u)), START, i, FLOATS)


def test_several_indices_and_windows(device: Any) -> None:
    i, j = INDICES, INDICES[::-1] // 2
    rows = np.stack([FLOATS, FLOATS[::-1], FLOATS * 3], 1)
    launches(device, lambda z, i, j, u: z.at[i, j].add(u), np.zeros((150, 120), np.float32), i, j, FLOATS)
    launches(device, lambda z, i, u: z.at[i].add(u), np.zeros((TARGETS, 3), np.float32), i, rows)
    launches(device, lambda z, i, u: z.at[:, i].add(u), np.zeros((3, TARGETS), np.float32), i, rows.T)
    launches(device, lambda z, i, u: z.at[i].add(u), START, i.reshape(-1, 4), FLOATS.reshape(-1, 4))
    launches(device, lambda z, i, u: z.at[i].set(1.0), START, i.astype(np.int16), FLOATS)


def test_a_batch_of_scatters(device: Any) -> None:
    z, i, u = np.zeros((4, 150), np.float32), INDICES[: 4 * 1200].reshape(4, -1), FLOATS[: 4 * 1200].reshape(4, -1)
    launches(device, weft.vmap(lambda z, i, u: z.at[i].add(u)), z, i, u)


def test_targets_that_are_updated_once(device: Any) -> None:
    i, z = RNG.permutation(3 * N)[:N], np.zeros(3 * N, np.float32)
    plan = launches(device, lambda z, i, u: z.at[i].add(u, unique_indices=True), z, i, FLOATS)
    plan += launches(device, lambda z, i, u: z.at[i].set(u, unique_indices=True), z, i, FLOATS)
    assert "move" not in plan


def test_sorted_indices(device: Any) -> None:
    i = np.sort(np.abs(INDICES))
    plan = launches(device, lambda z, i, u: z.at[i].add(u, indices_are_sorted=True), START, i, FLOATS)
    assert "move" not in plan


def test_what_follows_from_scatters(device: Any) -> None:
    i = np.abs(INDICES) % TARGETS
    launches(device, lambda i: jnp.bincount(i, length=TARGETS), i)
    launches(device, lambda i, u: jnp.bincount(i, weights=u, length=TARGETS), i, FLOATS)
    launches(device, lambda x: jnp.histogram(x, bins=100, range=(-3, 3)), FLOATS)
    launches(device, lambda i, u: (weft.ops.segment_sum(u, i, TARGETS), weft.ops.segment_max(u, i, TARGETS)), i, FLOATS)
    launches(device, lambda i: weft.ops.segment_sum(i, i, TARGETS), i)
    launches(device, lambda i: jnp.unique(i, size=150, return_inverse=True, return_counts=True), i)
    launches(device, lambda x, i: weft.grad(lambda x: (x[i] ** 2).sum())(x), START, i)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 4097])
def test_lengths(device: Any, n: int) -> None:
    launches(device, lambda z, i, u: z.at[i].add(u), START, INDICES[:n], FLOATS[:n])


def test_a_new_size_compiles_nothing(device: Any) -> None:
    with weft.default_device(device):
        built = []
        for n in (4600, 4900, 5000):
            found = weft.jit(lambda z, i, u: z.at[i].add(u))(START, INDICES[:n], FLOATS[:n])
            built.append(weft.compiler.pipeline.stats()["kernels_built"])
            expected = START.copy()
            i = np.where(INDICES[:n] < 0, INDICES[:n] + TARGETS, INDICES[:n])
            kept = (i >= 0) & (i < TARGETS)
            with np.errstate(invalid="ignore"):
                np.add.at(expected, i[kept], FLOATS[:n][kept])
            np.testing.assert_array_equal(np.asarray(found), expected)
    assert built[0] == built[1] == built[2]


def test_a_loop_of_scatters(device: Any) -> None:
    def step(k: Any, z: Any) -> Any:
        return z.at[(jnp.arange(300) * 7 + k) % 90].add(z[:90].repeat(4)[:300])

    launches(device, lambda z: lax.fori_loop(0, 3, step, z), START[:100])


def test_windows_of_one_element(device: Any) -> None:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    u = FLOATS[:, None]
    launches(device, lambda z, i, u: lax.scatter_add(z, i, u, numbers), START, INDICES[:, None], u)

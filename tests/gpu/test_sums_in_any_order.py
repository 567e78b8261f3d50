"""Floats that are added at indices in any order (``weft.fast``) on the PTX machine: within bounds, and in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, prediction
from tests.gpu.ptx_machine import Buffer, Module
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.compiler.passes import indexing
from weft.compiler.plans.steps import Launched

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
N, TARGETS = 5000, 150  # so that a sort of the updates would have moves
INDICES = RNG.integers(-TARGETS - 20, TARGETS + 20, N).astype(np.int32)
KEPT = (INDICES >= -TARGETS) & (INDICES < TARGETS)
F32 = np.float32


def plan_of(function: Callable[..., Any], *args: Any) -> str:
    return weft.jit(function).lower(*args).compile().as_text("plan")


def sums(z: np.ndarray, i: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What updates add up to, and the most that rounding in any order may change of it, but for the unit."""
    exact, sizes, count = z.astype(np.complex128), np.abs(z).astype(np.float64), np.zeros(z.shape)
    for total, values in ((exact, u), (sizes, np.abs(u)), (count, np.ones(u.shape))):
        np.add.at(total, i, values.astype(total.dtype))
    return exact, sizes * count


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"])
def test_sums_are_within_bounds_and_nothing_is_sorted(device: Any, dtype: str) -> None:
    with weft.enable_x64(True), weft.default_device(device), weft.fast():
        u, z = (jnp.asarray(RNG.standard_normal(n) + 1j * RNG.standard_normal(n)) for n in (N, TARGETS))
        u, z = (jnp.asarray(x if "complex" in dtype else x.real).astype(dtype) for x in (u, z))
        added = weft.jit(lambda z, i, u: z.at[i].add(u))
        found, less = np.asarray(added(z, INDICES, u)), z.at[INDICES].subtract(u)
        plan = plan_of(lambda z, i, u: (z.at[i].add(u), z.at[i].subtract(u)), z, INDICES, u)
    assert "move" not in plan and "host" not in plan
    values = np.asarray(u).astype(np.complex128)[KEPT]
    unit = float(jnp.finfo(dtype).eps)
    for result, sign in ((found, 1), (less, -1)):
        exact, most = sums(np.asarray(z).astype(np.complex128), INDICES[KEPT], sign * values)
        assert np.all(np.abs(np.asarray(result).astype(np.complex128) - exact) <= unit * most)


def test_few_targets_get_their_updates_in_parts(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "LEAST", 1 << 10)
    u, z, i = RNG.standard_normal((N, 3)).astype(F32), RNG.standard_normal((5, 3)).astype(F32), INDICES % 5
    with weft.default_device(device), weft.fast():
        found = np.asarray(weft.jit(lambda z, i, u: z.at[i].add(u))(z, i, u))
        plan = plan_of(lambda z, i, u: z.at[i].add(u), z, i, u)
    exact, most = sums(z, i, u)
    assert "reduce_sum" in plan and np.all(np.abs(found - exact) <= 2.0**-23 * most)


def test_signed_zeros_and_what_is_not_finite(device: Any) -> None:
    z, i = np.array([-0.0, 0, 1, 1, 1], F32), np.array([0, 1, 2, 3, 3, 4], np.int32)
    u = np.array([-0.0, -0.0, np.inf, np.inf, -np.inf, np.nan], F32)
    with weft.default_device(device), weft.fast():
        found = np.asarray(weft.jit(lambda z, i, u: z.at[i].add(u))(z, i, u))
    assert found[2] == np.inf and np.isnan(found[3:]).all()
    assert np.signbit(found[:2]).tolist() == [True, False]


def test_derivatives_and_segments(device: Any) -> None:
    i, u, x = np.abs(INDICES) % TARGETS, RNG.standard_normal(N).astype(F32), np.linspace(1, 2, TARGETS, dtype=F32)
    with weft.default_device(device), weft.fast():
        assert "move" not in plan_of(lambda u, i: weft.ops.segment_sum(u, i, TARGETS), u, i)
        slope = weft.grad(lambda x, i, u: (x[i] * u).sum())
        assert "move" not in plan_of(slope, x, i, u)
        found = np.asarray(weft.jit(slope)(x, i, u))
    exact, most = sums(np.zeros(TARGETS), i, u)
    assert np.all(np.abs(found - exact) <= 2.0**-23 * most)


def test_what_keeps_its_order(device: Any) -> None:
    u, z = RNG.standard_normal(N).astype(F32), np.ones(TARGETS, F32)
    with weft.default_device(device):
        for way in ("set", "multiply", "max", "min"):
            update: Any = lambda z, i, u, way=way: getattr(z.at[i], way)(u)
            wanted = weft.jit(update)(z, INDICES, u)
            with weft.fast():
                assert "move" in plan_of(update, z, INDICES, u)
                assert np.array_equal(weft.jit(update)(z, INDICES, u), wanted)


def test_it_is_for_what_is_traced_within_it(device: Any) -> None:
    u, z = RNG.standard_normal(N).astype(F32), np.ones(TARGETS, F32)

    def both(z: Any, i: Any, u: Any) -> Any:
        with weft.fast():
            first = z.at[i].add(u)
        return first, z.at[i].add(u * 2)

    assert str(weft.make_jaxpr(both)(z, INDICES, u)).count("any_order=True") == 1
    in_order = np.zeros(TARGETS, F32) + 1
    np.add.at(in_order, np.where(INDICES < 0, INDICES + TARGETS, INDICES)[KEPT], u[KEPT] * 2)
    with weft.default_device(device):
        _, second = weft.jit(both)(z, INDICES, u)
    assert np.array_equal(second, in_order)


def test_the_cpu_adds_in_order_all_the_same() -> None:
    u, z = RNG.standard_normal(N).astype(F32), np.ones(TARGETS, F32)
    add = weft.jit(lambda z, i, u: z.at[i].add(u))
    wanted = add(z, INDICES, u)
    with weft.fast():
        assert np.array_equal(add(z, INDICES, u), wanted) and np.array_equal(jnp.asarray(z).at[INDICES].add(u), wanted)


def test_sixteen_million_updates_take_220_microseconds(device: Any) -> None:
    count, bins, part = 1 << 24, 1 << 20, 16  # blocks that are run
    shapes = [weft.ShapeDtypeStruct(*x) for x in (((bins,), F32), ((count,), np.int32), ((count,), F32))]
    with weft.default_device(device), weft.fast():
        add = weft.jit(lambda z, i, u: z.at[i].add(u, wrap_negative_indices=False), donate_argnums=0)
        plan = add.lower(*shapes).compile()._program().plan
    (launch,) = [entry for entry in plan.instructions if isinstance(entry, Launched)]
    ((name, wide, grid, _, threads, _),) = launch.grids
    words = np.frombuffer(launch.params, np.int64).tolist()
    out = Buffer.of(np.zeros(bins, F32))
    read = Buffer.of(RNG.integers(0, bins, part * 1024).astype(np.int32)), Buffer.of(np.ones(part * 1024, F32))
    assert [operand.dtype for operand in launch.nest.operands] == [np.int32, F32, F32]
    module = Module(llvm.emit_assembly(kernel.text_of(launch.nest, device.grid), device.grid))
    arguments = [*read, out, 0, *words, 0, 0]
    found = prediction.measured_part(module, wide or name, grid, threads, arguments, 40, part, (out,))
    assert found.atomics > 200 and found.time < 220, found

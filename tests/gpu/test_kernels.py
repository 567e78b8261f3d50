"""Kernels of GPUs on the PTX machine: every operation and every form gives the bits of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from tests.aarch64 import samples_of_operations
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import check
from tests.gpu.forms import FORMS, RNG
from weft._base import target
from weft.compiler import pass_manager, pipeline
from weft.compiler.fusion import fuse
from weft.loops.gpu import grid

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
ELEMENTWISE = {sample[0]: sample for sample in samples_of_operations.elementwise()}
OTHERS = {sample[0]: sample for sample in samples_of_operations.others()}


@pytest.mark.parametrize("label", ELEMENTWISE)
def test_an_elementwise_operation(device: Any, label: str) -> None:
    _, function, args, x64 = ELEMENTWISE[label]
    with weft.enable_x64(x64):
        check(device, function, args)


@pytest.mark.parametrize("label", OTHERS)
def test_another_operation(device: Any, label: str) -> None:
    _, function, args, x64 = OTHERS[label]
    with weft.enable_x64(x64):
        check(device, function, args)


@pytest.mark.parametrize("name", FORMS)
def test_a_form(device: Any, name: str) -> None:
    way, function, args = FORMS[name]
    assert way in check(device, function, args).as_text("plan")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1,), (1, 1), (1023,), (1025,), (33, 8193)])
def test_sizes_at_borders(device: Any, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    check(device, lambda x: (x + 1, x.sum(-1), jnp.cumsum(x, -1), x.sum()), (x,))


def test_running_sums_of_more_than_a_group_of_blocks(device: Any) -> None:
    x = RNG.standard_normal(2_100_000 + 8_192).astype(np.float32)
    check(device, lambda x: jnp.cumsum(x), (x,))
    with weft.enable_x64(True):
        check(device, lambda x: jnp.cumsum(x, 1), (RNG.standard_normal((3, 9000)) + 1j,))


def test_rows_of_more_sums_than_a_blocks_memory_holds(device: Any) -> None:
    def sums(x: Any) -> Any:
        return x.sum(1) * (x * x).sum(1) + jnp.sin(x).sum(1) * (x + 1).sum(1) + jnp.cos(x).sum(1)

    with weft.enable_x64(True):
        assert "warps" in check(device, sums, (RNG.standard_normal((3, 8000)),)).as_text("plan")


@pytest.mark.parametrize("function", [lambda x: jnp.log(x) * 2, lambda x: jnp.log(x).sum(1)])
def test_a_guard_that_many_threads_tell(device: Any, function: Callable[..., Any]) -> None:
    with (
        weft.default_device(device),
        pytest.raises(weft.errors.NanCheckError, match=r"log made nan at element \(0, 0"),
    ):
        weft.jit(function, checks=("nan",))(-jnp.ones((300, 40))).block_until_ready()


def test_points_are_counted_in_32_bits() -> None:
    def fits(function: Callable[..., Any], *shape: int) -> bool:
        stages = pass_manager.Stages("program")
        simplified = stages.passes(weft.make_jaxpr(function)(weft.ShapeDtypeStruct(shape, jnp.float32)))
        (body,) = pipeline.lower_all(fuse.fuse(simplified.jaxpr, stages.target))
        assert body is not None
        return grid.lowered(body) is not None

    assert fits(lambda x: x.sum(1), 1 << 20, 1 << 14) and fits(lambda x: x.sum(), 1 << 40)
    assert not fits(lambda x: x + 1, 1 << 31) and not fits(lambda x: x.sum(0), 1 << 16, 1 << 23)


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_quotients(extent: int, n: int) -> None:
    factor, shift = grid.quotient(extent)
    assert factor < 2**32 and n * factor < 2**63
    assert n * factor >> shift == n // extent


def test_targets() -> None:
    found = [target.gpu(capability) for capability in (70, 80, 86, 89, 90, 100, 120)]
    assert [one and one.name for one in found] == [None, "sm_80", "sm_80", "sm_80", "sm_90", "sm_90", "sm_90"]
    assert all(one.is_gpu for one in found if one) and not target.host().is_gpu

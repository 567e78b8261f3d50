"""Kernels of GPUs on the PTX machine: every operation and every form gives the bits of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
import weft.nn as nn
import weft.numpy as jnp
from tests.aarch64 import samples_of_operations
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import check
from weft import lax
from weft._base import target
from weft.compiler import fuse, pass_manager, pipeline
from weft.loops import grid

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((37, 1000)).astype(np.float32)
LONG = RNG.standard_normal((5, 3000)).astype(np.float32)
V = RNG.standard_normal(20_003).astype(np.float32)
A, B = RNG.standard_normal((70, 600)).astype(np.float32), RNG.standard_normal((600, 130)).astype(np.float32)
SMALL = (X[:, :70] * 20).astype(np.int8)


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


FORMS: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
    "a map": ("wide", lambda x: jnp.tanh(x) + jnp.sin(x * 1e6), (X,)),
    "a map that is not aligned": ("wide", lambda x: jnp.exp(x[1:]) * 2, (V,)),
    "a map of strides": ("points", lambda x: x[:, ::-1] * x[:, :1] + 1, (X,)),
    "a map of bytes": ("wide", lambda x: x + 3, (np.arange(1001, dtype=np.uint8),)),
    "half precision": ("wide", lambda x: jnp.tanh(x) * 2, (X.astype(np.float16),)),
    "rows of ten": ("short", lambda x: nn.softmax(x, -1), (X[:, :10],)),
    "rows of three": ("short", lambda x: (x.sum(1), x.argmax(1), x.min(1)), (X[:, :3],)),
    "rows of sixteen": ("short", lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (X[:, :16],)),
    "rows of one": ("short", lambda x: x.sum(1) + 1, (X[:, :1],)),
    "short rows": ("warps", lambda x: nn.softmax(x, -1), (X,)),
    "rows": ("held", lambda x: nn.softmax(x, -1), (LONG,)),
    "rows that are not aligned": ("held", lambda x: nn.softmax(x[:, 1:], -1), (LONG,)),
    "rows of two blocks of the tree": ("held", lambda x: (nn.softmax(x), x.sum(1)), (V[:18_000].reshape(2, -1),)),
    "rows from the end": ("held", lambda x: nn.softmax(x[:, ::-1], -1), (LONG,)),
    "rows that do not fit registers": ("blocks", lambda x: (nn.softmax(x), x.argmax(1)), (V.reshape(1, -1),)),
    "rows of bfloat16": ("held", lambda x: nn.softmax(x, -1), (jnp.asarray(LONG, jnp.bfloat16),)),
    "several reductions": ("held", lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (LONG,)),
    "positions": ("warps", lambda x: x.argmax(1), (X,)),
    "positions in long rows": ("held", lambda x: (x.argmin(1), x.max(1)), (LONG,)),
    "everything": ("parts", lambda x: (x**2 + jnp.sin(x)).sum() + 1, (V,)),
    "everything's position": ("parts", lambda x: x.argmax(), (V,)),
    "few long rows": ("parts", lambda x: x.sum(1) * 2, (V.reshape(1, -1).repeat(3, 0),)),
    "columns": ("points", lambda x: (x - x.mean(0)) / x.std(0), (X,)),
    "column sums": ("column_parts", lambda x: x.sum(0) * 2 + 1, (X.T,)),
    "one column": ("column_parts", lambda x: (x.sum(0), x.argmax(0)), (V.reshape(-1, 1),)),
    "axes around": ("warps", lambda x: x.sum((0, 2)), (X.reshape(37, 10, 100),)),
    "a broadcast within": ("warps", lambda x, y: (x * y[:, None]).sum((1, 2)), (X.reshape(37, 10, 100), X[:, :100])),
    "a running sum": ("clear", lambda x: jnp.cumsum(x * 2) + 1, (V,)),
    "running sums of rows": ("scans", lambda x: jnp.cumsum(x, 1), (X,)),
    "from the end": ("clear", lambda x: lax.cumlogsumexp(x, 0, reverse=True), (V[:18000].reshape(9000, 2),)),
    "running sums of columns": ("scans", lambda x: jnp.cumsum(x, 0), (X.T,)),
    "a transposition": ("tiles", lambda x: x.T + 1, (X,)),
    "axes in another order": ("tiles", lambda x: jnp.transpose(x, (2, 0, 1)) * 2, (X.reshape(37, 10, 100),)),
    "rows by index": ("wide", lambda x, i: x[i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "rows by index that are not aligned": ("wide", lambda x, i: x[:, 1:129][i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "columns by index": ("points", lambda x, i: x[:, i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "neighbours": ("points", lambda x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1], (X,)),
    "an array that is put together": ("points", lambda x: jnp.pad(x, ((1, 2), (3, 4))), (X,)),
    "a product": ("tiles", lambda a, b: a @ b, (A, B)),
    "a product of transposed matrices": ("tiles", lambda a, b: a.T @ b.T, (B, A)),
    "products": ("tiles", lambda a, b: a @ b, (A.reshape(7, 10, 600), B.reshape(1, 600, 130).repeat(7, 0))),
    "a product of integers": ("tiles", lambda a: lax.dot(a, a.T, preferred_element_type=np.int32), (SMALL,)),
    "a product of bfloat16": (
        "tiles", lambda a: jnp.matmul(a, a.T, precision="highest"), (jnp.asarray(A, jnp.bfloat16),),
    ),
    "several summed axes": (
        "tiles", lambda a, b: jnp.einsum("abc,bcd->ad", a, b), (A.reshape(70, 20, 30), B.reshape(20, 30, 130)),
    ),
    "a matrix by a vector": ("vector", lambda a, b: a @ b, (X, V[:1000])),
    "a loop": ("loop", lambda x: lax.fori_loop(0, 1000, lambda i, x: jnp.sin(x) * 0.9 + i * 1e-3, x), (np.float32(1),)),
    "a loop for each lane": (
        "loop", lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x)), (X[:, :7],),
    ),
    "a loop for each of many lanes": (
        "loop", weft.vmap(lambda a: lax.fori_loop(0, 9, lambda i, x: 0.5 * (x + a / x), a)), (np.abs(V[:6000]) + 1,),
    ),
    "a scan with rows of lanes": (
        "loop", lambda x: lax.scan(lambda c, a: (jnp.sin(c) + a, (c, a.shape[0] * 2)), x[0], x[:9, :40]), (X[:, :40],),
    ),
    "a loop of kernels with a row of many threads": (
        "launch loop", lambda x: lax.fori_loop(0, 3, lambda i, x: nn.softmax(x) * x.sum() + i, x), (V[:9000],),
    ),
    "random numbers": ("wide", lambda k: weft.random.normal(k, (1000,)), (weft.random.PRNGKey(3),)),
}  # fmt: skip


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

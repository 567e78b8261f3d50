"""Grids with an axis in order are one launch, a block for each cell of the other axes, with the CPU's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, prediction
from tests.gpu.beside_the_cpu import check, launches
from tests.gpu.ptx_machine import Buffer, Module
from weft import lax
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.compiler.gpu import resident_cells
from weft.compiler.plans.steps import Launched
from weft.experimental import pallas as pl
from weft.experimental.pallas import tpu

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
F32 = np.float32


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32)


def product(n: int, side: int, terms: int, out: Any = F32) -> Callable[..., Any]:
    """n by n by n, in blocks that may hang over the edge; the sum over blocks of terms is kept in the output."""

    def body(x: Any, y: Any, out: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += jnp.dot(x[...], y[...], preferred_element_type=out.dtype)

    specs = [pl.BlockSpec((side, terms), lambda i, j, k: (i, k)), pl.BlockSpec((terms, side), lambda i, j, k: (k, j))]
    return pl.pallas_call(
        body, grid=(-(-n // side), -(-n // side), -(-n // terms)), in_specs=specs,
        out_specs=pl.BlockSpec((side, side), lambda i, j, k: (i, j)), out_shape=weft.ShapeDtypeStruct((n, n), out),
    )  # fmt: skip


def attended(i: Any, j: Any, q: Any, k: Any, v: Any, state: Any) -> Any:
    """A block of keys more in causal attention: (greatest score, sum, result) of each row."""
    top, total, result = state
    rows, columns = (lax.broadcasted_iota(np.int32, (len(q), len(k)), d) for d in (0, 1))
    scores = jnp.where(i * len(q) + rows >= j * len(k) + columns, q @ k.T * 0.25, -jnp.inf)
    new = jnp.maximum(top, scores.max(1))
    p, shrink = jnp.exp(scores - new[:, None]), jnp.exp(top - new)
    return new, total * shrink + p.sum(1), result * shrink[:, None] + p @ v


def first_state(rows: int, columns: int) -> Any:
    return jnp.full((rows,), -jnp.inf, F32), jnp.zeros((rows,), F32), jnp.zeros((rows, columns), F32)


def attention(heads: int, n: int, d: int, side: int) -> Callable[..., Any]:
    """The axis over blocks of keys is of the grid: blocks above the diagonal are left out."""

    def body(q: Any, k: Any, v: Any, out: Any, *state: Any) -> None:
        i, j = pl.program_id(1), pl.program_id(2)

        @pl.when(j == 0)
        def _() -> None:
            for ref, x in zip(state, first_state(side, d), strict=True):
                ref[...] = x

        @pl.when(j <= i)
        def _() -> None:
            made = attended(i, j, q[...], k[...], v[...], [ref[...] for ref in state])
            for ref, x in zip(state, made, strict=True):
                ref[...] = x

        @pl.when(j == n // side - 1)
        def _() -> None:
            out[...] = state[2][...] / state[1][...][:, None]

    own = pl.BlockSpec((None, side, d), lambda h, i, j: (h, i, 0))
    others = pl.BlockSpec((None, side, d), lambda h, i, j: (h, j, 0))
    return pl.pallas_call(
        body, grid=(heads, n // side, n // side), in_specs=[own, others, others], out_specs=own,
        out_shape=weft.ShapeDtypeStruct((heads, n, d), F32),
        scratch_shapes=[tpu.VMEM((side,), F32), tpu.VMEM((side,), F32), tpu.VMEM((side, d), F32)],
    )  # fmt: skip


def attention_by_a_loop(heads: int, n: int, d: int, side: int) -> Callable[..., Any]:
    """The loop over blocks of keys is in the kernel, as long as the diagonal says."""

    def body(q: Any, k: Any, v: Any, out: Any) -> None:
        i = pl.program_id(1)

        def step(j: Any, state: Any) -> Any:
            return attended(i, j, q[...], k[pl.ds(j * side, side)], v[pl.ds(j * side, side)], state)

        _, total, result = lax.fori_loop(0, i + 1, step, first_state(side, d))
        out[...] = result / total[:, None]

    own, whole = (
        pl.BlockSpec((None, side, d), lambda h, i: (h, i, 0)),
        pl.BlockSpec((None, n, d), lambda h, i: (h, 0, 0)),
    )
    return pl.pallas_call(
        body, grid=(heads, n // side), in_specs=[own, whole, whole], out_specs=own,
        out_shape=weft.ShapeDtypeStruct((heads, n, d), F32),
    )  # fmt: skip


def running(x: Any) -> Any:
    """Blocks along the axis in order are written one after the other, each from what the one before left."""

    def body(x: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += x[...].sum(1)
        out[...] = jnp.cumsum(x[...], 1) * total[...][:, None]

    spec = pl.BlockSpec((16, 40), lambda i, j: (i, j))
    return pl.pallas_call(
        body, grid=(3, 5), in_specs=[spec], out_specs=spec, out_shape=weft.ShapeDtypeStruct((48, 200), F32),
        scratch_shapes=[tpu.VMEM((16,), F32)],
    )(x)  # fmt: skip


def carried(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A block that each of four cells in order changes."""

    def body(x: Any, out: Any, kept: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            kept[...] = jnp.zeros_like(kept)

        kept[...] = step(kept[...], x[...])
        out[...] = kept[...] * 2

    spec = pl.BlockSpec((8, 64), lambda i, j: (i, j))
    return pl.pallas_call(
        body, grid=(3, 4), in_specs=[spec], out_specs=spec, out_shape=weft.ShapeDtypeStruct((24, 256), F32),
        scratch_shapes=[tpu.VMEM((8, 64), F32)],
    )  # fmt: skip


def waning(x: Any) -> Any:
    """All cells in order read one block: each element is a loop of its own."""

    def body(x: Any, out: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] = out[...] * 0.5 + x[...]

    spec = pl.BlockSpec((8, 64), lambda i, j: (i, 0))
    return pl.pallas_call(
        body, grid=(3, 4), in_specs=[spec], out_specs=spec, out_shape=weft.ShapeDtypeStruct((24, 64), F32)
    )(x)  # fmt: skip


def indices(x: Any) -> Any:
    return jnp.abs(x[0] * 10).astype(np.int32) % 64


BYTES = RNG.integers(-99, 99, (2, 80, 80)).astype(np.int8)
KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "product": (product(192, 64, 16), (f32(192, 192), f32(192, 192)), 9),
    "attention": (attention(2, 128, 16, 32), tuple(f32(2, 128, 16) for _ in range(3)), 8),
    "attention by a loop": (attention_by_a_loop(2, 128, 16, 32), tuple(f32(2, 128, 16) for _ in range(3)), 8),
    "blocks of each cell in order": (running, (f32(48, 200),), 3),
    "a product with edges": (product(80, 32, 24), (f32(80, 80), f32(80, 80)), 9),
    "a product of bytes": (product(80, 32, 24, np.int32), tuple(BYTES), 9),
    "a product of bfloat16": (product(64, 32, 16), tuple(jnp.asarray(BYTES[:, :64, :64] % 9, jnp.bfloat16)), 4),
    "products": (weft.vmap(product(64, 32, 16)), (f32(2, 64, 64), f32(2, 64, 64)), 8),
    "elements by index": (carried(lambda kept, x: kept + x[:, indices(x)]), (f32(24, 256),), 3),
    "updates by index": (carried(lambda kept, x: kept.at[:, indices(x)].add(x)), (f32(24, 256),), 3),
    "a loop for each of many elements": (waning, (f32(24, 64),), 3),
    "positions": (carried(lambda kept, x: kept + jnp.argmax(x, 1)[:, None].astype(F32)), (f32(24, 256),), 3),
    "a transposed factor": (carried(lambda kept, x: (x.T @ (kept + x))[:8] * 0.01 + x), (f32(24, 256),), 3),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_grid_is_one_launch(device: Any, name: str) -> None:
    function, args, blocks = KERNELS[name]
    plan = launches(device, function, *args)
    assert f"launch loop of {blocks} blocks" in plan and "\n  scan" not in plan and "\n  while" not in plan


def test_too_few_cells_of_too_much_work_stay_side_by_side(device: Any) -> None:
    side = 176
    plan = check(device, product(2 * side, side, 32), (f32(2 * side, 2 * side), f32(2 * side, 2 * side)))
    assert "\n  scan" in plan.as_text("plan")


def test_what_the_memory_of_a_block_has_no_room_for_is_in_the_gpus(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_cells, "GPU_SHARED", 12 << 10)
    function, args, blocks = attention(2, 96, 16, 24), tuple(f32(2, 96, 16) for _ in range(3)), 8
    assert f"launch loop of {blocks} blocks" in launches(device, function, *args)
    launch, _ = launch_of(device, function, *args)
    assert launch.scratch_bytes and launch.grids[0][-1] <= 12 << 10


def launch_of(device: Any, function: Callable[..., Any], *args: Any) -> tuple[Launched, Any]:
    with weft.default_device(device):
        program = weft.jit(function).lower(*args).compile()._program()
    found = [e for e in program.plan.instructions if isinstance(e, Launched) and e.grids[0][0] == "loop"]
    assert len(found) == 1
    return found[0], program


def test_a_product_of_blocks_takes_a_quarter_of_its_loop_of_launches(device: Any) -> None:
    """1024 by 1024 by 1024 in blocks of 128 and 32: as 124 launches it was predicted 630 us."""
    shape = weft.ShapeDtypeStruct((1024, 1024), F32)
    launch, _ = launch_of(device, product(1024, 128, 32), shape, shape)
    ((name, _, blocks, _, threads, shared),) = launch.grids
    module = Module(llvm.emit_assembly(kernel.text_of(launch.nest, device.grid), device.grid))
    operands = [Buffer.of(np.zeros(1 << 22, np.uint8)) for _ in launch.operands]
    words = np.frombuffer(launch.params, np.int64).tolist()
    counts = module.launch(name, 1, threads, *operands, 0, *words, 0, 0, shared=shared, counted=2, checks=0)
    found = prediction.predict(counts, blocks, threads, 200, shared, 0.0, False)
    assert found.time < 630 / 4, found

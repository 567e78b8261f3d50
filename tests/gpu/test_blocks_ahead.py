"""Blocks that the next step of a grid's axis in order reads come to a block's memory meanwhile; the CPU's bits stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, prediction, ptxas
from tests.gpu.beside_the_cpu import check, launches
from tests.gpu.ptx_machine import Buffer, Module
from tests.gpu.test_cells_in_blocks import launch_of
from weft.codegen import llvm
from weft.codegen.gpu import blocks_ahead, kernel
from weft.compiler.gpu import resident_cells
from weft.experimental import pallas as pl
from weft.experimental.pallas import tpu
from weft.loops.gpu import resident

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)
F32 = np.float32


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-99, 99, shape).astype(np.int8)


def added(
    grid: tuple[int, int], shape: tuple[int, ...], specs: Any, step: Callable[..., Any], n_scalars: int = 0
) -> Any:
    """For each cell of the first axis the sum of what a step makes of blocks; ``shape``: of the result."""

    def body(*refs: Any) -> None:
        *blocks, out = refs[n_scalars:]

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += step(*[ref[...] for ref in blocks])

    rows = (shape[0] // grid[0], *shape[1:])
    given = tpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=n_scalars, grid=grid, in_specs=specs,
        out_specs=pl.BlockSpec(rows, lambda i, k, *_: (i, *[0] * (len(rows) - 1))),
    )  # fmt: skip
    return pl.pallas_call(body, grid_spec=given, out_shape=weft.ShapeDtypeStruct(shape, F32))


def rows_of(block: tuple[int, int]) -> Any:
    return pl.BlockSpec(block, lambda i, k: (i, k))


def sums(cells: int, steps: int, block: tuple[int, int] = (8, 64)) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The sums of rows, block after block."""
    rows = cells * block[0]
    function = added((cells, steps), (rows,), [rows_of(block)], lambda x: (x * 2).sum(1))
    return function, (f32(rows, steps * block[1]),)


def running(steps: int, alias: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Blocks along columns, each made of the one before; ``alias``: over the operand."""

    def body(x: Any, out: Any, kept: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            kept[...] = jnp.zeros_like(kept)

        kept[...] = kept[...] * 0.5 + x[...]
        out[...] = kept[...]

    spec = pl.BlockSpec((16, 32), lambda j, k: (k, j))
    function = pl.pallas_call(
        body, grid=(3, steps), in_specs=[spec], out_specs=spec, scratch_shapes=[tpu.VMEM((16, 32), F32)],
        out_shape=weft.ShapeDtypeStruct((16 * steps, 96), F32), input_output_aliases={0: 0} if alias else {},
    )  # fmt: skip
    return function, (f32(16 * steps, 96),)


def by_index(indices: list[int]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Which block comes next is read from an array that is there before all cells."""
    own = pl.BlockSpec((8, 64), lambda i, k, idx: (i, idx[k]))
    function = added((3, len(indices)), (24, 64), [own], lambda x: x * x, 1)
    return function, (np.array(indices, np.int32), f32(24, 64 * 8))


def windows(dtype: Any, first: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Blocks that begin at any element."""
    spec = pl.BlockSpec((8, pl.Element(64)), lambda i, k: (i, first + 3 * k))
    x = i8(24, 128).astype(dtype)
    return added((3, 6), (24, 64), [spec], lambda x: x.astype(F32) + 1), (x,)


def by_vector() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    vector = pl.BlockSpec((64,), lambda i, k: (k,))
    return added((3, 5), (24,), [rows_of((8, 64)), vector], lambda x, y: x @ y), (f32(24, 320), f32(320))


def of_two() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Blocks of two types, one of them turned, and one whose rows are no multiples of a copy."""
    turned, odd = pl.BlockSpec((32, 16), lambda i, k: (k, i)), pl.BlockSpec((16, 3), lambda i, k: (i, k))

    def step(x: Any, y: Any, z: Any) -> Any:
        return x.astype(F32) + y.T * 2 + z.sum(1)[:, None]

    return added((3, 4), (48, 32), [rows_of((16, 32)), turned, odd], step), (i8(48, 128), f32(128, 48), f32(48, 12))


def at_edges() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Blocks that hang over both edges, behind which there are NaN."""
    return added((3, 4), (24, 64), [rows_of((8, 64))], lambda x: jnp.where(x == x, x, 0)), (f32(21, 230),)


CASES: dict[str, tuple[Any, int]] = {
    "sums of rows": (sums(3, 6), 1),
    "rows longer than all threads bring at once": (sums(2, 4, (2, 1100 * 4)), 1),
    "blocks of each cell in order": (running(5), 1),
    "one step": (running(1), 0),
    "two steps": (running(2), 1),
    "three steps": (running(3), 1),
    "blocks over the edge": (at_edges(), 1),
    "two operands": (of_two(), 2),
    "a product by a vector": (by_vector(), 2),
    "numbers of blocks from an array": (by_index([3, 1, 1, 7, 0, -1]), 1),
    "windows of floats": (windows(F32, 0), 1),
    "windows of bytes": (windows(np.int8, 5), 1),
    "a result over an operand": (running(4, True), 1),
}


def brought(device: Any, function: Callable[..., Any], *args: Any) -> int:
    """How many blocks come ahead in the loops of the only launch."""
    launch, _ = launch_of(device, function, *args)
    loops = [step for step in launch.nest.steps[0].steps if isinstance(step, resident.Repeat)]
    return sum([len(loop.ahead) for loop in loops])


@pytest.mark.parametrize("name", CASES)
def test_blocks_come_ahead_with_the_bits_of_the_cpu(device: Any, name: str) -> None:
    (function, args), count = CASES[name]
    if count:
        assert brought(device, function, *args) == count
        launches(device, function, *args)
    else:
        check(device, function, args)


def test_what_is_read_in_a_branch_alone_is_not_brought(device: Any) -> None:
    """A step that does without it would wait for nothing."""

    def body(x: Any, y: Any, out: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        @pl.when((pl.program_id(0) + pl.program_id(1)) % 3 == 1)
        def _() -> None:
            out[...] += jnp.cumsum(y[...], 1)

        out[...] += x[...]

    specs = [rows_of((8, 64)), pl.BlockSpec((8, 64), lambda i, k: (k, 0))]
    function = pl.pallas_call(
        body, grid=(3, 6), in_specs=specs, out_specs=pl.BlockSpec((8, 64), lambda i, k: (i, 0)),
        out_shape=weft.ShapeDtypeStruct((24, 64), F32),
    )  # fmt: skip
    assert brought(device, function, f32(24, 384), f32(48, 64)) == 1
    launches(device, function, f32(24, 384), f32(48, 64))


def test_many_cells_and_large_blocks_are_read_where_they_lie(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many cells others run while one waits; and the memory of those that run at once is bounded."""
    assert brought(device, *_shapes(*sums(256, 5))) == 1
    assert brought(device, *_shapes(*sums(257, 5))) == 0
    assert brought(device, *_shapes(*sums(64, 5, (64, 256)))) == 0
    function, args = sums(3, 6)
    monkeypatch.setattr(resident_cells, "GPU_SHARED", 4096)
    assert brought(device, function, *args) == 0
    launches(device, function, *args)


def _shapes(function: Any, args: Any) -> list[Any]:
    return [function, *[weft.ShapeDtypeStruct(x.shape, x.dtype) for x in args]]


class Ready:
    """The module of the only launch of a program, and what it is launched with."""

    def __init__(self, device: Any, function: Any, *args: Any) -> None:
        launch, program = launch_of(device, function, *args)
        ((self.name, _, self.blocks, _, self.threads, self.shared),) = launch.grids
        self.text = llvm.emit_assembly(kernel.text_of(launch.nest, device.grid), device.grid)
        known = [np.asarray(x) for x in program.consts]
        tables = [known[slot] if slot < len(known) else np.zeros(1 << 22, F32) for slot, *_ in launch.operands]
        words = np.frombuffer(launch.params, np.int64).tolist()
        self.n_operands = len(tables)
        self.given = [*[Buffer.of(table) for table in tables], 0, *words, 0, 0]

    def run(self, blocks: int, **more: Any) -> Any:
        return Module(self.text).launch(self.name, blocks, self.threads, *self.given, shared=self.shared, **more)


@pytest.mark.parametrize("part", ["", "wait", "turn"])
def test_a_step_that_does_not_wait_or_bring_makes_what_is_not_defined(
    device: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    function, args = running(5)
    if part:
        monkeypatch.setattr(blocks_ahead.BlocksAhead, part, lambda *_: None)
    ready = Ready(device, function, *args)
    result = ready.given[ready.n_operands - 1] = Buffer(3 * 5 * 16 * 32 * 4)
    ready.run(3)
    assert result.is_written() == (not part)


def test_columns_that_are_summed_block_by_block_take_half_the_time(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 cells, in each 16 blocks of 64 by 64: as chains of loads they were predicted 52 us."""
    spec = pl.BlockSpec((64, 64), lambda i, k: (k, i))
    function = added((64, 16), (64 * 64,), [spec], lambda x: x.sum(0))
    shape = weft.ShapeDtypeStruct((1024, 64 * 64), F32)
    times = []
    for room in (resident_cells.GPU_SHARED, 1 << 10):
        monkeypatch.setattr(resident_cells, "GPU_SHARED", room)
        weft.clear_caches()
        ready = Ready(device, function, shape)
        counts = ready.run(1, counted=2, checks=0)
        times.append(prediction.predict(counts, ready.blocks, ready.threads, 64, ready.shared, 0.0, False).time)
    assert times[0] < times[1] / 1.8, times


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90", "sm_100"])
def test_copies_assemble(device: Any, cpu: str) -> None:
    ptxas.needed()
    for case in ("two operands", "numbers of blocks from an array"):
        (function, args), _ = CASES[case]
        ready = Ready(device, function, *args)
        assert "cp.async" in ready.text
        ptxas.assemble(ready.text.replace(".target sm_90", ".target sm_80"), cpu)

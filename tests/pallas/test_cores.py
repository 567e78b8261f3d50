"""Kernels of several bodies, pipelines that cores share, and grids with names and traced extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.lax as lax
import weft.numpy as jnp
from weft.experimental.pallas import tpu

X = np.arange(8, dtype=np.float32)
OUT = weft.ShapeDtypeStruct((8,), "float32")
every = pytest.mark.parametrize("interpret", [False, True, tpu.InterpretParams()])
PAIR, ONE = tpu.create_tensorcore_mesh("core", num_cores=2), tpu.create_tensorcore_mesh("other", num_cores=1)


def halves(x: Any, doubled: Any, total: Any, scratch: Any, ready: Any) -> None:
    """Each core doubles a half."""
    here = pl.ds(4 * lax.axis_index("core"), 4)
    doubled[here] = x[here] * 2
    scratch[here] = x[here] + lax.axis_size("core")
    pl.semaphore_signal(ready)


def sums(x: Any, doubled: Any, total: Any, scratch: Any, ready: Any) -> None:
    """The other core adds up what the first two have made."""
    pl.semaphore_wait(ready, 2)
    total[...] = jnp.sum(doubled[...] * scratch[...]) + pl.program_id(0) + pl.semaphore_read(ready)


def of_two(interpret: Any = False) -> Any:
    types = [OUT, weft.ShapeDtypeStruct((), "float32")]
    scratch = [tpu.VMEM((8,), "float32"), tpu.SemaphoreType.REGULAR]
    return pl.kernel([halves, sums], types, mesh=[PAIR, ONE], scratch_types=scratch, interpret=interpret)


@every
def test_a_kernel_of_several_bodies(interpret: Any) -> None:
    run = of_two(interpret)
    for function in (run, weft.jit(run)):
        doubled, total = function(X)
        np.testing.assert_array_equal(doubled, 2 * X)
        assert total == np.sum(2 * X * (X + 2))


def test_several_bodies_under_transformations() -> None:
    rows = np.stack([X, X + 1])
    np.testing.assert_array_equal(weft.vmap(of_two())(rows)[1], np.sum(2 * rows * (rows + 2), axis=1))
    np.testing.assert_array_equal(weft.grad(lambda x: of_two()(x)[1])(X), 4 * X + 4)


def test_several_bodies_write_to_one_reference() -> None:
    def double(ref: Any) -> None:
        ref[lax.axis_index("core")] *= 2.0

    def shift(ref: Any) -> None:
        ref[...] += 1.0

    ref = weft.new_ref(jnp.ones(2))
    pl.kernel([double, shift, double], mesh=[PAIR, ONE, PAIR])(ref)
    np.testing.assert_array_equal(ref[...], [6.0, 6.0])


@pytest.mark.parametrize(("bodies", "meshes", "text"), [
    ([shifted := lambda x, o: None], PAIR, "several bodies take a sequence of as many meshes: there are 1 bodies"),
    ([shifted, shifted], [PAIR], "there are 2 bodies"),
    ([], [], "there are 0 bodies"),
    (shifted, [PAIR], "mesh is a sequence, but there is one body"),
    (None, [PAIR], "mesh is a sequence, but there is one body"),
    ([shifted] * 2, [PAIR, tpu.create_tensorcore_mesh("core", num_cores=3)], "'core' has extent 2 in one mesh, 3 in"),
    ([lambda x, o: 0], [ONE], r"function <lambda> at .*test_cores.py:\d+ should return None. It returned 0"),
])  # fmt: skip
def test_errors_of_several_bodies(bodies: Any, meshes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        pl.kernel(bodies, OUT, mesh=meshes)(X)


# -- pipelines --------------------------------------------------------------------------------------------------------


def shared_pipeline(grid: Any, semantics: Any, cores: int, interpret: Any, traced: bool = False, **core: Any) -> Any:
    """Sums of blocks over the last axis of the grid, which each core makes for its part of the first axes."""

    def body(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(len(grid) - 1) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        o[...] += x[...]

    def kernel(extent: Any, x: Any, o: Any) -> None:
        extents = (extent[...], *grid[1:]) if traced else grid
        blocks = {
            "in_specs": [pl.BlockSpec((1,) * len(grid), lambda *numbers: numbers)],
            "out_specs": [pl.BlockSpec((1,) * len(grid), lambda *numbers: (*numbers[:-1], 0))],
        }
        tpu.emit_pipeline(body, grid=extents, dimension_semantics=semantics, **blocks, **core)(x, o)

    out = weft.ShapeDtypeStruct((*grid[:-1], 1), "float32")
    return pl.pallas_call(kernel, out, grid=(("core", cores),), interpret=interpret)


@every
@pytest.mark.parametrize("core", [{"core_axis": 0}, {"core_axis_name": "core"}])
@pytest.mark.parametrize(
    ("grid", "cores"), [((8, 3), 2), ((5, 3), 2), ((3, 4, 2), 2), ((7, 2), 3), ((2, 3), 4), ((2, 2), 1)]
)
def test_cores_share_a_pipeline(grid: tuple[int, ...], cores: int, core: Any, interpret: Any) -> None:
    x = np.arange(np.prod(grid), dtype=np.float32).reshape(grid)
    semantics = (*[tpu.PARALLEL] * (len(grid) - 1), tpu.ARBITRARY)
    for traced in (False, True):
        run = shared_pipeline(grid, semantics, cores, interpret, traced, **core)
        np.testing.assert_array_equal(run(np.int32(grid[0]), x), x.sum(-1, keepdims=True))


def test_each_core_runs_a_part() -> None:
    def body(numbers: Any, o: Any) -> None:
        o[...] += pl.num_programs(0).astype("float32")

    def kernel(o: Any) -> None:
        spec = pl.BlockSpec((1,), lambda i: i)
        options = {"core_axis": 0, "dimension_semantics": (tpu.PARALLEL,), "_explicit_indices": True}
        tpu.emit_pipeline(body, grid=(5,), out_specs=[spec], **options)(o)

    ref = weft.new_ref(jnp.zeros(5))
    pl.pallas_call(kernel, (), grid=2)(ref)
    np.testing.assert_array_equal(ref[...], [3, 3, 3, 2, 2])


def test_what_cores_cannot_share() -> None:
    x, n = np.ones((4, 2), np.float32), np.int32(4)
    with pytest.raises(NotImplementedError, match=r"2 cores along core_axis=0 share a grid without a parallel axis"):
        shared_pipeline((4, 2), None, 2, False, core_axis=0)(n, x)
    with pytest.raises(ValueError, match=r"dimension_semantics \['parallel'\] are not one for each axis"):
        shared_pipeline((4, 2), (tpu.PARALLEL,), 2, False, core_axis=0)(n, x)


def test_the_first_core_alone() -> None:
    ref = weft.new_ref(jnp.zeros(2))

    @pl.core_map(PAIR)
    def _() -> None:
        @tpu.run_on_first_core("core")
        def _() -> None:
            ref[lax.axis_index("core")] += 1.0

    np.testing.assert_array_equal(ref[...], [1.0, 0.0])


def test_a_barrier_is_a_semaphore_that_cells_share() -> None:
    def kernel(o: Any) -> None:
        pl.semaphore_signal(tpu.get_barrier_semaphore(), core_index=0)
        o[pl.program_id(0)] = pl.semaphore_read(tpu.get_barrier_semaphore())

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((2,), "int32"), grid=2)
    np.testing.assert_array_equal(run(), [0, 0])  # each call gives another


# -- modes ------------------------------------------------------------------------------------------------------------


def reads_outside(o: Any) -> None:
    o[...] = jnp.zeros(8)
    o[pl.ds(pl.program_id(0) + 7, 2)] = jnp.ones(2)


def test_modes_for_all_kernels() -> None:
    make = lambda: pl.pallas_call(reads_outside, OUT, grid=1)()
    traced = weft.jit(lambda: make())
    np.testing.assert_array_equal(traced(), make())
    with tpu.force_tpu_interpret_mode(), pytest.raises(IndexError, match="writes outside of the reference outputs"):
        make()
    with tpu.force_tpu_interpret_mode(), pytest.raises(Exception, match="writes outside of the reference outputs"):
        traced()
    tpu.set_tpu_interpret_mode()
    try:
        with pytest.raises(IndexError, match="writes outside"):
            make()
    finally:
        tpu.set_tpu_interpret_mode(None)
    tpu.reset_tpu_interpret_mode_state()
    make()
    x = jnp.asarray(X)
    assert tpu.with_memory_space_constraint(x, tpu.HBM) is x and not tpu.is_tpu_device()


# -- names and traced extents -----------------------------------------------------------------------------------------


def numbered(module: Any, pallas: Any, interpret: Any) -> Any:
    def kernel(o: Any) -> None:
        o[module.lax.axis_index("i"), module.lax.axis_index("j")] = 1 + 10.0 * module.lax.axis_index("i")

    def run(n: Any) -> Any:
        grid = pallas.GridSpec(grid=(("i", n), ("j", 2)))
        return pallas.pallas_call(
            kernel, module.ShapeDtypeStruct((3, 3), "float32"), grid_spec=grid, interpret=interpret
        )()

    return module.jit(run)


@every
def test_traced_extents_of_named_axes(interpret: Any) -> None:
    wanted = np.array([[1, 1, np.nan], [11, 11, np.nan], [np.nan] * 3], np.float32)
    np.testing.assert_array_equal(numbered(weft, pl, interpret)(2), wanted)
    with pytest.raises(NotImplementedError, match=r"the axis i of a grid has a traced extent.*pallas\.num_programs"):
        weft.jit(lambda n: pl.pallas_call(lambda o: o.set(lax.axis_size("i")), OUT, grid=(("i", n),))())(2)


@pytest.mark.oracle
def test_traced_extents_of_named_axes_as_in_jax() -> None:
    import jax  # noqa: PLC0415 - only this test needs it
    import jax.experimental.pallas as jax_pallas  # noqa: PLC0415 - as above
    import jax.experimental.pallas.tpu as jax_tpu  # noqa: PLC0415 - as above

    theirs = numbered(jax, jax_pallas, jax_tpu.InterpretParams())(2)
    np.testing.assert_array_equal(numbered(weft, pl, False)(2), theirs)

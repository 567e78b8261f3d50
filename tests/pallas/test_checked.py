"""interpret=InterpretParams(): the same values as the compiled kernel, and an error for each access that goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.numpy as jnp
from tests.pallas import kernels_blocks, kernels_inside, table
from weft import lax
from weft.experimental.pallas import tpu, triton
from weft.experimental.pallas.tpu import InterpretParams

assert kernels_blocks and kernels_inside  # they fill the table
MODULES = table.of_weft()
OUTSIDE = ("index_beyond_the_end",)  # which the checks refuse
X = np.arange(6, dtype=np.float32)


def call(kernel: Any, out: Any = ((6,), "float32"), **options: Any) -> Any:
    options.setdefault("interpret", InterpretParams())
    return pl.pallas_call(kernel, weft.ShapeDtypeStruct(*out), **options)


@pytest.mark.parametrize("case", [c for c in table.CASES if c.name not in OUTSIDE], ids=lambda case: case.name)
def test_the_same_values(case: table.Case) -> None:
    interpreted = table.run(MODULES, case, InterpretParams())
    for one, other in zip(table.run(MODULES, case, False), interpreted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        left, right = [x.astype(np.float32) if x.dtype.kind == "V" else x for x in (one, other)]
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_a_read_outside() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[pl.ds(3 * pl.program_id(0), 4)]

    run = call(kernel, ((4,), "float32"), grid=2)
    with pytest.raises(
        IndexError, match=r"cell \(1,\) at .*test_checked\.py:\d+.*reads outside of the reference args\[0"
    ):
        run(X)
    with pytest.raises(Exception, match="reads outside of the reference"):
        weft.block_until_ready(weft.jit(run)(X))
    free = call(kernel, ((4,), "float32"), grid=2, interpret=InterpretParams(out_of_bounds_reads="uninitialized"))
    np.testing.assert_array_equal(free(X), [3, 4, 5, np.nan])


def test_a_write_outside() -> None:
    def kernel(i: Any, o: Any) -> None:
        o[...] = jnp.zeros_like(o)
        o[i[...]] = jnp.float32(1)

    np.testing.assert_array_equal(call(kernel)(np.int32(5)), [0, 0, 0, 0, 0, 1])
    with pytest.raises(
        IndexError, match=r"writes outside of the reference outputs of shape \(6,\): the index \[i\] with \[6"
    ):
        call(kernel)(np.int32(6))


def test_a_mask_guards_an_access() -> None:
    def kernel(x: Any, o: Any, *, last: int) -> None:
        at = 4 * pl.program_id(0) + jnp.arange(4)
        triton.store(o.at[at], triton.load(x.at[at], mask=at < last, other=0.0), mask=at < last)

    np.testing.assert_array_equal(call(lambda x, o: kernel(x, o, last=6), grid=2)(X), X)
    with pytest.raises(IndexError, match=r"reads outside of the reference.*where the mask is True"):
        call(lambda x, o: kernel(x, o, last=7), grid=2)(X)


def test_in_loops_and_branches() -> None:
    def kernel(x: Any, o: Any) -> None:
        @pl.loop(0, 4)
        def _(i: Any) -> None:
            @pl.when(i > 1)
            def _() -> None:
                o[i] = x[2 * i]

    with pytest.raises(
        IndexError, match=r"reads outside of the reference args\[0\] of shape \(6,\): the index \[i\] with \[6"
    ):
        call(kernel)(X)


def test_a_block_that_does_not_exist() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...]

    spec = pl.BlockSpec((4,), lambda i: i)
    np.testing.assert_array_equal(call(kernel, grid=2, in_specs=[spec], out_specs=spec)(X), X)
    with pytest.raises(
        IndexError, match=r"cell \(2,\): the index map of args\[0\] gives \(2,\): along dimension 0 a block of 4"
    ):
        call(kernel, grid=3, in_specs=[spec], out_specs=spec)(X)


def test_reads_of_what_nobody_has_written() -> None:
    strict = InterpretParams(uninitialized_reads="raise")

    def kernel(x: Any, o: Any, total: Any) -> None:
        total[...] += x[...]
        o[...] = total[...]

    scratch = [tpu.VMEM((6,), "float32")]
    assert np.isnan(call(kernel, scratch_shapes=scratch)(X)).all()
    zero = InterpretParams(uninitialized_memory="zero")
    np.testing.assert_array_equal(call(kernel, scratch_shapes=scratch, interpret=zero)(X), X)
    with pytest.raises(IndexError, match=r"reads from the reference scratch 0.* what nobody has written"):
        call(kernel, scratch_shapes=scratch, interpret=strict)(X)

    def begins(x: Any, o: Any, total: Any) -> None:
        total[...] = jnp.zeros_like(total)
        kernel(x, o, total)

    np.testing.assert_array_equal(call(begins, scratch_shapes=scratch, interpret=strict)(X), X)


def test_races_along_parallel_axes() -> None:
    def kernel(o: Any) -> None:
        o[...] = jnp.full_like(o, pl.program_id(0))

    spec = pl.BlockSpec((2,), lambda i, j: i)
    parallel = tpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    options = {"grid": (3, 2), "out_specs": spec}
    np.testing.assert_array_equal(call(kernel, compiler_params=parallel, **options)(), [0, 0, 1, 1, 2, 2])
    with pytest.raises((IndexError, ValueError), match=r"race|parallel"):
        call(kernel, compiler_params=tpu.CompilerParams(dimension_semantics=("parallel", "parallel")), **options)()


def test_cells_are_reported_in_order() -> None:
    seen: list[Any] = []
    params = InterpretParams(grid_point_recorder=lambda cell, core: seen.append((*cell, core)))
    call(lambda o: None, grid=(2, 2), interpret=params)()
    assert seen == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]


def test_under_vmap_and_control_flow() -> None:
    def kernel(x: Any, o: Any) -> None:
        def step(state: Any) -> Any:
            i, total = state
            return i + 1, total + x[i]

        o[...] = lax.while_loop(lambda s: s[0] < 6, step, (0, jnp.float32(0)))[1]

    run = call(kernel, ((), "float32"))
    np.testing.assert_array_equal(weft.vmap(run)(np.stack([X, 2 * X])), [15, 30])


@pytest.mark.parametrize("early", [False, True])
def test_a_wait_for_what_comes_later(early: bool) -> None:
    def waits(o: Any, ready: Any) -> None:
        pl.semaphore_wait(ready, 2)
        o[...] = 1.0

    def signals(o: Any, ready: Any) -> None:
        pl.semaphore_signal(ready)

    pair, one = tpu.create_tensorcore_mesh("a", num_cores=2), tpu.create_tensorcore_mesh("b", num_cores=1)
    bodies, meshes = ([waits, signals], [one, pair]) if early else ([signals, waits], [pair, one])
    out, scratch = weft.ShapeDtypeStruct((), "float32"), [tpu.SemaphoreType.REGULAR]
    run = pl.kernel(bodies, out, mesh=meshes, scratch_types=scratch, interpret=tpu.InterpretParams())
    if early:
        with pytest.raises(IndexError, match="waits for the semaphore scratch 0, which nobody before has signalled so"):
            run()
    else:
        assert run() == 1.0

"""pallas_call within transformations, its options, and what is not a kernel's result: traces, prints, references."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.lax as lax
import weft.numpy as jnp
from weft.experimental import checkify
from weft.experimental.pallas import tpu, triton

P = weft.P


def square(x: Any, o: Any) -> None:
    o[...] = x[...] * x[...]


SPEC = pl.BlockSpec((2,), lambda i: i)
blocked_square = pl.pallas_call(square, weft.ShapeDtypeStruct((6,), "float32"), grid=3, in_specs=[SPEC], out_specs=SPEC)
X = np.arange(6, dtype=np.float32)
both = pytest.mark.parametrize("interpret", [False, True])


def test_jit_of_a_kernel_is_traced_once() -> None:
    count = 0

    def kernel(x: Any, o: Any) -> None:
        nonlocal count
        count += 1
        o[...] = x[...] + 1

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"))
    np.testing.assert_array_equal(weft.jit(lambda x: run(run(x)))(X), X + 2)
    assert count == 1


def test_vmap_is_one_more_axis_of_the_grid() -> None:
    x = np.stack([X, X + 1, X + 2])
    np.testing.assert_array_equal(weft.vmap(blocked_square)(x), x * x)
    np.testing.assert_array_equal(weft.vmap(blocked_square, in_axes=1, out_axes=1)(x.T), (x * x).T)
    found = [e for e in weft.make_jaxpr(weft.vmap(blocked_square))(x).jaxpr.eqns if e.primitive is pl.pallas_call_p]
    assert [e.params["grid"] for e in found] == [(3, 3)]
    np.testing.assert_array_equal(weft.vmap(weft.vmap(blocked_square))(x[None]), (x * x)[None])


@both
def test_vmap_of_prefetched_scalars(interpret: bool) -> None:
    def kernel(order: Any, x: Any, o: Any) -> None:
        o[...] = x[...] + order[0].astype("float32")

    row = pl.BlockSpec((None, 2), lambda i, order: (order[i], 0))
    spec = tpu.PrefetchScalarGridSpec(1, 3, [row], pl.BlockSpec((None, 2), lambda i, order: (i, 0)))
    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((3, 2), "float32"), grid_spec=spec, interpret=interpret)
    orders = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    x = X.reshape(3, 2)
    expected = np.stack([x[order] + order[0] for order in orders])
    np.testing.assert_array_equal(weft.vmap(run, in_axes=(0, None))(orders, x), expected)


@both
def test_vmap_of_a_loop_of_unlike_lengths(interpret: bool) -> None:
    def kernel(n: Any, o: Any) -> None:
        o[...] = 0
        lax.while_loop(lambda i: i < n[...], lambda i: (o.set(o[...] + i), i + 1)[1], 0)

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((), "int32"), interpret=interpret)
    np.testing.assert_array_equal(weft.vmap(run)(jnp.array([1, 4, 10])), [0, 6, 45])


def test_derivatives() -> None:
    value, tangent = weft.jvp(blocked_square, (X,), (np.ones_like(X),))
    np.testing.assert_array_equal(value, X * X)
    np.testing.assert_array_equal(tangent, 2 * X)
    np.testing.assert_array_equal(weft.grad(lambda x: blocked_square(x).sum())(X), 2 * X)


def test_no_reverse_derivative_of_a_loop_of_unknown_length() -> None:
    def kernel(n: Any, x: Any, o: Any) -> None:
        o[...] = lax.fori_loop(0, n[...], lambda i, y: y * x[...], jnp.ones_like(x[...]))

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"))
    np.testing.assert_array_equal(weft.jvp(lambda x: run(np.int32(2), x), (X,), (np.ones_like(X),))[1], 2 * X)
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
        weft.grad(lambda x: run(np.int32(2), x).sum())(X)


def test_custom_vjp_around_a_kernel() -> None:
    @weft.custom_vjp
    def f(x: Any) -> Any:
        return blocked_square(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
    np.testing.assert_array_equal(weft.grad(lambda x: f(x).sum())(X), 10 * X)


def test_kernel_around_grad() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = weft.grad(lambda y: jnp.sum(y**3))(x[...])

    np.testing.assert_array_equal(pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"))(X), 3 * X * X)


def test_in_loops_and_branches() -> None:
    np.testing.assert_array_equal(lax.fori_loop(0, 2, lambda i, x: blocked_square(x), X), X**4)
    carry, _ = lax.scan(lambda c, x: (blocked_square(c), x), X, None, length=2)
    np.testing.assert_array_equal(carry, X**4)
    np.testing.assert_array_equal(lax.cond(jnp.bool_(True), blocked_square, lambda x: x, X), X * X)


def test_eval_shape_and_lowering() -> None:
    out = weft.eval_shape(blocked_square, weft.ShapeDtypeStruct((6,), "float32"))
    assert (out.shape, out.dtype) == ((6,), np.float32)
    assert "square" in str(weft.make_jaxpr(blocked_square)(X))
    compiled = weft.jit(blocked_square).lower(X).compile()
    np.testing.assert_array_equal(compiled(X), X * X)


def test_export() -> None:
    exported = weft.export.export(weft.jit(blocked_square))(weft.ShapeDtypeStruct((6,), "float32"))
    again = weft.export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(X), X * X)


@pytest.mark.parametrize("check_vma", [False, True])
def test_within_shard_map(check_vma: bool) -> None:
    mesh = weft.make_mesh((1,), ("d",), axis_types=(weft.sharding.AxisType.Auto,))
    run = weft.shard_map(blocked_square, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=check_vma)
    np.testing.assert_array_equal(weft.jit(run)(X), X * X)


@both
def test_checkify(interpret: bool) -> None:
    def kernel(x: Any, o: Any) -> None:
        checkify.check(x[0] < 3, "failed on {x}", x=x[0])
        o[...] = x[...]

    spec = pl.BlockSpec((1,), lambda i: i)
    run = pl.pallas_call(
        kernel, weft.ShapeDtypeStruct((6,), "float32"), grid=6, in_specs=[spec], out_specs=spec, interpret=interpret
    )
    error, out = checkify.checkify(run)(X)
    assert error.get() == "failed on 3.0 (`check` failed)"
    np.testing.assert_array_equal(out, X)
    assert checkify.checkify(run)(X * 0)[0].get() is None


def test_prints(capfd: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, o: Any) -> None:
        pl.debug_print("cell {} holds {}", pl.program_id(0), x[0])
        o[...] = x[...]

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"), grid=3, in_specs=[SPEC], out_specs=SPEC)
    weft.block_until_ready(run(X))
    weft.effects_barrier()
    assert capfd.readouterr().out.splitlines() == [f"cell {i} holds {2.0 * i}" for i in range(3)]


def test_debug_shows_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    pl.pallas_call(square, weft.ShapeDtypeStruct((6,), "float32"), debug=True)(X)
    shown = capsys.readouterr().out
    assert "square at" in shown
    assert "<- " in shown


def test_debug_checks() -> None:
    def kernel(x: Any, o: Any) -> None:
        pl.debug_check(x[0] > 0, "not positive")
        o[...] = x[...]

    run = functools.partial(pl.pallas_call, kernel, weft.ShapeDtypeStruct((6,), "float32"))
    np.testing.assert_array_equal(run()(X), X)
    with pl.enable_debug_checks():
        assert checkify.checkify(run())(X)[0].get() == "not positive (`check` failed)"
    np.testing.assert_array_equal(run()(X), X)


# -- references -------------------------------------------------------------------------------------------------------


def test_debug_print_shows_what_a_reference_holds(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x, o):
        weft.debug.print("x = {}, its end {}", x, x.at[1:])
        o[...] = x[...]

    weft.block_until_ready(pl.pallas_call(kernel, weft.ShapeDtypeStruct((2,), "float32"))(np.float32([4.5, 2.5])))
    weft.effects_barrier()
    assert capsys.readouterr().out == "x = [4.5 2.5], its end [2.5]\n"


def test_debug_checks_turned_on_after_the_first_call() -> None:
    def kernel(x: Any, o: Any) -> None:
        pl.debug_check(x[0] > 0, "not positive")
        o[...] = x[...]

    called = pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"))
    for run in (called, weft.jit(called)):
        np.testing.assert_array_equal(run(X), X)
        with pl.enable_debug_checks():
            assert "not positive" in str(checkify.checkify(run)(X)[0].get())
            with ThreadPoolExecutor(1) as pool:  # it is this thread's
                assert not pool.submit(pl.debug_checks_enabled).result()
        np.testing.assert_array_equal(run(X), X)


@both
def test_blocks_of_keys(interpret: bool) -> None:
    def kernel(key: Any, o: Any) -> None:
        o[...] = weft.random.uniform(key[...], (3,))

    keys = weft.random.split(weft.random.key(0), 4)
    rows = {"in_specs": [pl.BlockSpec((None,), lambda i: i)], "out_specs": pl.BlockSpec((None, 3), lambda i: (i, 0))}
    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((4, 3), "float32"), grid=4, interpret=interpret, **rows)
    np.testing.assert_array_equal(run(keys), np.stack([weft.random.uniform(key, (3,)) for key in keys]))
    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((3,), "float32"), interpret=interpret)
    np.testing.assert_array_equal(weft.jit(run)(keys[1]), weft.random.uniform(keys[1], (3,)))


@both
def test_without_elements_or_results(interpret: bool) -> None:
    out = weft.ShapeDtypeStruct((0, 3), "float32")
    assert pl.pallas_call(square, out, grid=2, interpret=interpret)(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert pl.pallas_call(lambda: None, (), grid=2, interpret=interpret)() == ()


def test_references_as_arguments_are_written_to() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] + 1

    x, y = weft.new_ref(jnp.asarray(X)), weft.new_ref(jnp.zeros(6))
    assert pl.pallas_call(kernel, ())(x, y) == ()
    np.testing.assert_array_equal(y[...], X + 1)
    np.testing.assert_array_equal(x[...], X)


def test_core_map_and_kernel() -> None:
    mesh = tpu.create_tensorcore_mesh("core", num_cores=3)

    @weft.jit
    def f(x: Any) -> Any:
        source, out = weft.new_ref(x), weft.new_ref(jnp.zeros_like(x))

        @pl.core_map(mesh, scratch_shapes=[tpu.VMEM((2,), "float32")])
        def _(buffer: Any) -> None:
            at = pl.ds(2 * lax.axis_index("core"), 2)
            buffer[...] = source[at]
            out[at] = buffer[...] + 1

        return out[...]

    np.testing.assert_array_equal(f(X), X + 1)

    @functools.partial(pl.kernel, out_type=weft.ShapeDtypeStruct((6,), "float32"), mesh=mesh)
    def g(x: Any, o: Any) -> None:
        at = pl.ds(2 * lax.axis_index("core"), 2)
        o[at] = x[at] * lax.axis_size("core")

    np.testing.assert_array_equal(g(X), X * 3)


def test_references_that_all_cells_share() -> None:
    def kernel(o: Any) -> None:
        count = pl.get_global(tpu.SemaphoreType.REGULAR)
        pl.semaphore_signal(count, pl.program_id(0) + 1)
        o[...] = pl.semaphore_read(count)

    run = pl.pallas_call(
        kernel, weft.ShapeDtypeStruct((4,), "int32"), grid=4, out_specs=pl.BlockSpec((None,), lambda i: i)
    )
    np.testing.assert_array_equal(run(), [1, 3, 6, 10])


def test_with_scoped_and_run_state() -> None:
    @pl.with_scoped(tpu.VMEM((6,), "float32"))
    def doubled(x: Any, o: Any, buffer: Any) -> None:
        buffer[...] = x[...] * 2
        o[...] = buffer[...]

    np.testing.assert_array_equal(pl.pallas_call(doubled, weft.ShapeDtypeStruct((6,), "float32"))(X), X * 2)

    def swap(refs: Any) -> None:
        x, y = refs
        x[...], y[...] = y[...], x[...]

    x, y = pl.run_state(swap)((jnp.asarray(X), jnp.asarray(-X)))
    np.testing.assert_array_equal(x, -X)
    np.testing.assert_array_equal(y, X)


def test_names_of_a_grid() -> None:
    def kernel(o: Any) -> None:
        o[...] = lax.axis_index("i") * lax.axis_size("j") + lax.axis_index("j")

    spec = pl.BlockSpec((None, None), lambda i, j: (i, j))
    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((2, 3), "int32"), grid=(("i", 2), ("j", 3)), out_specs=spec)
    np.testing.assert_array_equal(run(), np.arange(6).reshape(2, 3))


def test_pipeline_of_bounded_slices_and_gathered_rows() -> None:
    def inner(x: Any, o: Any) -> None:
        o[...] = x[...]

    ends = np.array([0, 2, 3, 6], np.int32)

    def kernel(ends: Any, x: Any, o: Any) -> None:
        part = pl.BlockSpec((pl.BoundedSlice(3),), lambda i: (pl.ds(ends[i], ends[i + 1] - ends[i]),))
        o[...] = jnp.full_like(o, -1)
        tpu.emit_pipeline(inner, grid=(3,), in_specs=[part], out_specs=[part])(x, o)

    np.testing.assert_array_equal(pl.pallas_call(kernel, weft.ShapeDtypeStruct((6,), "float32"))(ends, X), X)

    def gathers(rows: Any, x: Any, o: Any) -> None:
        source = pl.BlockSpec((pl.Indirect(2),), lambda i: (rows[pl.ds(2 * i, 2)],))
        tpu.emit_pipeline(inner, grid=(2,), in_specs=[source], out_specs=[SPEC])(x, o)

    rows = np.array([5, 1, 1, 3], np.int32)
    np.testing.assert_array_equal(pl.pallas_call(gathers, weft.ShapeDtypeStruct((4,), "float32"))(rows, X), X[rows])


def test_an_output_that_all_cells_share_is_scratch() -> None:
    def kernel(x: Any, o: Any, total: Any) -> None:
        total[...] = x[...] * 2
        o[...] = total[...] + 1

    parallel = tpu.CompilerParams(dimension_semantics=("parallel",))
    specs, shared = [SPEC, pl.BlockSpec((2,), lambda i: 0)], weft.ShapeDtypeStruct((2,), "float32")
    run = pl.pallas_call(
        kernel, [weft.ShapeDtypeStruct((6,), "float32"), shared], grid=3, in_specs=[SPEC], out_specs=specs,
        compiler_params=parallel,
    )  # fmt: skip
    out, last = run(X)
    np.testing.assert_array_equal(out, 2 * X + 1)
    np.testing.assert_array_equal(last, 2 * X[4:])


def test_two_cells_of_a_parallel_axis_that_write_one_block() -> None:
    options = {"grid": (3, 2), "out_specs": pl.BlockSpec((2,), lambda i, j: i)}
    both_parallel = tpu.CompilerParams(dimension_semantics=("parallel", "parallel"))
    run = pl.pallas_call(
        lambda o: o.set(jnp.ones_like(o)), weft.ShapeDtypeStruct((6,), "float32"), compiler_params=both_parallel,
        **options,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"axis 1 of the grid .* write to the same block of output 0"):
        run()


def test_a_masked_slice_from_the_start_may_be_longer_than_its_reference() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = triton.load(x.at[pl.ds(0, 8)], mask=jnp.arange(8) < 6, other=-1.0)

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((8,), "float32"))
    np.testing.assert_array_equal(run(X), [*X, -1, -1])
    with pytest.raises(ValueError, match="Out of bound slice: start=0, size=8, stride=1, dim=6"):
        pl.pallas_call(lambda x, o: o.set(x[pl.ds(0, 8)]), weft.ShapeDtypeStruct((8,), "float32"))(X)


# -- small functions --------------------------------------------------------------------------------------------------


def test_sums_on_extents() -> None:
    assert [pl.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert pl.align_to(5, 4) == 8
    assert [pl.next_power_of_2(n) for n in (0, 1, 2, 3, 5, 8)] == [1, 1, 2, 4, 8, 8]
    assert pl.strides_from_shape((2, 3, 4)) == (12, 4, 1)
    assert int(weft.jit(lambda n: pl.cdiv(n, 4))(5)) == 2


def test_costs() -> None:
    a, b = jnp.ones((4, 8)), jnp.ones((8, 2))
    assert pl.estimate_cost(lambda a, b: jnp.exp(a @ b), a, b) == pl.CostEstimate(128, 8, 4 * (32 + 16 + 8))
    assert pl.CostEstimate(1, 2, 3).to_json() == (
        b'{"flops": 1, "transcendentals": 2, "bytes_accessed": 3, "remote_bytes_transferred": 0}'
    )


def test_specs_are_values() -> None:
    spec = pl.BlockSpec((2, None), memory_space=pl.ANY)
    assert spec.replace(block_shape=(4, None)).block_shape == (4, None)
    assert spec == pl.BlockSpec((2, None), memory_space=pl.ANY)
    grid = pl.GridSpec(grid=4, in_specs=[spec])
    assert (grid.grid, grid.in_specs) == ((4,), (spec,))
    assert pl.ds(3) == pl.dslice(0, 3) == pl.Slice(0, 3, 1)
    kind = tpu.VMEM((2, 3), jnp.bfloat16)
    assert (kind.shape, kind.dtype.name, kind.memory_space) == ((2, 3), "bfloat16", tpu.VMEM)


def test_inspect_shows_the_source_of_a_kernel() -> None:
    shown = weft.inspect(weft.jit(lambda x: blocked_square(x) + 1), X).text(("jaxpr",))
    assert "kernel square, as written:\ndef square(x: Any, o: Any) -> None:\n    o[...] = x[...] * x[...]\n" in shown


def in_place(interpret: Any) -> Any:
    """A kernel without arguments that closes over the references of a stateful function."""

    def stateful(refs: Any) -> None:
        x, total = refs

        def kernel(first: Any, scratch: Any) -> None:
            scratch[...] = x[pl.ds(2 * pl.program_id(0), 2)] * 2.0
            total[0] += first[0] + jnp.sum(scratch[...])

        spec = tpu.PrefetchScalarGridSpec(1, grid=(3,), scratch_shapes=[tpu.VMEM((2,), "float32")])
        assert pl.pallas_call(kernel, (), grid_spec=spec, interpret=interpret)(np.float32([1.0])) == ()

    return stateful


@pytest.mark.parametrize("interpret", [False, True, tpu.InterpretParams()], ids=["compiled", "interpreted", "checked"])
def test_a_kernel_closes_over_references(interpret: Any) -> None:
    """It reads and writes those of a stateful function, and those of the caller."""
    start = np.zeros(1, np.float32)
    x, total = weft.jit(pl.run_state(in_place(interpret)))((X, start))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(total, [2 * X.sum() + 3])
    refs = weft.new_ref(jnp.asarray(X)), weft.new_ref(jnp.asarray(start))
    for times in (1, 2):
        in_place(interpret)(refs)
        np.testing.assert_array_equal(refs[1][...], [times * (2 * X.sum() + 3)])


def test_a_kernel_closes_over_references_beside_arguments_and_aliases() -> None:
    def stateful(refs: Any) -> None:
        x, y, seen = refs

        def kernel(before: Any, out: Any) -> None:
            def step(i: Any, carried: Any) -> Any:
                y[i] = x[i] + before[i]
                return carried + 1.0

            out[0] = weft.lax.fori_loop(0, 6, step, 0.0)

        whole = pl.BlockSpec(memory_space=pl.ANY)
        out = weft.ShapeDtypeStruct((6,), "float32")
        seen[...] = pl.pallas_call(kernel, out, in_specs=[whole], out_specs=whole, input_output_aliases={0: 0})(y[...])

    _, y, seen = weft.jit(pl.run_state(stateful))((X, np.ones(6, np.float32), np.zeros(6, np.float32)))
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(seen, [6, 1, 1, 1, 1, 1])


def test_results_of_a_list_of_types() -> None:
    mesh = tpu.create_tensorcore_mesh("core", num_cores=1)

    def body(x: Any, one: Any, two: Any) -> None:
        tpu.sync_copy(x, one)
        two[...] = x[...] + 1.0

    found = pl.kernel(body, out_type=[weft.ShapeDtypeStruct((6,), "float32")] * 2, mesh=mesh)(X)
    assert type(found) is list
    np.testing.assert_array_equal(found, [X, X + 1])


def test_cost_of_integer_powers() -> None:
    """As many products as squarings take."""
    costs = [pl.estimate_cost(lambda x, p=p: weft.lax.integer_pow(x, p), X).flops for p in (7, 8, 9)]
    assert costs == [6 * 5, 6 * 4, 6 * 5]


def test_a_kernel_that_closes_over_a_reference_runs_once_and_shares_a_semaphore() -> None:
    """Its Python is run for one trace; scratch given by name and what cells share are its own."""
    runs, seen = [], weft.new_ref(jnp.zeros(3, "int32"))

    def kernel(o: Any, *, buffer: Any) -> None:
        runs.append(1)
        count = pl.get_global(tpu.SemaphoreType.REGULAR)
        pl.semaphore_signal(count, pl.program_id(0) + 1)
        buffer[0] = pl.semaphore_read(count)
        seen[pl.program_id(0)] = buffer[0] * 2
        o[0] = buffer[0]

    out, spec = weft.ShapeDtypeStruct((3,), "int32"), pl.BlockSpec((1,), lambda i: i)
    run = pl.pallas_call(kernel, out, grid=3, out_specs=spec, scratch_shapes={"buffer": tpu.SMEM((1,), "int32")})
    np.testing.assert_array_equal(run(), [1, 3, 6])
    np.testing.assert_array_equal(seen[...], [2, 6, 12])
    assert len(runs) == 2  # the second for what cells share, which the first asked for


def test_an_array_that_a_kernel_closes_over_beside_a_reference_is_refused() -> None:
    ref, array = weft.new_ref(jnp.asarray(X)), jnp.asarray(X)

    def kernel() -> None:
        ref[...] = array

    with pytest.raises(ValueError, match=r"captures constants \[f32\[6\]\]\. You should pass them as inputs"):
        pl.pallas_call(kernel, ())()


@weft.jit
def add_from_a_core(x: Any, v: Any) -> Any:
    def stateful(ref: Any) -> None:
        @pl.core_map(tpu.create_tensorcore_mesh("core", num_cores=1))
        def _() -> None:
            ref[...] = ref[...] + v

    return pl.run_state(stateful)(x)


def test_core_map_closes_over_numbers_and_arrays() -> None:
    np.testing.assert_array_equal(add_from_a_core(X, 2.0), X + 2)
    np.testing.assert_array_equal(add_from_a_core(X, X), 2 * X)

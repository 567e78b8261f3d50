"""Stages are shown, dumped, verified; simplification says what it keeps."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler, core, errors
from weft import operations as lax
from weft.compiler import pass_manager, pipeline
from weft.compiler.checks import verify
from weft.compiler.passes import pass_list

X = np.arange(6, dtype=np.float32)


def simplified(function: Any, *args: Any) -> core.ClosedJaxpr:
    closed = ladder.traced(function, args)
    small = pass_list.simplified(closed)
    verify.verify("passes", closed, small)
    return small


def names(closed: core.ClosedJaxpr) -> list[str]:
    return [equation.primitive.name for equation in closed.jaxpr.eqns]


def test_equal_equations_are_one() -> None:
    assert names(simplified(lambda x: [lax.add(lax.sin(x), lax.sin(x))], X)) == ["sin", "add"]


def test_what_nobody_reads_is_dropped() -> None:
    def function(x: Any) -> list[Any]:
        lax.exp(x)
        return [lax.neg(x)]

    assert names(simplified(function, X)) == ["neg"]


def test_calls_are_inlined() -> None:
    inner = weft.jit(lambda x: lax.mul(x, x))
    assert names(simplified(lambda x: [lax.add(inner(x), inner(x))], X)) == ["mul", "add"]


def test_exact_algebra_only() -> None:
    assert names(simplified(lambda x: [lax.sub(x, np.float32(0))], X)) == []
    assert names(simplified(lambda x: [lax.add(x, np.float32(0))], X)) == ["add"]
    assert names(simplified(lambda x: [lax.mul(x, np.float32(1))], X)) == []
    assert names(simplified(lambda x: [lax.mul(x, np.float32(0))], X)) == ["mul"]
    assert names(simplified(lambda x: [lax.neg(lax.neg(x))], X)) == []
    assert names(simplified(lambda x: [lax.add(x, np.int32(0))], X.astype(np.int32))) == []
    assert names(simplified(lambda x: [lax.max(np.float32(-np.inf), x)], X)) == []
    assert names(simplified(lambda x: [lax.max(np.float32(np.inf), x)], X)) == ["max"]
    assert names(simplified(lambda x: [lax.min(np.float32(np.inf), x)], X)) == []


def test_reshapes_sink_below_elementwise_operations() -> None:
    small = simplified(lambda x: [lax.exp(lax.reshape(lax.mul(lax.sin(x), x), (2, 3)))], X)
    assert names(small) == ["reshape", "sin", "mul", "exp"]


def test_a_broken_stage_is_named() -> None:
    good = ladder.traced(lambda x: [lax.add(x, x)], [X])
    bad = ladder.traced(lambda x: [lax.mul(x, x)], [X])
    with pytest.raises(errors.InternalError, match="stage: algebra"):
        verify.verify("algebra", good, bad)


def test_stages_print_and_dump(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    closed = ladder.traced(lambda x: [lax.add(x, x)], [X])
    checked = weft.config.read("check")
    try:
        weft.config.update("show", "fuse,lower,schedule")
        weft.config.update("dump", str(tmp_path))
        weft.config.update("check", True)
        pipeline.compile_new(closed, "shown", ())
    finally:
        weft.config.update("show", "")
        weft.config.update("dump", "")
        weft.config.update("check", checked)
    printed = capfd.readouterr().err
    assert "shown: lower" in printed and "kernel add" in printed and "nest add" in printed
    assert {path.suffix for path in tmp_path.iterdir()} >= {".jaxpr", ".fuse", ".lower", ".schedule", ".plan"}


def test_forms_and_all_name_stages_and_other_words_raise(capfd: pytest.CaptureFixture[str]) -> None:
    closed = ladder.traced(lambda x: [lax.add(x, x)], [X])
    try:
        for words, shown in (("kernel,loops", {"fuse", "schedule"}), ("jaxpr", {"jaxpr"}), ("all", {"plan", "asm"})):
            weft.config.update("show", words)
            pipeline.compile_new(closed, "shown", ())
            printed = capfd.readouterr().err
            assert all(f"shown: {stage}" in printed for stage in shown)
        weft.config.update("show", "poetry")
        with pytest.raises(ValueError, match="no stage is called 'poetry'; the names are lower_prng_keys, inline"):
            pipeline.compile_new(closed, "shown", ())
    finally:
        weft.config.update("show", "")


def test_every_form_has_a_text() -> None:
    program = ladder.compiled(ladder.traced(lambda x: [lax.reduce_sum(lax.sin(x), (0,))], [X]))
    for form in ("jaxpr", "kernel", "loops", "llvm", "asm", "plan"):
        assert program.text(form)
    with pytest.raises(ValueError, match="unknown form"):
        program.text("poetry")
    assert program.cost_analysis()["bytes accessed"] == 28
    assert program.memory_analysis()["argument_size_in_bytes"] == 24


def test_equal_programs_are_compiled_once() -> None:
    first = ladder.compiled(ladder.traced(lambda x: [lax.cos(x)], [X]))
    before = compiler.stats()["programs_reused"]
    assert ladder.compiled(ladder.traced(lambda y: [lax.cos(y)], [X])) is first
    assert compiler.stats()["programs_reused"] == before + 1


def test_eager_operations_of_a_fresh_shape_compile_nothing() -> None:
    np.asarray(lax.add(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)))
    before = compiler.stats()["kernels_built"]
    np.asarray(lax.add(np.ones((7, 2, 5), np.float32), np.ones((7, 2, 5), np.float32)))
    assert compiler.stats()["kernels_built"] == before


@pytest.mark.parametrize("skipped", ["simplify", "fuse", "simplify,fuse", "fuse,viewed_operands,boundary_fusion,chain"])
def test_stages_can_be_skipped(skipped: str) -> None:
    def function(x: Any) -> list[Any]:
        y = lax.sub(x, lax.broadcast_in_dim(lax.reduce_max(x, (0,)), x.shape, ()))
        return [lax.reshape(lax.add(y, y), (2, 3)), lax.concatenate([y, lax.rev(lax.mul(x, x), (0,))], 0)]

    closed = ladder.traced(function, [X])
    try:
        weft.config.update("skip", skipped)
        program = pipeline.compile_new(closed, "skipping", ())
    finally:
        weft.config.update("skip", "")
    for out, expected in zip(ladder.by_machine_code(program, [X]), ladder.by_reference(closed, [X]), strict=True):
        np.testing.assert_array_equal(out, expected)
    assert ladder.n_kernels(program) > 2 or skipped == "simplify"


def every_pass(x: Any, table: Any, indices: Any) -> list[Any]:
    """A program in which most passes have something to do."""
    rows = lax.iota(np.int32, 8)
    index = lax.concatenate([lax.reshape(rows, (8, 1)), lax.reshape(indices, (8, 1))], 1)
    picked = jnp.exp(table)[rows, indices]
    scattered = jnp.zeros((8, 8), np.float32).at[index[:, 0], index[:, 1]].add(picked)
    inner = table.at[1:-1].add(table[2:] * 2 - table[:-2])
    rolled = jnp.roll(table, 1, 0) + table
    summed = jnp.pad(x[:3], (0, 3)) + jnp.pad(x[:3], (3, 0))
    product = (table.T @ lax.mul(inner, np.float32(1))).T + jnp.vdot(x, x)
    looped = weft.lax.scan(lambda c, row: (c * 0.5 + row.sum(), c), np.float32(0), table)[0]
    unrolled = weft.lax.scan(lambda c, _: (c * 0.5, c), jnp.tile(table, (1, 600)), None, length=2, unroll=2)[0]
    chosen = weft.lax.cond(True, lambda y: y * 2, lambda y: y - 1, x)
    ordered = jnp.argsort(x)
    sliced = lax.dynamic_slice(jnp.exp(table), (indices[0], 0), (1, 8))
    flat = lax.exp(lax.reshape(lax.sin(table), (64,)))
    unit = lax.reduce_sum(lax.broadcast_in_dim(lax.reduce_sum(table, (1,)), (8, 1), (0,)), (1,))
    key = weft.random.uniform(weft.random.key(1), (3,))
    pooled = weft.lax.reduce_window(table, -np.inf, weft.lax.max, (2, 2), (2, 2), "VALID")
    results = [scattered, inner, rolled, summed, product, looped, unrolled[:, 0], chosen, ordered, sliced, flat, unit]
    return [*results, key, pooled]


TABLE = np.arange(64, dtype=np.float32).reshape(8, 8) / 16
INDICES = np.asarray([3, 0, 7, 1, 1, 2, 6, 5], np.int32)


@pytest.mark.parametrize("skipped", [name for name in pass_manager.OPTIONAL if name in pass_manager.PASSES])
def test_a_program_without_one_pass_has_the_same_results(skipped: str) -> None:
    args = [X, TABLE, INDICES]
    closed = ladder.traced(every_pass, args)
    whole = pipeline.compile_new(closed, "whole", ())
    try:
        weft.config.update("skip", skipped)
        program = pipeline.compile_new(closed, "skipping", ())
    finally:
        weft.config.update("skip", "")
    assert skipped not in program.stages.milliseconds
    for out, expected in zip(ladder.by_machine_code(program, args), ladder.by_machine_code(whole, args), strict=True):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("skipped", [name for name in pass_manager.OPTIONAL if name not in pass_manager.PASSES])
def test_a_program_without_one_stage_has_the_same_results(skipped: str) -> None:
    table = np.arange(16, dtype=np.float32).reshape(4, 4)
    closed = ladder.traced(lambda x: [jnp.pad((x * 2)[1:-1, 1:-1], 1).T @ x], [table])
    expected = np.pad((table * 2)[1:-1, 1:-1], 1).T @ table
    try:
        weft.config.update("skip", skipped)
        program = pipeline.compile_new(closed, "skipping", ())
    finally:
        weft.config.update("skip", "")
    np.testing.assert_array_equal(ladder.by_machine_code(program, [table])[0], expected)


@pytest.mark.parametrize("name", pass_manager.PASSES)
def test_a_pass_is_its_module_and_is_timed(name: str) -> None:
    module = importlib.import_module(f"weft.compiler.passes.{name}")
    assert callable(getattr(module, name)) and "->" in (module.__doc__ or "")
    program = pipeline.compile_new(ladder.traced(every_pass, [X, TABLE, INDICES]), "timed", ())
    assert name in program.stages.milliseconds


@pytest.mark.parametrize(
    "name", [name for name in (*pass_manager.PASSES, *pass_manager.STAGES) if name not in pass_manager.OPTIONAL]
)
def test_what_others_rely_on_cannot_be_skipped(name: str) -> None:
    try:
        weft.config.update("skip", name)
        with pytest.raises(ValueError, match=f"the others rely on '{name}'; what may be left out is fuse"):
            pipeline.compile_new(ladder.traced(lambda x: [lax.sin(x)], [X]), "needed", ())
    finally:
        weft.config.update("skip", "")


def test_a_pass_is_shown_where_it_changed_something(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        weft.config.update("show", "algebra,index_set_splitting")
        pipeline.compile_new(ladder.traced(lambda x: [lax.sin(lax.neg(lax.neg(x)))], [X]), "shown", ())
    finally:
        weft.config.update("show", "")
    printed = capfd.readouterr().err
    assert "shown: algebra\n" in printed and "neg" not in printed and "index_set_splitting" not in printed


def test_a_failing_stage_names_itself_and_keeps_its_program() -> None:
    failing = pass_manager.Stages("failing")
    with pytest.raises(errors.InternalError, match="stage: fuse") as caught:
        failing.run("fuse", lambda program: {}["missing"], "the program")
    assert Path(caught.value.dump).read_text() == "the program\n"
    Path(caught.value.dump).unlink()


def test_cleared_caches_build_again() -> None:
    closed = ladder.traced(lambda x: [lax.tan(x)], [X])
    first = ladder.compiled(closed)
    compiler.clear_caches()
    assert compiler.stats()["kernels"] == compiler.stats()["programs"] == 0
    again = ladder.compiled(closed)
    assert again is not first and again.kernels_built == 1
    np.testing.assert_array_equal(ladder.by_machine_code(first, [X]), ladder.by_machine_code(again, [X]))


def test_the_kernel_cache_is_bounded_in_bytes() -> None:
    compiler.clear_caches()
    before = weft.config.read("cache_bytes")
    try:
        weft.config.update("cache_bytes", 1)
        programs = [ladder.compiled(ladder.traced(f, [X])) for f in (lambda x: [lax.tan(x)], lambda x: [lax.tanh(x)])]
    finally:
        weft.config.update("cache_bytes", before)
    assert compiler.stats()["kernels"] == 0
    for program in programs:  # an evicted kernel lives as long as its program
        assert ladder.by_machine_code(program, [X])


def test_double_precision() -> None:
    with weft.enable_x64(True):
        x = np.linspace(-3, 3, 1000).reshape(20, 50)

        def function(x: Any) -> list[Any]:
            e = lax.exp(lax.sub(x, lax.broadcast_in_dim(lax.reduce_max(x, (1,)), x.shape, (0,))))
            return [e, lax.reduce_sum(e, (1,)), lax.argmax(x, 1, np.int64), lax.convert_element_type(x, np.int64)]

        closed = ladder.traced(function, [x])
        program = ladder.compiled(closed)
        for out, expected in zip(ladder.by_machine_code(program, [x]), ladder.by_reference(closed, [x]), strict=True):
            assert out.dtype == expected.dtype
            np.testing.assert_allclose(out, expected, 1e-14)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, -1.0, 0.75])
def test_literal_exponents_have_the_bits_of_pow(exponent: float, dtype: str) -> None:
    values = np.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 2.5, 7.0, -3.5, 1e30, 0.1], np.float32)
    with np.errstate(over="ignore"):
        x = np.concatenate([values, np.random.default_rng(0).random(2000, np.float32) * 9]).astype(jnp.dtype(dtype))
    y = np.asarray(exponent, x.dtype)
    rewritten = ladder.compiled(ladder.traced(lambda x: [lax.pow(x, y)], [x]))
    general = ladder.compiled(ladder.traced(lambda x, y: [lax.pow(x, y)], [x, y]))
    left, right = ladder.by_machine_code(rewritten, [x])[0], ladder.by_machine_code(general, [x, y])[0]
    assert verify.same_bits(left, right), (x[left != right], left[left != right], right[left != right])
    assert ("pow" in rewritten.text("kernel")) == (exponent == 0.75)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_powers_of_two_of_whole_numbers_are_exact_and_need_no_pow(dtype: str) -> None:
    n = np.concatenate([np.arange(-1200, 1200), [-(2**31), 2**31 - 1, -70_000, 70_000]]).astype(np.int32)
    two = np.asarray(2, jnp.dtype(dtype))

    def of_whole(n: Any) -> list[Any]:
        y = lax.convert_element_type(n, two.dtype)
        y = lax.select(lax.gt(y, lax.full_like(y, 0)), lax.sub(y, lax.full_like(y, 1)), lax.neg(y))
        return [lax.pow(two, y), y]

    with weft.enable_x64(True):
        program = ladder.compiled(ladder.traced(of_whole, [n]))
        powers, exponents = ladder.by_machine_code(program, [n])
        halves = ladder.compiled(ladder.traced(lambda y: [lax.pow(two, lax.mul(y, y))], [exponents]))
    with np.errstate(over="ignore", under="ignore"):
        exact = np.exp2(exponents.astype(np.longdouble)).astype(powers.dtype)
    assert verify.same_bits(powers, exact), exponents[powers != exact]
    assert "pow" not in program.text("kernel")
    assert "pow" in halves.text("kernel")


@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_a_power_of_two_of_a_complex_sum_compiles() -> None:
    z = np.asarray([3, -2, 0.5], np.complex64)
    powers = weft.jit(lambda z: 2.0 ** lax.convert_element_type(z + (1 + 2j), np.float32))(jnp.asarray(z))
    np.testing.assert_allclose(powers, 2 ** (z.real + 1), rtol=1e-6)

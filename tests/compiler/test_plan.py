"""The plan: aliases, memory reuse, donation, run-time offsets."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler
from weft import operations as lax
from weft.compiler import pipeline
from weft.compiler.plans.instructions import Copy, DonatedOutput, Fill, InputOutput, NewOutput, SameOutput

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(function: Any, *args: Any, donated: tuple[bool, ...] = ()) -> tuple[compiler.Program, list[np.ndarray]]:
    closed = ladder.traced(function, args)
    program = ladder.compiled(closed, donated)
    outs = ladder.by_machine_code(program, args)
    for out, expected in zip(outs, ladder.by_reference(closed, args), strict=True):
        np.testing.assert_array_equal(out, expected)
    return program, outs


def test_results_that_are_arguments_or_reshapes_of_them_are_copies() -> None:
    def function(x: Any) -> list[Any]:
        return [x, lax.reshape(x, (4, 3)), lax.expand_dims(x, (0,))]

    program, _ = run(function, X)
    assert [type(output) for output in program.plan.outputs] == [NewOutput] * 3
    assert len(program.plan.instructions) == 3
    shared = pipeline.compile_jaxpr(weft.make_jaxpr(function)(X), shares=True)  # as in weft's own functions
    assert [type(output) for output in shared.plan.outputs] == [InputOutput] * 3
    assert not shared.plan.instructions


def test_a_result_twice_is_made_once() -> None:
    def function(x: Any) -> list[Any]:
        y = lax.neg(x)
        return [y, y, lax.reshape(y, (12,))]

    program, _ = run(function, X)
    assert [type(output) for output in program.plan.outputs] == [NewOutput] * 3
    assert ladder.n_kernels(program) == 1
    shared = pipeline.compile_jaxpr(weft.make_jaxpr(function)(X), shares=True)
    assert [type(output) for output in shared.plan.outputs] == [NewOutput, SameOutput, SameOutput]


def test_a_literal_result_is_an_array() -> None:
    run(lambda x: [np.float32(3), lax.neg(x)], X)


def test_a_dying_temporary_is_written_over() -> None:
    def function(x: Any) -> list[Any]:
        return [lax.cumsum(lax.cumsum(lax.cumsum(x, axis=1), axis=0), axis=1)]

    program, _ = run(function, X)
    assert program.plan.arena_bytes <= 2 * 64


def test_a_donated_argument_is_reused() -> None:
    program, _ = run(lambda x: [lax.add(x, x)], X, donated=(True,))
    (output,) = program.plan.outputs
    assert isinstance(output, DonatedOutput) and output.source == 0


def test_a_donated_argument_that_is_read_elsewhere_is_not() -> None:
    program, _ = run(lambda x: [lax.add(lax.rev(x, (0,)), x)], X, donated=(True,))
    assert isinstance(program.plan.outputs[0], NewOutput)


def test_an_update_of_a_donated_argument_copies_nothing_else() -> None:
    def function(x: Any, u: Any, i: Any) -> list[Any]:
        return [lax.dynamic_update_slice_p.bind(x, u, i, np.int32(0))]

    program, outs = run(function, X, X[:1, :2], np.int32(7), donated=(True, False, False))
    (output,) = program.plan.outputs
    assert isinstance(output, DonatedOutput) and output.source == 0
    np.testing.assert_array_equal(outs[0][2, :2], X[0, :2])


def test_an_update_of_a_dying_temporary_copies_nothing() -> None:
    def function(x: Any, i: Any) -> list[Any]:
        return [lax.dynamic_update_slice_p.bind(lax.neg(x), lax.slice(x, (0, 0), (1, 2)), i, np.int32(1))]

    program, _ = run(function, X, np.int32(1))
    assert not any(isinstance(entry, Copy) for entry in program.plan.instructions)


def test_starts_are_clamped() -> None:
    for start in (-5, 0, 1, 99):
        run(lambda x, i: [lax.neg(lax.dynamic_slice_p.bind(x, i, np.int32(9), slice_sizes=(2, 3)))], X, np.int32(start))


def test_padding_is_written_once() -> None:
    program, _ = run(lambda x: [lax.pad(x, np.float32(0), ((1, 2, 0), (0, 0, 0)))], X)
    assert ladder.n_kernels(program) == 3
    run(lambda x: [lax.pad(x, np.float32(0), ((1, 1, 0), (2, -1, 0)))], X)
    run(lambda x: [lax.pad(x, np.float32(0), ((0, 1, 2), (-1, 1, 1)))], X)


def test_empty_sums_and_products() -> None:
    wide, tall, rows = np.ones((3, 0), np.float32), np.ones((0, 4), np.float32), np.ones((0, 3), np.float32)
    program, _ = run(lambda x, y: [lax.dot_general(x, y, (((1,), (0,)), ((), ())))], wide, tall)
    assert isinstance(program.plan.instructions[0], Fill)
    run(lambda x: [lax.reduce_sum(x, (1,)), lax.reduce_max(x, (1,)), lax.reduce_sum(x, (0, 1))], wide)
    run(lambda x: [lax.reduce_sum(x, (1,)), lax.neg(x)], rows)


def test_general_products() -> None:
    random = np.random.default_rng(0)
    a, b = (np.asarray(random.integers(-4, 5, s), np.float32) for s in ((2, 3, 4, 5), (5, 2, 4, 6)))
    for numbers in (
        (((3,), (0,)), ((0,), (1,))), (((2, 3), (2, 0)), ((0,), (1,))), (((3, 2), (0, 2)), ((0,), (1,))),
        (((3,), (0,)), ((), ())), (((0, 2), (1, 2)), ((3,), (0,))), (((), ()), ((), ())),
    ):  # fmt: skip
        for dtype in (np.float32, np.float64, np.int32, np.complex64):
            if dtype is np.float64:
                continue
            run(lambda x, y, n=numbers: [lax.dot_general(x, y, n)], a.astype(dtype), b.astype(dtype))


def test_constants_are_parameters_of_a_shared_program() -> None:
    programs = []
    for value in (1.0, 2.0):
        (captured,) = ladder.arrays([np.full((3, 4), value, np.float32)])
        closed = ladder.traced(lambda x, c=captured: [lax.add(x, c)], [X])
        programs.append(ladder.compiled(closed))
        np.testing.assert_array_equal(ladder.by_machine_code(programs[-1], [X])[0], X + value)
    assert programs[0].executable is programs[1].executable


def test_a_value_of_which_a_part_is_used_is_stored_whole() -> None:
    def function(x: Any) -> list[Any]:
        y = lax.neg(x)
        return [y, lax.slice(y, (0, 0), (2, 4)), lax.slice(y, (0, 0), (3, 1))]

    run(function, X)


def test_bytes_under_another_dtype_are_an_alias() -> None:
    def function(x: Any) -> list[Any]:
        words = lax.bitcast_convert_type(lax.mul(x, x), np.uint8)
        back = lax.bitcast_convert_type(lax.add(words, np.uint8(1)), np.float32)
        return [words, lax.neg(back), lax.bitcast_convert_type(x, np.int32)]

    run(function, X)
    run(function, X[:0])


def test_many_threads_build_a_kernel_once() -> None:
    compiler.clear_caches()
    before = compiler.stats()["kernels_built"]
    closed = [ladder.traced(lambda x: [lax.atan(x)], [np.ones(n, np.float32)]) for n in range(1, 9)]
    threads = [threading.Thread(target=ladder.compiled, args=(program,)) for program in closed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiler.stats()["kernels_built"] == before + 1


def why(function: Any, *args: Any, donated: tuple[bool, ...] = ()) -> str:
    return run(function, *args, donated=donated)[0].text("plan")


def test_the_text_says_why_a_value_lives_where_it_does() -> None:
    text = why(lambda x: [lax.reshape(x, (4, 3)), lax.cumsum(lax.cumsum(x, axis=1), axis=0)], X)
    assert "a f32[3,4] 48 bytes: input 0\n" in text
    assert "b f32[4,3] 48 bytes: alias of a (input 0)" in text
    assert "result 0: alias of input 0" in why(lambda x: [lax.reshape(x, (4, 3))], X, donated=(True,))
    assert "c f32[3,4] 48 bytes: result 1, new" in text
    assert "d f32[3,4] 48 bytes: result 1; reused from c, which dies in step 1 (cumsum)" in text
    text = why(lambda x: [lax.reduce_sum(lax.cumsum(lax.cumsum(x, axis=1), axis=0), (0, 1))], X)
    assert "temporary 0, at 0 of the arena, from step 0 (cumsum) to step" in text


def test_the_text_says_what_became_of_donated_arguments() -> None:
    assert "input 0, donated; result 0 is written over it" in why(lambda x: [lax.neg(x)], X, donated=(True,))
    reasons = {
        "it is returned as it is": lambda x: [x, lax.neg(x)],
        "no result of 48 bytes is made": lambda x: [lax.reduce_sum(x, (0, 1))],
        "step 0 (add) reads other elements of it": lambda x: [lax.add(lax.rev(x, (0,)), x)],
        "step 1 (cumsum_add) reads it after": lambda x: [lax.add(lax.cumsum(lax.cumsum(x, axis=1), axis=0), x)],
    }
    for reason, function in reasons.items():
        assert f"donated, not reused: {reason}" in why(function, X, donated=(True,)), reason
    both = why(lambda x, y: [lax.add(x, y)], X, X, donated=(True, True))
    assert "another donated argument serves the results of its size" in both


def test_the_text_says_why_a_copy_is_made() -> None:
    def update(x: Any, start: Any) -> Any:
        return lax.dynamic_update_slice(x, np.ones((1, 4), np.float32), (start, np.int32(0)))

    start = np.int32(1)
    assert "is an input that is not donated" in why(lambda x, i: [update(x, i)], X, start)
    donating = why(lambda x, i: [update(x, i)], X, start, donated=(True, False))
    assert "only if others hold donated input 1, which is written over otherwise" in donating

    def returned(x: Any, i: Any) -> list[Any]:
        y = lax.cumsum(x, axis=1)
        return [y, update(y, i)]

    assert "stands in result 0, which must stay" in why(returned, X, start)

    def read_later(x: Any, i: Any) -> list[Any]:
        y = lax.cumsum(x, axis=1)
        z = update(y, i)
        return [lax.cumsum(z, axis=0), lax.reduce_sum(lax.mul(y, lax.cumsum(z, axis=0)), (0, 1))]

    assert "still reads" in why(read_later, X, start)


RECURRENCES: dict[str, Any] = {
    "an element": lambda i, x: x.at[i, 3].set(x[i - 1, 3] * 2 + x[i - 1, 2]),
    "a row": lambda i, x: x.at[i].set(x[i - 1] * 0.5 + 1),
    "a sum of rows": lambda i, x: x.at[i].add(x[i - 1]),
    "a part of a row, from one that overlaps it": lambda i, x: lax.dynamic_update_slice(
        x, lax.dynamic_slice(x, (i, i - 1), (1, 4)) * 2, (i, i)
    ),
    "two elements exchanged": lambda i, x: x.at[i, 3].set(x[i - 1, 3]).at[i - 1, 3].set(x[i, 3]),
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_arrays_in_loops_are_updated_in_place(name: str) -> None:
    """Although the new elements depend on others of the same array: these are read first."""
    x = np.random.default_rng(0).integers(0, 9, size=(20, 40)).astype(np.float32)
    step = weft.jit(RECURRENCES[name], donate_argnums=1)
    plan = step.lower(np.int32(3), x).compile().as_text("plan")
    assert "only if others hold donated input" in plan or "copy of" not in plan, plan
    loop = weft.jit(lambda x: weft.lax.fori_loop(1, 20, RECURRENCES[name], x))
    want = jnp.asarray(x)
    for i in range(1, 20):
        want = RECURRENCES[name](i, want)
    np.testing.assert_array_equal(np.asarray(loop(x)), np.asarray(want))

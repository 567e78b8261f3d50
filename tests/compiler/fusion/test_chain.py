"""Scatters with their producers and consumers as one kernel: which are, which must not be, and that bits stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler, lax
from weft.compiler.checks import verify
from weft.compiler.plans import steps
from weft.compiler.plans.instructions import DonatedOutput

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal(40).astype(np.float32)
UPDATES = RNG.standard_normal(23).astype(np.float32)
TARGETS = RNG.integers(-45, 45, 23).astype(np.int32)
ROWS = RNG.standard_normal((33, 40)).astype(np.float32)
IN_ROWS = RNG.integers(-45, 45, (33, 3)).astype(np.int32)
OF_ROWS = RNG.standard_normal((33, 3)).astype(np.float32)
LABELS = RNG.integers(0, 40, 33).astype(np.int32)


def counted(i: Any) -> Any:
    return jnp.zeros(40, jnp.int32).at[i].add(1)


def in_rows(x: Any, i: Any, u: Any) -> Any:
    return weft.vmap(lambda x, i, u: (x * 3).at[i].add(jnp.exp(u)))(x, i, u)


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(weft.nn.log_softmax(x), labels[:, None], 1))


Case = tuple[Callable[..., Any], tuple[Any, ...]]
FLAT, NESTED = (VALUES, TARGETS, UPDATES), (ROWS, IN_ROWS, OF_ROWS)
ONE_KERNEL: dict[str, Case] = {
    "into zeros": (lambda i, u: jnp.zeros(40).at[i].add(u), (TARGETS, UPDATES)),
    "into integers": (counted, (TARGETS,)),
    "into half floats": (
        lambda i, u: jnp.zeros(40, jnp.bfloat16).at[i].max(u.astype(jnp.bfloat16)),
        (TARGETS, UPDATES),
    ),
    "into truth values": (lambda x, i, u: (x > 0).at[i].set(u > 0), FLAT),
    "into complex numbers": (lambda x, i, u: (x + 2j).at[i].multiply(u + 1j), FLAT),
    "into a function": (lambda x, i, u: jnp.exp(x).at[i].set(u), FLAT),
    "then a function": (lambda x, i, u: jnp.tanh((x * 2).at[i].multiply(jnp.sin(u))), FLAT),
    "then a sum": (lambda x, i, u: jnp.sum(jnp.exp((x * 2).at[i].add(u))), FLAT),
    "then a softmax": (lambda x, i, u: weft.nn.softmax((x * 2).at[i].add(u)), FLAT),
    "then a running sum": (lambda x, i, u: jnp.cumsum((x * 2).at[i].add(u)), FLAT),
    "then backwards": (lambda x, i, u: (x * 2).at[i].add(u)[::-1] + x, FLAT),
    "then another": (lambda x, i, u: (x * 2).at[i].add(u).at[i].min(u * 3), FLAT),
    "of sums": (lambda i, u: jnp.zeros(40).at[i].add(jnp.sum(u, 1)), (IN_ROWS[:, 0], OF_ROWS)),
    "means of segments": (
        lambda i, u: weft.ops.segment_sum(u, i, 40) / (1 + weft.ops.segment_sum(jnp.ones(23), i, 40)),
        (TARGETS, UPDATES),
    ),
    "into what a scalar fills": (
        lambda i, u: jnp.full(40, u[0]).at[i].add(u) - jnp.full(40, u[0]).at[i].max(u),
        (TARGETS, UPDATES),
    ),
    "in rows": (lambda x, i, u: jnp.tanh(in_rows(x, i, u)), NESTED),
    "in rows, then sums of them": (lambda x, i, u: jnp.sum(in_rows(x, i, u), 1), NESTED),
    "in rows, then softmax": (lambda x, i, u: weft.nn.softmax(in_rows(x, i, u)), NESTED),
    "gradient of a cross-entropy": (weft.grad(cross_entropy), (ROWS, LABELS)),
    "nothing is added": (lambda i, u: jnp.zeros(40).at[i].add(u), (TARGETS[:0], UPDATES[:0])),
    "one element": (lambda i, u: jnp.exp(jnp.zeros(1).at[i].add(u)), (TARGETS, UPDATES)),
}


def program_of(function: Callable[..., Any], args: tuple[Any, ...], donated: tuple[bool, ...] = ()) -> compiler.Program:
    return ladder.compiled(ladder.traced(lambda *xs: [function(*xs)], args), donated)


def chains(program: compiler.Program) -> list[steps.Chain]:
    return [entry for entry in program.plan.instructions if isinstance(entry, steps.Chain)]


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_a_scatter_and_its_neighbours_are_one_kernel(name: str) -> None:
    function, args = ONE_KERNEL[name]
    closed = ladder.traced(lambda *xs: [function(*xs)], args)
    program = ladder.compiled(closed)
    assert ladder.n_kernels(program) == 1, program.text("plan")
    (machine,) = ladder.by_machine_code(program, args)
    (eager,) = ladder.by_eager(closed, args)
    assert verify.same_bits(eager, machine)
    for other in (ladder.by_loops(program, args)[0], ladder.by_reference(closed, args)[0]):
        np.testing.assert_allclose(np.asarray(other, np.complex64), np.asarray(machine, np.complex64), 1e-2, 1e-5)


def test_rows_pass_through_in_blocks_on_any_number_of_threads() -> None:
    x = RNG.standard_normal((700, 1001)).astype(np.float32)
    i = RNG.integers(-5, 1010, (700, 9)).astype(np.int32)
    u = RNG.standard_normal((700, 9)).astype(np.float32)
    program = program_of(lambda x, i, u: weft.nn.softmax(in_rows(x, i, u)), (x, i, u))
    (found,) = chains(program)
    assert ladder.n_kernels(program) == 1 and found.rows == 700 and found.block < 10
    apart = np.asarray(weft.nn.softmax(in_rows(jnp.asarray(x), jnp.asarray(i), jnp.asarray(u))))
    for threads in (1, 2):
        with weft.threads(threads):
            (machine,) = ladder.by_machine_code(program, (x, i, u))
        assert machine.tobytes() == apart.tobytes()


@pytest.mark.parametrize(
    "name, after",
    [
        ("rows turned", lambda y: y.T + 1),
        ("rows reversed", lambda y: y[::-1] * y),
        ("columns added", lambda y: y.sum(0)),
    ],
)
def test_what_reads_other_rows_runs_after_all_of_them(name: str, after: Callable[[Any], Any]) -> None:
    x = RNG.standard_normal((600, 500)).astype(np.float32)
    i = RNG.integers(0, 500, (600, 9)).astype(np.int32)
    u = RNG.standard_normal((600, 9)).astype(np.float32)
    program = program_of(lambda x, i, u: after(in_rows(x, i, u)), (x, i, u))
    assert ladder.n_kernels(program) == 2, program.text("plan")
    expected = np.asarray(after(in_rows(jnp.asarray(x), jnp.asarray(i), jnp.asarray(u))))
    for threads in (1, 2):
        with weft.threads(threads):
            (machine,) = ladder.by_machine_code(program, (x, i, u))
        assert machine.tobytes() == expected.tobytes()


def test_long_neighbours_of_a_scatter_in_order_keep_all_workers() -> None:
    i, u = np.zeros(3, np.int32), np.ones(3, np.float32)
    long = program_of(lambda i, u: jnp.tanh(jnp.zeros(1 << 20).at[i].add(u)), (i, u))
    assert not chains(long)
    short = program_of(lambda i, u: jnp.tanh(jnp.zeros(1 << 10).at[i].add(u)), (i, u))
    assert ladder.n_kernels(short) == 1


def test_a_donated_array_is_updated_where_it_stands() -> None:
    def step(x: Any, i: Any, u: Any) -> Any:
        return jnp.tanh(x.at[i].add(u))

    program = program_of(step, FLAT, (True, False, False))
    assert ladder.n_kernels(program) == 1 and isinstance(program.plan.outputs[0], DonatedOutput)
    given = jnp.asarray(VALUES)
    found = weft.jit(step, donate_argnums=0)(given, TARGETS, UPDATES)
    assert given.is_deleted()
    np.testing.assert_array_equal(np.asarray(found), np.asarray(weft.jit(step)(*FLAT)))


def test_chaining_can_be_skipped() -> None:
    try:
        weft.config.update("skip", "chain")
        program = program_of(counted, (TARGETS,))
    finally:
        weft.config.update("skip", "")
    assert ladder.n_kernels(program) == 2
    np.testing.assert_array_equal(ladder.by_machine_code(program, (TARGETS,))[0], counted(jnp.asarray(TARGETS)))


def test_the_plan_shows_what_became_one_kernel() -> None:
    text = program_of(counted, (TARGETS,)).text("plan")
    assert "kernel of 2: copy [40] 1+0; " in text
    rows = program_of(lambda x, i, u: in_rows(x, i, u), NESTED).text("plan")
    assert "kernel of 2, 33 of 33 rows at a time: mul [1320]" in rows


def test_updates_that_are_also_returned_or_made_by_a_product_are_read_by_the_scatter() -> None:
    def both(i: Any, u: Any) -> list[Any]:
        changed = jnp.exp(u)
        return [jnp.zeros(40).at[i].add(changed), changed]

    def of_product(x: Any, i: Any) -> list[Any]:
        entries = jnp.matmul(x, x.T)
        return [weft.vmap(lambda i, u: jnp.zeros(40).at[i].add(u))(i, entries)]

    def of_turned_product(x: Any, i: Any) -> list[Any]:
        starts = lax.ScatterDimensionNumbers((1,), (0,), (0,))
        return [lax.scatter_add(jnp.zeros((50, 40)), i[:, :1], jnp.matmul(x.T, x[:, ::-1]).T[:33], starts)]

    def of_turned_whole(x: Any, i: Any) -> list[Any]:
        starts = lax.ScatterDimensionNumbers((1,), (0,), (0,))
        return [lax.scatter_add(jnp.zeros((50, 33)), i[:, :1], jnp.matmul(x, x.T).T, starts)]

    wide = RNG.integers(-45, 45, (33, 33)).astype(np.int32)
    for function, args in (
        (both, (TARGETS, UPDATES)), (of_product, (ROWS, wide)), (of_turned_product, (ROWS, wide)),
        (of_turned_whole, (ROWS, wide)),
    ):  # fmt: skip
        closed = ladder.traced(function, args)
        for found, expected in zip(
            ladder.by_machine_code(ladder.compiled(closed), args), ladder.by_eager(closed, args), strict=True
        ):
            assert verify.same_bits(found, expected)

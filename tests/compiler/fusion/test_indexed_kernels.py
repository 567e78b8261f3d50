"""Gather and scatter in kernels: what fuses with them, as counts, and the rungs of the oracle ladder."""

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
from weft.compiler.plans.instructions import Copy, DonatedOutput, NewOutput

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((50, 40)).astype(np.float32)
IDS = RNG.integers(-60, 60, 33).astype(np.int32)
BAGS = RNG.integers(0, 50, (9, 5)).astype(np.int32)


def take(x: Any, i: Any, mode: str = "clip") -> Any:
    """Rows of x, negative indices counted from the end."""
    i = jnp.where(i < 0, i + x.shape[0], i)
    numbers = lax.GatherDimensionNumbers(tuple(range(i.ndim, i.ndim + x.ndim - 1)), (0,), (0,))
    return lax.gather(x, lax.expand_dims(i, (i.ndim,)), numbers, (1, *x.shape[1:]), mode=mode)


def put(name: str, x: Any, i: Any, updates: Any, **options: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers(tuple(range(i.ndim, i.ndim + x.ndim - 1)), (0,), (0,))
    return getattr(lax, name)(x, lax.expand_dims(i, (i.ndim,)), updates, numbers, **options)


def points(x: Any, i: Any, j: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
    return lax.gather(x, jnp.stack([i, j], -1), numbers, (1, 1), mode="fill")


def columns(x: Any, i: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((0,), (1,), (1,))
    return lax.gather(x, lax.expand_dims(i, (1,)), numbers, (x.shape[0], 1), mode="clip")


ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda t, i: take(t, i, "fill"), (TABLE, IDS)),
    "rows of rows": (lambda t, i: take(t, take(i, i)), (TABLE, IDS)),
    "scaled rows": (lambda t, i: jnp.sin(take(t, i)) * 3 + 1, (TABLE, IDS)),
    "elements": (take, (TABLE[:, 0], IDS)),
    "elements of half floats": (lambda t, i: take(t, i) * 2, (TABLE[:, 0].astype(jnp.bfloat16), IDS)),
    "points": (points, (TABLE, IDS, IDS[::-1].copy())),
    "columns": (columns, (TABLE, IDS)),
    "sum of products": (lambda x, i, y: jnp.sum(take(x, i) * y), (TABLE[:, 0], IDS, TABLE[0, :33])),
    "sum of each row": (lambda t, i: jnp.sum(take(t, i), axis=1), (TABLE, IDS)),
    "bags of rows": (lambda t, i: jnp.sum(take(t, i), axis=1), (TABLE, BAGS)),
    "mean of bags": (lambda t, i: jnp.mean(take(t, i), axis=0), (TABLE, IDS)),
    "softmax of rows": (lambda t, i: weft.nn.softmax(take(t, i)), (TABLE, IDS)),
    "softmax of elements": (lambda t, i: weft.nn.softmax(take(t, i)), (TABLE[:, 0], BAGS)),
    "set rows": (lambda t, i, u: put("scatter", t, i, u * 2), (TABLE, IDS, TABLE[:33])),
    "add to rows": (lambda t, i, u: put("scatter_add", t, i, u + 1), (TABLE, IDS, TABLE[:33])),
    "add to elements": (lambda t, i, u: put("scatter_add", t, i, u), (TABLE[:, 0], IDS, TABLE[0, :33])),
    "computed indices": (lambda t, i, u: put("scatter_max", t, (i * 7) % 50, u), (TABLE, IDS, TABLE[:33])),
    "add functions of elements": (
        lambda t, i, u: put("scatter_add", t, i, jnp.exp(u) * 2),
        (TABLE[:, 0], IDS, TABLE[0, :33]),
    ),
    "add functions, clipped": (
        lambda t, i, u: put("scatter_mul", t, i, jnp.sin(u), mode="clip"),
        (TABLE[:, 0], IDS, TABLE[0, :33]),
    ),
    "remainders as indices": (lambda t, i, u: put("scatter", t, i % 7, u), (TABLE[:, 0], IDS, TABLE[0, :33])),
    "functions of gathered half floats": (
        lambda t, i, u: put("scatter_max", t, i, jnp.tanh(take(u, i))),
        (TABLE[:, 0].astype(jnp.bfloat16), IDS, TABLE[:, 1].astype(jnp.bfloat16)),
    ),
    "add gathered rows": (lambda t, i, u: put("scatter_add", t, i, take(u, i)), (TABLE, IDS, TABLE[::-1].copy())),
}


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> compiler.Program:
    """Every rung of the ladder, compared."""
    closed = ladder.traced(lambda *xs: [function(*xs)], args)
    program = ladder.compiled(closed)
    (machine,) = ladder.by_machine_code(program, args)
    (loops,) = ladder.by_loops(program, args)
    assert machine.shape == loops.shape
    np.testing.assert_allclose(loops.astype(np.float64), machine.astype(np.float64), 1e-5, 1e-6)
    (eager,) = ladder.by_eager(closed, args)
    assert verify.same_bits(eager, machine)
    (reference,) = ladder.by_reference(closed, args)
    np.testing.assert_allclose(reference.astype(np.float64), machine.astype(np.float64), 1e-5, 1e-6)
    return program


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str) -> None:
    function, args = ONE_KERNEL[name]
    program = run(function, args)
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    assert program.plan.arena_bytes == 0, program.text("plan")


def test_another_shape_has_the_same_kernels() -> None:
    for function, shapes in (
        (take, [((50, 40), (33,)), ((7, 3), (5,)), ((1, 1), (1,)), ((1000, 16), (2,))]),
        (lambda t, i: put("scatter_add", t, i, take(t, i) * 2), [((50, 40), (33,)), ((7, 3), (5,)), ((3, 100), (9,))]),
    ):
        built = []
        for shape, ids in shapes:
            args = (np.ones(shape, np.float32), np.zeros(ids, np.int32))
            program = ladder.compiled(ladder.traced(lambda *xs, f=function: [f(*xs)], args))
            built.append(program.nests())
        assert all(nests == built[0] for nests in built[1:])


def copies(program: compiler.Program) -> int:
    return sum(isinstance(entry, Copy) for entry in program.plan.instructions)


def test_a_dead_array_is_updated_in_place() -> None:
    def on_zeros(i: Any, u: Any) -> Any:
        return put("scatter_add", jnp.zeros((50, 40), jnp.float32), i, u)

    program = run(on_zeros, (IDS, TABLE[:33]))
    assert copies(program) == 0 and program.plan.arena_bytes == 0
    live = ladder.compiled(ladder.traced(lambda t, i, u: [put("scatter_add", t, i, u)], (TABLE, IDS, TABLE[:33])))
    assert copies(live) == 1
    closed = ladder.traced(lambda t, i, u: [put("scatter_add", t, i, u)], (TABLE, IDS, TABLE[:33]))
    assert isinstance(ladder.compiled(closed, (True, False, False)).plan.outputs[0], DonatedOutput)
    # an update that reads the array it changes needs the old one
    reads = ladder.traced(lambda t, i: [put("scatter_add", t, i, take(t, i[::-1]))], (TABLE, IDS))
    program = ladder.compiled(reads, (True, False))
    assert copies(program) == 1 and isinstance(program.plan.outputs[0], NewOutput)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_sums_are_rounded_in_index_order(dtype: Any) -> None:
    """Bit for bit NumPy's add.at, however many threads there are."""
    rng = np.random.default_rng(1)
    n = 20_000
    i = rng.integers(0, 37, n).astype(np.int32)
    for shape in ((37,), (37, 19)):
        u = (rng.standard_normal((n, *shape[1:])) * 10).astype(dtype)
        expected = np.zeros(shape, dtype)
        np.add.at(expected, i, u)
        with weft.enable_x64(True):
            for threads in (1, 2):
                with weft.threads(threads):
                    found = weft.jit(lambda i, u, s=shape: put("scatter_add", jnp.zeros(s, u.dtype), i, u))(i, u)
                assert np.asarray(found).tobytes() == expected.tobytes()


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
def test_no_index_reads_or_writes_outside(mode: str) -> None:
    """Indices at every extreme: a wild access would crash or change a neighbour."""
    extremes = [0, -1, 1, 2**31 - 1, -(2**31), 12345678, -12345678, 49, 50]
    ids = np.array(extremes * 40, np.int32)
    expected = {"fill": [row if 0 <= row < 50 else None for row in extremes]}
    rows = expected.get(mode, [min(max(row, 0), 49) for row in extremes])
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    found = np.asarray(lax.gather(TABLE, ids[:, None], numbers, (1, 40), mode=mode)).reshape(40, len(rows), 40)
    for k, row in enumerate(rows):
        want = np.full(40, np.nan, np.float32) if row is None else TABLE[row]
        assert np.array_equal(found[:, k], np.broadcast_to(want, (40, 40)), equal_nan=True)
    put_numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    updates = np.ones((len(ids), 40), np.float32)
    counted = np.asarray(lax.scatter_add(np.zeros_like(TABLE), ids[:, None], updates, put_numbers, mode=mode))
    targets = rows if mode == "clip" else [row for row in extremes if 0 <= row < 50]
    want_counts = np.bincount(np.array(targets), minlength=50) * 40
    assert np.array_equal(counted, np.broadcast_to(want_counts[:, None], (50, 40)))

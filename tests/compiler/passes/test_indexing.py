"""Gathers and scatters in normal form: what they become, and that results stay."""

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
from weft.compiler.passes import indexing, inline
from weft.compiler.plans.instructions import Copy
from weft.core import kinds

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 15)).astype(np.float32)
CUBE = RNG.standard_normal((6, 4, 15)).astype(np.float32)
Y = RNG.integers(-20, 20, 24).astype(np.int32)

BATCHED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "one entry a row": (lambda x, y: x.at[jnp.arange(24), y].add(1.5), (X, Y), (0,)),
    "one entry a column": (lambda x, y: x.T.at[y, jnp.arange(24)].multiply(jnp.sin(y)), (X, Y), (1,)),
    "several entries a row": (
        lambda x, y: x.at[jnp.arange(24)[:, None], jnp.stack([y, y + 1, y], 1)].set(jnp.arange(3.0)), (X, Y), (0,)
    ),
    "dropped": (lambda x, y: x.at[jnp.arange(24), y].min(-1.0, mode="drop"), (X, Y), (0,)),
    "clipped": (lambda x, y: x.at[jnp.arange(24), y].max(9.0, mode="clip"), (X, Y), (0,)),
    "two counts": (
        lambda x, y: x.at[jnp.arange(6)[:, None], jnp.arange(4)[None], y.reshape(6, 4)].add(2.0), (CUBE, Y), (0, 1)
    ),
    "mapped": (
        lambda x, y: weft.vmap(lambda x, y: x.at[jnp.arange(4), y].add(2.0))(x, y.reshape(6, 4)), (CUBE, Y), (0, 1)
    ),
}  # fmt: skip
NOT_BATCHED: dict[str, Callable[..., Any]] = {
    "fewer rows": lambda x, y: x.at[jnp.arange(15), y[:15]].add(1.5),
    "backwards": lambda x, y: x.at[jnp.arange(24)[::-1], y].add(1.5),
    "counted by NumPy": lambda x, y: x.at[np.arange(24), y].add(1.5),
    "shifted": lambda x, y: x.at[jnp.arange(24) + 1, y].add(1.5),
    "the same row": lambda x, y: x.at[jnp.zeros(24, jnp.int32), y].add(1.5),
}


def scatters(program: compiler.Program) -> list[Any]:
    return [eqn for eqn in program.jaxpr.eqns if isinstance(eqn.primitive.kind, kinds.Scatter)]


def checked(function: Callable[..., Any], args: tuple[Any, ...]) -> compiler.Program:
    """The compiled program, whose result is that of the operations one by one."""
    closed = ladder.traced(lambda *xs: [function(*xs)], args)
    program = ladder.compiled(closed)
    (machine,) = ladder.by_machine_code(program, args)
    (eager,) = ladder.by_eager(closed, args)
    assert verify.same_bits(eager, machine)
    (reference,) = ladder.by_reference(closed, args)
    np.testing.assert_allclose(reference, machine, 1e-5, 1e-6)
    return program


@pytest.mark.parametrize("name", BATCHED)
def test_counted_rows_are_a_batch(name: str) -> None:
    function, args, batch = BATCHED[name]
    (scatter,) = scatters(checked(function, args))
    assert scatter.params["dimension_numbers"].operand_batching_dims == batch


@pytest.mark.parametrize("name", NOT_BATCHED)
def test_other_index_vectors_stay(name: str) -> None:
    (scatter,) = scatters(checked(NOT_BATCHED[name], (X, Y)))
    assert scatter.params["dimension_numbers"].operand_batching_dims == ()


def test_the_gradient_of_picked_entries_is_one_kernel() -> None:
    def loss(x: Any, y: Any) -> Any:
        return -jnp.mean(weft.nn.log_softmax(x)[jnp.arange(24), y])

    assert ladder.n_kernels(checked(weft.grad(loss), (X, np.abs(Y) % 15))) == 1


def stencil(u: Any) -> Any:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


UPDATES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], None]]] = {
    "add": (
        lambda u: u.at[1:-1, 1:-1].add(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], u[1:-1, 1:-1] + stencil(u)),
    ),
    "set": (
        lambda u: u.at[1:-1, 1:-1].set(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], stencil(u)),
    ),
    "min": (
        lambda u: u.at[1:-1, 1:-1].min(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], np.minimum(u[1:-1, 1:-1], stencil(u))),
    ),
    "rows": (lambda u: u.at[1:].add(u[:-1]), lambda u: u.__setitem__(np.s_[1:], u[1:] + u[:-1])),
    "columns": (
        lambda u: u.at[:, :-2].multiply(u[:, 2:]),
        lambda u: u.__setitem__(np.s_[:, :-2], u[:, :-2] * u[:, 2:]),
    ),
    "a corner": (
        lambda u: u.at[:5, :7].set(u[1:, 1:8]),
        lambda u: u.__setitem__(np.s_[:5, :7], u[1:, 1:8].copy()),
    ),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_updates_of_known_windows(name: str, dtype: Any) -> None:
    function, in_place = UPDATES[name]
    x = np.random.default_rng(0).integers(-50, 50, (6, 8)).astype(dtype)
    expected = x.copy()
    in_place(expected)
    assert np.asarray(weft.jit(function)(x)).tobytes() == expected.tobytes()
    assert np.asarray(weft.jit(lambda u: lax.fori_loop(0, 1, lambda i, v: function(v), u))(x)).tolist() == (
        expected.tolist()
    )


def test_a_stencil_is_one_kernel_with_its_columns_and_two_rows_of_the_border() -> None:
    program = ladder.compiled(weft.make_jaxpr(UPDATES["add"][0])(np.zeros((60, 80), np.float32)))
    assert program.plan.arena_bytes == 0, program.text("plan")
    assert ladder.n_kernels(program) == 3, program.text("kernel")
    assert not any(isinstance(entry, Copy) for entry in program.plan.instructions)


def test_an_update_of_little_stays_in_place() -> None:
    program = ladder.compiled(weft.make_jaxpr(lambda u: u.at[0].set(u[1] * 2))(np.zeros((60, 80), np.float32)))
    assert "scatter" in program.text("kernel")


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (5, 0), (-1, 0), (0, 9)])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_windows_at_the_edge(start: tuple[int, int], mode: str) -> None:
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (0, 1))

    def function(u: Any) -> Any:
        return lax.scatter_add(u, jnp.stack([jnp.int32(k) for k in start]), u[1:, 2:] * 2, numbers, mode=mode)

    with weft.disable_jit():
        expected = np.asarray(function(jnp.asarray(x)))
    assert np.asarray(weft.jit(function)(x)).tolist() == expected.tolist()


def test_the_gradient_through_a_known_window() -> None:
    x = np.random.default_rng(1).standard_normal((5, 6))

    def loss(u: Any) -> Any:
        return jnp.sum(jnp.sin(UPDATES["add"][0](u)))

    with weft.enable_x64():
        gradient = np.asarray(weft.jit(weft.grad(loss))(x))
        for index in ((0, 0), (2, 3), (4, 5), (1, 1)):
            step = np.zeros_like(x)
            step[index] = 1e-6
            slope = (float(loss(jnp.asarray(x + step))) - float(loss(jnp.asarray(x - step)))) / 2e-6
            np.testing.assert_allclose(gradient[index], slope, rtol=1e-6, atol=1e-8)


def test_blocks_of_blocks_are_written_once() -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((4, 5), (4, 3), (6, 8)))

    def block(a: Any, b: Any, c: Any) -> Any:
        return lax.concatenate([lax.concatenate([a * 2, b], 1), c + 1], 0)

    program = ladder.compiled(weft.make_jaxpr(block)(a, b, c))
    assert program.plan.arena_bytes == 0, program.text("plan")
    expected = np.block([[a * 2, b], [c + 1]])
    assert np.asarray(weft.jit(block)(a, b, c)).tolist() == expected.tolist()

    def kept(a: Any, b: Any, c: Any) -> Any:
        top = lax.concatenate([a * 2, b], 1)
        return lax.concatenate([top, c + 1], 0), top

    whole, top = weft.jit(kept)(a, b, c)
    assert np.asarray(whole).tolist() == expected.tolist()
    assert np.asarray(top).tolist() == expected[:4].tolist()
    padded = weft.jit(lambda a, b: lax.concatenate([lax.pad(a, np.float32(7), ((1, 1, 0), (0, 0, 1))), b], 1))
    wide = np.full((6, 9), 7, np.float32)
    wide[1:5, ::2] = a
    assert np.asarray(padded(a, c)).tolist() == np.concatenate([wide, c], 1).tolist()


@pytest.mark.parametrize("update", ["add", "set", "max", "multiply"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 9), (40, 70), (700, 900)])
def test_a_window_that_does_not_read_the_array_is_written_by_vectors(shape: tuple[int, int], update: str) -> None:
    rng = np.random.default_rng(shape[0])
    x = rng.integers(-50, 50, shape).astype(np.float32)
    for _ in range(3):
        low = [int(rng.integers(0, extent)) for extent in shape]
        index = tuple(slice(begin, int(rng.integers(begin + 1, extent + 1))) for begin, extent in zip(low, shape))
        v = rng.integers(-9, 9, x[index].shape).astype(np.float32)
        ufunc = {"add": np.add, "set": lambda _, v: v, "max": np.maximum, "multiply": np.multiply}[update]
        want = x.copy()
        want[index] = ufunc(x[index], v)

        def f(x: Any, v: Any, index: Any = index) -> Any:
            return getattr(x.at[index], update)(v)

        for donated in ((), (0,)):
            jitted = weft.jit(f, donate_argnums=donated)
            np.testing.assert_array_equal(jitted(jnp.asarray(x), v), want)
    text = weft.jit(lambda x, v: x.at[1:-1].add(v), donate_argnums=0).lower(np.ones(999), np.ones(997)).compile()
    assert "lanes" in text.as_text("loops")


@pytest.mark.parametrize("start", [-2, 0, 3, 5, 6])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_one_window_at_an_index_that_is_known_late(start: int, mode: str) -> None:
    x, v = np.arange(90, dtype=np.float32).reshape(9, 10), np.ones((4, 10), np.float32)
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (0,))
    first = min(max(start, 0), 5) if mode == "clip" else start
    want = x.copy()
    if 0 <= first <= 5:
        want[first : first + 4] += 1
    f = weft.jit(lambda x, s, v: lax.scatter_add(x, s, v, numbers, mode=mode))
    np.testing.assert_array_equal(f(x, np.array([start], np.int32), v), want)


N = 40_003  # no multiple of the number of parts


def random_indices(extent: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(0).integers(-2 * extent, 2 * extent, n).astype(np.int32)


def is_split(function: Callable[..., Any], *args: Any) -> bool:
    closed = inline.inline(weft.make_jaxpr(function)(*args))
    found = [eqn for eqn in indexing.indexing(closed).jaxpr.eqns if isinstance(eqn.primitive.kind, kinds.Scatter)]
    return any(eqn.params["dimension_numbers"].operand_batching_dims for eqn in found)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
@pytest.mark.parametrize("name", ["add", "subtract", "max", "min"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_combiners(dtype: Any, name: str, mode: str) -> None:
    """Results wrap as one after the other would; indices from the end, and out of bounds."""
    rng = np.random.default_rng(1)
    at, updates = random_indices(50), rng.integers(0, 100, N).astype(dtype)
    x = rng.integers(0, 100, 50).astype(dtype)

    def update(x: Any, at: Any, updates: Any) -> Any:
        return getattr(x.at[at], name)(updates, mode=mode)

    expected, targets = x.copy(), np.where(at < 0, at + 50, at)
    inside = (targets >= 0) & (targets < 50)
    targets, given = (np.clip(targets, 0, 49), updates) if mode == "clip" else (targets[inside], updates[inside])
    ufunc = {"add": np.add, "subtract": np.subtract, "max": np.maximum, "min": np.minimum}[name]
    ufunc.at(expected, targets, given)
    np.testing.assert_array_equal(weft.jit(update)(x, at, updates), expected)
    assert is_split(update, x, at, updates)


def test_windows_and_counts() -> None:
    """Rows as windows; counts; a histogram."""
    at = np.abs(random_indices(20)) % 20
    rows = np.random.default_rng(2).integers(0, 9, (N, 3)).astype(np.int32)
    expected = np.zeros((20, 3), np.int32)
    np.add.at(expected, at, rows)
    np.testing.assert_array_equal(weft.jit(lambda r, i: jnp.zeros((20, 3), int).at[i].add(r))(rows, at), expected)
    np.testing.assert_array_equal(weft.jit(lambda i: jnp.bincount(i, length=15))(at), np.bincount(at)[:15])
    values = np.random.default_rng(3).normal(size=N).astype(np.float32)
    got, expected = jnp.histogram(values, 30, (-2, 2))[0], np.histogram(values, 30, (-2, 2))[0]
    assert got.dtype == np.float32 and got.sum() == expected.sum() and np.abs(got - expected).max() <= 2


def test_floats_and_large_arrays_stay() -> None:
    """Sums of floats keep their order; a large array would be cleared and added more often than it is updated."""
    at = np.abs(random_indices(50)) % 50
    assert not is_split(lambda i: jnp.zeros(50).at[i].add(1.0), at)
    assert not is_split(lambda i: jnp.zeros(9000, int).at[i].add(1), at)
    assert not is_split(lambda i: jnp.zeros(50, int).at[i].add(1), at[:9000])


def operations(function: Callable[..., Any], *args: Any) -> list[str]:
    """The operations of a program in this form."""
    made = indexing.indexing(inline.inline(weft.make_jaxpr(function)(*args)))
    return [eqn.primitive.name for eqn in inline.inline(made).jaxpr.eqns]


def test_operations() -> None:
    picked = lax.GatherDimensionNumbers((0,), (0,), (0,))
    row = operations(lambda x: lax.gather(x, jnp.array([2], jnp.int32), picked, (1, 15)), X)
    assert "gather" in row  # the position is an array
    known = operations(lambda x: lax.gather(x, lax.full((1,), np.int32(2)), picked, (1, 15)), X)
    assert known == ["slice", "reshape"]
    assert operations(lambda x: x.at[1:-1].set(x[1:-1] * 2), X)[-1] == "concatenate"
    assert operations(lambda x: x.at[:2].set(x[:2] * 2), X)[-1] == "scatter"
    chosen = operations(lambda y: jnp.zeros((24, 15)).at[jnp.arange(24), y].add(1.5), Y)
    assert chosen[-1] == "select_n" and "scatter-add" not in chosen
    assert "scatter-add" in operations(lambda x, y: x.at[jnp.arange(24), y].add(1.5), X, Y)


def test_a_window_of_a_small_array_is_a_region_in_loops() -> None:
    closed = inline.inline(weft.make_jaxpr(lambda x, i: x.at[i].add(2.0))(X[0], np.int32(3)))
    names = [eqn.primitive.name for eqn in inline.inline(indexing.single_windows(closed)).jaxpr.eqns]
    assert "scatter-add" not in names and {"dynamic_slice", "dynamic_update_slice"} <= set(names)

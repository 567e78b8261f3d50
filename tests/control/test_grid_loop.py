"""grid_loop: a program on blocks of arrays, for every cell of a grid, is what NumPy computes cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from tests.control.grids import Kernel, block
from weft import runtime
from weft.control import grid_cells, grid_order
from weft.core import avals

F32 = np.float32


def numbers(*shape: int, dtype: Any = F32) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 17 - 5).reshape(shape).astype(dtype)


def tiles() -> Kernel:
    """Tiles of a matrix with ragged edges, each with its number added."""
    return Kernel(
        (3, 2),
        lambda i, j, x, y: [x * F32(2) + (i * 10 + j).astype(F32)],
        [block(4, 3), block(4, 3)],
        [lambda i, j: (i, j)] * 2,
    )


def product(parts: int = 2) -> Kernel:
    """A product whose sum is taken over the last axis of the grid, in a scratch array."""

    def body(i: Any, j: Any, k: Any, x: Any, y: Any, out: Any, total: Any) -> Any:
        where = np.where if isinstance(x, np.ndarray) else jnp.where
        total = where(k == 0, F32(0), total) + x @ y
        return [where(k == parts - 1, total, out), total]

    return Kernel(
        (2, 3, parts), body, [block(4, 8), block(8, 5), block(4, 5)],
        [lambda i, j, k: (i, k), lambda i, j, k: (k, j), lambda i, j, k: (i, j)], scratch=[((4, 5), F32)],
    )  # fmt: skip


def running() -> Kernel:
    """A sum over all rows before, kept in a scratch array that the first cell sets."""

    def body(i: Any, x: Any, y: Any, total: Any) -> Any:
        where = np.where if isinstance(x, np.ndarray) else jnp.where
        total = where(i == 0, F32(0), total) + x
        return [total, total]

    return Kernel((6,), body, [block(None, 4)] * 2, [lambda i: (i, 0)] * 2, scratch=[((4,), F32)])


def histogram() -> Kernel:
    """Prefetched numbers say which row of the output a row is added to."""
    return Kernel(
        (5,),
        lambda i, which, x, y: [x + y],
        [block(1, 3), block(1, 3)],
        [lambda i, which: (i, 0), lambda i, which: (which[i], 0)],
    )


def windows() -> Kernel:
    """Overlapping windows, that begin at elements, of an array with elements missing at both ends."""
    return Kernel(
        (4,),
        lambda i, x, y: [y * F32(0) + x[1:3]],
        [block(4, elements={0: (1, 1)}), block(2)],
        [lambda i: (i * 2,), lambda i: (i,)],
    )


CASES: dict[str, tuple[Kernel, list[Any], list[Any], list[Any]]] = {
    "tiles": (tiles(), [numbers(10, 6)], [numbers(10, 6)], []),
    "tiles_of_integers": (
        Kernel((3,), lambda i, x, y: [x + y * i], [block(4)] * 2, [lambda i: (i,)] * 2),
        [numbers(10, dtype=np.int32)], [numbers(10, dtype=np.int32)], [],
    ),
    "product": (product(), [numbers(8, 16), numbers(16, 15)], [numbers(8, 15)], []),
    "running": (running(), [numbers(6, 4)], [numbers(6, 4)], []),
    "histogram": (histogram(), [numbers(5, 3)], [numbers(4, 3)], [np.array([0, 3, 0, 9, -2], np.int32)]),
    "windows": (windows(), [numbers(8)], [numbers(8)], []),
    "revisited": (
        Kernel((2, 3), lambda i, j, x, y: [y + x * (j + 1).astype(F32)], [block(2, 4), block(2, 4)],
               [lambda i, j: (i, j), lambda i, j: (i, 0)]),
        [numbers(4, 12)], [numbers(4, 4)], [],
    ),
    "revisited_later": (
        Kernel((3, 2), lambda i, j, x, y: [y * F32(0.5) + x], [block(4), block(4)],
               [lambda i, j: (i * 2 + j,), lambda i, j: (j,)]),
        [numbers(24)], [numbers(8)], [],
    ),
    "some_untouched": (
        Kernel((2,), lambda i, x, y: [x - y], [block(2, 2)] * 2, [lambda i: (i, i)] * 2),
        [numbers(4, 4)], [numbers(4, 4)], [],
    ),
    "outside": (
        Kernel((4,), lambda i, x, y: [x + y], [block(3)] * 2, [lambda i: (i * 2 - 1,), lambda i: (i,)]),
        [numbers(10)], [numbers(10)], [],
    ),
    "transposed": (
        Kernel((2, 3), lambda i, j, x, y: [x.T], [block(2, 4), block(4, 2)],
               [lambda i, j: (i, j), lambda i, j: (j, i)]),
        [numbers(4, 12)], [numbers(12, 4)], [],
    ),
    "backwards": (
        Kernel((4,), lambda i, x, y: [x * F32(3)], [block(2, None)] * 2, [lambda i: (3 - i, 1), lambda i: (i, 0)]),
        [numbers(8, 2)], [numbers(8, 1)], [],
    ),
    "points": (
        Kernel((3, 2), lambda i, j, x, y, out, other: [x * F32(2) + out * x, y - F32(1)], [block(4, 3)] * 4,
               [lambda i, j: (2 - i, j)] * 4),
        [numbers(10, 6), numbers(10, 6) + F32(1)], [numbers(10, 6)] * 2, [],
    ),
    "squeezed_points": (
        Kernel((3, 2), lambda i, j, x, y: [x * F32(2) + y], [block(None, 3)] * 2, [lambda i, j: (i, j)] * 2),
        [numbers(3, 6)], [numbers(3, 6)], [],
    ),
    "points_of_some": (
        Kernel((2, 2), lambda i, j, x, y: [x * F32(2) + y], [block(2, 3)] * 2, [lambda i, j: (i, j)] * 2),
        [numbers(6, 6)], [numbers(6, 6)], [],
    ),
    "one_cell": (Kernel((), lambda x, y: [x + y], [block(3)] * 2, [lambda: (0,)] * 2), [numbers(3)], [numbers(3)], []),
    "no_cells": (
        Kernel((0, 3), lambda i, j, x, y: [x], [block(3)] * 2, [lambda i, j: (i,)] * 2), [numbers(3)], [numbers(3)], [],
    ),
    "scalars": (
        Kernel((3,), lambda i, x, y: [y + x], [block(None), block()], [lambda i: (i,), lambda i: ()]),
        [numbers(3)], [F32(2)], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cells_are_what_numpy_computes(name: str) -> None:
    kernel, inputs, outputs, prefetched = CASES[name]
    wanted = kernel.in_numpy(inputs, [np.asarray(x) for x in outputs], prefetched)
    for in_order in (True, False):

        def run(*groups: Any, in_order: bool = in_order) -> Any:
            return kernel(*groups, in_order=in_order)

        found = weft.jit(run)(inputs, outputs, prefetched)
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(have, want)


def test_outside_of_jit() -> None:
    x, y = numbers(10, 6), numbers(10, 6)
    np.testing.assert_array_equal(tiles()([x], [y])[0], tiles().in_numpy([x], [y])[0])


@pytest.mark.parametrize("name", ["tiles", "product", "running", "histogram", "windows", "outside"])
@pytest.mark.parametrize("mapped", [(0, 0, 0), (None, 0, None), (1, None, 0)])
def test_vmap(name: str, mapped: tuple[int | None, ...]) -> None:
    kernel, *operands = CASES[name]

    def stacked(x: Any, dim: int | None) -> Any:
        return x if dim is None else np.moveaxis(np.stack([x, x + x.dtype.type(1), x * x.dtype.type(2)]), 0, dim)

    operands = [[np.asarray(x) for x in group] for group in operands]
    given = [[stacked(x, dim) for x in group] for group, dim in zip(operands, mapped, strict=True)]
    found = weft.vmap(lambda *a: kernel(*a), in_axes=mapped)(*given)
    for at in range(3):
        mine = [
            [x if dim is None else np.take(x, at, axis=dim) for x in group]
            for group, dim in zip(given, mapped, strict=True)
        ]
        for have, want in zip(found, kernel.in_numpy(*mine), strict=True):
            np.testing.assert_array_equal(have[at], want)


def test_values_of_the_caller_reach_the_body() -> None:
    x = numbers(6)

    def scaled(x: Any, by: Any) -> Any:
        kernel = Kernel((3,), lambda i, x, y: [x * by], [block(2)] * 2, [lambda i: (i,)] * 2)
        return kernel([x], [jnp.zeros_like(x)])[0]

    np.testing.assert_array_equal(weft.jit(scaled)(x, F32(3)), x * 3)
    np.testing.assert_array_equal(weft.vmap(scaled, (None, 0))(x, np.array([1, 2], F32))[1], x * 2)
    np.testing.assert_array_equal(weft.grad(lambda x: scaled(x, F32(3)).sum())(x), np.full(6, 3, F32))


def test_a_loop_of_grids() -> None:
    x = numbers(10, 6)

    def repeated(x: Any) -> Any:
        return weft.lax.fori_loop(0, 3, lambda n, y: tiles()([y], [jnp.zeros_like(y)])[0], x)

    wanted = x
    for _ in range(3):
        wanted = tiles().in_numpy([wanted], [np.zeros_like(x)])[0]
    np.testing.assert_array_equal(weft.jit(repeated)(x), wanted)


def test_prints_of_the_cells_come_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def body(i: Any, j: Any, x: Any, y: Any) -> Any:
        weft.debug.print("{} {}", i, j, ordered=True)
        return [x]

    kernel = Kernel((2, 2), body, [block(1, 1)] * 2, [lambda i, j: (i, j)] * 2)
    weft.jit(lambda x: kernel([x], [x])[0])(numbers(2, 2)).block_until_ready()
    weft.effects_barrier()
    assert capsys.readouterr().out == "0 0\n0 1\n1 0\n1 1\n"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda k: setattr(k, "grid", (-3, 2)), r"grid\[0\] is -3"),
        (lambda k: setattr(k, "semantics", ("parallel",)), "for each of the 2 axes"),
        (lambda k: setattr(k, "blocks", [block(4), block(4, 3)]), "input 0 is f32.10,6., its block has 1 dimensions"),
        (lambda k: setattr(k, "blocks", [block(4, 0), block(4, 3)]), "at least one element"),
        (lambda k: setattr(k, "maps", [k.maps[0], lambda i, j: (i,)]), "output 0: its index map gives an integer for"),
        (lambda k: setattr(k, "maps", k.maps[:1]), "1 inputs and 1 outputs have 2 blocks and 1 maps"),
        (lambda k: setattr(k, "body", lambda *a: [a[2][0]]), "the body's result gives f32.3. as value 0, but it is"),
        (lambda k: setattr(k, "body", lambda *a: []), "gives 0 values, but the grid has 1"),
    ],
)
def test_what_does_not_fit_is_an_error(change: Any, text: str) -> None:
    kernel = tiles()
    change(kernel)
    with pytest.raises(ValueError, match=text):
        kernel([numbers(10, 6)], [numbers(10, 6)])


@pytest.fixture
def eight_threads() -> Any:
    before = runtime.Pool.get_threads()
    runtime.Pool.set_threads(8)
    yield
    runtime.Pool.set_threads(before)


@pytest.mark.usefixtures("eight_threads")
def test_many_threads_give_the_bits_of_one() -> None:
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal((128, 96)).astype(F32), rng.standard_normal((96, 240)).astype(F32)]

    def body(i: Any, j: Any, k: Any, x: Any, y: Any, out: Any, total: Any) -> Any:
        total = jnp.where(k == 0, F32(0), total) + jnp.exp(jnp.sin(x)) @ y
        return [jnp.where(k == 2, total, out), total]

    kernel = Kernel(
        (16, 12, 3), body, [block(8, 32), block(32, 20), block(8, 20)],
        [lambda i, j, k: (i, k), lambda i, j, k: (k, j), lambda i, j, k: (i, j)], scratch=[((8, 20), F32)],
    )  # fmt: skip

    def apart(*operands: Any) -> Any:
        return kernel(operands, [jnp.zeros((128, 240), F32)])[0]

    def in_order(*operands: Any) -> Any:
        return kernel(operands, [jnp.zeros((128, 240), F32)], in_order=True)[0]

    wanted = weft.jit(in_order)(*operands)
    assert "independent=True" in _plan(apart, *operands) and "independent=True" not in _plan(in_order, *operands)
    run = weft.jit(apart)
    for _ in range(50):
        np.testing.assert_array_equal(run(*operands), wanted)
    # the first and the last of cells in order are compiled for themselves, and select nothing when they run
    assert "select_n" not in run.lower(*operands).compile().as_text("kernel")


def _plan(function: Any, *operands: Any) -> str:
    return weft.jit(function).lower(*operands).compile().as_text("plan")


@pytest.mark.parametrize(
    ("name", "apart"),
    [("tiles", True), ("product", True), ("running", False), ("histogram", False), ("windows", True),
     ("revisited", True), ("revisited_later", True), ("some_untouched", True), ("transposed", True),
     ("no_cells", False), ("scalars", False)],
)  # fmt: skip
def test_which_cells_run_apart(name: str, apart: bool) -> None:
    kernel, inputs, outputs, prefetched = CASES[name]
    types = [*prefetched, *inputs, *outputs]
    parts = grid_cells.Parts.of([avals.get_aval(x) for x in types], kernel.parameters(inputs, outputs, prefetched))
    assert (grid_order.order(parts) is not None) == apart


def test_cells_that_race_are_an_error() -> None:
    kernel = Kernel((4, 2), lambda i, j, x, y: [x], [block(2)] * 2, [lambda i, j: (i,)] * 2,
                    semantics=("parallel", "parallel"))  # fmt: skip
    with pytest.raises(ValueError, match=r"along axis 1 of the grid \(4, 2\) write to the same block of output 0"):
        kernel([numbers(8)], [numbers(8)])
    kernel.semantics = ("parallel", "arbitrary")
    np.testing.assert_array_equal(kernel([numbers(8)], [numbers(8)])[0], numbers(8))


SMALL = st.integers(1, 4)


@st.composite
def kernels(draw: Any) -> tuple[Kernel, list[np.ndarray], list[np.ndarray]]:
    """Two arrays in blocks, with index maps of small coefficients, and perhaps a scratch array."""
    grid = tuple(draw(st.lists(SMALL, min_size=1, max_size=3)))
    seen = draw(st.lists(SMALL, min_size=1, max_size=2))
    blocks, maps, arrays = [], [], []
    for _ in range(2):
        front = draw(st.lists(st.none(), max_size=1))
        shape = [draw(st.integers(1, 9)) for _ in (*front, *seen)]
        elements = {d: draw(st.sampled_from([(0, 0), (1, 2)])) for d in range(len(front), len(shape))}
        blocks.append(block(*front, *seen, elements=draw(st.sampled_from([{}, {}, elements]))))
        factors = draw(
            st.lists(
                st.lists(st.integers(-1, 3), min_size=len(grid), max_size=len(grid)),
                min_size=len(shape),
                max_size=len(shape),
            )
        )
        maps.append(
            lambda *ids, factors=factors: [
                sum(i * np.int32(f) for i, f in zip(ids, row, strict=True)) for row in factors
            ]
        )
        arrays.append(numbers(*shape))
    resets = draw(st.booleans())
    scratch = draw(st.booleans())

    def body(*args: Any) -> Any:
        ids, (x, y, *total) = args[: len(grid)], args[len(grid) :]
        where = np.where if isinstance(x, np.ndarray) else jnp.where
        y = y * F32(0.5) + x * (ids[-1] + 1).astype(F32)
        if not total:
            return [y]
        kept = where(ids[-1] == 0, F32(1), total[0]) if resets else where(sum(ids) == 0, F32(1), total[0])
        return [y + kept, kept + x]

    kernel = Kernel(grid, body, blocks, maps, [(tuple(seen), F32)] if scratch else [])
    return kernel, [arrays[0]], [arrays[1]]


def test_numbers_that_are_known_have_the_bits_of_those_that_are_computed() -> None:
    x = numbers(8, 24)
    candidates = np.linspace(0.1, 9, 200, dtype=F32)
    unlike = candidates[np.asarray(jnp.exp(candidates)) != np.exp(candidates.astype(float)).astype(F32)]
    assert len(unlike) > 1  # so that a number folded by NumPy shows
    for scale in unlike[:2]:

        def body(i: Any, j: Any, x: Any, y: Any, scale: Any = scale) -> Any:
            first = lambda: x * jnp.exp((j + 1).astype(F32) * scale)
            return [weft.lax.cond(j == 0, first, lambda: y + jnp.cumsum(x, 1))]

        kernel = Kernel((4, 3), body, [block(2, 8)] * 2, [lambda i, j: (i, j), lambda i, j: (i, 0)])
        apart = weft.jit(lambda x, y, run=kernel: run([x], [y])[0])(x, x[:, :8])
        in_order = weft.jit(lambda x, y, run=kernel: run([x], [y], in_order=True)[0])(x, x[:, :8])
        np.testing.assert_array_equal(np.asarray(apart).view(np.int32), np.asarray(in_order).view(np.int32))


def test_errors_name_the_line_of_the_body() -> None:
    def body(i: Any, j: Any, x: Any, y: Any) -> Any:
        return [weft.lax.cond(j == 0, lambda: jnp.log(x), lambda: y + jnp.cumsum(x, 1))]

    kernel = Kernel((4, 3), body, [block(2, 8)] * 2, [lambda i, j: (i, j), lambda i, j: (i, 0)])
    x = numbers(8, 24)
    line = f"test_grid_loop.py:{body.__code__.co_firstlineno + 1}:"
    with weft.config.context("checks", "nan"), pytest.raises(weft.errors.NanCheckError, match=line):
        weft.jit(lambda x: kernel([x], [x[:, :8]])[0])(x).block_until_ready()


def test_prints_of_an_index_map_come(capsys: pytest.CaptureFixture[str]) -> None:
    def index_map(i: Any) -> Any:
        weft.debug.print("block {}", i, ordered=True)
        return (i,)

    kernel = Kernel((3,), lambda i, x, y: [x + x], [block(2)] * 2, [index_map, lambda i: (i,)])
    np.testing.assert_array_equal(weft.jit(lambda x: kernel([x], [x])[0])(numbers(6)), 2 * numbers(6))
    weft.effects_barrier()
    assert capsys.readouterr().out == "block 0\nblock 1\nblock 2\n"


def test_points_are_computed_of_whole_arrays() -> None:
    for name, whole in (("points", True), ("squeezed_points", True), ("points_of_some", False), ("tiles", False)):
        kernel, inputs, outputs, _ = CASES[name]
        run = weft.jit(lambda *a, kernel=kernel: kernel(*a))
        plan = run.lower(inputs, outputs).compile().as_text("plan")
        assert ("cells" not in plan and "routine" not in plan) == whole


@given(kernels())
@settings(max_examples=12, deadline=None)
def test_drawn_kernels(drawn: Any) -> None:
    kernel, inputs, outputs = drawn
    wanted = kernel.in_numpy(inputs, outputs)[0]
    np.testing.assert_array_equal(weft.jit(lambda *a: kernel(*a))(inputs, outputs)[0], wanted)
    np.testing.assert_array_equal(weft.jit(lambda *a: kernel(*a, in_order=True))(inputs, outputs)[0], wanted)

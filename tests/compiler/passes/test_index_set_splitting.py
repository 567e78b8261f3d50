"""Elementwise results of rolled arrays are put together from regions: no rolled copies, the same bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax


def around(u: Any, roll: Callable[..., Any]) -> Any:
    """The sum of the neighbours along every axis less the element."""
    return sum(roll(u, step, axis) for axis in range(u.ndim) for step in (1, -1)) - 3 * u


PROGRAMS: dict[str, Callable[..., Any]] = {
    "neighbours": around,
    "corners": lambda u, roll: sum(
        roll(roll(u, i, 0), 2 * j, 1) * (3 * i + j + 5) for i in (-1, 0, 1) for j in (-1, 1)
    ),
    "same_axis": lambda u, roll: roll(roll(u, 3, 0), -1, 0) + roll(roll(u, 3, 0), -3, 0) * 2,
    "several_results": lambda u, roll: (roll(u, 1, 0) - u * u, roll(u * 2, -2, 1) + u * u, u * u),
    "rolled_result": lambda u, roll: roll(roll(u, 1, 0) + u, 3, 1) * (roll(u, 1, 0) + u) - u,
    "reduced": lambda u, roll: (roll(u, 1, 0) * u).sum(0) + (roll(u, -1, 1) + 1).sum(0),
    "compared": lambda u, roll: (roll(u, 5, 0) > u) == (roll(u, -7, 1) < 2),
}
SHAPES = [(130, 140), (17, 1001), (1001, 17)]


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_results_equal_numpys(name: str, shape: tuple[int, int]) -> None:
    u = numbers(*shape)
    found = weft.jit(lambda u: PROGRAMS[name](u, jnp.roll))(u)
    expected = PROGRAMS[name](u, np.roll)
    for left, right in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(left), right)


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(20_001,), (150, 160), (20, 40, 50)])
def test_rungs_agree_for_other_dtypes_and_ranks(shape: tuple[int, ...], dtype: str) -> None:
    def function(u: Any) -> Any:
        return jnp.where(jnp.roll(u, 1, 0) == u, jnp.roll(u, -2, u.ndim - 1), u)

    u = numbers(*shape).astype(jnp.dtype(dtype))
    closed = weft.make_jaxpr(function)(u)
    program = ladder.compiled(closed)
    expected = ladder.by_reference(closed, [u])[0]
    for found in (ladder.by_machine_code(program, [u])[0], ladder.by_loops(program, [u])[0]):
        assert found.tobytes() == expected.tobytes()


def test_no_rolled_array_is_made_and_columns_are_stored_with_their_rows() -> None:
    program = ladder.compiled(weft.make_jaxpr(lambda u: around(u, jnp.roll))(numbers(300, 400)))
    assert ladder.n_kernels(program) == 2
    assert program.plan.arena_bytes == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda u: jnp.roll(u, 1, 0),
        lambda u: jnp.roll(u, 150, 0) + u,
        lambda u: jnp.roll(u[:20, :20], 1, 0) + u[:20, :20],
        lambda u: jnp.concatenate([u[1:], u[:2]]) * 2,
        lambda u: jnp.concatenate([u[1:], -u[:1]]) * 2,
    ],
)
def test_other_programs_stay_as_they_are(function: Any) -> None:
    program = ladder.compiled(weft.make_jaxpr(function)(numbers(300, 400)))
    assert sum(e.primitive is lax.concatenate_p for e in program.jaxpr.eqns) == 1


def test_sizes_on_both_sides_of_the_limit_do_not_share_kernels() -> None:
    function = weft.jit(lambda u: around(u, jnp.roll))
    for shape in ((12, 13), (200, 201), (14, 15), (202, 203)):
        u = numbers(*shape)
        np.testing.assert_array_equal(np.asarray(function(u)), around(u, np.roll))


def test_steps_of_a_loop_and_mapped_and_differentiated_ones() -> None:
    u = numbers(3, 130, 140)
    steps = lambda u: lax.fori_loop(0, 3, lambda _, v: around(v, jnp.roll) % 7, u)
    found = weft.jit(weft.vmap(steps))(u)
    for k, expected in enumerate(u):
        for _ in range(3):
            expected = np.mod(around(expected, np.roll), 7)
        np.testing.assert_array_equal(np.asarray(found[k]), expected)
    gradient = weft.grad(lambda u: (around(u, jnp.roll) * u[::-1]).sum())(u[0])
    np.testing.assert_array_equal(np.asarray(gradient), around(u[0][::-1], np.roll) + around(u[0], np.roll)[::-1])


def test_long_chains_behind_a_roll_and_many_rolls_of_rolls_compile() -> None:
    def chain(u: Any, roll: Any) -> Any:
        v = roll(u, 1)
        for _ in range(1500):
            v = -v + u
        return v

    def rolled(u: Any, roll: Any) -> Any:
        v = u
        for _ in range(600):
            v = roll(v, 1)
        return v + u

    u = np.arange(20_000, dtype=np.float32)
    for function in (chain, rolled):
        found = weft.jit(lambda u, function=function: function(u, jnp.roll))(u)
        np.testing.assert_array_equal(np.asarray(found), function(u, np.roll))


def test_neighbours_with_repeated_edges_are_not_made_either() -> None:
    def slopes(u: Any, m: Any) -> Any:
        right, left = m.concatenate([u[:, 1:], u[:, -1:]], 1), m.concatenate([u[:, :1], u[:, :-1]], 1)
        return (right - left) * u

    u = numbers(300, 400)
    program = ladder.compiled(weft.make_jaxpr(lambda u: slopes(u, jnp))(u))
    assert ladder.n_kernels(program) == 1 and program.plan.arena_bytes == 0
    np.testing.assert_array_equal(ladder.by_machine_code(program, [u])[0], slopes(u, np))


PADDED: dict[str, Callable[[Any, Any], Any]] = {
    "a difference turned": lambda m, u: m.pad(u[:, 2:] * 2, ((0, 0), (2, 0))) - m.pad(u[:, 2:] * 2, ((0, 0), (0, 2))),
    "of both axes": lambda m, u: m.pad(u[1:, 1:] + 1, ((1, 0), (0, 1))) * u + m.pad(u[:-2], ((1, 1), (0, 0))),
    "of another number": lambda m, u: m.where(m.pad(u[3:], ((3, 0), (0, 0)), constant_values=7) > u, u, -u),
    "the padded array itself": lambda m, u: (m.pad(u[1:], ((1, 0), (0, 0))), m.pad(u[1:], ((1, 0), (0, 0))) + u),
    "a function of it": lambda m, u: m.pad(m.sqrt(abs(u[:, 1:])), ((0, 0), (1, 0))) + m.pad(u[:, 1:], ((0, 0), (0, 1))),
    "padded again": lambda m, u: m.pad(m.pad(u[:, 2:], ((0, 0), (1, 0))) + u[:, 1:], ((0, 0), (0, 1))) - u,
}


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("shape", [(130, 140), (17, 1001), (1001, 33), (3001, 6)])
def test_padded_arrays(name: str, shape: tuple[int, int]) -> None:
    u = numbers(*shape)
    found, expected = weft.jit(lambda u: PADDED[name](jnp, u))(u), PADDED[name](np, u)
    for left, right in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(left), right)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_difference_stores_no_padded_array(axis: int) -> None:
    u = numbers(300, 64)
    gradient = weft.jit(weft.grad(lambda u: (jnp.gradient(u, axis=axis) ** 2).sum()))
    with weft.enable_x64(True):
        g, step = np.gradient(u, axis=axis), 1e-3
        for index in [(0, 0), (1, 2), (150, 30), (299, 63), (298, 1)]:
            moved = u.astype(np.float64)
            moved[index] += step
            expected = ((np.gradient(moved, axis=axis) ** 2).sum() - (g.astype(np.float64) ** 2).sum()) / step
            np.testing.assert_allclose(np.asarray(gradient(u))[index], expected, atol=0.05)
    assert "pad" not in (gradient.lower(u).compile().as_text("kernel") or "")


def test_operations() -> None:
    operations = functools.partial(ladder.after, "index_set_splitting")
    x, y = np.float32([1, 2]), np.float32([3, -0.0, 5])
    zero = np.float32(0)

    def joined(combine: Callable[..., Any], fill: Any) -> Callable[..., Any]:
        return lambda x, y: combine(lax.pad(x, fill, [(0, 3, 0)]), lax.pad(y, fill, [(2, 0, 0)]))

    assert operations(joined(lax.add, zero), x, y) == ["add", "add", "concatenate"]
    assert operations(joined(lax.max, np.float32(-np.inf)), x, y) == ["concatenate"]
    assert operations(joined(lax.mul, np.float32(1)), x, y) == ["concatenate"]
    assert operations(joined(lax.mul, zero), x, y) == ["pad", "pad", "mul"]
    assert operations(joined(lax.sub, zero), x, y) == ["pad", "pad", "sub"]
    overlapping = operations(lambda x, y: lax.add(lax.pad(x, zero, [(0, 2, 0)]), lax.pad(y, zero, [(1, 0, 0)])), x, y)
    assert overlapping == ["pad", "pad", "add"]
    gap = operations(lambda x, y: lax.add(lax.pad(x, zero, [(0, 9, 0)]), lax.pad(y, zero, [(8, 0, 0)])), x, y)
    assert sorted(gap) == ["add", "add", "broadcast_in_dim", "concatenate"]
    rolled = operations(lambda u: jnp.roll(u, 1) + u, numbers(1 << 15))
    assert rolled.count("add") == 2 and rolled[-1] == "concatenate"
    for combine, fill in ((lax.add, zero), (lax.max, np.float32(-np.inf)), (lax.mul, np.float32(1))):
        f = joined(combine, fill)
        assert np.asarray(weft.jit(f)(x, y)).tobytes() == np.asarray(f(x, y)).tobytes()


def test_sums_of_regions_are_read_by_others() -> None:
    def f(x: Any) -> Any:
        first = lax.add(lax.pad(x, 0.0, [(0, 9, 0)]), lax.pad(x * 2, 0.0, [(9, 0, 0)]))
        return lax.add(lax.pad(first, 0.0, [(0, 3, 0)]), lax.pad(x[:3], 0.0, [(18, 0, 0)]))

    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(weft.jit(f)(x), np.concatenate([x, 2 * x, x[:3]]))


def test_products_that_the_identity_or_the_dtype_changes_are_not_joined() -> None:
    x = np.array([complex(np.inf, 1), complex(0, np.inf), 2], np.complex64)
    one, half = np.complex64(1), np.float16(1)
    thrice = lambda x: lax.mul(lax.mul(*padded(x, one)), lax.pad(x, one, [(6, 0, 0)]))
    wide = lambda x: lax.mul_p.bind(*[x[:6] for x in padded(x, half)], out_dtype=np.float32)

    def padded(x: Any, fill: Any) -> list[Any]:
        return [lax.pad(x, fill, [(low, 6 - low, 0)]) for low in (0, 3)]

    np.testing.assert_array_equal(np.asarray(weft.jit(thrice)(x)), np.asarray(thrice(x)))
    halves = np.array([1.5, 2, 3], np.float16)
    assert weft.jit(wide)(halves).tolist() == [1.5, 2, 3, 1.5, 2, 3]

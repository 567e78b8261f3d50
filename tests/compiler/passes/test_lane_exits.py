"""Loops under a mask until all elements have ended: which may end vector by vector, and that values stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

A = np.random.default_rng(0).uniform(0.1, 60, 301).astype(np.float32)
WHOLE = np.random.default_rng(1).integers(1, 1000, (2, 301)).astype(np.int32)


def masked(a: Any) -> Any:
    def step(s: Any) -> Any:
        x, live = s
        y = 0.5 * (x + a / x)
        return jnp.where(live, y, x), live & (jnp.abs(y - x) > 1e-4)

    return lax.while_loop(lambda s: jnp.any(s[1]), step, (a + 1, a > 1))


def done(a: Any) -> Any:
    """The mask tells who has ended; the condition asks for all of them."""

    def step(s: Any) -> Any:
        x, ended = s
        y = 0.5 * (x + a / x)
        return jnp.where(ended, x, y), ended | (jnp.abs(y - x) < 1e-4)

    return lax.while_loop(lambda s: ~jnp.all(s[1]), step, (a + 1, a < 1))


def divisors(x: Any) -> Any:
    """The mask is computed in the condition, and again in the body."""

    def step(s: Any) -> Any:
        a, b, count = s
        return jnp.where(b > 0, b, a), jnp.where(b > 0, a % jnp.maximum(b, 1), b), count + (b > 0)

    return lax.while_loop(lambda s: jnp.any(s[1] > 0), step, (x[0], x[1], 0 * x[0]))


def escaped(a: Any) -> Any:
    """With a bound on the number of steps, which nothing reads afterwards."""

    def step(s: Any) -> Any:
        i, x, count = s
        inside = x * x < 4
        return i + 1, jnp.where(inside, x * x - 0.05 * a + 0.2, x), count + inside

    return lax.while_loop(lambda s: (s[0] < 40) & jnp.any(s[1] * s[1] < 4), step, (0, 0 * a, jnp.zeros(a.shape, int)))[
        1:
    ]


def pairs(a: Any) -> Any:
    """Each element has a row of its own."""
    x = jnp.stack([a, a + 1], 1)

    def step(s: Any) -> Any:
        x, live = s
        y = 0.5 * x
        return jnp.where(live[:, None], y, x), live & (y.sum(1) > 1)

    return lax.while_loop(lambda s: s[1].any(), step, (x, a > 0))


def counted(a: Any) -> Any:
    """The number of steps is a result."""
    return lax.while_loop(
        lambda s: jnp.any(s[0] > 1), lambda s: (jnp.where(s[0] > 1, s[0] * 0.5, s[0]), s[1] + 1), (a, 0)
    )


def unmasked(a: Any) -> Any:
    """Elements go on while others do."""
    return lax.while_loop(lambda s: jnp.any(s > 1), lambda s: s * 0.5, a)


def alive_again(a: Any) -> Any:
    """Whether an element goes on depends on the number of steps too."""

    def step(s: Any) -> Any:
        i, x = s
        return i + 1, jnp.where(x > i % 3, x - 1, x)

    return lax.while_loop(lambda s: (s[0] < 30) & jnp.any(s[1] > s[0] % 3), step, (0, a))[1]


def neighbours(a: Any) -> Any:
    """An element that has ended is changed by its neighbour."""
    return lax.while_loop(lambda x: jnp.any(x > 1), lambda x: jnp.where(x > 1, jnp.roll(x, 1) * 0.5, x), a)


def other_zero(a: Any) -> Any:
    """Adding 0 changes the sign of a zero that has ended."""
    start = jnp.where(a > 30, a, -0.0)
    return lax.while_loop(lambda x: jnp.any(x > 1), lambda x: jnp.where(x > 1, x * 0.25, x + 0.0), start)


def other_test(a: Any) -> Any:
    """The complement of a comparison: NaN has ended for one and goes on for the other."""
    start = jnp.where(a > 30, a, jnp.nan)
    step = lambda s: (jnp.where(s[0] <= 1, s[0], s[0] * 0.5), jnp.where(s[0] <= 1, s[1], s[1] + 1))
    return lax.while_loop(lambda s: jnp.any(s[0] > 1), step, (start, 0 * a))


def other_logic(a: Any) -> Any:
    """The greatest of truth values, and choices by other operations on them."""

    def step(s: Any) -> Any:
        x, live = s
        y = 0.5 * (x + a / x)
        return lax.select_n(live, x, y), lax.min(live, jnp.abs(y - x) > 1e-4)

    return lax.while_loop(lambda s: lax.reduce_max(s[1], (0,)), step, (a + 1, a > 1))


ALONE = [(masked, A), (done, A), (divisors, WHOLE), (escaped, A), (pairs, A), (other_logic, A)]
TOGETHER = [(counted, A), (unmasked, A), (alive_again, A), (neighbours, A), (other_zero, A), (other_test, A)]


@pytest.mark.parametrize(("loop", "x"), ALONE + TOGETHER, ids=lambda x: getattr(x, "__name__", "x"))
def test_elements_end_alone_where_nothing_changes_them_afterwards(loop: Callable[..., Any], x: np.ndarray) -> None:
    jitted = weft.jit(lambda x: loop(x))
    alone = "in any lane" in jitted.lower(x).as_text("loops")
    assert alone == any(loop is each for each, _ in ALONE)
    with weft.disable_jit():
        expected = weft.tree.leaves(loop(jnp.asarray(x)))
    for found, wanted in zip(weft.tree.leaves(jitted(x)), expected, strict=True):
        found, wanted = np.asarray(found), np.asarray(wanted)
        np.testing.assert_array_equal(found, wanted)
        if wanted.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_a_loop_inside_with_an_equal_condition_ends_for_all_lanes_at_once() -> None:
    """Only the outer loop is proved: the inner one halves every element until none is above 1."""

    def live(s: Any) -> Any:
        return jnp.any(s > 1)

    def body(s: Any) -> Any:
        return jnp.where(s > 1, lax.while_loop(live, lambda t: t * 0.5, s), s)

    x = np.sort(np.random.default_rng(0).random(2000).astype(np.float32) * 20)
    expected = x
    while (expected > 1).any():
        inner = expected
        while (inner > 1).any():
            inner = inner * np.float32(0.5)
        expected = np.where(expected > 1, inner, expected)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda x: lax.while_loop(live, body, x))(x)), expected)

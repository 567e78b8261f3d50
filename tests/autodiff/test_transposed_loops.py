"""``linear_transpose`` of loops, branches and calls with known values in them: beside the transposed NumPy matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.interpreters import partial_eval as pe

X = np.array([1.0, -2.0], np.float32)
ROWS = np.array([0.5, 2.0, 3.0], np.float32)


def _scan_of_two(x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        known, moving = state
        return (known * 2.0, moving * known + x * row), (moving * 3.0, known)

    (_, last), (rows, known) = lax.scan(step, (1.0, x), jnp.asarray(ROWS))
    return last + (rows * known[:, None]).sum(0)


def _scan_of_two_in_numpy(x: Any) -> Any:
    known, moving, total = 1.0, x, 0.0
    for row in ROWS:
        total = total + moving * 3.0 * known
        known, moving = known * 2.0, moving * known + x * row
    return moving + total


def _mixed_branch(x: Any) -> Any:
    a, b = lax.cond(jnp.sum(jnp.ones(3)) > 2, lambda a, b: (a * b, b * 2), lambda a, b: (a / b, b * 3), x, 3.0)
    return a * b


def _nested(x: Any) -> Any:
    def outer(i: Any, c: Any) -> Any:
        def inner(i: Any, c: Any) -> Any:
            return lax.fori_loop(0, 2, lambda j, d: d * (j + i + 1.0), c)

        return lax.cond(i > 1, lambda i, c: c * i, inner, i, c)

    return lax.fori_loop(0, 3, outer, x)


def _while_in_scan(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * (s[0] + 2.0)), (0, c))[1] * row, None

    return lax.scan(step, x, jnp.asarray(ROWS))[0]


def _known_while(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c * lax.while_loop(lambda s: s < 10.0, lambda s: s * 2, i + 1.0), x)


def _in_turn(function: Any) -> Any:
    return lambda x: (lambda r: r[0] * r[1])(function(lambda a, b: (a * b, b * 2))(x, 3.0))


def _counted_while(x: Any) -> Any:
    end = jnp.array([3, 4])[0]
    return lax.while_loop(lambda s: s[0] < end, lambda s: (s[0] + 1, s[1] * (s[0] + 1.0), s[2]), (0, x, x))[1]


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "fori": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * (i + 1.0), x), lambda x: x * 6),
    "fori, no steps": (lambda x: lax.fori_loop(3, 3, lambda i, c: c * (i + 1.0), x) * 1.0, lambda x: x),
    "fori at an index": (
        lambda x: lax.fori_loop(0, 2, lambda i, c: c.at[i].multiply(i + 2.0), x),
        lambda x: x * [2, 3],
    ),
    "scan": (_scan_of_two, _scan_of_two_in_numpy),
    "scan, reverse": (
        lambda x: lax.scan(lambda c, r: ((c[0] + 1, c[1] * (c[0] + r)), None), (0, x), ROWS, reverse=True)[0][1],
        lambda x: x * 3.0 * 3.0 * 2.5,
    ),
    "while": (_counted_while, lambda x: x * 6),
    "while in scan": (_while_in_scan, lambda x: x * 24**3 * 3),
    "known while in fori": (_known_while, lambda x: x * 16 * 16 * 12),
    "cond": (_mixed_branch, lambda x: x * 18),
    "nested": (_nested, lambda x: x * 1 * 2 * 2 * 3 * 2),
    "jit": (_in_turn(weft.jit), lambda x: x * 18),
    "checkpoint": (_in_turn(weft.checkpoint), lambda x: x * 18),
}


@pytest.mark.parametrize("name", CASES)
def test_known_values_are_separated(name: str) -> None:
    function, in_numpy = CASES[name]
    matrix = np.stack([np.asarray(in_numpy(column)) for column in np.eye(2)], -1)
    cts = np.array([[1.0, 2.0], [-3.0, 0.5]], np.float32)
    wanted = cts @ matrix
    transposed = weft.linear_transpose(function, X)
    np.testing.assert_allclose(transposed(cts[0])[0], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(
        weft.jit(lambda ct: weft.linear_transpose(function, X)(ct)[0])(cts[1]), wanted[1], rtol=1e-6
    )
    np.testing.assert_allclose(weft.linear_transpose(weft.jit(function), X)(cts[0])[0], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(weft.vmap(transposed)(cts)[0], wanted, rtol=1e-6)
    twice = weft.linear_transpose(lambda ct: weft.linear_transpose(function, X)(ct)[0], cts[0])(X)[0]
    np.testing.assert_allclose(twice, matrix @ X, rtol=1e-6)


def test_a_number_of_steps_that_depends_on_the_argument_has_no_transpose() -> None:
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        weft.linear_transpose(lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, x), X)(X)
    end = weft.jit(lambda n: weft.linear_transpose(lambda x: lax.fori_loop(0, n, lambda i, c: c * (i + 1.0), x), X)(X))
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        end(3)


def test_products_of_the_argument_are_refused_inside_of_loops() -> None:
    with pytest.raises(TypeError, match="not linear"):
        weft.linear_transpose(lambda x: lax.fori_loop(0, 3, lambda i, c: c * c, x), X)(X)


def test_partial_evaluation_splits_loops_and_branches() -> None:
    """The known results are computed by a program that does not take the unknown operand."""

    def loop(a: Any, b: Any, c: Any) -> Any:
        def step(s: Any, row: Any) -> Any:
            return (s[0] + row, s[1] * 2.0, s[2] + s[1] * s[0]), (s[0], row * s[2])

        return lax.scan(step, (a, b, c), jnp.asarray(ROWS))

    def test(a: Any, b: Any, c: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2, s[2] + s[1]), (a, b, c))

    def branch(a: Any, b: Any, c: Any) -> Any:
        return lax.cond(a > 0, lambda b, c: (b * 2, c), lambda b, c: (b, b + c), b, c)

    for function, unknown in (
        (loop, [False, False, True, False, True]),
        (test, [False, False, True]),
        (branch, [False, True]),
    ):
        closed = weft.make_jaxpr(function)(1.0, 2.0, 3.0)
        known, rest, out_unknown, _ = pe.partial_eval_jaxpr_nounits(closed, [False, False, True], False)
        assert out_unknown == unknown
        made = weft.core.jaxpr_as_fun(known)(1.0, 2.0)
        count = unknown.count(False)
        others = iter(weft.core.jaxpr_as_fun(rest)(*made[count:], 3.0))
        found = iter(made[:count])
        both = [next(others) if flag else next(found) for flag in unknown]
        for got, want in zip(both, weft.tree.leaves(function(1.0, 2.0, 3.0)), strict=True):
            np.testing.assert_array_equal(got, want)

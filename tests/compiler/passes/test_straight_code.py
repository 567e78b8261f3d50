"""Known branches, and ``unroll`` on elementwise loops over long arrays: one kernel, and the values of the loop."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax

X = np.linspace(-2, 2, 1000, dtype=np.float32)
P = np.array([0.5, -1.0, 2.0, 3.0], np.float32)


def horner(unroll: int, reverse: bool = False) -> Any:
    def function(p: Any, x: Any) -> Any:
        return lax.scan(lambda v, c: (v * x + c, v - c), jnp.zeros_like(x), p, unroll=unroll, reverse=reverse)

    return function


@pytest.mark.parametrize("reverse", [False, True])
def test_values_are_those_of_the_loop(reverse: bool) -> None:
    expected, found = (weft.jit(horner(unroll, reverse))(P, X) for unroll in (1, 2))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(np.asarray(found[0]), np.polyval(P[::-1] if reverse else P, X), rtol=1e-5, atol=1e-5)


def test_polyval_is_one_kernel() -> None:
    program = ladder.compiled(weft.make_jaxpr(jnp.polyval)(P, X))
    assert ladder.n_kernels(program) == 1, program.text("kernel")


@pytest.mark.parametrize("count", [0, 1, 5, 200])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_polynomials_of_every_length(count: int, size: int) -> None:
    p, x = np.linspace(-1, 1, count, dtype=np.float32), np.linspace(-1, 1, size, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(jnp.polyval(p, x)), np.polyval(p, x), rtol=1e-4, atol=1e-4)


def test_loops_that_are_long_or_not_elementwise_stay_loops() -> None:
    def matrix(x: Any) -> Any:
        return lax.scan(lambda v, _: (x @ v, None), x, None, length=3, unroll=True)[0]

    long = (horner(2), (np.ones(200, np.float32), X))
    for function, arguments in (long, (matrix, (np.eye(40, dtype=np.float32),))):
        text = weft.jit(function).lower(*arguments).compile().as_text("plan")
        assert "scan" in text, text


def test_operations() -> None:
    operations = functools.partial(ladder.after, "straight_code")
    assert operations(lambda x: lax.switch(7, [lax.sin, lax.cos], x), X) == ["cos"]  # an index is clamped
    assert operations(lambda i, x: lax.switch(i, [lax.sin, lax.cos], x), np.int32(0), X)[-1] == "cond"
    inner = lambda x: lax.cond(True, weft.jit(lax.exp), lax.sin, x)
    assert operations(inner, X) == ["exp"]
    assert operations(horner(2), P, X).count("mul") == len(P)
    assert "scan" in operations(horner(1), P, X)

"""Of a matrix given by one triangle the other one, here NaN, is read neither for values nor for derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import weft
import weft.numpy as jnp
from tests.linalg.cases import adjoint, close, definite, matrix
from weft import lax
from weft.scipy import linalg

N = 3
BOTH = [(lower, dtype) for lower in (True, False) for dtype in ("float32", "complex64")]


def half(a: np.ndarray, lower: bool) -> np.ndarray:
    """A matrix with NaN instead of the other triangle."""
    mask = np.tri(a.shape[-1], dtype=bool)
    return np.where(mask if lower else mask.T, a, np.asarray(np.nan, a.dtype))


def everywhere(f: Callable[..., Any], whole: np.ndarray, given: np.ndarray, expected: np.ndarray) -> None:
    """Value in and out of programs and mapped; gradients are those of the whole matrix."""
    close(f(given), expected, 30)
    close(weft.jit(f)(given), expected, 30)
    close(weft.vmap(f)(jnp.stack([given, 2 * given]))[0], expected, 30)
    weights = np.arange(1, 1 + expected.size, dtype=np.float32).reshape(expected.shape)

    def total(a: Any) -> Any:
        return (weights * abs(f(a)) ** 2).sum()

    close(weft.grad(total)(given), weft.grad(total)(whole), 30)
    assert np.isfinite(np.asarray(weft.grad(total)(given))).all()


@pytest.mark.parametrize(("lower", "dtype"), BOTH)
@pytest.mark.parametrize("assume", ["pos", "her", "sym"])
def test_solve(assume: str, lower: bool, dtype: str) -> None:
    a = definite(dtype, N, N)
    if assume == "sym":
        a = matrix(dtype, N, N)
        a = a + a.T
    b = matrix(dtype, N, 2)
    for right in (b, b[:, 0]):
        expected = scipy.linalg.solve(a, right)
        everywhere(lambda a, b=right: linalg.solve(a, b, assume_a=assume, lower=lower), a, half(a, lower), expected)
    slopes = weft.grad(lambda a: abs(linalg.solve(a, b, assume_a=assume, lower=lower)).sum())(half(a, lower))
    close(slopes, weft.grad(lambda a: abs(linalg.solve(a, b)).sum())(a), 30)  # by another factorization


@pytest.mark.parametrize(("lower", "dtype"), BOTH)
def test_eigenvalues(lower: bool, dtype: str) -> None:
    a = definite(dtype, N, N)
    given, values = half(a, lower), np.linalg.eigvalsh(a)
    everywhere(lambda a: linalg.eigh(a, lower=lower, eigvals_only=True), a, given, values)
    everywhere(lambda a: lax.linalg.eigh(a, lower=lower, symmetrize_input=False)[1], a, given, values)
    letter = "L" if lower else "U"
    everywhere(lambda a: jnp.linalg.eigvalsh(a, UPLO=letter, symmetrize_input=False), a, given, values)
    sizes = np.abs(np.linalg.eigh(a)[1])
    everywhere(lambda a: abs(linalg.eigh(a, lower=lower)[1]), a, given, sizes)
    everywhere(lambda a: abs(jnp.linalg.eigh(a, letter, symmetrize_input=False)[1]), a, given, sizes)
    diagonal, beside = lax.linalg.tridiagonal(given, lower=lower)[1:3]
    close(scipy.linalg.eigvalsh_tridiagonal(np.asarray(diagonal), np.asarray(beside)), values, 30)


@pytest.mark.parametrize(("lower", "dtype"), BOTH)
def test_cholesky(lower: bool, dtype: str) -> None:
    a, b = definite(dtype, N, N), matrix(dtype, N, 2)
    factor = scipy.linalg.cholesky(a, lower=lower)
    close(linalg.cholesky(half(a, lower), lower=lower), factor, 30)
    if lower:
        everywhere(lambda a: jnp.linalg.cholesky(a, symmetrize_input=False), a, half(a, True), factor)
        everywhere(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), a, half(a, True), factor)
    expected = scipy.linalg.solve(a, b)
    everywhere(lambda c: linalg.cho_solve((c, lower), b), factor, half(factor, lower), expected)
    everywhere(lambda a: linalg.cho_solve(linalg.cho_factor(a, lower), b), a, half(a, lower), expected)


@pytest.mark.parametrize(("lower", "dtype"), BOTH)
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(unit: bool, lower: bool, dtype: str) -> None:
    t = (np.tril if lower else np.triu)(matrix(dtype, N, N)) + 2 * np.eye(N, dtype=dtype)
    given, b = half(t, lower), matrix(dtype, N, 2)
    if unit:
        np.fill_diagonal(t, 1)
        np.fill_diagonal(given, np.nan)
    for trans in (0, "T", "C"):
        turned = {0: t, "T": t.T, "C": adjoint(t)}[trans]
        options = {"trans": trans, "lower": lower, "unit_diagonal": unit}
        everywhere(lambda a, o=options: linalg.solve_triangular(a, b, **o), t, given, np.linalg.solve(turned, b))
    for left, turn in itertools.product((True, False), repeat=2):
        turned, right = (adjoint(t) if turn else t), (b if left else b.T)
        expected = np.linalg.solve(turned, right) if left else np.linalg.solve(turned.T, right.T).T
        options = {"transpose_a": turn, "conjugate_a": turn, "unit_diagonal": unit, "left_side": left, "lower": lower}
        everywhere(lambda a, b=right, o=options: lax.linalg.triangular_solve(a, b, **o), t, given, expected)

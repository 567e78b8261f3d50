"""Decompositions of matrices as programs of loops, run by jaxlib: their defining equations, and NumPy's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as jnp
from weft import stablehlo

pytest.importorskip("jaxlib", reason="StableHLO is run by jaxlib")

from tests.stablehlo import running

RNG = np.random.default_rng(0)


def matrix(*shape: int, complex: bool = False) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape)).astype(np.complex64) if complex else x.astype(np.float32)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x.conj(), -1, -2)


def near(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4)


def orthonormal(x: np.ndarray) -> None:
    near(adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), (*x.shape[:-2], x.shape[-1], x.shape[-1])))


@pytest.mark.parametrize("complex", [False, True])
def test_decompositions(complex: bool) -> None:
    square, tall, wide = (matrix(*shape, complex=complex) for shape in ((2, 4, 4), (5, 3), (3, 5)))
    hermitian = square + adjoint(square)
    flat = np.outer(np.arange(1, 5), np.arange(4)).astype(square.dtype)  # of rank 1
    functions = [
        lambda a: jnp.linalg.solve(a, a @ a),
        lambda a: jnp.linalg.det(a),
        lambda a: tuple(jnp.linalg.eigh(a)),
        lambda a: tuple(jnp.linalg.qr(a, mode="complete")),
        lambda a: tuple(jnp.linalg.qr(a)),
        lambda a: lax.linalg.lu(a),
        lambda a: tuple(jnp.linalg.svd(a)),
        lambda a: tuple(jnp.linalg.svd(a, full_matrices=False)),
        lambda a: tuple(jnp.linalg.svd(a)),
    ]
    operands = [[square], [square], [hermitian], [tall], [wide], [wide], [tall], [wide], [flat]]
    solved, det, eigh, complete, thin, lu, full, narrow, low = running.together(functions, operands)
    near(solved[0], square)
    near(det[0], np.linalg.det(square))
    near(eigh[0], np.linalg.eigvalsh(hermitian))
    near(hermitian @ eigh[1], eigh[1] * eigh[0][..., None, :])
    for q, r, a in ((*complete, tall), (*thin, wide)):
        near(q @ r, a)
        orthonormal(q)
        near(r, np.triu(r))
    factors, pivots, order = lu
    near((np.tril(factors[:, :3], -1) + np.eye(3)) @ np.triu(factors), wide[order])
    assert pivots.dtype == order.dtype == np.int32
    for (u, s, vt), a in ((full, tall), (narrow, wide), (low, flat)):
        near((u[..., : len(s)] * s) @ vt[: len(s)], a)
        near(s, np.linalg.svd(a)[1])
        orthonormal(u)
        orthonormal(adjoint(vt))


def test_what_has_no_program_says_so() -> None:
    for function in (jnp.linalg.eigvals, lax.linalg.hessenberg, lambda a: lax.linalg.qr(a, pivoting=True)):
        with pytest.raises(NotImplementedError, match=r"at .*test_decompositions\.py:\d+.*cannot be exported"):
            stablehlo.module_text(weft.make_jaxpr(lambda a, function=function: function(a))(matrix(3, 3)))

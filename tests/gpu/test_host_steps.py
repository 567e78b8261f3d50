"""Steps that a GPU leaves to the host, Fourier transforms and factorizations: the bits of the CPU, and plans say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import check
from weft import lax

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)


def positive(x: Any) -> Any:
    return x @ x.conj().swapaxes(-1, -2) + 9 * jnp.eye(x.shape[-1], dtype=x.dtype)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "fft": lambda x: jnp.fft.fft(x) * 2,
    "ifftn": jnp.fft.ifftn,
    "cholesky": lambda x: jnp.linalg.cholesky(positive(x)),
    "qr": jnp.linalg.qr,
    "svd": jnp.linalg.svd,
    "eigh": lambda x: jnp.linalg.eigh(positive(x)),
    "eigvals": jnp.linalg.eigvals,
    "solve": lambda x: jnp.linalg.solve(x, x[..., :1]),
    "triangular_solve": lambda x: lax.linalg.triangular_solve(x, x, lower=True, left_side=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_they_have_the_bits_of_the_cpu_and_say_where_they_run(device: Any, name: str, dtype: str) -> None:
    x = RNG.standard_normal((2, 3, 4, 4)) + (1j * RNG.standard_normal((2, 3, 4, 4)) if dtype[0] == "c" else 0)
    with weft.enable_x64(True):
        for some in (x, x[0, 0]):
            assert "  on the host: library" in check(device, PROGRAMS[name], (some.astype(dtype),)).as_text("plan")


def spectrum(x: Any) -> Any:
    return jnp.fft.fft(x).real


def orthogonal(x: Any) -> Any:
    return jnp.linalg.qr(x)[0]


def repeated(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        known = lax.fori_loop(0, 3, lambda i, x: f(x) + i, x)
        until = lax.while_loop(lambda s: s[1] < 3, lambda s: (f(s[0]), s[1] + 1), (x, 0))[0]
        rows = lax.scan(lambda c, y: (f(c + y), c.sum()), x, jnp.stack([x, x * 2]))
        return known, until, rows, lax.cond(x[0, 0] > 0, f, jnp.negative, x), weft.vmap(f)(jnp.stack([x, x + 1]))

    return function


@pytest.mark.parametrize("f", [spectrum, orthogonal, lambda x: jnp.linalg.cholesky(positive(x))])
def test_loops_branches_and_gradients_may_contain_them(device: Any, f: Callable[[Any], Any]) -> None:
    x = RNG.standard_normal((6, 6)).astype(np.float32)
    check(device, repeated(f), (x,))
    check(device, weft.grad(lambda x: f(x).sum()), (x,))

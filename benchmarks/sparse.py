"""Products of sparse matrices beside SciPy's CSR and JAX's BCOO: milliseconds, and how many times faster weft is.

    python benchmarks/sparse.py            # needs the package built; JAX only where it is installed

Systems take turns, and each counts its fastest call. Results are compared with SciPy's before anything is timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import weft
import weft.numpy as jnp
from weft.experimental import sparse

ROUNDS = 15
SIZE, SHARE = 10_000, 0.01  # a million elements


def peers(matrix: Any, dense: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The product of the matrix and a dense operand by each system, ready to be called."""
    ours = jnp.asarray(dense)
    multiply = weft.jit(lambda m, x: m @ x)
    formats = {"weft BCOO": sparse.BCOO, "weft BCSR": sparse.BCSR, "weft CSR": sparse.CSR, "weft COO": sparse.COO}
    calls: dict[str, Callable[[], Any]] = {"SciPy CSR": lambda: matrix @ dense}
    for name, cls in formats.items():
        mine = cls.from_scipy_sparse(matrix)
        calls[name] = lambda mine=mine: multiply(mine, ours).block_until_ready()
    if importlib.util.find_spec("jax") is not None:
        jax = importlib.import_module("jax")
        jax_sparse = importlib.import_module("jax.experimental.sparse")
        theirs, operand = jax_sparse.BCOO.from_scipy_sparse(matrix), jax.numpy.asarray(dense)
        product = jax.jit(lambda m, x: m @ x)
        calls["JAX BCOO"] = lambda: product(theirs, operand).block_until_ready()
    return calls


def main() -> None:
    rng = np.random.default_rng(0)
    matrix: Any = scipy.sparse.random_array((SIZE, SIZE), density=SHARE, format="csr", dtype=np.float32, rng=rng)
    matrix.sort_indices()
    for title, dense in (
        ("matrix @ vector", rng.random(SIZE, dtype=np.float32)),
        ("matrix @ 64 columns", rng.random((SIZE, 64), dtype=np.float32)),
    ):
        calls = peers(matrix, dense)
        wanted = matrix @ dense
        best = dict.fromkeys(calls, float("inf"))
        for name, call in calls.items():
            np.testing.assert_allclose(np.asarray(call()), wanted, rtol=1e-3, err_msg=name)
        for _ in range(ROUNDS):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
        print(f"{title}, {matrix.nnz:,} elements")
        for name, seconds in best.items():
            print(f"  {name:10} {seconds * 1e3:9.3f} ms   SciPy takes {best['SciPy CSR'] / seconds:6.2f}x as long")


if __name__ == "__main__":
    main()

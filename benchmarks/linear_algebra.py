"""Factorizations and solvers of ``weft.numpy.linalg`` beside JAX, NumPy and SciPy: large matrices, and many small ones.

    python benchmarks/linear_algebra.py             # all of them, float32: a minute
    python benchmarks/linear_algebra.py inv eigh    # those whose names begin so

All compute the same matrices. On a machine that is not idle ``--cpu`` counts processor time instead, which is
comparable with one thread each (``WEFT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.linalg
from peers import Calls, Compared, main

import weft
import weft.lax

ASKED_OF_LARGE, ASKED_OF_SMALL = 1.0, 4.0  # speed that is asked for, over that of the best peer in the same run

Operation = Callable[[Any, Any], Callable[..., Any]]  # (numpy-like module, lax-like module) -> the function


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def definite(*shape: int) -> np.ndarray:
    a = normal(*shape)
    return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(np.float32)


def lower(n: int) -> np.ndarray:
    return np.tril(normal(n, n)) + 50 * np.eye(n, dtype=np.float32)


def numpys(name: str) -> Operation:
    return lambda np_, lax: getattr(np_.linalg, name)


def triangular(np_: Any, lax: Any) -> Callable[..., Any]:
    return lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def scipys_triangular(a: Any, b: Any) -> Any:
    return scipy.linalg.solve_triangular(a, b, lower=True, check_finite=False)


# label, the function, NumPy's or SciPy's, the operands, what is asked
ROWS: list[tuple[str, Operation, Callable[..., Any], tuple[np.ndarray, ...], float]] = [
    ("cholesky 1000", numpys("cholesky"), np.linalg.cholesky, (definite(1000, 1000),), ASKED_OF_LARGE),
    ("qr 500", numpys("qr"), np.linalg.qr, (normal(500, 500),), ASKED_OF_LARGE),
    ("lu 1000", lambda np_, lax: lambda a: lax.linalg.lu(a), scipy.linalg.lu_factor, (normal(1000, 1000),),
     ASKED_OF_LARGE),
    ("solve 1000", numpys("solve"), np.linalg.solve, (normal(1000, 1000), normal(1000)), ASKED_OF_LARGE),
    ("eigh 300", numpys("eigh"), np.linalg.eigh, (definite(300, 300),), ASKED_OF_LARGE),
    ("svd 300", numpys("svd"), np.linalg.svd, (normal(300, 300),), ASKED_OF_LARGE),
    ("inv 500", numpys("inv"), np.linalg.inv, (normal(500, 500),), ASKED_OF_LARGE),
    *[
        (f"triangular_solve 1000, {k} columns", triangular, scipys_triangular, (lower(1000), normal(1000, k)),
         ASKED_OF_LARGE)
        for k in (1, 64, 1000)
    ],
    ("solve 86,000 of 3x3", numpys("solve"), np.linalg.solve, (normal(86_000, 3, 3), normal(86_000, 3, 1)),
     ASKED_OF_SMALL),
    ("cholesky 100,000 of 6x6", numpys("cholesky"), np.linalg.cholesky, (definite(100_000, 6, 6),), ASKED_OF_SMALL),
    ("eigh 50,000 of 3x3", numpys("eigh"), np.linalg.eigh, (definite(50_000, 3, 3),), ASKED_OF_SMALL),
    ("det 100,000 of 4x4", numpys("det"), np.linalg.det, (normal(100_000, 4, 4),), ASKED_OF_SMALL),
    ("inv 100,000 of 4x4", numpys("inv"), np.linalg.inv, (normal(100_000, 4, 4),), ASKED_OF_SMALL),
]  # fmt: skip


def calls_of(operation: Operation, reference: Any, operands: Any) -> Calls:
    calls: Calls = {}
    for system, module in (("weft", weft), ("JAX", jax)):
        compiled = module.jit(operation(module.numpy, module.lax))
        given = [module.numpy.asarray(x) for x in operands]
        calls[system] = lambda compiled=compiled, given=given, module=module: module.block_until_ready(compiled(*given))
    return calls | {"NumPy": lambda: reference(*operands)}


if __name__ == "__main__":
    main([Compared(label, functools.partial(calls_of, *row), asked) for label, *row, asked in ROWS])

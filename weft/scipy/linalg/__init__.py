"""weft.scipy.linalg: SciPy's linear algebra: solvers, factorizations, functions of matrices, special matrices."""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

# Modules are loaded when one of their names is first used. docs/stubs.py tells type checkers so (__init__.pyi).
_NAMES = _lazy.Names(
    "weft.scipy.linalg",
    {
        "scipy.linalg.factored": """
            cho_factor cho_solve cholesky det eigh eigh_tridiagonal hessenberg inv lu lu_factor lu_solve
            polar qr qr_multiply rsf2csf schur svd""",
        "scipy.linalg.functions": "expm expm_frechet funm sqrtm",
        "scipy.linalg.special_matrices": """
            block_diag circulant companion convolution_matrix dft fiedler fiedler_companion hadamard
            hankel helmert hilbert invhilbert invpascal leslie pascal toeplitz""",
        "scipy.linalg.systems": "solve solve_sylvester solve_triangular",
    },
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.scipy.linalg", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

"""weft.lax.linalg: matrix decompositions and solvers by LAPACK. A facade; names are loaded when first used."""

import typing

from weft._base import lazy
from weft._base import unbuilt as _unbuilt

_NAMES = lazy.Names(
    "weft.lax.linalg",
    {
        "numpy.linear_algebra.polar_factors": "qdwh",
        "operations.linalg.cholesky": "cholesky cholesky_p cholesky_update cholesky_update_p",
        "operations.linalg.general": "EigImplementation eig eig_p hessenberg hessenberg_p schur schur_p",
        "operations.linalg.lu": "lu lu_p lu_pivots_to_permutation lu_pivots_to_permutation_p",
        "operations.linalg.qr": "householder_product householder_product_p ormqr ormqr_p qr qr_p",
        "operations.linalg.singular": "SvdAlgorithm svd svd_p",
        "operations.linalg.symmetric": "EighImplementation eigh eigh_p tridiagonal tridiagonal_p",
        "operations.linalg.triangular": """
            symmetric_product symmetric_product_p triangular_solve triangular_solve_p""",
        "operations.linalg.tridiagonal": "tridiagonal_solve tridiagonal_solve_p",
    },
)


def __getattr__(name: str) -> typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.lax.linalg", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

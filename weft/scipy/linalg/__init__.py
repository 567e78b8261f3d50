"""weft.scipy.linalg: SciPy's linear algebra: solvers, factorizations, functions of matrices, special matrices."""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.scipy.linalg.factored import (
        cho_factor as cho_factor,
        cho_solve as cho_solve,
        cholesky as cholesky,
        det as det,
        eigh as eigh,
        eigh_tridiagonal as eigh_tridiagonal,
        hessenberg as hessenberg,
        inv as inv,
        lu as lu,
        lu_factor as lu_factor,
        lu_solve as lu_solve,
        polar as polar,
        qr as qr,
        qr_multiply as qr_multiply,
        rsf2csf as rsf2csf,
        schur as schur,
        svd as svd,
    )
    from weft.scipy.linalg.functions import expm as expm, expm_frechet as expm_frechet, funm as funm, sqrtm as sqrtm
    from weft.scipy.linalg.special_matrices import (
        block_diag as block_diag,
        circulant as circulant,
        companion as companion,
        convolution_matrix as convolution_matrix,
        dft as dft,
        fiedler as fiedler,
        fiedler_companion as fiedler_companion,
        hadamard as hadamard,
        hankel as hankel,
        helmert as helmert,
        hilbert as hilbert,
        invhilbert as invhilbert,
        invpascal as invpascal,
        leslie as leslie,
        pascal as pascal,
        toeplitz as toeplitz,
    )
    from weft.scipy.linalg.systems import (
        solve as solve,
        solve_sylvester as solve_sylvester,
        solve_triangular as solve_triangular,
    )

# Modules are loaded when one of their names is first used; the imports above say the same to type checkers.
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

"""The names of weft.scipy.linalg, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any as _Any

from weft.scipy.linalg.factored import (
    cho_factor as cho_factor, cho_solve as cho_solve, cholesky as cholesky, det as det, eigh as eigh,
    eigh_tridiagonal as eigh_tridiagonal, hessenberg as hessenberg, inv as inv, lu as lu, lu_factor as lu_factor,
    lu_solve as lu_solve, polar as polar, qr as qr, qr_multiply as qr_multiply, rsf2csf as rsf2csf, schur as schur,
    svd as svd
)
from weft.scipy.linalg.functions import expm as expm, expm_frechet as expm_frechet, funm as funm, sqrtm as sqrtm
from weft.scipy.linalg.special_matrices import (
    block_diag as block_diag, circulant as circulant, companion as companion,
    convolution_matrix as convolution_matrix, dft as dft, fiedler as fiedler, fiedler_companion as fiedler_companion,
    hadamard as hadamard, hankel as hankel, helmert as helmert, hilbert as hilbert, invhilbert as invhilbert,
    invpascal as invpascal, leslie as leslie, pascal as pascal, toeplitz as toeplitz
)
from weft.scipy.linalg.systems import (
    solve as solve, solve_sylvester as solve_sylvester, solve_triangular as solve_triangular
)

def __getattr__(name: str) -> _Any: ...

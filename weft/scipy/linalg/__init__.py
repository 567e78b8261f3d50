"""weft.scipy.linalg: SciPy's linear algebra: solvers, factorizations, functions of matrices, special matrices."""

from __future__ import annotations

from weft._base import unbuilt as _unbuilt
from weft.scipy.linalg.factored import (
    cho_factor,
    cho_solve,
    cholesky,
    det,
    eigh,
    eigh_tridiagonal,
    hessenberg,
    inv,
    lu,
    lu_factor,
    lu_solve,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    svd,
)
from weft.scipy.linalg.functions import expm, expm_frechet, funm, sqrtm
from weft.scipy.linalg.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from weft.scipy.linalg.systems import solve, solve_sylvester, solve_triangular

__getattr__ = _unbuilt.fallback("weft.scipy.linalg")

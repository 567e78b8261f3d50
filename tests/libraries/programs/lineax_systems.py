"""Linear systems by structure: dense, triangular, positive definite, least squares, iterative; with derivatives."""

import jax
import jax.numpy as jnp
import lineax as lx
from results import show

matrix = jax.random.normal(jax.random.PRNGKey(0), (4, 4)) + 4 * jnp.eye(4)
vector = jax.random.normal(jax.random.PRNGKey(1), (4,))
tall = jax.random.normal(jax.random.PRNGKey(2), (6, 3))
positive = lx.MatrixLinearOperator(matrix @ matrix.T, lx.positive_semidefinite_tag)


def solved(m):
    return lx.linear_solve(lx.MatrixLinearOperator(m), vector).value


operator = lx.FunctionLinearOperator(lambda v: 3.0 * v + jnp.roll(v, 1), jax.ShapeDtypeStruct((4,), jnp.float32))
show(
    dense=solved(matrix),
    slope=jax.grad(lambda m: solved(m).sum())(matrix),
    batched=jax.vmap(solved)(jnp.stack([matrix, 2 * matrix])),
    cholesky=lx.linear_solve(positive, vector, lx.Cholesky()).value,
    conjugate=lx.linear_solve(positive, vector, lx.CG(rtol=1e-6, atol=1e-6)).value,
    least=lx.linear_solve(lx.MatrixLinearOperator(tall), jnp.arange(6.0), lx.QR()).value,
    svd=lx.linear_solve(lx.MatrixLinearOperator(tall), jnp.arange(6.0), lx.SVD()).value,
    gmres=lx.linear_solve(operator, vector, lx.GMRES(rtol=1e-6, atol=1e-6)).value,
    tridiagonal=lx.linear_solve(lx.TridiagonalLinearOperator(4 * jnp.ones(4), jnp.ones(3), jnp.ones(3)), vector).value,
    triangular=lx.linear_solve(lx.MatrixLinearOperator(jnp.tril(matrix), lx.lower_triangular_tag), vector).value,
)

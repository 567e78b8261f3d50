"""The names of weft.random, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any as _Any

from weft.random.choosing import categorical as categorical, choice as choice, permutation as permutation
from weft.random.counts import (
    binomial as binomial, geometric as geometric, multinomial as multinomial, poisson as poisson
)
from weft.random.distributions import (
    bernoulli as bernoulli, cauchy as cauchy, double_sided_maxwell as double_sided_maxwell,
    exponential as exponential, gumbel as gumbel, laplace as laplace, logistic as logistic, lognormal as lognormal,
    maxwell as maxwell, pareto as pareto, rademacher as rademacher, rayleigh as rayleigh, triangular as triangular,
    truncated_normal as truncated_normal, wald as wald, weibull_min as weibull_min
)
from weft.random.gamma_family import (
    ball as ball, beta as beta, chisquare as chisquare, dirichlet as dirichlet, f as f, gamma as gamma,
    generalized_normal as generalized_normal, loggamma as loggamma, t as t
)
from weft.random.keys import (
    PRNGKey as PRNGKey, clone as clone, fold_in as fold_in, key as key, key_data as key_data, key_dtype as key_dtype,
    key_impl as key_impl, split as split, wrap_key_data as wrap_key_data
)
from weft.random.matrix_values import multivariate_normal as multivariate_normal, orthogonal as orthogonal
from weft.random.sampling import bits as bits, normal as normal, randint as randint, uniform as uniform

def __getattr__(name: str) -> _Any: ...

"""Random numbers from explicit keys: the same key gives the same values, everywhere and as in JAX.

Make a key with ``key(seed)``, derive others with ``split`` and ``fold_in``, and use each once.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

if _typing.TYPE_CHECKING:
    from weft.random.choosing import categorical as categorical, choice as choice, permutation as permutation
    from weft.random.counts import (
        binomial as binomial,
        geometric as geometric,
        multinomial as multinomial,
        poisson as poisson,
    )
    from weft.random.distributions import (
        bernoulli as bernoulli,
        cauchy as cauchy,
        double_sided_maxwell as double_sided_maxwell,
        exponential as exponential,
        gumbel as gumbel,
        laplace as laplace,
        logistic as logistic,
        lognormal as lognormal,
        maxwell as maxwell,
        pareto as pareto,
        rademacher as rademacher,
        rayleigh as rayleigh,
        triangular as triangular,
        truncated_normal as truncated_normal,
        wald as wald,
        weibull_min as weibull_min,
    )
    from weft.random.gamma_family import (
        ball as ball,
        beta as beta,
        chisquare as chisquare,
        dirichlet as dirichlet,
        f as f,
        gamma as gamma,
        generalized_normal as generalized_normal,
        loggamma as loggamma,
        t as t,
    )
    from weft.random.keys import (
        PRNGKey as PRNGKey,
        clone as clone,
        fold_in as fold_in,
        key as key,
        key_data as key_data,
        key_dtype as key_dtype,
        key_impl as key_impl,
        split as split,
        wrap_key_data as wrap_key_data,
    )
    from weft.random.matrix_values import multivariate_normal as multivariate_normal, orthogonal as orthogonal
    from weft.random.sampling import bits as bits, normal as normal, randint as randint, uniform as uniform

# Modules are loaded when one of their names is first used; the imports above say the same to type checkers.
_NAMES = _lazy.Names(
    "weft.random",
    {
        "random.choosing": "categorical choice permutation",
        "random.counts": "binomial geometric multinomial poisson",
        "random.distributions": """
            bernoulli cauchy double_sided_maxwell exponential gumbel laplace logistic lognormal maxwell
            pareto rademacher rayleigh triangular truncated_normal wald weibull_min""",
        "random.gamma_family": "ball beta chisquare dirichlet f gamma generalized_normal loggamma t",
        "random.keys": "PRNGKey clone fold_in key key_data key_dtype key_impl split wrap_key_data",
        "random.sampling": "bits normal randint uniform",
        "random.matrix_values": "multivariate_normal orthogonal",
    },
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.random", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

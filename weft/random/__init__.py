"""Random numbers from explicit keys: the same key gives the same values, everywhere and as in JAX.

Make a key with ``key(seed)``, derive others with ``split`` and ``fold_in``, and use each once.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt

# Modules are loaded when one of their names is first used. docs/stubs.py tells type checkers so (__init__.pyi).
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

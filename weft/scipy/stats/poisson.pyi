"""The names of weft.scipy.stats.poisson, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``."""

def pmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of ``k``."""

def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of at most ``k``."""

def entropy(mu: Any, loc: Any = 0) -> Array:
    """The entropy in nats: sums up to 100, an asymptotic series above; NaN for negative ``mu``."""

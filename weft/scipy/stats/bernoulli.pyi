"""The names of weft.scipy.stats.bernoulli, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``."""

def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``."""

def cdf(k: Any, p: Any) -> Array:
    """The probability of at most ``k``."""

def ppf(q: Any, p: Any) -> Array:
    """0 or 1, the least value whose ``cdf`` is at least ``q``; NaN for ``q`` outside 0..1."""

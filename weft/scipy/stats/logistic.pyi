"""The names of weft.scipy.stats.logistic, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``."""

def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``."""

def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``."""

def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``."""

def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``x`` is not to exceed, the inverse of ``cdf``; NaN for ``x`` outside 0..1."""

def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability ``x``, the inverse of ``sf``; NaN for ``x`` outside 0..1."""

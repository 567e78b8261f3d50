"""The names of weft.scipy.stats.norm, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``."""

def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``."""

def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``."""

def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``, accurate far below the mean."""

def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``."""

def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``."""

def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, as the default float: the inverse of ``cdf``."""

def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability ``q``, the inverse of ``sf``; NaN for ``q`` outside 0..1."""

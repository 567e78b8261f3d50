"""The names of weft.scipy.stats.gennorm, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpdf(x: Any, beta: Any) -> Array:
    """Logarithm of the density at ``x``."""

def pdf(x: Any, beta: Any) -> Array:
    """The density at ``x``."""

def cdf(x: Any, beta: Any) -> Array:
    """The probability of at most ``x``."""

"""The names of weft.scipy.stats.vonmises, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpdf(x: Any, kappa: Any) -> Array:
    """Logarithm of the density at ``x``; NaN for ``kappa`` below 0."""

def pdf(x: Any, kappa: Any) -> Array:
    """The density at ``x``."""

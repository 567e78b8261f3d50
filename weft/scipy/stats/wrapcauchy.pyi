"""The names of weft.scipy.stats.wrapcauchy, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpdf(x: Any, c: Any) -> Array:
    """Logarithm of the density at ``x``; -inf and 0 outside 0..2 pi."""

def pdf(x: Any, c: Any) -> Array:
    """The density at ``x``."""

"""The names of weft.scipy.stats.geom, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any

from weft import Array

def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``."""

def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``."""

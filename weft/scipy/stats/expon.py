"""weft.scipy.stats.expon: the exponential distribution from ``loc`` upwards; ``scale`` is its mean."""

from weft.scipy.stats.continuous import EXPON as _EXPON

globals().update(_EXPON.functions)

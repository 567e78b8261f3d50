"""weft.scipy.stats.uniform: density, distribution function and its inverse between ``loc`` and ``loc + scale``."""

from weft.scipy.stats.continuous import UNIFORM as _UNIFORM

globals().update(_UNIFORM.functions)

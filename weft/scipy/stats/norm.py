"""weft.scipy.stats.norm: density, distribution function and their logarithms and inverses of the normal distribution.

``loc`` is the mean and ``scale`` the standard deviation.
"""

from weft.scipy.stats.continuous import NORM as _NORM

globals().update(_NORM.functions)

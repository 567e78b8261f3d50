"""weft.scipy.stats.truncnorm: a normal distribution cut off at ``a`` and ``b`` standard deviations from ``loc``.

The mass between two positions is a difference of distribution functions, taken in logarithms and from the nearer tail.
"""

from weft.scipy.stats.continuous import TRUNCNORM as _TRUNCNORM

globals().update(_TRUNCNORM.functions)

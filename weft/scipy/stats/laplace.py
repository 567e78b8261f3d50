"""weft.scipy.stats.laplace: the double exponential distribution around ``loc``."""

from weft.scipy.stats.continuous import LAPLACE as _LAPLACE

globals().update(_LAPLACE.functions)

"""weft.scipy.stats.vonmises: the normal distribution of angles, of concentration ``kappa``."""

from weft.scipy.stats.continuous import VONMISES as _VONMISES

globals().update(_VONMISES.functions)

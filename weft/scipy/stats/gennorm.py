"""weft.scipy.stats.gennorm: the generalised normal distribution, of density ``exp(-|x|**beta)`` up to a factor."""

from weft.scipy.stats.continuous import GENNORM as _GENNORM

globals().update(_GENNORM.functions)

"""weft.scipy.stats.logistic: the logistic distribution, whose distribution function is ``expit``."""

from weft.scipy.stats.continuous import LOGISTIC as _LOGISTIC

globals().update(_LOGISTIC.functions)

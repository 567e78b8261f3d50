"""weft.scipy.stats.gumbel_r: the distribution of the largest of many values.

cdf(x, loc, scale)  ->  exp(-exp(-(x - loc) / scale))
"""

from weft.scipy.stats.continuous import GUMBEL_R as _GUMBEL_R

globals().update(_GUMBEL_R.functions)

"""weft.scipy.stats.gumbel_l: the distribution of the smallest of many values.

sf(x, loc, scale)  ->  exp(-exp((x - loc) / scale))
"""

from weft.scipy.stats.continuous import GUMBEL_L as _GUMBEL_L

globals().update(_GUMBEL_L.functions)

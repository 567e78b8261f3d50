"""weft.scipy.stats.gamma: the gamma distribution of shape ``a``.

cdf(x, a, loc, scale)  ->  gammainc(a, (x - loc) / scale)
"""

from weft.scipy.stats.continuous import GAMMA as _GAMMA

globals().update(_GAMMA.functions)

"""weft.scipy.stats.beta: the beta distribution of exponents ``a`` and ``b``, from ``loc`` to ``loc + scale``.

cdf(x, a, b, loc, scale)  ->  betainc(a, b, (x - loc) / scale)
"""

from weft.scipy.stats.continuous import BETA as _BETA

globals().update(_BETA.functions)

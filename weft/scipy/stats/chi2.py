"""weft.scipy.stats.chi2: the distribution of a sum of ``df`` squares of normal values.

It is a gamma distribution of shape ``df / 2`` and twice the scale.
"""

from weft.scipy.stats.continuous import CHI2 as _CHI2

globals().update(_CHI2.functions)

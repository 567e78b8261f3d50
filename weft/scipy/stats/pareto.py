"""weft.scipy.stats.pareto: the Pareto distribution of exponent ``b``, from ``loc + scale`` upwards.

sf(x, b, loc, scale)  ->  ((x - loc) / scale) ** -b
"""

from weft.scipy.stats.continuous import PARETO as _PARETO

globals().update(_PARETO.functions)

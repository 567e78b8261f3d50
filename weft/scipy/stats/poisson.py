"""weft.scipy.stats.poisson: how many independent events happen, if ``mu`` are expected."""

from weft.scipy.stats.discrete import POISSON as _POISSON

globals().update(_POISSON.functions)

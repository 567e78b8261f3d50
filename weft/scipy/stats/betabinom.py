"""weft.scipy.stats.betabinom: a binomial distribution whose probability is beta distributed."""

from weft.scipy.stats.discrete import BETABINOM as _BETABINOM

globals().update(_BETABINOM.functions)

"""weft.scipy.stats.binom: how many of ``n`` independent trials succeed, each with probability ``p``."""

from weft.scipy.stats.discrete import BINOM as _BINOM

globals().update(_BINOM.functions)

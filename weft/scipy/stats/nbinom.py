"""weft.scipy.stats.nbinom: how many trials fail before ``n`` succeed, each with probability ``p``."""

from weft.scipy.stats.discrete import NBINOM as _NBINOM

globals().update(_NBINOM.functions)

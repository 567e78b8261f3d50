"""weft.scipy.stats.wrapcauchy: the Cauchy distribution wrapped around a circle, of concentration ``c`` in 0..1."""

from weft.scipy.stats.continuous import WRAPCAUCHY as _WRAPCAUCHY

globals().update(_WRAPCAUCHY.functions)

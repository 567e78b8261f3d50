"""weft.scipy.stats.geom: how many trials it takes until one succeeds, each with probability ``p``."""

from weft.scipy.stats.discrete import GEOM as _GEOM

globals().update(_GEOM.functions)

"""weft.scipy.stats.cauchy: the Cauchy distribution around ``loc``; ``scale`` is half the distance of its quartiles.

Tails are computed from arctan2, without taking them from 1.
"""

from weft.scipy.stats.continuous import CAUCHY as _CAUCHY

globals().update(_CAUCHY.functions)

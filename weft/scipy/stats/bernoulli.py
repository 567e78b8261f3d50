"""weft.scipy.stats.bernoulli: 1 with probability ``p``, otherwise 0."""

from weft.scipy.stats.discrete import BERNOULLI as _BERNOULLI

globals().update(_BERNOULLI.functions)

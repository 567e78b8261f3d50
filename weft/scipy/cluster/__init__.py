"""weft.scipy.cluster: vector quantisation."""

from weft.scipy.cluster import vq

__all__ = ["vq"]

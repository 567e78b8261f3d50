"""weft.scipy.spatial: rotations of three-dimensional space (``transform``)."""

from weft._base import unbuilt as _unbuilt
from weft.scipy.spatial import transform

__getattr__ = _unbuilt.fallback(__name__)

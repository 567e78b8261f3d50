"""weft.scipy.integrate: the trapezoidal rule."""

from weft._base import unbuilt as _unbuilt
from weft.numpy.calculus import trapezoid

__all__ = ["trapezoid"]
__getattr__ = _unbuilt.fallback("weft.scipy.integrate")

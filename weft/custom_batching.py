"""weft.custom_batching: functions with a rule of vectorisation of their own."""

from weft._base import unbuilt as _unbuilt
from weft.batching.custom_vmap import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
__getattr__ = _unbuilt.fallback("weft.custom_batching")

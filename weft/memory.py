"""weft.memory: names of the memories that arrays lie in, under JAX's names."""

from weft.core.shardings import Space

__all__ = ["Space"]

"""weft.memory: names of the memories that arrays lie in, under JAX's names."""

from weft.core.sharding.shardings import Space

__all__ = ["Space"]

"""``jaxlib`` where weft stands in for JAX: a version, and an error for all else, since XLA is not there."""

from __future__ import annotations

from weft.launch import followed as version
from weft.launch.followed import __version__

__all__ = ["__version__", "version"]

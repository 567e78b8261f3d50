"""The version of JAX whose interface weft follows: what ``jax.__version__`` and the package's metadata answer.

Also importable as ``jax.version``, ``jaxlib`` and ``jaxlib.version`` in a process where weft stands in for JAX.
"""

from __future__ import annotations

__version__ = "0.10.2"
__version_info__ = (0, 10, 2)
_minimum_jaxlib_version = __version__
_minimum_jaxlib_version_info = __version_info__

DISTRIBUTIONS = ("jax", "jaxlib")

"""weft.experimental: what JAX documents as experimental and weft has: ``io_callback``, ``checkify``, ``enable_x64``.

Other documented names exist and raise NotImplementedError naming themselves.
"""

from __future__ import annotations

from weft import config
from weft._base import unbuilt
from weft.effects.callbacks import io_callback

enable_x64 = config.CONTEXTS["enable_x64"]

__all__ = ["enable_x64", "io_callback"]
__getattr__ = unbuilt.fallback(__name__)

"""weft.pjrt: plugins for other hardware, loaded by their path, and what was found of them.

A plugin that is installed as JAX's plugins are needs no call of these: ``weft.devices("cuda")`` finds and loads it.
"""

from __future__ import annotations

from weft.dispatch.devices.plugins import Client as Backend
from weft.dispatch.devices.plugins import Found, discover, load, refused

__all__ = ["Backend", "Found", "discover", "load", "refused"]

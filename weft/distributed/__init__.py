"""weft.distributed: one program on many processes, through MPI, under JAX's names.

``weft launch -n 4 script.py`` starts a script that calls ``weft.distributed.initialize()``; docs/DISTRIBUTED.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base import lazy

if TYPE_CHECKING:
    from weft.distributed.membership import initialize, is_initialized, shutdown

_NAMES = lazy.Names(
    "weft.distributed",
    {"distributed.membership": "initialize is_initialized shutdown"},
    submodules="endings environment joining launcher membership preemption processes transport",
)
__getattr__ = _NAMES.find

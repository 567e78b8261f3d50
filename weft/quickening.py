"""Functions of weft's are adapted to what they meet at their second call: CPython 3.11 waits for the ninth.

A call with new sizes runs a few hundred functions once. Unadapted they look every name up in dicts, types and strings
that are in no cache by then: a quarter of the memory that such a call touches.
"""

from __future__ import annotations

import sys

from weft import runtime

_IS_LATE = sys.version_info < (3, 12)
# Stages that new kernels alone go through, whose functions run often enough by themselves, and a first call pays.
_STAGES = ("weft.codegen.", "weft.loops.", "weft.compiler.")
_RECALLED = frozenset(
    f"weft.compiler.{name}"
    for name in ("cache", "chain", "contraction", "flat", "like_kernels", "pipeline", "plan", "recall", "stages")
)
_seen: set[str] = set()
_count = 0  # of all modules when it was last looked


def quicken() -> None:
    """Let functions of the modules of weft loaded since the last time be adapted at their next call."""
    global _count
    if not _IS_LATE or len(sys.modules) == _count:
        return
    _count = len(sys.modules)
    for name, module in list(sys.modules.items()):
        is_stage = name.startswith(_STAGES) and name not in _RECALLED
        if name.startswith("weft.") and not is_stage and name not in _seen and module is not None:
            _seen.add(name)
            runtime.quicken(vars(module), name)

"""What a jitted function knows of its calls: all that ``core.budget`` can drop and the next call makes again.

A function that is called enters the budget, unless its programs were all lent to it (``trace_cache.find_call``).
Dropped, it keeps its counts of hits, traces and executables alone. What is dropped: its record, what replays its calls
in traces, times and kernel counts, and the native table of its signatures.
"""

from __future__ import annotations

import weakref
from typing import Any

from weft import runtime
from weft.core.budget import BUDGET
from weft.higher import replay, trace_cache

_BYTES = 1400  # measured, with its place in the budget and one signature in the native table
_clear_native = runtime.JitFunction.clear_cache


class KnownCalls:
    """One jitted function's; ``owner`` is the object that has it as its attribute ``known``."""

    __slots__ = ("__weakref__", "jitted", "milliseconds", "owner", "record", "statistics", "templates")

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self.jitted: weakref.ref[Any] | None = None  # whose native table is cleared
        self.record: trace_cache.FunctionRecord | None = None
        self.templates: dict[replay.Key, Any] = {}
        self.milliseconds: dict[str, float] = {}
        self.statistics: tuple[int, int, int] = (0, 0, 0)  # kernels built, loaded, reused

    def uses(self) -> int:
        """Calls that the native table answered."""
        jitted = None if self.jitted is None else self.jitted()
        return 0 if jitted is None else jitted.hits

    def drop(self) -> None:
        """Let the function begin anew."""
        owner = self.owner()
        if owner is not None and owner.known is self:
            owner.known = None
        jitted = None if self.jitted is None else self.jitted()
        if jitted is not None:
            _clear_native(jitted)


def begin(owner: Any) -> KnownCalls:
    """What ``owner`` will know from now on. Under the smallest bounds the budget takes it away at once."""
    known = owner.known = KnownCalls(owner)
    BUDGET.keep(known, _BYTES, KnownCalls.drop, KnownCalls.uses)
    return known

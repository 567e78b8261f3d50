"""Programs that can be run at once: made from a like program, or read from disk, without the passes and the plan.

All the rest of such a program (its forms, its plan, what it costs) is compiled when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core.jaxpr import ClosedJaxpr

# attributes that such a program has when it is compiled
_OF_WHOLE = frozenset(
    ("compiled", "cost_analysis", "forms", "jaxpr", "kernels", "lowered", "memory_analysis", "nested", "nests", "plan",
     "stages", "text")
)  # fmt: skip


_BYTES = 2500  # measured: an executable with its types and what compiles the rest


class Runnable:
    """A program whose ``executable`` takes ``consts`` and then the arguments; ``whole()`` is the compiled one.

    ``nbytes``: of its entry on disk, which its constants and instructions are about as large as.
    """

    is_whole = False
    users = 0  # traces that run it
    kin: Any = None  # the family of programs that are like it

    def __init__(
        self, source: ClosedJaxpr, name: str, executable: Any, out_avals: Sequence[Any], compile_new: Callable[[], Any],
        *, spent: tuple[str, float], consts: tuple[Any, ...] = (), loaded: int = 0, reused: int = 1, nbytes: int = 0,
    ) -> None:  # fmt: skip
        self.source, self.name, self._compile_new = source, name, compile_new
        self._whole: Any = None
        self.executable, self.out_avals, self.consts = executable, out_avals, consts
        self.in_avals = tuple(source.in_avals)
        self.donated = (False,) * len(self.in_avals)
        self.copied: frozenset[int] = frozenset()
        self.kernels_built, self.kernels_loaded, self.kernels_reused = 0, loaded, reused
        self.counted = False
        self.keys: dict[Any, None] = {}
        self.weight = _BYTES + nbytes
        self.stats = {
            "milliseconds": dict((spent,)), "kernels_built": 0, "kernels_loaded": loaded, "kernels_reused": reused,
        }  # fmt: skip

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in _OF_WHOLE:
            raise AttributeError(attribute)
        return getattr(self.whole(), attribute)

    def whole(self) -> Any:
        """The program with its plan, compiled now."""
        if self._whole is None:
            self._whole = self._compile_new()
        return self._whole

    def with_consts(self, closed: ClosedJaxpr) -> Runnable:
        """Itself: it captures nothing."""
        del closed
        return self

    def uses(self) -> int:
        """The number of times it was started."""
        return self.executable.runs

    def retire(self) -> None:
        """Traces keep the programs that they run."""
        if self.kin is not None:
            self.kin.left(self)

"""Programs that can be run, whoever compiled them: what traces and operations are answered by.

A program is at least an executable. All the rest of it (its forms, its plan, what it costs) may come later: of one that
was made from a like program, or read from disk, it is compiled when somebody asks for it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.store import Entry

# attributes that a program has when it is compiled
_OF_WHOLE = frozenset(("compiled", "forms", "jaxpr", "kernels", "lowered", "nested", "nests", "plan", "stages"))
_BYTES = 1600  # measured: an executable with its entry


class Runnable(Entry):
    """A program whose ``executable`` takes ``consts`` and then the arguments.

    ``whole()`` is it with all that the compiler knows of it; ``compile_new`` gives that. One without it is machine code
    only. ``nbytes``: what it holds besides the executable.
    """

    name = ""
    source: Any = None  # the program that it was made from, if that is known
    entry: Any = None  # of the dispatch table, if no trace has it
    kin: Any = None  # the family of programs that are like it
    places: Any = 0  # of the results, where an operation found them
    users = 0  # traces that run it
    counted = False  # whether the function that compiled it has counted its costs
    kernels_built = kernels_loaded = kernels_reused = 0
    donated: tuple[bool, ...] = ()
    copied: frozenset[int] = frozenset()
    in_avals: tuple[Any, ...] = ()
    out_avals: tuple[Any, ...] = ()
    milliseconds: dict[str, float] = {}  # noqa: RUF012 - of each stage; nobody writes into this one
    compile_new: Callable[[], Any] | None = None
    _whole: Any = None

    def __init__(self, executable: Any = None, consts: tuple[Any, ...] = (), nbytes: int = 0) -> None:
        self.keys = {}
        self.executable, self.consts, self.nbytes = executable, consts, nbytes

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in _OF_WHOLE or self.compile_new is None:
            raise AttributeError(attribute)
        return getattr(self.whole(), attribute)

    def whole(self) -> Any:
        """The program with its plan, compiled now if it was not."""
        if self._whole is None:
            if self.compile_new is None:
                raise NotImplementedError("[as_text] a saved program has machine code only: no forms, no estimates")
            self._whole = self.compile_new()
        return self._whole

    def run(self, operands: Sequence[Any], *how: Any) -> list[Any]:
        """The results; ``how``: the donated operands, and where results lie, as for ``runtime.Executable.run``."""
        return self.executable.run([*self.consts, *operands], *how)

    def with_consts(self, consts: Sequence[Any]) -> Any:
        """The same program for these captured Arrays, which come before those of its own."""
        if not consts:
            return self
        program = copy.copy(self)
        program.keys = {}
        program.consts = (*consts, *self.consts)
        return program

    def family(self, out_avals: Sequence[Any], given: bool = False) -> Any:
        """What makes programs at other sizes, with results of such types, once it has learned this one; None: nothing.

        ``given``: every extent is among the sizes.
        """
        return self.whole().family(out_avals, given)

    def uses(self) -> int:
        """The number of times it was started."""
        return self.executable.runs

    def retire(self) -> None:
        """Take it out of the dispatch tables. Traces keep the programs that they run."""
        if self.entry is not None:
            self.entry.retire()
        if self.kin is not None:
            self.kin.left(self)

    @property
    def weight(self) -> int:
        return _BYTES + self.nbytes

    @property
    def stats(self) -> dict[str, Any]:
        """Milliseconds of each stage, and what the kernel cache answered."""
        return {
            "milliseconds": dict(self.milliseconds),
            "kernels_built": self.kernels_built,
            "kernels_loaded": self.kernels_loaded,
            "kernels_reused": self.kernels_reused,
        }

    def text(self, form: str) -> str:
        """The program in one of its forms."""
        return self.whole().text(form)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates, by name."""
        return self.whole().cost_analysis()

    def memory_analysis(self) -> dict[str, int]:
        """Sizes in bytes, by name."""
        return self.whole().memory_analysis()

"""The closed list of causes for which a call is traced again, each with its cure.

A cause is a sentence about one call (``text``), a word of the list (``kind``), and what to do if it was not meant.
"""

from __future__ import annotations

from weft._base.record import NamedTuple

CURES = {
    "first": "nothing: every function is traced once; keep one jitted function and call it again",
    "shape": "pad to a few sizes, or pass arrays of one shape; a new shape costs a trace but reuses machine code",
    "rank": "pass arrays of one rank, or one jitted function for each",
    "dtype": "convert at the caller, once: x.astype(...) or weft.numpy.asarray(x, dtype)",
    "float64": "make the argument float32 at its source: NumPy makes float64 unless it is told otherwise",
    "weak type": "pass an array, weft.numpy.asarray(x, dtype), where a Python number is passed now, or the reverse",
    "structure": "pass the same containers with the same keys and lengths, None included, at every call",
    "static": "pass as an ordinary argument what takes many values; keep static only what selects the program",
    "static form": "pass the static argument the same way at every call: by position or by keyword, of one type",
    "options": "set options once, before the first call; leaving a context finds the earlier program again",
    "new function": "make and jit the function once, outside of the loop, and pass as arguments what varies",
}


class Cause(NamedTuple):
    """Why a call is traced."""

    kind: str
    text: str

    @property
    def cure(self) -> str:
        return CURES[self.kind]

    def __str__(self) -> str:
        return self.text

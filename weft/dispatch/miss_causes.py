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
    "closure": "pass the value as an argument, so that one program serves all its values",
    "global": "pass the value as an argument; a traced function reads a global once, when it is traced",
    "default": "pass the argument at the call; a changed default is another function",
    "new function": "jit once, outside of the loop, and call the same function object again",
    "unshared": "jit once and keep the function, or let it read only values that weft can compare",
    "sharing off": "set the option share_equal_functions, or keep the jitted function",
    "from disk": "nothing: the program came from disk, and its jaxpr is now asked for",
    "other types": "keep one function object: an equal one was traced for other argument types",
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

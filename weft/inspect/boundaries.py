"""Where kernels end and why: every value that goes through memory, a reason of a closed list, and the bytes it costs.

    Boundary(e, maker 0, reader 1, "several readers", 2 * 4 MB)

A value that fusion wanted inside its reader has the reason that fusion gave (``compiler.fusion.groups``); for others
the reason follows from what makes and what reads it.
"""

from __future__ import annotations

import re
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler import pipeline
from weft.compiler.plans.buffer_assignment import Assignment
from weft.core import kinds

# Code -> (what the texts of fusion begin with, what a user can do).
REFUSALS: dict[str, tuple[str, str]] = {
    "kernel full": (
        "the kernel is full|too many reductions in one kernel",
        "nothing: a kernel this large already hides memory; split the expression where few values cross",
    ),
    "recomputing costs more": (
        r"computing it at \d+ accesses",
        "let the readers see the value in one way (the same slice or broadcast), or make it cheaper to compute",
    ),
    "strict order": (
        "a loop in strict order|a reduction does not join a loop|a scan does not join|updates in order",
        "keep costly arithmetic out of the updates of a scatter and of a scan along the last axis",
    ),
    "same in every column": ("it is the same in every column", "nothing: computed once it is read by all columns"),
    "read across rows": (
        "it is read across its rows",
        "keep the array in the order in which it is read: transpose once, early, or reduce along the other axis",
    ),
    "gathered several times": (r"loading it at \d+ accesses", "gather once and reuse the result in one form"),
    "windows beyond an array": (
        "beside the pieces that a group chooses from",
        "gather before the pieces are put together by an index (a roll, a pad), or after",
    ),
    "windows in flattened axes": ("windows inside the flattened", "reduce over one axis after the gather, or reshape"),
    "several accesses": (
        "a reduction wanted at several|a scan wanted at several|a reduction wanted through|a reduction wanted on",
        "use the reduction's whole result, with one broadcast",
    ),
    "other axes": (
        "its reduced axes are not those|the consumer cuts through|a reduction inside a reduction|"
        "a reduction over other axes|a scan along another",
        "reduce over the same axes in one expression; a second reduction over others needs the first one stored",
    ),
    "long row": ("the row is too long", "nothing: blocks of the row run in parallel in a kernel of their own"),
    "few columns": ("the columns are too few", "nothing: blocks of rows run in parallel in a kernel of their own"),
    "pieces": ("it chooses between pieces", "concatenate after the reduction, or reduce the pieces one by one"),
    "in-place update": ("the array is updated in place", "read the array before its update, or read all of it"),
    "scan needs no vectors": (
        "a scan along a structural|its consumer needs vectors|an index in a reversed scan",
        "scan along another axis than the last, so that the lanes of vectors run across",
    ),
    "several readers": (
        "",
        "nothing if they differ; otherwise use the value in one expression",
    ),
    "result": ("", "nothing: it is returned; do not return what only later steps of the function need"),
    "whole array": ("", "products, sorts and library calls read arrays in memory; keep what they read small and final"),
    "call result": ("", "nothing: the call writes its whole result; elementwise work right after a product joins it"),
    "epilogue": ("", "nothing: it runs on each part of the product while that is in the cache"),
    "loop or branch": (
        "",
        "what enters or leaves a loop is in memory; move work that needs few values inside",
    ),
    "update of an array": ("", "an update writes into memory; use the updated array, not the one before it, later"),
    "other order": (
        "",
        "read the value in the order in which it is made: a reshape or transpose stores it",
    ),
}
_PATTERNS = [(code, re.compile(pattern)) for code, (pattern, _) in REFUSALS.items() if pattern]


def code_of(reason: str) -> str:
    """The code of a reason that fusion gives; KeyError for one that is not in the list."""
    for code, pattern in _PATTERNS:
        if pattern.match(reason):
            return code
    raise KeyError(reason)


class Boundary(NamedTuple):
    """A value in memory between two steps, or at the end."""

    variable: Any
    maker: int  # steps of the program after fusion
    reader: int  # -1: only the caller
    code: str
    text: str
    nbytes: int  # written once, and read by this reader

    @property
    def cure(self) -> str:
        return REFUSALS[self.code][1]


def boundaries(program: pipeline.Program) -> list[Boundary]:
    """All values between the steps of a program, in the order of their makers."""
    memory = program.assignment()
    makers: dict[Any, int] = {}
    readers: dict[Any, list[int]] = {}
    names: dict[Any, Any] = {}  # base -> the variable that the step wrote
    for number, step in enumerate(program.kernels.steps):
        reads, writes = memory.reads_and_writes(number, step)
        for variable in writes:
            makers.setdefault(memory.base(variable), number)
            names.setdefault(memory.base(variable), variable)
        for variable in reads:
            base = memory.base(variable)
            if base in makers and makers[base] != number and number not in readers.setdefault(base, []):
                readers[base].append(number)
    results = {memory.base(v) for v in program.jaxpr.outvars if hasattr(v, "aval") and not hasattr(v, "val")}
    found = []
    for base, maker in makers.items():
        nbytes = base.aval.nbytes
        for reader in readers.get(base, []):
            code, text = _reason(program, names[base], base, maker, reader, readers[base], base in results, memory)
            found.append(Boundary(names[base], maker, reader, code, text, 2 * nbytes))
        if base in results and not readers.get(base):
            found.append(Boundary(names[base], maker, -1, "result", "it is a result", nbytes))
    return found


def _reason(
    program: pipeline.Program, variable: Any, base: Any, maker: int, reader: int, readers: list[int], is_result: bool,
    memory: Assignment,
) -> tuple[str, str]:  # fmt: skip
    reads, makes = program.kernels.steps[reader], program.kernels.steps[maker]
    if memory.epilogues.get(maker, (-1,))[0] == reader:
        return "epilogue", "it is read part by part, as soon as the product has made it"
    if makes.kernel is None:
        kind = makes.equation.primitive.kind
        name = makes.equation.primitive.name
        if isinstance(kind, (kinds.Loop, kinds.Branch, kinds.Routine)):
            return "loop or branch", f"{name} leaves its results in memory"
        return "call result", f"{name} writes its whole result"
    if reads.kernel is None:
        kind, name = reads.equation.primitive.kind, reads.equation.primitive.name
        if isinstance(kind, (kinds.Loop, kinds.Branch, kinds.Routine)):
            return "loop or branch", f"{name} takes its operands in memory"
        return "whole array", f"{name} reads its whole operand in memory"
    if any(memory.base(source) is base for source, _ in reads.copies) or makes.copies:
        return "update of an array", "an update of part of it writes into its memory"
    for equation, reason in reads.kernel.refusals:
        if any(memory.base(v) is base for v in equation.outvars):
            return code_of(reason), reason
    if is_result:
        return "result", "it is a result of the function too"
    if len(readers) > 1:
        return "several readers", f"{len(readers)} steps read it, and cannot be one kernel"
    for equation, reason in reads.kernel.refusals:  # what depends on it stayed outside with it
        return code_of(reason), f"{equation.primitive.name}, which needs it, stays outside: {reason}"
    return "other order", "its reader needs it in another order, or at other indices than it is made at"

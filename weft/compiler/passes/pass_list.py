"""The list of passes: how a program is rewritten, in order, before it is divided into kernels.

Each is a function from a program to a program, which returns the same object if it has nothing to do. It has the name
of its module, which WEFT_SHOW, WEFT_DUMP, WEFT_SKIP and timings use. After each pass the program is valid and flat, and
gives the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler import context
from weft.compiler.context import Context
from weft.compiler.passes.algebra import algebra
from weft.compiler.passes.index_set_splitting import index_set_splitting
from weft.compiler.passes.indexing import indexing
from weft.compiler.passes.inline import INLINED, inline
from weft.compiler.passes.library_calls import library_calls
from weft.compiler.passes.literal_arrays import literal_arrays
from weft.compiler.passes.loop_fission import loop_fission
from weft.compiler.passes.loop_invariants import loop_invariants
from weft.compiler.passes.loops_in_registers import loops_in_registers
from weft.compiler.passes.lower_prng_keys import lower_prng_keys
from weft.compiler.passes.moved_reads import moved_reads
from weft.compiler.passes.products import products
from weft.compiler.passes.reshapes import reshapes
from weft.compiler.passes.straight_code import straight_code
from weft.compiler.passes.unrolled_reductions import unrolled_reductions
from weft.compiler.passes.window_lowering import window_lowering
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr


class Pass(NamedTuple):
    """One pass. It is run where an operation of the kinds ``of`` is in the program (None: always)."""

    name: str
    function: Callable[..., ClosedJaxpr]
    of: frozenset[type] | None
    required: bool  # later passes rely on it: it cannot be skipped
    expands: bool  # its result is inlined and simplified before the next pass
    looks_inside: bool  # at the bodies of loops after all passes
    asks: bool  # whether it is told what the program runs on: no GPU, a GPU's threads, or those with cells in blocks

    def run(self, closed: ClosedJaxpr, within: Context, skipped: frozenset[str] = frozenset()) -> ClosedJaxpr:
        more = (functools.partial(simplified, within=within),) if self.looks_inside else ()
        made = self.function(closed, *more, *((within.threads,) if self.asks else ()))
        if not self.expands or made is closed:
            return made
        made = inline(made)
        return made if algebra.__name__ in skipped else algebra(made)


def _pass(
    function: Any, *of: type, required: bool = False, expands: bool = False, looks_inside: bool = False,
    asks: bool = False,
) -> Pass:  # fmt: skip
    return Pass(function.__name__, function, frozenset(of) or None, required, expands, looks_inside, asks)


def simplified(closed: ClosedJaxpr, within: Context | None = None) -> ClosedJaxpr:
    """The body of a loop after all passes; memoised, since every enclosing loop needs it."""
    within = within or context.current()
    key: Any = ("simplified", within.key, *map(id, closed.consts))
    return closed.jaxpr.memoize(key, lambda _: (_passed(closed, within), closed.consts))[0] or closed


def _passed(closed: ClosedJaxpr, within: Context) -> ClosedJaxpr | None:
    """The program after all passes; None if they change nothing: a program that memoises itself would be a cycle."""
    left_out = _left_out(within.skip)
    made = run(closed, left_out, lambda entry, program: entry.run(program, within, left_out))
    return None if made is closed else made


def run(closed: ClosedJaxpr, left_out: frozenset[str], one: Callable[[Pass, ClosedJaxpr], ClosedJaxpr]) -> ClosedJaxpr:
    """The program after all passes except ``left_out``; ``one`` runs a pass, and is called only if it may have work."""
    present = rewrite.index(closed.jaxpr).kinds
    for entry in PASSES:
        if (entry.of is None or not entry.of.isdisjoint(present)) and entry.name not in left_out:
            made = one(entry, closed)
            if made is not closed:
                closed, present = made, rewrite.index(made.jaxpr).kinds
    return closed


def _left_out(text: str) -> frozenset[str]:
    """The passes named by the option ``skip``; ``simplify`` stands for all that can be left out."""
    words = frozenset([word.strip() for word in text.split(",")]) if text else frozenset()
    optional = frozenset([entry.name for entry in PASSES if not entry.required])
    return optional if words & {"simplify", "all"} else words & optional


PASSES = (
    _pass(lower_prng_keys, required=True),
    _pass(inline, *INLINED, required=True),
    _pass(algebra),
    # after algebra, which folds integers: an index may be known
    _pass(straight_code, kinds.Branch, kinds.Loop, expands=True, looks_inside=True, asks=True),
    _pass(loop_invariants, kinds.Loop, expands=True, looks_inside=True),
    _pass(loop_fission, kinds.Loop, expands=True, looks_inside=True),
    _pass(window_lowering, kinds.Window, required=True, expands=True),
    _pass(library_calls, kinds.External, expands=True),
    _pass(indexing, kinds.Scatter, kinds.Gather, expands=True, asks=True),
    _pass(products, kinds.Contraction, kinds.StridedContraction, required=True, expands=True, asks=True),
    _pass(literal_arrays, required=True),  # from here on nothing makes literals of variables
    _pass(index_set_splitting, kinds.Assemble),
    _pass(reshapes, kinds.Reshape),
    _pass(moved_reads, kinds.Gather, kinds.DynamicSlice),
    _pass(loops_in_registers, kinds.Loop, looks_inside=True, asks=True),
    _pass(unrolled_reductions, kinds.Reduction),  # after reshapes, which would hide what computes an operand
)

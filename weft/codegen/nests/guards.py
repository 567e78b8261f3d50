"""Writes guards: tests of values whose failure is told by a byte, at one instruction for each vector inside of loops.

    sum of the values (NaN), or of the values times 0 (NaN or infinite), kept over a loop: it is NaN if any failed
    after the loop:  if any lane of the sum is NaN: word = 1

Sums may also be NaN where values were infinite only: the byte is a reason to look, no verdict. Booleans are joined
in the same way where there are mask registers, and tested at once where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance
from weft.loops import ir

SUMS = 4  # kept side by side, so that additions need not wait for each other


def write(parent: Frame, s: ir.Guard, copies: list[Instance], word: str, at_once: bool = False) -> None:
    """A guard for every vector of a tile; ``at_once`` in code that does not run in every iteration of its loop."""
    if at_once:
        parent.writer.open_loops.append(None)
        write(parent, s, copies, word)
        parent.writer.open_loops.pop()
        return
    if s.fails == "true":
        _write_booleans(parent, s, copies, word)
        return
    for number, copy in enumerate(copies):
        value = copy.emit.settle(copy.values[s.value])
        for part in value.parts:
            lanes = part.lanes
            if copy.mask is not None and lanes.width > 1:
                part = lanes.select(copy.mask.lanes, part, 0.0)
            _sum(parent, s, part, number % SUMS, word)


def _sum(parent: Frame, s: ir.Guard, part: V, number: int, word: str) -> None:
    writer, lanes = parent.writer, part.lanes
    type_ = lanes.type(part.element)
    zero = "zeroinitializer" if lanes.width > 1 else "0.0"

    def finish(text: str) -> None:
        tell(lanes, _is_nan(lanes, part.element, text), word)

    kept = writer.keep(("guard", s.operand, s.fails, type_, number), type_, zero, finish)
    before = zero if kept is None else kept.now
    if s.fails == "nan":
        text = writer.op(f"fadd {type_} {before}, {part.text}")
    else:
        arguments = [(type_, part.text), (type_, zero), (type_, before)]
        text = writer.call(f"llvm.fma.{lanes.suffix(part.element)}", type_, arguments)
    if kept is None:
        finish(text)
    else:
        kept.now = text


def _is_nan(lanes: Lanes, element: str, text: str) -> V:
    return V(lanes, "i1", lanes.writer.op(f"fcmp uno {lanes.type(element)} {text}, {text}"))


def _write_booleans(parent: Frame, s: ir.Guard, copies: list[Instance], word: str) -> None:
    found: V | None = None
    for copy in copies:
        one = copy.values[s.value].part
        one = one if copy.mask is None or one.lanes.width == 1 else one & copy.mask.lanes
        found = one if found is None else found | one
    assert found is not None
    lanes, writer = found.lanes, parent.writer
    kept = None
    if parent.model.masks or lanes.width == 1:
        type_ = lanes.type("i1")
        none = lanes.constant_text(False, "i1")
        kept = writer.keep(
            ("guard", s.operand, type_), type_, none, lambda text: tell(lanes, V(lanes, "i1", text), word)
        )
    if kept is None:
        tell(lanes, found, word)
    else:
        kept.now = (V(lanes, "i1", kept.now) | found).text


def tell(lanes: Lanes, found: V, word: str) -> None:
    """Set the byte if any lane holds."""
    writer = lanes.writer
    yes, on = writer.fresh_label(), writer.fresh_label()
    writer.branch_if(lanes.any(found), yes, on, cold=True)
    writer.label(yes)
    writer.line(f"store atomic i8 1, ptr {word} monotonic, align 1")  # threads may all do so
    writer.branch(on)
    writer.label(on)


def kept(nest: ir.Nest, reduced: Sequence[int]) -> frozenset[int]:
    """The guards, by id, whose statements run in every iteration of their loop: not those of some rows only."""
    if not reduced:
        return frozenset([id(s) for s in nest.statements() if isinstance(s, ir.Guard)])
    if nest.vector not in reduced:
        return frozenset()
    return frozenset([id(s) for phase in nest.phases for s in phase.body if isinstance(s, ir.Guard)])

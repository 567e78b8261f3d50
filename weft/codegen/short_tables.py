"""Tables of 8 float32 in registers: AVX2's permutation, NEON's lookup of bytes in two registers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.lanes import Lanes, V, literal
from weft.codegen.shuffles import joined, narrowed, part, widened

SIZE = 8
PERMUTE, BYTES = "permute", "bytes"  # the instructions: of lanes (AVX2), of bytes (NEON)


def lookup(table: Sequence[float], index: V) -> V:
    """table[index & 7] of 8 floats for an index of i32, where ``features.short_tables`` names an instruction."""
    lanes = index.lanes
    permutes = lanes.features.short_tables == PERMUTE
    per, find = (8, _permuted) if permutes else (4, _by_bytes)
    wide = Lanes(lanes.writer, per)
    lanes.writer.literals = True
    if lanes.width < per:
        return narrowed(find(table, widened(index, wide)), lanes, wide, "float")
    parts = [find(table, part(index, wide, start)) for start in range(0, lanes.width, per)]
    return joined(parts, lanes, per, "float")


def _vector(table: Sequence[float]) -> str:
    return "<" + ", ".join(f"float {literal(c, 'float')}" for c in table) + ">"


def _permuted(table: Sequence[float], index: V) -> str:
    given = [("<8 x float>", _vector(table)), ("<8 x i32>", index.text)]
    return index.lanes.writer.call("llvm.x86.avx2.permps", "<8 x float>", given)


def _by_bytes(table: Sequence[float], index: V) -> str:
    """The four bytes of an entry are looked up one by one, by their numbers."""
    writer = index.lanes.writer
    numbers = (index & (SIZE - 1)) * 0x04040404 + 0x03020100
    picks = writer.op(f"bitcast <4 x i32> {numbers.text} to <16 x i8>")
    halves = [writer.op(f"bitcast <4 x float> {_vector(table[k : k + 4])} to <16 x i8>") for k in (0, 4)]
    given = [("<16 x i8>", text) for text in (*halves, picks)]
    found = writer.call("llvm.aarch64.neon.tbl2.v16i8", "<16 x i8>", given)
    return writer.op(f"bitcast <16 x i8> {found} to <4 x float>")

"""Single instructions of NEON: the lookup of bytes in two registers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.arithmetic import shuffles
from weft.codegen.arithmetic.features import Native
from weft.codegen.arithmetic.lanes import V, literals


class Neon(Native[V]):
    """The answers of AArch64 processors."""

    table_bytes = 32

    def lookup(self, table: Sequence[float], index: V) -> V:
        """table[index & 7] of 8 floats for an index of i32."""
        index.lanes.writer.literals = True
        return shuffles.by_parts([index], 4, lambda part: _by_bytes(table, part), "float")


def _by_bytes(table: Sequence[float], index: V) -> str:
    """The four bytes of an entry are looked up one by one, by their numbers."""
    writer = index.lanes.writer
    numbers = (index & 7) * 0x04040404 + 0x03020100
    picks = writer.op(f"bitcast <4 x i32> {numbers.text} to <16 x i8>")
    halves = [writer.op(f"bitcast <4 x float> {literals(table[k : k + 4], 'float')} to <16 x i8>") for k in (0, 4)]
    given = [("<16 x i8>", text) for text in (*halves, picks)]
    found = writer.call("llvm.aarch64.neon.tbl2.v16i8", "<16 x i8>", given)
    return writer.op(f"bitcast <16 x i8> {found} to <4 x float>")

"""Single instructions of GPUs: the lookup of short tables in memory that the first cache keeps.

The forms are those of CPUs with registers of 32 bytes (``table_bytes``), so that results have their bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from weft.codegen.arithmetic.features import Native
from weft.codegen.arithmetic.lanes import V, literals


class Gpu(Native[V]):
    """The answers of NVIDIA's GPUs."""

    count_bits = 32  # LLVM takes these of longer ones, and leaves out a test of all
    full_nans = True
    table_bytes = 32  # one sector of a cache, whichever elements the threads ask for

    def lookup(self, table: Sequence[float], index: V) -> V:
        """table[index & 7] of 8 floats for an index of i32."""
        return self.lookups([table], index)[0]

    def lookups(self, tables: Sequence[Sequence[float]], index: V) -> list[V]:
        """The tables lie one after the other, so that one address does for all of them."""
        lanes, count = index.lanes, self.table_bytes // 4
        given = literals([value for table in tables for value in table], "float")[1:-1]
        writer, name = lanes.writer, f"table_{zlib.crc32(given.encode()):08x}"
        writer.declarations[name] = (
            f"@{name} = private addrspace(1) constant [{len(tables) * count} x float] [{given}], align 32"
        )
        texts = ["poison"] * len(tables)
        for lane in range(lanes.width):
            number = index.text if lanes.width == 1 else lanes.extract(index, lane)
            at = writer.op(f"zext i32 {writer.op(f'and i32 {number}, {count - 1}')} to i64")
            first = writer.op(f"getelementptr float, ptr addrspace(1) @{name}, i64 {at}")
            for k, text in enumerate(texts):
                p = writer.op(f"getelementptr float, ptr addrspace(1) {first}, i64 {k * count}")
                found = writer.op(f"load float, ptr addrspace(1) {p}, align 4, !invariant.load !{{}}")
                into = f"insertelement {lanes.type('float')} {text}, float {found}, i64 {lane}"
                texts[k] = found if lanes.width == 1 else writer.op(into)
        return [V(lanes, "float", text) for text in texts]


GPU = Gpu()

"""Writes the words of keys: unsigned integers that ascend as the elements do, in the order of ``operations.sort``.

    f32  2.0, nan, -1.0   ->   i32  c0000000, ffffffff, 407fffff

Numbers ascend, -0.0 equals 0.0, NaN is last. For the largest elements words descend, -0.0 is below 0.0, and a NaN with
a sign below all numbers.
"""

from __future__ import annotations

from weft.codegen.writer import Writer

Order = tuple[str, int, int, bool]  # u, i or f; bytes; the bits of infinity; whether the largest come first


def ordered(writer: Writer, text: str, order: Order, wide: str) -> str:
    """The word of an element of so many bytes, in the lower bits of an integer of type ``wide``."""
    kind, nbytes, _, largest = order
    bits = text if wide == f"i{8 * nbytes}" else writer.op(f"zext i{8 * nbytes} {text} to {wide}")
    mask, sign = (1 << 8 * nbytes) - 1, 1 << (8 * nbytes - 1)
    if kind == "f":
        return _of_float(writer, bits, order, wide)
    flip = (sign if kind == "i" else 0) ^ (mask if largest else 0)
    return bits if not flip else writer.op(f"xor {wide} {bits}, {flip}")


def _of_float(writer: Writer, bits: str, order: Order, wide: str) -> str:
    _, nbytes, infinity, largest = order
    mask, sign = (1 << 8 * nbytes) - 1, 1 << (8 * nbytes - 1)
    size = writer.op(f"and {wide} {bits}, {sign - 1}")
    negative = writer.op(f"icmp uge {wide} {bits}, {sign}")
    flip = writer.op(f"select i1 {negative}, {wide} {mask}, {wide} {sign}")
    word = writer.op(f"xor {wide} {bits}, {flip}")
    last = str(mask)
    if largest:
        last = writer.op(f"select i1 {negative}, {wide} 0, {wide} {mask}")
    else:
        is_zero = writer.op(f"icmp eq {wide} {size}, 0")
        word = writer.op(f"select i1 {is_zero}, {wide} {sign}, {wide} {word}")
    is_nan = writer.op(f"icmp ugt {wide} {size}, {infinity}")
    word = writer.op(f"select i1 {is_nan}, {wide} {last}, {wide} {word}")
    return word if not largest else writer.op(f"xor {wide} {word}, {mask}")

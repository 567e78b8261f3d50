"""The first elements of a vector where no access has a mask: two accesses, which may overlap.

    5 of 8 bytes:   bytes 0 to 3, and 1 to 4        3 of 8 words:   words 0 and 1, and 1 and 2

Rows of bools, bytes and half precisions end with such a part, which a loop over its elements would make as long as ten
vectors. Nothing outside of the part is read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.writer import Writer

WORD, PAIR = 8, 16  # bytes: vectors up to a pair of words are put together in registers


def copy(writer: Writer, source: str, sink: str, count: str, size: int, most: int) -> None:
    """Copy ``count`` elements of ``size`` bytes, none if it is not positive; at most ``most``, a power of two."""

    def parts(length: int, last: str) -> list[str]:
        type_ = _type(size * length)
        texts = [writer.op(f"load {type_}, ptr {writer.element('i8', source, at)}, align 1") for at in ("0", last)]
        for text, at in zip(texts, ("0", last), strict=True):
            writer.line(f"store {type_} {text}, ptr {writer.element('i8', sink, at)}, align 1")
        return []

    _by_length(writer, count, size, most, parts, [])


def loaded(writer: Writer, type_: str, source: str, count: str, size: int, most: int) -> str | None:
    """``count`` elements as a vector of ``type_``, whose other elements are 0; None if it has more than 16 bytes.

    A vector that is read from memory where parts of it were just stored waits for them.
    """
    total = size * most
    if total not in (WORD // 2, WORD, PAIR):
        return None
    word = f"i{8 * min(total, WORD)}"

    def parts(length: int, last: str) -> list[str]:
        bytes_ = size * length
        ends = [
            writer.op(f"load {_type(bytes_)}, ptr {writer.element('i8', source, at)}, align 1") for at in ("0", last)
        ]
        if total == PAIR and bytes_ == PAIR:
            return [writer.op(f"extractelement <2 x i64> {ends[0]}, i64 {k}") for k in (0, 1)]
        if 8 * bytes_ < int(word[1:]):
            ends = [writer.op(f"zext {_type(bytes_)} {end} to {word}") for end in ends]
        if total == PAIR and bytes_ == WORD:  # the last bytes begin within the first word or where it ends
            half = writer.index("shl", writer.index("sub", str(WORD), last), "2")
            text = writer.op(f"lshr i64 {ends[1]}, {half}")
            return [ends[0], writer.op(f"lshr i64 {text}, {half}")]
        bits = writer.index("shl", last, "3")
        shift = bits if word == "i64" else writer.op(f"trunc i64 {bits} to {word}")
        high = writer.op(f"shl {word} {ends[1]}, {shift}")
        found = writer.op(f"or {word} {ends[0]}, {high}")
        return [found] if total != PAIR else [found, "0"]

    words = _by_length(writer, count, size, most, parts, [word] * (2 if total == PAIR else 1))
    if total != PAIR:
        return writer.op(f"bitcast {word} {words[0]} to {type_}")
    text = writer.op(f"insertelement <2 x i64> poison, i64 {words[0]}, i64 0")
    text = writer.op(f"insertelement <2 x i64> {text}, i64 {words[1]}, i64 1")
    return writer.op(f"bitcast <2 x i64> {text} to {type_}")


def _by_length(
    writer: Writer,
    count: str,
    size: int,
    most: int,
    parts: Callable[[int, str], Sequence[str]],
    types: Sequence[str],
) -> list[str]:
    """What ``parts`` gives for the longest access of up to ``count`` elements, and the offset of the last one."""
    done, length, ends = writer.fresh_label(), most, []
    while length:
        some, fewer = writer.fresh_label(), writer.fresh_label()
        writer.branch_if(writer.compare_index("sge", count, str(length)), some, fewer)
        writer.label(some)
        first = writer.index("sub", count, str(length))
        found = parts(length, first if size == 1 else writer.index("mul", first, str(size)))
        ends.append((found, writer.block))
        writer.branch(done)
        writer.label(fewer)
        length //= 2
    ends.append((["0"] * len(types), writer.block))
    writer.branch(done)
    writer.label(done)
    return [writer.phi(type_, *[(found[k], block) for found, block in ends]) for k, type_ in enumerate(types)]


def _type(size: int) -> str:
    return f"i{8 * size}" if size <= WORD else f"<{size // WORD} x i64>"

"""Documents: text with optional line breaks, laid out to a width (Wadler, "A prettier printer", 2003).

A document is a string, a ``Break``, or a ``Concat``, ``Nest`` or ``Group`` of documents. A group whose content fits
on the rest of the line is printed flat, each break as its flat text; otherwise its own breaks become newlines,
indented by the enclosing nests. Whether a group fits does not depend on the text that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Break:
    """A newline, or ``flat`` when its group is printed flat."""

    __slots__ = ("flat",)

    def __init__(self, flat: str = " ") -> None:
        self.flat = flat


class Concat:
    """Documents one after another."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Document, ...]) -> None:
        self.parts = parts


class Nest:
    """Newlines inside are indented by ``indent`` more columns."""

    __slots__ = ("body", "indent")

    def __init__(self, indent: int, body: Document) -> None:
        self.indent = indent
        self.body = body


class Group:
    """Printed flat if it fits."""

    __slots__ = ("body",)

    def __init__(self, body: Document) -> None:
        self.body = body


class Note:
    """A remark at the end of the line on which it stands; remarks are aligned."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Document = str | Break | Concat | Nest | Group | Note

# A break that becomes a newline only where the next word would not fit, as in running text.
SOFT_BREAK = Group(Break())


def concat(*parts: Document) -> Document:
    return Concat(parts)


def nest(indent: int, body: Document) -> Document:
    return Nest(indent, body)


def group(body: Document) -> Document:
    return Group(body)


def join(separator: Document, parts: Iterable[Document]) -> Document:
    """The parts with the separator between each two."""
    joined: list[Document] = []
    for part in parts:
        if joined:
            joined.append(separator)
        joined.append(part)
    return Concat(tuple(joined))


def _fits(body: Document, room: int) -> bool:
    """Whether ``body``, printed flat, takes at most ``room`` columns."""
    pending: list[Any] = [body]
    while pending and room >= 0:
        part = pending.pop()
        kind = type(part)
        if kind is str:
            room -= len(part)
        elif kind is Break:
            room -= len(part.flat)
        elif kind is Concat:
            pending.extend(part.parts[::-1])
        elif kind is not Note:
            pending.append(part.body)
    return room >= 0


def layout(body: Document, width: int = 80) -> str:
    """The document as text, lines at most ``width`` columns where the breaks allow it."""
    out: list[str] = []
    notes: dict[int, list[str]] = {}  # line -> its remarks
    line = column = 0
    pending: list[tuple[int, bool, Any]] = [(0, False, body)]
    while pending:
        indent, flat, part = pending.pop()
        kind = type(part)
        if kind is str:
            out.append(part)
            newline = part.rfind("\n")
            column = column + len(part) if newline < 0 else len(part) - newline - 1
            line += part.count("\n") if newline >= 0 else 0
        elif kind is Break:
            if flat:
                out.append(part.flat)
                column += len(part.flat)
            else:
                out.append("\n" + " " * indent)
                column = indent
                line += 1
        elif kind is Concat:
            pending.extend([(indent, flat, inner) for inner in part.parts[::-1]])
        elif kind is Nest:
            pending.append((indent + part.indent, flat, part.body))
        elif kind is Note:
            notes.setdefault(line, []).append(part.text)
        else:
            pending.append((indent, flat or _fits(part.body, width - column), part.body))
    return _with_notes("".join(out), notes) if notes else "".join(out)


def _with_notes(text: str, notes: dict[int, list[str]]) -> str:
    """The lines with their remarks aligned in one column; a second remark of a line gets a line of its own."""
    lines = text.split("\n")
    margin = max(len(lines[index]) for index in notes)
    shown: list[str] = []
    for index, line in enumerate(lines):
        first, *others = notes.get(index, [""])
        shown.append(f"{line:{margin}} # {first}" if index in notes else line)
        shown.extend(f"{'':{margin}} # {other}" for other in others)
    return "\n".join(shown)


def bracketed(opening: str, parts: Sequence[Document], closing: str) -> Document:
    """``opening`` parts ``closing``, on one line or each part on its own line, indented by two."""
    inner = concat(Break(""), join(Break(), parts))
    return group(concat(opening, nest(2, inner), Break(""), closing))

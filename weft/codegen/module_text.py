"""The text of an LLVM module, from the writers of its functions.

Constant vectors that a writer holds are loaded from a table at the start of its function, or written where they are
used if there are too many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.codegen.writer import Writer

# Attributes of functions that LLVM need not optimise: they compile in two thirds of the time, to equally fast code,
# since there is nothing to hoist and no address to shorten. Only where constants are held in registers.
AS_WRITTEN = "noinline optnone"
_HELD_NAMES = re.compile(r"(%c\d+)")


def text(
    main: Writer, symbol: str, parameters: str, parts: Mapping[str, Writer] | None = None, simple: bool = False
) -> str:
    """The module: the function ``symbol``, the functions that it calls, and their declarations.

    ``simple`` says that inner loops need no more addresses than one for each operand.
    """
    writers = {symbol: main, **(parts or {})}
    lines, beside = [], {}
    for name, writer in writers.items():
        head = f"define {'' if writer is main else 'internal '}void @{name}({parameters}) nounwind {{"
        table, loads, body = constants(writer, name, "ret void")
        lines += [*table, head, "entry:", *loads, body, "}"]
        beside |= writer.functions
    for writer in writers.values():
        beside |= writer.declarations
    lines += beside.values()
    if any(writer.cold_branches for writer in writers.values()):
        lines.append('!0 = !{!"branch_weights", i32 1, i32 100000}')
    if any(writer.streams for writer in writers.values()):
        lines.append("!1 = !{i32 1}")
    written = "\n".join([*lines, ""])
    as_written = simple and main.model.held and _holds(main) and not main.literals
    return written.replace(" nounwind {", f" nounwind {AS_WRITTEN} {{") if as_written else written


def _holds(writer: Writer) -> bool:
    """Whether all constants are kept in registers throughout."""
    return not writer.spills and len(writer.held) <= writer.model.held


def constants(writer: Writer, name: str, end: str) -> tuple[list[str], list[str], str]:
    """(table of the held constants, their loads, body); constants that are not held are written into the body."""
    body = "\n".join([*writer.entry, *writer.lines, end, *writer.aside])
    if not writer.held or not _holds(writer):
        written = {name: constant for (_, constant), name in writer.held.items()}
        parts = _HELD_NAMES.split(body) if written else [body]
        parts[1::2] = [written[name] for name in parts[1::2]]
        return [], [], "".join(parts)
    types = ", ".join([type_ for type_, _ in writer.held])
    values = ", ".join([f"{type_} {constant}" for type_, constant in writer.held])
    loads = [
        f"{held} = load {type_}, ptr getelementptr (i8, ptr @{name}.constants, i64 {64 * k}), align 64"
        for k, ((type_, _), held) in enumerate(writer.held.items())
    ]
    return [f"@{name}.constants = private constant <{{ {types} }}> <{{ {values} }}>, align 64"], loads, body

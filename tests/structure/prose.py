"""Sentences that have to be read twice: the habits that a program can find, in comments, docstrings and messages.

MOST = 8  # of a chain                          no unit: the comment of a constant says what is counted
an array of which all elements are read         an array whose elements are all read
The absolute value; of a pair its length.       The absolute value, or the length of a pair.
Some lanes are done, others are not.            Some lanes are done, others go on.
for place, x in enumerate(args)                 for index, x in enumerate(args)
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

OF_WHICH = re.compile(r"\bof\s+which\b", re.IGNORECASE)
WHOSE_OWN = re.compile(r"\bwhose\s+own\b", re.IGNORECASE)
LAST_NOT = re.compile(r"(?<!\bor)(?<!\bwhy)\s+not(?:[.;]|$)(?=\s|$)")
OF_FIRST = re.compile(r"(?:^|[.:;] )Of (?!which)[a-z`\"]|; of (?!which)[a-z`\"]")
ELSE = re.compile(r"[,;] else\b")
NO_SUBJECT = re.compile(r"(?:of|the same|that|at)\b")
KINDS = (".py", ".pyi", ".h", ".cpp", ".md")
HABITS = {
    OF_WHICH: "'of which': begin a second sentence, or say 'whose' or 'that'",
    WHOSE_OWN: "'whose own': say whose",
    OF_FIRST: "'of' at the beginning: say the subject first",
    LAST_NOT: "a 'not' at the end: say what holds instead",
    ELSE: "'else' in a sentence: say 'otherwise', or what holds then",
}
# Few files match this, so that few are read token by token.
MAYBE = re.compile(
    r"\b(?-i:Of) |;[\s#/]+of\b|\bof[\s#/]+which\b|\bwhose[\s#/]+own\b|\bnot(?:[.;]|\W*$)|[,;][\s#/]+else\b"
    r"|(?:^|^\S.*|constexpr.*)(?:#:?|//) *(?:of|the same|that|at)\b",
    re.IGNORECASE | re.MULTILINE,
)
# A place is where an array lives, and these files tell of it; those of the last line still have other uses.
OF_PLACES = (
    "weft/dispatch/", "weft/runtime/_array.pyi", "weft/runtime/_native.pyi", "weft/runtime/src/arrays/",
    "weft/runtime/src/calls/", "weft/runtime/src/exec.", "weft/runtime/src/pjrt/",
    "weft/runtime/src/cuda/cuda_sharing.cpp", "weft/compiler/evaluation.py", "weft/compiler/storage/saved.py",
    "weft/inspect/explain.py", "weft/stablehlo/host_steps.py", "docs/ARCHITECTURE.md", "docs/DESIGN.md",
    "weft/numpy/__init__.py", "weft/numpy/subscripts/edited_copies.py", "docs/unbuilt.py",  # NumPy's function
    "weft/codegen/cpu/products/", "weft/runtime/src/gemm",
)  # fmt: skip
PLACE = re.compile(r"(?<![A-Za-z])[Pp](?:lace|LACE)[sS]?(?![A-Za-z])|(?<=[a-z])Places?(?![a-z])")
PHRASES = re.compile(
    r"(?<![a-z])in(?:[\s#/]+|[-_])place(?![a-z]|[\s#/]+of\b)|\blast\s+places?\b|\bat the same place\b"
    r"|in its place, or donate|\.place\b|place_of_call|default_place|array_to_place",
    re.IGNORECASE,
)
NATIVE_CONSTANT = re.compile(r"\s*(?:static |inline )*constexpr [^;(]* = [^;]*\d[^;]*;\s*// (.*)")


def found_in(path: Path) -> Iterator[str]:
    """The habits of a file, as messages: line, habit, words."""
    text = path.read_text()
    if not MAYBE.search(text):
        return
    for line, piece in _pieces(path.suffix, text):
        for habit, cure in HABITS.items():
            if habit in (LAST_NOT, ELSE) and path.suffix == ".md":
                continue
            if found := habit.search(piece):
                yield f"{line}: {cure}: ...{piece[max(0, found.start() - 40) : found.end() + 20]}..."
    for line, comment in _constants(path.suffix, text):
        if NO_SUBJECT.match(comment):
            yield f"{line}: a constant: say what is counted, and the unit: {comment}"


def other_places(path: Path, name: str) -> Iterator[str]:
    """Uses of "place" for anything but where an array lives; ``name``: that of the file, from the project's root."""
    if name.startswith(OF_PLACES):
        return
    for number, line in enumerate(PHRASES.sub(_blank, path.read_text()).splitlines(), 1):
        for found in PLACE.finditer(line):
            words = line[max(0, found.start() - 40) : found.end() + 20].strip()
            yield f"{number}: a place is where an array lives: say position, index, offset, slot, target: ...{words}..."


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _pieces(suffix: str, text: str) -> Iterator[tuple[int, str]]:
    """Pieces of prose with their first lines; the lines of a piece are joined by spaces."""
    if suffix in (".py", ".pyi"):
        yield from _joined(_python_comments(text))
        yield from _strings(text)
    elif suffix == ".md":
        yield from _paragraphs(text)
    else:
        yield from _joined(_native_comments(text))


def _python_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, comment, whether it has the line to itself)."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: "), not token.line[: token.start[1]].strip()


def _native_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    for number, line in enumerate(text.splitlines(), 1):
        before, mark, comment = line.partition("//")
        if mark and not before.endswith(":"):  # an address has two slashes too
            yield number, comment.strip(), not before.strip()


def _joined(comments: Iterable[tuple[int, str, bool]]) -> Iterator[tuple[int, str]]:
    """Comments on lines of their own that follow each other are one piece, up to an empty one."""
    first, last, piece = 0, -1, ""
    for number, comment, alone in comments:
        if alone and number == last + 1 and comment:
            piece, last = f"{piece} {comment}", number
        else:
            yield first, piece
            first, last, piece = number, number if alone and comment else -1, comment
    yield first, piece


def _strings(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs of docstrings, and other strings, where a piece of a message may well end in 'not'."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            documents = id(node) in docstrings
            for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(node.value)):
                piece = " ".join(paragraph.split())
                if not documents:
                    yield node.lineno, f"{piece} ..."
                elif not paragraph.startswith("  "):  # examples stand to the right
                    yield node.lineno, piece


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs and items of lists of Markdown, without code."""
    first, piece, code = 0, "", False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if code or not line.strip() or re.match(r"\s*(?:[-*#|`]|\d+\.) ?", line):
            yield first, piece
            first, piece = number, ""
        piece = "" if code else f"{piece} {line.strip()}"
    yield first, piece


def _constants(suffix: str, text: str) -> Iterator[tuple[int, str]]:
    """Comments beside, or alone above, constants that are numbers."""
    if suffix in (".cpp", ".h"):
        for number, line in enumerate(text.splitlines(), 1):
            if found := NATIVE_CONSTANT.fullmatch(line):
                yield number, found[1]
    if suffix != ".py":
        return
    comments = {number: (comment, alone) for number, comment, alone in _python_comments(text)}
    for node in ast.parse(text).body:
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.AST) and _has_number(value):
            beside, above = comments.get(node.end_lineno or 0), comments.get(node.lineno - 1)
            if beside is not None:
                yield node.lineno, beside[0]
            if above is not None and above[1] and not comments.get(node.lineno - 2, ("", False))[1]:
                yield node.lineno - 1, above[0]


def _has_number(value: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in ast.walk(value))

"""The user's source position of an operation: captured cheaply, resolved to file and line only when needed.

While tracing, ``capture`` stores the code object and the instruction offset of the nearest frame outside weft, and
the open name scopes: a tuple, no traceback and no line number. ``SourceInfo`` turns it into ``file:line:column
(function)`` for error texts, printers and profiles.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from weft import runtime
from weft._base.own_files import is_internal
from weft._base.own_files import known as _is_internal
from weft._base.record import NamedTuple

Captured = tuple[CodeType, int, tuple[str, ...]]
in_place_required = False  # whether any equation of this process carries ``dispatch.in_place.SCOPE``
BACKWARD = "transpose"  # the scope of equations that work on cotangents


class _Scopes(threading.local):
    """The open name scopes, and the position for equations while an existing program is replayed."""

    names: tuple[str, ...] = ()
    replayed: Captured | None = None


_scopes = _Scopes()


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame outside weft, from ``frame`` outwards."""
    while frame is not None and (_is_internal.get(name := frame.f_code.co_filename) or is_internal(name)):
        frame = frame.f_back
    return frame


def capture(depth: int = 1) -> Captured | None:
    """The user's position; ``depth`` is a number of frames that are certainly weft's."""
    replayed = _scopes.replayed
    if replayed is not None:
        return replayed
    return runtime.user_position(sys._getframe(depth), _is_internal, is_internal, _scopes.names)


class Frame(NamedTuple):
    """One resolved position."""

    file_name: str
    function_name: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file_name}:{self.line}:{self.column} ({self.function_name})"


def position(code: CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    """(first line, last line, first column, last column) of the source of an instruction; None where unknown."""
    unknown = (None, None, None, None)
    return next(itertools.islice(code.co_positions(), instruction // 2, None), unknown)


def resolve(code: CodeType, instruction: int) -> Frame:
    """File, function, line and column (as JAX counts them) of an instruction."""
    line, _, column, _ = position(code, instruction)
    return Frame(code.co_filename, code.co_qualname, line or code.co_firstlineno, column or 0)


class Transform(str):
    """A name that wraps the next one in a stack: ``jvp`` before ``f`` is printed ``jvp(f)``."""

    __slots__ = ()


class NameStack(tuple[str, ...]):
    """Name scopes, the outermost first; printed as ``model/layer``."""

    __slots__ = ()

    def __new__(cls, stack: Iterable[str] = ()) -> NameStack:
        return super().__new__(cls, stack)

    @property
    def stack(self) -> tuple[str, ...]:
        return tuple(self)

    def extend(self, name: str) -> NameStack:
        return NameStack((*self, name))

    def __add__(self, other: tuple[str, ...]) -> NameStack:  # type: ignore[override] - a stack, not a tuple
        return NameStack((*self, *other))

    def __radd__(self, other: tuple[str, ...]) -> NameStack:
        return NameStack((*other, *self))

    def transform(self, transform_name: str) -> NameStack:
        return NameStack((*self, Transform(transform_name)))

    def __str__(self) -> str:
        parts: list[str] = []
        for name in reversed(self):
            if not isinstance(name, Transform):
                parts.append(name)
            else:
                parts.append(f"{name!s}({parts.pop() if parts else ''})")
        return "/".join(reversed(parts))

    def __repr__(self) -> str:
        return f"NameStack(stack={self.stack!r})"


class SourceInfo:
    """The position and name scopes of an equation; empty when it was made by a pass."""

    __slots__ = ("captured",)

    def __init__(self, captured: Captured | None = None) -> None:
        self.captured = captured

    @property
    def traceback(self) -> None:
        """JAX's stack of frames at the call. weft keeps the user's nearest frame only (``frame``)."""
        return None

    def replace(self, *, traceback: object = None, name_stack: Iterable[str] | None = None) -> SourceInfo:
        """The same position with other name scopes."""
        if name_stack is None or self.captured is None:
            return self
        return SourceInfo((*self.captured[:2], tuple(name_stack)))

    @property
    def frame(self) -> Frame | None:
        return None if self.captured is None else resolve(self.captured[0], self.captured[1])

    @property
    def name_stack(self) -> NameStack:
        return NameStack(() if self.captured is None else self.captured[2])

    def __str__(self) -> str:
        frame = self.frame
        return "" if frame is None else str(frame)

    def __repr__(self) -> str:
        return f"SourceInfo({self})"


def summarize(captured: Captured | None) -> str:
    """``file:line:column (function)`` or ``<unknown>``."""
    return "<unknown>" if captured is None else str(resolve(captured[0], captured[1]))


class replayed:
    """A context in which recorded equations get ``source`` as their position (None: their own)."""

    __slots__ = ("before", "source")

    def __init__(self, source: Captured | None) -> None:
        self.source = source

    def __enter__(self) -> None:
        self.before = _scopes.replayed
        if self.source is not None:
            code, instruction, names = self.source
            _scopes.replayed = (code, instruction, _scopes.names + names) if _scopes.names else self.source

    def __exit__(self, *exception: object) -> None:
        _scopes.replayed = self.before


def open_scopes() -> tuple[str, ...]:
    """The open name scopes of this thread."""
    return _scopes.names


def set_scopes(names: tuple[str, ...]) -> None:
    """Open these name scopes instead of those that are open."""
    _scopes.names = names


@contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Equations recorded inside carry ``name`` (see ``weft.named_scope``)."""
    saved, replayed = _scopes.names, _scopes.replayed
    _scopes.names = (*saved, name)
    if replayed is not None:
        _scopes.replayed = (*replayed[:2], (*replayed[2], name))
    try:
        yield
    finally:
        _scopes.names, _scopes.replayed = saved, replayed


class no_scopes:
    """A context in which recorded equations belong to a separate program, to which outer name scopes do not apply.

    With ``source``, all of them get that position; only for code in which no user function runs.
    """

    __slots__ = ("names", "replayed", "source")

    def __init__(self, source: Captured | None = None) -> None:
        self.source = source

    def __enter__(self) -> None:
        self.names, self.replayed = _scopes.names, _scopes.replayed
        _scopes.names = ()
        _scopes.replayed = None if self.source is None else (*self.source[:2], ())

    def __exit__(self, *exception: object) -> None:
        _scopes.names, _scopes.replayed = self.names, self.replayed

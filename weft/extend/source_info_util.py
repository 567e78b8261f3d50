"""weft.extend.source_info_util: where in the user's source an operation was called, and its name scopes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from weft._base import own_files
from weft.core.tracing import source_info
from weft.core.tracing.source_info import NameStack, SourceInfo


def current() -> SourceInfo:
    """The position of the caller, and the name scopes that are open."""
    return SourceInfo(source_info.capture(2))


def current_name_stack() -> NameStack:
    """The name scopes that are open."""
    return NameStack(source_info.open_scopes())


def new_name_stack(name: str = "") -> NameStack:
    return NameStack((name,) if name else ())


def new_source_info() -> SourceInfo:
    """The source information of nothing in particular."""
    return SourceInfo(None)


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """``file:line:column (function)``; empty if it is not known."""
    return str(source_info)


def register_exclusion(path: str) -> None:
    """Take files whose name begins with ``path`` for a library's: positions of operations are those of its callers."""
    own_files.exclude(path)


class set_name_stack(contextlib.ContextDecorator):
    """A context manager, or decorator, inside which the open name scopes are those of ``name_stack``."""

    def __init__(self, name_stack: Any) -> None:
        self.name_stack = NameStack(name_stack)

    def __enter__(self) -> NameStack:
        self.prev = current_name_stack()
        source_info.set_scopes(tuple(self.name_stack))
        return self.name_stack

    def __exit__(self, *exception: Any) -> None:
        source_info.set_scopes(tuple(self.prev))


class extend_name_stack(contextlib.ContextDecorator):
    """A context manager, or decorator, inside which one more name scope is open."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> NameStack:
        self.prev = current_name_stack()
        stack = self._extended(self.prev)
        source_info.set_scopes(tuple(stack))
        return stack

    def _extended(self, stack: NameStack) -> NameStack:
        return stack.extend(self.name)

    def __exit__(self, *exception: Any) -> None:
        source_info.set_scopes(tuple(self.prev))


class transform_name_stack(extend_name_stack):
    """As ``extend_name_stack``, for the name of a transformation, which is printed around the next scope."""

    def _extended(self, stack: NameStack) -> NameStack:
        return stack.transform(self.name)


@contextlib.contextmanager
def reset_name_stack() -> Iterator[None]:
    """A context manager inside which no name scopes are open."""
    with set_name_stack(()):
        yield


class user_context:
    """A context manager inside which operations get the name scopes of an equation that is evaluated again.

    ``traceback`` is JAX's stack of frames, which weft's equations do not have.
    """

    def __init__(self, traceback: Any, *, name_stack: Any = None) -> None:
        self.traceback = traceback
        self.name_stack = name_stack

    def __enter__(self) -> None:
        self.prev = current_name_stack()
        if self.name_stack is not None:
            source_info.set_scopes(tuple(self.name_stack))

    def __exit__(self, *exception: Any) -> None:
        source_info.set_scopes(tuple(self.prev))

"""weft.profiler: names for spans of a program in a profile; weft takes no profiles, so that naming one does nothing.

Libraries name spans whether or not anyone profiles. What would start, serve or write a profile raises
NotImplementedError naming itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from weft._base import unbuilt

__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function"]
__getattr__ = unbuilt.fallback(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class TraceAnnotation:
    """A span of the ``with`` statement, under a name and with values that describe it.

    >>> with weft.profiler.TraceAnnotation("loss", epoch=3):
    ...     loss = 2.0
    """

    def __init__(self, name: str, **metadata: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"[profiler] a span is named by a string, got {name!r} of {type(name)}")
        self.name, self.metadata = name, metadata

    def __enter__(self) -> TraceAnnotation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


class StepTraceAnnotation(TraceAnnotation):
    """A span that is one step of a training loop; its number is ``step_num``."""


def annotate_function(func: Callable[P, T], name: str | None = None, **decorator_kwargs: Any) -> Callable[P, T]:
    """The function, whose every call is a span under ``name``, its own name unless given.

    >>> weft.profiler.annotate_function(abs, name="size")(-2)
    2
    """
    span = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> T:
        with TraceAnnotation(span, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated

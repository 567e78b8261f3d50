"""The name of a function in programs, errors and reports, and where it is defined."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def function_name(function: Any) -> str:
    """The name a jitted function has in programs: of a partial, that of the function inside."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", "<unnamed function>")


def is_own(function: Any) -> bool:
    """Whether a function is one of weft's, not a user's."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", None)).startswith("weft.")


def source_of(function: Any) -> str:
    """``f at file.py:12``."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    if code is None:
        return function_name(function)
    return f"{function_name(function)} at {code.co_filename}:{code.co_firstlineno}"

"""What type checkers know of the options of ``jit``; no program loads this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar

from weft import runtime

P = ParamSpec("P")
R = TypeVar("R")


class JitOptions(TypedDict, total=False):
    """The options of ``jit``; each may be left out."""

    in_shardings: Any
    out_shardings: Any
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    device: Any
    backend: str | None
    inline: bool
    compiler_options: Any
    donate: str | None
    checks: str | Sequence[str] | None


class Decorator(Protocol):
    """``jit`` without a function: the function follows."""

    def __call__(self, fun: Callable[P, R], /) -> runtime.JitFunction[P, R]: ...

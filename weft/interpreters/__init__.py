"""weft.interpreters: the rules of primitives and the interpreters that use them, under JAX's names."""

from typing import Any

from weft._base import lazy, unbuilt

_MODULES = frozenset(("ad", "batching", "mlir", "partial_eval", "pxla", "xla"))


def __getattr__(name: str) -> Any:
    return (
        lazy.submodule(f"weft.interpreters.{name}") if name in _MODULES else unbuilt.missing("weft.interpreters", name)
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

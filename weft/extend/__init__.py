"""weft.extend: what libraries that extend weft are built on, under JAX's names."""

from typing import Any

from weft._base import lazy, unbuilt

_MODULES = frozenset((
    "backend", "core", "ifrt_programs", "linear_util", "lowering", "mlir", "pallas", "random", "sharding",
    "source_info_util", "xla",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    return lazy.submodule(f"weft.extend.{name}") if name in _MODULES else unbuilt.missing("weft.extend", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

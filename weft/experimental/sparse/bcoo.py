"""weft.experimental.sparse.bcoo: BCOO and its functions, as JAX's module has them. A facade, it holds no code."""

from __future__ import annotations

from typing import Any

from weft.experimental import sparse as _sparse


def __getattr__(name: str) -> Any:
    if name != "BCOO" and not name.startswith("bcoo_"):
        raise AttributeError(f"module 'weft.experimental.sparse.bcoo' has no attribute {name!r}")
    return getattr(_sparse, name)


def __dir__() -> list[str]:
    return [name for name in dir(_sparse) if name == "BCOO" or name.startswith("bcoo_")]

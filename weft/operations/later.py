"""A lazy namespace of operations for rules: ``ops.pad`` is ``weft.operations.pad``, looked up when a rule runs.

A derivative may use operations of modules that are imported after its own, so that they cannot be imported at the top.
"""

from __future__ import annotations

import sys
from typing import Any


class _Operations:
    """Attributes are those of ``weft.operations``, once it is imported."""

    def __getattr__(self, name: str) -> Any:
        module = sys.modules["weft.operations"]
        value = getattr(module, name) if hasattr(module, name) else getattr(module.linear, name)  # type: ignore
        setattr(self, name, value)
        return value


ops: Any = _Operations()

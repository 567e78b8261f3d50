"""The operations as rules see them: ``ops.pad`` is ``weft.operations.pad``, looked up when a rule runs.

The derivative of an operation may use operations defined in modules that are imported after its own.
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

"""Lazy references: the one place from which heavy optional-at-import modules are reached.

``lazy.llvm`` imports llvmlite at its first use and is a plain attribute afterwards, so that ``import weft`` stays
light. Nothing else in weft imports these modules.
"""

from __future__ import annotations

import importlib
from typing import Any

MODULES = {
    "llvm": "llvmlite.binding",
    "opt_einsum": "opt_einsum",
    "rich": "rich",
    "scipy_fft": "scipy.fft",
    "scipy_linalg": "scipy.linalg",
    "scipy_special": "scipy.special",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'weft.lazy' has no attribute {name!r}")
    module = importlib.import_module(MODULES[name])
    globals()[name] = module
    return module

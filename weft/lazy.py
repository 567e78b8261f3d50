"""Lazy references: the one place from which heavy optional-at-import modules are reached.

``lazy.llvm`` imports llvmlite at its first use and is a plain attribute afterwards, so that ``import weft`` stays
light. Nothing else in weft imports these modules.
"""

from __future__ import annotations

import importlib
from typing import Any

from weft import collector

MODULES = {
    "dataclasses": "dataclasses",
    "difflib": "difflib",
    "hashlib": "hashlib",
    "logging": "logging",
    "platform": "platform",
    "compiler": "weft.compiler",
    "llvm": "llvmlite.binding",
    "llvmlite_binding": "llvmlite.binding",
    "matplotlib_figure": "matplotlib.figure",
    "opt_einsum": "opt_einsum",
    "rich": "rich",
    "rich_console": "rich.console",
    "rich_panel": "rich.panel",
    "rich_progress": "rich.progress",
    "rich_table": "rich.table",
    "rich_text": "rich.text",
    "scipy_fft": "scipy.fft",
    "scipy_linalg": "scipy.linalg",
    "scipy_special": "scipy.special",
    "sklearn_datasets": "sklearn.datasets",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'weft.lazy' has no attribute {name!r}")
    with collector.resting(lasting=True):
        module = importlib.import_module(MODULES[name])
    globals()[name] = module
    return module


def submodule(name: str) -> Any:
    """A module of weft that is loaded when first used."""
    with collector.resting(lasting=True):
        return importlib.import_module(name)

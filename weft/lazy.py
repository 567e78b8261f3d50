"""Lazy references: the one place from which heavy optional-at-import modules are reached.

``lazy.llvm`` imports llvmlite at its first use and is a plain attribute afterwards, so that ``import weft`` stays
light. Nothing else in weft imports these modules. The largest packages are lazy in their names (``Names``): the module
that defines one is loaded when the name is first read.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
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
    "scipy_windows": "scipy.signal.windows",
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


class Names:
    """Names of a module that other modules of weft define: table of module -> names, apart by blanks.

    ``find`` serves as its ``__getattr__``: a name found is the module's own from then on. ``__all__`` is found too,
    so that a star import takes what is not loaded yet.
    """

    def __init__(self, home: str, table: dict[str, str], renamed: dict[str, str] | None = None) -> None:
        self.home = home
        self.modules = {name: f"weft.{module}" for module, names in table.items() for name in names.split()}
        self.renamed = renamed or {}  # public name -> what its module calls it

    def __contains__(self, name: str) -> bool:
        return name in self.modules or name == "__all__"

    def find(self, name: str) -> Any:
        home = vars(sys.modules[self.home])
        if name == "__all__":
            others = [other for other, value in home.items() if not isinstance(value, ModuleType)]
            return sorted({*self.modules, *[other for other in others if not other.startswith("_")]})
        if name not in self.modules:
            raise AttributeError(f"module {self.home!r} has no attribute {name!r}")
        value = home[name] = getattr(submodule(self.modules[name]), self.renamed.get(name, name))
        return value

"""Lazy references: the one module through which heavy optional-at-import modules are reached.

``lazy.llvm`` imports llvmlite at its first use and is a plain attribute afterwards, so that ``import weft`` stays
light. Nothing else in weft imports these modules. In the largest packages each name is lazy (``Names``): the
module that defines it is loaded when the name is first read.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

from weft._base import forks

MODULES = {
    "dataclasses": "dataclasses",
    "difflib": "difflib",
    "hashlib": "hashlib",
    "importlib_metadata": "importlib.metadata",
    "logging": "logging",
    "platform": "platform",
    "compiler": "weft.compiler",
    "cuda_devices": "weft.dispatch.devices.cuda_devices",
    "custom_calls": "weft.extend.core.custom_calls",
    "discharge": "weft.effects.discharge",
    "discharge_rules": "weft.effects.discharge_rules",
    "device_programs": "weft.dispatch.programs.device_programs",
    "donations": "weft.dispatch.calls.donations",
    "misses": "weft.dispatch.calls.cache_diagnostics",
    "explicit": "weft.core.sharding.explicit",
    "leaks": "weft.core.tracing.leaks",
    "llvm": "llvmlite.binding",
    "llvmlite_binding": "llvmlite.binding",
    "llvmlite_utils": "llvmlite.utils",
    "mpi": "mpi4py.MPI",
    "mpi4py": "mpi4py",
    "matplotlib_figure": "matplotlib.figure",
    "opt_einsum": "opt_einsum",
    "out_shardings": "weft.dispatch.devices.out_shardings",
    "plugins": "weft.dispatch.devices.plugins",
    "product_units": "weft.compiler.matrix_products.product_units",
    "process_calls": "weft.dispatch.calls.process_calls",
    "ref_calls": "weft.dispatch.calls.ref_calls",
    "rich": "rich",
    "rich_console": "rich.console",
    "rich_panel": "rich.panel",
    "rich_progress": "rich.progress",
    "rich_table": "rich.table",
    "rich_text": "rich.text",
    "scipy_linalg": "scipy.linalg",
    "scipy_sparse": "scipy.sparse",
    "scipy_sparse_linalg": "scipy.sparse.linalg",
    "scipy_special": "scipy.special",
    "scipy_windows": "scipy.signal.windows",
    "subprocess": "subprocess",
    "stablehlo": "weft.stablehlo",
    "sharded_calls": "weft.dispatch.calls.sharded_calls",
    "shards": "weft.dispatch.devices.shards",
    "sklearn_datasets": "sklearn.datasets",
    "tensorstore": "tensorstore",
}

# Packages that weft runs without, and what is said where one is needed.
OPTIONAL = {
    "scipy": "SciPy is needed here (windows of scipy.signal by name, sparse.linalg.spsolve, the references of "
    "WEFT_CHECK=1) and is not installed: pip install scipy",
    "matplotlib": "matplotlib is needed for pictures and is not installed: pip install 'weft[plot]'",
    "tensorstore": "checkpoints are kept by tensorstore, which is not installed: pip install 'weft[checkpoint]'",
    "mpi4py": "processes find each other through MPI, by mpi4py, which is not installed: pip install 'weft[mpi]'",
    "sklearn": "the data of the demo come with scikit-learn, which is not installed: pip install 'weft[demo]'",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'weft._base.lazy' has no attribute {name!r}")
    package = MODULES[name].partition(".")[0]
    try:
        module = submodule(MODULES[name])
    except ModuleNotFoundError as error:
        if error.name != package or package not in OPTIONAL:
            raise
        raise ModuleNotFoundError(f"[weft] {OPTIONAL[package]}", name=package) from None
    globals()[name] = module
    return module


def lapack_files() -> list[str]:
    """Files through which the runtime may find LAPACK, best first: the modules by which NumPy and SciPy call it.

    NumPy is there already, and its wheels bring all of LAPACK (opened in 5 ms); SciPy's copy serves where NumPy was
    built without one. Both have threads of their own, whose number the runtime sets for as long as a call lasts.
    """
    found = []
    for package, module in (("numpy", "_umath_linalg"), ("scipy", "cython_lapack")):
        spec = importlib.machinery.PathFinder.find_spec(package)
        for folder in (spec.submodule_search_locations if spec is not None else None) or ():
            files = [os.path.join(folder, "linalg", module + end) for end in importlib.machinery.EXTENSION_SUFFIXES]
            found += [file for file in files if os.path.exists(file)]
    return found


def loaded(name: str) -> Any:
    """A module of weft if it has been loaded, otherwise None."""
    return sys.modules.get(name)


def logger() -> Any:
    """The compiler's logger."""
    return submodule("logging").getLogger("weft.compiler")


def debug(message: str, *values: Any) -> None:
    """Tell the compiler's logger, if the program has loaded ``logging``: otherwise nobody listens."""
    forks.follow_logging()
    if hasattr(sys.modules.get("logging"), "getLogger"):
        logger().debug(message, *values)


def submodule(name: str) -> Any:
    """A module of weft that is loaded when first used."""
    with forks.loading():
        return importlib.import_module(name)


class Names:
    """Names of a package that other modules of weft define: table of module -> names, apart by blanks.

    ``find`` serves as its ``__getattr__``: a name found is the package's own from then on. ``__all__`` is found too,
    so that a star import takes what is not loaded yet. ``submodules`` are the package's modules that are read as its
    attributes.

    A package that loaded its own modules at its import would fail where threads import first: one holds the package
    and waits for a module, the other holds that module and waits for the package.
    """

    def __init__(
        self, home: str, table: dict[str, str], renamed: dict[str, str] | None = None, submodules: str = ""
    ) -> None:
        self.home = home
        self.submodules = frozenset(submodules.split())
        self.modules = {name: f"weft.{module}" for module, names in table.items() for name in names.split()}
        self.renamed = renamed or {}  # public name -> what its module calls it

    def __contains__(self, name: str) -> bool:
        return name in self.modules or name in self.submodules or name == "__all__"

    def find(self, name: str) -> Any:
        home = vars(sys.modules[self.home])
        if name == "__all__":
            others = [other for other, value in home.items() if not isinstance(value, ModuleType)]
            return sorted({*self.modules, *self.submodules, *[name for name in others if not name.startswith("_")]})
        if name in self.submodules:
            return submodule(f"{self.home}.{name}")
        if name not in self.modules:
            raise AttributeError(f"module {self.home!r} has no attribute {name!r}")
        value = home[name] = getattr(submodule(self.modules[name]), self.renamed.get(name, name))
        return value

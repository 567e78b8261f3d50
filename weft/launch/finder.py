"""The finder that answers ``import jax`` and ``import jaxlib`` with weft's modules, and their versions with JAX's.

It stands first among the finders of the process, so that a JAX that is installed is never reached. A module of weft
that serves as JAX's is the same object under both names; what it lacks is reported with library, file and line.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.launch import followed, names, private_names, requests


def _jax_name(module: ModuleType, name: str) -> str:
    """How JAX's users call an attribute of a module of weft."""
    home = module.__name__.removeprefix("weft.launch.") if ".jaxlib" in module.__name__ else module.__name__
    return f"{home}.{name}" if names.is_jax(home) else f"jax{home.removeprefix('weft')}.{name}"


def _absent(module: ModuleType, name: str, error: AttributeError) -> Exception:
    """The error for an attribute that is not there, and its entry in the list of missing names."""
    caller = sys._getframe(2)
    frame = requests.asking_frame(caller)
    own = frame is not caller  # weft itself asks, or the import system before it looks for a submodule
    probed = name.startswith("_") and not module.__name__.startswith("jax._src")  # by pytest, doctest, copy and so on
    if own or frame is None or probed:
        return error
    importing = requests.is_from_import(frame)
    public = _jax_name(module, name)
    request = requests.record(public, "import" if importing else "attribute", frame)
    text = f"weft has no {public} (asked for by {request.location()})"
    if importing:
        return ImportError(text, name=module.__name__)
    return AttributeError(text, name=name, obj=module)


def watch(module: ModuleType) -> ModuleType:
    """Let a module of weft report names of JAX that it lacks when they are asked for; once for each module."""
    original: Callable[[str], Any] | None = vars(module).get("__getattr__")
    if getattr(original, "watches", False) or type(module) is not ModuleType:  # weft.config has a class of its own
        return module

    def __getattr__(name: str) -> Any:
        try:
            if original is None:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            found = original(name)
        except AttributeError as error:
            raise _absent(module, name, error) from None
        if isinstance(found, ModuleType) and found.__name__.startswith("weft."):
            watch(found)
        return found

    __getattr__.watches = True  # type: ignore[attr-defined]
    module.__getattr__ = __getattr__  # type: ignore[method-assign] - PEP 562
    return module


class _SameModule:
    """A loader whose module is one of weft's, unchanged."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = watch(importlib.import_module(self.target))
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has just written JAX's there


class _Private:
    """The loader of ``jax._src`` and its modules."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return watch(private_names.module(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the names of the module are looked up when they are read."""


class _Absent:
    """The loader of a module that weft lacks: importing it raises."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        frame = requests.asking_frame(sys._getframe(1))
        request = requests.record(spec.name, "import", frame)
        raise ModuleNotFoundError(f"weft has no module {spec.name} (asked for by {request.location()})", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Never reached."""


class _Distribution(importlib.metadata.Distribution):
    """What ``importlib.metadata`` says of jax and jaxlib: their name and the version that weft follows."""

    def __init__(self, name: str) -> None:
        self._text = (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {followed.__version__}\n"
            "Summary: weft, which stands in for it in this process\n"
        )

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / path


def _real_mlir(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """Where an installed jaxlib has its MLIR (no part of XLA), which writes and reads StableHLO's portable form."""
    if fullname.split(".")[:2] != ["jaxlib", "mlir"]:
        return None
    root = importlib.machinery.PathFinder.find_spec("jaxlib")
    if root is None or root.submodule_search_locations is None:
        return None
    paths = list(root.submodule_search_locations)
    found = None
    for depth in range(2, fullname.count(".") + 2):  # a package of packages: each says where its own modules are
        found = importlib.machinery.PathFinder.find_spec(".".join(fullname.split(".")[:depth]), paths)
        if found is None:
            return None
        paths = list(found.submodule_search_locations or ())
    return found


class JaxFinder:
    """Finds every module of jax and jaxlib, and their distributions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not names.is_jax(fullname):
            return None
        real = _real_mlir(fullname)
        if real is not None:
            return real
        loader: Any
        if fullname == "jax._src" or (
            fullname.startswith("jax._src.") and names.is_private(fullname.removeprefix("jax._src."))
        ):
            loader = _Private()
        elif (counterpart := names.counterpart(fullname)) is not None:
            loader = _SameModule(counterpart)
        elif requests.is_query(sys._getframe(1)):
            return None
        else:
            loader = _Absent()
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=True)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        wanted = context.name if context is not None else None
        for name in followed.DISTRIBUTIONS:
            if wanted is None or wanted.lower().replace("_", "-") == name:
                yield _Distribution(name)

    def invalidate_caches(self) -> None:
        """Nothing is cached here."""

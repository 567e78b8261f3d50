"""The documented names of JAX 0.10 that weft does not have yet: they exist, and raise when used.

``unbuilt_names`` has three tables, module -> names of functions, of classes, of primitives. ``fallback(module)`` makes
a module's ``__getattr__``: a name in the tables becomes a function, class or primitive that raises NotImplementedError
naming itself; others raise AttributeError. The finder below makes the modules that are not built at all: importing one
works, using it raises.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from weft._base import lazy


def _nobody(qualified: str) -> str:
    return ""


_caller: Callable[[str], str] = _nobody


def set_caller(caller: Callable[[str], str]) -> None:
    """``caller(qualified name)`` is added to the errors that stubs raise: where weft stands in for JAX, who asked."""
    global _caller
    _caller = caller


def _refuse(qualified: str) -> NoReturn:
    raise NotImplementedError(f"{qualified} is not built yet in this version of weft{_caller(qualified)}")


def stub_function(qualified: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError naming itself."""

    def unbuilt(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(qualified)

    unbuilt.__module__, _, unbuilt.__name__ = qualified.rpartition(".")
    unbuilt.__qualname__ = unbuilt.__name__
    unbuilt.__doc__ = f"Not built yet: calling it raises NotImplementedError naming {qualified}."
    return unbuilt


def stub_class(qualified: str) -> type:
    """A class whose construction raises NotImplementedError naming itself."""
    module, _, name = qualified.rpartition(".")

    def construct(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(qualified)

    text = f"Not built yet: making one raises NotImplementedError naming {qualified}."
    return type(name, (), {"__new__": construct, "__module__": module, "__doc__": text})


class StubPrimitive:
    """A primitive that is not there: it can be compared with an equation's primitive or key a table of rules."""

    def __init__(self, qualified: str) -> None:
        self._qualified = qualified
        self.name = qualified.rpartition(".")[2].removesuffix("_p")

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - it is never set
        """Libraries that key their tables by primitives ask whether it is one."""
        return lazy.submodule("weft.core.primitive").Primitive

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        _refuse(self._qualified)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.bind()

    def __repr__(self) -> str:
        return self.name


def _is_in(table: str, module: str, name: str) -> bool:
    """Whether a table of ``unbuilt_names``, which is loaded when a name is asked for in vain, has it for a module."""
    return name in getattr(lazy.submodule("weft._base.unbuilt_names"), table).get(module, "").split()


def missing(module: str, name: str) -> Any:
    """What ``module.name`` gives when weft has no such attribute: a stub of a documented name, or AttributeError."""
    qualified = f"{module}.{name}"
    if _is_in("FUNCTIONS", module, name):
        stub: Any = stub_function(qualified)
    elif _is_in("CLASSES", module, name):
        stub = stub_class(qualified)
    elif _is_in("PRIMITIVES", module, name):
        stub = StubPrimitive(qualified)
    else:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    loaded = sys.modules.get(module)
    if loaded is not None:
        setattr(loaded, name, stub)
    return stub


def fallback(module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``module``."""

    def __getattr__(name: str) -> Any:
        return missing(module, name)

    return __getattr__


class _StubFinder:
    """Makes the documented modules that have no file here; it is asked last, so that files win.

    A finder and a loader by protocol: importing importlib.abc for its base classes takes 5 ms.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not (fullname.startswith("weft.") and is_documented_module(fullname)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"Not built yet: the names of {module.__name__} exist and raise NotImplementedError when used."
        module.__getattr__ = fallback(module.__name__)  # type: ignore[method-assign]


def install() -> None:
    """Let ``import weft.x`` work for documented modules that are not built."""
    sys.meta_path.append(_StubFinder())  # type: ignore[arg-type]


def is_documented_module(fullname: str) -> bool:
    """Whether JAX documents a module of this name."""
    return fullname in lazy.submodule("weft._base.unbuilt_names").MODULES.split()

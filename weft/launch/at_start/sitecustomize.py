"""Run by every Python process started where weft stands in for JAX: the first ``import jax`` there loads weft.

Python imports a module of this name when it starts. Nothing of weft is loaded until jax is asked for, so that processes
which do not use it start as fast as ever. A ``sitecustomize`` that this one hides is run first.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _FirstUse:
    """Waits for jax, or for its version; then weft's own finder takes over."""

    def _install(self) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        if importlib.machinery.PathFinder.find_spec("weft") is None:  # it was found beside the program that started us
            sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
        importlib.import_module("weft.launch.install").install_as_jax()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        if fullname.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        self._install()
        return sys.meta_path[0].find_spec(fullname, path, target)  # type: ignore[arg-type]

    def find_distributions(self, context: object = None) -> object:
        if getattr(context, "name", None) not in ("jax", "jaxlib"):
            return ()
        self._install()
        return sys.meta_path[0].find_distributions(context)  # type: ignore[attr-defined]


def _run_hidden() -> None:
    """The ``sitecustomize`` that Python would have run."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_hidden()
if os.environ.get("WEFT_AS_JAX") == "1":
    sys.meta_path.insert(0, _FirstUse())  # type: ignore[arg-type]

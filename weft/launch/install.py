"""``install_as_jax``: from here on ``import jax`` is ``import weft``, in this process and in those it starts."""

from __future__ import annotations

import os
import sys
from typing import Any

import weft
from weft import config
from weft._base import unbuilt
from weft.launch import finder, followed, names, private_names, requests

AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")
ENVIRONMENT = "WEFT_AS_JAX"


def _foreign_modules() -> list[str]:
    """The modules of a real JAX that this process has imported."""
    own = os.path.dirname(os.path.abspath(weft.__file__))
    found = [name for name in ("jax", "jaxlib") if name in sys.modules]
    return [name for name in found if not (getattr(sys.modules[name], "__file__", None) or "").startswith(own)]


def environment_of_children(environment: dict[str, str]) -> dict[str, str]:
    """Environment variables with which a Python process stands weft in for JAX from its start.

    The folder ``at_start`` goes to the front of ``PYTHONPATH``: its ``sitecustomize`` waits for the first import of
    jax, and runs the ``sitecustomize`` that it hides.
    """
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != AT_START]
    return {ENVIRONMENT: "1", "PYTHONPATH": os.pathsep.join([AT_START, *others])}


def _say_who_called(qualified: str) -> str:
    frame = requests.asking_frame(sys._getframe(1))
    request = requests.record("jax" + qualified.removeprefix("weft"), "call", frame)
    return f" (asked for by {request.location()})"


def install_as_jax() -> None:
    """Let weft stand in for JAX in this process and in the processes that it starts.

    From here on ``import jax``, ``import jax.numpy``, ``from jax import lax`` and so on give weft's modules (the same
    objects: ``jax is weft``), for all code of the process; ``importlib.metadata.version("jax")``, ``jax.__version__``
    and so also ``weft.__version__`` answer with the version of JAX whose interface weft follows. An installed JAX is
    not touched, and cannot be imported in this process any more. A name that weft lacks raises ImportError,
    AttributeError or NotImplementedError with the library, file and line that asked for it.

    Child processes inherit it through the environment (``WEFT_AS_JAX``, and a folder at the front of ``PYTHONPATH``
    that has a ``sitecustomize``): those of ``subprocess``, ``multiprocessing`` and ``pytest-xdist``, unless they are
    started with an environment of their own or with Python's ``-I``, ``-E`` or ``-S``.

    This changes the process for everyone in it, so it belongs into a program and not into a library. Calling it twice
    is calling it once. Importing weft alone does none of this.

    Raises:
        ImportError: a real jax or jaxlib was imported before; two of them cannot be mixed.

    >>> import subprocess, sys
    >>> program = "import weft; weft.install_as_jax(); import jax.numpy as jnp; print(jnp.arange(3) * 2)"
    >>> print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
    [0 2 4]
    """
    foreign = _foreign_modules()
    if foreign:
        name = foreign[0]
        raise ImportError(
            f"[install_as_jax] the real {name} ({getattr(sys.modules[name], '__file__', 'no file')}) was already "
            "imported in this process, and its arrays and functions cannot be mixed with weft's: call "
            "weft.install_as_jax() before anything that imports jax, or start the program with `weft run`",
            name=name,
        )
    if any(isinstance(found, finder.JaxFinder) for found in sys.meta_path):
        return
    sys.meta_path.insert(0, finder.JaxFinder())  # type: ignore[arg-type] - it has what a finder needs
    for module in [value for name, value in sorted(sys.modules.items()) if names.is_public(name)]:
        finder.watch(module)
    weft.__version__ = followed.__version__
    weft.__version_info__ = followed.__version_info__  # type: ignore[attr-defined]
    weft.version = followed  # type: ignore[attr-defined]
    unbuilt.set_caller(_say_who_called)
    config.follow_jax_environment()
    os.environ.update(environment_of_children(dict(os.environ)))
    requests.print_at_exit()
    weft._src = private_names.module("jax._src")  # type: ignore[attr-defined]


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext weft`` in a notebook: ``weft.install_as_jax()``."""
    install_as_jax()

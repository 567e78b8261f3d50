"""Machine code of the kernels of products: a file beside the native module, an entry of the cache on disk, or LLVM's.

The runtime asks for a *unit*, such as ``v4_ff`` (``codegen.cpu.products.tables``), when a plan first needs it. Builds
and wheels bring the files of all units. One that was made from other sources, or is damaged, is not used.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import util
from typing import Any

from weft import errors, runtime
from weft._base import forks, lazy
from weft.compiler.storage import disk

# The one file of the package that names units. Its packages would load all of code generation, which a process whose
# programs are on disk does without.
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(errors.__file__)), "codegen", "cpu", "products")


def _names_of_units() -> Any:
    spec = util.spec_from_file_location("weft_products", os.path.join(_PACKAGE, "__init__.py"))
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


products = _names_of_units()
FOLDER = os.path.join(os.path.dirname(sys.modules[f"{runtime.__name__}._native"].__file__ or ""), "products")
# In a process of its own: LLVM's passes and switches are those of a build (``products.objects``).
_COMPILE = "import sys; sys.path.insert(0, sys.argv[1]); from products import objects; objects.write(sys.argv[2])"

_lock = forks.held("kernels")
_found: dict[str, Any] = {}


def kernel(unit: str) -> Any:
    """The entry of a unit (a ``runtime.Kernel``), or None if there is none of this name."""
    with _lock:
        if unit not in _found:  # while another thread had the lock
            key = products.unit_key(unit)
            code = installed(unit, key) or (_kept(unit, key) if _exists(unit) else None)
            _found[unit] = None if code is None else runtime.load_kernel(code, products.ENTRY)
        return _found[unit]


def installed(unit: str, key: bytes) -> bytes | memoryview | None:
    """The object file that came with the native module."""
    with contextlib.suppress(OSError), open(os.path.join(FOLDER, products.file_name(unit, key)), "rb") as file:
        return products.opened(key, file.read())
    return None


def _exists(unit: str) -> bool:
    return unit in lazy.submodule("weft.codegen.cpu.products.tables").units(unit.partition("_")[0])


def _kept(unit: str, key: bytes) -> bytes:
    """The object file from the cache on disk, or else from LLVM."""
    entry = products.unit_key(unit, lazy.importlib_metadata.version("llvmlite"))
    store = disk.current(disk.ANY_COMPILER)
    found = None if store is None else store.load(entry)
    if found is not None:
        return found.bytes
    code = compiled(unit, key)
    if store is not None:
        store.store(entry, products.ENTRY, code)
    return code


def compiled(unit: str, key: bytes) -> bytes:
    """The object file from LLVM."""
    done = lazy.subprocess.run([sys.executable, "-c", _COMPILE, os.path.dirname(_PACKAGE), unit], capture_output=True)
    code = products.opened(key, done.stdout)
    if code is None:
        said = done.stderr.decode(errors="replace").strip()
        message = (
            f"[products] LLVM made no kernels {unit}: {sys.executable} ended with {done.returncode} and said: {said}"
        )
        raise errors.InternalError(message, stage="llvm")
    return bytes(code)

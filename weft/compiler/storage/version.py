"""The version of the compiler, part of the keys of the cache on disk: a digest of sources and libraries.

All of weft's sources are included, since a function may be traced through any of them, and so are the libraries that
decide what is traced or how it is compiled.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from importlib import util

import ml_dtypes
import numpy as np

from weft import core, runtime

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES = ("llvmlite-", "opt_einsum-")  # as the names of the folders of their metadata begin


@functools.cache
def compiler_version() -> bytes | None:
    """16 bytes that change whenever a program or its code might; None if the sources are not what is running."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for name, nbytes, changed_ns in sorted(runtime.source_stamps(_ROOT)):
            if changed_ns > core.LOADED_NS:
                return None  # edited since this process read it
            digest.update(f"{name} {nbytes} {changed_ns}\n".encode())
        native = sys.modules[f"{runtime.__name__}._native"].__file__ or ""
        status = os.stat(native)
        digest.update(f"native {status.st_size} {status.st_mtime_ns}\n".encode())
    except (OSError, KeyError):
        return None
    digest.update(f"\nweft {getattr(sys.modules['weft._base.api'], 'VERSION', '')} Python {sys.version}\n".encode())
    digest.update(f"numpy {np.__version__} ml_dtypes {ml_dtypes.__version__}\n".encode())
    digest.update(_library_versions().encode())
    return digest.digest()


def _library_versions() -> str:
    """From the names of their metadata folders, so that llvmlite need not be imported."""
    found = util.find_spec("llvmlite")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    if not folders:
        return "no llvmlite"
    beside = os.path.dirname(folders[0])
    try:
        status = os.stat(os.path.join(folders[0], "_version.py"))
        names = sorted(name for name in os.listdir(beside) if name.startswith(_LIBRARIES))
    except OSError:
        return f"llvmlite in {folders[0]}"
    return f"{' '.join(names)} {status.st_size}"

"""The single instructions of each family of processors, and the writers of functions for it."""

from __future__ import annotations

from weft._base import lazy
from weft._base.target import Target
from weft.codegen.arithmetic.features import Native
from weft.codegen.arithmetic.lanes import V
from weft.codegen.cpu.avx2 import Avx2
from weft.codegen.cpu.avx512 import Avx512
from weft.codegen.cpu.neon import Neon
from weft.codegen.writer import Writer

NATIVE: dict[str, Native[V]] = {"x86-64-v4": Avx512(), "x86-64-v3": Avx2(), "aarch64": Neon()}


def writer(target: Target, scalar: bool = False) -> Writer:
    """A writer of one function; ``scalar``: without vectors."""
    native = lazy.submodule("weft.codegen.gpu.native").GPU if target.is_gpu else NATIVE[target.name]
    return Writer(target.model, native, scalar)

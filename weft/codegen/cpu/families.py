"""The single instructions of each family of processors, by the name of its target."""

from __future__ import annotations

from weft.codegen.cpu.avx2 import Avx2
from weft.codegen.cpu.avx512 import Avx512
from weft.codegen.cpu.neon import Neon
from weft.codegen.features import Native
from weft.codegen.lanes import V

NATIVE: dict[str, Native[V]] = {"x86-64-v4": Avx512(), "x86-64-v3": Avx2(), "aarch64": Neon()}

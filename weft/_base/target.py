"""Targets: the machine that code is written for: vector width, LLVM's name and features, the key of kernel caches.

The runtime says what the host is, for its own kernels too, so that no compiler need be loaded to know the width.
``WEFT_TARGET=x86-64-v3`` (or another name of ``TARGETS``) overrides it.
"""

from __future__ import annotations

import functools
import os

from weft import runtime
from weft._base.record import Record
from weft._base.target_model import AARCH64, GPU, LARGE_CACHES, X86_V3, X86_V4, Model


class UnsupportedTargetError(RuntimeError):
    """No code can be made for this processor, or no such target is known."""


class Target(Record):
    """A family of processors whose members run the same kernels."""

    name: str
    triple: str
    cpu: str  # LLVM's name
    features: str
    lanes: int  # lanes of a vector value, whatever its dtype
    masked_bytes: tuple[int, ...]  # element sizes with masked loads and stores
    gather_bytes: tuple[int, ...]  # element sizes with gathers
    model: Model  # figures of the machine
    row_by_row: bool = False  # whether neighbourhoods are read row by row, not by pairs that share loads
    made_by: str = ""  # GPUs: the device and the driver that make machine code; without them code stays a text

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU: many threads run a function at once, each for an element of its own."""
        return self.triple == _PTX

    @property
    def key(self) -> str:
        """The key that tells kernels of different targets apart in a cache."""
        sizes = (self.model.second_cache, self.model.third_cache)
        caches = "" if sizes == tuple(LARGE_CACHES.values()) else f":caches {sizes}"
        return f"{self.name}:{self.cpu}:{self.features}{':row_by_row' if self.row_by_row else ''}{caches}{self.made_by}"


_LINUX = "unknown-linux-gnu"
_X86, _ARM, _PTX = f"x86_64-{_LINUX}", f"aarch64-{_LINUX}", "nvptx64-nvidia-cuda"
TARGETS = {
    target.name: target
    for target in (
        # without -prefer-256-bit LLVM splits every 512-bit vector: 15 to 40 % slower
        Target("x86-64-v4", _X86, "x86-64-v4", "-prefer-256-bit", 16, (1, 2, 4, 8), (4, 8), X86_V4),
        Target("x86-64-v3", _X86, "x86-64-v3", "", 8, (4, 8), (), X86_V3),
        Target("aarch64", _ARM, "generic", "+neon", 4, (), (), AARCH64),
    )
}
# GPUs by compute capability: each runs the kernels of every earlier one; old drivers read these versions of PTX
GPUS = {
    capability: Target(f"sm_{capability}", _PTX, f"sm_{capability}", f"+ptx{ptx}", 4, (), (), GPU)
    for capability, ptx in ((80, 70), (90, 78))
}


def _host() -> Target:
    name = runtime.cpu_target()
    if not name:
        raise UnsupportedTargetError(
            "[target] this processor cannot run compiled kernels: x86-64-v3 (AVX2, FMA, BMI2) or aarch64 is needed."
        )
    found = named(name)
    # no file says how a prefetcher works; by maker as measured (benchmarks/NOTES.md)
    return _with_caches(found.replace(row_by_row=found.model.masks and runtime.cpu_maker() == "GenuineIntel"))


def _with_caches(found: Target) -> Target:
    """The target with the sizes of this machine's caches."""
    sizes = dict(LARGE_CACHES)
    for index in range(8):
        try:
            level, kind, size = (_cache_fact(index, name) for name in ("level", "type", "size"))
            if kind != "Instruction" and int(level) in sizes and size.endswith("K"):
                sizes[int(level)] = min(int(size[:-1]) << 10, LARGE_CACHES[int(level)])
        except (OSError, ValueError):
            break
    return found.replace(model=found.model.replace(second_cache=sizes[2], third_cache=sizes[3]))


def _cache_fact(index: int, name: str) -> str:
    with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{name}", encoding="utf-8") as file:
        return file.read().strip()


def named(name: str) -> Target:
    """A target by name."""
    if name not in TARGETS:
        raise UnsupportedTargetError(f"[target] unknown target {name!r}; known: {', '.join(TARGETS)}.")
    return TARGETS[name]


def gpu(capability: int) -> Target | None:
    """The target of a GPU of compute capability ``capability`` / 10; None if no code can be made for it."""
    known = [known for known in GPUS if known <= capability]
    return GPUS[max(known)] if known else None


@functools.cache
def host() -> Target:
    """The target of this process."""
    asked = os.environ.get("WEFT_TARGET")
    return named(asked) if asked else _host()

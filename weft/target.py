"""What machine the compiler writes code for: vector width, LLVM's name and features, the key of kernel caches.

The host is read from the kernel's own report, so that no compiler need be loaded to know the width.
``WEFT_TARGET=x86-64-v3`` (or another name of ``TARGETS``) overrides it.
"""

from __future__ import annotations

import functools
import os
import platform

from weft.record import Record


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
    avx512: bool = False  # its F, BW, CD, DQ and VL

    @property
    def key(self) -> str:
        """What a kernel cache must distinguish."""
        return f"{self.name}:{self.cpu}:{self.features}"


_LINUX = "unknown-linux-gnu"
TARGETS = {
    target.name: target
    for target in (
        # without -prefer-256-bit LLVM splits every 512-bit vector: 15 to 40 % slower
        Target("x86-64-v4", f"x86_64-{_LINUX}", "x86-64-v4", "-prefer-256-bit", 16, (1, 2, 4, 8), (4, 8), True),
        Target("x86-64-v3", f"x86_64-{_LINUX}", "x86-64-v3", "", 8, (4, 8), ()),
        Target("aarch64", f"aarch64-{_LINUX}", "generic", "+neon", 4, (), ()),
    )
}
_V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])


def _host_name() -> str:
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return "aarch64"
    flags = frozenset[str]()
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            flags = next((frozenset(line.split()) for line in lines if line.startswith("flags")), flags)
    except OSError:
        pass
    if machine not in ("x86_64", "AMD64") or not flags >= _V3:
        missing = " ".join(sorted(_V3 - flags))
        raise UnsupportedTargetError(
            f"[target] this processor ({machine}) cannot run compiled kernels: x86-64-v3 or aarch64 is needed"
            f"{', missing ' + missing if missing else ''}."
        )
    return "x86-64-v4" if flags >= _V4 else "x86-64-v3"


def named(name: str) -> Target:
    """A target by name."""
    if name not in TARGETS:
        raise UnsupportedTargetError(f"[target] unknown target {name!r}; known: {', '.join(TARGETS)}.")
    return TARGETS[name]


@functools.cache
def host() -> Target:
    """The target of this process."""
    return named(os.environ.get("WEFT_TARGET") or _host_name())

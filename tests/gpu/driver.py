"""The driver of GPUs for tests: built, its path, and the environment of a process that uses it.

``WEFT_CUDA_LIBRARY=<path()>`` makes weft's native client open it instead of the real one. What there is of devices and
what fails is chosen by variables that begin with WEFT_TEST_CUDA_ (tests/gpu/driver/state.cpp lists them)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.gpu.native_build import HERE, Part, build, machine
from weft._base import target
from weft.dispatch.devices import cuda_devices

ROOT = HERE.parents[1]
NARROW = "x86-64-v3"  # the target of the CPU whose bits a GPU has


def _is_wide() -> bool:
    return target.host().name == "x86-64-v4"


@lru_cache(maxsize=1)
def path() -> Path:
    """The library, built if need be."""
    folder = HERE / "driver"
    own = Part(sorted(folder.glob("*.cpp")), sorted(folder.glob("*.h")))
    link = ["-Wl,-soname,weft-test-cuda.so", "-ldl", "-pthread"]  # not to be found as the real one in this process
    return build("libcuda.so.1", [machine(), own], link)


def environment(**settings: object) -> dict[str, str]:
    """Of a process that has the library's devices: ``environment(devices=2, memory=64)``."""
    chosen = {f"WEFT_TEST_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
    host = {"WEFT_TARGET": NARROW} if _is_wide() else {}
    return {**os.environ, "WEFT_CUDA_LIBRARY": str(path()), **host, **chosen}


def run(program: str, timeout: float = 120, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a process of its own on the library's devices."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
    )


def calls() -> dict[str, int]:
    """How often this process has called each function of the driver since this was last asked."""
    room = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(str(path())).weft_test_calls(room, ctypes.c_size_t(len(room)))
    return {name: int(count) for name, count in [line.rsplit(" ", 1) for line in room.value.decode().splitlines()]}


_devices: list[Any] = []  # of this process, once they were asked for


@contextlib.contextmanager
def gpus() -> Iterator[list[Any]]:
    """The GPUs of the library in this process, or of this machine (``WEFT_TEST_GPU=real``); other tests find none.

    Meanwhile the CPU has the target whose bits a GPU has (docs/NUMERICS.md), if its own has wider vectors.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if _is_wide():
            narrow = target.named(NARROW)
            weft.clear_caches()
            stack.callback(weft.clear_caches)
            patch.setattr(target, "host", lambda: narrow)
        if os.environ.get("WEFT_TEST_GPU") != "real":
            patch.setenv("WEFT_CUDA_LIBRARY", str(path()))
        cuda_devices._made.extend(_devices)
        _devices[:] = weft.devices("cuda")
        try:
            yield _devices
        finally:
            cuda_devices._made.clear()
            cuda_devices._reasons.setdefault(None, "there is no NVIDIA driver: those of tests/gpu are theirs")


if __name__ == "__main__":
    print(path())

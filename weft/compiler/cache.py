"""Nests -> machine code, once each: the kernel cache of the process, above the one on disk (``disk``).

The key is the nest itself (sizes are not in it) and the target. Kernels count in ``core.budget``; one that is dropped
stays mapped as long as a program holds it.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft import codegen, runtime, target
from weft.compiler import disk, nest_key, progress
from weft.core.budget import BUDGET
from weft.loops import ir

_STATEMENT_BYTES = 600  # measured: what a statement of a nest weighs beside its machine code


@dataclass(eq=False, slots=True, weakref_slot=True)
class Compiled:
    """The machine code of a nest."""

    kernel: Any  # runtime.Kernel
    nest: ir.Nest
    nbytes: int
    ns_per_point: float
    loaded: bool  # from disk
    reuses: int = 0

    @property
    def weight(self) -> int:
        """Bytes it takes in the process."""
        statements = self.nest.size()
        return self.kernel.nbytes + _STATEMENT_BYTES * (statements + 10)


class Answer(NamedTuple):
    """One machine code a nest, and how many of them had to be built or were loaded from disk."""

    compiled: list[Compiled]
    built: int
    loaded: int


class KernelCache:
    """What was compiled in this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._building = threading.RLock()
        self._entries: dict[tuple[ir.Nest, str], Compiled] = {}
        self.nbytes = 0
        self.built = 0
        self.loaded = 0
        self.reused = 0
        self.evicted = 0
        self.build_ms = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, nests: Sequence[ir.Nest]) -> Answer:
        """Machine code for each nest."""
        machine = target.host()
        found = {nest: self._find(nest, machine) for nest in dict.fromkeys(nests)}
        missing = [nest for nest, entry in found.items() if entry is None]
        self.reused += len(found) - len(missing)
        built = loaded = 0
        for done, nest in enumerate(missing):
            progress.kernels(done, len(missing))
            with self._building:  # another thread may have built it meanwhile
                entry = self._find(nest, machine)
                if entry is None:
                    start = time.perf_counter()
                    entry = build(nest, machine)
                    self._add((nest, machine.key), entry)
                    if entry.loaded:
                        loaded += 1
                    else:
                        self.build_ms += (time.perf_counter() - start) * 1e3
                        built += 1
                found[nest] = entry
        return Answer([entry for nest in nests if (entry := found[nest]) is not None], built, loaded)

    def _find(self, nest: ir.Nest, machine: target.Target) -> Compiled | None:
        key = (nest, machine.key)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.reuses += 1
            return entry

    def _add(self, key: tuple[ir.Nest, str], entry: Compiled) -> None:
        with self._lock:
            self.nbytes += entry.nbytes
            self._entries[key] = entry
            self.built += not entry.loaded
            self.loaded += entry.loaded
        BUDGET.keep(entry, entry.weight, functools.partial(self._drop, key), _reuses)

    def _drop(self, key: tuple[ir.Nest, str], entry: Compiled) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]
                self.nbytes -= entry.nbytes
                self.evicted += 1

    def acquire(self) -> None:
        self._building.acquire()
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()
        self._building.release()

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.nbytes = 0


def _reuses(entry: Compiled) -> int:
    return entry.reuses


def build(nest: ir.Nest, machine: target.Target) -> Compiled:
    """The machine code of one nest, from disk or from LLVM."""
    store = disk.current()
    key = nest_key.key(nest, machine) if store is not None else None
    if store is not None and key is not None:
        found = store.load(key)
        if found is not None:
            try:
                return _mapped(nest, found, loaded=True)
            except RuntimeError as error:  # whole, yet not an object that the loader takes
                store.remove(key, str(error))
    made = codegen.compile_nest(nest, machine)
    compiled = _mapped(nest, made, loaded=False)
    if store is not None and key is not None:
        store.store(key, made.symbol, made.bytes)
    return compiled


def _mapped(nest: ir.Nest, made: codegen.Object | disk.Object, loaded: bool) -> Compiled:
    kernel = runtime.load_kernel(made.bytes, made.symbol)
    return Compiled(kernel, nest, len(made.bytes), codegen.cost(nest), loaded)


KERNELS = KernelCache()
# a child process must not inherit a lock that another thread held
os.register_at_fork(before=KERNELS.acquire, after_in_parent=KERNELS.release, after_in_child=KERNELS.release)

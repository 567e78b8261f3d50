"""Nests -> machine code, once each: the kernel cache of the process, above the one on disk (``disk``).

The key is the nest itself (sizes are not in it) and the target. Kernels count in ``core.budget``; one that is dropped
stays mapped as long as a program holds it. What one thread builds, others that need it wait for.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft import codegen, config, runtime, target
from weft.compiler import disk, nest_key, progress
from weft.compiler.side_by_side import SideBySide
from weft.core.budget import BUDGET
from weft.loops import ir
from weft.record import NamedTuple

_STATEMENT_BYTES = 600  # measured: what a statement of a nest weighs beside its machine code
Key = tuple[ir.Nest, str]


@dataclass(eq=False, slots=True, weakref_slot=True)
class Compiled:
    """The machine code of a nest."""

    kernel: Any  # runtime.Kernel
    nest: ir.Nest
    nbytes: int
    ns_per_point: float
    loaded: bool  # from disk
    key: bytes | None  # under which it is on disk
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
        self._entries: dict[Key, Compiled] = {}
        self._being_built: dict[Key, tuple[int, threading.Event]] = {}  # by which thread; set when that is over
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
        while missing:
            mine, events = self._claim(missing, machine)
            try:
                for entry in self._build(mine, machine, len(found)):
                    found[entry.nest] = entry
                    loaded += entry.loaded
                    built += not entry.loaded
            finally:
                self._unclaim(mine, machine)
            for event in events:
                event.wait()
            for nest in missing:  # what another thread was to build, but failed to, is for the next round
                found[nest] = found[nest] or self._find(nest, machine)
            missing = [nest for nest in missing if found[nest] is None]
        return Answer([entry for nest in nests if (entry := found[nest]) is not None], built, loaded)

    def _claim(self, nests: Sequence[ir.Nest], machine: target.Target) -> tuple[list[ir.Nest], list[threading.Event]]:
        """Those of the nests that no other thread has built or builds, now ours, and when the others' are over.

        What this thread itself builds is ours again: then a signal handler or a destructor runs in the middle of that.
        """
        mine, events = [], []
        thread = threading.get_ident()
        with self._lock:
            for nest in nests:
                key = (nest, machine.key)
                builder, event = self._being_built.get(key, (thread, None))
                if builder != thread and event is not None:
                    events.append(event)
                elif key not in self._entries:
                    self._being_built[key] = thread, event or threading.Event()
                    mine.append(nest)
        return mine, events

    def _unclaim(self, nests: Sequence[ir.Nest], machine: target.Target) -> None:
        with self._lock:
            for nest in nests:
                _, event = self._being_built.pop((nest, machine.key), (0, None))
                if event is not None:
                    event.set()

    def _build(self, nests: Sequence[ir.Nest], machine: target.Target, total: int) -> list[Compiled]:
        """Machine code that is not in the process yet: from disk, else from LLVM."""
        made: list[Compiled] = []

        def keep(entry: Compiled) -> None:
            self._add((entry.nest, machine.key), entry)
            made.append(entry)
            progress.kernels(total - len(nests) + len(made), total)

        progress.kernels(total - len(nests), total)
        store = disk.current()
        keys = {nest: nest_key.key(nest, machine) for nest in nests} if store is not None else {}
        rest = []
        for nest in nests:
            entry = _from_disk(nest, store, keys.get(nest))
            if entry is None:
                rest.append(nest)
            else:
                keep(entry)
        if rest:
            start = time.perf_counter()
            build_all(rest, machine, store, keys, keep)
            self.build_ms += (time.perf_counter() - start) * 1e3
        return made

    def _find(self, nest: ir.Nest, machine: target.Target) -> Compiled | None:
        key = (nest, machine.key)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.reuses += 1
            return entry

    def _add(self, key: Key, entry: Compiled) -> None:
        with self._lock:
            replaced = self._entries.get(key)
            self.nbytes += entry.nbytes - (replaced.nbytes if replaced is not None else 0)
            self._entries[key] = entry
            self.built += not entry.loaded
            self.loaded += entry.loaded
        BUDGET.keep(entry, entry.weight, functools.partial(self._drop, key), _reuses)

    def _drop(self, key: Key, entry: Compiled) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]
                self.nbytes -= entry.nbytes
                self.evicted += 1

    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def release_in_child(self) -> None:
        """After a fork: no other thread is there to end what it was building."""
        self._being_built.clear()
        self._lock.release()

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.nbytes = 0


def _reuses(entry: Compiled) -> int:
    return entry.reuses


def _from_disk(nest: ir.Nest, store: disk.DiskCache | None, key: bytes | None) -> Compiled | None:
    found = store.load(key) if store is not None and key is not None else None
    if store is None or key is None or found is None:
        return None
    try:
        return _mapped(nest, found, key, loaded=True)
    except RuntimeError as error:  # whole, yet not an object that the loader takes
        store.remove(key, str(error))
        return None


def build_all(
    nests: Sequence[ir.Nest],
    machine: target.Target,
    store: disk.DiskCache | None,
    keys: Mapping[ir.Nest, bytes | None],
    keep: Callable[[Compiled], None],
) -> None:
    """Machine code from LLVM, as many nests at once as the pool has threads; ``keep`` is called on this thread."""

    def prepare(nest: ir.Nest) -> tuple[int, tuple[ir.Nest, str]]:
        text = codegen.text_of(nest, machine)
        return len(text), (nest, text)

    def finish(work: tuple[ir.Nest, str]) -> codegen.Object:
        nest, text = work
        made = codegen.compile_text(text, machine, nest.name)
        key = keys.get(nest)
        if store is not None and key is not None:
            store.store(key, made.symbol, made.bytes)
        return made

    def done(number: int, made: codegen.Object) -> None:
        nest = nests[number]
        keep(_mapped(nest, made, keys.get(nest), loaded=False))

    isolated = config.read("compile") == "isolated"  # there is one child
    n_threads = 1 if isolated else runtime.Pool.get_threads()
    SideBySide(finish, done).run([functools.partial(prepare, nest) for nest in nests], n_threads)


def _mapped(nest: ir.Nest, made: codegen.Object | disk.Object, key: bytes | None, loaded: bool) -> Compiled:
    kernel = runtime.load_kernel(made.bytes, made.symbol)
    return Compiled(kernel, nest, len(made.bytes), codegen.cost(nest), loaded, key)


KERNELS = KernelCache()
# a child process must not inherit a lock that another thread held
os.register_at_fork(before=KERNELS.acquire, after_in_parent=KERNELS.release, after_in_child=KERNELS.release_in_child)

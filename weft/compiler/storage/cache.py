"""The kernel level of the cache: machine code for each nest, in the process and on disk (``disk``).

A kernel is found by its nest (which has no sizes) or, if it came with a program from disk, by its digest there. A
kernel that the budget drops stays mapped as long as a program holds it. If one thread is building a kernel, others that
need it wait.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import codegen, config, runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple
from weft._base.target import Target
from weft.compiler import progress
from weft.compiler.side_by_side import SideBySide
from weft.compiler.storage import disk, nest_key
from weft.core.caches.cache_keys import KernelKey, kernel_key
from weft.core.caches.store import KERNELS, Entry, Store
from weft.loops import ir
from weft.loops.schedules import parallel

_STATEMENT_BYTES = 600  # measured: bytes of a statement of a nest, without machine code


class Compiled(Entry):
    """The machine code of a nest (for a target), or, for a program from disk, of a digest."""

    __slots__ = ("kernel", "key", "loaded", "nbytes", "nest", "outline", "reuses", "target")

    def __init__(
        self, kernel: Any, nest: ir.Nest | None, target: Target, nbytes: int, loaded: bool, key: bytes | None,
        reuses: int = 0,
    ) -> None:  # fmt: skip
        self.kernel = kernel  # runtime.Kernel
        self.nest, self.target, self.nbytes = nest, target, nbytes
        self.outline = parallel.outline(nest)  # what calls depend on
        self.loaded = loaded  # from disk
        self.key = key  # its digest, under which it is on disk
        self.reuses = reuses
        self.keys = {}

    @property
    def weight(self) -> int:
        statements = 0 if self.nest is None else self.nest.size() + 10
        return self.kernel.nbytes + _STATEMENT_BYTES * statements

    def uses(self) -> int:
        return self.reuses


class Answer(NamedTuple):
    """The machine code of each nest, and how many were built or loaded from disk."""

    compiled: list[Compiled]
    built: int
    loaded: int


class Builder:
    """Makes the kernels that a store does not have."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = forks.held("kernels")
        # the building thread; set when it has ended
        self._being_built: dict[KernelKey, tuple[int, threading.Event]] = {}
        self.built = 0
        self.loaded = 0
        self.build_ms = 0.0

    def compile(self, nests: Sequence[ir.Nest], machine: Target) -> Answer:
        """Machine code for each nest."""
        found = {nest: self.find(nest, machine) for nest in dict.fromkeys(nests)}
        missing = [nest for nest, entry in found.items() if entry is None]
        built = loaded = 0
        while missing:
            mine, events = self._claim(missing, machine)
            try:
                for nest, entry in self._build(mine, machine, len(found)):
                    found[nest] = entry
                    loaded += entry.loaded
                    built += not entry.loaded
            finally:
                self._unclaim(mine, machine)
            for event in events:
                event.wait()
            for nest in missing:  # if another thread failed to build one, the next round builds it
                found[nest] = found[nest] or self.find(nest, machine)
            missing = [nest for nest in missing if found[nest] is None]
        return Answer([entry for nest in nests if (entry := found[nest]) is not None], built, loaded)

    def _claim(self, nests: Sequence[ir.Nest], machine: Target) -> tuple[list[ir.Nest], list[threading.Event]]:
        """(the nests that no other thread has built or is building, which we now claim; events to wait for others on).

        A nest that this thread is itself building is claimed again: then a signal handler or a destructor runs
        meanwhile.
        """
        mine, events = [], []
        thread = threading.get_ident()
        with self._lock:
            for nest in nests:
                key = kernel_key(nest, machine.key)
                builder, event = self._being_built.get(key, (thread, None))
                if builder != thread and event is not None:
                    events.append(event)
                elif key not in self.store.entries:
                    self._being_built[key] = thread, event or threading.Event()
                    mine.append(nest)
        return mine, events

    def _unclaim(self, nests: Sequence[ir.Nest], machine: Target) -> None:
        with self._lock:
            for nest in nests:
                _, event = self._being_built.pop(kernel_key(nest, machine.key), (0, None))
                if event is not None:
                    event.set()

    def _build(self, nests: Sequence[ir.Nest], machine: Target, total: int) -> list[tuple[ir.Nest, Compiled]]:
        """Load machine code from disk, or else build it by LLVM."""
        made: list[tuple[ir.Nest, Compiled]] = []

        def keep(nest: ir.Nest, entry: Compiled) -> None:
            self.add(nest, entry, machine)
            self.built += not entry.loaded
            self.loaded += entry.loaded
            made.append((nest, entry))
            progress.kernels(total - len(nests) + len(made), total)

        progress.kernels(total - len(nests), total)
        store = disk.current()
        keys = {nest: nest_key.key(nest, machine) for nest in nests} if store is not None else {}
        rest = []
        for nest in nests:
            entry = self._with_digest(nest, store, keys.get(nest), machine)
            if entry is None:
                rest.append(nest)
            else:
                keep(nest, entry)
        if rest:
            start = time.perf_counter()
            build_all(rest, machine, store, keys, keep)
            self.build_ms += (time.perf_counter() - start) * 1e3
        return made

    def find(self, what: ir.Nest | bytes, machine: Target) -> Compiled | None:
        """The kernel of a nest, or of a digest."""
        entry = self.store.find(kernel_key(what, machine.key))
        if entry is not None:
            entry.reuses += 1
        return entry

    def add(self, nest: ir.Nest | None, entry: Compiled, machine: Target) -> None:
        """Store a kernel under its nest and its digest, those of them that it has."""
        for what in (nest, entry.key):
            if what is not None:
                self.store.add(kernel_key(what, machine.key), entry)

    def load(self, digest: bytes, store: disk.DiskCache, machine: Target) -> Compiled | None:
        """The kernel of a digest, that some program runs already, or else from disk."""
        known = self.find(digest, machine)
        found = store.load(digest) if known is None else None
        if found is None:
            return known
        kernel = _loaded(found.bytes, found.symbol, machine)
        entry = Compiled(kernel, None, machine, len(found.bytes), True, digest)
        self.add(None, entry, machine)
        return entry

    def _with_digest(
        self, nest: ir.Nest, store: disk.DiskCache | None, digest: bytes | None, machine: Target
    ) -> Compiled | None:
        """The kernel of a nest that a program from disk runs already, or that is on disk."""
        if store is None or digest is None:
            return None
        try:
            entry = self.load(digest, store, machine)
        except RuntimeError as error:  # the checksum is right, but the loader rejects the object
            store.remove(digest, str(error))
            return None
        if entry is None or entry.nest is not None:
            return entry
        return Compiled(entry.kernel, nest, machine, entry.nbytes, True, digest, entry.reuses)

    def forget_other_threads(self) -> None:
        """In a child of a fork: no other thread exists that could finish what it was building."""
        self._being_built.clear()


def build_all(
    nests: Sequence[ir.Nest],
    machine: Target,
    store: disk.DiskCache | None,
    keys: Mapping[ir.Nest, bytes | None],
    keep: Callable[[ir.Nest, Compiled], None],
) -> None:
    """Machine code from LLVM, as many nests at once as the pool has threads; ``keep`` is called on this thread."""

    def prepare(nest: ir.Nest) -> tuple[int, tuple[ir.Nest, str]]:
        text = codegen.text_of(nest, machine)
        return len(text), (nest, text)

    def finish(work: tuple[ir.Nest, str]) -> codegen.Object:
        nest, text = work
        made = codegen.compile_text(text, machine, nest.name)
        if machine.is_gpu:
            made = _for_a_device(made, machine)
        key = keys.get(nest)
        if store is not None and key is not None:
            store.store(key, made.symbol, made.bytes)
        return made

    def done(number: int, made: codegen.Object) -> None:
        nest = nests[number]
        kernel = _loaded(made.bytes, made.symbol, machine)
        keep(nest, Compiled(kernel, nest, machine, len(made.bytes), False, keys.get(nest)))

    isolated = config.read("compile") == "isolated"  # there is only one child process
    n_threads = 1 if isolated else runtime.Pool.get_threads()
    SideBySide(finish, done).run([functools.partial(prepare, nest) for nest in nests], n_threads)


def _loaded(code: bytes, symbol: str, machine: Target) -> Any:
    """The native handle of machine code; the symbol of a GPU's has the names of all entries."""
    return runtime.DeviceModule(code, symbol.split()) if machine.is_gpu else runtime.load_kernel(code, symbol)


def _for_a_device(made: codegen.Object, machine: Target) -> codegen.Object:
    """A GPU's kernels as machine code of a device, or as their text, with the names of all entries."""
    entries = " ".join(re.findall(r"\.entry (\w+)\(", made.bytes.decode()))
    code = lazy.cuda_devices.assembled(made.bytes, machine) if machine.made_by else made.bytes
    return made.replace(bytes=code, symbol=entries)


BUILDER = Builder(KERNELS)
forks.in_child(BUILDER.forget_other_threads)

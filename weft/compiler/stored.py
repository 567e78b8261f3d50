"""Programs on disk: a compiled program as plain data, from which a later process builds the executable directly.

In: a ``Program``, its constants and what its caller needs again (``facts``: a structure and numbers). Out: an entry of
the cache on disk (``disk``) with the instructions for the runtime, in which types and kernels are indices; kernels are
separate entries. A program that runs Python, or has large constants or kernels that are not on disk, is not stored. An
invalid entry, or one with a missing kernel, is a miss and is removed.

Writing takes a third of a millisecond, and starting a thread up to half of one: the call that made the program does not
wait for it. A background thread writes a moment later, or else the process does at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import marshal
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from weft import dtypes, runtime
from weft._base import target
from weft._base.record import NamedTuple
from weft.compiler import cache, disk, link, pipeline
from weft.compiler.instructions import INSTRUCTIONS, OUTPUTS, Callback, Exchange, Gemm, Instruction
from weft.compiler.read_program import ProgramReader
from weft.core.cache_keys import disk_key
from weft.dispatch import portable
from weft.dispatch.identity import Refusal
from weft.dispatch.persistent import Request

_log = logging.getLogger("weft.compiler")
_MOST_CONSTANT_BYTES = 1 << 20
_DELAY_S = 0.1  # between two checks for programs to write
_IDLE_ROUNDS = 20  # delays without work after which the thread sleeps; waking it takes 50 to 90 us
_STAY_S = 30.0  # sleeping time after which the thread ends
_waiting: deque[tuple[disk.DiskCache, Any]] = deque()
_asleep: Any = None  # lock of the writing thread: held while the thread sleeps
_lock = threading.RLock()


def _in_child() -> None:
    """In a child: it has no such thread, leaves waiting programs to its parent, and resets locks."""
    global _asleep
    _asleep = None
    _waiting.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
Built = TypeVar("Built")


class Loaded(NamedTuple):
    """A program from disk; ``executable`` takes ``consts`` and then the arguments."""

    executable: Any
    consts: tuple[Any, ...]
    kernels_loaded: int
    kernels_reused: int  # shared with other programs from disk
    nbytes: int  # bytes of its entry


def _key(store: disk.DiskCache, text: bytes) -> bytes:
    return disk_key("program", target.host().key, text, store.version)


# -- writing ----------------------------------------------------------------------------------------------------------


def keep(wanted: Request, program: pipeline.Program, consts: tuple[Any, ...], out_avals: Any, facts: Any) -> None:
    """Queue a program to be stored for the calls of ``wanted``; its first inputs are ``consts``."""
    store = disk.current()
    if store is None or not store.writable:
        return
    _waiting.append((store, (wanted, program, consts, out_avals, facts)))
    asleep = _asleep
    if asleep is None:
        _start_writer()
    elif asleep.locked():
        _wake(asleep)


def _wake(asleep: Any) -> None:
    with contextlib.suppress(RuntimeError):  # another thread has released it meanwhile
        asleep.release()


def _start_writer() -> None:
    global _asleep
    asleep = _asleep = threading.Lock()
    writer = threading.Thread(target=_write_again_and_again, args=(asleep,), name="weft-writer", daemon=True)
    try:
        writer.start()
    except RuntimeError:  # no thread can be started: the program is written at exit
        _asleep = None


def _write_again_and_again(asleep: Any) -> None:
    """The loop of the writing thread. What is added just when it ends waits for the next thread, or for exit."""
    global _asleep
    idle = 0
    try:
        while True:
            time.sleep(_DELAY_S)
            idle = 0 if _waiting else idle + 1
            flush()
            if idle < _IDLE_ROUNDS:
                continue
            asleep.acquire()
            if not _waiting and not asleep.acquire(timeout=_STAY_S):
                return
            _wake(asleep)
            idle = 0
    finally:
        if _asleep is asleep:
            _asleep = None


@atexit.register
def flush() -> None:
    """Write all waiting programs; when this returns they are on disk."""
    with _lock:
        while _waiting:
            store, program = _waiting.popleft()
            try:
                _write(store, *program)
            except Exception as error:  # the program still works, and others are waiting
                _log.warning("kernel cache: the program %s could not be kept: %r", program[1].name, error)


def _write(
    store: disk.DiskCache,
    wanted: Request,
    program: pipeline.Program,
    consts: tuple[Any, ...],
    out_avals: Any,
    facts: Any,
) -> None:
    writer = ProgramWriter()
    places = {id(array): index for index, array in enumerate(wanted.captured)}
    made = [(index, const) for index, const in enumerate(consts) if id(const) not in places]
    captured = [(index, places[id(const)]) for index, const in enumerate(consts) if id(const) in places]
    try:
        inputs = [index for index, _ in made], writer.consts([const for _, const in made]), captured
        words = portable.tree(facts[0]), facts[1]
        content = (writer.program(program), inputs, [writer.aval(aval) for aval in out_avals], words)
        key = _key(store, wanted.text)
        data = portable.text((list(map(portable.aval, writer.avals)), list(writer.kernels), content))
    except Refusal as refusal:
        _log.debug("kernel cache: the program %s is not kept: %s", program.name, refusal)
        return
    if marshal.loads(data)[2] != content:
        _log.debug("kernel cache: the program %s is not kept: it has values of other types", program.name)
        return
    store.store(key, "program", data, disk.PROGRAM)


class ProgramWriter:
    """Numbers for the types and the kernels of a program and of those that it runs."""

    def __init__(self) -> None:
        self.avals: dict[Any, int] = {}
        self.kernels: dict[Any, int] = {}
        self.most_constant_bytes: float = _MOST_CONSTANT_BYTES

    def aval(self, aval: Any) -> int:
        return self.avals.setdefault(aval, len(self.avals))

    def program(self, program: pipeline.Program) -> tuple[Any, ...]:
        planned = program.plan
        kernels = [entry.replace(kernel=self.kernel(entry)) for entry in program.compiled]
        nested = iter(program.nested)

        def inner(*_: Any) -> tuple[Any, ...]:
            below = next(nested)
            return self.program(below), self.consts(below.consts)

        made = [_numbered(entry) for entry in link.instructions(planned, kernels, inner)]
        outputs = [(OUTPUTS.index(type(output)), *output[:-1], self.aval(output.aval)) for output in planned.outputs]
        in_avals = [self.aval(aval) for aval in program.in_avals]
        return planned.n_inputs, outputs, planned.temps, planned.arena_bytes, made, program.name, in_avals

    def kernel(self, entry: cache.Compiled) -> int:
        if entry.key is None:
            raise Refusal("it has a kernel that is not on disk")
        return self.kernels.setdefault(entry.key, len(self.kernels))

    def consts(self, consts: Sequence[Any]) -> list[tuple[int, bytes]]:
        if sum(const.nbytes for const in consts) > self.most_constant_bytes:
            raise Refusal("its constants are large")
        if any(dtypes.is_extended(const.dtype) for const in consts):
            raise Refusal("a constant is an array of keys")
        return [(self.aval(const.aval), np.asarray(const).tobytes()) for const in consts]


def _numbered(entry: Instruction) -> tuple[Any, ...]:
    """An instruction as plain data: the number of its class, and its fields."""
    if isinstance(entry, Callback):
        raise Refusal("it calls Python")
    if isinstance(entry, Exchange):
        raise Refusal("it exchanges messages with other processes")
    if isinstance(entry, Gemm) and entry.epilogue is not None:
        entry = entry._replace(epilogue=_numbered(entry.epilogue))
    return (INSTRUCTIONS.index(type(entry)), *entry)


# -- reading ----------------------------------------------------------------------------------------------------------


def find(wanted: Request, build: Callable[[Loaded, tuple[Any, ...], Any], Built]) -> Built | None:
    """What ``build`` makes of the program stored for a request, the types of its results and its facts; or None."""
    store = disk.current()
    if store is None:
        return None
    key = _key(store, wanted.text)
    entry = store.load(key, disk.PROGRAM)
    if entry is None:
        return None
    try:
        avals, kernels, (program, (numbers, consts, captured), out_avals, facts) = marshal.loads(entry.bytes)
        reader = _Reader(store, [_aval(wanted.extended, *described) for described in avals], kernels)
        arrays = dict(zip(numbers, reader.consts(consts), strict=True))
        arrays |= {index: wanted.captured[place] for index, place in captured}
        inputs = tuple([arrays[index] for index in range(len(arrays))])
        reused = len(kernels) - reader.loaded
        loaded = Loaded(reader.program(*program), inputs, reader.loaded, reused, len(entry.bytes))
        return build(loaded, tuple([reader.avals[number] for number in out_avals]), facts)
    except (disk.DamagedError, EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
        store.remove(key, f"it cannot be run: {error}", disk.PROGRAM)
        return None


def _aval(extended: Mapping[str, Any], shape: tuple[int, ...], dtype: str, weak_type: bool) -> Any:
    return runtime.ShapedArray(shape, extended.get(dtype) or dtypes.as_dtype(dtype), weak_type)


class _Reader(ProgramReader):
    """Reads a program whose kernels are on disk."""

    def __init__(self, store: disk.DiskCache, avals: list[Any], keys: list[bytes]) -> None:
        self.loaded = 0
        super().__init__(avals, [self._kernel(store, key) for key in keys])

    def _kernel(self, store: disk.DiskCache, key: bytes) -> Any:
        machine = target.host()
        found = cache.BUILDER.find(key, machine)
        if found is None:
            found = cache.BUILDER.load(key, store, machine)
            self.loaded += 1
        if found is None:
            raise disk.DamagedError("a kernel is missing")
        return found.kernel

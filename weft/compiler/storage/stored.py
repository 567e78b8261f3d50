"""Programs on disk: a compiled program as plain data, from which a later process builds the executable directly.

A program is found by what it was compiled from: the digest of its jaxpr, donated arguments, and all else that a
compilation reads (``Context.text``). Out: an entry of the cache on disk (``disk``) with the instructions for the
runtime, in which types and kernels are indices; kernels are separate entries. A program that runs Python, or has large
constants or kernels that are not on disk, is not stored. An invalid entry, or one with a missing kernel, is a miss and
is removed.

Writing takes a third of a millisecond, and starting a thread up to half of one: the call that made the program does not
wait for it. A background thread writes a moment later, or else the process does at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import marshal
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import config, dtypes, runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple
from weft.compiler.context import Context
from weft.compiler.plans import link
from weft.compiler.plans.instructions import INSTRUCTIONS, OUTPUTS, Callback, Exchange, Gemm, Guard, Instruction
from weft.compiler.storage import cache, disk, stored_families
from weft.compiler.storage.read_program import ProgramReader
from weft.core.caches import plain_values
from weft.core.caches.cache_keys import disk_key
from weft.core.caches.fingerprint import fingerprint, holds_everywhere
from weft.core.caches.plain_values import NotPlainError
from weft.core.programs.jaxpr import ClosedJaxpr

if TYPE_CHECKING:
    from weft.compiler.pipeline import Program

_MOST_CONSTANT_BYTES = 1 << 20
_DELAY_S = 0.1  # between two checks for programs to write
_IDLE_ROUNDS = 20  # delays without work after which the thread sleeps; waking it takes 50 to 90 us
_STAY_S = 30.0  # sleeping time after which the thread ends
_waiting: deque[tuple[disk.Request, Program]] = deque()
_asleep: Any = None  # lock of the writing thread: held while the thread sleeps
_lock = forks.held("programs")


def _in_child() -> None:
    """In a child: it has no such thread, and leaves waiting programs to its parent."""
    global _asleep
    _asleep = None
    _waiting.clear()


forks.in_child(_in_child)


class Loaded(NamedTuple):
    """A program from disk; ``executable`` takes ``consts`` and then the arguments."""

    executable: Any
    consts: tuple[Any, ...]
    kernels_loaded: int
    kernels_reused: int  # shared with other programs from disk
    nbytes: int  # bytes of its entry


_refused = _paused = False


def refuse() -> None:
    """Use no programs from disk in this process any more: it has changed what operations of weft's mean."""
    global _refused
    _refused = True


def pause(paused: bool) -> None:
    """Whether programs on disk are left alone for now, since what they consist of is asked for."""
    global _paused
    _paused = paused


def request(
    closed: ClosedJaxpr, donated: tuple[bool, ...], copied: frozenset[int], within: Context, like: str | None
) -> disk.Request | None:
    """Where the program of a jaxpr lies on disk, or will; None if it is not to be kept there.

    ``like``: the text that the program shares with those that are like it (``Like.text``).
    """
    if closed.consts or _refused or _paused or not config.read("cache_programs"):
        return None
    digest, words = fingerprint(closed), within.text
    if words is None or not holds_everywhere(digest):
        return None
    store = disk.current()
    if store is None:
        return None

    def of(level: str, what: str) -> bytes:
        text = f"{what} {donated} {sorted(copied)} {words}".encode()
        return disk_key(level, within.target.key, text, store.version)

    family = None if like is None else disk.Request(store, of("family", like), within.target)
    return disk.Request(store, of("program", digest), within.target, family)


# -- writing ----------------------------------------------------------------------------------------------------------


def keep(wanted: disk.Request, program: Program) -> None:
    """Queue a program to be stored."""
    if not wanted.store.writable:
        return
    _waiting.append((wanted, program))
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
            wanted, program = _waiting.popleft()
            try:
                _write(wanted, program)
            except Exception as error:  # the program still works, and others are waiting
                lazy.logger().warning("kernel cache: the program %s could not be kept: %r", program.name, error)


def _write(wanted: disk.Request, program: Program) -> None:
    writer = ProgramWriter()
    try:
        if wanted.family is not None and program.sized is not None:
            stored_families.write(wanted.family, program.sized)
            return
    except NotPlainError as reason:
        lazy.debug("kernel cache: the program %s is kept for its sizes only: %s", program.name, reason)
    try:
        made, consts = writer.program(program), writer.consts(program.consts)
        data = writer.content(made, consts, [writer.aval(aval) for aval in program.out_avals])
    except NotPlainError as reason:
        lazy.debug("kernel cache: the program %s is not kept: %s", program.name, reason)
        return
    wanted.store.store(wanted.key, "program", data, disk.PROGRAM)


class ProgramWriter:
    """Numbers for the types and the kernels of a program and of those that it runs."""

    def __init__(self) -> None:
        self.avals: dict[Any, int] = {}
        self.kernels: dict[Any, int] = {}
        self.most_constant_bytes: float = _MOST_CONSTANT_BYTES

    def content(self, program: Any, consts: Any, facts: Any) -> bytes:
        """What a file has of a program: the types and kernels of its numbers, then itself and facts about it."""
        content = list(map(plain_values.aval, self.avals)), list(self.kernels), program, consts, facts
        data = plain_values.text(content)
        if marshal.loads(data) != content:
            raise NotPlainError("it has values of other types")
        return data

    def aval(self, aval: Any) -> int:
        return self.avals.setdefault(aval, len(self.avals))

    def program(self, program: Program) -> tuple[Any, ...]:
        planned = program.plan
        kernels = [_with_number(entry, self.kernel(entry)) for entry in program.compiled]
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
            raise NotPlainError("it has a kernel that is not on disk")
        return self.kernels.setdefault(entry.key, len(self.kernels))

    def consts(self, consts: Sequence[Any]) -> list[tuple[int, bytes]]:
        if sum(const.nbytes for const in consts) > self.most_constant_bytes:
            raise NotPlainError("its constants are large")
        if any(dtypes.is_extended(const.dtype) for const in consts):
            raise NotPlainError("a constant is an array of keys")
        return [(self.aval(const.aval), np.asarray(const).tobytes()) for const in consts]


def _with_number(entry: cache.Compiled, number: int) -> cache.Compiled:
    """A kernel with its number instead of the machine code."""
    numbered = copy.copy(entry)
    numbered.kernel = number
    return numbered


def _numbered(entry: Instruction) -> tuple[Any, ...]:
    """An instruction as plain data: the number of its class, and its fields."""
    if isinstance(entry, Callback | Guard):
        raise NotPlainError("it calls Python")
    if isinstance(entry, Exchange):
        raise NotPlainError("it exchanges messages with other processes")
    if isinstance(entry, Gemm) and entry.epilogue is not None:
        entry = entry._replace(epilogue=_numbered(entry.epilogue))
    return (INSTRUCTIONS.index(type(entry)), *entry)


# -- reading ----------------------------------------------------------------------------------------------------------


def find(wanted: disk.Request, closed: ClosedJaxpr) -> tuple[Loaded, tuple[Any, ...]] | None:
    """The program of a request and the types of its results, or None."""
    store = wanted.store
    entry = store.load(wanted.key, disk.PROGRAM)
    if entry is None:
        return None
    extended = {v.aval.dtype.name: v.aval.dtype for v in closed.jaxpr.invars if dtypes.is_extended(v.aval.dtype)}
    try:
        avals, kernels, program, consts, out_avals = marshal.loads(entry.bytes)
        reader = _Reader(wanted, [_aval(extended, *described) for described in avals], kernels)
        reused = len(kernels) - reader.loaded
        loaded = Loaded(reader.program(*program), reader.consts(consts), reader.loaded, reused, len(entry.bytes))
        return loaded, tuple([reader.avals[number] for number in out_avals])
    except (disk.DamagedError, EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
        store.remove(wanted.key, f"it cannot be run: {error}", disk.PROGRAM)
        return None


def _aval(extended: Mapping[str, Any], shape: tuple[int, ...], dtype: str, weak_type: bool) -> Any:
    return runtime.ShapedArray(shape, extended.get(dtype) or dtypes.as_dtype(dtype), weak_type)


class _Reader(ProgramReader):
    """Reads a program whose kernels are on disk."""

    def __init__(self, wanted: disk.Request, avals: list[Any], keys: list[bytes]) -> None:
        self.loaded = 0
        super().__init__(avals, [self._kernel(wanted, key) for key in keys])

    def _kernel(self, wanted: disk.Request, key: bytes) -> Any:
        found = cache.BUILDER.load(key, wanted.store, wanted.target)
        if found is None:
            raise disk.DamagedError("a kernel is missing")
        self.loaded += not found.reuses
        return found.kernel

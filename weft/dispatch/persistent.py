"""Looks up a call's program on disk, where an earlier process may have stored it, to avoid tracing.

In: the identity of a function, and one call of it. Out: a ``Request``. Its text is the same in every process that makes
this call under these options. It covers all that the program depends on except the machine and weft's version, which
``compiler.stored`` adds. A short function that this process has already traced at other sizes is not looked up, since
making its program takes no longer. For each code object only the first calls are looked up and stored, since thousands
of functions or shapes would fill the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from weft import config, dtypes
from weft.core.budget import BUDGET
from weft.dispatch import portable
from weft.dispatch.identity import Identity, Refusal

MOST_REQUESTS = 16  # of the functions of one code object
MOST_CAPTURED_BYTES = 1 << 20  # takes a millisecond to read
# options that need a trace: they show stages or check while tracing
_TRACED = (
    "check",
    "check_tracer_leaks",
    "checks",
    "debug_infs",
    "debug_key_reuse",
    "debug_nans",
    "dump",
    "enable_checks",
    "show",
    "skip",
)
_known: tuple[int | None, bool] = (None, False)  # version of the options, whether they allow programs from disk
_asked: dict[int, tuple[CodeType, int]] = {}  # number of requests, by the id of the code object
_ASKED_LIMIT = 4096
_hooks: dict[str, Callable[..., Any]] = {}
_refused = False
_paused = False


class Request:
    """One call, with the Arrays that it captures and the extended dtypes of its arguments by name."""

    __slots__ = ("_call", "_text", "_who", "avals", "captured")

    def __init__(self, who: Identity, avals: tuple[Any, ...], call: tuple[Any, ...]) -> None:
        self._who, self.avals, self._call = who, avals, call
        self.captured = tuple(who.arrays.values())
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        """The call as portable text, made at its first use. Refusal if it has none."""
        if self._text is None:
            in_tree, options, values = self._call
            call = portable.tree(in_tree), tuple([portable.aval(aval) for aval in self.avals]), options, values
            self._text = portable.text((portable.function(self._who), call))
        return self._text

    @property
    def extended(self) -> dict[str, Any]:
        return {aval.dtype.name: aval.dtype for aval in self.avals if dtypes.is_extended(aval.dtype)}


def install(find: Callable[..., Any], keep: Callable[..., Any]) -> None:
    """Set the functions that read and write programs on disk. ``weft/__init__`` does so, with ``compiler.stored``."""
    _hooks.update(find=find, keep=keep)


def refuse() -> None:
    """Use no programs from disk in this process any more: it has changed what operations of weft's mean."""
    global _refused
    _refused = True


def pause(paused: bool) -> None:
    """Whether programs on disk are left alone for now, since what they consist of is asked for."""
    global _paused
    _paused = paused


def usable() -> bool:
    """Whether programs may come from disk under the options of this thread."""
    global _known
    if _refused or _paused:
        return False
    version = config.version()
    if version is None or version != _known[0]:
        _known = version, _options_allow()
    return _known[1]


def _options_allow() -> bool:
    read = config.read
    wanted = read("cache") and read("cache_programs") and read("share_equal_functions")
    return wanted and read("numpy_rank_promotion") != "warn" and not any(map(read, _TRACED))


def request(who: Identity, in_tree: Any, avals: tuple[Any, ...], options: tuple[Any, ...]) -> Request | None:
    """The request of a call; ``options`` are plain values (which arguments are static, which leaves donated)."""
    if sum([array.nbytes for array in who.arrays.values()]) > MOST_CAPTURED_BYTES or not _may_ask(who):
        return None
    wanted = Request(who, avals, (in_tree, options, config.key_values()))
    # now, since Arrays may be deleted before the text is written
    return wanted if not wanted.captured or _has_text(wanted) else None


def _has_text(wanted: Request) -> bool:
    try:
        return bool(wanted.text)
    except Refusal:
        return False


def _may_ask(who: Identity) -> bool:
    code = next((code for code in who.codes if isinstance(code, CodeType)), None)
    if code is None:
        return True  # a function of a library
    if len(_asked) >= _ASKED_LIMIT:
        _asked.clear()
    count = _asked.get(id(code), (code, 0))[1]
    _asked[id(code)] = code, count + 1
    return count < MOST_REQUESTS


def find(wanted: Request, build: Callable[..., Any]) -> Any:
    """The result of ``build(program, out_avals, out_tree, kept)`` for the program on disk; None if there is none."""
    if not _has_text(wanted):
        return None

    def read(program: Any, out_avals: Any, facts: tuple[bytes, tuple[int, ...]]) -> Any:
        return build(program, out_avals, portable.read_tree(facts[0]), facts[1])

    return _hooks["find"](wanted, read)


def keep(wanted: Request, trace: Any, compiled: Any) -> None:
    """Store the program of a trace without effects, if everything about it can be written as plain values.

    One made from a like program is not stored: to load it would take longer than to make it again.
    """
    if not trace.closed.effects and compiled.program.is_whole:
        _hooks["keep"](wanted, compiled.program, compiled.consts, trace.out_avals, (trace.out_tree, compiled.kept))


def forget() -> None:
    """Let every function ask again (``weft.clear_caches``)."""
    _asked.clear()


BUDGET.enlist(_asked.__len__, 150, forget)

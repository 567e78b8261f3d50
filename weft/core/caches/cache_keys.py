"""The keys of the caches: an earlier result is used again only if its key is the same.

    level     key                                                       value                      a miss costs
    dispatch  (native) types, structure, static values, config          a program to run           3 to 10 us of Python
    trace     TraceKey: function, structure, types, statics, config     a jaxpr, what calls it     running the function
    program   ProgramKey: fingerprint of the jaxpr, donation, context   plan and kernels           0.5 to 1.8 ms
    kernel    KernelKey: loop nest without its sizes, target            machine code               LLVM, 2 to 5 ms

On disk there are programs and kernels (which save LLVM), under a digest of the same facts in a form that all processes
share (``disk_key``). ``core.caches.store`` holds the levels from trace to kernel; the dispatch tables are native
(``runtime/src/calls/jit.cpp``), one for each jitted function. ``core.caches.budget`` counts all of them.

Keys are tuples. They are made by ``tuple.__new__``, in a third of the time that the class takes, or as plain tuples
where even that is too slow (``calls.replay``).
"""

from __future__ import annotations

from typing import Any

from weft._base import lazy
from weft._base.record import NamedTuple


class TraceKey(NamedTuple):
    """What a trace was made from.

    ``who`` is the record of a function object (``trace_cache.FunctionRecord``), whose contents are not compared, or a
    compound primitive, which is traced as simpler ones. For a call that is recorded in another program
    (``calls.replay``), ``types`` holds scalars by value, and ``in_tree`` is a number that stands for the options of
    the jitted function.
    """

    who: Any
    in_tree: Any
    types: tuple[Any, ...]
    statics: tuple[Any, ...]
    token: int  # config.token()


class ProgramKey(NamedTuple):
    """What a program was compiled from: the fingerprint of a jaxpr, or one eager operation.

    For an operation: (primitive, types of its operands, parameters); the only option that counts is that for 64-bit
    types.
    """

    what: Any
    donated: tuple[bool, ...]
    within: Any  # ``compiler.context.Context.key``: all else that a compilation reads


class KernelKey(NamedTuple):
    """What machine code was made from: a loop nest, or its digest if a program from disk refers to it."""

    what: Any
    target: str


def trace_key(who: Any, in_tree: Any, types: tuple[Any, ...], statics: tuple[Any, ...], token: int) -> TraceKey:
    return tuple.__new__(TraceKey, (who, in_tree, types, statics, token))


def program_key(what: Any, donated: tuple[bool, ...], within: Any) -> ProgramKey:
    return tuple.__new__(ProgramKey, (what, donated, within))


def kernel_key(what: Any, target: str) -> KernelKey:
    return tuple.__new__(KernelKey, (what, target))


def disk_key(level: str, target: str, text: bytes, version: bytes) -> bytes:
    """The name of an entry on disk: a digest of the level, the target, the text and the version of the compiler."""
    words = f"{level}\n{target}\n".encode()
    return lazy.hashlib.blake2b(words + text, digest_size=32, key=version).digest()

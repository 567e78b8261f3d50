"""WEFT_COMPILE=isolated: LLVM runs in a child process, so that a crash of LLVM is an error and not the end of this one.

The child runs ``serve``: it reads (text, target, name) and answers (True, object) or (False, message or
OutOfMemoryError), pickled, until its input ends. It is started at the first use and again after a crash.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys

from weft import errors
from weft._base import forks
from weft._base.target import Target
from weft.codegen import llvm

_lock = forks.held("isolated llvm")
_child: tuple[int, subprocess.Popen[bytes]] | None = None  # the process that started it, and the child


def emit_object(text: str, target: Target, name: str) -> bytes:
    """As ``llvm.emit_object``, in the child."""
    with _lock:
        child = _running()
        assert child.stdin is not None and child.stdout is not None
        try:
            pickle.dump((text, target, name), child.stdin)
            child.stdin.flush()
            good, answer = pickle.load(child.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            _stop()
            message = f"[codegen] LLVM died on kernel {name}"
            raise errors.InternalError(message, stage="llvm", dump=llvm.dump(text)) from error
    if isinstance(answer, errors.OutOfMemoryError):
        raise answer
    if not good:
        message = f"[codegen] kernel {name} is not valid LLVM: {answer}"
        raise errors.InternalError(message, stage="llvm", dump=llvm.dump(text))
    return answer


def _running() -> subprocess.Popen[bytes]:
    global _child
    if _child is None or _child[0] != os.getpid() or _child[1].poll() is not None:
        first = _child is None
        _stop()
        process = subprocess.Popen(
            [sys.executable, "-c", "from weft.codegen import isolate; isolate.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, not for the child
        )
        if first:
            atexit.register(_stop)
        _child = os.getpid(), process
    return _child[1]


def _stop() -> None:
    global _child
    if _child is not None and _child[0] == os.getpid():
        process = _child[1]
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        process.kill()
        process.wait()
    _child = None


def serve() -> None:
    """The main loop of the child."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            text, target, name = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = True, llvm.emit_object(text, target, name)
        except errors.OutOfMemoryError as error:
            answer = False, error
        except errors.InternalError as error:
            os.unlink(error.dump)
            answer = False, str(error.__cause__)
        pickle.dump(answer, answers)
        answers.flush()

"""Compiles kernels in parallel: one thread writes their texts, LLVM runs in several threads.

Writing texts needs Python, LLVM runs without the GIL. The result does not depend on which thread compiled what; if
there are several errors, that of the first kernel is raised. An interrupt ends the work after the kernels that LLVM is
compiling.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


class SideBySide(Generic[Work, Result]):
    """``finish(prepare(item))`` of every item, the largest first; ``prepare`` runs on the calling thread alone."""

    def __init__(self, finish: Callable[[Work], Result], done: Callable[[int, Result], None]) -> None:
        self._finish = finish
        self._done = done  # called on the calling thread with the number of an item and its result
        self._lock = threading.RLock()  # entered directly: an interrupt in Condition.__enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._waiting: list[tuple[int, int, Work]] = []  # size, number, work
        self._results: list[tuple[int, Result]] = []
        self._errors: dict[int, BaseException] = {}
        self._closed = False  # no more items will be added

    def run(self, prepare: Sequence[Callable[[], tuple[int, Work]]], n_threads: int) -> None:
        """Do all items; each function in ``prepare`` returns a size and the work to finish."""
        n_helpers = min(n_threads, len(prepare)) - 1
        if n_helpers == 0:
            for number, item in enumerate(prepare):
                self._done(number, self._finish(item()[1]))
            return
        started: list[threading.Thread] = []
        try:
            for number, item in enumerate(prepare):
                size, work = item()
                with self._lock:
                    self._waiting.append((size, number, work))
                    self._changed.notify()
                if len(started) < n_helpers:
                    self._start(started)
                time.sleep(0)  # let a helper that has finished its kernel take the next one
            with self._lock:
                self._closed = True
                self._changed.notify_all()
            while (taken := self._take()) is not None:
                self._work(*taken)
                self._report()
        finally:
            with self._lock:
                self._closed = True
                self._waiting.clear()
                self._changed.notify_all()
            for helper in started:
                with contextlib.suppress(RuntimeError):  # it was never started
                    helper.join()
            self._report()
        if self._errors:
            raise self._errors[min(self._errors)]

    def _start(self, started: list[threading.Thread]) -> None:
        helper = threading.Thread(target=self._help, name="weft-compile")
        started.append(helper)  # before it starts: an interrupt may come right after
        with contextlib.suppress(RuntimeError):  # no thread can be started: limits, or the interpreter is ending
            helper.start()

    def _take(self) -> tuple[int, Work] | None:
        """The largest waiting item; None if nothing is left and nothing will be added."""
        with self._lock:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting or self._errors:
                return None
            largest = max(self._waiting, key=lambda entry: (entry[0], -entry[1]))
            self._waiting.remove(largest)
            return largest[1], largest[2]

    def _work(self, number: int, work: Work) -> None:
        try:
            result = self._finish(work)
        except Exception as error:
            with self._lock:
                self._errors[number] = error
        else:
            with self._lock:
                self._results.append((number, result))

    def _help(self) -> None:
        while (taken := self._take()) is not None:
            self._work(*taken)

    def _report(self) -> None:
        """Report finished items."""
        with self._lock:
            results, self._results = self._results, []
        for number, result in sorted(results, key=lambda entry: entry[0]):
            self._done(number, result)

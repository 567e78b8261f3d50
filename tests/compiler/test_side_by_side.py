"""Kernels of one program are compiled by several threads: the same code, the same errors, nothing left behind."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.codegen.running import HOST, elementwise, map_nest
from weft import codegen, config, errors
from weft._base import forks
from weft.codegen import llvm
from weft.compiler.side_by_side import SideBySide
from weft.compiler.storage.cache import Builder
from weft.core.caches.store import Store

F32 = np.dtype(np.float32)


@functools.cache
def _nest(n: int) -> Any:
    """A nest of its own for every number: n + 1 additions."""

    def add(emit: Any, x: Any) -> Any:
        for _ in range(n + 1):
            x = emit.add(x, x)
        return x

    return map_nest(elementwise(add), [F32], F32)


@pytest.fixture(autouse=True)
def _several_threads() -> Iterator[None]:
    with config.context("cache", False), weft.threads(4):
        yield


def _objects(nests: list[Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The object of each text that is compiled."""
    made: dict[str, bytes] = {}
    compile_text = codegen.compile_text

    def recording(text: str, *args: Any) -> Any:
        found = compile_text(text, *args)
        made[text] = found.bytes
        return found

    with monkeypatch.context() as patch:
        patch.setattr(codegen, "compile_text", recording)
        assert Builder(Store()).compile(nests, HOST).built == len(nests)
    return made


def test_the_code_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    nests = [_nest(n) for n in range(9)]
    many = _objects(nests, monkeypatch)
    with weft.threads(1):
        one = _objects(nests, monkeypatch)
    assert many == one
    assert len(many) == 9


def test_answers_are_in_the_order_of_the_nests() -> None:
    nests = [_nest(n) for n in (5, 0, 3, 0, 8)]
    cache = Builder(Store())
    assert cache.compile([_nest(3)], HOST).built == 1
    answer = cache.compile(nests, HOST)
    assert [entry.nest for entry in answer.compiled] == nests
    assert answer.built == 3
    assert cache.built == 4


def test_of_several_errors_the_first_kernels_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {codegen.text_of(_nest(n), HOST): n for n in range(6)}
    compile_text = codegen.compile_text

    def failing(text: str, *args: Any) -> Any:
        if texts[text] in (2, 4):
            time.sleep(0.05 * (4 - texts[text]))  # the later one fails first
            raise errors.InternalError(f"kernel {texts[text]}", stage="llvm")
        return compile_text(text, *args)

    cache = Builder(Store())
    with monkeypatch.context() as patch:
        patch.setattr(codegen, "compile_text", failing)
        with pytest.raises(errors.InternalError, match=r"kernel [24]"):
            cache.compile([_nest(n) for n in range(6)], HOST)
    assert not cache._being_built
    built = len(cache.store)
    assert built < 6
    assert cache.compile([_nest(n) for n in range(6)], HOST).built == 6 - built


def test_an_interrupt_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is raised on the calling thread; the helper ends with the kernel that it is at."""
    compile_text = codegen.compile_text
    interrupted = threading.Event()

    def slow(*args: Any) -> Any:
        if not interrupted.is_set():
            interrupted.set()
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return compile_text(*args)

    cache = Builder(Store())
    with monkeypatch.context() as patch:
        patch.setattr(codegen, "compile_text", slow)
        with pytest.raises(KeyboardInterrupt):
            cache.compile([_nest(n) for n in range(40)], HOST)
    assert not [thread for thread in threading.enumerate() if thread.name == "weft-compile"]
    assert not cache._being_built
    assert len(cache.store) < 40
    assert cache.compile([_nest(0), _nest(1)], HOST).compiled


def test_threads_that_need_the_same_kernels_build_each_once() -> None:
    cache, barrier = Builder(Store()), threading.Barrier(6)
    answers: list[Any] = []

    def ask(first: int) -> None:
        barrier.wait()
        answers.append(cache.compile([_nest(n % 5) for n in range(first, first + 5)], HOST))

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.built == 5
    assert sum(answer.built for answer in answers) == 5
    assert all(len(answer.compiled) == 5 for answer in answers)


def test_a_waiting_thread_builds_what_another_failed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, compile_text = Builder(Store()), codegen.compile_text
    began, waiting = threading.Event(), threading.Event()

    def failing(*args: Any) -> Any:
        if not began.is_set():
            began.set()
            waiting.wait(5)
            time.sleep(0.05)
            raise errors.InternalError("no", stage="llvm")
        return compile_text(*args)

    monkeypatch.setattr(codegen, "compile_text", failing)
    refused: list[BaseException] = []

    def first() -> None:
        try:
            cache.compile([_nest(0)], HOST)
        except errors.InternalError as error:
            refused.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    began.wait()
    waiting.set()
    assert cache.compile([_nest(0)], HOST).built == 1
    thread.join()
    assert len(refused) == 1


def test_a_signal_handler_builds_the_kernel_in_whose_building_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, compile_text = Builder(Store()), codegen.compile_text
    within: list[Any] = []

    def interrupted(*args: Any) -> Any:
        if not within:
            within.append(None)
            within[0] = cache.compile([_nest(0), _nest(1)], HOST)
        return compile_text(*args)

    monkeypatch.setattr(codegen, "compile_text", interrupted)
    with weft.threads(1):
        outer = cache.compile([_nest(0)], HOST)
    assert within[0].built == 2 and outer.built == 1
    assert len(cache.store) == 2 and not cache._being_built
    entries = [cache.compile([_nest(n)], HOST).compiled[0] for n in (0, 1)]
    assert cache.store.nbytes == sum(entry.weight for entry in entries)


def test_a_signal_handler_may_fork_in_the_middle_of_a_compilation() -> None:
    with llvm._held_compiler():
        forks._before()  # as before a fork: this thread's own locks are no reason to wait
        held = len(forks._taken)
        forks._release()
    assert held > llvm.COMPILERS and not forks._taken


def test_without_threads_the_calling_one_does_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[tuple[int, int]] = []
    work = SideBySide[int, int](lambda n: n * n, lambda number, result: done.append((number, result)))
    work.run([lambda n=n: (n, n) for n in range(4)], 3)
    assert sorted(done) == [(0, 0), (1, 1), (2, 4), (3, 9)]
    assert [number for number, _ in done] == [3, 2, 1, 0]  # the largest first


def test_a_forked_child_compiles_what_its_parent_was_at() -> None:
    """The child has no thread that would end the parent's work: it builds for itself."""
    cache = Builder(Store())
    mine, _ = cache._claim([_nest(0)], HOST)
    assert len(mine) == 1
    cache.forget_other_threads()
    assert cache.compile([_nest(0)], HOST).built == 1

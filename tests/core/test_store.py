"""The levels of the cache: what is found by its key, under how many keys, and what the counts of each level say."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import compiler, lax
from weft.compiler.pipeline import Program
from weft.core.caches.cache_keys import KernelKey, ProgramKey, TraceKey, disk_key
from weft.core.caches.store import KERNELS, PROGRAMS, TRACES, Entry, Store
from weft.dispatch.calls import replay


class Value(Entry):
    """Something to keep, which notes when it is found no longer."""

    weight = 100
    users: int

    def __init__(self) -> None:
        self.keys = {}
        self.retired = 0

    def retire(self) -> None:
        self.retired += 1


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    before = weft.config.read("cache_bytes")
    weft.clear_caches()
    yield
    weft.config.update("cache_bytes", before)


def test_a_value_is_found_under_each_of_its_keys_and_counts_once() -> None:
    store, value = Store(), Value()
    store.add("a", value)
    store.add("b", value)
    assert store.find("a") is store.find("b") is value and store.find("c") is None
    assert (len(store), store.nbytes, store.found, store.made) == (1, 100, 2, 1)
    store.remove("a")
    assert store.find("a") is None and store.find("b") is value and not value.retired
    store.remove("b")
    assert value.retired == 1 and not value.keys and not len(store)


def test_values_released_by_many_threads_at_once_leave_no_error() -> None:
    store, failures = Store(), []

    def release() -> None:
        try:
            for _ in range(4000):
                value = Value()
                value.users = 0
                store.release(value, most=0)
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures


def test_a_value_that_is_replaced_is_retired_with_its_last_key() -> None:
    store, first, second = Store(), Value(), Value()
    store.add("a", first)
    store.add("b", first)
    store.add("a", second)
    assert store.find("a") is second and store.find("b") is first and not first.retired
    store.add("b", second)
    assert first.retired == 1 and len(store) == 1


def test_dropping_takes_a_value_out_under_all_keys() -> None:
    store, value, other = Store(), Value(), Value()
    for key in "abc":
        store.add(key, value)
    store.add("c", other)
    store.drop(value)
    assert list(store.entries) == ["c"] and value.retired == 1 and store.dropped == 1


def test_the_budget_drops_what_a_store_keeps() -> None:
    store = Store()
    weft.config.update("cache_bytes", 1)
    value = Value()
    store.add("a", value)
    assert not store.entries and value.retired == 1


def test_clearing_some_keys() -> None:
    store, values = Store(), [Value() for _ in range(4)]
    for number, value in enumerate(values):
        store.add(number, value)
    store.clear(lambda key: key % 2 == 0)
    assert list(store.entries) == [1, 3] and [value.retired for value in values] == [1, 0, 1, 0]


def test_a_store_keeps_no_value_that_was_removed_alive() -> None:
    store, value = Store(), Value()
    store.add("a", value)
    reference = weakref.ref(value)
    store.remove("a")
    del value
    gc.collect()
    assert reference() is None


def test_every_key_is_of_its_level() -> None:
    x = wnp.arange(3.0)
    f = weft.jit(lambda x: wnp.log1p(wnp.where(x > 1, x, 2.0)) * 3)
    for _ in range(2):
        f(x)
    wnp.cumsum(x), lax.fori_loop(0, 3, lambda i, c: c * 2.0, x)
    for store, kind in ((TRACES, TraceKey), (PROGRAMS, ProgramKey), (KERNELS, KernelKey)):
        assert store.entries
        assert {len(key) for key in store.entries} == {len(kind._fields)}
        assert all(type(key) in (kind, tuple) for key in store.entries)


def test_an_eager_operation_and_its_jaxpr_are_one_program() -> None:
    x = np.float32(2)
    lax.tan_p.bind(wnp.asarray(x))
    keys = len(PROGRAMS.entries)
    programs = [value for value in PROGRAMS.entries.values() if isinstance(value, Program)]
    assert len(programs) == 2 and programs[0] is programs[1]
    assert keys == 3  # and the family, which gives the program at other sizes
    lax.tan_p.bind(wnp.asarray(x))
    assert len(PROGRAMS.entries) == keys and PROGRAMS.made >= 1


def test_calls_under_a_trace_are_entries_of_the_trace_level_and_die_with_their_function() -> None:
    def scope() -> int:
        inner = weft.jit(lambda x: wnp.sin(x) * 2)
        for _ in range(4):
            weft.make_jaxpr(lambda x: inner(inner(x)))(np.ones(3, np.float32))
        record = inner._state.record()
        return sum(type(TRACES.entries[key]) is replay.Template for key in record.keys)

    assert scope() == 1
    gc.collect()
    names = {getattr(key[0]() if isinstance(key[0], weakref.ref) else None, "__name__", "") for key in TRACES.entries}
    assert "<lambda>" not in names


def test_what_is_not_hashable_is_not_kept() -> None:
    x = wnp.arange(4.0)
    before = len(PROGRAMS.entries)
    out = lax.slice_p.bind(x, start_indices=[1], limit_indices=[3], strides=None)
    np.testing.assert_array_equal(out, [1, 2])
    assert len(PROGRAMS.entries) == before + 2  # by the fingerprint alone, and the family of those like it


def test_counts_of_every_level() -> None:
    x = wnp.arange(5.0)
    before = compiler.stats()["levels"]
    f = weft.jit(lambda x: wnp.expm1(x) * 0.75)
    for _ in range(3):
        f(x)
    g = weft.jit(lambda x: wnp.expm1(x) * 0.75)
    g(x)  # another function, an equal program
    now = compiler.stats()["levels"]
    assert list(now) == ["dispatch", "trace", "program", "kernel"]
    more = {name: {field: getattr(now[name], field) - getattr(before[name], field) for field in now[name]._fields}
            for name in now}  # fmt: skip
    assert (more["dispatch"]["entries"], more["dispatch"]["made"]) == (2, 2)
    assert more["dispatch"]["found"] == 2
    assert (more["program"]["made"], more["kernel"]["made"]) == (2, 1)  # a program, and the family of those like it
    assert all(level.nbytes > 0 for level in now.values())
    f.clear_cache()
    assert compiler.stats()["levels"]["dispatch"].entries == now["dispatch"].entries - 1
    assert g.cache_info().traces == 1


def test_keys_on_disk_tell_level_target_text_and_version_apart() -> None:
    given = [("program", "v3", b"x", b"1"), ("kernel", "v3", b"x", b"1"), ("kernel", "v4", b"x", b"1"),
             ("kernel", "v4", b"y", b"1"), ("kernel", "v4", b"y", b"2")]  # fmt: skip
    keys = {disk_key(*parts) for parts in given}
    assert len(keys) == len(given) and {len(key) for key in keys} == {32}

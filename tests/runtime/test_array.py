"""ShapedArray, Array and the allocator: identity, life, views out and in, limits, and bad input."""

from __future__ import annotations

import copy
import gc
import os
import pathlib
import pickle
import re
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.held_memory import native_bytes, python_blocks
from weft import runtime

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
]
SMALL_FLOATS_AND_INT4 = DTYPES[14:]


def aval_of(ndarray: np.ndarray) -> runtime.ShapedArray:
    return runtime.ShapedArray(ndarray.shape, ndarray.dtype)


def array_of(values: Any, dtype: Any = None) -> runtime.Array:
    ndarray = np.asarray(values, dtype)
    return runtime.array_from_numpy(ndarray, aval_of(ndarray))


def fresh_process(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# ---- ShapedArray ----


def test_equal_avals_are_identical() -> None:
    aval = runtime.ShapedArray((3, 4), np.float32)
    assert aval is runtime.ShapedArray([3, 4], "float32")
    assert aval is runtime.ShapedArray((np.int64(3), 4), np.dtype(">f4"))
    assert aval is not runtime.ShapedArray((3, 4), np.float32, weak_type=True)
    assert aval is not runtime.ShapedArray((4, 3), np.float32)
    assert aval.update(weak_type=True).strip_weak_type() is aval
    assert aval.update(shape=(2,), dtype=np.int8) is runtime.ShapedArray((2,), np.int8)
    assert pickle.loads(pickle.dumps(aval)) is aval
    assert copy.deepcopy(aval) is aval
    assert runtime.ShapedArray((), np.longlong) is runtime.ShapedArray((), np.int64)


def test_aval_attributes_and_text() -> None:
    aval = runtime.ShapedArray((3, 4), np.float32, weak_type=True)
    assert (aval.shape, aval.dtype, aval.ndim, aval.size, aval.nbytes) == ((3, 4), np.dtype("float32"), 2, 12, 48)
    assert aval.weak_type is True
    assert (repr(aval), str(aval)) == ("ShapedArray(float32[3,4], weak_type=True)", "~float32[3,4]")
    assert (aval.str_short(), aval.str_short(short_dtypes=False)) == ("f32[3,4]", "float32[3,4]")
    short = {"bool": "bool", "int8": "i8", "uint64": "u64", "complex64": "c64", "bfloat16": "bf16", "int4": "i4"}
    for name, text in short.items():
        assert runtime.ShapedArray((), np.dtype(name)).str_short() == f"{text}[]"
    assert runtime.ShapedArray((2,), np.dtype([("float0", np.void, 0)])).str_short() == "float0[2]"


def test_huge_avals_have_exact_sizes_and_no_memory() -> None:
    aval = runtime.ShapedArray((2**40, 2**40), np.int16)
    assert (aval.size, aval.nbytes) == (2**80, 2**81)
    assert runtime.ShapedArray((2**62, 2**62, 0), np.int8).nbytes == 0
    huge = np.broadcast_to(np.float64(0), (2**45,))
    with pytest.raises(MemoryError, match=r"\[array\] a copy of host memory, f64\[35184372088832\]: 256\.0 TiB"):
        runtime.array_from_numpy(huge, aval_of(huge))


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        ((-1,), "f4", ValueError),
        ((2.5,), "f4", TypeError),
        ("ab", "f4", TypeError),
        (None, "f4", TypeError),
        ([[1]], "f4", TypeError),
        ((2**64,), "f4", OverflowError),
        ((1,) * 65, "f4", ValueError),
        ((3,), None, TypeError),
        ((3,), object, TypeError),
        ((3,), "S3", TypeError),
        ((3,), "M8[s]", TypeError),
        ((3,), np.longdouble, TypeError),
        ((3,), "T", TypeError),
        ((3,), [("a", "f4")], TypeError),
        ((3,), 7, TypeError),
    ],
)
def test_bad_avals(shape: Any, dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        runtime.ShapedArray(shape, dtype)


def test_bad_aval_updates() -> None:
    aval = runtime.ShapedArray((3,), np.float32)
    with pytest.raises(TypeError):
        aval.update(colour="red")
    with pytest.raises(TypeError):
        aval.update((3,))
    with pytest.raises(AttributeError):
        aval.shape = (4,)


def test_avals_die_with_their_last_holder() -> None:
    aval = runtime.ShapedArray((12345, 7), np.float32)
    reborn: list[runtime.ShapedArray] = []
    watch = weakref.ref(aval, lambda _: reborn.append(runtime.ShapedArray((12345, 7), np.float32)))
    del aval
    assert watch() is None
    assert reborn[0].shape == (12345, 7)


class Key:
    """A stand-in for an extended dtype: physical bytes per element and a name."""

    itemsize = 8
    name = "key<fry>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key)

    def __hash__(self) -> int:
        return 7


def test_extended_dtypes() -> None:
    aval = runtime.ShapedArray((2,), Key())
    assert aval is runtime.ShapedArray((2,), Key())
    assert (aval.str_short(), aval.nbytes) == ("key<fry>[2]", 16)
    words = np.arange(4, dtype=np.uint32).reshape(2, 2)
    keys = runtime.array_from_numpy(words, aval)
    assert np.array_equal(np.asarray(runtime.array_alias(keys, aval_of(words))), words)
    with pytest.raises(TypeError, match="NumPy"):
        np.asarray(keys)
    with pytest.raises(ValueError, match="bytes"):
        runtime.array_from_numpy(words[:1], aval)


# ---- Array: NumPy ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_round_trip(dtype: Any, shape: tuple[int, ...]) -> None:
    ndarray = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    array = runtime.array_from_numpy(ndarray, aval_of(ndarray))
    back = np.asarray(array)
    assert (back.dtype, back.shape) == (ndarray.dtype, shape)
    assert back.tobytes() == ndarray.tobytes()
    assert not back.flags.writeable
    assert not back.flags.owndata
    assert (array.shape, array.dtype, array.ndim, array.size) == (shape, ndarray.dtype, len(shape), ndarray.size)
    assert (array.nbytes, array.itemsize, array.weak_type) == (ndarray.nbytes, ndarray.itemsize, False)
    assert array.unsafe_buffer_pointer() % 64 == 0


def test_any_strides_and_byte_order_come_in() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (base.T, base[::-1, ::2], base[:, 1], base.astype(">f4"), np.broadcast_to(np.float32(3), (2, 5))):
        assert np.array_equal(np.asarray(array_of(view)), view)
    bfloat = base.astype(ml_dtypes.bfloat16).T
    assert np.asarray(array_of(bfloat)).tobytes() == np.ascontiguousarray(bfloat).tobytes()


def test_dunder_array_arguments() -> None:
    array = array_of([1.0, 2.0], np.float32)
    assert array.__array__().base is not None
    assert array.__array__(np.int32).dtype == np.int32
    assert array.__array__(copy=True).flags.writeable
    assert np.array(array, copy=True).flags.writeable
    assert np.asarray(array, copy=False)[1] == 2
    with pytest.raises(ValueError, match="copy"):
        array.__array__(np.int32, copy=False)
    with pytest.raises(TypeError):
        array.__array__("no dtype")
    with pytest.raises(TypeError):
        array.__array__(colour=3)


def test_a_view_outlives_its_array() -> None:
    for view_of in (np.asarray, lambda x: x.__array__(), memoryview, np.from_dlpack):
        array = array_of(np.arange(1000, dtype=np.int64))
        view = view_of(array)
        array.delete()
        del array
        gc.collect()
        others = [array_of(np.full(1000, 7, dtype=np.int64)) for _ in range(50)]
        assert np.array_equal(np.asarray(view), np.arange(1000)), view_of
        del others


def test_holders_are_counted() -> None:
    array = array_of(np.zeros(4, np.float32))
    assert runtime.buffer_references(array) == 1
    alias = runtime.array_alias(array, runtime.ShapedArray((2, 2), np.float32))
    view = np.asarray(array)
    assert runtime.buffer_references(array) == 3
    assert alias.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    del alias, view
    assert runtime.buffer_references(array) == 1
    with pytest.raises(ValueError, match="bytes"):
        runtime.array_alias(array, runtime.ShapedArray((5,), np.float32))


def test_aliasing_numpy_on_request() -> None:
    raw = np.zeros(200, np.uint8)
    start = -raw.ctypes.data % 64
    aligned = raw[start : start + 128].view(np.float32)
    array = runtime.array_from_numpy(aligned, aval_of(aligned), copy=False)
    aligned[3] = 5
    assert np.asarray(array)[3] == 5
    for bad in (raw[start + 1 : start + 65].view(np.float32), aligned[::2], aligned.astype(">f4")):
        with pytest.raises(ValueError, match="copy=False"):
            runtime.array_from_numpy(bad, aval_of(bad), copy=False)
    holders = sys.getrefcount(aligned)
    del array
    assert sys.getrefcount(aligned) == holders - 1


def test_buffer_protocol() -> None:
    array = array_of(np.arange(6, dtype=np.int16).reshape(2, 3))
    view = memoryview(array)
    assert (view.format, view.shape, view.strides, view.readonly) == ("h", (2, 3), (6, 2), True)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert bytes(array_of(np.float32(1))) == np.float32(1).tobytes()
    with pytest.raises(BufferError, match=r"numpy\.asarray"):
        memoryview(array_of(np.zeros(3, ml_dtypes.bfloat16)))
    with pytest.raises(TypeError):
        view[0, 0] = 1
    with open(os.devnull, "rb") as file, pytest.raises((BufferError, TypeError)):
        file.readinto(array)


# ---- Array: life ----


def test_deleted_arrays_raise() -> None:
    array = array_of(np.zeros(3, np.float32))
    assert not array.is_deleted()
    assert array.is_ready()
    assert array.block_until_ready() is array
    array.delete()
    array.delete()
    assert array.is_deleted()
    assert array.shape == (3,)
    uses: list[Callable[[], Any]] = [
        lambda: np.asarray(array),
        lambda: array.__array__(),
        lambda: array.__dlpack__(),
        array.is_ready,
        array.block_until_ready,
        array.unsafe_buffer_pointer,
        lambda: runtime.array_alias(array, array.aval),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"^Array has been deleted with shape=float32\[3\]\. If it was donated"):
            use()
    with pytest.raises(BufferError):
        memoryview(array)


def test_arrays_cannot_be_made_or_hashed() -> None:
    array = array_of(1.0)
    for make in (runtime.Array, lambda: object.__new__(runtime.Array), lambda: type("Sub", (runtime.Array,), {})):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(TypeError, match=r"unhashable type: 'weft\.Array'"):
        hash(array)
    with pytest.raises(AttributeError):
        array.colour = "red"
    with pytest.raises(AttributeError):
        array.aval = None


def test_weak_references() -> None:
    array = array_of(1.0)
    dead: list[int] = []
    watch = weakref.ref(array, lambda _: dead.append(1))
    assert watch() is array
    del array
    assert dead == [1]
    assert watch() is None


@pytest.mark.parametrize(
    "call",
    [
        lambda aval: runtime.array_from_numpy([1.0], aval),
        lambda aval: runtime.array_from_numpy(np.zeros(3), aval),
        lambda aval: runtime.array_from_numpy(np.zeros(4, np.float32), aval),
        lambda aval: runtime.array_from_numpy(np.zeros(3, np.float32), "f32[3]"),
        lambda aval: runtime.array_from_numpy(np.array(["a", "b", "c"]), aval),
        lambda aval: runtime.array_alias(aval, aval),
        lambda aval: runtime.array_alias(array_of(1.0), None),
        lambda aval: runtime.buffer_references(aval),
        lambda aval: runtime.array_from_numpy(),
    ],
)
def test_bad_arguments(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(runtime.ShapedArray((3,), np.float32))


# ---- DLPack ----


def test_dlpack_out() -> None:
    array = array_of(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert array.__dlpack_device__() == (1, 0)
    view = np.from_dlpack(array)
    assert view.ctypes.data == array.unsafe_buffer_pointer()
    assert not view.flags.writeable
    assert np.from_dlpack(array, copy=True).flags.writeable
    capsule = array.__dlpack__()
    assert "dltensor" in repr(capsule)
    assert runtime.buffer_references(array) == 3
    del capsule, view
    assert runtime.buffer_references(array) == 1
    with pytest.raises(BufferError):
        array_of(np.zeros(3, ml_dtypes.int4)).__dlpack__()
    with pytest.raises(BufferError, match="device"):
        array.__dlpack__(dl_device=(2, 0))
    for bad in ({"max_version": 3}, {"max_version": ()}, {"dl_device": 5}, {"colour": 1}):
        with pytest.raises((TypeError, IndexError)):
            array.__dlpack__(**bad)


def test_dlpack_copies_an_array_that_another_thread_deletes_meanwhile() -> None:
    array, turn = array_of(np.ones(1 << 25, np.float32)), threading.Lock()

    def drop() -> None:
        with turn:
            array.delete()
            runtime.trim_memory()

    turn.acquire()
    thread = threading.Thread(target=drop)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # the thread runs when the copy lets others run, not before
    try:
        turn.release()
        copied = np.from_dlpack(array, copy=True)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert array.is_deleted()
    assert (copied == 1).all()


def test_dlpack_in() -> None:
    strided = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)[::-1]
    assert np.array_equal(np.asarray(runtime.from_dlpack(strided)), strided)
    raw = np.zeros(200, np.uint8)
    start = -raw.ctypes.data % 64
    aligned = raw[start : start + 64]
    array = runtime.from_dlpack(aligned)
    copied = runtime.from_dlpack(aligned, copy=True)
    aligned[0] = 9
    assert (np.asarray(array)[0], np.asarray(copied)[0]) == (9, 0)
    with pytest.raises(ValueError, match="aligned"):
        runtime.from_dlpack(raw[start + 1 : start + 9], copy=False)
    with pytest.raises(ValueError, match="dense"):
        runtime.from_dlpack(aligned[::2], copy=False)
    for dtype in DTYPES[:14]:
        for shape in ((), (0, 3), (2, 3)):
            values = np.ones(shape, dtype)
            back = np.asarray(runtime.from_dlpack(values))
            assert (back.dtype, back.shape) == (values.dtype, shape)
    bfloat = array_of(np.ones(3, ml_dtypes.bfloat16))
    assert runtime.from_dlpack(bfloat).unsafe_buffer_pointer() == bfloat.unsafe_buffer_pointer()


class _Producer:
    def __init__(self, result: Any) -> None:
        self.result = result

    def __dlpack__(self, **_: Any) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def test_dlpack_in_bad_input() -> None:
    used = array_of(1.0).__dlpack__()
    runtime.from_dlpack(_Producer(used))
    for bad in (3, None, _Producer(5), _Producer(used), np.array(["a"]), np.array([object()])):
        with pytest.raises((TypeError, BufferError)):
            runtime.from_dlpack(bad)
    with pytest.raises(ZeroDivisionError):
        runtime.from_dlpack(_Producer(ZeroDivisionError()))


# ---- memory ----


def test_a_hundred_thousand_calls_leak_nothing() -> None:
    small, square = np.ones(100, np.float32), np.ones((16, 16), np.float32)
    aval, flat = aval_of(small), runtime.ShapedArray((256,), np.float32)

    def once(i: int) -> None:
        array = runtime.array_from_numpy(small, aval)
        np.asarray(array)
        array.__array__()
        memoryview(array).release()
        array.__dlpack__()
        runtime.from_dlpack(array)
        runtime.array_alias(array_of(square), flat).delete()
        runtime.ShapedArray((i, 3), np.float32).update(weak_type=True)
        with pytest.raises(TypeError):
            hash(array)

    for i in range(2_000):
        once(i)
    gc.collect()
    blocks, live, native = python_blocks(), runtime.memory_stats()["live_bytes"], native_bytes()
    for i in range(100_000):
        once(i)
    gc.collect()
    assert python_blocks() - blocks < 500
    assert runtime.memory_stats()["live_bytes"] <= live
    assert native_bytes() - native < 1 << 19


guarded = pytest.mark.skipif(runtime.sanitizer == "address", reason="such builds unmap every buffer at once")


@guarded
def test_steady_state_takes_no_page_faults() -> None:
    big = np.ones(1 << 21, np.float32)
    aval = aval_of(big)
    for _ in range(5):
        runtime.array_from_numpy(big, aval)
    mappings = runtime.memory_stats()["mappings_made"]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        runtime.array_from_numpy(big, aval)
    assert runtime.memory_stats()["mappings_made"] == mappings
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 200


@guarded
def test_retained_memory_is_bounded_and_can_be_given_back() -> None:
    runtime.trim_memory()
    assert runtime.memory_stats()["retained_bytes"] == 0
    for megabytes in range(1, 40):
        block = np.zeros(megabytes << 20, np.uint8)
        runtime.array_from_numpy(block, aval_of(block))
        stats = runtime.memory_stats()
        assert stats["retained_bytes"] <= stats["retain_limit_bytes"]
    assert runtime.memory_stats()["retained_bytes"] > 0
    runtime.trim_memory()
    assert runtime.memory_stats()["retained_bytes"] == 0


def test_every_size_class() -> None:
    for nbytes in [*range(0, 1500, 7), *(2**k + d for k in range(10, 24) for d in (-1, 0, 1))]:
        values = np.full(nbytes, nbytes % 251, np.uint8)
        first, second = array_of(values), array_of(values)
        assert np.array_equal(np.asarray(first), values)
        assert np.array_equal(np.asarray(second), values)


def test_threads_allocate_and_free_each_others_arrays() -> None:
    arrays: list[runtime.Array] = []
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(2_000):
            values = np.full((seed * 7 + i) % 300 * 17, i % 250, np.uint8)
            arrays.append(array_of(values))
            if len(arrays) > 50:
                view = np.asarray(arrays.pop(0))
                if view.size and view.min() != view.max():
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_limit() -> None:
    code = """
import numpy as np
from weft import runtime
def allocate(nbytes):
    values = np.broadcast_to(np.uint8(1), (nbytes,))
    return runtime.array_from_numpy(values, runtime.ShapedArray(values.shape, values.dtype))
held = [allocate(20 << 20) for _ in range(2)]
for nbytes in (40 << 20, 1 << 40, 1 << 62):
    try:
        allocate(nbytes)
    except MemoryError as error:
        print(error)
del held
allocate(40 << 20)
print(runtime.memory_stats()["limit_bytes"])
"""
    lines = fresh_process(code, WEFT_MEMORY_LIMIT="64M").splitlines()
    assert lines[0] == (
        "RESOURCE_EXHAUSTED: Out of memory: [array] a copy of host memory, u8[41943040]: 40.0 MiB (41943040 bytes) "
        "requested, 40.0 MiB in use, the limit is 64.0 MiB (WEFT_MEMORY_LIMIT); drop arrays that are not needed any "
        "more (del, delete(), donate_argnums) or work on parts"
    )
    assert "1.0 TiB" in lines[1]
    assert "4.0 EiB" in lines[2]
    assert lines[3] == str(64 << 20)


def test_donated_arrays_are_whole_after_a_call_that_found_no_memory() -> None:
    code = """
import weft, weft.numpy as jnp
def f(x):
    y = jnp.sort(jnp.sin(x))
    return x * 2, jnp.cumsum(jnp.concatenate([y] * 4))
x = jnp.ones(4 << 20)
jitted = weft.jit(f, donate_argnums=0)
compiled = jitted.lower(x).compile()
for call in (jitted, jitted, compiled):
    try:
        call(x)
    except MemoryError:
        print(x.is_deleted(), float(x.sum()) == 4 << 20)
small = x[:100]
print(float(jitted(small)[0].sum()), small.is_deleted())
"""
    output = fresh_process(code, WEFT_MEMORY_LIMIT="64M", WEFT_CACHE="off", WEFT_CHECK="0")
    assert output.splitlines() == ["False True"] * 3 + ["200.0 True"]


@pytest.mark.parametrize("text", ["much", "-5M", "0", "5X", "5MM", "nan"])
def test_an_illegal_memory_limit_is_an_error(text: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", "import weft"],
        capture_output=True,
        text=True,
        env={**os.environ, "WEFT_MEMORY_LIMIT": text},
    )
    assert "ValueError: WEFT_MEMORY_LIMIT is a number of bytes" in process.stderr and f"'{text}'" in process.stderr


@guarded
def test_large_blocks_ask_for_large_pages() -> None:
    values = np.ones(1 << 24, np.uint8)
    block = array_of(values)
    address = block.unsafe_buffer_pointer()
    inside, flags = False, []
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line.split()[1:]
    assert "hg" in flags  # madvise(MADV_HUGEPAGE)


def test_fork() -> None:
    code = """
import os, numpy as np
from weft import runtime
def make():
    values = np.ones(1 << 18, np.float32)
    return runtime.array_from_numpy(values, runtime.ShapedArray(values.shape, values.dtype))
kept = make()
child = os.fork()
if child == 0:
    fine = all(np.asarray(make()).sum() == 1 << 18 for _ in range(20)) and np.asarray(kept).sum() == 1 << 18
    os._exit(0 if fine else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), np.asarray(kept).sum() == 1 << 18)
"""
    assert fresh_process(code) == "0 True"


# ---- interpreters that weft cannot serve ----


def test_weft_can_be_imported_after_a_subinterpreter_was_refused() -> None:
    code = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
else:
    import _xxsubinterpreters as interpreters
script = '''
import sys
try:
    import weft
except ImportError as error:
    print("ImportError:", error)
sys.stdout.flush()
'''
interpreters.run_string(interpreters.create(), script)
import weft.numpy as wnp
print(wnp.arange(3) + 1)
"""
    refused, result = fresh_process(code).splitlines()
    assert refused.startswith("ImportError:")
    assert "subinterpreter" in refused
    assert result == "[1 2 3]"


def test_subinterpreters_get_an_import_error() -> None:
    code = """
import sys
import weft.runtime
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
else:
    import _xxsubinterpreters as interpreters
script = '''
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.ExtensionFileLoader("weft.runtime._native", {path!r})
try:
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("weft.runtime._native", loader))
    loader.exec_module(module)
    print("imported")
except ImportError as error:
    print("ImportError:", error)
sys.stdout.flush()
'''.format(path=weft.runtime._native.__file__)
interpreters.run_string(interpreters.create(), script)
"""
    output = fresh_process(code)
    assert output.startswith("ImportError:"), output
    assert "subinterpreter" in output

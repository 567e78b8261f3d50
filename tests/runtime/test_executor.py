"""Executables: every instruction, how outputs share buffers, threads, errors, and inputs that do not fit."""

from __future__ import annotations

import gc
import itertools
import signal
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime import machine_code
from weft import runtime
from weft.compiler.plans.instructions import (
    Callback,
    Copy,
    DonatedOutput,
    Fill,
    Gemm,
    InputOutput,
    Kernel,
    NewOutput,
    Offset,
    SameOutput,
    Sort,
)

array, aval = machine_code.array, machine_code.aval


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = runtime.Pool.get_threads()
    runtime.Pool.set_threads(request.param)
    yield request.param
    runtime.Pool.set_threads(before)


def add_one() -> runtime.Kernel:
    return machine_code.unary_kernel("fadd", "1.0")


@pytest.mark.parametrize("size", [0, 1, 17, 8192, 1_000_003])
def test_kernels_over_any_extent(size: int, threads: int) -> None:
    executable = machine_code.unary_executable(add_one(), size)
    x = np.arange(size, dtype=np.float32)
    for _ in range(3):
        (result,) = executable.run([array(x)])
        assert np.array_equal(np.asarray(result), x + 1)
    assert (executable.n_kernels, executable.temp_bytes, executable.name) == (1, 0, "unary")


@pytest.mark.parametrize("size", [0, 1, 8192, 8193, 1_000_003])
def test_block_reductions_give_the_same_bits_for_any_threads(size: int, threads: int) -> None:
    kind, out = aval((size,)), aval(())
    blocks = -(-size // 8192)
    step = Kernel(machine_code.block_sum_kernel(), ((0, 0, -1), (1, 0, -1)), struct.pack("q", size), (), "blocks",
            blocks, 1, size * 0.5, 0, blocks * 16, size, size)  # fmt: skip
    executable = runtime.Executable(1, [NewOutput(4, out)], [], 0, [step], "sum", (kind,))
    x = np.random.default_rng(0).random(size, np.float32)
    expected = np.float32(0)
    for start in range(0, size, 8192):
        block = np.add.accumulate(x[start : start + 8192], dtype=np.float32)[-1]
        expected = np.float32(expected + block)
    for _ in range(5):
        (result,) = executable.run([array(x)])
        assert np.asarray(result) == expected


@pytest.mark.parametrize("outer", [(), (0,), (1,), (7,), (3, 5), (4, 1, 6), (600,)])
def test_outer_dimensions(outer: tuple[int, ...], threads: int) -> None:
    shape = (*outer, 33)
    kind = aval(shape)
    x = np.arange(kind.size, dtype=np.float32).reshape(shape)
    # The source is walked transposed: the outermost dimension is its innermost one.
    source = np.moveaxis(x, range(len(outer)), range(len(outer))[::-1]).copy() if outer else x
    in_strides = [4 * 33 * int(np.prod(outer[:d])) for d in range(len(outer))]
    out_strides = [4 * 33 * int(np.prod(outer[d + 1 :])) for d in range(len(outer))]
    dims = tuple((n, (a, b)) for n, a, b in zip(outer, in_strides, out_strides, strict=True))
    for cost in (10.0, 1e6):
        step = Kernel(
            add_one(),
            ((0, 0, -1), (1, 0, -1)),
            struct.pack("q", 33),
            dims,
            "vector",
            33,
            16,
            cost,
            0,
            0,
            33,
            33,
        )
        executable = runtime.Executable(
            1, [NewOutput(kind.nbytes, kind)], [], 0, [step], "outer", (aval(source.shape),)
        )
        (result,) = executable.run([array(source)])
        assert np.array_equal(np.asarray(result), x + 1)


def test_temporaries_chain_through_the_arena() -> None:
    kernel, kind = add_one(), aval((100,))
    steps = [
        machine_code.unary_step(kernel, 0, 2, 100),
        machine_code.unary_step(kernel, 2, 3, 100),
        machine_code.unary_step(kernel, 3, 1, 100),
    ]
    executable = runtime.Executable(1, [NewOutput(400, kind)], [(0, 400), (448, 400)], 848, steps, "chain", (kind,))
    (result,) = executable.run([array(np.zeros(100))])
    assert np.asarray(result).tolist() == [3.0] * 100
    assert executable.temp_bytes == 848


@pytest.mark.parametrize("cost", [10.0, 15_000.0, 1e6])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_same_kernel_many_times_in_a_row(cost: float, rows: int, threads: int) -> None:
    """A chain of temporaries, so that the order of the turns shows, with one kernel of another size in between."""
    kernel, size, links = add_one(), 36, 9
    kind, row = aval((size,)), size // rows
    outer = ((rows, (4 * row, 4 * row)),) if rows > 1 else ()

    def step(source: int, result: int, extent: int) -> tuple[Any, ...]:
        packed, locations = struct.pack("q", extent), ((source, 0, -1), (result, 0, -1))
        return Kernel(kernel, locations, packed, outer, "vector", extent, 1, cost, 0, 0, extent, extent)

    slots = [0, *range(2, links + 1), 1]  # the input, temporaries, the output
    steps = [step(a, b, row) for a, b in itertools.pairwise(slots)]
    steps.insert(4, step(0, 2, 5))
    temps = [(i * 192, size * 4) for i in range(links - 1)]
    executable = runtime.Executable(1, [NewOutput(size * 4, kind)], temps, links * 192, steps, "chain", (kind,))
    assert executable.n_kernels == links + 1
    assert executable.cost_ns == pytest.approx(cost * (links + 1))
    x = np.arange(size, dtype=np.float32)
    for _ in range(3):
        (result,) = executable.run([array(x)])
        assert np.array_equal(np.asarray(result), x + links)


def test_outputs_may_share_buffers() -> None:
    kind, flat = aval((2, 3)), aval((6,))
    outputs = [InputOutput(0, flat), NewOutput(24, kind), SameOutput(1, flat), SameOutput(0, kind)]
    executable = runtime.Executable(1, outputs, [], 0, [machine_code.unary_step(add_one(), 0, 2, 6)], "share", (kind,))
    x = array(np.arange(6).reshape(2, 3))
    alias, fresh, again, same = executable.run([x])
    assert alias.unsafe_buffer_pointer() == same.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert again.unsafe_buffer_pointer() == fresh.unsafe_buffer_pointer()
    assert (alias.shape, fresh.shape, again.shape, same.shape) == ((6,), (2, 3), (6,), (2, 3))
    assert np.asarray(again).tolist() == [1, 2, 3, 4, 5, 6]


def test_donation() -> None:
    kind = aval((4,))
    executable = runtime.Executable(
        1, [DonatedOutput(0, 16, kind)], [], 0, [machine_code.unary_step(add_one(), 0, 1, 4)], "d", (kind,)
    )
    x = array([1, 2, 3, 4])
    pointer = x.unsafe_buffer_pointer()
    (kept,) = executable.run([x])
    assert not x.is_deleted() and kept.unsafe_buffer_pointer() != pointer
    (reused,) = executable.run([x], [True])
    assert x.is_deleted() and reused.unsafe_buffer_pointer() == pointer
    assert np.asarray(reused).tolist() == [2, 3, 4, 5]
    view = np.asarray(reused)
    (copied,) = executable.run([reused], donated=(True,))
    assert view.tolist() == [2, 3, 4, 5] and np.asarray(copied).tolist() == [3, 4, 5, 6]
    alias = runtime.array_alias(copied, aval((2, 2)))
    (other,) = executable.run([copied], [True])
    assert np.asarray(alias).tolist() == [[3, 4], [5, 6]] and np.asarray(other).tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])
def test_dynamic_offsets_are_clamped(dtype: str) -> None:
    table, index, one = aval((10,)), aval((), dtype), aval(())
    steps = [Offset(0, ((1, 0, np.dtype(dtype).char, 9, 4),)), Copy((2, 0, -1), (0, 0, 0), 4)]
    executable = runtime.Executable(2, [NewOutput(4, one)], [], 0, steps, "take", (table, index))
    info = np.iinfo(dtype) if dtype != "bool" else None
    candidates = [0, 1] if info is None else [0, 3, 9, 10, int(info.max), int(info.min), max(-1, int(info.min))]
    for i in candidates:
        (result,) = executable.run([array(np.arange(10)), array(i, dtype)])
        assert np.asarray(result) == min(max(i, 0), 9)


def test_two_dynamic_offsets_and_a_kernel() -> None:
    table, index, row = aval((8, 4)), aval((), "int32"), aval((2,))
    steps = [
        Offset(1, ((1, 0, "i", 7, 16), (2, 0, "i", 2, 4))),
        Kernel(add_one(), ((0, 0, 1), (3, 0, -1)), struct.pack("q", 2), (), "vector", 2, 2, 1.0, 0, 0, 2, 2),
    ]
    executable = runtime.Executable(3, [NewOutput(8, row)], [], 0, steps, "slice", (table, index, index))
    x = np.arange(32).reshape(8, 4)
    (result,) = executable.run([array(x), array(6, "int32"), array(5, "int32")])
    assert np.asarray(result).tolist() == [27, 28]


def test_copy_and_fill(threads: int) -> None:
    size = 3_000_000
    kind = aval((size,), "uint8")
    half = size // 2
    steps = [Fill((1, 0, -1), size, 7), Copy((1, half, -1), (0, 0, -1), size - half)]
    executable = runtime.Executable(1, [NewOutput(size, kind)], [], 0, steps, "copy", (kind,))
    x = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    (result,) = executable.run([array(x, "uint8")])
    assert np.array_equal(np.asarray(result), np.concatenate([np.full(half, 7, np.uint8), x[: size - half]]))


PRODUCTS = [
    (64, 64, 64),
    (1, 5, 7),
    (5, 1, 7),
    (1, 1, 4),
    (3, 4, 0),
    (1, 4, 0),
    (0, 4, 3),
    (4, 0, 3),
    (300, 301, 299),
    (1, 3000, 700),
    (3000, 1, 700),
    (700, 513, 130),
]


def product(dtype: str, ta: bool, tb: bool, a: np.ndarray, b: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The instruction that multiplies input 0, perhaps transposed, by input 1 into slot 2."""
    (m, n), k = shape, a.shape[0 if ta else 1]
    locations = (0, 0, -1), (1, 0, -1), (2, 0, -1)
    left, right = (1, a.shape[1])[:: 1 if ta else -1], (1, b.shape[1])[:: 1 if tb else -1]
    rows, columns, summed = ((m, left[0], n),), ((n, right[1]),), ((k, left[1], right[0]),)
    return Gemm(dtype, dtype, *locations, rows, columns, summed, (), True, (m, n, False))


@pytest.mark.parametrize(("m", "n", "k"), PRODUCTS)
@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_products(m: int, n: int, k: int, dtype: str) -> None:
    rng = np.random.default_rng(2)

    def matrix(rows: int, columns: int) -> np.ndarray:
        values = rng.standard_normal((rows, columns))
        return (values + 1j * rng.standard_normal((rows, columns)) if dtype in "FD" else values).astype(dtype)

    for ta, tb in itertools.product((False, True), repeat=2):
        a, b = matrix(*((k, m) if ta else (m, k))), matrix(*((n, k) if tb else (k, n)))
        expected = (a.T if ta else a) @ (b.T if tb else b)
        out = aval((m, n), dtype)
        step = product(dtype, ta, tb, a, b, out.shape)
        executable = runtime.Executable(
            2, [NewOutput(out.nbytes, out)], [], 0, [step], "dot", (aval(a.shape, dtype), aval(b.shape, dtype))
        )
        results = []
        for count in (1, 2, 3):
            runtime.Pool.set_threads(count)
            (result,) = executable.run([array(a, dtype), array(b, dtype)])
            results.append(np.asarray(result))
        np.testing.assert_allclose(results[0], expected, rtol=1e-3, atol=1e-3)
        assert all(np.array_equal(results[0], r) for r in results)
    runtime.Pool.set_threads(2)


def test_uninitialised_results_never_show() -> None:
    # The result's memory holds NaN before: a product or a matrix-vector product must not read it.
    for m, n, k in [(5, 1, 3), (1, 5, 3), (4, 4, 3), (40, 1, 0)]:
        a, b, out = np.ones((m, k), np.float32), np.ones((k, n), np.float32), aval((m, n))
        step = product("f", False, False, a, b, (m, n))
        steps = [Fill((2, 0, -1), out.nbytes, 255), step]
        executable = runtime.Executable(
            2, [NewOutput(out.nbytes, out)], [], 0, steps, "dot", (aval(a.shape), aval(b.shape))
        )
        (result,) = executable.run([array(a), array(b)])
        assert np.array_equal(np.asarray(result), np.full((m, n), float(k)))


def test_batched_products(threads: int) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((6, 3, 40, 50)), rng.random((3, 50, 30))
    out = aval((6, 3, 40, 30), "float64")
    batch = ((6, a.strides[0], 0, 8 * 3 * 1200), (3, a.strides[1], b.strides[0], 8 * 1200))
    locations = (0, 0, -1), (1, 0, -1), (2, 0, -1)
    whole = (40, 30, False)
    step = Gemm("d", "d", *locations, ((40, 50, 30),), ((30, 1),), ((50, 1, 30),), batch, True, whole)
    executable = runtime.Executable(
        2, [NewOutput(out.nbytes, out)], [], 0, [step], "dot", (aval(a.shape, "d"), aval(b.shape, "d"))
    )
    (result,) = executable.run([array(a, "d"), array(b, "d")])
    np.testing.assert_allclose(np.asarray(result), a @ b)


def callback_executable(callable_: Callable[..., Any], size: int = 3, outputs: int = 1) -> runtime.Executable:
    kind = aval((size,))
    step = Callback(callable_, ((0, 0, kind),), tuple((1 + i, 0, kind) for i in range(outputs)))
    return runtime.Executable(1, [NewOutput(kind.nbytes, kind)] * outputs, [], 0, [step], "callback", (kind,))


def test_callbacks() -> None:
    kept: list[np.ndarray] = []

    def double(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        assert not x.flags.writeable
        return x * 2.0

    executable = callback_executable(double)
    for i in range(3):
        (result,) = executable.run([array([1, 2, i])])
        assert np.asarray(result).tolist() == [2, 4, 2 * i]
    assert [x.tolist() for x in kept] == [[1, 2, i] for i in range(3)]
    (a, b) = callback_executable(lambda x: (x, -x), outputs=2).run([array([1, 2, 3])])
    assert (np.asarray(a) == -np.asarray(b)).all()
    (result,) = callback_executable(lambda x: [4, 5, 6]).run([array([1, 2, 3])])
    assert np.asarray(result).tolist() == [4, 5, 6]


def test_errors_of_callbacks_propagate() -> None:
    error = ZeroDivisionError("mine")

    def fail(x: np.ndarray) -> np.ndarray:
        raise error

    with pytest.raises(ZeroDivisionError) as info:
        callback_executable(fail).run([array([1, 2, 3])])
    assert info.value is error
    with pytest.raises(ValueError, match=r"shape \(2,\), but f32\[3\]"):
        callback_executable(lambda x: x[:2]).run([array([1, 2, 3])])
    with pytest.raises(ValueError, match="returned 1 results, but 2"):
        callback_executable(lambda x: (x,), outputs=2).run([array([1, 2, 3])])
    with pytest.raises((TypeError, ValueError)):
        callback_executable(lambda x: "text").run([array([1, 2, 3])])
    with pytest.raises(TypeError):
        callback_executable(3).run([array([1, 2, 3])])  # type: ignore[arg-type]


def test_a_failing_callback_after_long_work() -> None:
    kind = aval((1000,))

    def fail(x: np.ndarray) -> np.ndarray:
        raise KeyError("late")

    steps = [machine_code.unary_step(add_one(), 0, 1, 1000, 1e6), Callback(fail, ((1, 0, kind),), ((2, 0, kind),))]
    executable = runtime.Executable(1, [NewOutput(4000, kind)] * 2, [], 0, steps, "late", (kind,))
    for _ in range(3):
        with pytest.raises(KeyError, match="late"):
            (_, result) = executable.run([array(np.zeros(1000))])
            result.block_until_ready()


def test_callbacks_may_run_programs() -> None:
    inner = machine_code.unary_executable(add_one(), 3)
    executable = callback_executable(lambda x: inner.run([array(x)])[0])
    (result,) = executable.run([array([1, 2, 3])])
    assert np.asarray(result).tolist() == [2, 3, 4]


def test_cycles_through_callbacks_are_collected() -> None:
    class Owner:
        pass

    def make() -> weakref.ref[Any]:
        owner = Owner()
        owner.executable = callback_executable(lambda x: owner)  # type: ignore[attr-defined]
        return weakref.ref(owner)

    gone = make()
    gc.collect()
    assert gone() is None


def test_inputs_that_do_not_fit() -> None:
    executable = machine_code.unary_executable(add_one(), 100)
    with pytest.raises(TypeError, match="takes 1 inputs, but 0"):
        executable.run([])
    with pytest.raises(TypeError, match=r"f32\[3\], but the program was compiled for f32\[100\]"):
        executable.run([array([1, 2, 3])])
    with pytest.raises(TypeError, match="not an Array"):
        executable.run([np.zeros(100, np.float32)])
    with pytest.raises(TypeError):
        executable.run(5)
    x = array(np.zeros(100))
    with pytest.raises(ValueError, match="flags"):
        executable.run([x], [True, False])
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        executable.run([x])


def test_results_that_do_not_fit_in_memory() -> None:
    kind = aval((2**45,))
    executable = runtime.Executable(0, [NewOutput(kind.nbytes, kind)], [], 0, [], "large", ())
    with pytest.raises(MemoryError, match=r"\[large\] result 0, f32\[35184372088832\]: 128\.0 TiB"):
        executable.run([])
    small = aval((1,))
    executable = runtime.Executable(
        0, [NewOutput(4, small)], [(0, 2**50)], 2**50, [Fill((0, 0, -1), 4, 0)], "arena", ()
    )
    with pytest.raises(MemoryError, match=r"\[arena\] temporaries: 1\.0 PiB \(1125899906842624 bytes\) requested"):
        executable.run([])


ADD = machine_code.unary_kernel("fadd", "1.0")
KIND = aval((4,))


def one(*steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """A plan of one input and one output, f32[4] each."""
    return (1, [NewOutput(16, KIND)], [], 0, list(steps), "x", (KIND,))


def matrices(k: int = 2, result: str = "f", **other: Any) -> Gemm:
    """The square of a matrix f32[2,2], but for what is ``other``: its whole has rows, columns, and no exchange."""
    locations = (0, 0, -1), (0, 0, -1), (1, 0, -1)
    product = Gemm("f", result, *locations, ((2, k, 2),), ((2, 1),), ((k, 1, 2),), (), True, (2, 2, False))
    return product._replace(**other)


WORDS = ((0, 0, -1), "u", 4, 4, 0)  # keys of an order
BAD_PLANS: list[tuple[Any, ...]] = [
    (-1, [], [], 0, [], "x"),
    (0, [NewOutput(4, KIND)], [], 0, [], "x"),
    (0, [NewOutput(16, 3)], [], 0, [], "x"),
    (0, [("other", 16, KIND)], [], 0, [], "x"),
    (0, [(1, 16, KIND)], [], 0, [], "x"),
    (0, [7], [], 0, [], "x"),
    (0, [InputOutput(0, KIND)], [], 0, [], "x"),
    (1, [InputOutput(-1, KIND)], [], 0, [], "x", (KIND,)),
    (1, [SameOutput(0, KIND)], [], 0, [], "x", (KIND,)),
    (1, [DonatedOutput(1, 16, KIND)], [], 0, [], "x", (KIND,)),
    (1, [InputOutput(0, aval((5,)))], [], 0, [], "x", (KIND,)),
    (1, [], [(0, 10)], 9, [], "x", (KIND,)),
    (1, [], [(-1, 10)], 90, [], "x", (KIND,)),
    (1, [], [5], 90, [], "x", (KIND,)),
    (1, [], [], 0, [5], "x", (KIND,)),
    (1, [], [], 0, [KIND], "x", (KIND,)),
    (1, [], [], 0, [], "x"),
    (1, [], [], 0, [], "x", ()),
    (1, [], [], 0, [], "x", (KIND, KIND)),
    (1, [], [], 0, [], "x", (3,)),
    (1, [], [], 0, [Kernel(None, (), b"", (), "none", 0, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    (1, [], [], 0, [Kernel(ADD, ((9, 0, -1),), b"", (), "none", 0, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    (1, [], [], 0, [Kernel(ADD, ((0, 0, 3),), b"", (), "none", 0, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    (1, [], [], 0, [Kernel(ADD, ((0, 0, -1),), b"", (), "odd", 0, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    (1, [], [], 0, [Kernel(ADD, ((0, 0, -1),), b"", ((3, ()),), "none", 0, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    (1, [], [], 0, [Kernel(ADD, ((0, 0, -1),), b"", (), "none", -1, 0, 0.0, 0, 0, 0, 0)], "x", (KIND,)),
    one(Copy((1, 0, -1), (0, 8, -1), 16)),
    one(Copy((1, 0, -1), (0, 0, -1), -1)),
    one(Fill((1, 1, -1), 16, 0)),
    one(Offset(0, ((0, 16, "i", 3, 4),))),
    one(Offset(0, ((0, 0, "f", 3, 4),))),
    one(Offset(-1, ((0, 0, "i", 3, 4),))),
    one(Offset(0, ((0, 0, "i", 4, 4),)), Copy((1, 0, -1), (0, 0, 0), 4)),
    one(Callback(len, ((0, 4, KIND),), ())),
    one(Sort(1, 5, 1, 4, False, (WORDS,), (), None, 0)),
    one(Sort(1, 4, 1, 5, False, (WORDS,), (), None, 0)),
    one(Sort(4, 1, 3, 1, False, (WORDS,), (), None, 0)),
    one(Sort(2**60, 4, 1, 4, False, (WORDS,), (), None, 0)),
    one(Sort(1, 4, 1, 4, False, (), (), None, 0)),
    one(Sort(1, 4, 1, 4, False, (((0, 0, -1), "x", 4, 4, 0),), (), None, 0)),
    one(Sort(1, 4, 1, 4, False, (((0, 0, -1), "u", 3, 4, 0),), (), None, 0)),
    one(Sort(1, 4, 1, 4, False, (WORDS,), (((0, 0, -1), (1, 0, -1), 32),), None, 0)),
    one(Sort(1, 4, 1, 4, False, (WORDS,), (((0, 0, -1), (1, 4, -1), 4),), None, 0)),
    one(Sort(1, 4, 1, 4, False, (WORDS,), (), (1, 4, -1), 4)),
    one(matrices(k=3)),
    one(matrices(rows=((2, -1, 2),))),
    one(matrices(rows=((2, 2, 1),))),
    one(matrices(result="i")),
    one(matrices(batch=((2, 4, 4, 4),))),
    one(matrices(rows=((2**40, 2, 2),))),
    one(matrices(summed=((2, 4, 4), (2, 1, 2)))),
    one(matrices(summed=((2, -4, 4), (2, 1, 2)))),
    one(matrices(summed=((2**62, 0, 0), (2, 1, 2)))),
    one(matrices(summed=((2**31, 0, 0), (2**31, 0, 0)))),
    one(matrices(summed=((2, 1),))),
    one(matrices(columns=((2, 2),))),
    one(matrices(columns=((2, 1, 1),))),
    one(matrices(columns=((1, 1),) * 9)),
    one(matrices(columns=(2,))),
    one(matrices(whole=(2, 2))),
]  # fmt: skip


def test_a_plan_that_fits_is_taken() -> None:
    (result,) = runtime.Executable(*one(matrices())).run([array(np.arange(4.0, dtype=np.float32))])
    np.testing.assert_array_equal(np.asarray(result), [2, 3, 6, 11])


@pytest.mark.parametrize("plan", BAD_PLANS)
def test_plans_that_do_not_fit_are_refused(plan: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        runtime.Executable(*plan)


def test_long_programs_let_other_threads_run() -> None:
    size = 20_000_000
    executable = machine_code.unary_executable(add_one(), size)
    x = array(np.zeros(size))
    count, stop = [0], threading.Event()

    def spin() -> None:
        while not stop.is_set():
            count[0] += 1

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        before = count[0]
        for _ in range(5):
            executable.run([x])[0].block_until_ready()
        assert count[0] > before
    finally:
        stop.set()
        thread.join()


def test_arguments_stay_alive_while_other_threads_run() -> None:
    size = 4_000_000
    executable = machine_code.unary_executable(add_one(), size)
    failures: list[Any] = []

    def work() -> None:
        for _ in range(5):
            x = array(np.full(size, 5.0))
            timer = threading.Timer(0.0005, x.delete)
            timer.start()
            try:
                (result,) = executable.run([x])
                del x
                if not (np.asarray(result) == 6).all():
                    failures.append("values")
            except RuntimeError:
                pass  # deleted before the call
            timer.join()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_signals_arrive_after_long_programs() -> None:
    executable = machine_code.unary_executable(add_one(), 10_000_000)
    x = array(np.zeros(10_000_000))
    old = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            for _ in range(100_000):
                executable.run([x])[0].block_until_ready()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert np.asarray(executable.run([x])[0])[0] == 1


def test_time_is_not_lost_in_small_programs() -> None:
    executable = machine_code.unary_executable(add_one(), 3)
    x = array([1, 2, 3])
    start = time.perf_counter()
    for _ in range(1000):
        executable.run([x])
    assert time.perf_counter() - start < 1.0

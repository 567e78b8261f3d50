"""Whole nests: loops, masks, phases, row buffers, reduction trees, against NumPy on several targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen.running import HOST, elementwise, load
from tests.codegen.trees import lanes_tree, rows_tree
from weft._base import target
from weft.core import kinds
from weft.loops import ir
from weft.loops.schedules import parallel

F32 = np.dtype(np.float32)
TARGETS = [t for t in target.TARGETS.values() if t.triple == HOST.triple and t.lanes <= HOST.lanes]
P, R = ir.Dim("parallel"), ir.Dim("reduced")
ADD = elementwise(lambda e, x, y: e.add(x, y))
SUB = elementwise(lambda e, x, y: e.sub(x, y))
MUL = elementwise(lambda e, x, y: e.mul(x, y))
HEAVY = elementwise(lambda e, x: e.add(x, x), cost=40.0)


def reduction(prepare, combine, accumulators, finish=None, needs_index=False):
    return kinds.Reduction(
        axes=lambda p: (0,),
        accumulators=lambda a, p: accumulators,
        prepare=prepare,
        combine=combine,
        finish=finish or (lambda e, accs: accs),
        reference=lambda *a: None,
        needs_index=needs_index,
    )


def total(dtype=F32):
    return reduction(lambda e, v, i: v, lambda e, a, b: (e.add(a[0], b[0]),), ((dtype, 0),))


def largest(dtype=F32):
    return reduction(lambda e, v, i: v, lambda e, a, b: (e.max(a[0], b[0]),), ((dtype, -np.inf),))


def arg_largest():
    def combine(e, a, b):
        take = e.or_(e.compare("gt", b[0], a[0]), e.and_(e.compare("eq", b[0], a[0]), e.compare("lt", b[1], a[1])))
        return e.select(take, a[0], b[0]), e.select(take, a[1], b[1])

    i32 = np.dtype(np.int32)
    return reduction(
        lambda e, v, i: (v[0], e.convert(i, i32)),
        combine,
        ((F32, -np.inf), (i32, 2**31 - 1)),
        lambda e, accs: (accs[1],),
        True,
    )


def reduce(outs, kind, args, dtypes=(F32,), tree="row", index=None):
    return ir.Reduce(outs, "r", kind, (), args, index, kind.accumulators(None, None), dtypes, tree)


def apply(out, kind, *args, dtype=F32):
    return ir.Apply(out, "f", kind, (), args, dtype)


def operand(dtype, role, *strides):
    return ir.Operand(np.dtype(dtype), role, strides)


def nest(dims, operands, phases, vector, width, rows=(), split=False, setup=(), scalars=()):
    return ir.Nest(dims, tuple(operands), scalars, rows, vector, width, split, setup, tuple(phases))


def phase_sum(dtype, on):
    """Rows summed; None for dtypes that do not add."""
    if dtype == np.bool_:
        return None
    phases = [
        ir.Phase(body=(ir.Load(0, 0),), reductions=(reduce((1,), total(dtype), (0,), (dtype,)),)),
        ir.Phase(before=(ir.Store(1, 1),)),
    ]
    return nest((P, R), [operand(dtype, "in", ir.RUNTIME, 1), operand(dtype, "out", 1, 0)], phases, 1, on.lanes)


def data(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(np.float32)


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("heavy", [False, True])
def test_row_sum(on, heavy):
    body = [ir.Load(0, 0)] + ([apply(1, HEAVY, 0)] if heavy else [])
    value = 1 if heavy else 0
    phases = [
        ir.Phase(body=tuple(body), reductions=(reduce((2,), total(), (value,)),)),
        ir.Phase(before=(ir.Store(1, 2),)),
    ]
    made = nest((P, R), [operand(F32, "in", ir.RUNTIME, 1), operand(F32, "out", 1, 0)], phases, 1, on.lanes)
    call, _ = load(made, on)
    for m, n in ((3, 0), (2, 1), (4, 17), (3, 100), (2, 8192), (3, 20001), (0, 5)):
        x, out = data(m, n), np.full(m, 7, np.float32)
        call([x, out], [m, n, n], [0, m, 0, n, 0, 0])
        np.testing.assert_array_equal(out, lanes_tree(x + x if heavy else x, np.add, np.float32(0)))


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_strided_row_sum_equals_contiguous(on):
    phases = [
        ir.Phase(body=(ir.Load(0, 0),), reductions=(reduce((1,), total(), (0,)),)),
        ir.Phase(before=(ir.Store(1, 1),)),
    ]
    made = nest((P, R), [operand(F32, "in", 1, ir.RUNTIME), operand(F32, "out", 1, 0)], phases, 1, on.lanes)
    call, _ = load(made, on)
    x, out = data(1000, 5), np.zeros(5, np.float32)
    call([x, out], [5, 1000, 5], [0, 5, 0, 1000, 0, 0])
    np.testing.assert_array_equal(out, lanes_tree(np.ascontiguousarray(x.T), np.add, np.float32(0)))


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_split_sum(on):
    phases = [
        ir.Phase(body=(ir.Load(0, 0), apply(1, MUL, 0, 0)), reductions=(reduce((2,), total(), (1,)),)),
        ir.Phase(before=(apply(3, ADD, 2, 2), ir.Store(1, 3))),
    ]
    made = nest((R,), [operand(F32, "in", 1), operand(F32, "out", 0)], phases, 0, on.lanes, split=True)
    call, _ = load(made, on)
    for n in (0, 1, 8192, 50001):
        x, out = data(n), np.zeros(1, np.float32)
        blocks = -(-n // 8192)
        partial = np.zeros(16 * max(blocks, 1), np.uint8)
        middle = blocks // 2
        call([x, out], [n], [0, 0, 0, middle, 0, partial.ctypes.data])
        call([x, out], [n], [0, 0, middle, blocks, 0, partial.ctypes.data])
        call([x, out], [n], [0, 0, 0, blocks, 1, partial.ctypes.data])
        expected = lanes_tree(x * x, np.add, np.float32(0))
        np.testing.assert_array_equal(out[0], expected + expected)


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_softmax_with_a_row_buffer(on):
    exponent = elementwise(lambda e, x: e.integer_pow(x, 2))
    less = elementwise(lambda e, x: e.sub(x, e.const(1, F32)))
    divide = elementwise(lambda e, x, y: e.div(x, y))
    phases = [
        ir.Phase(body=(ir.Load(0, 0),), reductions=(reduce((1,), largest(), (0,)),)),
        ir.Phase(
            body=(ir.Load(2, 0), apply(3, SUB, 2, 1), apply(8, less, 3), apply(4, exponent, 8), ir.RowStore(0, 4)),
            reductions=(reduce((5,), total(), (4,)),),
        ),
        ir.Phase(body=(ir.RowLoad(6, 0), apply(7, divide, 6, 5), ir.Store(1, 7))),
    ]
    operands = [operand(F32, "in", ir.RUNTIME, 1), operand(F32, "out", ir.RUNTIME, 1)]
    made = nest((P, R), operands, phases, 1, on.lanes, rows=(F32,))
    call, _ = load(made, on)
    for m, n in ((4, 1), (3, 50), (2, 1000)):
        x, out = data(m, n), np.zeros((m, n), np.float32)
        call([x, out], [m, n, n, n], [0, m, 0, n, 0, 0], parallel.outline(made).scratch_bytes((m, n)))
        e = (x - x.max(1, keepdims=True) - np.float32(1)) ** 2
        np.testing.assert_array_equal(out, e / lanes_tree(e, np.add, np.float32(0))[:, None])


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_columns(on):
    """Mean and centred copy along axis 0, vectors across columns, a row buffer between the phases."""
    phases = [
        ir.Phase(
            body=(ir.Load(0, 0), apply(1, MUL, 0, 0), ir.RowStore(0, 1)),
            reductions=(reduce((2,), total(), (1,), tree="column"),),
        ),
        ir.Phase(body=(ir.RowLoad(3, 0), apply(4, SUB, 3, 2), ir.Store(1, 4))),
        ir.Phase(before=(ir.Store(2, 2),)),
    ]
    operands = [operand(F32, "in", 1, ir.RUNTIME), operand(F32, "out", 1, ir.RUNTIME), operand(F32, "out", 1, 0)]
    made = nest((P, R), operands, phases, 0, on.lanes, rows=(F32,))
    call, _ = load(made, on)
    for m, n in ((1, 3), (300, 70), (513, 33), (0, 4)):
        x, out, sums = data(m, n), np.zeros((m, n), np.float32), np.ones(n, np.float32)
        call([x, out, sums], [n, m, n, n], [0, 0, 0, n, 0, 0], parallel.outline(made).scratch_bytes((n, m)))
        expected = rows_tree(x * x, np.add, np.float32(0))
        np.testing.assert_array_equal(sums, expected)
        np.testing.assert_array_equal(out, x * x - expected)


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_argmax(on):
    i32 = np.dtype(np.int32)
    phases = [
        ir.Phase(
            body=(ir.Load(0, 0), ir.IndexOf(1, 1, np.dtype(np.int64))),
            reductions=(reduce((2,), arg_largest(), (0,), (i32,), index=1),),
        ),
        ir.Phase(before=(ir.Store(1, 2),)),
    ]
    made = nest((P, R), [operand(F32, "in", ir.RUNTIME, 1), operand(i32, "out", 1, 0)], phases, 1, on.lanes)
    call, _ = load(made, on)
    for m, n in ((5, 1), (5, 37), (3, 9000)):
        x, out = np.round(data(m, n)), np.zeros(m, np.int32)
        call([x, out], [m, n, n], [0, m, 0, n, 0, 0])
        np.testing.assert_array_equal(out, x.argmax(1))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.bool_, np.complex64, np.complex128, np.uint16])
@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_sum_of_every_size(on, dtype):
    dtype = np.dtype(dtype)
    kind = total(dtype)
    if dtype == np.bool_:
        kind = reduction(lambda e, v, i: v, lambda e, a, b: (e.or_(a[0], b[0]),), ((dtype, False),))
    phases = [
        ir.Phase(body=(ir.Load(0, 0),), reductions=(reduce((1,), kind, (0,), (dtype,)),)),
        ir.Phase(before=(ir.Store(1, 1),)),
    ]
    made = nest((P, R), [operand(dtype, "in", ir.RUNTIME, 1), operand(dtype, "out", 1, 0)], phases, 1, on.lanes)
    call, _ = load(made, on)
    for n in (1, 45, 100):
        x = (
            data(3, n, seed=n) > 8
            if dtype == np.bool_
            else (data(3, n) + (1j if dtype.kind == "c" else 0)).astype(dtype)
        )
        out = np.zeros(3, dtype)
        call([x, out], [3, n, n], [0, 3, 0, n, 0, 0])
        combine = np.logical_or if dtype == np.bool_ else np.add
        np.testing.assert_array_equal(out, lanes_tree(x, combine, dtype.type(0)))


@pytest.mark.parametrize("vector", [None, 0])
def test_scan(vector):
    kind = kinds.Cumulative(
        axis=lambda p: 0,
        reverse=lambda p: False,
        accumulators=lambda a, p: ((F32, 0),),
        combine=lambda e, a, b: (e.add(a[0], b[0]),),
        finish=lambda e, accs: accs,
        reference=np.cumsum,
    )
    step = ir.Scan((1,), "cumsum", kind, (), (0,), ((F32, 0),), (F32,))
    phases = [ir.Phase(body=(ir.Load(0, 0), step, ir.Store(1, 1)))]
    strides = (1, ir.RUNTIME) if vector == 0 else (ir.RUNTIME, 1)
    made = nest((P, R), [operand(F32, "in", *strides), operand(F32, "out", *strides)], phases, vector, HOST.lanes)
    call, _ = load(made)
    x = data(40, 21)
    out = np.zeros_like(x)
    if vector == 0:
        call([x, out], [21, 40, 21, 21], [0, 0, 0, 21, 0, 0])
        np.testing.assert_array_equal(out, np.cumsum(x, axis=0))
    else:
        call([x, out], [40, 21, 21, 21], [0, 40, 0, 0, 0, 0])
        np.testing.assert_array_equal(out, np.cumsum(x, axis=1))


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_outer_sum_with_parameter_and_index(on):
    """out[i, j] = a[i] * p + j, range of the first dimension respected."""
    setup = (ir.Param(0, 0, F32),)
    body = (ir.Load(1, 0), apply(2, MUL, 1, 0), ir.IndexOf(3, 1, F32), apply(4, ADD, 2, 3), ir.Store(1, 4))
    operands = [operand(F32, "in", 1, 0), operand(F32, "out", ir.RUNTIME, 1)]
    made = nest((P, P), operands, [ir.Phase(body=body)], 1, on.lanes, setup=setup, scalars=(F32,))
    call, _ = load(made, on)
    a, out = data(6), np.zeros((6, 37), np.float32)
    scale = int(np.float32(2.5).view(np.int32))
    call([a, out], [6, 37, 37, scale], [1, 5, 0, 37, 0, 0])
    expected = a[:, None] * np.float32(2.5) + np.arange(37, dtype=np.float32)
    expected[[0, 5]] = 0
    np.testing.assert_array_equal(out, expected)


def test_scalar_program():
    body = (ir.Load(0, 0), apply(1, ADD, 0, 0), ir.Store(1, 1))
    call, _ = load(nest((), [operand(F32, "in"), operand(F32, "out")], [ir.Phase(body=body)], None, 1))
    x, out = np.array([3], np.float32), np.zeros(1, np.float32)
    call([x, out], [], [0, 0, 0, 0, 0, 0])
    assert out[0] == 6


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.complex64, np.float16, np.int8, np.bool_])
@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_transposed_operand(on, dtype):
    """out[i, j] = a[j, i] combined with b[i, j], vectors along j; ranges of both dimensions respected."""
    dtype = np.dtype(dtype)
    kind = elementwise(lambda e, x, y: e.xor(x, y)) if dtype == np.bool_ else ADD
    body = (ir.Load(0, 0), ir.Load(1, 1), apply(2, kind, 0, 1, dtype=dtype), ir.Store(2, 2))
    operands = [
        operand(dtype, "in", 1, ir.RUNTIME),
        operand(dtype, "in", ir.RUNTIME, 1),
        operand(dtype, "out", ir.RUNTIME, 1),
    ]
    made = nest((P, P), operands, [ir.Phase(body=body)], 1, on.lanes)
    call, _ = load(made, on)
    for m, n in ((1, 1), (5, 70), (16, 16), (40, 67), (33, 130)):
        a, b = data(n, m).astype(dtype), data(m, n, seed=1).astype(dtype)
        out = np.zeros((m, n), dtype)
        split = (n // 2) & ~7
        call([a, b, out], [m, n, m, n, n], [0, m, 0, split, 0, 0])
        call([a, b, out], [m, n, m, n, n], [0, m // 2, split, n, 0, 0])
        call([a, b, out], [m, n, m, n, n], [m // 2, m, split, n, 0, 0])
        np.testing.assert_array_equal(out, a.T ^ b if dtype == np.bool_ else a.T + b)


@pytest.mark.parametrize("on", TARGETS, ids=lambda t: t.name)
def test_two_reduced_dimensions_with_a_row_buffer(on):
    """x[i, a, b] summed over a and b (not adjacent in memory), then divided by the sum: both forms."""
    divide = elementwise(lambda e, x, y: e.div(x, y))
    x = data(6, 5, 70)

    def phases(tree):
        return [
            ir.Phase(
                body=(ir.Load(0, 0), apply(1, MUL, 0, 0), ir.RowStore(0, 1)),
                reductions=(reduce((2,), total(), (1,), tree=tree),),
            ),
            ir.Phase(body=(ir.RowLoad(3, 0), apply(4, divide, 3, 2), ir.Store(1, 4))),
        ]

    square = x * x
    shape = (P, R, R)
    strides = (ir.RUNTIME, ir.RUNTIME, 1)
    made = nest(
        shape, [operand(F32, "in", *strides), operand(F32, "out", *strides)], phases("row"), 2, on.lanes, (F32,)
    )
    call, _ = load(made, on)
    out = np.zeros_like(x)
    call([x, out], [6, 5, 70, 350, 70, 350, 70], [0, 6, 0, 70, 0, 0], parallel.outline(made).scratch_bytes((6, 5, 70)))
    sums = np.zeros(6, np.float32)
    for a in range(5):
        sums = sums + lanes_tree(square[:, a], np.add, np.float32(0))
    np.testing.assert_array_equal(out, square / sums[:, None, None])

    strides = (1, ir.RUNTIME, ir.RUNTIME)  # lanes along the kept dimension: x[a, b, i]
    made = nest(
        shape, [operand(F32, "in", *strides), operand(F32, "out", *strides)], phases("column"), 0, on.lanes, (F32,)
    )
    call, _ = load(made, on)
    out = np.zeros_like(x)
    call([x, out], [70, 6, 5, 350, 70, 350, 70], [0, 0, 0, 70, 0, 0], parallel.outline(made).scratch_bytes((70, 6, 5)))
    sums = np.zeros(70, np.float32)
    for a in range(6):
        sums = sums + rows_tree(square[a], np.add, np.float32(0))
    np.testing.assert_array_equal(out, square / sums)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8"])
@pytest.mark.parametrize("width", [2, 3, 4, 5])
def test_long_bodies_over_components_of_rows_touch_their_elements_only(dtype, width):
    r = np.random.default_rng(width)

    def long(x, y):
        a, b, c = x[:, 0], x[:, 1], x[:, -1]
        d, e, f = y[:, 0], y[:, 1], y[:, -1]
        halves = b * f - c * e, c * d - a * f, a * e - b * d
        return (*halves, (a * b + c) * (d * e + f) * (a - d) * (b - e) * (c - f) * (a + e) * (b + d) + halves[0])

    for size in (1, 16, 57):
        x, y = (weft.numpy.asarray((r.standard_normal((size, width)) * 4).astype(np.float32), dtype) for _ in range(2))
        for got, expected in zip(weft.jit(long)(x, y), long(x, y), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
        stored = weft.jit(lambda x, y: weft.numpy.zeros_like(x).at[:, 1].set(long(x, y)[3]))(x, y)
        expected = np.zeros_like(x)
        expected[:, 1] = long(x, y)[3]
        np.testing.assert_array_equal(np.asarray(stored), expected)


def test_what_every_column_of_a_sum_over_rows_reads_is_computed_once_by_vectors() -> None:
    """Pairs of particles: one weight for three components."""

    def pull(np: Any, x: Any) -> Any:
        d = x[None] - x[:, None]
        return (d * (((d * d).sum(-1) + 0.1) ** -1.5)[:, :, None]).sum(1)

    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    jitted = weft.jit(lambda x: pull(jnp, x))
    (weights,) = [nest for nest in jitted.lower(x).as_text("loops").split("nest ") if " pow " in nest]
    assert " rows" not in weights.replace("parallel", "") and "store" in weights.split(" pow ")[1]
    np.testing.assert_allclose(np.asarray(jitted(x)), pull(np, x.astype(np.float64)), rtol=1e-4, atol=1e-4)

"""Every emitter method on every dtype, at every width of every target, against NumPy.

One kernel per dtype holds all its methods. Only patterns that pass here may reach LLVM.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.codegen.running import HOST, elementwise, load
from weft import lax, runtime
from weft._base import target
from weft.codegen import compile as compiling
from weft.loops import ir

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
INTEGERS = [np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)]
FLOATS = [BF16, F16, np.dtype(np.float32), np.dtype(np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
BOOL = np.dtype(np.bool_)
NARROW = [np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)]
EVERY = [BOOL, *INTEGERS, *FLOATS, *COMPLEX]
ON = [
    (t, w) for t in target.TARGETS.values() if t.triple == HOST.triple and t.lanes <= HOST.lanes for w in (1, t.lanes)
]
IDS = [f"{t.name}-{w}" for t, w in ON]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def operands(dtype, count=333):
    r = np.random.default_rng(0)
    if dtype == BOOL:
        return r.random(count) < 0.5, r.random(count) < 0.5
    if dtype.kind in "iu" or dtype in NARROW:
        low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
        edges = [low, high, 0, 1, 2, 3, 5, high - 1, low + 1 if low else 7]
        x = np.array([*edges, *r.integers(low, high, count, dtype=np.int64 if low else np.uint64)][:count], object)
        y = np.array([*r.permutation(edges), *r.integers(max(low, -9), 9, count // 2), *x[::-1]][:count], object)
        y[:: len(edges)] = 0 if not low else -1
        return x.astype(np.int64 if low else np.uint64).astype(dtype), y.astype(np.int64 if low else np.uint64).astype(
            dtype
        )
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1e-40, 3.5, 1e30]
    x = np.array([*special, *(r.standard_normal(count) * 3)][:count])
    y = np.array([*r.permutation(special), *(r.standard_normal(count) * 3), *special][:count])
    if dtype in COMPLEX:
        return (x[12:] + 1j * y[12:]).astype(dtype), (y[12:] - 1j * x[12:][::-1]).astype(dtype)
    return x.astype(dtype), y.astype(dtype)


def wrap_divide(x, y):
    out = np.empty_like(x)
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        q = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        out[i] = np.array([q & (2 ** (8 * x.itemsize) - 1)], np.uint64).astype(x.dtype)[0]
    return out


def wrap_remainder(x, y):
    return np.array(
        [a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1) for a, b in zip(x.tolist(), y.tolist())], x.dtype
    )


def logical_shift(x, y):
    bits = 8 * x.itemsize
    mask = 2**bits - 1
    return np.array(
        [(a & mask) >> b if 0 <= b < bits else 0 for a, b in zip(x.tolist(), y.tolist())], np.uint64
    ).astype(x.dtype)


def left_shift(x, y):
    bits = 8 * x.itemsize
    mask = 2**bits - 1
    return np.array(
        [(a << b) & mask if 0 <= b < bits else 0 for a, b in zip(x.tolist(), y.tolist())], np.uint64
    ).astype(x.dtype)


def arithmetic_shift(x, y):
    bits = 8 * x.itemsize
    signed = x.view(f"i{x.itemsize}").tolist()
    shifted = [a >> (b if 0 <= b < bits else bits - 1) for a, b in zip(signed, y.tolist())]
    return np.array(shifted, f"i{x.itemsize}").view(x.dtype)


def bit_count(x):
    return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)


def leading_zeros(x):
    bits = 8 * x.itemsize
    return np.array([bits - (a & (2**bits - 1)).bit_length() for a in x.tolist()], x.dtype)


def extremum(function):
    def reference(x, y):
        if x.dtype.kind == "c":
            return function(x, y)
        wide = x.astype(np.float64) if x.dtype in FLOATS else x
        other = y.astype(np.float64) if x.dtype in FLOATS else y
        return function(wide, other).astype(x.dtype)

    return reference


def half_away(x):
    t = np.trunc(x.astype(np.float64))
    return np.where(np.abs(x.astype(np.float64) - t) >= 0.5, t + np.copysign(1, x.astype(np.float64)), t).astype(
        x.dtype
    )


def fmod(x, y):
    return np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


def by_parts(x, y):
    """NumPy's own product may use fma."""
    return (x.real * y.real - x.imag * y.imag) + 1j * (x.real * y.imag + x.imag * y.real)


COMMON = [  # (method, how many operands, reference)
    ("add", 2, lambda x, y: x + y),
    ("sub", 2, lambda x, y: x - y),
    ("mul", 2, lambda x, y: x * y),
    ("neg", 1, lambda x: (-x.astype(x.dtype)).astype(x.dtype)),
]
ORDER = [
    ("max", 2, extremum(np.maximum)),
    ("min", 2, extremum(np.minimum)),
]
INTEGER = [
    ("div", 2, wrap_divide),
    ("rem", 2, wrap_remainder),
    ("and_", 2, np.bitwise_and),
    ("or_", 2, np.bitwise_or),
    ("xor", 2, np.bitwise_xor),
    ("not_", 1, np.invert),
    ("shift_left", 2, left_shift),
    ("shift_right_logical", 2, logical_shift),
    ("shift_right_arithmetic", 2, arithmetic_shift),
    ("population_count", 1, bit_count),
    ("clz", 1, leading_zeros),
    ("sign", 1, np.sign),
    ("abs", 1, np.abs),
]
FLOAT = [
    ("div", 2, lambda x, y: x / y),
    ("rem", 2, fmod),
    ("abs", 1, np.abs),
    ("sign", 1, lambda x: np.where(x == 0, x, np.sign(x)).astype(x.dtype)),
    ("floor", 1, lambda x: np.floor(x.astype(np.float64)).astype(x.dtype)),
    ("ceil", 1, lambda x: np.ceil(x.astype(np.float64)).astype(x.dtype)),
    ("round_half_even", 1, lambda x: np.rint(x.astype(np.float64)).astype(x.dtype)),
    ("round_half_away", 1, half_away),
    ("nextafter", 2, lambda x, y: np.where(x == y, y, np.nextafter(x, y))),
    ("sqrt", 1, lambda x: np.sqrt(x.astype(np.float64)).astype(x.dtype)),
]
LOGIC = [
    ("and_", 2, np.logical_and),
    ("or_", 2, np.logical_or),
    ("xor", 2, np.logical_xor),
    ("not_", 1, np.logical_not),
]
LOGIC += [("max", 2, np.logical_or), ("min", 2, np.logical_and)]
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def methods(dtype):
    """(label, scalar, reference, result dtype) of everything a dtype can do."""
    if dtype == BOOL:
        table = LOGIC
    elif dtype.kind in "iu":
        table = COMMON + ORDER + INTEGER
    elif dtype in FLOATS:
        table = COMMON + ORDER + FLOAT
    else:
        table = [row if row[0] != "mul" else ("mul", 2, by_parts) for row in COMMON]
    rows = []
    for name, count, reference in table:
        if count == 1:
            rows.append((name, lambda e, x, y, n=name: getattr(e, n)(x), lambda x, y, r=reference: r(x), dtype))
        else:
            rows.append((name, lambda e, x, y, n=name: getattr(e, n)(x, y), reference, dtype))
    for name, function in COMPARISONS.items():
        if dtype in COMPLEX and name not in ("eq", "ne"):
            continue
        rows.append((name, lambda e, x, y, n=name: e.compare(n, x, y), function, BOOL))
    rows.append(
        ("select", lambda e, x, y: e.select(e.compare("eq", x, y), x, y), lambda x, y: np.where(x == y, y, x), dtype)
    )
    if dtype in FLOATS:
        rows.append(("is_finite", lambda e, x, y: e.is_finite(x), lambda x, y: np.isfinite(x.astype(np.float64)), BOOL))
        rows.append(
            ("bits", lambda e, x, y: e.bitcast(e.bitcast(x, f"i{dtype.itemsize}"), dtype), lambda x, y: x, dtype)
        )
        rows.append(("cube", lambda e, x, y: e.integer_pow(x, -3), None, dtype))
    if dtype in COMPLEX:
        real = np.dtype(f"f{dtype.itemsize // 2}")
        rows.append(("real", lambda e, x, y: e.real(x), lambda x, y: x.real, real))
        rows.append(("imag", lambda e, x, y: e.imag(x), lambda x, y: x.imag, real))
        rows.append(("conj", lambda e, x, y: e.conj(x), lambda x, y: np.conj(x), dtype))
        rows.append(
            ("complex", lambda e, x, y: e.complex(e.imag(x), e.real(y)), lambda x, y: x.imag + 1j * y.real, dtype)
        )
    return rows


def many(rows, dtypes, width):
    """One nest that applies every row to the same loads and stores every result."""
    n = len(dtypes)
    body = [ir.Load(k, k) for k in range(n)]
    kinds_operands = [ir.Operand(d, "in", (1,)) for d in dtypes]
    for k, (label, scalar, _, out) in enumerate(rows):
        kind = elementwise(scalar)
        body += [ir.Apply(n + k, label, kind, (), tuple(range(n)), out), ir.Store(n + k, n + k)]
        kinds_operands.append(ir.Operand(out, "out", (1,)))
    phase = ir.Phase(body=tuple(body))
    return ir.Nest((ir.Dim("parallel"),), tuple(kinds_operands), (), (), 0, width, False, (), (phase,))


def run_many(rows, arrays, on, width):
    call, _ = load(many(rows, [a.dtype for a in arrays], width), on)
    n = len(arrays[0])
    outs = [np.zeros(n, r[3]) for r in rows]
    call([*arrays, *outs], [n], [0, 0, 0, n, 0, 0])
    return outs


def same(got, want):
    """Equal bits, but for the payloads of NaN; half precisions compared in float32."""
    if got.dtype in (BF16, F16):
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        ordinary = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[ordinary]), np.signbit(want[ordinary]))


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_methods(dtype, on, width):
    x, y = operands(dtype)
    rows = methods(dtype)
    for (label, _, reference, out), got in zip(rows, run_many(rows, [x, y], on, width), strict=True):
        if reference is None:
            continue
        want = np.asarray(reference(x, y)).astype(out)
        if label in ("max", "min") and dtype in FLOATS:  # the sign of an equal zero is ours to choose
            got, want = got + np.zeros((), dtype), want + np.zeros((), dtype)
        try:
            same(got, want)
        except AssertionError as error:
            raise AssertionError(f"{label} {dtype}: {error}") from None


def saturate(x, dtype):
    """Float to integer: toward zero, clamped, NaN to 0."""
    info = np.iinfo(dtype)
    wide = x.astype(np.float64)
    return (
        np.array([0 if np.isnan(v) else int(max(min(v, 2.0**70), -(2.0**70))) for v in wide], object)
        .clip(info.min, info.max)
        .astype(dtype)
    )


def conversion(x, dtype):
    if dtype == BOOL:
        return x != 0
    if x.dtype in FLOATS and dtype.kind in "iu":
        return saturate(x, dtype)
    if x.dtype in COMPLEX and dtype not in COMPLEX:
        return conversion(x.real, dtype)
    if dtype in (BF16, F16):
        if x.dtype == np.float64:
            return from_double(x, dtype)
        return x.astype(np.float32).astype(dtype)
    return x.astype(dtype)


def from_double(x, dtype):
    """One rounding: ml_dtypes rounds twice."""
    if dtype == F16:
        return x.astype(F16)
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    inward = np.where(np.abs(near.astype(np.float64)) > np.abs(x), bits - 1, bits)
    odd = np.where(np.isfinite(x) & (near.astype(np.float64) != x), inward | 1, bits).astype(np.uint32)
    return odd.view(np.float32).astype(BF16)


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_conversions(dtype, on, width):
    x, _ = operands(dtype)
    if dtype == np.float64:
        x = np.concatenate([x, np.float64(1) + 2.0**-9 + 2.0 ** -np.arange(30.0, 40), [65504.1, 65519.99999, 65520.0]])
    others = [d for d in EVERY if d != dtype and not (dtype == BOOL and d in COMPLEX)]
    rows = [(str(d), lambda e, v, d=d: e.convert(v, d), None, d) for d in others]
    for d, got in zip(others, run_many(rows, [x], on, width), strict=True):
        try:
            same(got, conversion(x, d))
        except AssertionError as error:
            raise AssertionError(f"{dtype} -> {d}: {error}") from None


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_beside_the_ends_of_an_integer_type_saturate(dtype, on, width):
    ends = np.array([s * 2.0**k for k in (0, 7, 8, 15, 16, 31, 32, 63, 64) for s in (-1, 1)], dtype)
    x = np.concatenate([ends, np.nextafter(ends, dtype(0)), np.nextafter(ends, 2 * ends), ends + dtype(0.5)])
    rows = [(str(d), lambda e, v, d=d: e.convert(v, d), None, d) for d in INTEGERS]
    for d, got in zip(INTEGERS, run_many(rows, [x], on, width), strict=True):
        np.testing.assert_array_equal(got, saturate(x, d), str(d))


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_is_exact_beside_multiples_of_the_divisor(dtype, on, width):
    r, bits, info = np.random.default_rng(6), 8 * dtype.itemsize, np.iinfo(dtype)
    sizes = [r.integers(0, 2**64, 4000, np.uint64) >> r.integers(64 - bits, 64, 4000, np.uint64) for _ in range(2)]
    x, y = (s.astype(dtype) for s in sizes)
    y = np.where(r.random(y.size) < 0.5, y, -y).astype(dtype) if info.min else y
    y = np.where(y == 0, dtype.type(3), y)
    exact = x - wrap_remainder(x, y)
    top = np.full(y.shape, info.max)
    x = np.concatenate([x, exact, exact - 1, exact + 1, top, ~top]).astype(dtype)
    y = np.tile(y, 6)
    rows = [("div", lambda e, a, b: e.div(a, b), None, dtype), ("rem", lambda e, a, b: e.rem(a, b), None, dtype)]
    quotient, rest = run_many(rows, [x, y], on, width)
    np.testing.assert_array_equal(quotient, wrap_divide(x, y))
    np.testing.assert_array_equal(rest, wrap_remainder(x, y))


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", INTEGERS[:4], ids=str)
def test_natural_quotients_by_one_number_are_exact(dtype, on, width):
    top, r = int(np.iinfo(dtype).max), np.random.default_rng(8)
    near = [2**k + off for k in range(8 * dtype.itemsize) for off in (-1, 0, 1)]
    divisors = sorted({n for n in [3, 7, 10, 100, 1000, 10**9 + 7, 10**12 + 39, top, *near] if 2 <= n <= top})
    natural = elementwise(lambda e, a, b: e.natural_quotient(a, b))
    body = (ir.Load(0, 0), ir.Load(1, 1), ir.Apply(2, "q", natural, (), (0, 1), dtype), ir.Store(2, 2))
    walks = [("in", (1,)), ("in", (0,)), ("out", (1,))]
    operands = tuple([ir.Operand(dtype, role, strides) for role, strides in walks])
    nest = ir.Nest((ir.Dim("parallel"),), operands, (), (), 0, width, False, (), (ir.Phase(body=body),))
    call, _ = load(nest, on)
    for y in divisors:
        near = r.integers(0, top // y, 200, dtype, endpoint=True) * dtype.type(y)
        x = np.concatenate([near, near[near > 0] - 1, r.integers(0, top, 200, dtype), np.array([0, 1, top], dtype)])
        found = np.zeros_like(x)
        call([x, np.array([y], dtype), found], [x.size], [0, 0, 0, x.size, 0, 0])
        np.testing.assert_array_equal(found, x // dtype.type(y), f"by {y}")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_divided_by_one_number_are_exact_for_every_pair(dtype):
    numbers = np.arange(256).astype(np.uint8).view(dtype)
    x = np.tile(numbers, 2)[:331]  # whole vectors and a part of one
    both = weft.jit(lambda x, y: (lax.div(x, y), lax.rem(x, y)))
    for y in numbers:
        quotient, rest = both(x, y)
        np.testing.assert_array_equal(quotient, wrap_divide(x, np.full_like(x, y)))
        np.testing.assert_array_equal(rest, wrap_remainder(x, np.full_like(x, y)))


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_divided_by_one_number_are_exact(dtype, on, width):
    info, r = np.iinfo(dtype), np.random.default_rng(7)
    near = [sign * (2**k + off) for k in range(info.bits) for off in (-1, 0, 1) for sign in (1, -1)]
    edges = sorted({n for n in [info.min, info.max, 3, 7, 10, 1_000_003, *near] if info.min <= n <= info.max})
    x = np.array([*edges, *r.integers(info.min, info.max, 300 - len(edges) % 16, dtype)], dtype)
    rem, div = (elementwise(lambda e, a, b, f=f: getattr(e, f)(a, b)) for f in ("rem", "div"))
    body = (ir.Load(0, 0), ir.Load(1, 1), ir.Apply(2, "div", div, (), (0, 1), dtype), ir.Store(2, 2))
    body = (*body, ir.Apply(3, "rem", rem, (), (0, 1), dtype), ir.Store(3, 3))
    walks = [("in", (1,)), ("in", (0,)), ("out", (1,)), ("out", (1,))]
    operands = tuple([ir.Operand(dtype, role, strides) for role, strides in walks])
    phase = ir.Phase(body=body)
    call, _ = load(ir.Nest((ir.Dim("parallel"),), operands, (), (), 0, width, False, (), (phase,)), on)
    quotient, rest = np.zeros_like(x), np.zeros_like(x)
    for y in r.permutation(np.array(edges, dtype))[:60]:
        call([x, y.reshape(1), quotient, rest], [x.size], [0, 0, 0, x.size, 0, 0])
        np.testing.assert_array_equal(quotient, wrap_divide(x, np.full_like(x, y)), f"by {y}")
        np.testing.assert_array_equal(rest, wrap_remainder(x, np.full_like(x, y)), f"by {y}")


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS[:2], *INTEGERS[4:6]], ids=str)
@pytest.mark.parametrize("size", [0, 1, 15, 63, 64, 65, 127, 128, 129, 331])
def test_whole_registers_of_short_integers_leave_what_follows_alone(dtype, size):
    x, y = (v[:size] for v in operands(dtype))
    out = weft.jit(lambda x, y: (lax.select(x < y, x ^ y, lax.max(x, y)), lax.rev(x | y, (0,))))(x, y)
    np.testing.assert_array_equal(out[0], np.where(x < y, x ^ y, np.maximum(x, y)))
    np.testing.assert_array_equal(out[1], (x | y)[::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_divided_by_one_number_are_exact(dtype):
    r, info = np.random.default_rng(3), np.finfo(dtype)
    patterns = r.integers(0, 256, 4000 * info.dtype.itemsize, dtype=np.uint8).view(dtype)
    plain = [r.uniform(-8, 8, 2000), 2.0 ** r.uniform(-1074, -850, 1000), [0.0, -0.0, np.inf, -np.inf, np.nan]]
    divisors = [2, 3, 6, -7, 2 - info.epsneg, 1 + info.eps, 2.0**60, 2.0**61, 0.1, 0, -0.0, np.inf, np.nan]
    extreme = [info.max, info.tiny, info.smallest_subnormal]
    both = weft.jit(lambda x, y: (lax.div(x, y), lax.rem(x, y)))
    for y in np.array([*divisors, *extreme, *2 ** r.uniform(0, 61, 8)]).astype(dtype):
        near = (
            r.integers(0, 2**20, 2000).astype(dtype) * y
        )  # what is left of them is nearly nothing, of others nearly all
        x = np.concatenate(
            [patterns, *plain, near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)], dtype=dtype
        )
        with weft.enable_x64(True):
            quotient, rest = both(x, y)
        same(quotient, x / y)
        same(rest, np.fmod(x, y))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_extrema_with_one_number_are_those_with_an_array(dtype):
    x = np.concatenate(operands(dtype))
    for function in (lax.max, lax.min):
        three = weft.jit(lambda x, y, z, f=function: (f(x, z), f(x, y), f(y, x)))
        for y in np.array([0.0, -0.0, 1.0, -0.3, np.inf, -np.inf, np.nan], dtype):
            with weft.enable_x64(True):
                want, *both = three(x, y, np.full_like(x, y))
            same(both[0], want)
            same(both[1], want)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 1000, 65536])
def test_bfloat16_in_even_and_odd_lanes_stay_where_they_are(size):
    """Vectors of nothing but bfloat16 hold the even lanes in one register, the odd ones in another."""
    x: Any = np.random.default_rng(size).permutation(65536).astype(np.uint16)[:size].view(BF16)
    y: Any = x[::-1].copy()
    function = weft.jit(
        lambda x, y: (-x, abs(x), x + y, weft.numpy.where(x > y, x[::-1], y * 2), weft.numpy.copysign(x, y))
    )
    expected = -x, abs(x), x + y, np.where(x > y, x[::-1], y * BF16.type(2)), np.copysign(x, y)
    for got, want in zip(function(x, y), expected, strict=True):
        got, nan = np.asarray(got), np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


def test_bfloat16_arithmetic_keeps_every_nan():
    every = np.arange(1 << 16).astype(np.uint16).view(BF16)
    nan = every[np.isnan(every.astype(np.float32))]
    others = np.array([0, -0.0, 1, 3e38, np.inf, -np.inf, 1e-40, np.nan], BF16)
    for y in others:
        for out in weft.jit(lambda x, y: (x + y, y - x, x * y, x / y, y / x, lax.sqrt(x * y) + y))(nan, y):
            assert np.isnan(np.asarray(out, np.float32)).all()
    wild = np.array([0x7F800001, 0x7FBFFFFF, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0xFFFF8000], np.uint32)
    assert np.isnan(np.asarray(weft.jit(lambda x: x.astype(BF16))(wild.view(np.float32)), np.float32)).all()


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
def test_half_precision_rounds_once_to_nearest_even(on, width):
    """Every float32 pattern class: ties, subnormals, overflow, NaN."""
    r = np.random.default_rng(4)
    bits = r.integers(0, 2**32, 20_000, dtype=np.uint32)
    ties = (r.integers(0, 2**16, 5000, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    for dtype in (BF16, F16):
        got = run_many([("half", lambda e, v, d=dtype: e.convert(v, d), None, dtype)], [x], on, width)[0]
        same(got, x.astype(dtype))


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
def test_total_order_and_integer_power(on, width):
    x, y = operands(np.dtype(np.float32))
    rows = [("lt_to", lambda e, a, b: e.compare("lt_to", a, b), None, BOOL)]
    got = run_many(rows, [x, y], on, width)[0]
    keys = [v.view(np.int32) ^ ((v.view(np.int32) >> 31) & 0x7FFFFFFF) for v in (x, y)]
    np.testing.assert_array_equal(got, keys[0] < keys[1])
    base, power = np.arange(-20, 20, dtype=np.int32), np.arange(40, dtype=np.int32) % 13
    rows = [("pow", lambda e, a, b: e.pow(a, b), None, np.dtype(np.int32))]
    np.testing.assert_array_equal(run_many(rows, [base, power], on, width)[0], base**power)


@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (8, 23), (11, 52)])
def test_reduce_precision(exponent, mantissa):
    x = np.concatenate([operands(np.dtype(np.float32))[0], np.float32(2.0) ** np.arange(-30, 30, dtype=np.float32)])
    scalar = lambda e, v: e.reduce_precision(v, exponent, mantissa)
    got = run_many([("reduce", scalar, None, x.dtype)], [x], HOST, HOST.lanes)[0]
    if mantissa >= 23:
        same(got, x)
        return
    small = {10: F16, 7: BF16}.get(mantissa)
    if small is not None:
        want = x.astype(small).astype(np.float32)
        least = np.float32(2.0 ** (2 - 2 ** (exponent - 1)))
        flushed = np.where(np.abs(want) < least, np.copysign(np.float32(0), x), want) if exponent < 8 else want
        same(got, flushed)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_integers_wrap(dtype):
    x, y = operands(dtype)
    rows = [(n, lambda e, a, b, n=n: getattr(e, n)(a, b), None, dtype) for n in ("add", "sub", "mul", "max")]
    wide = [v.astype(np.int32) for v in (x, y)]
    wants = [wide[0] + wide[1], wide[0] - wide[1], wide[0] * wide[1], np.maximum(*wide)]
    for got, want in zip(run_many(rows, [x, y], HOST, HOST.lanes), wants, strict=True):
        low = want & 15
        want = np.where(low > 7, low - 16, low) if dtype == NARROW[0] else low
        np.testing.assert_array_equal(got.astype(np.int32), want)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("on", target.TARGETS.values(), ids=lambda t: t.name)
def test_objects_need_nothing_from_outside(dtype, on):
    """Machine code for every target, other processors too, links without external symbols."""
    rows = methods(dtype)
    made = compiling.compile_nest(many(rows, [dtype, dtype], on.lanes), on)
    image, _ = runtime.link_kernel(made.bytes, made.symbol)
    assert image
    assert "k:" in compiling.assembly(made, on)


BYTES = [
    "float8_e3m4",
    "float8_e4m3",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]


@pytest.mark.parametrize(("on", "width"), ON, ids=IDS)
@pytest.mark.parametrize("name", BYTES)
def test_one_byte_floats(name, on, width):
    """Every code is read exactly; float32 and float64 are rounded to nearest even."""
    dtype, f32 = np.dtype(getattr(ml_dtypes, name)), np.dtype(np.float32)
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    widen = lambda e, v: e.convert(v, f32)
    same(run_many([("widen", widen, None, f32)], [codes], on, width)[0], codes.astype(np.float32))
    values = codes.astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    ties = (finite[1:] + finite[:-1]) / 2
    r = np.random.default_rng(0)
    special = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, -1e-45, 0, -0.0], np.float32)
    near = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    random = r.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([*near, special, random, values, finite[-1:] * np.float32(1.06), finite[-1:] * np.float32(1.1)])
    narrow = lambda e, v: e.convert(v, dtype)
    got = run_many([("narrow", narrow, None, dtype)], [x], on, width)[0]
    same(got.astype(np.float32), x.astype(dtype).astype(np.float32))

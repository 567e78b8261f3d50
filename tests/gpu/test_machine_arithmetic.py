"""Instructions as LLVM writes them, in the machine: NumPy's bits over random patterns, extremes, NaN and denormals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import native_build
from tests.gpu.llvm_ptx import elementwise, ptx
from tests.gpu.ptx_machine import Buffer, Module

pytestmark = pytest.mark.skipif(native_build.compiler() is None, reason="there is no C++ compiler")

N = 4096
BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {"half": np.dtype(np.float16), "bfloat": BF16, "float": np.dtype(np.float32), "double": np.dtype(np.float64)}
TYPES |= {f"i{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
NAMES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


def patterns(dtype: np.dtype, seed: int, n: int = N) -> np.ndarray:
    """Random bits, of which some are small numbers, zeros, infinities, the ends and NaN."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, (n, dtype.itemsize), np.uint8).view(f"u{dtype.itemsize}").ravel()
    values = bits.view(dtype).copy()
    if dtype.kind != "u":
        near = rng.standard_normal(n).astype(dtype)
        values[n // 4 : n // 2] = near[n // 4 : n // 2]
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5]).astype(dtype)
        values[: 7 * 9] = rng.permutation(np.repeat(special, 9))
    else:
        values[n // 2 :] %= np.array(17).astype(dtype)
        values[:4] = np.array([0, 1, 2, 3]).astype(dtype)
    return values


def run(
    result: str, kinds: list[str], body: str, arrays: list[np.ndarray], declarations: str = "", cpu: str = "sm_90"
) -> Any:
    module = Module(ptx(elementwise(result, kinds, body, declarations), cpu))
    n = arrays[0].size
    out = Buffer(n * TYPES[result].itemsize)
    module.launch("k", -(-n // 128), 128, *[Buffer.of(x) for x in arrays], out, n)
    return out.read(n, TYPES[result])


def same(got: np.ndarray, want: np.ndarray) -> None:
    """The same bits; any NaN is NaN."""
    want = np.asarray(want).astype(got.dtype)
    bits = f"u{got.dtype.itemsize}"
    ok = got.view(bits) == want.view(bits)
    if got.dtype.kind != "u":
        ok |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    assert ok.all(), (np.flatnonzero(~ok)[:5], got[~ok][:5], want[~ok][:5])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of NaN and overflow, of which the operands are full."""
    with np.errstate(all="ignore"):
        yield


def narrowed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 rounded once; to bfloat16 by float32 rounded to odd, as the library goes by float32."""
    if dtype != BF16:
        return x.astype(dtype)
    near = x.astype(np.float32)
    near = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    return (near.view(np.uint32) | (near != x).astype(np.uint32)).view(np.float32).astype(BF16)


FLOAT_OPS: dict[str, Callable[..., Any]] = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide}


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
@pytest.mark.parametrize("name", list(FLOAT_OPS))
def test_arithmetic_of_floats(kind: str, name: str) -> None:
    a, b = (patterns(TYPES[kind], seed) for seed in (1, 2))
    with np.errstate(all="ignore"):
        if kind in ("half", "bfloat"):
            want = FLOAT_OPS[name](a.astype(np.float64), b.astype(np.float64))
        else:
            want = FLOAT_OPS[name](a, b)
        want = want.astype(TYPES[kind])
    same(run(kind, [kind, kind], f"  %r = {name} {kind} %x0, %x1\n", [a, b]), want)


def fused(a: float, b: float, c: float, odd: bool) -> float:
    """a * b + c as float64, rounded once: to nearest, or to odd so that it may be rounded again."""
    if not np.isfinite([a, b, c]).all():
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        near = float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf
    if odd and Fraction(near) != exact and not int(np.float64(near).view(np.uint64)) & 1:
        near = float(np.nextafter(near, np.inf if exact > Fraction(near) else -np.inf))
    return near


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
def test_fma_is_rounded_once(kind: str) -> None:
    a, b, c = (patterns(TYPES[kind], seed, 2048) for seed in (3, 4, 5))
    operands = zip(*[x.astype(np.float64).tolist() for x in (a, b, c)], strict=True)
    want = narrowed(np.array([fused(*x, odd=kind != "double") for x in operands]), TYPES[kind])
    call = f"  %r = call {kind} @llvm.fma.{NAMES[kind]}({kind} %x0, {kind} %x1, {kind} %x2)\n"
    declared = f"declare {kind} @llvm.fma.{NAMES[kind]}({kind}, {kind}, {kind})"
    same(run(kind, [kind] * 3, call, [a, b, c], declared), want)


UNARY: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "fabs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint
}  # fmt: skip


@pytest.mark.parametrize("kind", ["half", "float", "double"])
@pytest.mark.parametrize("name", list(UNARY))
def test_functions_of_one_float(kind: str, name: str) -> None:
    a = patterns(TYPES[kind], 6)
    called = f"@llvm.{name}.{NAMES[kind]}"
    with np.errstate(all="ignore"):
        want = UNARY[name](a.astype(np.float64)).astype(TYPES[kind]) if kind == "half" else UNARY[name](a)
    body = f"  %r = call {kind} {called}({kind} %x0)\n"
    same(run(kind, [kind], body, [a], f"declare {kind} {called}({kind})"), want)


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
def test_extremes_follow_their_rule_for_nan(kind: str) -> None:
    a, b = (patterns(TYPES[kind], seed) for seed in (7, 8))
    wide = [x.astype(np.float64) for x in (a, b)]
    for name, reference in (("maximum", np.maximum), ("minimum", np.minimum), ("maxnum", np.fmax), ("minnum", np.fmin)):
        called = f"@llvm.{name}.{NAMES[kind]}"
        body = f"  %r = call {kind} {called}({kind} %x0, {kind} %x1)\n"
        got = run(kind, [kind, kind], body, [a, b], f"declare {kind} {called}({kind}, {kind})").astype(np.float64)
        with np.errstate(all="ignore"):
            want = reference(*wide)
        np.testing.assert_array_equal(got, want)
        if name == "maximum":  # zeros have an order
            zeros = (wide[0] == 0) & (wide[1] == 0)
            assert (np.signbit(got[zeros]) == (np.signbit(wide[0][zeros]) & np.signbit(wide[1][zeros]))).all()


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
def test_comparisons(kind: str) -> None:
    a, b = (patterns(TYPES[kind], seed) for seed in (9, 10))
    b[::3] = a[::3]
    x, y = a.astype(np.float64), b.astype(np.float64)
    unordered = np.isnan(x) | np.isnan(y)
    ordered = {"oeq": x == y, "olt": x < y, "ole": x <= y, "ogt": x > y, "oge": x >= y, "one": (x != y) & ~unordered}
    wants = {**ordered, **{f"u{name[1:]}": value | unordered for name, value in ordered.items()}}
    for name, want in {**wants, "uno": unordered, "ord": ~unordered}.items():
        body = f"  %c = fcmp {name} {kind} %x0, %x1\n  %r = zext i1 %c to i32\n"
        np.testing.assert_array_equal(run("i32", [kind, kind], body, [a, b]), want.astype(np.uint32), name)


def signed(x: np.ndarray) -> np.ndarray:
    return x.view(x.dtype.str.replace("u", "i"))


def divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotients towards zero."""
    return np.array([abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(x, y, strict=True)])


INTEGER_OPS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "udiv": lambda x, y: x // y,
    "urem": lambda x, y: x % y,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "sdiv": lambda x, y: divided(signed(x), signed(y)).astype(signed(x).dtype).view(x.dtype),
    "srem": lambda x, y: (signed(x) - divided(signed(x), signed(y)).astype(signed(x).dtype) * signed(y)).view(x.dtype),
}


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("name", list(INTEGER_OPS))
def test_arithmetic_of_integers(kind: str, name: str) -> None:
    a, b = (patterns(TYPES[kind], seed, 1024) for seed in (11, 12))
    if "div" in name or "rem" in name:
        b[b == 0] = 3
        b[b == np.iinfo(b.dtype).max] = 5  # the least number over -1 has no quotient
    with np.errstate(all="ignore"):
        want = INTEGER_OPS[name](a, b)
    same(run(kind, [kind, kind], f"  %r = {name} {kind} %x0, %x1\n", [a, b]), want)


@pytest.mark.parametrize("kind", ["i16", "i32", "i64"])
def test_shifts_and_rotations(kind: str) -> None:
    a, width = patterns(TYPES[kind], 13), 8 * TYPES[kind].itemsize
    by = (np.random.default_rng(14).integers(0, width, N)).astype(a.dtype)
    same(run(kind, [kind, kind], f"  %r = shl {kind} %x0, %x1\n", [a, by]), a << by)
    same(run(kind, [kind, kind], f"  %r = lshr {kind} %x0, %x1\n", [a, by]), a >> by)
    same(run(kind, [kind, kind], f"  %r = ashr {kind} %x0, %x1\n", [a, by]), (signed(a) >> signed(by)).view(a.dtype))
    called = f"@llvm.fshl.{kind}({kind} %x0, {kind} %x0, {kind} %x1)"
    got = run(
        kind,
        [kind, kind],
        f"  %r = call {kind} {called}\n",
        [a, by],
        f"declare {kind} @llvm.fshl.{kind}({kind}, {kind}, {kind})",
    )
    same(got, (a << by) | np.where(by == 0, a, a >> ((width - by) % width).astype(a.dtype)))


@pytest.mark.parametrize("kind", ["i32", "i64"])
def test_counts_and_orders_of_bits(kind: str) -> None:
    a, width = patterns(TYPES[kind], 15), 8 * TYPES[kind].itemsize
    texts = [f"{int(x):0{width}b}" for x in a]
    wants = {
        "ctpop": [text.count("1") for text in texts],
        "ctlz": [len(text) - len(text.lstrip("0")) for text in texts],
        "cttz": [len(text) - len(text.rstrip("0")) for text in texts],
        "bitreverse": [int(text[::-1], 2) for text in texts],
        "bswap": a.byteswap(),
    }
    for name, want in wants.items():
        flag, declared = (", i1 false", ", i1") if name in ("ctlz", "cttz") else ("", "")
        body = f"  %r = call {kind} @llvm.{name}.{kind}({kind} %x0{flag})\n"
        got = run(kind, [kind], body, [a], f"declare {kind} @llvm.{name}.{kind}({kind}{declared})")
        np.testing.assert_array_equal(got, np.array(want, a.dtype), name)


def test_wide_products_and_carries() -> None:
    a, b = (patterns(np.dtype(np.uint64), seed) for seed in (16, 17))
    body = """
  %a = zext i64 %x0 to i128
  %b = sext i64 %x1 to i128
  %p = mul i128 %a, %b
  %s = add i128 %p, %a
  %h = lshr i128 %s, 64
  %l = trunc i128 %s to i64
  %g = trunc i128 %h to i64
  %r = xor i64 %l, %g
"""
    want = []
    for x, y in zip(a.tolist(), signed(b).tolist(), strict=True):
        s = (x * y + x) % 2**128
        want.append((s >> 64) ^ (s % 2**64))
    np.testing.assert_array_equal(run("i64", ["i64", "i64"], body, [a, b]), np.array(want, np.uint64))


ALL_16 = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_all_values_of_16_bits_are_widened(kind: str) -> None:
    x = ALL_16.view(TYPES[kind])
    same(run("float", [kind], f"  %r = fpext {kind} %x0 to float\n", [x]), x.astype(np.float32))
    same(run("double", [kind], f"  %r = fpext {kind} %x0 to double\n", [x]), x.astype(np.float64))


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_narrowing_to_16_bits_rounds_to_nearest_even(kind: str) -> None:
    x = ALL_16.view(TYPES[kind]).astype(np.float32)
    with np.errstate(all="ignore"):
        middle = ((x.astype(np.float64) + np.roll(x, -1)) / 2).astype(np.float32)
    values = np.concatenate([x, middle, np.nextafter(middle, np.float32(0)), patterns(np.dtype(np.float32), 18)])
    with np.errstate(all="ignore"):
        same(run(kind, ["float"], f"  %r = fptrunc float %x0 to {kind}\n", [values]), values.astype(TYPES[kind]))
    if kind == "half":
        double = np.concatenate([values.astype(np.float64), patterns(np.dtype(np.float64), 19)])
        with np.errstate(all="ignore"):
            same(run(kind, ["double"], f"  %r = fptrunc double %x0 to {kind}\n", [double]), double.astype(np.float16))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_integers_of_floats_saturate(kind: str) -> None:
    x = patterns(TYPES[kind], 20)
    x[-8:] = np.array([2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**32, 2.0**64, 1e30, -1e30]).astype(x.dtype)
    for to, size in (("i32", 4), ("i64", 8)):
        for sign in ("si", "ui"):
            called = f"@llvm.fpto{sign}.sat.{to}.{NAMES[kind]}"
            got = run(to, [kind], f"  %r = call {to} {called}({kind} %x0)\n", [x], f"declare {to} {called}({kind})")
            info = np.iinfo(f"{'i' if sign == 'si' else 'u'}{size}")
            want = [0 if v != v else int(min(max(v, info.min), info.max)) for v in x.tolist() for v in [exact(v)]]
            np.testing.assert_array_equal(got, np.array([v % 2 ** (8 * size) for v in want], got.dtype), f"{sign} {to}")


def exact(value: float) -> Any:
    """The whole number towards zero, of any size; NaN and infinities as they are."""
    return value if value != value or value in (np.inf, -np.inf) else int(value)


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
def test_floats_of_integers_are_rounded_once(kind: str) -> None:
    for size in (4, 8):
        x = patterns(TYPES[f"i{8 * size}"], 21)
        for op, values in (("uitofp", x), ("sitofp", signed(x))):
            if kind in ("float", "double") or size == 4:
                with np.errstate(all="ignore"):
                    want = values.astype(TYPES[kind]) if kind != "bfloat" else values.astype(np.float64).astype(BF16)
                same(run(kind, [f"i{8 * size}"], f"  %r = {op} i{8 * size} %x0 to {kind}\n", [x]), want)


def test_narrow_integers_and_selections() -> None:
    a, b = (patterns(np.dtype(np.uint8), seed) for seed in (22, 23))
    body = """
  %c = icmp slt i8 %x0, %x1
  %s = sext i8 %x0 to i32
  %z = zext i8 %x1 to i32
  %r = select i1 %c, i32 %s, i32 %z
"""
    x, y = signed(a), signed(b)
    want = np.where(x < y, x.astype(np.int32), b.astype(np.int32)).view(np.uint32)
    np.testing.assert_array_equal(run("i32", ["i8", "i8"], body, [a, b]), want)


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90", "sm_100"])
def test_every_processor_has_the_same_bits(cpu: str) -> None:
    a, b = (patterns(BF16, seed) for seed in (24, 25))
    body = "  %s = fadd bfloat %x0, %x1\n  %r = fmul bfloat %s, %x0\n"
    with np.errstate(all="ignore"):
        total = (a.astype(np.float64) + b.astype(np.float64)).astype(BF16)
        want = (total.astype(np.float64) * a.astype(np.float64)).astype(BF16)
    same(run("bfloat", ["bfloat", "bfloat"], body, [a, b], cpu=cpu), want)

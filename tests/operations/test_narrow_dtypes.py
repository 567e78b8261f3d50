"""Floats below 16 bits and integers below 8: operations on all values and on all pairs, beside ml_dtypes.

Floats are computed in float32 and rounded once by ml_dtypes' own conversion; where a format has no NaN, NaN is -0.
Integers are Python's, modulo the number of their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, random

FLOATS = [
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip
INTEGERS = ["int2", "int4", "uint2", "uint4"]
WITHOUT_NAN = ("float4", "float6")
UNARY = {
    "neg": np.negative, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "exp": np.exp, "log": np.log,
    "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sqrt": np.sqrt,
    "cbrt": np.cbrt, "square": np.square, "abs": np.abs, "atan": np.arctan,
}  # fmt: skip
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "rem": np.fmod}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
EXTREMA = {"max": np.maximum, "min": np.minimum}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def values(name: str) -> np.ndarray:
    """All values of a dtype."""
    bits = {"float8": 8, "float6": 6, "float4": 4}.get(name.split("_")[0]) or int(name[-1])
    return np.arange(2**bits, dtype=np.uint8).view(dtype_of(name))


def rounded(wide: np.ndarray, name: str) -> np.ndarray:
    out = np.asarray(wide, np.float32).astype(dtype_of(name))
    if name.startswith(WITHOUT_NAN):
        out = np.where(np.isnan(wide), np.asarray(-0.0).astype(out.dtype), out)
    return out


def assert_same(got: Any, want: np.ndarray, what: str, signs: bool = True) -> None:
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape, what
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = np.isnan(a) & np.isnan(b) | (a == b) & ((np.signbit(a) == np.signbit(b)) | (not signs))
    assert same.all(), f"{what}: {a[~same][:5]}, not {b[~same][:5]}"


def both(function: Callable[..., Any], *args: Any) -> list[Any]:
    """What a function gives under jit and without."""
    return [weft.jit(function)(*args), function(*[jnp.asarray(a) for a in args])]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_every_float(name: str) -> None:
    x = values(name)
    wide = x.astype(np.float32)
    found = weft.jit(lambda x: {op: getattr(lax, op)(x) for op in UNARY})(x)
    for op, function in UNARY.items():
        assert_same(found[op], rounded(function(wide), name), op, signs=op != "sign")
    assert np.asarray(weft.jit(lax.is_finite)(x)).tolist() == np.isfinite(wide).tolist()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_on_every_pair_of_floats(name: str) -> None:
    x, y = np.repeat(values(name), values(name).size), np.tile(values(name), values(name).size)
    a, b = x.astype(np.float32), y.astype(np.float32)
    found = weft.jit(lambda x, y: {op: getattr(lax, op)(x, y) for op in [*BINARY, *COMPARE, *EXTREMA, "nextafter"]})(
        x, y
    )
    for op, function in BINARY.items():
        assert_same(found[op], rounded(function(a, b), name), op)
    for op, function in COMPARE.items():
        assert_same(found[op], function(a, b), op)
    for op, function in EXTREMA.items():
        assert_same(found[op], rounded(function(a, b), name), op, signs=False)
    assert_same(found["nextafter"], np.nextafter(x, y), "nextafter")


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversions_of_floats(name: str) -> None:
    """All values to all types; and a float32 of every exponent to each, with those around the middle of two codes."""
    x = values(name)
    wide = x.astype(np.float32)
    targets = [*FLOATS, "float16", "bfloat16", "float32"]
    found = weft.jit(lambda x: {t: x.astype(dtype_of(t)) for t in targets})(x)
    for target in targets:
        assert_same(found[target], rounded(wide, target), target)
    for target in ("int8", "int32", "uint8", "int4", "uint2"):
        info = ml_dtypes.iinfo(dtype_of(target))
        want = np.clip(
            np.nan_to_num(np.trunc(wide.astype(float)), posinf=1e30, neginf=-1e30), float(info.min), float(info.max)
        )
        assert_same(
            weft.jit(lambda x, t=target: x.astype(dtype_of(t)))(x),
            want.astype(np.int64).astype(dtype_of(target)),
            target,
        )
    assert_same(weft.jit(lambda x: x.astype(bool))(x), wide != 0, "bool")
    numbers = np.arange(0, 2**32, 2**32 // 40_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    finite = np.sort(np.unique(wide[np.isfinite(wide)]))
    middle = (finite[1:] + finite[:-1]) / 2
    numbers = np.concatenate(
        [numbers, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-9e37))]
    )
    assert_same(weft.jit(lambda x: x.astype(dtype_of(name)))(numbers), rounded(numbers, name), "from float32")
    whole = np.arange(-300, 300)
    assert_same(
        weft.jit(lambda x: x.astype(dtype_of(name)))(whole.astype(np.int32)), rounded(whole, name), "from int32"
    )


def test_what_the_formats_lack() -> None:
    """float4_e2m1fn has no infinity, float8_e8m0fnu no zero and no sign."""
    four, power = dtype_of("float4_e2m1fn"), dtype_of("float8_e8m0fnu")
    assert np.asarray(jnp.asarray([np.inf, -1e9, 5.0, 0.25, np.nan]).astype(four)).astype(float).tolist() == [
        6,
        -6,
        4,
        0,
        0,
    ]
    found = np.asarray(jnp.asarray([0.0, -1.0, 3.0, 1e-45, np.inf]).astype(power)).astype(np.float32)
    assert np.isnan(found[[0, 1, 4]]).all() and found[2:4].tolist() == [4, 2.0**-127]
    ones = np.ones((1, 1, 3), power)
    padded = weft.jit(lambda x: lax.conv_general_dilated(x, x, (1,), "SAME"))(ones)
    assert np.asarray(padded).astype(np.float32).tolist() == [[[2, 4, 2]]]  # 3 is between 2 and 4
    assert np.isnan(np.asarray(weft.jit(lambda x: -x)(np.ones(1, power))).astype(np.float32)).all()


@pytest.mark.parametrize("name", FLOATS)
def test_reductions_and_sums_along_the_way(name: str) -> None:
    """Sums are exact in float32 and rounded once."""
    x = np.array([[1, 2, 0.5, 4], [2, 2, 1, 1], [4, 1, 0.5, 0.5]], np.float32)
    narrow = x.astype(dtype_of(name))
    twice = rounded(x[0] + x[1], name).astype(np.float32) + x[1]
    cases: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "sum": (lambda a: a.sum(1), x.sum(1)), "prod": (lambda a: a.prod(1), x.prod(1)),
        "max": (lambda a: a.max(1), x.max(1)), "min": (lambda a: a.min(0), x.min(0)),
        "mean": (lambda a: a.mean(1), rounded(x.sum(1), name).astype(np.float32) / 4),
        "cumsum": (lambda a: jnp.cumsum(a, 1), np.cumsum(x, 1)),
        "cumprod": (lambda a: jnp.cumprod(a, 1), np.cumprod(x, 1)),
        "cummax": (lambda a: lax.cummax(a, 1), np.maximum.accumulate(x, 1)),
        "dot": (lambda a: a @ a.T, x @ x.T), "einsum": (lambda a: jnp.einsum("ij,ij->i", a, a), (x * x).sum(1)),
        "vmap": (weft.vmap(lambda a: a + a[::-1]), x + x[:, ::-1]), "take": (lambda a: a[np.array([2, 0])], x[[2, 0]]),
        "set": (lambda a: a.at[1, 2:].set(2), np.where(np.arange(12).reshape(3, 4) // 2 == 3, 2, x)),
        "add": (lambda a: a.at[0, np.array([1, 1])].add(1), x + 2 * (np.arange(12).reshape(3, 4) == 1)),
        "max at": (lambda a: a.at[1].max(a[0]), np.where(np.arange(3)[:, None] == 1, np.maximum(x[0], x[1]), x)),
        "where": (lambda a: jnp.where(a > 1, a, 1), np.where(x > 1, x, 1)),
        "sort": (lambda a: jnp.sort(a, 1), np.sort(x, 1)),
        "top_k": (lambda a: lax.top_k(a, 2)[0], np.sort(x, 1)[:, :1:-1]),
        "scan": (lambda a: lax.scan(lambda c, x: (c + x, c), a[1], a[:2])[0], twice),
        "while": (lambda a: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 2), (0, a))[1], 4 * x),
        "cond": (lambda a: lax.cond(a[0, 1] > a[0, 0], lambda a: a * a, lambda a: a, a), x * x),
    }  # fmt: skip
    forms = [weft.jit(lambda a: {what: function(a) for what, (function, _) in cases.items()})(narrow)]
    if name in FLOATS[-4::3]:
        forms.append({what: function(jnp.asarray(narrow)) for what, (function, _) in cases.items()})
    for found in forms:
        for what, (_, wide) in cases.items():
            assert_same(found[what], rounded(wide, name), what)
    for found in both(lambda a: jnp.argmax(a, 1), narrow):
        assert np.asarray(found).tolist() == [3, 0, 0]
    slope = weft.jit(weft.grad(lambda a: (a * a).sum().astype(np.float32)))(narrow)
    assert_same(slope, rounded(2 * x, name), "grad")
    assert_same(
        weft.jvp(lambda a: a * a, (narrow,), (narrow,))[1],
        rounded(2 * rounded(x * x, name).astype(np.float32), name),
        "jvp",
    )


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_order_of_all_values(name: str) -> None:
    """Sorts, selections and searches: by value, NaN last, equal ones in their order."""
    x = np.random.default_rng(1).permutation(values(name))
    wide = x.astype(np.float32)
    order = np.argsort(wide, kind="stable")
    for found in both(lambda x: (jnp.sort(x), jnp.argsort(x), lax.sort((x, np.arange(x.size)), num_keys=1)[1]), x):
        assert_same(found[0], x[order], "sort", signs=False)
        assert np.asarray(found[1]).tolist() == np.asarray(found[2]).tolist() == order.tolist()
    kept = x[~np.isnan(wide)]
    third = np.asarray(weft.jit(lambda x: jnp.partition(x, 2))(kept)).astype(np.float32)
    assert np.sort(third).tolist() == np.sort(kept.astype(np.float32)).tolist()
    assert (
        third[2] == np.sort(kept.astype(np.float32))[2]
        and (third[:2] <= third[2]).all()
        and (third[3:] >= third[2]).all()
    )
    largest = np.asarray(weft.jit(lambda x: lax.top_k(x, 2)[0])(kept)).astype(np.float32)
    assert largest.tolist() == np.sort(kept.astype(np.float32))[:-3:-1].tolist()
    assert jnp.unique(kept).size == np.unique(kept.astype(np.float32)).size


WHOLE: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda x, y, bits: x + y, "sub": lambda x, y, bits: x - y, "mul": lambda x, y, bits: x * y,
    "div": lambda x, y, bits: -1 if y == 0 else int(x / y),
    "rem": lambda x, y, bits: x if y == 0 else x - y * int(x / y),
    "max": lambda x, y, bits: max(x, y), "min": lambda x, y, bits: min(x, y),
    "bitwise_and": lambda x, y, bits: x & y, "bitwise_or": lambda x, y, bits: x | y,
    "bitwise_xor": lambda x, y, bits: x ^ y,
    "shift_left": lambda x, y, bits: x << y if 0 <= y < bits else 0,
    "shift_right_logical": lambda x, y, bits: (x % 2**bits) >> y if 0 <= y < bits else 0,
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_operations_on_every_pair_of_integers(name: str) -> None:
    kept, bits = values(name), int(name[-1])
    x, y = np.repeat(kept, kept.size), np.tile(kept, kept.size)
    pairs = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    for found in both(lambda x, y: {op: getattr(lax, op)(x, y) for op in [*WHOLE, *COMPARE]}, x, y):
        for op, function in WHOLE.items():
            want = np.array([function(a, b, bits) % 2**bits for a, b in pairs]).astype(x.dtype)
            assert_same(found[op], want, op)
        for op, compare in COMPARE.items():
            assert np.asarray(found[op]).tolist() == [bool(compare(a, b)) for a, b in pairs], op
    ones = [bin(int(v) % 2**bits).count("1") for v in kept]
    assert (np.asarray(weft.jit(lax.population_count)(kept)).astype(int) % 2**bits).tolist() == [
        n % 2**bits for n in ones
    ]
    assert_same(weft.jit(lax.bitwise_not)(kept), np.array([~int(v) for v in kept]).astype(x.dtype), "not")


@pytest.mark.parametrize("name", INTEGERS)
def test_sums_and_products_of_integers_wrap(name: str) -> None:
    x = np.tile(values(name), 4).reshape(4, -1)
    wide = x.astype(np.int64)
    cases: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "dot": (lambda a: a @ a.T, wide @ wide.T), "vector": (lambda a: a @ a[0], wide @ wide[0]),
        "outer": (lambda a: jnp.outer(a[0], a[1]), np.outer(wide[0], wide[1])),
        "vdot": (lambda a: jnp.vdot(a, a), np.vdot(wide, wide)),
        "add": (lambda a: a.at[0].add(a[1]), wide + (np.arange(4) == 0)[:, None] * wide[1]),
        "cumsum": (lambda a: lax.cumsum(a, 1), np.cumsum(wide, 1)),
        "reduce": (lambda a: lax.reduce_and(a, (1,)), np.bitwise_and.reduce(wide, 1)),
        "convolution": (
            lambda a: lax.conv_general_dilated(a[None, :1], a[None, 1:2, ::-1][..., :2], (1,), "VALID")[0, 0],
            np.convolve(wide[0], wide[1, ::-1][:2][::-1], "valid"),
        ),
    }  # fmt: skip
    for what, (function, want) in cases.items():
        for found in both(function, x):
            assert_same(found, np.asarray(want).astype(x.dtype), what)
    total = weft.jit(lambda a: lax.dot(a, a.T, preferred_element_type=np.int32))(x)
    np.testing.assert_array_equal(total, (wide @ wide.T).astype(np.int32))


def test_partitions_with_the_least_integer() -> None:
    """It is its own negative."""
    found = np.asarray(jnp.partition(np.array([1, -128, 0, -127], np.int8), 1))
    assert sorted(found.tolist()) == [-128, -127, 0, 1] and found[1] == -127


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_random_values(name: str) -> None:
    drawn = np.asarray(random.uniform(random.key(0), (1000,), dtype_of(name))).astype(np.float32)
    assert 0 <= drawn.min() < 0.1 and 0.7 < drawn.max() <= 1


def test_bits_are_parts_of_wider_elements() -> None:
    """The first of several small elements lies in the lowest bits."""
    four, two = dtype_of("uint4"), dtype_of("uint2")
    split = weft.jit(lambda x: lax.bitcast_convert_type(x, four))(np.array([0x21, 0xF4], np.uint8))
    assert np.asarray(split).astype(int).tolist() == [[1, 2], [4, 15]]
    joined = weft.jit(lambda x: lax.bitcast_convert_type(x, np.uint16))(np.array([[1, 2, 3, 4]], np.uint8).astype(four))
    assert np.asarray(joined).tolist() == [0x4321]
    assert np.asarray(jnp.asarray([0xB1], np.uint8).view(two)).astype(int).tolist() == [1, 0, 3, 2]
    assert np.asarray(jnp.asarray(np.array([3, 2], np.uint8).astype(two)).view(four)).astype(int).tolist() == [0b1011]
    with pytest.raises(ValueError, match="last dimension must be 2"):
        lax.bitcast_convert_type(np.zeros(3, four), np.uint8)
    with pytest.raises(ValueError, match="no multiple or part"):
        lax.bitcast_convert_type(np.zeros(4, dtype_of("float6_e2m3fn")), np.uint8)


def test_a_literal_negative_zero_is_no_zero() -> None:
    """-0 - -0 is 0, but x - 0 is x."""
    for name in ("bfloat16", "float8_e5m2", "float4_e2m1fn", "float32"):
        zero = np.asarray(-0.0).astype(dtype_of(name))
        found = weft.jit(lambda x, zero=zero: x - zero)(zero[None])
        assert not np.signbit(np.asarray(found).astype(np.float32)).any(), name


@pytest.mark.oracle
def test_operations_give_what_jax_gives() -> None:
    for name in ("float4_e2m1fn", "float8_e4m3fn", "int4", "uint4"):
        x, y = np.repeat(values(name), values(name).size), np.tile(values(name), values(name).size)

        def run(m: Any, x: Any, y: Any) -> list[Any]:
            np_ = m.numpy
            return [x + y, x - y, x * y, x < y, np_.maximum(x, y) + y, np_.where(x > y, x, y), x.astype(np_.float32)]

        with np.errstate(all="ignore"):
            ours = weft.jit(lambda x, y: run(weft, x, y))(x, y)
            theirs = jax.jit(lambda x, y: run(jax, x, y))(x, y)
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, np.asarray(b), f"{name} {number}", signs=number != 4)


@pytest.mark.parametrize("name", INTEGERS)
def test_narrow_integers_as_indices(name: str) -> None:
    """Indices, starts of slices and numbers of branches of fewer than 8 bits."""
    at, y = np.array([1, 0], dtype_of(name)), np.arange(12, dtype=np.float32).reshape(4, 3)
    cases: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "index": (lambda y, i: y[i], y[[1, 0]]), "scalar": (lambda y, i: y[i[0]], y[1]),
        "slice": (lambda y, i: lax.dynamic_slice(y, (i[0], i[1]), (2, 2)), y[1:3, :2]),
        "array": (lambda y, i: lax.dynamic_slice(y, i, (2, 2)), y[1:3, :2]),
        "row": (lambda y, i: lax.dynamic_index_in_dim(y, i[0], keepdims=False), y[1]),
        "from the end": (lambda y, i: lax.dynamic_index_in_dim(y, ~i[1] if name[0] == "i" else i[0], keepdims=False),
                         y[-1 if name[0] == "i" else 1]),
        "update": (lambda y, i: lax.dynamic_update_slice(y, 0 * y[:1], (i[0], i[1])), y * (np.arange(4) != 1)[:, None]),
        "switch": (lambda y, i: lax.switch(i[0], [lambda y: y, lambda y: y + 1], y), y + 1),
    }  # fmt: skip
    for what, (function, want) in cases.items():
        for found in both(function, y, at):
            assert_same(found, want.astype(np.float32), what)


def test_powers_by_a_literal_give_eager_s_bits() -> None:
    """The root of x + 0 with a test for -infinity is none for a float that lacks 0 or infinity."""
    for name in FLOATS:
        for power in (0.5, 2, 1, -1):
            jitted, eager = both(lambda x, p=power: x**p, values(name))
            assert_same(jitted, np.asarray(eager), f"{name} {power}")

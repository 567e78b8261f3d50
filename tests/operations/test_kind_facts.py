"""What kinds state of their operations, for every dtype: identities, results of equal operands, one rounding."""

from __future__ import annotations

import fractions
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import weft
from weft import operations
from weft.core import Primitive, kinds

REALS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
BYTES = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e8m0fnu]
WHOLE = [np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)]
DTYPES = [np.dtype(t) for t in (*REALS, *BYTES, *WHOLE, bool, ml_dtypes.int4, ml_dtypes.uint4, "c8", "c16")]
PRIMITIVES = {p.name: p for p in vars(operations).values()
              if isinstance(p, Primitive) and isinstance(p.kind, kinds.Elementwise)}  # fmt: skip
# results of rounding exact arithmetic once; numbers are fractions
EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "floor": math.floor,
    "ceil": math.ceil, "clamp": lambda low, x, high: min(max(low, x), high),
}  # fmt: skip


def stated(fact: str) -> list[str]:
    return sorted(name for name, p in PRIMITIVES.items() if getattr(p.kind, fact))


def values(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "c":
        parts = [0.0, -0.0, 1.5, -np.inf, np.inf, np.nan]
        return np.array([complex(a, b) for a in parts for b in parts], dtype)
    if dtype.itemsize == 1 and "float" in dtype.name:
        return np.arange(256, dtype=np.uint8).view(dtype)
    if "float" in dtype.name:
        most = float(ml_dtypes.finfo(dtype).max)
        least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        return np.array([0.0, -0.0, 1, -2.7, np.inf, -np.inf, np.nan, most, -most, least, -least], dtype)
    info = ml_dtypes.iinfo(dtype)
    return np.array([info.min, info.min + 1, 0, 1, 5, info.max], dtype)


def run(name: str, *operands: np.ndarray) -> np.ndarray | None:
    """The result of a kernel, which knows no operand; None where the dtype is none of the operation's."""
    try:
        with weft.enable_x64(True):
            return np.asarray(weft.jit(PRIMITIVES[name].bind)(*operands))
    except TypeError:
        return None


def same(found: np.ndarray, wanted: np.ndarray, zeros: bool = True) -> bool:
    """Whether bits are equal; of NaN any, and without ``zeros`` the signs of zeros may differ."""
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    a, b = ([np.real(x), np.imag(x)] for x in (found.astype(wide), wanted.astype(wide)))
    return (
        found.dtype == wanted.dtype
        and all(
            np.array_equal(x, y, equal_nan=True) and (not zeros or (np.signbit(x) == np.signbit(y))[~np.isnan(x)].all())
            for x, y in zip(a, b, strict=True)
        )
        and (found.dtype.kind not in "iu" or np.array_equal(found, wanted))
    )


def numbers(name: str, fact: str) -> Iterator[tuple[np.ndarray, Any]]:
    """Values of each dtype of an operation for which it states a number that the dtype has, and that number."""
    stated_number = getattr(PRIMITIVES[name].kind, fact)
    for dtype in DTYPES:
        x = values(dtype)
        value = None if run(name, x, x) is None else stated_number(dtype)
        number = np.asarray(0 if value is None else value, dtype)
        if value is not None and number == value:
            yield x, number[()]


def beside(name: str, number: Any, x: np.ndarray, order: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The results for an array of a number, and for a literal of it, as the second operand or (order -1) the first."""
    found = run(name, *[x, np.full_like(x, number)][::order])
    assert found is not None
    with weft.enable_x64(True):
        return found, np.asarray(weft.jit(lambda x: PRIMITIVES[name].bind(*[x, number][::order]))(x))


@pytest.mark.parametrize("name", stated("identity"))
def test_identities(name: str) -> None:
    """Beside a literal, as beside an array of it, and they change nothing but -0.0."""
    seen = 0
    for x, number in numbers(name, "identity"):
        for order in (1, -1):
            found, folded = beside(name, number, x, order)
            assert same(found, x, zeros=False), (x.dtype, found, x)
            assert same(folded, found), (x.dtype, folded, found)
        seen += 1
    assert seen > 5


@pytest.mark.parametrize("name", stated("right_identity"))
def test_right_identities(name: str) -> None:
    """As second operand, a literal or an array of it, they change no bit."""
    seen = 0
    for x, number in numbers(name, "right_identity"):
        found, folded = beside(name, number, x)
        assert same(found, x), (x.dtype, found, x)
        assert same(folded, x), (x.dtype, folded, x)
        seen += 1
    assert seen > (0 if name == "ne" else 5)


@pytest.mark.parametrize("name", stated("leaves"))
def test_what_parameters_leave_as_it_is(name: str) -> None:
    kind, seen = PRIMITIVES[name].kind, 0
    assert name in ("convert_element_type", "integer_pow")
    assert isinstance(kind, kinds.Elementwise) and kind.leaves is not None
    # NumPy's powers of complex numbers lose the signs of zeros
    for dtype in [dtype for dtype in DTYPES if dtype.kind != "c" or name != "integer_pow"]:
        params: dict[str, Any] = (
            {"y": 1} if name == "integer_pow" else {"new_dtype": dtype, "weak_type": False, "sharding": None}
        )
        assert kind.leaves(dtype, params)
        reference = np.asarray(kind.reference(values(dtype), **params)) if dtype.kind != "b" else values(dtype)
        assert same(reference.astype(dtype), values(dtype)), dtype
        seen += 1
    other = {"y": 2} if name == "integer_pow" else {"new_dtype": np.dtype(np.int32)}
    assert seen > 5 and not kind.leaves(np.dtype(np.float32), other)


def test_conversions_are_the_one_operation_that_converts() -> None:
    assert stated("converts") == ["convert_element_type"]


@pytest.mark.parametrize("name", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", BYTES)
def test_nan_is_no_identity(name: str, dtype: Any) -> None:
    """Some floats of a byte have no 0 or no infinity."""
    x, nan = np.array([1, 2, 4], np.float32).astype(dtype), np.float32(np.nan).astype(dtype)
    assert np.isnan(np.asarray(weft.jit(lambda x: PRIMITIVES[name].bind(x, nan))(x)).astype(np.float32)).all()


@pytest.mark.parametrize("name", stated("keeps_equal"))
def test_of_an_operand_and_itself(name: str) -> None:
    found = [(run(name, values(dtype), values(dtype)), values(dtype)) for dtype in DTYPES]
    assert all(got is None or same(got, x) for got, x in found) and sum(got is not None for got, _ in found) > 5


@pytest.mark.parametrize("name", stated("undoes_itself"))
def test_of_its_own_result(name: str) -> None:
    seen = 0
    for dtype in DTYPES:
        once = None if dtype == ml_dtypes.float8_e8m0fnu else run(name, values(dtype))  # it has no sign
        twice = None if once is None else run(name, once)
        assert twice is None or same(twice, values(dtype)), dtype
        seen += twice is not None
    assert seen > 5


@pytest.mark.parametrize("name", EXACT)
def test_one_rounding(name: str) -> None:
    assert name in stated("rounds_once")
    rng, count = np.random.default_rng(0), {"neg": 1, "floor": 1, "ceil": 1, "clamp": 3}.get(name, 2)
    for dtype in REALS:
        sizes = rng.uniform(1, 2, (count, 200)) * 2.0 ** rng.integers(-5, 5, (count, 200))
        rows = (sizes * rng.choice([-1, 1], (count, 200))).astype(dtype)
        found = run(name, *rows)
        assert found is not None
        for got, *operands in zip(found.tolist(), *rows.astype(np.float64).tolist(), strict=True):
            true = fractions.Fraction(EXACT[name](*map(fractions.Fraction, operands)))
            with mpmath.workprec(400):
                exact = mpmath.mpf(true.numerator) / true.denominator
            with mpmath.workprec(ml_dtypes.finfo(dtype).nmant + 1):
                assert got == +exact, (name, dtype, operands)


def test_no_other_operation_says_that_it_rounds_once() -> None:
    assert stated("rounds_once") == sorted(EXACT)

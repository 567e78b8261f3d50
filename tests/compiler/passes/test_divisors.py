"""Division by integer literals: what it becomes, and that the values are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

DTYPES = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]
DIVISORS = [1, 2, 3, 7, 8, 10, 64, 100, 127, 128, 1000, 2**31 - 1, 2**32, 2**33 + 5, 10**12 + 39, 2**62, 2**63 - 1]


def operations(f: Any, x: Any) -> list[str]:
    """The operations of the kernel."""
    text = weft.jit(f).lower(x).as_text("kernel")
    return [line.split(" = ")[1].split("[")[0].split(" ")[0] for line in text.splitlines() if " = " in line]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_and_remainders_by_literals_are_numpys(dtype: np.dtype) -> None:
    info, r = np.iinfo(dtype), np.random.default_rng(0)
    edges = np.array([info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 7], dtype)
    x = np.concatenate([edges, ~edges, r.integers(info.min, info.max, 331, dtype, endpoint=True)])
    with weft.enable_x64(True), np.errstate(over="ignore"):
        for y in [y * sign for y in DIVISORS for sign in (1, -1) if info.min <= y * sign <= info.max]:
            both = weft.jit(lambda x, y=y: (x // y, x % y, jnp.divmod(x, y)))(x)
            quotient, rest = (np.negative(x), np.zeros_like(x)) if y == -1 else np.divmod(x, dtype.type(y))
            for found, wanted in zip((*both[:2], *both[2]), (quotient, rest) * 2, strict=True):
                assert found.dtype == dtype
                np.testing.assert_array_equal(found, wanted, f"by {y}")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.int64], ids=lambda dtype: np.dtype(dtype).name)
def test_quotients_and_remainders_of_scalars_in_loops_are_numpys(dtype: Any) -> None:
    info, r = np.iinfo(dtype), np.random.default_rng(0)
    x = np.array([info.min, info.min + 1, info.max, 0, 1, *r.integers(info.min, info.max, 40, dtype)], dtype)
    with weft.enable_x64(True):
        for y in [y for y in (2, 3, 7, 64, 100, 10007, 2**31 - 1) if y <= info.max]:
            step = lambda total, e, y=y: (total + e % y, (e // y, e % y))
            total, found = weft.jit(lambda x, step=step: weft.lax.scan(step, jnp.zeros((), x.dtype), x))(x)
            quotient, rest = np.divmod(x, dtype(y))
            for each, wanted in zip((*found, total), (quotient, rest, rest.sum(dtype=dtype)), strict=True):
                np.testing.assert_array_equal(each, wanted, f"by {y}")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32])
def test_division_by_a_literal_zero_is_what_it_is_by_an_array_of_zeros(dtype: Any) -> None:
    x = np.array([0, 1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    literal = weft.jit(lambda x: (x // 0, x % 0))(x)
    for found, wanted in zip(literal, weft.jit(lambda x, y: (x // y, x % y))(x, np.zeros_like(x)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("f", "dtype", "wanted"),
    [
        (lambda x: x // 8, np.int32, ["shift_right_arithmetic"]),
        (lambda x: x % 8, np.int32, ["and"]),
        (lambda x: x // 8, np.uint32, ["shift_right_logical"]),
        (lambda x: x % 8, np.uint32, ["and"]),
        (lambda x: x // 7, np.int32, ["floor_div"]),
        (lambda x: x % 7, np.int32, ["floor_div", "mul", "sub"]),
        (lambda x: jnp.divmod(x, 7), np.int16, ["floor_div", "mul", "sub"]),
        (lambda x: x % 7, np.uint32, ["rem"]),
    ],
    ids=["signed // 8", "signed % 8", "unsigned // 8", "unsigned % 8", "// 7", "% 7", "divmod 7", "unsigned % 7"],
)
def test_a_literal_divisor_leaves_few_operations(f: Any, dtype: Any, wanted: list[str]) -> None:
    assert operations(f, np.arange(100, dtype=dtype)) == wanted


def test_a_divisor_that_is_no_literal_or_below_one_stays_a_division() -> None:
    x = np.arange(100, dtype=np.int32)
    assert "rem" in operations(lambda x: x % -7, x)
    assert "rem" in operations(lambda x: x % x[3], x)
    assert "div" in operations(lambda x: x // -8, x)


def test_mapped_and_differentiated_programs_divide_alike() -> None:
    x = np.arange(-12, 12, dtype=np.int32).reshape(4, 6)
    np.testing.assert_array_equal(weft.jit(weft.vmap(lambda row: row // 7 + row % 8))(x), x // 7 + x % 8)
    slope = weft.grad(lambda y: (y * (weft.jit(lambda i: i % 7)(x))).sum())(np.float32(2))
    assert slope == (x % 7).sum()

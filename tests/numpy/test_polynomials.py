"""Polynomials, convolution and Kaiser's window against NumPy; derivatives, batches, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp

RNG = np.random.default_rng(8)
PAIRS = [(1, 1), (5, 2), (2, 5), (6, 6), (7, 4), (4, 7), (100, 33), (300, 200), (65, 300)]


def vector(n: int, dtype: str) -> np.ndarray:
    x = RNG.integers(-9, 10, n)
    return (x + 1j * RNG.integers(-9, 10, n)).astype(dtype) if dtype.startswith("c") else x.astype(dtype)


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["f4", "c8", "i4", "i1"])
def test_convolutions(name: str, mode: str, dtype: str) -> None:
    for n, m in PAIRS:
        a, v = vector(n, dtype), vector(m, dtype)
        found = getattr(wnp, name)(a, v, mode)
        expected = getattr(np, name)(a.astype("c16" if dtype == "c8" else "f8"), v, mode)
        assert found.dtype == (np.complex64 if dtype == "c8" else np.float32)
        np.testing.assert_array_equal(np.asarray(found), expected)  # small integers are exact
        jitted = weft.jit(getattr(wnp, name), static_argnames="mode")(a, v, mode=mode)
        np.testing.assert_array_equal(np.asarray(jitted), np.asarray(found))


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_derivatives_and_batches_of_convolutions(name: str) -> None:
    function = getattr(wnp, name)
    with weft.enable_x64(True):
        for n, m in ((5, 3), (80, 70)):
            a, v = RNG.normal(size=n), RNG.normal(size=m)
            weft.test_util.check_grads(lambda a, v: function(a, v, "same"), (a, v), order=2 if n < 9 else 1)
        rows = RNG.normal(size=(3, 6))
        mapped = weft.vmap(lambda x: function(x, v[:4], "full"))(rows)
        expected = np.stack([np.asarray(function(x, v[:4], "full")) for x in rows])
        np.testing.assert_allclose(np.asarray(mapped), expected, rtol=1e-14)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 51])
@pytest.mark.parametrize("beta", [0.0, 1.5, 8.6, 300.0, -4.0])
def test_kaiser(count: int, beta: float) -> None:
    np.testing.assert_allclose(np.asarray(wnp.kaiser(count, beta)), np.kaiser(count, beta), rtol=3e-4, atol=1e-7)
    assert wnp.kaiser(count, beta).dtype == np.float32


@pytest.mark.parametrize("dtype", ["f4", "i4", "c8"])
def test_polymul_and_polydiv(dtype: str) -> None:
    for n, m in ((1, 1), (5, 2), (2, 5), (6, 6), (7, 4)):
        a, v = vector(n, dtype), vector(m, dtype)
        a[0] = v[0] = 1
        wide = "c16" if dtype == "c8" else "f8"
        np.testing.assert_array_equal(np.asarray(wnp.polymul(a, v)), np.polymul(a.astype(wide), v))
        quotient, remainder = wnp.polydiv(a, v)
        want_quotient, want_remainder = np.polydiv(a.astype(wide), v.astype(wide))
        np.testing.assert_allclose(np.asarray(quotient), want_quotient, rtol=1e-5)
        assert remainder.shape == (n,)
        padded = np.concatenate([np.zeros(n - len(want_remainder)), want_remainder])
        np.testing.assert_allclose(np.asarray(remainder), padded, rtol=1e-4, atol=1e-4 * np.abs(padded).max())
    assert wnp.polymul(np.array([0, 1.0]), np.array([0, 0, 2.0]), trim_leading_zeros=True).tolist() == [2.0]
    found = wnp.polydiv(np.float32([1, 2, 5]), np.float32([1, 3]), trim_leading_zeros=True)
    assert [x.tolist() for x in found] == [[1.0, -1.0], [8.0]]
    assert [x.tolist() for x in wnp.polydiv(np.float32([1.0]), np.float32([1, 3]))] == [[0.0], [1.0]]


@pytest.mark.parametrize("m", [0, 1, 2, 5])
@pytest.mark.parametrize("constants", [None, 3.0, "each"])
def test_polyint(m: int, constants: Any) -> None:
    k = RNG.normal(size=m) if constants == "each" else constants
    if constants == "each" and m < 2:
        k = None
    for n in (1, 2, 6):
        p = RNG.normal(size=n)
        want = np.polyint(p, m, None if k is None else k)
        with weft.enable_x64(True):
            np.testing.assert_allclose(np.asarray(wnp.polyint(p, m, k)), want, rtol=1e-14)


def test_poly() -> None:
    for roots in ([1, 2, 3], [], [4.5], 2.0, [1 + 1j, 1 - 1j, 3]):
        found, want = (
            wnp.poly(np.asarray(roots, np.complex64 if np.iscomplexobj(roots) else np.float32)),
            np.poly(np.atleast_1d(roots)),
        )
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6, atol=1e-6)
    with weft.enable_x64(True):
        weft.test_util.check_grads(wnp.poly, (RNG.normal(size=5),), order=2)
        weft.test_util.check_grads(wnp.polydiv, (RNG.normal(size=6), RNG.normal(size=3) + 3), order=2)
        weft.test_util.check_grads(lambda p: wnp.polyint(p, 2), (RNG.normal(size=4),), order=2)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_roots(dtype: str) -> None:
    with weft.enable_x64(True):
        for count in (1, 2, 5):
            p = vector(count + 1, dtype)
            p[0] = p[-1] = 2
            for given in (p, np.concatenate([[0, 0], p, [0]])):
                found, want = np.asarray(wnp.roots(given)), np.roots(given)
                assert found.shape == want.shape and found.dtype == np.complex128
                for value in want:
                    assert np.abs(found - value).min() < 1e-7
        assert wnp.roots(np.zeros(3)).shape == wnp.roots(np.ones(1)).shape == (0,)
        jitted = weft.jit(lambda p: wnp.roots(p, strip_zeros=False))(np.array([1.0, -3, 2]))
        np.testing.assert_allclose(sorted(np.asarray(jitted).real), [1, 2], atol=1e-12)
        for zeros in (1, 3):
            given = np.concatenate([np.zeros(zeros), p, [0]])
            for find in (wnp.roots, weft.jit(wnp.roots, static_argnames="strip_zeros")):
                found = np.asarray(find(given, strip_zeros=False))
                assert found.shape == (len(given) - 1,) and np.isnan(found[-zeros:]).all()
                for value in np.roots(given):
                    assert np.abs(found[:-zeros] - value).min() < 1e-7
        assert np.isnan(np.asarray(wnp.roots(np.zeros(3), strip_zeros=False))).all()
    with pytest.raises(weft.errors.ConcretizationTypeError, match="strip_zeros"):
        weft.jit(wnp.roots)(np.ones(3))


@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_polyfit(columns: tuple[int, ...], weighted: bool) -> None:
    x, y = RNG.normal(size=12), RNG.normal(size=(12, *columns))
    w = RNG.uniform(0.5, 2, 12) if weighted else None
    with weft.enable_x64(True):
        for degree in (0, 1, 3):
            np.testing.assert_allclose(
                np.asarray(wnp.polyfit(x, y, degree, w=w)), np.polyfit(x, y, degree, w=w), rtol=1e-9
            )
            for cov in (True, "unscaled"):
                found, want = wnp.polyfit(x, y, degree, w=w, cov=cov), np.polyfit(x, y, degree, w=w, cov=cov)
                for a, b in zip(found, want, strict=True):
                    b = np.broadcast_to(
                        np.asarray(b).reshape(np.asarray(b).shape + (1,) * (np.ndim(a) - np.ndim(b))), np.shape(a)
                    )
                    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-8)
            full, want = wnp.polyfit(x, y, degree, w=w, full=True), np.polyfit(x, y, degree, w=w, full=True)
            for a, b in zip(full, want, strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-8)
        weft.test_util.check_grads(lambda x, y: wnp.polyfit(x, y, 2), (x, y), order=1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: wnp.convolve(np.ones((2, 2)), np.ones(3)), ValueError, "only support 1-dimensional"),
        (lambda: wnp.correlate(np.ones(0), np.ones(3)), ValueError, "cannot be empty"),
        (lambda: wnp.convolve(np.ones(2), np.ones(3), "foo"), ValueError, "mode must be one of"),
        (lambda: wnp.convolve([1.0], np.ones(3)), TypeError, "requires ndarray"),
        (lambda: wnp.poly(np.ones((2, 3))), ValueError, "1d or non-empty square"),
        (lambda: wnp.polyint(np.ones(3), -1), ValueError, "must be positive"),
        (lambda: wnp.polyint(np.ones(3), 2, np.ones(3)), ValueError, "scalar or a rank-1 array"),
        (lambda: wnp.polymul(np.ones((2, 2)), np.ones(2)), ValueError, "rank-1 array. Got shape"),
        (lambda: wnp.polyfit(np.ones(3), np.ones(3), -1), ValueError, "deg >= 0"),
        (lambda: wnp.polyfit(np.ones(3), np.ones(4), 1), TypeError, "same length"),
        (
            lambda: weft.jit(lambda x: wnp.polymul(x, x, trim_leading_zeros=True))(np.ones(3)),
            weft.errors.ConcretizationTypeError, "trim_leading_zeros",
        ),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()

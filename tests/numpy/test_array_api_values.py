"""Special cases, dtypes and rules of the array API standard 2024.12, from its text and beside NumPy's namespace."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
INF, NAN, PI = math.inf, math.nan, math.pi

# For an argument a + bj the result, as the standard lists them; where it leaves a sign open, ours.
CASES: dict[str, dict[tuple[float, float], tuple[float, float]]] = {
    "acos": {
        (0, 0): (PI / 2, -0.0), (0, NAN): (PI / 2, NAN), (2, INF): (PI / 2, -INF),
        (2, NAN): (NAN, NAN), (-INF, 2): (PI, -INF), (INF, 2): (0.0, -INF), (-INF, INF): (3 * PI / 4, -INF),
        (INF, INF): (PI / 4, -INF), (NAN, 2): (NAN, NAN), (NAN, INF): (NAN, -INF), (NAN, NAN): (NAN, NAN),
    },
    "acosh": {
        (0, 0): (0.0, PI / 2), (2, INF): (INF, PI / 2), (2, NAN): (NAN, NAN), (0, NAN): (NAN, PI / 2),
        (-INF, 2): (INF, PI), (INF, 2): (INF, 0.0), (-INF, INF): (INF, 3 * PI / 4), (INF, INF): (INF, PI / 4),
        (INF, NAN): (INF, NAN), (-INF, NAN): (INF, NAN), (NAN, 2): (NAN, NAN), (NAN, INF): (INF, NAN),
        (NAN, NAN): (NAN, NAN),
    },
    "asinh": {
        (0, 0): (0.0, 0.0), (2, INF): (INF, PI / 2), (2, NAN): (NAN, NAN), (INF, 2): (INF, 0.0),
        (INF, INF): (INF, PI / 4), (NAN, 0): (NAN, 0.0), (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "atanh": {
        (0, 0): (0.0, 0.0), (0, NAN): (0.0, NAN), (1, 0): (INF, 0.0), (2, INF): (0.0, PI / 2), (2, NAN): (NAN, NAN),
        (INF, 2): (0.0, PI / 2), (INF, INF): (0.0, PI / 2), (INF, NAN): (0.0, NAN), (NAN, 2): (NAN, NAN),
        (NAN, INF): (0.0, PI / 2), (NAN, NAN): (NAN, NAN),
    },
    "cosh": {
        (0, 0): (1.0, 0.0), (0, INF): (NAN, 0.0), (0, NAN): (NAN, 0.0), (2, INF): (NAN, NAN), (2, NAN): (NAN, NAN),
        (INF, 0): (INF, 0.0), (INF, INF): (INF, NAN), (INF, NAN): (INF, NAN), (NAN, 0): (NAN, 0.0),
        (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "sinh": {
        (0, 0): (0.0, 0.0), (0, INF): (0.0, NAN), (0, NAN): (0.0, NAN), (2, INF): (NAN, NAN), (2, NAN): (NAN, NAN),
        (INF, 0): (INF, 0.0), (INF, INF): (INF, NAN), (INF, NAN): (INF, NAN), (NAN, 0): (NAN, 0.0),
        (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "tanh": {
        (0, 0): (0.0, 0.0), (2, INF): (NAN, NAN), (0, INF): (0.0, NAN), (2, NAN): (NAN, NAN), (0, NAN): (0.0, NAN),
        (INF, 1): (1.0, 0.0), (INF, INF): (1.0, 0.0), (INF, NAN): (1.0, 0.0), (NAN, 0): (NAN, 0.0),
        (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "exp": {
        (0, 0): (1.0, 0.0), (2, INF): (NAN, NAN), (2, NAN): (NAN, NAN), (INF, 0): (INF, 0.0), (-INF, 1): (0.0, 0.0),
        (-INF, INF): (0.0, 0.0), (INF, INF): (INF, NAN), (-INF, NAN): (0.0, 0.0), (INF, NAN): (INF, NAN),
        (NAN, 0): (NAN, 0.0), (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "expm1": {
        (0, 0): (0.0, 0.0), (2, INF): (NAN, NAN), (2, NAN): (NAN, NAN), (INF, 0): (INF, 0.0), (-INF, 1): (-1.0, 0.0),
        (-INF, INF): (-1.0, 0.0), (INF, INF): (INF, NAN), (-INF, NAN): (-1.0, 0.0), (INF, NAN): (INF, NAN),
        (NAN, 0): (NAN, 0.0), (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "log": {
        (0, 0): (-INF, 0.0), (2, INF): (INF, PI / 2), (2, NAN): (NAN, NAN), (-INF, 2): (INF, PI),
        (INF, 2): (INF, 0.0), (-INF, INF): (INF, 3 * PI / 4), (INF, INF): (INF, PI / 4), (INF, NAN): (INF, NAN),
        (NAN, 2): (NAN, NAN), (NAN, INF): (INF, NAN), (NAN, NAN): (NAN, NAN),
    },
    "sqrt": {
        (0, 0): (0.0, 0.0), (2, INF): (INF, INF), (NAN, INF): (INF, INF), (2, NAN): (NAN, NAN),
        (-INF, 2): (0.0, INF), (INF, 2): (INF, 0.0), (-INF, NAN): (NAN, INF), (INF, NAN): (INF, NAN),
        (NAN, 2): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
}  # fmt: skip
ODD = ("asinh", "atanh", "sinh", "tanh")
BY_HALF_TURN = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh"}  # f(z) = -i g(i z)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64(True):
        yield


def same_part(found: np.ndarray, expected: np.ndarray, zeros: bool) -> np.ndarray:
    """Where two real arrays agree, with the sign of zeros if asked; NaN agrees with NaN."""
    near = np.isclose(found, expected, rtol=4e-7, atol=0.0, equal_nan=True)
    return near & (~np.isfinite(found) | (not zeros) | (np.signbit(found) == np.signbit(expected)))


def assert_same(found: Any, expected: np.ndarray, what: object, zeros: bool = True) -> None:
    found = np.asarray(found)
    bad = ~(same_part(np.real(found), np.real(expected), zeros) & same_part(np.imag(found), np.imag(expected), zeros))
    assert not bad.any(), (what, found[bad], expected[bad])


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", CASES)
def test_special_cases_of_complex_functions(name: str, dtype: str) -> None:
    z = np.array([complex(*at) for at in CASES[name]], dtype)
    expected = np.array([complex(*value) for value in CASES[name].values()], dtype)
    function = getattr(jnp, name)
    assert_same(function(z), expected, name)
    mirrored = ~np.isnan(np.imag(z))
    assert_same(function(z[mirrored].conj()), expected[mirrored].conj(), f"{name} of the conjugate", zeros=False)
    if name in ODD:
        assert_same(function(-z), -expected, f"{name} of the negative", zeros=False)


def test_special_cases_of_negative_zero() -> None:
    zero = np.array([complex(-0.0, 0.0)])
    assert_same(jnp.log(zero), np.array([complex(-INF, PI)]), "log")
    assert_same(jnp.sqrt(zero), np.array([0j]), "sqrt")
    assert_same(jnp.acos(np.array([complex(-0.0, NAN)])), np.array([complex(PI / 2, NAN)]), "acos")
    assert_same(jnp.atanh(np.array([complex(-0.0, NAN)])), np.array([complex(-0.0, NAN)]), "atanh")


@pytest.mark.parametrize("name", BY_HALF_TURN)
def test_circular_functions_are_the_hyperbolic_ones_turned(name: str) -> None:
    parts = [0.0, -0.0, 1.5, -1.5, INF, -INF, NAN]
    z = np.array([complex(a, b) for a, b in itertools.product(parts, parts)])
    turned = np.asarray(getattr(jnp, BY_HALF_TURN[name])(np.array([complex(-x.imag, x.real) for x in z])))
    assert_same(getattr(jnp, name)(z), np.array([complex(x.imag, -x.real) for x in turned]), name)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_division_keeps_zeros_positive(dtype: str) -> None:
    z = np.array([1j, 2, -1j, 1 + 2j, -2 + 1j], dtype)
    assert_same(jnp.asarray(z)[:, None] / z, z[:, None] / z, "division")
    assert float(jnp.angle(jnp.asarray(-1j, dtype=dtype) / jnp.asarray(1j, dtype=dtype))) > 3  # not -pi


@pytest.mark.parametrize("dtype", COMPLEX)
def test_truth_of_complex_numbers_has_both_parts(dtype: str) -> None:
    z = np.array([[0, 2j, 0], [1, 3j, 0], [-1j, NAN, 0]], dtype)
    for name, axis in itertools.product(("all", "any"), (None, 0, 1, ())):
        found = getattr(jnp, name)(z, axis=axis)
        assert found.dtype == np.bool_
        np.testing.assert_array_equal(found, getattr(np, name)(z, axis=axis))
    assert bool(weft.jit(jnp.any)(jnp.asarray([1j]))) and not bool(jnp.all(z, where=np.ones_like(z, bool)))


def test_ranks_are_relative() -> None:
    a = np.stack([np.diag([10.0, 4.0, 3.0]), np.diag([100.0, 20.0, 3.0])])
    rtol = np.array([0.1, 0.25])
    assert jnp.linalg.matrix_rank(a, rtol=rtol).tolist() == np.linalg.matrix_rank(a, rtol=rtol).tolist() == [3, 1]
    assert jnp.linalg.matrix_rank(a, rtol=0.35).tolist() == np.linalg.matrix_rank(a, rtol=0.35).tolist() == [2, 1]
    assert jnp.linalg.matrix_rank(a, tol=3.5).tolist() == np.linalg.matrix_rank(a, tol=3.5).tolist() == [2, 2]
    assert jnp.linalg.matrix_rank(a.astype("float32"), rtol=rtol).tolist() == [3, 1]


BINARY = [
    "add", "subtract", "multiply", "divide", "pow", "atan2", "copysign", "hypot", "logaddexp", "nextafter", "equal",
    "not_equal", "less", "less_equal", "greater", "greater_equal", "maximum", "minimum",
]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_special_cases_of_two_real_numbers(name: str) -> None:
    special = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, 1e30, -1e30, INF, -INF, NAN]
    x = np.array(special, np.float32)
    found = np.asarray(getattr(jnp, name)(x[:, None], x))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x[:, None], x)
    assert found.dtype == expected.dtype
    if found.dtype == np.bool_:
        np.testing.assert_array_equal(found, expected)
    else:  # the standard leaves open which zero is the larger
        assert_same(found, expected, name, zeros=name not in ("maximum", "minimum"))


def promoted_by_the_standard() -> Iterator[tuple[str, str]]:
    """Pairs of dtypes whose promotion the standard defines."""
    families = (SIGNED + UNSIGNED, REAL + COMPLEX, ("bool",))
    for family in families:
        for a, b in itertools.product(family, family):
            if not ("uint64" in (a, b) and (a in SIGNED or b in SIGNED)):
                yield a, b


def test_promotion_is_numpys() -> None:
    for a, b in promoted_by_the_standard():
        expected = np.result_type(a, b)
        assert jnp.result_type(getattr(jnp, a), getattr(jnp, b)) == expected
        x, y = weft.ShapeDtypeStruct((2,), np.dtype(a)), weft.ShapeDtypeStruct((2,), np.dtype(b))
        for function in (jnp.concat, jnp.stack):
            assert weft.eval_shape(lambda *xy, function=function: function(xy), x, y).dtype == expected
        assert weft.eval_shape(lambda x, y: jnp.where(True, x, y), x, y).dtype == expected
        if a != "bool":
            for function in (jnp.add, jnp.multiply, jnp.vecdot, jnp.matmul, operator.sub):
                assert weft.eval_shape(function, x, y).dtype == expected, (function, a, b)
        assert weft.eval_shape(jnp.equal, x, y).dtype == np.bool_


def test_python_scalars_take_the_dtype_of_the_array() -> None:
    for dtypes, scalars in ((SIGNED + UNSIGNED, [2]), (REAL, [2, 1.5]), (COMPLEX, [2, 1.5, 1j]), (("bool",), [True])):
        for dtype, scalar in itertools.product(dtypes, scalars):
            x = weft.ShapeDtypeStruct((2,), np.dtype(dtype))
            functions = [jnp.bitwise_and] if dtype == "bool" else [jnp.add, jnp.subtract, jnp.multiply, jnp.pow]
            for function in functions:
                assert weft.eval_shape(lambda x, f=function, s=scalar: f(x, s), x).dtype == dtype
                assert weft.eval_shape(lambda x, f=function, s=scalar: f(s, x), x).dtype == dtype
            assert weft.eval_shape(lambda x, s=scalar: jnp.where(True, s, x), x).dtype == dtype
            assert jnp.result_type(getattr(jnp, dtype), scalar) == dtype


INDICES = [
    "x[1]", "x[-1, 1:]", "x[..., None]", "x[::-1, ::2]", "x[5:2]", "x[-2:, ...]", "x[:, -1:-4:-2]", "x[None, ..., 0]",
    "x[x > 0]", "x[m([2, 0])]", "x[m([2, 0]), m([1, -1])]", "x[m([[0, 1]]), 1]", "x[1, m([0, -1])]", "x[()]",
    "x[2, 3][()]", "x[2, 3][...]", "x[m([[0], [2]]), m([1, 3])]",
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES)
def test_indexing(index: str) -> None:
    x = np.arange(12.0).reshape(3, 4) - 5
    expected = np.asarray(eval(index, {"x": x, "m": np.asarray}))
    found = eval(index, {"x": jnp.asarray(x), "m": jnp.asarray})
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "complex128", "uint8", "bool"])
def test_sets_tell_nans_apart_but_not_zeros(dtype: str) -> None:
    x = np.array([[NAN, 1, NAN], [-0.0, 0.0, 1]]) if dtype[0] in "fc" else np.array([[1, 0, 1], [0, 0, 1]])
    x = x.astype(dtype)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        found, expected = getattr(jnp, name)(x), getattr(np, name)(x)
        assert found._fields == expected._fields
        for field in found._fields:
            one, other = getattr(found, field), getattr(expected, field)
            assert one.dtype == other.dtype and one.shape == other.shape, (name, field)
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(jnp.unique_values(x), np.unique_all(x).values)


def test_names_and_dtypes_of_decompositions_and_transforms() -> None:
    for real, wide_complex in zip(REAL, COMPLEX, strict=True):
        for dtype in (real, wide_complex):
            x = weft.ShapeDtypeStruct((2, 4, 3), np.dtype(dtype))
            square = weft.ShapeDtypeStruct((2, 3, 3), np.dtype(dtype))
            out = weft.eval_shape(jnp.linalg.eigh, square)
            assert out._fields == ("eigenvalues", "eigenvectors") and (out[0].dtype, out[1].dtype) == (real, dtype)
            out = weft.eval_shape(jnp.linalg.svd, x)
            assert out._fields == ("U", "S", "Vh") and [o.shape for o in out] == [(2, 4, 4), (2, 3), (2, 3, 3)]
            assert [o.dtype for o in out] == [dtype, real, dtype]
            out = weft.eval_shape(jnp.linalg.qr, x)
            assert out._fields == ("Q", "R") and [o.shape for o in out] == [(2, 4, 3), (2, 3, 3)]
            out = weft.eval_shape(jnp.linalg.slogdet, square)
            assert out._fields == ("sign", "logabsdet") and [o.dtype for o in out] == [dtype, real]
            for name in ("matrix_norm", "vector_norm", "svdvals"):
                assert weft.eval_shape(getattr(jnp.linalg, name), x).dtype == real
            for name in ("fft", "ifft", "fftn", "ifftn"):
                assert weft.eval_shape(getattr(jnp.fft, name), x).dtype == wide_complex
            for name, last in (("irfft", 4), ("irfftn", 4), ("hfft", 4)):
                out = weft.eval_shape(getattr(jnp.fft, name), x)
                assert out.dtype == real and out.shape == (2, 4, last)
        x = weft.ShapeDtypeStruct((2, 4, 5), np.dtype(real))
        for name in ("rfft", "rfftn", "ihfft"):
            out = weft.eval_shape(getattr(jnp.fft, name), x)
            assert out.dtype == wide_complex and out.shape == (2, 4, 3)
        assert jnp.fft.fftfreq(5, dtype=getattr(jnp, real)).dtype == real


def test_what_stays_different() -> None:
    """The list of docs/ARRAY_API.md: a line goes there when one of these fails."""
    zero = jnp.asarray(-0.0)
    assert math.copysign(1, float(jnp.sign(zero))) == -1 and math.copysign(1, float(zero // 2.0)) == 1
    assert math.copysign(1, float(jnp.remainder(zero, 2.0))) == -1 and math.isnan(float(jnp.asarray(INF) // 2.0))
    assert jnp.searchsorted(jnp.arange(3), 1).dtype == "int32"
    assert jnp.cumulative_prod(jnp.ones(3, "int8")).dtype == "int8"
    assert type(jnp.finfo(jnp.float32).eps) is np.float32
    assert jnp.__array_namespace_info__().capabilities()["boolean indexing"] is False
    with pytest.warns(DeprecationWarning, match="imaginary"):
        assert jnp.astype(jnp.asarray([1j]), jnp.float32).dtype == "float32"
    with pytest.raises(ValueError, match="out of bounds"):
        jnp.expand_dims(jnp.ones(2), axis=5)
    with pytest.raises(TypeError):
        jnp.ones(2)[0] = 1.0

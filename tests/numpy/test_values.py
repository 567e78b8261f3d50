"""weft.numpy's values against NumPy's, over dtypes, shapes and axes; rank 0, empty arrays and NaN among them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.numpy import files

SHAPES = [(), (0,), (1,), (7,), (3, 4), (2, 0, 3), (2, 3, 4), (17, 5)]
FLOATS = ["float32"]
INTS = ["int8", "uint8", "int32", "uint32"]
RNG = np.random.default_rng(0)


def values(shape: tuple[int, ...], dtype: str, low: float = -5.0, high: float = 5.0) -> np.ndarray:
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return RNG.integers(0 if dtype[0] == "u" else int(low), int(high) + 1, shape).astype(dtype)
    if dtype.startswith("complex"):
        return (RNG.uniform(low, high, shape) + 1j * RNG.uniform(low, high, shape)).astype(dtype)
    return RNG.uniform(low, high, shape).astype(dtype)


def check(found: Any, expected: Any, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(np.asarray(found), expected)


UNARY_FLOAT = [
    "sin",
    "cos",
    "tan",
    "exp",
    "expm1",
    "exp2",
    "sqrt",
    "cbrt",
    "tanh",
    "sinh",
    "cosh",
    "arctan",
    "arcsinh",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "square",
    "negative",
    "absolute",
    "fabs",
    "sign",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "reciprocal",
    "deg2rad",
    "rad2deg",
    "sinc",
    "conj",
    "real",
    "imag",
    "logical_not",
    "nan_to_num",
    "positive",
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", UNARY_FLOAT)
def test_unary(name: str, shape: tuple[int, ...]) -> None:
    x = values(shape, "float32", 0.5 if name == "sqrt" else -4.0, 4.0)
    check(getattr(wnp, name)(x), getattr(np, name)(x), rtol=1e-5)


@pytest.mark.parametrize("name", ["log", "log1p", "log2", "log10", "arccosh"])
def test_logarithms(name: str) -> None:
    x = values((50,), "float32", 1.0, 100.0)
    check(getattr(wnp, name)(x), getattr(np, name)(x), rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["isnan", "isinf", "isfinite", "nan_to_num", "sign", "maximum", "fmax", "minimum", "fmin"]
)
def test_special_values(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], np.float32)
    y = np.array([1.0, np.nan, 2.0, np.nan, 0.0, np.nan], np.float32)
    args = (x,) if name in ("isnan", "isinf", "isfinite", "nan_to_num", "sign") else (x, y)
    np.testing.assert_array_equal(np.asarray(getattr(wnp, name)(*args)), getattr(np, name)(*args))


BINARY = [
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
]
BROADCASTS = [((), ()), ((3,), ()), ((3, 4), (4,)), ((3, 1), (1, 4)), ((0, 3), (3,)), ((2, 3, 4), (3, 1))]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in BINARY for dtype in ("float32", "int32", "uint8")]
    + [(name, "complex64") for name in BINARY[:3] + BINARY[5:7]],
)
def test_binary(name: str, dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = values(shapes[0], dtype), values(shapes[1], dtype)
    check(getattr(wnp, name)(x, y), getattr(np, name)(x, y))


def test_complex_ordering() -> None:
    x, y = values((40,), "complex64").round(), values((40,), "complex64").round()
    for name in ("less", "less_equal", "greater", "greater_equal"):
        check(getattr(wnp, name)(x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "int8"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "true_divide"])
def test_division(name: str, dtype: str) -> None:
    x, y = values((200,), dtype, -20, 20), values((200,), dtype, -20, 20)
    y = np.where(y == 0, np.ones_like(y), y)
    expected = getattr(np, name)(x, y)
    check(getattr(wnp, name)(x, y), expected.astype(np.float32) if name == "true_divide" else expected, rtol=1e-6)
    if name == "floor_divide":
        for found, wanted in zip(wnp.divmod(x, y), np.divmod(x, y), strict=True):
            check(found, wanted)


def test_powers() -> None:
    x = values((50,), "int32", -4, 4)
    for n in range(5):
        check(wnp.power(x, n), x**n)
        check(wnp.power(x, np.full_like(x, n)), x**n)
    y = values((50,), "float32", 0.1, 4.0)
    check(wnp.power(y, 2.5), y**2.5, rtol=1e-5)
    check(wnp.asarray(y) ** -2, y**-2.0, rtol=1e-5)
    with pytest.raises(TypeError):
        wnp.power(x, -1)


REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "ptp"]
AXES = [(7,), (3, 4), (2, 3, 4), (17, 5), (1, 1)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, shape: tuple[int, ...], keepdims: bool) -> None:
    for dtype in ("float32", "int32", "bool"):
        if name in ("ptp", "var", "std", "mean") and dtype == "bool":
            continue
        x = values(shape, dtype, -2, 2)
        for axis in (None, 0, -1, tuple(range(len(shape))), ()):
            if name in ("ptp",) and axis == ():
                continue
            expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
            check(getattr(wnp, name)(x, axis=axis, keepdims=keepdims), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "any", "all"])
def test_where_and_initial(name: str) -> None:
    x = values((6, 5), "float32")
    mask = values((6, 5), "bool")
    mask[0] = True
    options: dict[str, Any] = {"where": mask, "axis": 0}
    if name in ("max", "min"):
        options["initial"] = 0.5
    check(getattr(wnp, name)(x, **options), getattr(np, name)(x, **options), rtol=1e-5, atol=1e-5)


def test_empty_reductions() -> None:
    x = np.zeros((0, 3), np.float32)
    check(wnp.sum(x, axis=0), x.sum(0))
    check(wnp.prod(x), np.float32(1))
    assert np.isnan(np.asarray(wnp.mean(x, axis=0))).all()
    with pytest.raises(ValueError, match="no identity"):
        wnp.max(x, axis=0)
    with pytest.raises(ValueError, match="empty sequence"):
        wnp.argmax(x, axis=0)


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"])
def test_nan_reductions(name: str) -> None:
    x = values((6, 5), "float32")
    x[RNG.random((6, 5)) < 0.3] = np.nan
    x[0] = 1.0
    for axis in (None, 0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of a slice without numbers
            expected = getattr(np, name)(x, axis=axis)
        check(getattr(wnp, name)(x, axis=axis), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    for dtype in ("float32", "int32"):
        x = values((5, 6), dtype, -3, 3)
        for axis in (None, 0, 1):
            check(getattr(wnp, name)(x, axis=axis), getattr(np, name)(x, axis=axis))
    x = np.array([1.0, np.nan, 3.0, np.nan], np.float32)
    assert getattr(wnp, name)(x) == 1


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum"])
def test_running(name: str) -> None:
    x = values((4, 5), "float32", 0.5, 1.5)
    for axis in (None, 0, 1):
        check(getattr(wnp, name)(x, axis=axis), getattr(np, name)(x, axis=axis), rtol=1e-5)
    check(wnp.cumsum(np.arange(5, dtype=np.int32)), np.cumsum(np.arange(5)))


def _same(function: Callable[[Any], Any], *args: Any) -> None:
    found, expected = function(wnp), function(np)
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(wnp.asarray(one), other)
    else:
        check(wnp.asarray(found), expected)


X = values((3, 4), "float32")
Y = values((2, 3, 4), "float32")
V = values((5,), "float32")
I = values((3, 3), "int32")  # noqa: E741 - the integer operand beside X, Y and V
STRUCTURAL: list[Callable[[Any], Any]] = [
    lambda m: m.reshape(X, (4, -1)), lambda m: m.reshape(X, (2, 6), order="F"), lambda m: m.ravel(X, order="F"),
    lambda m: m.transpose(Y, (2, 0, 1)), lambda m: m.swapaxes(Y, 0, 2), lambda m: m.moveaxis(Y, 0, -1),
    lambda m: m.expand_dims(X, (0, 2)), lambda m: m.squeeze(X[None]), lambda m: m.broadcast_to(V, (2, 5)),
    lambda m: m.flip(Y, (0, 2)), lambda m: m.fliplr(X), lambda m: m.flipud(X), lambda m: m.rot90(X, 3),
    lambda m: m.roll(Y, 2), lambda m: m.roll(X, (1, -2), axis=(0, 1)), lambda m: m.roll(V, 12),
    lambda m: m.tile(X, (2, 1, 2)), lambda m: m.repeat(X, 3, axis=1), lambda m: m.repeat(X, 2),
    lambda m: m.concatenate([X, X], axis=1), lambda m: m.stack([V, V], axis=1), lambda m: m.vstack([V, V]),
    lambda m: m.hstack([V, V]), lambda m: m.dstack([V, V]), lambda m: m.column_stack([V, V]),
    lambda m: m.split(X, 2, axis=1), lambda m: m.split(X, [1, 3], axis=1), lambda m: m.array_split(V, 3),
    lambda m: m.split(X, [3, 1], axis=1), lambda m: m.unstack(X), lambda m: m.append(V, 3.0),
    lambda m: m.block([[X, X], [X, X]]), lambda m: m.tril(X), lambda m: m.triu(Y, 1), lambda m: m.diag(V, -1),
    lambda m: m.diag(X, 1), lambda m: m.diagonal(Y, -1, 1, 2), lambda m: m.diagonal(X, 2), lambda m: m.trace(I, 1),
    lambda m: m.diagflat(V, 1), lambda m: m.vander(V), lambda m: m.kron(X, I), lambda m: m.cross(X[:, :3], X[:, 1:]),
    lambda m: m.outer(V, V), lambda m: m.inner(X, X), lambda m: m.dot(X, X.T), lambda m: m.vdot(X, X),
    lambda m: m.matmul(Y, X.T), lambda m: m.matmul(Y, np.swapaxes(Y, 1, 2)), lambda m: m.tensordot(Y, X, 2),
    lambda m: m.einsum("bij,kj->bik", Y, X), lambda m: m.einsum("ii->i", I), lambda m: m.einsum("ij,ij->", X, X),
    lambda m: m.einsum("i,j,k->kij", V, V, V), lambda m: m.linspace(0, 1, 7), lambda m: m.linspace(0, 1, 7, False),
    lambda m: m.where(X > 0, X, -X), lambda m: m.select([X > 1, X < -1], [X, -X], 0.5), lambda m: m.clip(X, -1, 1),
    lambda m: m.diff(Y, axis=1), lambda m: m.diff(V, 2), lambda m: m.ediff1d(V), lambda m: m.gradient(V),
    lambda m: m.gradient(X, 2.0, axis=1), lambda m: m.unwrap(V * 3), lambda m: m.cov(X), lambda m: m.corrcoef(X),
    lambda m: m.average(X, axis=1, weights=np.arange(1.0, 5.0, dtype=np.float32)), lambda m: m.polyval(V, X),
    lambda m: m.meshgrid(V, V, indexing="ij"), lambda m: m.tril_indices(4, 1), lambda m: m.identity(3),
    lambda m: m.round(X, 1), lambda m: m.angle(X + 1j), lambda m: m.isclose(X, X + 1e-7), lambda m: m.trapezoid(X),
    lambda m: m.hypot(X, X), lambda m: m.logaddexp(X, -X), lambda m: m.logaddexp2(X, -X), lambda m: m.copysign(X, -X),
    lambda m: m.heaviside(X, 0.5), lambda m: m.frexp(X), lambda m: m.modf(X), lambda m: m.ldexp(X, 3),
    lambda m: m.bitwise_count(I), lambda m: m.left_shift(I, 2), lambda m: m.right_shift(I, 1), lambda m: m.invert(I),
    lambda m: m.polyval(I[0], 3), lambda m: m.polyder(V, 2), lambda m: m.polyder(I[0]), lambda m: m.polyadd(V, X[0]),
    lambda m: m.polysub(X[0], V), lambda m: m.select([I > 0, X[:3, :3] > 0], [I, -I], 7), lambda m: m.ldexp(X, X > 0),
    lambda m: m.isin(I, [0, 1]) if m is np else m.isin(I, np.array([0, 1])), lambda m: m.diagflat(X),
    lambda m: m.resize(V, (2, 4)), lambda m: m.mgrid[0:2, 0:3], lambda m: m.r_[V, 1:4],
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(STRUCTURAL)))
def test_structure(index: int) -> None:
    _same(STRUCTURAL[index])


@pytest.mark.parametrize(
    "mode", ["constant", "edge", "reflect", "symmetric", "wrap", "maximum", "minimum", "mean", "linear_ramp"]
)
def test_pad(mode: str) -> None:
    for widths in (1, (2, 1), ((1, 2), (3, 4)), ((7, 0), (0, 9))):
        check(wnp.pad(X, widths, mode=mode), np.pad(X, widths, mode=mode), rtol=1e-5)
    check(wnp.pad(X, 1, constant_values=((1, 2), (3, 4))), np.pad(X, 1, constant_values=((1, 2), (3, 4))))


INDICES: list[Any] = [
    0, -1, (1, 2), slice(1, None), (slice(None), 1), (slice(None, None, -1), slice(0, 4, 2)), None, (..., 0),
    (None, 1, None), slice(None, None, -2), slice(5, 1), (slice(2, 0, -1), None, 3), (), ..., np.int32(1),
    (slice(-2, None), -1), (1, slice(None, None, 2)),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_basic_indexing(index: Any) -> None:
    check(wnp.asarray(X)[index], X[index])


def test_indexing_with_arrays_of_one_integer() -> None:
    x = wnp.asarray(X)
    check(x[wnp.asarray(1)], X[1])
    check(x[wnp.asarray(-1), 1:3], X[-1, 1:3])
    assert [row.shape for row in x] == [(4,)] * 3
    check(x[10], X[-1])  # clamped, as traced indices are


def test_indexing_errors() -> None:
    x = wnp.asarray(X)
    with pytest.raises(IndexError, match="Too many indices"):
        x[0, 0, 0]
    with pytest.raises(TypeError, match="string indexing"):
        x["a"]
    with pytest.raises(TypeError, match="non-tuple sequence"):
        x[[0, 1]]
    with pytest.raises(TypeError, match="integer or boolean"):
        x[1.0]


def test_promotion_of_scalars() -> None:
    x = wnp.ones(3, "bfloat16")
    assert (x + 1).dtype == (x * 2.5).dtype == x.dtype
    assert (wnp.ones(3, "int32") + 1.5).dtype == np.float32
    assert (wnp.ones(3, "int8") + wnp.ones(3, "uint8")).dtype == np.int16
    assert wnp.asarray(1.0).weak_type and not wnp.asarray([1.0]).weak_type
    assert (wnp.ones(3, "uint8") - 1).dtype == np.uint8


def test_operators_defer_to_unknown_types() -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "deferred"

    assert wnp.ones(2) + Other() == "deferred"
    with pytest.raises(TypeError, match="unsupported operand"):
        wnp.ones(2) + "a"
    assert (wnp.ones(2) == "a") is False


def test_creation_errors() -> None:
    with pytest.raises(TypeError, match="not a valid JAX array type"):
        wnp.asarray("a")
    with pytest.raises(ValueError, match="None is not a valid value"):
        wnp.asarray(None)
    with pytest.raises(ValueError, match="inhomogeneous"):
        wnp.asarray([[1], [1, 2]])
    with pytest.raises(OverflowError):
        wnp.asarray(2**40)
    with pytest.raises(TypeError, match="Shapes must be 1D sequences"):
        wnp.zeros((2.5,))
    with pytest.raises(TypeError, match="requires ndarray or scalar arguments"):
        wnp.sin([1.0])
    with pytest.raises(NotImplementedError, match="out"):
        wnp.sum(X, out=X)


def test_methods_and_properties() -> None:
    x = wnp.asarray(X)
    check(x.T, X.T)
    check(x.mT, X.T)
    check(x.sum(0), X.sum(0))
    check(x.mean(axis=1, keepdims=True), X.mean(1, keepdims=True))
    check(x.reshape(2, -1), X.reshape(2, -1))
    check(x.astype("int32"), X.astype("int32"))
    check(x.clip(-1, 1), X.clip(-1, 1))
    check(x.view("int32"), X.view("int32"))
    check(x.flatten(), X.flatten())
    check(x.std(), X.std())
    assert x.real is not None and x.imag.shape == x.shape
    assert x.__array_namespace__() is wnp


def test_membership_and_pieces(tmp_path: Any) -> None:
    check(wnp.isin(I, np.array([1, 2])), np.isin(I, [1, 2]))
    check(wnp.isin(I, 3, invert=True), np.isin(I, 3, invert=True))
    check(wnp.delete(X, 1, axis=1), np.delete(X, 1, axis=1))
    check(wnp.delete(V, slice(1, 3)), np.delete(V, slice(1, 3)))
    pieces: list[Any] = [lambda v: v * 2, lambda v: -v, 7.0]
    check(wnp.piecewise(V, [V > 1, V < -1], pieces), np.piecewise(V, [V > 1, V < -1], pieces))
    check(wnp.apply_over_axes(wnp.sum, X, (0, 1)), np.apply_over_axes(np.sum, X, (0, 1)), rtol=1e-5)
    wnp.save(tmp_path / "x.npy", wnp.asarray(X))
    check(wnp.load(tmp_path / "x.npy"), X)
    assert wnp.array_str(wnp.arange(2)) == "[0 1]"


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(300,), (7, 50), (1, 1, 900)])
def test_files_in_blocks_are_numpys(dtype: str, shape: tuple[int, ...], tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(files, "_BLOCK", 100)
    x = wnp.asarray(values(shape, "float32")).astype(dtype)
    wnp.save(tmp_path / "blocks", x)
    with open(tmp_path / "opened.npy", "wb") as file:
        wnp.save(file, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of the name of bfloat16
        np.save(tmp_path / "numpys.npy", np.asarray(x))
    expected = (tmp_path / "numpys.npy").read_bytes()
    assert (tmp_path / "blocks.npy").read_bytes() == expected
    assert (tmp_path / "opened.npy").read_bytes() == expected


@pytest.mark.parametrize("index", range(len(STRUCTURAL)))
def test_jit_equals_eager(index: int) -> None:
    function = STRUCTURAL[index]
    eager = weft.tree.leaves(function(wnp))
    jitted = weft.tree.leaves(weft.jit(lambda: function(wnp))())
    for one, other in zip(eager, jitted, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "float64", "complex128"])
@pytest.mark.parametrize("name", ["sin", "exp", "sqrt", "tanh", "square", "log1p", "absolute", "sign", "reciprocal"])
def test_unary_of_other_dtypes(name: str, dtype: str) -> None:
    kind = wnp.dtype(wnp.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    wide = np.complex128 if kind.kind == "c" else np.float64
    x = (values((40,), "complex128") if kind.kind == "c" else values((40,), "float64", 0.1, 3.0)).astype(kind)
    with weft.enable_x64(kind.itemsize >= 8 and dtype != "complex64"):
        found = getattr(wnp, name)(x)
    assert found.dtype == (np.abs(np.ones(1, kind)).dtype if name == "absolute" else kind)
    expected = getattr(np, name)(x.astype(wide))
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "complex64": 1e-5}.get(dtype, 1e-13)
    np.testing.assert_allclose(np.asarray(found).astype(expected.dtype), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "float64", "int64", "uint8", "int16"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "var", "cumsum"])
def test_reductions_of_other_dtypes(name: str, dtype: str) -> None:
    kind = wnp.dtype(wnp.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    wide = np.complex128 if kind.kind == "c" else np.float64 if kind.kind not in "iu" else np.int64
    x = values((4, 6), "complex128", 0.5, 1.5) if kind.kind == "c" else values((4, 6), "float64", 1, 3)
    x = x.astype(kind)
    with weft.enable_x64(dtype in ("float64", "int64")):
        found = getattr(wnp, name)(x, axis=1)
    expected = getattr(np, name)(x.astype(wide), axis=1)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-12}.get(dtype, 1e-5)
    np.testing.assert_allclose(np.asarray(found).astype(expected.dtype), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["ones", "zeros", "empty"])
def test_traced_shape(name: str) -> None:
    with pytest.raises(TypeError, match=r"(?s)Shapes must be 1D sequences of concrete values.*argument n"):
        weft.jit(lambda n: getattr(wnp, name)(n))(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: lax.full((n, 2), 1.0), lambda n: lax.iota(np.int32, n), lambda n: lax.broadcast(1.0, (n,)),
        lambda n: lax.reshape(np.ones(4, np.float32), (n, 2)), lambda n: lax.empty((n,), np.float32),
        lambda n: lax.broadcast_in_dim(1.0, (n,), ()), lambda n: lax.broadcasted_iota(np.int32, (n,), 0),
    ],
)  # fmt: skip
def test_traced_shape_in_lax(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"(?s)Shapes must be 1D sequences of concrete values.*argument n"):
        weft.jit(lambda n: make(n))(3)

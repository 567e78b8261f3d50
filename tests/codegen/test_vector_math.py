"""Vector math against float64, 80-bit and mpmath references over all magnitudes; the bounds of docs/NUMERICS.md."""

from __future__ import annotations

import math
import platform

import ml_dtypes
import mpmath
import numpy as np
import pytest
import scipy.special

from tests.codegen.running import HOST, elementwise, run_map
from weft._base import target
from weft.codegen.arithmetic.lanes import Value
from weft.codegen.vector_math import library_log
from weft.core.primitive import registry
from weft.operations.pointwise import special as special_operations

LONG = np.longdouble
HALF_PI = np.pi / 2

# largest error in units in the last place, float32 and float64 (subnormal results: of the least subnormal)
BOUNDS = {
    "exp": (1.1, 1.1),
    "exp2": (1.1, 1.1),
    "expm1": (1.5, 1.2),
    "log": (1.0, 1.0),
    "log1p": (1.2, 1.0),
    "logistic": (2.5, 2.5),
    "sin": (1.5, 1.0),
    "cos": (1.5, 1.0),
    "tan": (0.6, 1.0),
    "asin": (0.6, 1.0),
    "acos": (0.6, 1.0),
    "atan": (1.5, 1.0),
    "sinh": (1.1, 1.0),
    "cosh": (1.1, 1.0),
    "tanh": (2.6, 2.6),
    "asinh": (1.5, 1.5),
    "acosh": (1.5, 1.5),
    "atanh": (1.2, 1.5),
    "erf": (1.1, 2.7),
    "erfc": (2.1, 3.6),
    "erf_inv": (1.1, 3.5),
    "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5),
    "cbrt": (1.0, 0.6),
    "pow": (0.6, 1.1),
    "atan2": (1.5, 1.5),
}
# the same with AVX-512, where these have longer tables
WITH_TABLES = {"tanh": (1.5, 1.8), "erf": (1.0, 1.0), "erfc": (1.5, 1.5), "erf_inv": (1.1, 1.2)}


def logistic(x):
    t = np.exp(-np.abs(x))
    return np.where(x > 0, 1 / (1 + t), t / (1 + t))


REFERENCES = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "atan2": np.arctan2,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": logistic,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erf_inv": lambda x: np.copysign(scipy.special.erfinv(x), x),
}


def samples(dtype, count=120_000, seed=0):
    """Random bit patterns (all magnitudes), dense ordinary ranges, neighbourhoods of 1 and of k pi / 2, specials."""
    r = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    patterns = r.integers(0, 256, count * size, dtype=np.uint8).view(dtype)
    signs = r.choice([-1, 1], count)
    parts = [
        patterns,
        r.uniform(-1, 1, count),
        r.uniform(-12, 12, count),
        r.uniform(-110, 110, count),
        r.uniform(-1e4, 1e4, count),
        2.0 ** r.uniform(-40, 40, count) * signs,
        1 + 2.0 ** r.uniform(-30, 0, count) * signs,
        np.arange(-2000, 2000) * HALF_PI,
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1,
            -1,
            0.5,
            -0.5,
            2,
            1.797e308,
            3.4e38,
            88.8,
            89.4,
            710.2,
            710.8,
            -103.5,
            -745.0,
        ],
    ]
    if size == 8:
        parts += [r.uniform(-745, 720, count), 2.0 ** r.uniform(-1000, 1000, count)]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.concatenate([np.asarray(p).astype(dtype) for p in parts])


def errors_in_ulps(got, reference, dtype):
    """Errors where both are finite, and where the kinds (NaN, infinity, signed zero) differ."""
    info = np.finfo(dtype)
    rounded = reference.astype(dtype)
    size = np.abs(reference)
    ordinary = (size > 0) & np.isfinite(size)
    exponent = np.floor(np.log2(np.where(ordinary, size, 1)))
    unit = np.ldexp(np.ones(size.shape, reference.dtype), (np.maximum(exponent, info.minexp) - info.nmant).astype(int))
    both = np.isfinite(got) & np.isfinite(reference)
    error = np.where(
        both, np.abs(np.where(both, got, 0).astype(reference.dtype) - np.where(both, reference, 0)) / unit, 0
    )
    differ = (np.isnan(got) != np.isnan(rounded)) | (np.isinf(got) != np.isinf(rounded))
    differ |= (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return error, differ


def run(name, *arrays, on=HOST):
    kind = elementwise(lambda emit, *values: emit.function(name, *values), cost=30.0)
    return run_map(kind, list(arrays), arrays[0].dtype, on.lanes, on=on)


def check(name, arrays, reference, dtype, on=HOST):
    got = run(name, *arrays, on=on)
    error, differ = errors_in_ulps(got, reference, dtype)
    worst = int(np.argmax(error))
    bounds = {**BOUNDS, **WITH_TABLES} if on.model.masks else BOUNDS
    bound = bounds[name][0 if dtype == np.float32 else 1]
    assert error[worst] <= bound + 1e-6, (name, error[worst], [a[worst] for a in arrays], got[worst])
    where = np.flatnonzero(differ)[:5]
    assert not where.size, (name, [(tuple(a[i] for a in arrays), got[i], reference[i]) for i in where])


PLAIN = [n for n in BOUNDS if n not in ("pow", "atan2")]
BY_MPMATH = ("erf", "erfc", "erf_inv")


AVX2 = target.named("x86-64-v3") if HOST.triple.startswith("x86_64") else HOST


@pytest.mark.parametrize("on", [HOST, AVX2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_limits_are_exact(dtype, on):
    """What saturates is 1 where the rounded value is, not the number beside it; so are erfc and exp of 0."""
    far = np.array([np.inf, -np.inf, 1e30, -1e30, 40.0, -40.0, 20.0, 9.5, 0.0, -0.0], dtype)
    one = [1, -1, 1, -1, 1, -1]
    for name in ("erf", "tanh"):
        assert (run(name, far, on=on)[:6] == one).all(), name
    assert (run("erfc", far, on=on)[[0, 1, 2, 3, 4, 5, 8, 9]] == [0, 2, 0, 2, 0, 2, 1, 1]).all()
    assert (run("expm1", far, on=on)[[0, 1, 3, 5]] == [np.inf, -1, -1, -1]).all()
    for name in ("exp", "exp2"):
        assert (run(name, far, on=on)[[0, 1, 2, 3, 8, 9]] == [np.inf, 0, np.inf, 0, 1, 1]).all(), name


@pytest.mark.parametrize("on", [HOST, AVX2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_values_to_the_ends_and_beyond_them(dtype, on):
    """Each rare number stands alone among ordinary ones, in every lane."""
    one = dtype(1)
    rare = np.array([1, 2, 1.005, np.inf, np.nan, np.nextafter(one, dtype(0)), 0.9999, 0.9967, 0.9965, 1e-40], dtype)
    x = np.random.default_rng(0).uniform(-0.99, 0.99, (16, 2 * rare.size, 17)).astype(dtype)
    x[:, :, 0] = np.concatenate([rare, -rare])
    found, wanted = run("erf_inv_drawn", x.reshape(-1), on=on), scipy.special.erfinv(x.astype(np.float64)).reshape(-1)
    assert np.allclose(found, wanted, rtol=3e-5 if dtype == np.float32 else 1e-11, atol=1e-45, equal_nan=True)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float32(name):
    x = samples(np.float32)
    reference = REFERENCES.get(name, getattr(np, name, None))
    assert reference is not None
    exact = reference(x.astype(np.float64))
    check(name, [x], exact, np.float32)
    check(name, [x[::5].copy()], exact[::5], np.float32, AVX2)


@pytest.mark.parametrize("name", [n for n in PLAIN if n not in BY_MPMATH])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float64(name):
    x = samples(np.float64, 40_000)
    reference = REFERENCES.get(name, getattr(np, name, None))
    assert reference is not None
    exact = reference(x.astype(LONG))
    check(name, [x], exact, np.float64)
    check(name, [x[::5].copy()], exact[::5], np.float64, AVX2)


@pytest.mark.parametrize("name", BY_MPMATH)
def test_float64_error_functions(name):
    r = np.random.default_rng(5)
    parts = [r.uniform(-1, 1, 600), 1 - 2.0 ** r.uniform(-53, 0, 300), 2.0 ** r.uniform(-300, -1, 200)]
    if name != "erf_inv":
        parts += [r.uniform(-6, 28, 800), r.uniform(0.7, 1.2, 300), [0.0, -0.0]]
    x = np.concatenate(parts)
    function = {"erf": mpmath.erf, "erfc": mpmath.erfc, "erf_inv": mpmath.erfinv}[name]

    def exact(v):
        with mpmath.workdps(40):
            result = function(mpmath.mpf(float(v)))
            head = float(result)
            return LONG(head) + LONG(float(result - mpmath.mpf(head)))

    reference = np.copysign(
        np.array([exact(v) for v in x]), np.where((name != "erfc") & (x == 0), x, 1 if name == "erfc" else x)
    )
    check(name, [x], reference, np.float64)
    check(name, [x], reference, np.float64, AVX2)
    special = run(name, np.array([np.nan, 1.0, -1.0, 1.5, np.inf, -np.inf]))
    expected = {"erf": [np.nan, None, None, None, 1, -1], "erfc": [np.nan, None, None, None, 0, 2]}
    for got, want in zip(special, expected.get(name, [np.nan, np.inf, -np.inf, np.nan, np.nan, np.nan]), strict=True):
        assert want is None or got == want or (np.isnan(got) and np.isnan(want))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["pow", "atan2"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_two_operands(name, dtype):
    count = 80_000 if dtype == np.float32 else 30_000
    r = np.random.default_rng(3)
    x, y = samples(dtype, count), samples(dtype, count, 7)
    y = y[r.permutation(len(y))]
    if name == "pow":  # results of every magnitude
        base = 2.0 ** r.uniform(-30, 30, 4 * count)
        base[::2] = r.uniform(0.7, 1.5, 2 * count)  # small logarithms, large exponents
        power = r.uniform(-1, 1, 4 * count) * (150 if dtype == np.float32 else 1070) / np.abs(np.log2(base))
        x, y = np.concatenate([x, base.astype(dtype)]), np.concatenate([y, power.astype(dtype)])
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-40, 1e30], dtype)
    a, b = np.meshgrid(special, special)
    x, y = np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])
    wide = np.float64 if dtype == np.float32 else LONG
    exact = REFERENCES[name](x.astype(wide), y.astype(wide))
    check(name, [x, y], exact, dtype)
    check(name, [x[::5].copy(), y[::5].copy()], exact[::5], dtype, AVX2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gamma_functions(name, dtype):
    """Mixed bound: 4 ulp of max(1, |result|)."""
    r = np.random.default_rng(2)
    x = np.concatenate([r.uniform(0.01, 30, 3000), 2.0 ** r.uniform(-20, 60, 1000), r.uniform(-5, 0, 500)]).astype(
        dtype
    )
    reference = {"lgamma": scipy.special.gammaln, "digamma": scipy.special.digamma}[name](x.astype(np.float64))
    got = run(name, x).astype(np.float64)
    keep = np.isfinite(reference) & ((x > 0) | (np.abs(x - np.round(x)) > 0.02))  # the poles amplify
    unit = np.finfo(dtype).eps * np.maximum(1, np.abs(reference))
    assert np.max(np.abs(got - reference)[keep] / unit[keep]) <= (4 if dtype == np.float32 else 16)


@pytest.mark.parametrize("on", [HOST, target.named("x86-64-v3")], ids=lambda on: on.name)
@pytest.mark.parametrize(("name", "bound"), [("bessel_i0e", 2.5), ("bessel_i1e", 3.8)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scaled_bessel_functions_of_float32(name, bound, on):
    x = samples(np.float32)
    got = run_map(elementwise(lambda emit, v: emit.function(name, v)), [x], x.dtype, on.lanes, on=on)
    reference = getattr(scipy.special, name[-3:])(x.astype(np.float64))
    if name == "bessel_i1e":
        reference = np.copysign(reference, x)
    error, differ = errors_in_ulps(got, reference, np.float32)
    assert error.max() <= bound and not differ.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*PLAIN, "lgamma", "digamma"])
def test_bits_do_not_depend_on_neighbours_or_width(name, dtype):
    """A value's result is the same alone, beside others, scalar (width 1) and on narrower vectors."""
    r = np.random.default_rng(1)
    x = np.concatenate([r.uniform(-3, 3, 30), [1e6, 1e30, -1e9, 0.999, np.nan, np.inf, 1e-39]]).astype(dtype)
    kind = elementwise(lambda emit, v: emit.function(name, v), cost=30.0)
    wide = run_map(kind, [x], x.dtype)
    for width in (1, 4, 8):
        np.testing.assert_array_equal(run_map(kind, [x], x.dtype, width), wide)
    alone = np.concatenate([run_map(kind, [np.full(16, v)], x.dtype)[:1] for v in x[::3]])
    np.testing.assert_array_equal(alone, wide[::3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sin_and_cos_of_one_operand_share_the_reduction(dtype):
    kind = elementwise(lambda emit, v: emit.add(emit.sin(v), emit.cos(v)), cost=40.0)
    x = samples(dtype, 2000)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(run_map(kind, [x], x.dtype), run("sin", x) + run("cos", x))


# ---- all values of the half precisions ----

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
HALF_REFERENCES = {
    **{name: REFERENCES.get(name, getattr(np, name, None)) for name in PLAIN},
    **{name: getattr(np, name) for name in ("ceil", "floor", "square")},
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "lgamma": scipy.special.gammaln,
    "digamma": lambda x: np.where((x == 0) | (x == -np.inf), np.nan, scipy.special.psi(x)),  # NaN at every pole
    "bessel_i0e": scipy.special.i0e,
    "bessel_i1e": lambda x: np.copysign(scipy.special.i1e(x), x),
}


@pytest.mark.parametrize("on", [HOST, target.named("x86-64-v3")], ids=lambda on: on.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_value_of_the_half_precisions(on):
    """The float32 function rounded once: half a unit, and what float32 adds to that; NaN, infinities, signs of zero."""
    for dtype in HALVES:
        x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        exact = x.astype(np.float64)
        info = ml_dtypes.finfo(dtype)
        for name, function in HALF_REFERENCES.items():
            with np.errstate(all="ignore"):
                reference = function(exact)
                rounded = reference.astype(dtype)
            kind = getattr(special_operations, f"{name}_p", None) or registry[name]
            got = run_map(kind.kind, [x], dtype, on.lanes, on=on)
            found, wanted = got.astype(np.float64), rounded.astype(np.float64)
            differ = (np.isnan(found) != np.isnan(wanted)) | (np.isinf(found) != np.isinf(wanted))
            differ |= (found == 0) & (wanted == 0) & (np.signbit(found) != np.signbit(wanted))
            size = np.where(np.isfinite(reference) & (reference != 0), np.abs(reference), 1)
            exponent = np.maximum(np.floor(np.log2(size)), info.minexp) - info.nmant
            both = np.isfinite(found) & np.isfinite(reference)
            error = np.where(both, np.abs(found - np.where(both, reference, 0)), 0)
            least = 2.0**exponent
            slack = np.where(name in ("lgamma", "digamma"), 2.0**-20 * np.maximum(1, np.abs(reference)), 0)
            bad = differ | (error > (0.5 + 2.0**-10) * least + np.where(both, slack, 0))
            where = np.flatnonzero(bad)
            assert not where.size, (name, dtype, where.size, [(x[i], got[i], reference[i]) for i in where[:5]])


@pytest.mark.parametrize("width", [1, HOST.lanes])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_any_size(dtype: type, name: str, width: int) -> None:
    """Also those nearest to multiples of pi / 2, whose remainders lose most bits, and beside ordinary ones."""
    r, info = np.random.default_rng(6), np.finfo(dtype)
    least = 17 if dtype == np.float32 else 28
    sizes = np.ldexp(r.uniform(1, 2, 400), r.integers(least, info.maxexp - 1, 400))
    nearest = [16367173 * 2.0**72, 6381956970095103 * 2.0**797, 2.0**28, 2.0**40, 71476.0, 1e22, float(info.max)]
    with np.errstate(over="ignore"):
        x = np.concatenate([sizes, nearest, np.arange(1e6, 1.0001e6) * HALF_PI, r.uniform(-9, 9, 100)]).astype(dtype)
    x = np.concatenate([x, -x])[r.permutation(2 * len(x))]
    got = run_map(elementwise(lambda emit, v: emit.function(name, v), cost=30.0), [x], dtype, width)
    bound = BOUNDS[name][0 if dtype == np.float32 else 1] * float(info.eps)
    with mpmath.workprec(2400):
        for value, found in zip(x.tolist(), got.tolist(), strict=True):
            if not np.isfinite(value):
                assert np.isnan(found)
                continue
            exact = getattr(mpmath, name)(mpmath.mpf(value))
            assert abs(found - exact) <= bound * abs(exact), (value, found)


@pytest.mark.parametrize("width", [1, HOST.lanes])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_any_numbers_are_exact(dtype: type, width: int) -> None:
    r, info = np.random.default_rng(7), np.finfo(dtype)
    x = r.integers(0, 256, 20_000 * info.dtype.itemsize, dtype=np.uint8).view(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.smallest_subnormal, -info.tiny, 1, 3], dtype)
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    x, y = np.concatenate([x, a]), np.concatenate([r.permutation(x), b])
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x, y)
    got = run_map(elementwise(lambda emit, a, b: emit.rem(a, b), cost=30.0), [x, y], dtype, width)
    np.testing.assert_array_equal(got, expected)
    assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()


def test_the_logarithm_of_random_values_is_that_of_the_c_library() -> None:
    """glibc's, which it repeats; another library's may be rounded otherwise in one of 50 values."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    r = np.random.default_rng(8)
    x = np.concatenate([r.uniform(2.0**-53, 0.586, 20_000), 2.0 ** -r.uniform(0.8, 53, 20_000)])
    kind = elementwise(lambda emit, v: Value(v.dtype, (library_log.log_f64(v.part),)), cost=30.0)
    assert run_map(kind, [x], np.float64, 1).tolist() == [math.log(v) for v in x.tolist()]

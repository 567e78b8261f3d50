"""Convolutions of every layout, dilation, group and dtype, beside a loop in NumPy and JAX; vmap, derivatives, bits."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
import weft.lax as lax
from tests.operations.test_compiled import bits
from weft.test_util import check_grads

IMAGES = ("NHWC", "HWIO", "NHWC")


def by_a_loop(x: Any, kernel: Any, strides: Any, padding: Any, holes: Any, spread: Any, layouts: Any) -> np.ndarray:
    """The definition: holes and padding made, then a sum over taps and features at every output, in float64."""
    wide = np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64
    letters = [letter for letter in layouts[1] if letter not in "OI"]
    x = np.transpose(np.asarray(x).astype(wide), [layouts[0].index(c) for c in ("N", "C", *letters)])
    kernel = np.transpose(np.asarray(kernel).astype(wide), [layouts[1].index(c) for c in ("O", "I", *letters)])
    filled = [(n - 1) * hole + 1 if n else 0 for n, hole in zip(x.shape[2:], holes)]
    dilated = np.zeros((*x.shape[:2], *filled), wide)
    dilated[(..., *[slice(None, None, hole) for hole in holes])] = x
    for dim, (low, high) in enumerate(padding, start=2):
        widths = [(0, 0)] * x.ndim
        widths[dim] = (max(low, 0), max(high, 0))
        dilated = np.pad(dilated, widths)
        cut = slice(max(-low, 0), dilated.shape[dim] - max(-high, 0))
        dilated = dilated[(slice(None),) * dim + (cut,)]
    reach = [(t - 1) * d + 1 for t, d in zip(kernel.shape[2:], spread)]
    outputs = [max((n - r) // s + 1, 0) for n, r, s in zip(dilated.shape[2:], reach, strides)]
    out = np.zeros((x.shape[0], kernel.shape[0], *outputs), wide)
    axes = list(range(1, x.ndim))
    for at in np.ndindex(*outputs):
        window = [slice(p * s, p * s + r, d) for p, s, r, d in zip(at, strides, reach, spread)]
        out[(..., *at)] = np.tensordot(dilated[(..., *window)], kernel, (axes, axes))
    return np.transpose(out, [("N", "C", *letters).index(c) for c in layouts[2]])


def integers_of(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    """Small whole numbers, whose sums are exact in every dtype."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.integers(-2, 3, shape)
    return (x + 1j * rng.integers(-2, 3, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


SPACES = [
    ((), (), (), (), ()),
    ((7,), (3,), (2,), ((1, -1),), (3,)),
    ((5, 6), (2, 3), (1, 2), ((2, 0), (-1, 3)), (1, 2)),
    ((4, 3, 5), (2, 2, 3), (2, 1, 1), ((0, 1), (1, 0), (1, 1)), (1, 2, 2)),
    ((3, 4, 2, 3), (2, 1, 2, 2), (1, 1, 1, 2), ((1, 0), (0, 0), (1, 1), (1, 0)), (2, 1, 1, 1)),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{len(space[0])}d")
@pytest.mark.parametrize("spread_first", [False, True])
def test_every_number_of_spatial_dimensions(space: Any, spread_first: bool) -> None:
    extents, taps, strides, padding, dilation = space
    letters = "ABDE"[: len(extents)]
    ones = (1,) * len(extents)
    holes, spread = (dilation, ones) if spread_first else (ones, dilation)
    layouts = ("C" + letters[::-1] + "N", letters + "OI", "N" + letters + "C")
    x = integers_of((3, *extents[::-1], 2), np.float32)
    kernel = integers_of((*taps, 4, 3), np.float32)
    found = lax.conv_general_dilated(x, kernel, strides, padding, holes, spread, layouts)
    expected = by_a_loop(x, kernel, strides, padding, holes, spread, layouts)
    assert np.array_equal(np.asarray(found), expected.astype(np.float32))


DTYPES = [np.int8, np.uint8, np.int32, np.float16, ml_dtypes.bfloat16, np.float32, np.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype(dtype: Any) -> None:
    """Sums of whole numbers are exact: in float32 for half precisions, wrapped for narrow integers."""
    x, kernel = integers_of((2, 5, 6, 4), dtype), integers_of((3, 2, 4, 3), dtype)
    found = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=IMAGES)
    exact = by_a_loop(x, kernel, (1, 1), ((1, 1), (0, 1)), (1, 1), (1, 1), IMAGES)
    wraps = np.dtype(dtype).kind in "iu"
    assert found.dtype == dtype
    assert np.array_equal(np.asarray(found), (exact.astype(np.int64) if wraps else exact).astype(dtype))


def test_half_precisions_are_summed_in_float32() -> None:
    x = np.full((1, 4, 600), 1 + 2**-7, ml_dtypes.bfloat16)
    found = lax.conv(x, np.ones((2, 4, 500), ml_dtypes.bfloat16), (1,), "VALID", preferred_element_type=np.float32)
    assert np.array_equal(np.asarray(found), np.full((1, 2, 101), 2000 * (1 + 2**-7), np.float32))


@pytest.mark.parametrize("layouts", ["NHWC HWIO NHWC", "NCHW OIHW NCHW", "HWNC OIHW HWNC", "HNWC WOHI CWHN"])
def test_layouts_in_float32(layouts: str) -> None:
    """Rounding is that of a matrix product: within a few units of the sum of magnitudes."""
    words = tuple(layouts.split())
    rng = np.random.default_rng(0)
    x = rng.normal(size=[{"N": 3, "H": 9, "W": 8, "C": 16}[c] for c in words[0]]).astype(np.float32)
    kernel = rng.normal(size=[{"O": 17, "H": 3, "W": 3, "I": 16}[c] for c in words[1]]).astype(np.float32)
    settings = ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), words)
    exact, magnitude = by_a_loop(x, kernel, *settings), by_a_loop(abs(x), abs(kernel), *settings)
    found = np.asarray(lax.conv_general_dilated(x, kernel, *settings))
    assert np.all(np.abs(found - exact) <= 2.0**-24 * 24 * magnitude)


@pytest.mark.parametrize("layouts", [IMAGES, ("NCHW", "OIHW", "NCHW")], ids=["last", "first"])
def test_many_features_give_few(layouts: Any) -> None:
    """The kernel's taps are columns of one product, whose parts are added up where they belong."""
    x = integers_of([{"N": 2, "H": 6, "W": 5, "C": 32}[c] for c in layouts[0]], np.float32)
    kernel = integers_of([{"O": 3, "H": 3, "W": 4, "I": 32}[c] for c in layouts[1]], np.float32)
    for strides, padding, holes in [((1, 1), ((1, -1), (2, 1)), (1, 1)), ((1, 1), ((2, 0), (3, 2)), (2, 3))]:
        for spread in [(1, 1), (2, 1)]:
            found = lax.conv_general_dilated(x, kernel, strides, padding, holes, spread, layouts)
            assert np.array_equal(np.asarray(found), by_a_loop(x, kernel, strides, padding, holes, spread, layouts))


def call(module: Any, case: Any) -> Any:
    strides, padding, holes, spread, features, batches = case
    return lambda x, k: module.conv_general_dilated(
        x, k, strides, padding, holes, spread, IMAGES, features, batches
    )  # fmt: skip


@st.composite
def cases(draw: Any) -> Any:
    def two(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    groups, kind = draw(st.integers(1, 3)), draw(st.booleans())
    features, batches = (groups, 1) if kind else (1, groups)
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 2)) * groups
    x = (draw(st.integers(1, 2)) * batches, *two(1, 7), inner * features)
    return (two(1, 3), (two(-1, 3), two(-1, 3)), two(1, 3), two(1, 2), features, batches), x, (*two(1, 4), inner, outer)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(cases())
def test_random_parameters_as_jax(case: Any) -> None:
    """Values, both gradients and errors."""
    parameters, *shapes = case
    x, kernel = (integers_of(shape, np.float32, i) for i, shape in enumerate(shapes))
    try:
        expected = call(jax.lax, parameters)(x, kernel)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            call(lax, parameters)(x, kernel)
        return
    weights = integers_of(expected.shape, np.float32, 2)

    def all_of(module: Any) -> Any:
        def run(x: Any, kernel: Any) -> Any:
            out, back = module.vjp(call(module.lax, parameters), x, kernel)
            return out, *back(module.numpy.asarray(weights))

        return module.jit(run)(x, kernel)

    for found, wanted in zip(all_of(weft), all_of(jax), strict=True):
        assert np.array_equal(np.asarray(found), np.asarray(wanted))


GROUPED = [
    ((2,), "SAME", None, (2,), None, 1, 1),
    ((1,), "SAME", None, None, None, 2, 1),
    ((1,), "VALID", *[None] * 3, 1, 2),
]


@pytest.mark.parametrize("parameters", GROUPED, ids=["plain", "features", "batch"])
def test_vmap_is_a_loop(parameters: Any) -> None:
    x, kernel = integers_of((3, 4, 4, 9), np.float32), integers_of((3, 4, 4 // parameters[5], 2), np.float32)

    def convolve(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(x, kernel, *parameters)

    for left, right, out in [(0, 0, 0), (0, None, 1), (None, 0, 2), (2, 1, 0)]:
        ones = [np.moveaxis(a, 0, dim) if dim is not None else a[0] for a, dim in ((x, left), (kernel, right))]
        found = weft.vmap(convolve, (left, right), out)(*ones)
        rows = [convolve(x[i if left is not None else 0], kernel[i if right is not None else 0]) for i in range(3)]
        assert np.array_equal(np.asarray(found), np.stack([np.asarray(row) for row in rows], out))
    assert weft.vmap(convolve, (0, None))(x[:0], kernel[0]).shape[0] == 0


def test_derivatives_of_the_second_order() -> None:
    rng = np.random.default_rng(3)
    x, kernel = rng.normal(size=(2, 4, 5)).astype(np.float32), rng.normal(size=(2, 4, 2)).astype(np.float32)
    check_grads(lambda x, k: lax.conv_general_dilated(x, k, (2,), ((1, 2),), (1,), (2,)), (x, kernel), 2)
    check_grads(lambda x, k: lax.conv_general_dilated(x, k, (1,), ((2, 0),), (2,)) ** 2, (x, kernel), 1, ["rev"])
    check_grads(
        lambda x, k: lax.conv_transpose(x, k, (2,), "SAME"), (x, rng.normal(size=(3, 5, 2)).astype(np.float32)), 2
    )


def test_sizes_of_zero() -> None:
    for x, kernel in itertools.product([(0, 2, 5), (2, 2, 5), (2, 2, 1), (2, 0, 5)], [(3, 2, 2), (0, 2, 2), (3, 0, 2)]):
        if x[1] != kernel[1]:
            continue
        operands = np.ones(x, np.float32), np.ones(kernel, np.float32)
        found, back = weft.vjp(lambda x, k: lax.conv(x, k, (1,), "VALID"), *operands)
        expected = jax.lax.conv(*operands, (1,), "VALID")
        assert found.shape == expected.shape and np.array_equal(np.asarray(found), np.asarray(expected))
        assert [ct.shape for ct in back(found)] == [x, kernel]
    with pytest.raises(ValueError, match="windows must not be empty"):
        lax.conv(np.ones((1, 1, 3), np.float32), np.ones((1, 1, 0), np.float32), (1,), "VALID")


def test_bits_of_one_program_and_of_single_operations_are_the_same() -> None:
    rng = np.random.default_rng(1)
    x, kernel = rng.normal(size=(2, 9, 8, 6)).astype(np.float32), rng.normal(size=(3, 3, 6, 5)).astype(np.float32)
    depthwise = kernel[:, :, :1].repeat(2, 3)[..., :6]
    bias = rng.normal(size=6).astype(np.float32)

    def network(x: Any, kernel: Any, depthwise: Any, bias: Any) -> Any:
        x = lax.max(lax.conv_general_dilated(x, depthwise, (1, 1), "SAME", None, None, IMAGES, 6) + bias, 0.0)
        return lax.max(lax.conv_general_dilated(x, kernel, (2, 2), "SAME", None, None, IMAGES) + bias[:5], 0.0)

    operands = [weft.numpy.asarray(a) for a in (x, kernel, depthwise, bias)]
    assert bits(network(*operands)) == bits(weft.jit(network)(*operands))


def test_one_pass_for_depthwise_and_bias_in_the_product() -> None:
    x, kernel, bias = np.ones((2, 32, 32, 16), np.float32), np.ones((3, 3, 1, 16), np.float32), np.ones(16, np.float32)

    def depthwise(x: Any, kernel: Any, bias: Any) -> Any:
        out = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", None, None, IMAGES, 16)
        return lax.max(out + bias, 0.0)

    compiled = weft.jit(depthwise).lower(x, kernel, bias).compile()
    assert compiled.as_text("kernel").count("kernel ") == 1
    assert compiled.memory_analysis()["temp_size_in_bytes"] == 0

    def pointwise(x: Any, kernel: Any, bias: Any) -> Any:
        return lax.max(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=IMAGES) + bias, 0.0)

    compiled = weft.jit(pointwise).lower(x, np.ones((1, 1, 16, 16), np.float32), bias).compile()
    assert "gemm" in compiled.as_text("plan") and compiled.memory_analysis()["temp_size_in_bytes"] == 0


def test_words_and_numbers_say_the_same() -> None:
    numbers = lax.conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), ("NWHC", "HWIO", "CHWN"))
    assert numbers == lax.ConvDimensionNumbers((0, 3, 2, 1), (3, 2, 0, 1), (3, 0, 1, 2))
    assert lax.conv_dimension_numbers((1,) * 4, (1,) * 4, numbers) is numbers
    words = ("NHWC", "HWIO", "NCHW")
    shapes = ((8, 9, 7, 3), (3, 2, 3, 5), (2, 1))
    for padding in ("SAME", "VALID", ((1, 0), (2, 1))):
        for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
            assert getattr(lax, name)(*shapes, padding, words) == getattr(jax.lax, name)(*shapes, padding, words)
    assert lax.conv_shape_tuple((8, 3, 9, 7), (5, 3, 3, 2), (2, 1), "SAME", 2) == (4, 5, 5, 7)
    with pytest.raises(ValueError, match="3 // 1 != 2"):
        lax.conv(np.ones((1, 3, 4), np.float32), np.ones((1, 2, 2), np.float32), (1,), "SAME")

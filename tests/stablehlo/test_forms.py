"""The forms in which programs are written for XLA's compilers of other hardware: those that JAX writes there."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import ml_dtypes
import numpy as np
import pytest

import weft
from weft import stablehlo

pytest.importorskip("jaxlib", reason="StableHLO is run by jaxlib")

from tests.stablehlo import running

RNG = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16
X = RNG.normal(size=(6, 8)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 8, 8, 3)).astype(BF16)
FILTERS = RNG.normal(size=(3, 3, 3, 4)).astype(BF16)
IGNORED = {"return", "constant", "broadcast_in_dim", "reshape", "custom_call"}


def written(function: Callable[..., Any], *args: Any, platform: str = "cuda") -> str:
    return stablehlo.module_text(weft.make_jaxpr(function)(*args), platforms=(platform,))


def counts(text: str) -> collections.Counter[str]:
    """How often each operation is in a module, but for those that cost nothing."""
    found = re.findall(r'(?:= |^ *)"?(?:stablehlo|chlo)\.(\w+)', text, re.MULTILINE)
    return collections.Counter([name for name in found if name not in IGNORED])


def pooled(J: Any, x: Any) -> Any:
    return J.lax.reduce_window(x, np.float32(-np.inf), J.lax.max, (2, 3), (1, 2), "SAME")


def black_scholes(J: Any, s: Any) -> Any:
    d = (J.numpy.log(s * s + 1) + 0.5) / J.numpy.sqrt(s * s + 2)
    first, second = [0.5 * (1 + J.scipy.special.erf(x / 1.4142)) for x in (d, d - 1)]
    return s * first - J.numpy.exp(-s) * second


def convolved(J: Any, x: Any, w: Any) -> Any:
    return J.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sort": (lambda J, x: J.numpy.sort(x), (X,)),
    "argsort": (lambda J, x: J.numpy.argsort(x), (X,)),
    "sort of integers": (lambda J, x: J.numpy.sort(x), (X.astype(np.int32),)),
    "sort by two keys": (lambda J, x: J.lax.sort((x, x * 2), num_keys=2), (X,)),
    "top_k": (lambda J, x: J.lax.top_k(x, 3), (X.astype(np.int32),)),
    "cumsum": (lambda J, x: J.numpy.cumsum(x), (X[0],)),
    "cumprod": (lambda J, x: J.lax.cumprod(x, axis=1, reverse=True), (X,)),
    "cummax": (lambda J, x: J.lax.cummax(x), (X,)),
    "cumlogsumexp": (lambda J, x: J.lax.cumlogsumexp(x), (X,)),
    "product": (lambda J, x: x @ x.T, (X.astype(BF16),)),
    "convolution": (convolved, (IMAGES, FILTERS)),
    "gradient of a convolution": (
        lambda J, x, w: J.value_and_grad(lambda w: convolved(J, x, w).sum())(w), (IMAGES, FILTERS)
    ),
    "gradient of a pool": (lambda J, x: J.value_and_grad(lambda x: pooled(J, x).sum())(x), (X,)),
    "erf": (lambda J, x: J.scipy.special.erf(x), (X,)),
    "functions": (
        lambda J, x: [getattr(J.numpy, f)(x) for f in ("arcsin", "arccos", "arctan", "arcsinh", "arctanh", "tan")],
        (X / 4,),
    ),
    "complex": (lambda J, x: J.numpy.sqrt(x * x + 1) / J.numpy.abs(x + 2) - J.numpy.log(x), (X + 1j * X[::-1],)),
    "Black-Scholes": (black_scholes, (X,)),
    "softmax": (lambda J, x: J.nn.softmax(x), (X,)),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_operations_than_in_jax(name: str) -> None:
    program, args = PROGRAMS[name]
    theirs = jax.jit(lambda *xs: program(jax, *xs)).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    ours, expected = counts(written(lambda *xs: program(weft, *xs), *args)), counts(theirs)
    assert ours.total() <= expected.total() + 2, (ours - expected, expected - ours)


def test_the_comparison_of_a_sort_is_the_one_that_xla_knows() -> None:
    """Zeros are made one first, NaNs last: XLA compares the form, and has its own slow sort for others."""
    text = written(lambda x: weft.numpy.sort(x), X)
    body = re.search(r"\^bb0(.*?)stablehlo.return", text, re.DOTALL)
    assert body is not None
    names = re.findall(r'"stablehlo\.(\w+)"|direction (\w+)', body[1])
    expected = ["compare", "EQ", "select", "compare", "NE", "select"] * 2
    operations = [operation or direction for operation, direction in names if operation != "constant"]
    assert operations == [*expected, "compare", "LT"] and "TOTALORDER" in body[1].splitlines()[-2]


def test_products_of_half_precision_are_written_with_their_own_dtype() -> None:
    for program in (lambda x: x @ x.T, lambda x: weft.lax.dot_general(x, x, (([1], [1]), ([], [])))):
        assert "f32" not in written(program, X.astype(BF16)) + written(program, X.astype(np.float16))
    assert "f32" not in written(lambda x, w: convolved(weft, x, w), IMAGES, FILTERS)
    wide = written(lambda x: weft.lax.dot(x, x.T, preferred_element_type=np.float32), X.astype(BF16))
    assert re.search(r"dot_general.*-> tensor<6x6xf32>", wide) and "convert" not in wide


def test_running_sums_for_the_cpu_are_not_windows() -> None:
    assert "reduce_window" not in written(lambda x: weft.numpy.cumsum(x), X[0], platform="cpu")


def test_random_normal_values_have_one_inverse_of_erf() -> None:
    text = written(lambda key: weft.random.normal(key, (5,)), weft.random.key(0))
    assert counts(text)["erf_inv"] == 1 and "f64" not in text


def test_random_normal_values_of_files_have_the_bits_of_weft() -> None:
    """In weft, and in JAX on the CPU, whose compiler contracts products and sums as it does for its own."""
    file = weft.export.export(weft.jit(lambda key: weft.random.normal(key, (1000,))))(weft.random.PRNGKey(3))
    here = np.asarray(weft.random.normal(weft.random.key(3), (1000,)))
    data = file.serialize()
    for call in (weft.export.deserialize(data).call, jax.export.deserialize(data).call):
        np.testing.assert_array_equal(np.asarray(call(np.array([0, 3], np.uint32))), here)


SEQUENCES = weft.ShapeDtypeStruct((2, 512, 4, 64), BF16)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"return_residual": True}, {"local_window_size": 9}])
def test_attention_is_two_products_and_a_softmax(options: dict[str, Any]) -> None:
    def attended(q: Any, k: Any, v: Any) -> Any:
        return weft.nn.dot_product_attention(q, k, v, **options)

    def gradient(*operands: Any) -> Any:
        return weft.grad(lambda *xs: weft.tree.leaves(attended(*xs))[0].sum(), argnums=(0, 1, 2))(*operands)

    found = counts(written(attended, *[SEQUENCES] * 3))
    assert (found["dot_general"], found["exponential"], found["divide"], found["while"]) == (2, 1, 1, 0)
    found = counts(written(gradient, *[SEQUENCES] * 3))
    assert found["while"] == found["case"] == 0 and found["dot_general"] <= 8


def test_attention_elsewhere_has_the_values_of_the_blocks() -> None:
    operands = [RNG.normal(size=(2, 300, 4, 8)).astype(np.float32) for _ in range(3)]

    def gradients(*xs: Any) -> Any:
        return weft.value_and_grad(
            lambda *xs: (weft.nn.dot_product_attention(*xs, is_causal=True) ** 2).sum(), argnums=(0, 1, 2)
        )(*xs)

    text, flat = running.exported(gradients, operands)
    assert "while" not in text
    here = weft.jit(gradients)
    assert "scan" in str(weft.make_jaxpr(gradients)(*operands))
    for x, y in zip(running.run(text, flat), weft.tree.leaves(here(*operands)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "gradient of a pool"])
def test_values_of_what_is_written_otherwise(name: str) -> None:
    program, args = PROGRAMS[name]
    text = written(lambda *xs: program(weft, *xs), *args)
    for x, y in zip(running.run(text, args), weft.tree.leaves(program(weft, *args)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_selection_along_any_axis_is_one_operation() -> None:
    y = RNG.integers(0, 4, (5, 6, 3)).astype(np.float32)
    y[0, 0, 0], y[1, 2, 1] = np.nan, np.copysign(np.float32(np.nan), -1)
    for axis in range(3):
        text, flat = running.exported(lambda y, axis=axis: weft.lax.top_k(y, 2, axis=axis), [y])
        assert counts(text)["top_k"] == 1 and counts(text)["sort"] == 0
        keys = np.where(np.isnan(y), np.where(np.signbit(y), np.inf, -np.inf), -y)  # as jax.lax.top_k
        positions = np.take(np.argsort(keys, axis, kind="stable"), range(2), axis)
        values = np.take_along_axis(y, positions, axis)
        for x, expected in zip(running.run(text, flat), (values, positions), strict=True):
            np.testing.assert_array_equal(x, expected)


def test_special_functions_of_few_bits_have_no_error_free_products() -> None:
    few = counts(written(weft.lax.igamma, X[0], X[0])).total()
    with weft.config.context("enable_x64", True):
        wide = X[0].astype(np.float64)
        assert 3 * few < counts(written(weft.lax.igamma, wide, wide)).total()


def test_choices_of_a_platform_are_made_for_the_platform() -> None:
    def chosen(x: Any) -> Any:
        return weft.lax.platform_dependent(x, cpu=weft.lax.sin, cuda=weft.lax.cos, default=weft.lax.tanh)

    for platform, operation in (("cpu", "sine"), ("cuda", "cosine"), ("tpu", "tanh")):
        assert counts(written(chosen, X, platform=platform)) == {operation: 1}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_windows_of_running_reductions_are_read_as_such(name: str) -> None:
    """JAX's files have windows as long as the dimension, which would cost the square of it."""
    for reverse in (False, True):
        theirs = jax.jit(lambda x, r=reverse: getattr(jax.lax, name)(x, axis=1, reverse=r))
        call = weft.export.deserialize(jax.export.export(theirs)(X).serialize()).call
        read = str(weft.make_jaxpr(call)(X))
        assert f"= {name}[" in read and "window" not in read
        np.testing.assert_allclose(call(X), getattr(weft.lax, name)(X, axis=1, reverse=reverse), rtol=1e-6)

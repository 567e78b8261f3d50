"""weft.image beside JAX's: methods, antialiasing, gradients, batches, errors."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.image
import numpy as np
import pytest

import weft
from weft import dtypes, image

RNG = np.random.default_rng(6)
METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]


@pytest.mark.oracle
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5, 3), (14, 3, 3), (3, 11, 1), (1, 1, 3)])
def test_resize(method: str, antialias: bool, shape: tuple[int, ...]) -> None:
    for dtype in ("f4", "i4", "c8") if shape == (7, 5, 3) or shape[0] == 14 else ("f4",):
        x = RNG.integers(-9, 10, (7, 5, 3)).astype(dtype)
        want = jax.image.resize(x, shape, method, antialias)
        found = image.resize(x, shape, method, antialias)
        assert found.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=2e-5)
    jitted = weft.jit(lambda x: image.resize(x, shape, method, antialias))(x)
    np.testing.assert_allclose(np.asarray(jitted), np.asarray(found), rtol=1e-5, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("method", ["linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5"])
@pytest.mark.parametrize("antialias", [True, False])
def test_scale_and_translate(method: str, antialias: bool) -> None:
    x = RNG.normal(size=(7, 5, 3)).astype(np.float32)
    scale, shift = np.float32([0.6, 1.7]), np.float32([1.3, -0.4])
    arguments = (x, (6, 5, 4), (0, 2), scale, shift, method, antialias)
    want, found = jax.image.scale_and_translate(*arguments), image.scale_and_translate(*arguments)
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=2e-5)
    loss = lambda module: lambda x, s, t: (module.scale_and_translate(x, *arguments[1:3], s, t, method) ** 2).sum()
    ours = weft.grad(loss(image), (0, 1, 2))(x, scale, shift)
    theirs = jax.grad(loss(jax.image), (0, 1, 2))(x, scale, shift)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-3, atol=2e-3)


def test_gradients_and_batches() -> None:
    with weft.enable_x64(True):
        x = RNG.normal(size=(4, 6))
        for method in METHODS:
            f = lambda x, method=method: image.resize(x, (3, 9), method)
            weft.test_util.check_grads(f, (x,), order=2)
            stacked = np.stack([x, 2 * x])
            expected = np.stack([np.asarray(f(stacked[0])), np.asarray(f(stacked[1]))])
            np.testing.assert_allclose(np.asarray(weft.vmap(f)(stacked)), expected, rtol=1e-12)
    assert image.resize(np.ones((2, 3)), (0, 3), "linear").shape == (0, 3)
    assert image.resize(np.ones((2, 3), np.int8), (2, 6), "nearest").dtype == np.int8


BANDS = [("linear", True), ("cubic-pytorch", True), ("lanczos3", False)]


@pytest.mark.oracle
@pytest.mark.parametrize(("method", "antialias"), BANDS)
def test_narrow_bands(method: str, antialias: bool) -> None:
    """Dimensions whose samples are sums of few others, to fewer and to more of them, and their derivatives."""
    x = RNG.normal(size=(3, 61, 80, 2)).astype(np.float32)
    for shape in [(3, 29, 80, 2), (3, 61, 131, 2)]:
        f = functools.partial(image.resize, shape=shape, method=method, antialias=antialias)
        want, back = jax.vjp(functools.partial(jax.image.resize, shape=shape, method=method, antialias=antialias), x)
        found, ours = weft.vjp(f, x)
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=2e-4)
        ct = RNG.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(np.asarray(ours(ct)[0]), np.asarray(back(ct)[0]), rtol=1e-4, atol=2e-4)
        if method == "linear":
            moved = weft.vmap(lambda x, f=f: f(x[None])[0], 2, 1)(np.moveaxis(x, 0, 2))
            np.testing.assert_array_equal(np.asarray(moved), np.moveaxis(np.asarray(found), 0, 1))
            half = np.asarray(f(x.astype(dtypes.bfloat16))).astype(np.float32)
            np.testing.assert_allclose(half, np.asarray(want), rtol=2e-2, atol=2e-2)
            spun = np.asarray(f(x + 2j * x))
            np.testing.assert_allclose(spun, (1 + 2j) * np.asarray(found), rtol=1e-5, atol=1e-5)
        assert "resample" in str(weft.make_jaxpr(f)(x))


def test_narrow_bands_twice() -> None:
    with weft.enable_x64(True):
        f = lambda x: weft.numpy.sin(image.resize(x, (11, 3), "linear"))
        weft.test_util.check_grads(f, (RNG.normal(size=(24, 3)),), order=2)
        assert image.resize(np.ones((0, 40)), (0, 20), "linear").shape == (0, 20)
        assert "resample" not in str(weft.make_jaxpr(lambda x: image.resize(x, (11,), "linear"))(np.ones(600)))


def test_methods_have_names() -> None:
    assert image.ResizeMethod.from_string("bicubic") is image.ResizeMethod.CUBIC
    assert [m.value for m in image.ResizeMethod] == [m.value for m in jax.image.ResizeMethod]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: image.resize(np.ones((2, 3)), (4,), "linear"), ValueError, "shape must have length"),
        (lambda: image.resize(np.ones((2, 3)), (4, 6), "foo"), ValueError, 'Unknown resize method "foo"'),
        (lambda: image.resize([1.0], (4,), "linear"), TypeError, "requires ndarray"),
        (lambda: image.resize(np.ones((0, 3)), (4, 3), "linear"), ValueError, "without elements"),
        (
            lambda: image.scale_and_translate(np.ones(2), (3,), (0,), np.ones(1), np.ones(1), "nearest"),
            ValueError, "Nearest neighbor",
        ),
        (
            lambda: image.scale_and_translate(np.ones(2), (3,), (5,), np.ones(1), np.ones(1), "linear"),
            ValueError, "out of bounds",
        ),
        (
            lambda: image.scale_and_translate(np.ones((2, 2)), (3, 3), (0,), np.ones(1), np.ones(1), "linear"),
            ValueError, "outside spatial_dims",
        ),
        (
            lambda: image.scale_and_translate(np.ones(2), (3,), (0,), np.ones(2), np.ones(1), "linear"),
            ValueError, "scale must have shape",
        ),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()

"""weft.numpy.fft and weft.scipy.fft against NumPy and SciPy, their gradients, batches and errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

import weft
import weft.numpy as wnp
from weft import lax
from weft.numpy import fft
from weft.scipy import fft as cosine

RNG = np.random.default_rng(11)
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 17, 97, 128, 1009, 3 * 5 * 64]
COMPLEX = ["fft", "ifft", "hfft", "irfft"]
REAL = ["rfft", "ihfft"]
SEVERAL = ["fft2", "ifft2", "irfft2", "fftn", "ifftn", "irfftn"]
REAL_SEVERAL = ["rfft2", "rfftn"]
ANY: Any = fft
ANY_LAX: Any = lax


def numbers(shape: tuple[int, ...], kind: str) -> Any:
    x = RNG.normal(size=shape)
    return x + 1j * RNG.normal(size=shape) if kind == "c" else x


def close(found: Any, expected: np.ndarray, dtype: np.dtype) -> None:
    found = np.asarray(found)
    assert found.shape == expected.shape
    size = np.abs(expected).max(initial=1)
    bound = 4e-6 if dtype.itemsize // (2 if dtype.kind == "c" else 1) == 4 else 1e-14
    assert np.abs(found - expected).max(initial=0) <= bound * size * np.log2(max(4, expected.size))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", COMPLEX + REAL)
@pytest.mark.parametrize("wide", [False, True])
def test_any_length(name: str, norm: str | None, wide: bool) -> None:
    with weft.enable_x64(wide):
        for n in LENGTHS:
            x = numbers((3, n), "r" if name in REAL else "c")
            x = x if wide else x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
            if n == 1 and name in ("irfft", "hfft"):
                assert getattr(fft, name)(x, norm=norm).shape == (3, 0)
                continue
            found = getattr(fft, name)(x, norm=norm)
            expected = getattr(np.fft, name)(x, norm=norm)
            assert found.dtype == getattr(jnp.fft, name)(jnp.asarray(x)).dtype or wide
            close(found, expected, x.dtype)
            close(weft.jit(lambda x: getattr(fft, name)(x, norm=norm))(x), np.asarray(found), x.dtype)


@pytest.mark.parametrize("name", COMPLEX + REAL)
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("n", [None, 3, 6, 11])
def test_axes_lengths_and_layouts(name: str, axis: int, n: int | None) -> None:
    x = numbers((6, 5, 4), "r" if name in REAL else "c").transpose(2, 0, 1)[::-1]
    with weft.enable_x64(True):
        close(getattr(fft, name)(x, n, axis), getattr(np.fft, name)(x, n, axis), x.dtype)
        close(getattr(fft, name)(wnp.asarray(x), n, axis), getattr(np.fft, name)(x, n, axis), x.dtype)


@pytest.mark.parametrize("name", SEVERAL + REAL_SEVERAL)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize(
    ("s", "axes"), [(None, None), ((4, 6), None), ((3, 5), (1, 0)), (None, (2, 0)), ((2, 9), (0, -1))]
)
def test_several_axes(name: str, norm: str | None, s: Any, axes: Any) -> None:
    x = numbers((4, 5, 6), "r" if name in REAL_SEVERAL else "c")
    if axes is None and name.endswith("2"):
        axes = (-2, -1)
    if axes is None and s is not None:
        axes = (-2, -1)  # what NumPy takes None for, deprecated there
    with weft.enable_x64(True):
        close(getattr(fft, name)(x, s, axes, norm), getattr(np.fft, name)(x, s, axes, norm), x.dtype)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "irfftn", "rfftn"])
def test_more_than_three_axes(name: str) -> None:
    x = numbers((2, 3, 4, 3, 5), "r" if name == "rfftn" else "c")
    with weft.enable_x64(True):
        close(getattr(fft, name)(x), getattr(np.fft, name)(x), x.dtype)
        close(getattr(fft, name)(x, axes=(4, 0, 3, 1)), getattr(np.fft, name)(x, axes=(4, 0, 3, 1)), x.dtype)


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i4", "f2", "f4", "c8"])
def test_dtypes(dtype: str) -> None:
    x = RNG.integers(0, 2, (2, 6)).astype(dtype)
    found = fft.fft(x)
    assert found.dtype == np.complex64
    close(found, np.fft.fft(x.astype(np.complex64)), np.dtype(np.complex64))


@pytest.mark.parametrize("name", [*COMPLEX, *REAL, *SEVERAL, *REAL_SEVERAL])
def test_gradients_and_batches(name: str) -> None:
    real = name in (*REAL, *REAL_SEVERAL)
    function = getattr(fft, name)
    with weft.enable_x64(True):
        for shape in ((2, 3, 4), (2, 2, 5)):
            x = numbers(shape, "r" if real else "c")
            weft.test_util.check_grads(function, (x,), order=2)
            for axis in range(3):
                found = weft.vmap(function, in_axes=axis)(x) if shape[0] == 2 else None
                expected = np.stack([np.asarray(function(part)) for part in np.moveaxis(x, axis, 0)])
                np.testing.assert_allclose(np.asarray(found), expected, atol=1e-14)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [*COMPLEX, *REAL, "fftn", "irfftn", "rfftn"])
def test_cotangents_follow_the_convention_of_jax(name: str) -> None:
    x = numbers((3, 4), "r" if name in (*REAL, "rfftn") else "c")
    x = x.astype(np.float32 if x.dtype.kind == "f" else np.complex64)
    ours, theirs = getattr(fft, name), getattr(jnp.fft, name)
    out, back = weft.vjp(ours, x)
    want, back_of_jax = jax.vjp(theirs, jnp.asarray(x))
    ct = numbers(out.shape, "c" if np.asarray(out).dtype.kind == "c" else "r").astype(out.dtype)
    np.testing.assert_allclose(np.asarray(out), np.asarray(want), atol=1e-4)
    np.testing.assert_allclose(np.asarray(back(ct)[0]), np.asarray(back_of_jax(jnp.asarray(ct))[0]), atol=1e-4)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "ihfft"])
def test_programs_are_those_of_jax(name: str) -> None:
    x = np.ones(8, np.float32 if name in REAL else np.complex64)
    assert str(weft.make_jaxpr(getattr(fft, name))(x)) == str(jax.make_jaxpr(getattr(jnp.fft, name))(x))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n: int) -> None:
    np.testing.assert_allclose(np.asarray(fft.fftfreq(n, 0.3)), np.fft.fftfreq(n, 0.3), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(fft.rfftfreq(n, 2)), np.fft.rfftfreq(n, 2), rtol=1e-6)
    x = np.arange(n * 3).reshape(n, 3)
    for axes in (None, 0, (1,), (0, 1), -1):
        np.testing.assert_array_equal(np.asarray(fft.fftshift(x, axes)), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(np.asarray(fft.ifftshift(x, axes)), np.fft.ifftshift(x, axes))


def test_what_has_no_elements_is_transformed_to_nothing() -> None:
    for x in (np.zeros((0, 4), np.float32), np.zeros((0,), np.complex64)):
        assert fft.fft(x).shape == x.shape
    assert fft.irfft(np.ones((3, 1), np.complex64)).shape == (3, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: fft.fft(np.ones(4), norm="x"), ValueError, "Invalid norm value x"),
        (lambda: fft.fft(np.ones(4), 0), ValueError, "should be positive"),
        (lambda: fft.fft(np.ones(4), axis=2), ValueError, "axis 2 is out of bounds"),
        (lambda: ANY.fft(np.ones(4), axis=[0]), ValueError, "does not support multiple axes"),
        (lambda: fft.rfft(np.ones(4, np.complex64)), ValueError, "only real valued inputs"),
        (lambda: fft.fft2(np.ones(4)), ValueError, "out of bounds"),
        (lambda: fft.fft2(np.ones((3, 3)), axes=(0,)), ValueError, "only supports 2 axes"),
        (lambda: fft.fftn(np.ones((3, 3)), axes=(0, 0)), ValueError, "repeated axes"),
        (lambda: fft.fftn(np.ones((3, 3)), s=(1, 2, 3)), ValueError, "at least as many"),
        (lambda: fft.fftn(np.ones((3, 3)), s=(2,), axes=(0, 1)), ValueError, "different lengths"),
        (lambda: fft.fft(1.0), ValueError, "out of bounds"),
        (lambda: fft.fft([1.0]), TypeError, "requires ndarray"),
        (lambda: ANY.fftfreq([4]), ValueError, "only takes an int"),
        (lambda: fft.fftfreq(4, [1]), ValueError, "single value"),
        (lambda: lax.fft(np.ones(4), "foo", (4,)), ValueError, "Unknown FFT type 'foo'"),
        (lambda: ANY_LAX.fft(np.ones(4), 0, (4,)), TypeError, "Unknown FFT type value '0'"),
        (lambda: lax.fft(np.ones(4), "fft", (5,)), ValueError, "must be equal to fft_lengths"),
        (lambda: lax.fft(np.ones(4), "irfft", (5,)), ValueError, "IRFFT to lengths"),
        (lambda: lax.fft(np.ones(4), "fft", (4, 4)), ValueError, "at least as many"),
        (lambda: lax.fft(np.ones((1, 1, 1, 1)), "fft", (1, 1, 1, 1)), ValueError, "at most 3"),
        (lambda: fft.rfft(np.ones(4, np.float16)), ValueError, "float32 or float64, got float16"),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_the_number_of_threads_changes_no_bit() -> None:
    x = numbers((70, 4099), "c").astype(np.complex64)
    with weft.threads(1):
        alone = np.asarray(fft.fft(x))
    with weft.threads(2):
        assert np.asarray(fft.fft(x)).tobytes() == alone.tobytes()


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("name", ["dct", "idct"])
def test_cosine_transforms(name: str, norm: str | None) -> None:
    ours, theirs = getattr(cosine, name), getattr(scipy.fft, name)
    with weft.enable_x64(True):
        for count in (1, 2, 3, 4, 7, 8, 30):
            x = numbers((2, count, 3), "r")
            close(ours(x, axis=1, norm=norm), theirs(x, axis=1, norm=norm), x.dtype)
            for n in (1, 5, 8):
                close(ours(x, n=n, axis=1, norm=norm), theirs(x, n=n, axis=1, norm=norm), x.dtype)
        x = numbers((3, 4), "c")
        close(ours(x, norm=norm), theirs(x, norm=norm), x.dtype)
        weft.test_util.check_grads(lambda x: ours(x, norm=norm), (x.real,), order=2)
        np.testing.assert_allclose(
            np.asarray(weft.vmap(lambda x: ours(x, norm=norm))(x)), np.asarray(ours(x, norm=norm)), atol=1e-14
        )


@pytest.mark.parametrize("name", ["dctn", "idctn"])
@pytest.mark.parametrize(("s", "axes"), [(None, None), ((3,), None), ((2, 5), (1, 0)), (None, (1,))])
def test_cosine_transforms_of_several_axes(name: str, s: Any, axes: Any) -> None:
    x = numbers((4, 3), "r").astype(np.float32)
    found, expected = getattr(cosine, name)(x, s=s, axes=axes), getattr(scipy.fft, name)(x, s=s, axes=axes)
    assert found.dtype == np.float32
    close(found, expected, x.dtype)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: cosine.dct(np.ones(3), type=3), NotImplementedError, "Only DCT type 2"),
        (lambda: cosine.dct(np.ones(3), norm="forward"), ValueError, "norm='forward' is not implemented"),
        (lambda: cosine.dct(1.0), ValueError, "out of bounds"),
        (lambda: cosine.dct(np.ones(3), n=0), ValueError, "must be positive"),
        (lambda: cosine.dctn(np.ones((3, 3)), axes=(0, 0)), ValueError, "repeated axis"),
        (lambda: cosine.dctn(np.ones((3, 3)), s=(2,), axes=(0, 1)), ValueError, "different lengths"),
        (lambda: cosine.dct([1.0]), TypeError, "requires ndarray"),
    ],
)
def test_bad_input_of_cosine_transforms(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
def test_every_way_of_the_runtime(kind: str) -> None:
    """Lengths with each small prime factor, split ones, primes on both sides of the lanes, and partial groups."""
    function = getattr(np.fft, f"{kind}n")
    shapes: list[tuple[tuple[int, ...], int]] = [
        ((n,), 1) for n in (256, 257, 300, 1001, 1023, 2187, 6007, 8193, 20011)
    ]
    shapes += [((37, n), 1) for n in (6, 8, 11, 13, 16, 26, 64, 97, 360)]
    shapes += [((3, 17, 5), 2), ((1000, 3), 2), ((2, 509, 3), 2), ((9000, 10), 2), ((2, 3, 300, 4), 3), ((1, 1, 1), 3)]
    with weft.enable_x64(True):
        for wide, bound in ((np.complex64, 1e-6), (np.complex128, 2e-15)):
            for shape, rank in shapes:
                given = (*shape[:-1], shape[-1] // 2 + 1) if kind == "irfft" else shape
                x = numbers(given, "r" if kind == "rfft" else "c")
                x = x.astype(wide if x.dtype.kind == "c" else wide(0).real.dtype)
                exact = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
                expected = function(exact, shape[-rank:], tuple(range(-rank, 0)))
                found = np.asarray(lax.fft(x, kind, shape[-rank:]))
                assert found.dtype == (
                    x.dtype if kind in ("fft", "ifft") else wide if kind == "rfft" else wide(0).real.dtype
                )
                assert np.abs(found - expected).max() <= bound * np.abs(expected).max(), (shape, wide)


def test_bits_do_not_depend_on_what_lies_beside() -> None:
    for n in (12, 64, 257, 1024, 6007):
        x = numbers((19, n), "c").astype(np.complex64)
        rows = np.asarray(lax.fft(x, "fft", (n,)))
        for i in (0, 7, 18):
            np.testing.assert_array_equal(rows[i], np.asarray(lax.fft(x[i], "fft", (n,))))
        x[3] = np.nan
        np.testing.assert_array_equal(np.asarray(lax.fft(x, "fft", (n,)))[4:], rows[4:])


def test_plans_with_wrong_sizes_are_refused() -> None:
    for sizes in ((0, 1), (4, 1, 8), (0, 0, 8), (0, 1, 1 << 29, 1 << 29, 1 << 29)):
        kind = weft.core.kinds.External(
            call=lambda x: x, library=lambda *_, s=sizes: weft.core.kinds.Library("fft", "F", 1, s)
        )
        wrong = weft.core.Primitive("wrong_fft", kind=kind)
        wrong.def_abstract_eval(lambda x: x)
        with pytest.raises(ValueError, match="Fourier transform"):
            weft.jit(wrong.bind)(np.ones(8, np.complex64))

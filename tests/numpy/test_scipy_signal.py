"""weft.scipy.signal against SciPy; derivatives, batches, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal

import weft
from weft.scipy import signal

RNG = np.random.default_rng(12)
SHAPES = [((9,), (4,)), ((4,), (9,)), ((5, 6), (3, 2)), ((4, 3, 5), (2, 3, 1)), ((90,), (70,))]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape)).astype(dtype) if dtype[0] == "c" else x.astype(dtype)


@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve", "convolve2d", "correlate2d"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_convolutions(name: str, mode: str, dtype: str) -> None:
    for first, second in SHAPES:
        if name.endswith("2d") and len(first) != 2:
            continue
        a, b = numbers(first, dtype), numbers(second, dtype)
        wide = "c16" if dtype == "c8" else "f8"
        want = getattr(scipy.signal, name)(a.astype(wide), b.astype(wide), mode)
        found = getattr(signal, name)(a, b, mode)
        assert found.dtype == a.dtype
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-4, atol=3e-5)
        if name in ("convolve", "correlate"):
            np.testing.assert_allclose(np.asarray(getattr(signal, name)(a, b, mode, "fft")), want, rtol=1e-4, atol=3e-5)


def test_axes_of_fftconvolve_and_derivatives() -> None:
    with weft.enable_x64(True):
        a, b = numbers((4, 5), "f8"), numbers((4, 3), "f8")
        found = signal.fftconvolve(a, b, "same", axes=1)
        np.testing.assert_allclose(np.asarray(found), scipy.signal.fftconvolve(a, b, "same", axes=1), rtol=1e-10)
        weft.test_util.check_grads(lambda a, b: signal.fftconvolve(a, b, axes=1), (a, b), order=2)
        weft.test_util.check_grads(signal.convolve, (a, b), order=2)
        stacked = np.stack([a, 2 * a])
        mapped = weft.vmap(lambda x: signal.correlate(x, b, "same"))(stacked)
        expected = np.stack([scipy.signal.correlate(x, b, "same") for x in stacked])
        np.testing.assert_allclose(np.asarray(mapped), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["linear", "constant"])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("bp", [0, [2], [1, 3]])
def test_detrend(kind: str, axis: int, bp: Any) -> None:
    with weft.enable_x64(True):
        x = numbers((5, 6), "f8") + np.arange(6)
        want = scipy.signal.detrend(x, axis, kind, bp)
        np.testing.assert_allclose(np.asarray(signal.detrend(x, axis, kind, bp)), want, atol=1e-12)


SPECTRA: list[dict[str, Any]] = [
    {},
    {"nperseg": 16},
    {"nperseg": 17, "noverlap": 5},
    {"nperseg": 16, "nfft": 20, "window": "boxcar"},
    {"nperseg": 16, "window": ("tukey", 0.3), "fs": 10.0},
    {"window": np.ones(12), "noverlap": 3},
    {"nperseg": 16, "detrend": "linear"},
    {"nperseg": 16, "return_onesided": False},
]


@pytest.mark.filterwarnings("ignore:nperseg")
@pytest.mark.parametrize("options", SPECTRA, ids=str)
def test_spectra(options: dict[str, Any]) -> None:
    with weft.enable_x64(True):
        for dtype in ("f8", "c16"):
            if dtype == "c16" and options.get("detrend") == "linear":
                continue
            x, y = numbers((2, 100), dtype), numbers((2, 100), dtype)
            given = {"return_onesided": False, **options} if dtype == "c16" else options
            if "window" in given and not isinstance(given["window"], str | tuple):
                stft_options = {"nperseg": 12, **given}
            else:
                stft_options = given
            pairs = [
                (signal.stft(x, **stft_options), scipy.signal.stft(x, **stft_options)),
                (signal.welch(x, **given), scipy.signal.welch(x, **given)),
                (signal.csd(x, y, **given), scipy.signal.csd(x, y, **given)),
                (signal.welch(x, average="median", **given), scipy.signal.welch(x, average="median", **given)),
                (signal.csd(x, y, scaling="spectrum", **given), scipy.signal.csd(x, y, scaling="spectrum", **given)),
            ]
            for found, want in pairs:
                for a, b in zip(found, want, strict=True):
                    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("boundary", ["even", "odd", "constant", "zeros", None])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_boundaries_and_axes_of_stft(boundary: str | None, padded: bool, axis: int) -> None:
    with weft.enable_x64(True):
        x = numbers((50, 60), "f8")
        options: dict[str, Any] = {"nperseg": 16, "boundary": boundary, "padded": padded, "axis": axis}
        for a, b in zip(signal.stft(x, **options), scipy.signal.stft(x, **options), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"nperseg": 16}, {"nperseg": 15, "noverlap": 10}, {"nperseg": 16, "nfft": 24}], ids=str
)
def test_istft(options: dict[str, Any]) -> None:
    with weft.enable_x64(True):
        x = numbers((2, 96), "f8")
        spectrum = scipy.signal.stft(x, **options)[2]
        times, found = signal.istft(spectrum, **options)
        want = scipy.signal.istft(spectrum, **options)[1]
        np.testing.assert_allclose(np.asarray(found), want, atol=1e-12)
        np.testing.assert_array_equal(np.asarray(times), np.arange(want.shape[-1]))
        turned = np.moveaxis(spectrum, (-2, -1), (1, 0))
        found = signal.istft(turned, time_axis=0, freq_axis=1, **options)[1]
        want = scipy.signal.istft(turned, time_axis=0, freq_axis=1, **options)[1]
        np.testing.assert_allclose(np.asarray(found), want, atol=1e-12)
        weft.test_util.check_grads(lambda x: signal.stft(x, **options)[2], (x[:, :40],), order=1)
        weft.test_util.check_grads(lambda x: signal.welch(x, nperseg=16)[1], (x[0, :40],), order=2)


A = np.ones((2, 2))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: signal.convolve(A, np.ones(3)), ValueError, "same number of dimensions"),
        (lambda: signal.convolve(A, A, mode="foo"), ValueError, "mode must be one of"),
        (lambda: signal.convolve(A, A, method="foo"), ValueError, "Got method='foo'"),
        (lambda: signal.convolve(np.ones((3, 2)), np.ones((2, 3)), "valid"), ValueError, "every dimension"),
        (lambda: signal.convolve(np.ones(0), np.ones(3)), ValueError, "zero-size"),
        (lambda: signal.convolve2d(A, A, boundary="wrap"), NotImplementedError, "boundary='fill'"),
        (lambda: signal.convolve2d(np.ones(3), A), ValueError, "2-dimensional"),
        (lambda: signal.detrend(A, type="foo"), ValueError, "Trend type"),
        (lambda: signal.detrend(A, bp=[9]), ValueError, "Breakpoints"),
        (lambda: signal.stft(np.ones(99), boundary="foo"), ValueError, "Unknown boundary option"),
        (lambda: signal.stft(np.ones(99), nperseg=16, noverlap=16), ValueError, "less than nperseg"),
        (lambda: signal.welch(np.ones(99), nperseg=16, nfft=8), ValueError, "greater than or equal"),
        (lambda: signal.welch(np.ones(99), window=np.ones((2, 16))), ValueError, "window must be 1-D"),
        (lambda: signal.welch(np.ones(99), window=np.ones(12), nperseg=16), ValueError, "different from length"),
        (lambda: signal.welch(np.ones(99), scaling="foo"), ValueError, "Unknown scaling"),
        (lambda: signal.welch(np.ones(99), average="foo"), ValueError, "average must be"),
        (lambda: signal.istft(np.ones(9)), ValueError, "at least 2d"),
        (lambda: signal.istft(A, time_axis=0, freq_axis=0), ValueError, "differing"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()

"""UCI handwritten digits: principal components by power iteration, then nearest centroid, jitted and in NumPy.

In: the data set bundled with scikit-learn (1797 images of 8x8 grey values). Out: accuracies on the held-out third,
which must be equal, and the times of both.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft._base import lazy
from weft._base.record import Record

COMPONENTS = 16
ITERATIONS = 60
CLASSES = 10


class Digits(Record):
    """``first`` and ``warm``: seconds of fitting and classifying, the first time and afterwards."""

    images: int
    accuracy: float
    accuracy_numpy: float
    disagreements: int
    first: float
    warm: float
    numpy: float
    projected: np.ndarray
    labels: np.ndarray


def orthonormal(columns: Any, m: Any) -> Any:
    """Modified Gram-Schmidt over the columns (Golub and Van Loan, Matrix Computations, 5.2.8)."""
    done: list[Any] = []
    for k in range(columns.shape[1]):
        v = columns[:, k]
        for q in done:
            v = v - m.sum(q * v) * q
        done.append(v / m.sqrt(m.sum(v * v)))
    return m.stack(done, axis=1)


def covariance_of(x: Any, m: Any) -> Any:
    centred = x - m.mean(x, axis=0)
    return centred.T @ centred / x.shape[0]


def centroids_of(z: Any, one_hot: Any, m: Any) -> Any:
    return (one_hot.T @ z) / m.sum(one_hot, axis=0)[:, None]


def nearest(z: Any, centroids: Any, m: Any) -> Any:
    distance = m.sum((z[:, None, :] - centroids[None, :, :]) ** 2, axis=-1)
    return m.argmin(distance, axis=1)


def fit_and_classify(inputs: tuple[Any, ...], m: Any, wrap: Any) -> tuple[Any, Any]:
    """The whole job over a NumPy-like namespace; ``wrap`` is jit or nothing."""
    train, one_hot, test, start = inputs
    covariance = wrap("covariance", lambda x: covariance_of(x, m))(train)
    step = wrap("step", lambda c, b: orthonormal(c @ b, m))
    basis = start
    for _ in range(ITERATIONS):
        basis = step(covariance, basis)
    mean = wrap("mean", lambda x: m.mean(x, axis=0))(train)
    classify = wrap(
        "classify",
        lambda x, h, t, b, mu: nearest((t - mu) @ b, centroids_of((x - mu) @ b, h, m), m),
    )
    return classify(train, one_hot, test, basis, mean), basis


class Jitted:
    """One jitted function per name, kept between runs so that the second run is warm."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}

    def __call__(self, name: str, function: Any) -> Any:
        return self.functions.setdefault(name, weft.jit(function))


def classify_digits() -> Digits:
    """(e) fit on two thirds of the images, classify the rest; weft beside NumPy."""
    bunch = lazy.sklearn_datasets.load_digits()
    x, labels = bunch.data.astype(np.float32) / 16, bunch.target
    held_out = np.arange(len(x)) % 3 == 0
    train, test = x[~held_out], x[held_out]
    one_hot = np.eye(CLASSES, dtype=np.float32)[labels[~held_out]]
    start = np.random.default_rng(0).standard_normal((x.shape[1], COMPONENTS)).astype(np.float32)
    ours = tuple(wnp.asarray(a) for a in (train, one_hot, test, start))
    jitted, seconds = Jitted(), []
    predicted = basis = None
    for _ in range(2):
        begin = time.perf_counter()
        predicted, basis = fit_and_classify(ours, wnp, jitted)
        weft.block_until_ready(predicted)
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    expected, _ = fit_and_classify((train, one_hot, test, start), np, lambda name, f: f)
    numpy_seconds = time.perf_counter() - begin
    guess, components = np.asarray(predicted), np.asarray(basis)
    return Digits(
        images=len(x),
        accuracy=float(np.mean(guess == labels[held_out])),
        accuracy_numpy=float(np.mean(expected == labels[held_out])),
        disagreements=int(np.sum(guess != expected)),
        first=seconds[0],
        warm=seconds[1],
        numpy=numpy_seconds,
        projected=(test - train.mean(0)) @ components[:, :2],
        labels=labels[held_out],
    )

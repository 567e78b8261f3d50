"""Softmax regression on the handwritten digits: ``grad`` beside derivatives worked out by hand, ``vmap`` beside a loop.

In: the data set bundled with scikit-learn. Out: the jaxpr of a gradient, accuracies, losses, errors and times. The
NumPy program has its gradient written by hand; both must arrive at the same weights.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft._base import lazy
from weft._base.record import Record
from weft.tour.programs import best_of

STEPS = 300
RATE = 0.5
LOOPED = 100  # examples of the Python loop; the whole set would only make the tour longer


class Learning(Record):
    """Seconds are of all ``STEPS`` steps, or of one gradient for every one of ``LOOPED`` images."""

    jaxpr: str
    accuracy: float
    accuracy_numpy: float
    largest_error: float  # of the weights, beside NumPy's in float64
    losses: np.ndarray
    first: float
    warm: float
    numpy: float
    per_example_vmap: float
    per_example_loop: float
    per_example_error: float


def loss_of_one(weights: Any, image: Any, label: Any) -> Any:
    return -nn.log_softmax(image @ weights)[label]


def loss(weights: Any, images: Any, labels: Any) -> Any:
    return wnp.mean(weft.vmap(loss_of_one, in_axes=(None, 0, 0))(weights, images, labels))


def descend(weights: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """``STEPS`` steps down the gradient, as one compiled loop; the final weights and the losses on the way."""

    def step(weights: Any, _: Any) -> tuple[Any, Any]:
        value, gradient = weft.value_and_grad(loss)(weights, images, labels)
        return weights - RATE * gradient, value

    return lax.scan(step, weights, length=STEPS)


def descend_numpy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """``descend`` in NumPy, with the gradient by hand: images^T (softmax - one_hot) / n."""
    one_hot = np.eye(weights.shape[1], dtype=weights.dtype)[labels]
    for _ in range(STEPS):
        score = images @ weights
        p = np.exp(score - score.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        weights = weights - RATE * (images.T @ (p - one_hot)) / len(images)
    return weights


def per_example(images: Any, labels: Any, weights: Any) -> tuple[float, float, float]:
    """The gradient of each image's own loss: seconds by ``vmap``, seconds by a loop, and how far they differ."""
    gradient = weft.grad(loss_of_one)
    together, one = weft.jit(weft.vmap(gradient, in_axes=(None, 0, 0))), weft.jit(gradient)
    pairs = [(images[i], labels[i]) for i in range(LOOPED)]
    images, labels = images[:LOOPED], labels[:LOOPED]
    difference = wnp.max(wnp.abs(together(weights, images, labels) - wnp.stack([one(weights, *p) for p in pairs])))
    vmapped = best_of(lambda: together(weights, images, labels).block_until_ready())
    looped = best_of(lambda: weft.block_until_ready([one(weights, *pair) for pair in pairs]))
    return vmapped, looped, float(difference)


def inspected() -> Any:
    """The report of the training program (``weft.inspect``), with measured times."""
    bunch = lazy.sklearn_datasets.load_digits()
    images, targets = wnp.asarray(bunch.data.astype(np.float32) / 16), wnp.asarray(bunch.target.astype(np.int32))
    return lazy.submodule("weft.inspect").report(descend, wnp.zeros((images.shape[1], 10)), images, targets)


def learn_digits() -> Learning:
    """(f) train on two thirds of the images, classify the rest; weft's derivative beside one by hand."""
    bunch = lazy.sklearn_datasets.load_digits()
    x, labels = bunch.data.astype(np.float32) / 16, bunch.target.astype(np.int32)
    held_out = np.arange(len(x)) % 3 == 0
    start = np.zeros((x.shape[1], 10), np.float32)
    images, targets, weights = wnp.asarray(x[~held_out]), wnp.asarray(labels[~held_out]), wnp.asarray(start)
    train, seconds = weft.jit(descend), []
    learned = losses = None
    for _ in range(2):
        begin = time.perf_counter()
        learned, losses = weft.block_until_ready(train(weights, images, targets))
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    by_hand = descend_numpy(start, x[~held_out], labels[~held_out])
    numpy_seconds = time.perf_counter() - begin
    exact = descend_numpy(start.astype(np.float64), x[~held_out].astype(np.float64), labels[~held_out])
    vmapped, looped, difference = per_example(images, targets, learned)

    def accuracy(w: np.ndarray) -> float:
        return float(np.mean((x[held_out] @ w).argmax(axis=1) == labels[held_out]))

    return Learning(
        jaxpr=str(weft.make_jaxpr(weft.grad(loss_of_one))(weights, images[0], targets[0])),
        accuracy=accuracy(np.asarray(learned)),
        accuracy_numpy=accuracy(by_hand),
        largest_error=float(np.max(np.abs(np.asarray(learned) - exact))),
        losses=np.asarray(losses),
        first=seconds[0],
        warm=seconds[1],
        numpy=numpy_seconds,
        per_example_vmap=vmapped,
        per_example_loop=looped,
        per_example_error=difference,
    )

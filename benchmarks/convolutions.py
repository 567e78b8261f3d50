"""Convolutions, their gradients and a small convolutional network beside JAX and, where it is installed, PyTorch.

    python benchmarks/convolutions.py              # all of them, float32: a few minutes
    python benchmarks/convolutions.py "3x3" audio  # those whose names begin so

All compute the same arrays. PyTorch gets them in its own layout
(NCHW, in memory as channels last). On a machine that is not idle ``--cpu`` counts processor time instead, which is
comparable with one thread each (``WEFT_NUM_THREADS=1 OMP_NUM_THREADS=1 XLA_FLAGS="--xla_cpu_multi_thread_eigen=false
intra_op_parallelism_threads=1"``).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from peers import Calls, Compared, main

import weft
import weft.lax

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class Case(NamedTuple):
    """A convolution in "N...C" and "...IO": shapes, settings, and what is asked of it."""

    name: str
    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    asked: float = 1.0  # of the best peer in the same run
    asked_of_jax: float = 1.0


CASES = [
    Case("3x3 (8,56,56,64->64)", (8, 56, 56, 64), (3, 3, 64, 64)),
    Case("7x7 stride 2 (8,224,224,3->64)", (8, 224, 224, 3), (7, 7, 3, 64), stride=2),
    Case("1x1 (8,28,28,256->512)", (8, 28, 28, 256), (1, 1, 256, 512)),
    Case("transposed 4x4 stride 2 (8,28,28,64->64)", (8, 28, 28, 64), (4, 4, 64, 64), stride=2, transposed=True),
    Case("dilated 3x3 (8,56,56,64->64)", (8, 56, 56, 64), (3, 3, 64, 64), dilation=2),
    Case("depthwise 3x3 (8,56,56,128)", (8, 56, 56, 128), (3, 3, 1, 128), groups=128, asked_of_jax=3.0),
    Case("audio (8,16000,1->32), width 25", (8, 16000, 1), (25, 1, 32), asked_of_jax=3.0),
    Case("grouped 3x3 (8,56,56,128->128), 32 groups", (8, 56, 56, 128), (3, 3, 4, 128), groups=32, asked_of_jax=3.0),
]
MODES = ("forward", "gradient of the operand", "gradient of the kernel")


def convolve(case: Case, lax: Any) -> Callable[[Any, Any], Any]:
    """The convolution by weft or JAX."""
    rank = len(case.shape) - 2
    strides, spread = (case.stride,) * rank, (case.dilation,) * rank
    if case.transposed:
        return lambda x, k: lax.conv_transpose(x, k, strides, "SAME", dimension_numbers=LAYOUTS[rank])
    return lambda x, k: lax.conv_general_dilated(x, k, strides, "SAME", None, spread, LAYOUTS[rank], case.groups)


def in_mode(case: Case, module: Any, mode: str) -> Callable[..., Any]:
    run = convolve(case, module.lax)
    if mode == "forward":
        return lambda x, k, ct: run(x, k)
    if mode == "gradient of the operand":
        return lambda x, k, ct: module.vjp(lambda x: run(x, k), x)[1](ct)[0]
    return lambda x, k, ct: module.vjp(lambda k: run(x, k), k)[1](ct)[0]


def torchs(case: Case, mode: str, x: np.ndarray, kernel: np.ndarray, ct: np.ndarray) -> Callable[[], object]:
    """The same by PyTorch."""
    rank = len(case.shape) - 2
    last = {"memory_format": torch.channels_last} if rank == 2 else {}
    images = [torch.from_numpy(np.moveaxis(a, -1, 1).copy()).contiguous(**last) for a in (x, ct)]
    order = (rank, rank + 1) if case.transposed else (rank + 1, rank)
    weights = torch.from_numpy(kernel.transpose(*order, *range(rank)).copy()).contiguous(**last)
    (given, cotangent), functional = images, torch.nn.functional
    if case.transposed:  # kernels are reversed there
        run = getattr(functional, f"conv_transpose{rank}d")
        weights = weights.flip(tuple(range(2, rank + 2))).contiguous(**last)
        forward = functools.partial(run, stride=case.stride, padding=(case.kernel[0] - case.stride) // 2)
    else:
        reach = (case.kernel[0] - 1) * case.dilation + 1
        total = max((-(-case.shape[1] // case.stride) - 1) * case.stride + reach - case.shape[1], 0)
        pads = [total // 2, total - total // 2] * rank if total % 2 else []
        run = getattr(functional, f"conv{rank}d")
        padding = 0 if pads else total // 2

        def forward(x: Any, weights: Any) -> Any:
            x = functional.pad(x, pads) if pads else x
            return run(x, weights, None, case.stride, padding, case.dilation, case.groups)

    if mode == "forward":

        def call() -> object:
            with torch.no_grad():
                return forward(given, weights)

        return call
    wanted = (given if mode == "gradient of the operand" else weights).detach().requires_grad_()
    result = forward(wanted, weights) if mode == "gradient of the operand" else forward(given, wanted)
    return lambda: torch.autograd.grad(result, wanted, cotangent, retain_graph=True)


def calls_of(case: Case, mode: str) -> Calls:
    """The call of each system, which all give the same."""
    x, kernel = normal(*case.shape), normal(*case.kernel)
    shape = jax.eval_shape(convolve(case, jax.lax), x, kernel).shape
    ct = normal(*shape)
    calls: Calls = {}
    for system, module in (("weft", weft), ("JAX", jax)):
        compiled = module.jit(in_mode(case, module, mode))
        given = [module.numpy.asarray(a) for a in (x, kernel, ct)]
        calls[system] = functools.partial(
            lambda f, given, wait: wait(f(*given)), compiled, given, module.block_until_ready
        )
    found, expected = np.asarray(calls["weft"]()), np.asarray(calls["JAX"]())
    if np.abs(found - expected).max() > 1e-3 * np.abs(expected).max():
        raise AssertionError(f"{case.name}, {mode}: weft and JAX differ by {np.abs(found - expected).max()}")
    if torch is not None:
        calls["torch"] = torchs(case, mode, x, kernel, ct)
    return calls


# ---- a network of three layers, and a step of its training


def network(module: Any) -> Callable[..., Any]:
    lax, np_ = module.lax, module.numpy

    def run(weights: Any, images: Any) -> Any:
        x = images
        for kernel, bias in weights[:-1]:
            x = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=LAYOUTS[2])
            x = np_.maximum(x + bias, 0)
        matrix, bias = weights[-1]
        return x.reshape(x.shape[0], -1) @ matrix + bias

    return run


def step(module: Any) -> Callable[..., Any]:
    np_, run = module.numpy, network(module)

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        scores = run(weights, images)
        scores = scores - scores.max(axis=1, keepdims=True)
        logs = scores - np_.log(np_.exp(scores).sum(axis=1, keepdims=True))
        return -(logs * labels).sum() / images.shape[0]

    def train(weights: Any, images: Any, labels: Any) -> Any:
        gradients = module.grad(loss)(weights, images, labels)
        return [(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(weights, gradients, strict=True)]

    return train


def weights_of() -> list[tuple[np.ndarray, np.ndarray]]:
    channels, layers = (1, 16, 32, 64), []
    for given, made in itertools.pairwise(channels):
        layers.append((normal(3, 3, given, made) / math.sqrt(9 * given), np.zeros(made, np.float32)))
    return [*layers, (normal(4 * 4 * 64, 10) / 32, np.zeros(10, np.float32))]


def torchs_network(trains: bool, images: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    functional = torch.nn.functional
    *layers, (matrix, offset) = [
        (torch.from_numpy(w.transpose(3, 2, 0, 1).copy() if w.ndim == 4 else w), torch.from_numpy(b))
        for w, b in weights_of()
    ]
    given = torch.from_numpy(np.moveaxis(images, -1, 1).copy())
    targets = torch.from_numpy(labels)
    every = [tensor for pair in [*layers, (matrix, offset)] for tensor in pair]

    def forward() -> Any:
        x = given
        for kernel, bias in layers:
            pads = (0, 1, 0, 1) if x.shape[-1] % 2 == 0 else (1, 1, 1, 1)
            x = torch.relu(functional.conv2d(functional.pad(x, pads), kernel, bias, 2))
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1) @ matrix + offset

    def call() -> object:
        if not trains:
            with torch.no_grad():
                return forward()
        for tensor in every:
            tensor.requires_grad_()
        loss = -(functional.log_softmax(forward(), 1) * targets).sum() / given.shape[0]
        gradients = torch.autograd.grad(loss, every)
        return [tensor.detach() - 0.1 * gradient for tensor, gradient in zip(every, gradients, strict=True)]

    return call


def network_calls(trains: bool) -> Calls:
    images, labels = normal(32, 28, 28, 1), np.eye(10, dtype=np.float32)[np.arange(32) % 10]
    operands = (images, labels) if trains else (images,)
    calls: Calls = {}
    for system, module in (("weft", weft), ("JAX", jax)):
        compiled = module.jit((step if trains else network)(module))
        weights = [tuple(map(module.numpy.asarray, pair)) for pair in weights_of()]
        given = (weights, *map(module.numpy.asarray, operands))
        calls[system] = functools.partial(
            lambda f, given, wait: wait(f(*given)), compiled, given, module.block_until_ready
        )
    if torch is not None:
        calls["torch"] = torchs_network(trains, images, labels)
    return calls


NETWORKS = (("forward", False), ("training step", True))
ROWS = [
    *[
        Compared(f"{case.name}: {mode}", functools.partial(calls_of, case, mode), case.asked, case.asked_of_jax)
        for case in CASES
        for mode in MODES
    ],
    *[
        Compared(f"network of 3 layers, batch 32, 28x28: {word}", functools.partial(network_calls, trains))
        for word, trains in NETWORKS
    ],
]

if __name__ == "__main__":
    main(ROWS)

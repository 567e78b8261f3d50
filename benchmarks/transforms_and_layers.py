"""Fourier transforms, attention and resizing of images beside JAX, SciPy and PyTorch (where it is installed).

python benchmarks/transforms_and_layers.py                # all of them, single precision: a minute
python benchmarks/transforms_and_layers.py fft resize     # those whose names begin so
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.image
import jax.numpy
import numpy as np
import scipy.fft
from peers import Calls, Compared, main

import weft
import weft.image
import weft.nn
import weft.numpy

RNG = np.random.default_rng(0)
TORCH: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def complexes(*shape: int) -> np.ndarray:
    return (normal(*shape) + 1j * normal(*shape)).astype(np.complex64)


def compiled(operation: Callable[[Any], Callable[..., Any]], operands: tuple[np.ndarray, ...]) -> Calls:
    """The calls of weft and JAX: ``operation`` takes either and gives the function."""
    calls: Calls = {}
    for system, module in (("weft", weft), ("JAX", jax)):
        function, given = module.jit(operation(module)), [module.numpy.asarray(x) for x in operands]
        calls[system] = lambda f=function, given=given, module=module: module.block_until_ready(f(*given))
    return calls


def transform(name: str, *operands: np.ndarray) -> Calls:
    calls = compiled(lambda module: getattr(module.numpy.fft, name), operands)
    calls["SciPy"] = lambda: getattr(scipy.fft, name)(*operands, workers=-1)
    if TORCH is not None:
        tensors = [TORCH.from_numpy(x) for x in operands]
        calls["torch"] = lambda: getattr(TORCH.fft, name)(*tensors)
    return calls


def attention(gradient: bool) -> Calls:
    q, k, v = (normal(1, 1024, 8, 64) for _ in range(3))

    def operation(module: Any) -> Callable[..., Any]:
        attend = functools.partial(module.nn.dot_product_attention, is_causal=True)
        return module.grad(lambda *qkv: attend(*qkv).sum(), (0, 1, 2)) if gradient else attend

    calls = compiled(operation, (q, k, v))
    if TORCH is not None:
        tensors = [TORCH.from_numpy(x).transpose(1, 2).contiguous().requires_grad_(gradient) for x in (q, k, v)]

        def attend() -> Any:
            out = TORCH.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
            return TORCH.autograd.grad(out.sum(), tensors) if gradient else out

        calls["torch"] = attend
    return calls


def resize() -> Calls:
    images = normal(16, 512, 512, 3)
    calls = compiled(lambda module: lambda x: module.image.resize(x, (16, 224, 224, 3), "linear"), (images,))
    if TORCH is not None:
        tensor = TORCH.from_numpy(images.transpose(0, 3, 1, 2).copy())
        interpolate = TORCH.nn.functional.interpolate
        calls["torch"] = lambda: interpolate(tensor, size=(224, 224), mode="bilinear", antialias=True)
    return calls


ROWS = [
    Compared("fft of 1,048,576", lambda: transform("fft", complexes(1 << 20))),
    Compared("fft of 4096 rows of 1024", lambda: transform("fft", complexes(4096, 1024))),
    Compared("fft2 of 1024 x 1024", lambda: transform("fft2", complexes(1024, 1024))),
    Compared("rfft of 2^20", lambda: transform("rfft", normal(1 << 20))),
    Compared("fft of 1,000,003", lambda: transform("fft", complexes(1_000_003))),
    Compared("attention, causal, 8 heads x 1024 x 64", lambda: attention(False), 1.2),
    Compared("attention's gradient", lambda: attention(True), 1.2),
    Compared("resize 16 images, 512 -> 224", resize),
]

if __name__ == "__main__":
    main(ROWS)

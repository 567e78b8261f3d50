"""Pooling by ``weft.lax.reduce_window`` and its gradient beside JAX and, where it is installed, torch.

    python benchmarks/pooling.py              # windows of 2x2 and 3x3, stride 2, of (32, 112, 112, 64): a minute
    python benchmarks/pooling.py "max 2x2"    # those whose names begin so

Rows are a pooling (forward) or the pooling and its gradient with a given cotangent (gradient), of float32 images in
both layouts. ``--cpu`` counts processor time, for machines that are not idle.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from peers import Calls, Compared, main

import weft
import weft.lax

ASKED = 1.5  # speed that is asked for, over that of the best peer in the same run
BATCH, SIDE, CHANNELS = 32, 112, 64
Call = Callable[[], object]


def image(layout: str) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(BATCH, SIDE, SIDE, CHANNELS)).astype(np.float32)
    return x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def pool(module: Any, kind: str, window: int, layout: str) -> Callable[[Any], Any]:
    """The pooling over ``reduce_window``, as users write it."""

    def sizes(n: int) -> tuple[int, ...]:
        return (1, n, n, 1) if layout == "NHWC" else (1, 1, n, n)

    edge = (1, 1) if window == 3 else (0, 0)  # as torch pads
    padding = tuple(edge if n > 1 else (0, 0) for n in sizes(2))
    lax = module.lax

    def run(x: Any) -> Any:
        if kind == "max":
            return lax.reduce_window(x, -np.inf, lax.max, sizes(window), sizes(2), padding)
        return lax.reduce_window(x, 0.0, lax.add, sizes(window), sizes(2), padding) / window**2

    return run


def compiled(module: Any, kind: str, window: int, layout: str, x: np.ndarray, gradient: bool) -> Call:
    function = pool(module, kind, window, layout)

    def both(x: Any, cotangent: Any) -> Any:
        out, pull = module.vjp(function, x)
        return out, pull(cotangent)[0]

    given = [module.numpy.asarray(x)]
    if gradient:
        given.append(module.numpy.ones_like(module.jit(function)(given[0])))
    jitted = module.jit(both if gradient else function)
    return lambda: module.block_until_ready(jitted(*given))


def torchs(kind: str, window: int, layout: str, x: np.ndarray, gradient: bool) -> Call:
    torch = importlib.import_module("torch")
    functional = torch.nn.functional
    function = functional.max_pool2d if kind == "max" else functional.avg_pool2d
    given = torch.from_numpy(x)
    given = given.permute(0, 3, 1, 2) if layout == "NHWC" else given  # channels last
    padding = 1 if window == 3 else 0
    if not gradient:
        return lambda: function(given, window, 2, padding)
    given = given.requires_grad_()
    ones = torch.ones_like(function(given, window, 2, padding))
    return lambda: torch.autograd.grad(function(given, window, 2, padding), given, ones)


def calls_of(layout: str, kind: str, window: int, gradient: bool) -> Calls:
    x = image(layout)
    calls: Calls = {
        "weft": compiled(weft, kind, window, layout, x, gradient),
        "JAX": compiled(jax, kind, window, layout, x, gradient),
    }
    if importlib.util.find_spec("torch"):
        calls["torch"] = torchs(kind, window, layout, x, gradient)
    return calls


ROWS = [
    Compared(
        f"{kind} {window}x{window} {layout} {'gradient' if gradient else 'forward'}",
        functools.partial(calls_of, layout, kind, window, gradient),
        ASKED,
    )
    for kind, window, layout, gradient in itertools.product(("max", "mean"), (2, 3), ("NHWC", "NCHW"), (False, True))
]

if __name__ == "__main__":
    main(ROWS)

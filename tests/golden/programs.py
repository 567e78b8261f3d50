"""Programs whose kernels, loops and LLVM text a reader should know; run as a script it prints them as JSON.

A script of its own because the target is fixed to x86-64-v4 for the texts, whatever machine the tests run on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import weft
import weft.numpy as jnp

FORMS = ("kernel", "loops", "llvm")


def selu(x: Any) -> Any:
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


def sum_of_squares_and_sines(x: Any) -> Any:
    return jnp.sum(x**2 + jnp.sin(x))


def layernorm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * weft.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def embedding(table: Any, ids: Any) -> Any:
    numbers = weft.lax.GatherDimensionNumbers((1,), (0,), (0,))
    return weft.lax.gather(table, ids[:, None], numbers, (1, table.shape[1]), mode="fill")


def histogram(bins: Any) -> Any:
    numbers = weft.lax.ScatterDimensionNumbers((), (0,), (0,))
    return weft.lax.scatter_add(jnp.zeros(10, jnp.float32), bins[:, None], jnp.ones(bins.shape, jnp.float32), numbers)


def add_rows(table: Any, ids: Any, rows: Any) -> Any:
    numbers = weft.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return weft.lax.scatter_add(table, ids[:, None], rows * 2, numbers)


def f32(*shape: int) -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct(shape, jnp.int32)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[weft.ShapeDtypeStruct, ...]]] = {
    "add_one": (lambda x: x + 1, (f32(1000),)),
    "selu": (selu, (f32(1000),)),
    "sum_of_squares_and_sines": (sum_of_squares_and_sines, (f32(100_000),)),
    "softmax": (lambda x: weft.nn.softmax(x), (f32(64, 100),)),
    "softmax_columns": (lambda x: weft.nn.softmax(x, axis=0), (f32(64, 100),)),
    "log_softmax": (lambda x: weft.nn.log_softmax(x), (f32(64, 100),)),
    "layernorm": (layernorm, (f32(64, 100),)),
    "two_reductions": (lambda x: (jnp.sum(x, axis=1), jnp.max(x, axis=1)), (f32(64, 100),)),
    "sum_columns": (lambda x: jnp.sum(x, axis=0), (f32(64, 100),)),
    "argmax": (lambda x: jnp.argmax(x, axis=1), (f32(64, 100),)),
    "outer_sum": (lambda x, y: x[:, None] + y[None, :], (f32(64), f32(100))),
    "transpose": (lambda x: x.T * 2, (f32(64, 100),)),
    "pad": (lambda x: jnp.pad(x, 3), (f32(64, 100),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y * 2], axis=1), (f32(64, 100), f32(64, 20))),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (f32(64, 100),)),
    "bfloat16": (lambda x: jnp.exp(x) + x, (weft.ShapeDtypeStruct((1000,), jnp.bfloat16),)),
    "embedding": (embedding, (f32(50, 100), i32(64))),
    "histogram": (histogram, (i32(1000),)),
    "add_rows": (add_rows, (f32(50, 100), i32(64), f32(64, 100))),
    "product_with_epilogue": (lambda x, w, b: jnp.maximum(x @ w + b, 0), (f32(8, 16), f32(16, 32), f32(32))),
}


def texts() -> dict[str, dict[str, str]]:
    """For every program its text in every form."""
    found: dict[str, dict[str, str]] = {}
    for name, (function, avals) in PROGRAMS.items():
        compiled = weft.jit(function).lower(*avals).compile()
        found[name] = {form: compiled.as_text(form) or "" for form in FORMS}
    return found


if __name__ == "__main__":
    print(json.dumps(texts()))

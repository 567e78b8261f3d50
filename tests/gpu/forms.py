"""A program for each form in which a GPU runs a kernel: what its plan says, the function, its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn as nn
import weft.numpy as jnp
from weft import lax

RNG = np.random.default_rng(0)
X = RNG.standard_normal((37, 1000)).astype(np.float32)
LONG = RNG.standard_normal((5, 3000)).astype(np.float32)
V = RNG.standard_normal(20_003).astype(np.float32)
A, B = RNG.standard_normal((70, 600)).astype(np.float32), RNG.standard_normal((600, 130)).astype(np.float32)
SMALL = (X[:, :70] * 20).astype(np.int8)

FORMS: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
    "a map": ("wide", lambda x: jnp.tanh(x) + jnp.sin(x * 1e6), (X,)),
    "a map that is not aligned": ("wide", lambda x: jnp.exp(x[1:]) * 2, (V,)),
    "a map of strides": ("points", lambda x: x[:, ::-1] * x[:, :1] + 1, (X,)),
    "a map of bytes": ("wide", lambda x: x + 3, (np.arange(1001, dtype=np.uint8),)),
    "half precision": ("wide", lambda x: jnp.tanh(x) * 2, (X.astype(np.float16),)),
    "rows of ten": ("short", lambda x: nn.softmax(x, -1), (X[:, :10],)),
    "rows of three": ("short", lambda x: (x.sum(1), x.argmax(1), x.min(1)), (X[:, :3],)),
    "rows of sixteen": ("short", lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (X[:, :16],)),
    "rows of one": ("short", lambda x: x.sum(1) + 1, (X[:, :1],)),
    "short rows": ("warps", lambda x: nn.softmax(x, -1), (X,)),
    "rows": ("held", lambda x: nn.softmax(x, -1), (LONG,)),
    "rows that are not aligned": ("held", lambda x: nn.softmax(x[:, 1:], -1), (LONG,)),
    "rows of two blocks of the tree": ("held", lambda x: (nn.softmax(x), x.sum(1)), (V[:18_000].reshape(2, -1),)),
    "rows from the end": ("held", lambda x: nn.softmax(x[:, ::-1], -1), (LONG,)),
    "rows that do not fit registers": ("blocks", lambda x: (nn.softmax(x), x.argmax(1)), (V.reshape(1, -1),)),
    "rows of bfloat16": ("held", lambda x: nn.softmax(x, -1), (jnp.asarray(LONG, jnp.bfloat16),)),
    "several reductions": ("held", lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), (LONG,)),
    "positions": ("warps", lambda x: x.argmax(1), (X,)),
    "positions in long rows": ("held", lambda x: (x.argmin(1), x.max(1)), (LONG,)),
    "everything": ("parts", lambda x: (x**2 + jnp.sin(x)).sum() + 1, (V,)),
    "everything's position": ("parts", lambda x: x.argmax(), (V,)),
    "few long rows": ("parts", lambda x: x.sum(1) * 2, (V.reshape(1, -1).repeat(3, 0),)),
    "columns": ("points", lambda x: (x - x.mean(0)) / x.std(0), (X,)),
    "column sums": ("column_parts", lambda x: x.sum(0) * 2 + 1, (X.T,)),
    "one column": ("column_parts", lambda x: (x.sum(0), x.argmax(0)), (V.reshape(-1, 1),)),
    "axes around": ("warps", lambda x: x.sum((0, 2)), (X.reshape(37, 10, 100),)),
    "a broadcast within": ("warps", lambda x, y: (x * y[:, None]).sum((1, 2)), (X.reshape(37, 10, 100), X[:, :100])),
    "a running sum": ("clear", lambda x: jnp.cumsum(x * 2) + 1, (V,)),
    "running sums of rows": ("scans", lambda x: jnp.cumsum(x, 1), (X,)),
    "from the end": ("clear", lambda x: lax.cumlogsumexp(x, 0, reverse=True), (V[:18000].reshape(9000, 2),)),
    "running sums of columns": ("scans", lambda x: jnp.cumsum(x, 0), (X.T,)),
    "a transposition": ("tiles", lambda x: x.T + 1, (X,)),
    "axes in another order": ("tiles", lambda x: jnp.transpose(x, (2, 0, 1)) * 2, (X.reshape(37, 10, 100),)),
    "rows by index": ("wide", lambda x, i: x[i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "rows by index that are not aligned": ("wide", lambda x, i: x[:, 1:129][i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "columns by index": ("points", lambda x, i: x[:, i] + 1, (X, np.array([3, 7, -1, 50, 2]))),
    "neighbours": ("points", lambda x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1], (X,)),
    "an array that is put together": ("points", lambda x: jnp.pad(x, ((1, 2), (3, 4))), (X,)),
    "a product": ("tiles", lambda a, b: a @ b, (A, B)),
    "a product of transposed matrices": ("tiles", lambda a, b: a.T @ b.T, (B, A)),
    "products": ("tiles", lambda a, b: a @ b, (A.reshape(7, 10, 600), B.reshape(1, 600, 130).repeat(7, 0))),
    "a product of integers": ("tiles", lambda a: lax.dot(a, a.T, preferred_element_type=np.int32), (SMALL,)),
    "a product of bfloat16": (
        "tiles", lambda a: jnp.matmul(a, a.T, precision="highest"), (jnp.asarray(A, jnp.bfloat16),),
    ),
    "several summed axes": (
        "tiles", lambda a, b: jnp.einsum("abc,bcd->ad", a, b), (A.reshape(70, 20, 30), B.reshape(20, 30, 130)),
    ),
    "a matrix by a vector": ("vector", lambda a, b: a @ b, (X, V[:1000])),
    "a loop": ("loop", lambda x: lax.fori_loop(0, 1000, lambda i, x: jnp.sin(x) * 0.9 + i * 1e-3, x), (np.float32(1),)),
    "a loop for each lane": (
        "loop", lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x)), (X[:, :7],),
    ),
    "a loop for each of many lanes": (
        "loop", weft.vmap(lambda a: lax.fori_loop(0, 9, lambda i, x: 0.5 * (x + a / x), a)), (np.abs(V[:6000]) + 1,),
    ),
    "a scan with rows of lanes": (
        "loop", lambda x: lax.scan(lambda c, a: (jnp.sin(c) + a, (c, a.shape[0] * 2)), x[0], x[:9, :40]), (X[:, :40],),
    ),
    "a loop of kernels with a row of many threads": (
        "launch loop", lambda x: lax.fori_loop(0, 3, lambda i, x: nn.softmax(x) * x.sum() + i, x), (V[:9000],),
    ),
    "random numbers": ("wide", lambda k: weft.random.normal(k, (1000,)), (weft.random.PRNGKey(3),)),
}  # fmt: skip

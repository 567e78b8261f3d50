"""nn.dot_product_attention beside JAX's and a plain softmax; its blocks, derivatives, batches and errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import attention

RNG = np.random.default_rng(2)


def operands(batch: int, queries: int, keys: int, heads: int, groups: int, size: int) -> tuple[Any, Any, Any]:
    draw = lambda *shape: RNG.normal(size=shape).astype(np.float32)
    return draw(batch, queries, heads, size), draw(batch, keys, groups, size), draw(batch, keys, groups, size)


SMALL = operands(2, 5, 7, 4, 2, 8)
LENGTHS = np.array([3, 5], np.int32)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"bias": RNG.normal(size=(2, 4, 5, 7)).astype(np.float32)},
    {"bias": RNG.normal(size=(5, 7)).astype(np.float32)},
    {"mask": RNG.uniform(size=(2, 1, 5, 7)) > 0.4},
    {"mask": np.zeros((1, 1, 1, 7), bool)},
    {"query_seq_lengths": LENGTHS},
    {"key_value_seq_lengths": np.array([7, 2], np.int32)},
    {"local_window_size": 1},
    {"local_window_size": (2, 0), "is_causal": True},
    {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS, "is_causal": True},
    {"implementation": "xla", "return_residual": True},
]


def number(options: dict[str, Any]) -> str:
    return "-".join(options) or "plain"


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS, ids=number)
def test_values_and_gradients_are_those_of_jax(options: dict[str, Any]) -> None:
    want = jax.nn.dot_product_attention(*SMALL, **options)
    found = nn.dot_product_attention(*SMALL, **options)
    jitted = weft.jit(lambda *x: nn.dot_product_attention(*x, **options))(*SMALL)
    for a, b, c in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, want, jitted)], strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(np.asarray(a), np.asarray(c), rtol=1e-6, atol=1e-6)
    if options.get("return_residual"):
        return
    loss = lambda f: lambda *x: (f(*x, **options) ** 2).sum()
    ours = weft.grad(loss(nn.dot_product_attention), (0, 1, 2))(*SMALL)
    theirs = jax.grad(loss(jax.nn.dot_product_attention), (0, 1, 2))(*SMALL)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("block_bytes", [1, 3000, 20000])
@pytest.mark.parametrize("options", OPTIONS, ids=number)
def test_blocks_change_nothing(options: dict[str, Any], block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = operands(2, 21, 7, 4, 2, 8)
    if any(np.ndim(v) > 1 and np.shape(v)[-2] == 5 for v in options.values()):
        options = {k: np.resize(v, (*np.shape(v)[:-2], 21, 7)) for k, v in options.items()}
    want = jax.nn.dot_product_attention(*x, **options)
    monkeypatch.setattr(attention, "_BLOCK_BYTES", block_bytes)
    found = nn.dot_product_attention(*x, **options)
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, want)], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=2e-6)
    if options.get("return_residual"):
        return
    loss = lambda f: lambda *x: (f(*x, **options) ** 2).sum()
    ours = weft.jit(weft.grad(loss(nn.dot_product_attention), (0, 1, 2)))(*x)
    theirs = jax.grad(loss(jax.nn.dot_product_attention), (0, 1, 2))(*x)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{"is_causal": True}, {"is_causal": True, "return_residual": True}, {}], ids=number)
def test_parts_of_the_queries_with_the_keys_they_see(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK_BYTES", 1)
    for queries, keys in ((43, 43), (70, 30), (33, 64)):
        x = operands(3, queries, keys, 6, 3, 4)
        found, want = [f(*x, **options) for f in (nn.dot_product_attention, jax.nn.dot_product_attention)]
        for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, want)], strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=2e-6)


def test_without_a_batch_and_in_halves() -> None:
    q, k, v = SMALL
    np.testing.assert_allclose(
        np.asarray(nn.dot_product_attention(q[0], k[0], v[0])), np.asarray(nn.dot_product_attention(q, k, v))[0],
        rtol=1e-6, atol=1e-6,
    )  # fmt: skip
    halves = [x.astype(np.float16) for x in SMALL]
    found = nn.dot_product_attention(*halves)
    assert found.dtype == np.float16
    np.testing.assert_allclose(np.asarray(found, np.float32), np.asarray(nn.dot_product_attention(*SMALL)), atol=5e-3)


@pytest.mark.parametrize("block_bytes", [1 << 20, 1])
def test_both_modes_to_second_order_and_batches(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK_BYTES", block_bytes)
    with weft.enable_x64(True):
        x = [np.asarray(a[:, :, :, :3], np.float64) for a in operands(1, 10, 3, 2, 1, 4)]
        f = lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True)
        weft.test_util.check_grads(f, tuple(x), order=2, rtol=1e-4, atol=1e-4)
    stacked = [np.stack([a, 2 * a]) for a in SMALL]
    mapped = weft.vmap(nn.dot_product_attention)(*stacked)
    for i in range(2):
        expected = nn.dot_product_attention(*[a[i] for a in stacked])
        np.testing.assert_allclose(np.asarray(mapped)[i], np.asarray(expected), rtol=1e-5, atol=1e-6)


Q, K, V = SMALL


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.dot_product_attention(Q[0, 0], K, V), ValueError, "query shape should be"),
        (lambda: nn.dot_product_attention(Q, K, V[:, :5]), ValueError, "value shape should be"),
        (lambda: nn.dot_product_attention(Q[:, :, :3], K, V), ValueError, "multiple of key/value heads"),
        (lambda: nn.dot_product_attention(Q.astype(np.float16), K, V), ValueError, "query dtype should be float32"),
        (lambda: nn.dot_product_attention(Q, K, V, mask=np.ones((2, 4, 5, 7))), ValueError, "mask dtype"),
        (lambda: nn.dot_product_attention(Q, K, V, mask=np.ones((2, 4, 5, 6), bool)), TypeError, "broadcast"),
        (lambda: nn.dot_product_attention(Q, K, V, implementation="foo"), ValueError, "Unsupported implementation"),
        (lambda: nn.dot_product_attention(Q, K, V, implementation="cudnn"), RuntimeError, "cuDNN"),
        (lambda: nn.dot_product_attention(Q, K, V, query_seq_lengths=np.ones(2)), ValueError, "dtype should be int32"),
        (
            lambda: nn.dot_product_attention(Q, K, V, query_seq_lengths=np.ones(1, np.int32)),
            ValueError, "query_seq_lengths shape should be",
        ),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()

"""Programs with control flow, random numbers, derivatives and calls, run as StableHLO by jaxlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.nn as nn
import weft.numpy as jnp
import weft.random
from weft import runtime

pytest.importorskip("jaxlib", reason="StableHLO is run by jaxlib")

from tests.stablehlo import running

RNG = np.random.default_rng(0)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
I = np.arange(3, dtype=np.int32)  # noqa: E741 - the integers beside X
A = (np.eye(4) * 3 + RNG.random((4, 4))).astype(np.float32)
KEY = np.array([1, 2], np.uint32)
LAYERS = [(RNG.normal(size=(4, 8)).astype(np.float32), np.zeros(8, np.float32))]
LAYERS += [(RNG.normal(size=(8, 2)).astype(np.float32), np.zeros(2, np.float32))]


def loss(layers: Any, x: Any) -> Any:
    for w, b in layers:
        x = jnp.tanh(x @ w + b)
    return jnp.sum(x**2)


def step(c: Any, w: Any) -> Any:
    return jnp.sin(c * w), c.sum()


@weft.jit
def doubled(x: Any) -> Any:
    return jnp.sin(x) * 2


def refs(x: Any) -> Any:
    r = weft.new_ref(x)
    r[0] = x[1] * 2
    return r[...]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gradient": (weft.grad(loss), (LAYERS, X)),
    "hessian": (lambda x: weft.hessian(lambda r: jnp.sum(jnp.sin(r) * r**3))(x[0]), (X,)),
    "remat": (weft.grad(weft.checkpoint(lambda r: jnp.sum(jnp.sin(r) * r**3))), (X,)),
    "fori": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i, x), (X,)),
    "while": (lambda x: lax.while_loop(lambda c: c[0].sum() < 100, lambda c: (c[0] * 2 + 1, c[1] + 1), (x, 0)), (X,)),
    "captured": (lambda x, y: lax.while_loop(lambda c: c.sum() < y.sum() * 50, lambda c: c * 2 + y, x), (X, X * X)),
    "scan": (lambda x: lax.scan(step, x[0], x, reverse=True), (X,)),
    "scan gradient": (weft.grad(lambda x: lax.scan(step, x[0], x)[1].sum()), (X,)),
    "no steps": (lambda x: lax.scan(step, x[0], x[:0]), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x), (X,)),
    "switch": (lambda i, x: lax.switch(i, [lambda x: x * 2, lambda x: x - 1, jnp.sin], x), (np.int32(7), X)),
    "calls": (lambda x: doubled(x) + doubled(x), (X,)),
    "refs": (refs, (X,)),
    "indices": (lambda x, i: (x[i], x[i, i], jnp.asarray(x).at[i].add(1.0), jnp.take(x, i, 1, mode="clip")), (X, I)),
    "sorts": (lambda x: (jnp.argsort(x, 1), jnp.sort(x, 0), jnp.median(x), lax.top_k(x, 2)), (X,)),
    "vmap": (weft.vmap(lambda r: jnp.dot(r, r) + jnp.sort(r)[0]), (X,)),
    "mean of an axis": (weft.vmap(lambda r: r - lax.pmean(r, "i"), axis_name="i"), (X,)),
    "one device": (lambda x: weft.pmap(lambda r: lax.psum(r, "i"), axis_name="i")(x[None]), (X,)),
    "attention": (lambda q: nn.dot_product_attention(q, q, q), (RNG.normal(size=(1, 5, 2, 4)).astype(np.float32),)),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T), (A,)),
    "fourier": (lambda x: (jnp.fft.fft(x), jnp.fft.irfft(x[0] + 0j)), (X,)),
    "four bits": (lambda i: (i.astype(jnp.int4) + i.astype(jnp.int4)).astype(np.int32), (I,)),
    "eight bits": (lambda x: x.astype(jnp.float8_e4m3fn).astype(np.float32), (X,)),
    "bfloat16": (lambda x: x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16), (X,)),
    "normal": (lambda seed: weft.random.normal(weft.random.key(seed), (50,)), (np.int32(3),)),
    "barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (X,)),
}
SAME_BITS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "bits": (lambda k: (weft.random.bits(k, (7,), np.uint8), weft.random.split(k, 3)), (KEY,)),
    "uniform": (lambda k: (weft.random.uniform(k, (5,)), weft.random.randint(k, (3,), 0, 100)), (KEY,)),
}


@pytest.mark.parametrize("programs", [PROGRAMS, SAME_BITS], ids=["near", "same bits"])
def test_programs_give_the_same_values(programs: dict[str, Any]) -> None:
    found = running.together([f for f, _ in programs.values()], [args for _, args in programs.values()])
    for (name, (f, args)), outs in zip(programs.items(), found, strict=True):
        for x, y in zip(outs, runtime.tree_flatten(weft.jit(f)(*args))[0], strict=True):
            y = np.asarray(y)
            assert x.dtype == y.dtype and x.shape == y.shape, name
            if programs is SAME_BITS:
                assert x.tobytes() == y.tobytes(), name
            wide = [v.astype(np.float64) if v.dtype.kind != "c" else v for v in (x, y)]
            np.testing.assert_allclose(*wide, rtol=2e-5, atol=2e-6, err_msg=name)


def test_callbacks_name_the_line() -> None:
    def printed(x: Any) -> Any:
        weft.debug.print("{}", x)  # the line
        return x

    with pytest.raises(NotImplementedError, match=r"debug_print at .*test_programs\.py:\d+.*calls Python"):
        weft.jit(printed).lower(1.0).as_text("stablehlo")
    with pytest.raises(NotImplementedError, match=r"pure_callback at .*test_programs\.py"):
        weft.jit(lambda x: weft.pure_callback(lambda a: a, x, x)).lower(X).as_text("stablehlo")


def test_text_of_a_lowered_function() -> None:
    def named(x: Any) -> Any:
        return {"first": doubled(x) + doubled(x)}

    lowered = weft.jit(named).lower(X)
    text = lowered.as_text()
    assert text == lowered.as_text("stablehlo") == str(lowered.compiler_ir("stablehlo"))
    assert text.startswith("module @jit_named attributes") and "jax.result_info" in text
    assert text.count("func.func") == 2 and text.count("callee = @") == 2  # two calls of one function
    assert "test_programs.py" not in text
    assert "test_programs.py" in lowered.as_text("stablehlo", debug_info=True)
    assert running.run(lowered.as_text("stablehlo", debug_info=True), [X])[0].shape == X.shape
    artifact = lowered.compiler_ir("stablehlo").serialized("1.0.0")
    np.testing.assert_allclose(running.run(artifact, [X])[0], 4 * np.sin(X), rtol=1e-6)

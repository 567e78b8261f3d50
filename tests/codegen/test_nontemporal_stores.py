"""Stores past the caches: with limits of one byte every whole vector is streamed; results against NumPy."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen.running import HOST
from weft._base import target, target_model

DTYPES = ["bool", "int8", "int16", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"]
TARGETS = [name for name, t in target.TARGETS.items() if t.triple == HOST.triple and t.lanes <= HOST.lanes]
SHAPES = [
    (3, 5),
    (8, 70),
    (24, 33),
    (1, 50),
    (16, 16),
    (33, 65),
    (100, 7),
    (257, 255),
    (64, 128),
    (2, 3, 70),
    (5, 40, 24),
]
LINE = 64
NUMPY: Any = np


@pytest.fixture(params=TARGETS)
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(target, "host", lambda: target.named(request.param))
    monkeypatch.setattr(target_model.Model, "streamed_bytes", 1)
    monkeypatch.setattr(target_model.Model, "streamed_lines", 1)
    weft.clear_caches()
    with weft.enable_x64(True):
        yield
    weft.clear_caches()


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    rng = np.random.default_rng(zlib.crc32(repr((shape, dtype)).encode()))
    values = rng.integers(0, 2 if dtype == "bool" else 100, size=shape)
    return (values + 1j * values[::-1] if dtype.startswith("complex") else values).astype(numpy_dtype)


def text_of(f: Callable[..., Any], *args: Any) -> str:
    return weft.jit(f).lower(*args).as_text("llvm")


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda m, x: m.swapaxes(x, -1, -2),
    "axes moved": lambda m, x: m.moveaxis(x, -1, 0),
    "transposed and added": lambda m, x: m.swapaxes(x, -1, -2) + m.swapaxes(x[..., ::-1], -1, -2),
    "transposed and compared": lambda m, x: m.swapaxes(x, -1, -2) != 1,
    "transposed and widened": lambda m, x: m.swapaxes(x, -1, -2).astype("complex128"),
    "transposed, two results": lambda m, x: (m.swapaxes(x, -1, -2) != 1, m.swapaxes(x, -1, -2) + x.ravel()[0]),
    "compared": lambda m, x: x == x[..., ::-1],
    "a view": lambda m, x: x[..., 1:],
    "a view, added": lambda m, x: x[..., 1:] + x[..., :-1],
    "padded": lambda m, x: m.pad(x, 1),
    "joined": lambda m, x: m.concatenate([x, x[..., :3]], -1),
    "added": lambda m, x: x + x,
    "long": lambda m, x: m.where(x == 0, x, m.where(x == 1, x + x, m.where(x == 2, x * x, x * (x + x)))),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name: str, dtype: str, streams: None) -> None:
    program = PROGRAMS[name]
    compiled = weft.jit(lambda x: program(jnp, x))
    for shape in SHAPES:
        x = numbers(shape, dtype)
        want = program(NUMPY, x)
        wanted = want if isinstance(want, tuple) else (want,)
        for threads in (1, 2):
            with weft.threads(threads):
                got = compiled(x)
            for one, expected in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
                np.testing.assert_array_equal(np.asarray(one), expected, err_msg=f"{shape}, {threads} threads")


@pytest.mark.parametrize("columns", [1000, 1024, 1337])
def test_both_threads_write_their_own_lanes(columns: int, streams: None) -> None:
    """Large enough to be divided, at addresses where no line begins."""
    x = numbers((1500, columns), "float32")
    turned, added = weft.jit(lambda x: x.T), weft.jit(lambda x: x[1:, 1:] + 1)
    for threads in (1, 2):
        with weft.threads(threads):
            for _ in range(3):
                np.testing.assert_array_equal(np.asarray(turned(x)), x.T)
                np.testing.assert_array_equal(np.asarray(added(x)), x[1:, 1:] + 1)


def test_rows_that_are_read_several_times(streams: None) -> None:
    x = numbers((37, 129), "float32") / 7
    got = np.asarray(weft.jit(weft.nn.softmax)(x))
    shifted = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(got, shifted / shifted.sum(-1, keepdims=True), rtol=1e-5)


def test_what_is_written_in_place_is_not_streamed_but_right(streams: None) -> None:
    x = numbers((70, 70), "float32")
    step = weft.jit(lambda x, y: (x * 2 + y, x.T), donate_argnums=(0,))
    a, b = jnp.array(x), jnp.array(x)
    for _ in range(3):
        before = np.asarray(a).copy()
        a, turned = step(a, b)
        np.testing.assert_array_equal(np.asarray(a), before * 2 + x)
        np.testing.assert_array_equal(np.asarray(turned), before.T)


def test_half_precisions_that_fill_whole_registers(streams: None) -> None:
    x = numbers((130, 66), "bfloat16")
    got = np.asarray(weft.jit(lambda x: x.T * 2 + 1)(x))
    np.testing.assert_array_equal(got.astype(np.float32), x.T.astype(np.float32) * 2 + 1)


@pytest.mark.skipif(HOST.triple.startswith("aarch64"), reason="only x86 has these instructions")
def test_kernels_have_both_stores_and_wait_for_the_streamed_ones() -> None:
    x, model = jnp.zeros((64, 64), jnp.float32), HOST.model
    for f in (lambda x: x + 1, lambda x: x.T, lambda x: jnp.exp(x), weft.nn.softmax):
        text = text_of(f, x)
        assert "!nontemporal" in text
        assert "llvm.x86.sse.sfence" in text
        assert any(str(n) in text for n in (model.streamed_bytes, model.streamed_lines))


def test_reductions_have_none() -> None:
    assert "nontemporal" not in text_of(lambda x: x.sum(0), jnp.zeros((64, 64), jnp.float32))


@pytest.mark.skipif(HOST.triple.startswith("aarch64"), reason="only x86 has these instructions")
def test_machine_code_streams() -> None:
    x = jnp.zeros((64, 64), jnp.float32)
    assert "movntps" in weft.jit(lambda x: x + 1).lower(x).as_text("asm")

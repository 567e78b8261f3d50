"""lax.rng_uniform: bounds, dtypes, and that no two evaluations give the same numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

N = 20_000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0)])
def test_floats_are_even_within_the_bounds(dtype: str, low: float, high: float) -> None:
    with weft.enable_x64(True):
        drawn = lax.rng_uniform(wnp.asarray(low, dtype), wnp.asarray(high, dtype), (N,))
        assert drawn.dtype == dtype and drawn.shape == (N,)
        x = (np.asarray(drawn, np.float64) - low) / (high - low)
    assert x.min() >= 0 and x.max() < 1
    assert abs(x.mean() - 0.5) < 0.02 and abs(x.var() * 12 - 1) < 0.03
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_are_even_within_the_bounds(dtype: str) -> None:
    with weft.enable_x64(True):
        info = np.iinfo(dtype)
        low = max(-3, int(info.min))
        few = np.asarray(lax.rng_uniform(wnp.asarray(low, dtype), wnp.asarray(4, dtype), (N,)))
        wide = np.asarray(lax.rng_uniform(wnp.asarray(info.min, dtype), wnp.asarray(info.max, dtype), (N,)))
    values, counts = np.unique(few, return_counts=True)
    assert few.dtype == dtype and values.tolist() == list(range(low, 4))
    assert np.abs(counts / N * (4 - low) - 1).max() < 0.1
    share = (wide.astype(np.float64) - float(info.min)) / (float(info.max) - float(info.min))
    assert abs(share.mean() - 0.5) < 0.02 and wide.max() < info.max


def test_bounds_at_the_edge() -> None:
    one = np.float32(1)
    assert set(np.asarray(lax.rng_uniform(one, np.nextafter(one, np.float32(2)), (1000,))).tolist()) == {1.0}
    wide = np.asarray(lax.rng_uniform(np.float32(-3e38), np.float32(3e38), (1000,)))
    assert np.isfinite(wide).all() and wide.max() > 2e38 and wide.min() < -2e38
    assert np.asarray(lax.rng_uniform(7, 8, (5,))).tolist() == [7] * 5
    assert np.isnan(np.asarray(lax.rng_uniform(np.nan, 1.0, (2,)))).all()
    assert lax.rng_uniform(0.0, 1.0, ()).shape == () and lax.rng_uniform(0.0, 1.0, (2, 0)).shape == (2, 0)


def test_no_two_evaluations_are_equal() -> None:
    def draw() -> Any:
        return lax.rng_uniform(0.0, 1.0, (4,))

    @weft.jit
    def program() -> Any:
        looped = lax.scan(lambda c, _: (c, draw()), 0.0, None, length=3)[1]
        total = lax.fori_loop(0, 2, lambda i, t: t + draw(), wnp.zeros(4))
        return draw(), draw(), looped, total, lax.cond(total[0] > -1, draw, lambda: wnp.zeros(4))

    first, second, looped, total, chosen = program()
    again = program()
    rows = [draw(), draw(), first, second, *looped, total, chosen, again[0], again[1], *again[2], again[3], again[4]]
    assert len({tuple(np.asarray(row).tolist()) for row in rows}) == len(rows)
    shared = weft.vmap(lambda x: draw() * x)(np.ones(3, np.float32))
    assert (np.asarray(shared) == np.asarray(shared)[0]).all()


def test_a_process_draws_what_another_draws() -> None:
    code = (
        "from weft import jit, lax; print(lax.rng_uniform(0., 1., (3,)), jit(lambda: lax.rng_uniform(0, 99, (9,)))())"
    )
    command = [sys.executable, "-c", code]
    texts = [subprocess.run(command, capture_output=True, text=True, timeout=60).stdout for _ in range(2)]
    assert texts[0] == texts[1] != ""


def test_programs_are_printed_and_exported_as_jaxs() -> None:
    def program(J: Any) -> Any:
        return lambda a: (J.lax.rng_uniform(a, 1.0, (3,)), 0)[0]

    assert str(weft.make_jaxpr(program(weft))(0.0)) == str(jax.make_jaxpr(program(jax))(0.0))
    text = weft.jit(program(weft)).lower(0.0).as_text("stablehlo")
    assert "stablehlo.rng" in text
    exported = weft.export.export(weft.jit(program(weft)))(0.0)
    loaded = jax.export.deserialize(exported.serialize())
    x, y = np.asarray(loaded.call(np.float32(0))), np.asarray(exported.call(0.0))
    assert x.shape == y.shape == (3,) and ((x >= 0) & (x < 1) & (y >= 0) & (y < 1)).all()


ERRORS: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "identical dtypes, got int32 and float32": (ValueError, lambda: lax.rng_uniform(0, 1.0, (3,))),
    r"must be scalars; got shapes \(2,\)": (ValueError, lambda: lax.rng_uniform(np.zeros(2, "f4"), 1.0, (3,))),
    "not bool": (TypeError, lambda: lax.rng_uniform(False, True, (3,))),
    "not complex64": (TypeError, lambda: lax.rng_uniform(1j, 2j, (3,))),
    "not negative": (ValueError, lambda: lax.rng_uniform(0.0, 1.0, (-1,))),
    "not iterable": (TypeError, lambda: lax.rng_uniform(0.0, 1.0, 3)),  # type: ignore[arg-type] - no sequence
    "valid JAX type": (TypeError, lambda: lax.rng_uniform("a", 1.0, (3,))),
    "Batching rule for 'rng_uniform'": (
        NotImplementedError, lambda: weft.vmap(lambda a: lax.rng_uniform(a, 1.0, (3,)))(np.zeros(2, "f4"))),
    "Differentiation rule for 'rng_uniform'": (
        NotImplementedError, lambda: weft.grad(lambda a: lax.rng_uniform(a, 1.0, ()))(0.0)),
}  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    kind, act = ERRORS[text]
    with pytest.raises(kind, match=text):
        act()

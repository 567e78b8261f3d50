"""Cells of a grid on a GPU: those that run apart are launches of all cells at once, and the bits are the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.control.test_grid_loop import CASES, Kernel, block
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import check, launches
from weft import lax
from weft import numpy as jnp

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
F32 = np.float32


@pytest.mark.parametrize("name", CASES)
def test_cells_of_a_grid(name: str, device: Any) -> None:
    kernel, *operands = CASES[name]
    check(device, lambda *groups: kernel(*groups), tuple(operands))


def rows(x: Any) -> Any:
    def body(i: Any, x: Any, y: Any) -> Any:
        e = jnp.exp(x - jnp.max(x, 1, keepdims=True))
        return [e / jnp.sum(e, 1, keepdims=True)]

    return Kernel((6,), body, [block(2, 24)] * 2, [lambda i: (i, 0)] * 2)([x], [jnp.zeros_like(x)])[0]


def attention(q: Any, k: Any) -> Any:
    """Sums over blocks of rows, as many as the number of the cell says."""

    def body(h: Any, i: Any, q: Any, k: Any, out: Any) -> Any:
        def step(j: Any, c: Any) -> Any:
            return c + jnp.tanh(q @ lax.dynamic_slice(k, (j * 4, 0), (4, 8)).T) @ lax.dynamic_slice(
                k, (j * 4, 0), (4, 8)
            )

        return [lax.fori_loop(0, i + 1, step, jnp.zeros((4, 8), F32))]

    maps = [lambda h, i: (h, i, 0), lambda h, i: (h, 0, 0), lambda h, i: (h, i, 0)]
    blocks = [block(None, 4, 8), block(None, 12, 8), block(None, 4, 8)]
    return Kernel((2, 3), body, blocks, maps)([q, k], [jnp.zeros_like(q)])[0]


def test_cells_that_run_apart_are_launched_at_once(device: Any) -> None:
    rng = np.random.default_rng(0)
    x, q, k = (rng.standard_normal(shape).astype(F32) for shape in ((12, 24), (2, 12, 8), (2, 12, 8)))
    assert launches(device, rows, x).count("\n  launch") == 1
    assert "launch loop of 6 blocks" in launches(device, attention, q, k)

"""Calls, compound operations, barriers and loops without steps: the operations of the flat program."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax

X = np.arange(6, dtype=np.float32)


def operations(function: Any, *args: Any) -> list[str]:
    return ladder.after("inline", function, *args)


def test_calls_are_inlined_and_what_computes_nothing_goes() -> None:
    inner = weft.jit(lambda x: lax.sin(x))
    assert operations(lambda x: lax.exp(lax.stop_gradient(weft.jit(inner)(x))), X) == ["sin", "exp"]
    assert operations(weft.checkpoint(lambda x: lax.cos(inner(x))), X)[:2] == ["sin", "cos"]
    squared = weft.custom_vjp(lambda x: x * x)
    squared.defvjp(lambda x: (x * x, x), lambda x, t: (2 * x * t,))
    assert operations(squared, X) == ["mul"]


def test_literals_pass_barriers() -> None:
    both = lambda x: lax.optimization_barrier((x, np.float32(2)))
    assert operations(lambda x: (lambda y: y[0] * y[1])(both(x)), X) == ["optimization_barrier", "mul"]


def test_loops_without_steps_give_their_state() -> None:
    step = lambda s, row: (s + row, s)
    found = lax.scan(step, jnp.float32(3), np.zeros(0, np.float32))
    assert float(found[0]) == 3 and found[1].shape == (0,)
    assert "scan" not in operations(lambda s: lax.scan(step, s, jnp.zeros(0)), np.float32(3))

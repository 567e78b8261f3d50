"""What a scan computes of its inputs alone is computed for all steps before it: the operations, and the values."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax, nn

X = np.random.default_rng(0).standard_normal((40, 25)).astype(np.float32)


def weighted(x: Any) -> Any:
    """Sums of rows, times the state."""
    return lax.scan(lambda s, row: (s * 0.5 + row.sum(), s * row.sum()), jnp.float32(1), x)


def softmax(x: Any) -> Any:
    """A scan without a state."""
    return lax.scan(lambda _, row: ((), nn.softmax(row)), (), x)[1]


def test_operations() -> None:
    early = ladder.after("loop_fission", weighted, X)
    assert early.index("reduce_sum") < early.index("scan")
    alone = ladder.after("loop_fission", softmax, X)
    assert "scan" not in alone and "reduce_max" in alone
    late = ladder.after("loop_fission", lambda x: lax.scan(lambda s, row: (s + row, (s * row).sum()), x[0], x), X)
    assert "reduce_sum" not in late  # it needs the state


def test_bits_are_those_of_the_steps() -> None:
    for function in (weighted, softmax):
        with weft.disable_jit():
            want = weft.tree.leaves(function(jnp.asarray(X)))
        for got, expected in zip(weft.tree.leaves(weft.jit(function)(X)), want, strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))

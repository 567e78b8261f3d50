"""Literals that become arrays: operands that are read from memory, and results; not starts of slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compiler import ladder
from weft import lax

X = np.arange(6, dtype=np.float32)


def operations(function: Any, *args: Any) -> list[str]:
    return ladder.after("literal_arrays", function, *args)


def test_operands_in_memory_and_results() -> None:
    assert operations(lambda x: (lax.neg(x), 1.0), X) == ["neg", "broadcast_in_dim"]
    assert operations(lambda x: lax.mul(x, np.float32(2)), X) == ["mul"]
    updated = lambda x: lax.dynamic_update_slice(x, lax.reshape(np.float32(2), (1,)), (np.int32(3),))
    assert operations(updated, X) == ["broadcast_in_dim", "reshape", "dynamic_update_slice"]


def test_starts_of_slices_stay() -> None:
    assert operations(lambda x: lax.dynamic_slice(x, (np.int32(2),), (3,)), X) == ["dynamic_slice"]

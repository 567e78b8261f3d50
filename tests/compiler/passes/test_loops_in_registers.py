"""Which loops become one function in registers; their values are in ``tests/control``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compiler import ladder
from weft import lax

X = np.linspace(0, 1, 30, dtype=np.float32)


def operations(function: Any, *args: Any) -> list[str]:
    return ladder.after("loops_in_registers", function, *args)


def test_a_small_state_is_kept_in_registers() -> None:
    assert operations(lambda x: lax.fori_loop(0, 9, lambda i, s: s * 0.5 + 1, x), np.float32(3))[-1] == "register_loop"
    until = lambda x: lax.while_loop(lambda s: s < 100, lambda s: s * 2, x)
    assert operations(until, np.float32(3)) == ["register_loop"]


def test_large_arrays_and_library_calls_stay_loops() -> None:
    large = np.ones((300, 300), np.float32)
    assert "scan" in operations(lambda x: lax.fori_loop(0, 3, lambda i, s: s @ s, x), large)
    assert "scan" in operations(lambda x: lax.fori_loop(0, 3, lambda i, s: lax.sort(s), x), np.ones(3000, np.float32))

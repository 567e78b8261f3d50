"""The larger and the smaller of an element and one number for all: NaN wins, and zeros are ordered, on every target."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.running import HOST, load
from weft._base import target
from weft.core import kinds
from weft.loops import ir

ON = [t for t in target.TARGETS.values() if t.triple == HOST.triple and t.lanes <= HOST.lanes]
VALUES = (0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40)


def wanted(name: str, x: np.ndarray, one: float) -> np.ndarray:
    found = getattr(np, f"{name}imum")(x, x.dtype.type(one))
    both, either = np.signbit(x) & np.signbit(one), np.signbit(x) | np.signbit(one)
    zero = np.where(both if name == "max" else either, -0.0, 0.0).astype(x.dtype)
    return np.where((x == 0) & (one == 0), zero, found)


@pytest.mark.parametrize("on", ON, ids=lambda on: on.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("first", [False, True])
def test_with_one_number(on: target.Target, dtype: type, name: str, first: bool) -> None:
    kind = kinds.Elementwise(lambda e, x, y: getattr(e, name)(x, y), wanted)
    made, size = np.dtype(dtype), 4 * len(VALUES) + 3
    body = (ir.Load(1, 0), ir.Apply(2, "f", kind, (), (0, 1) if first else (1, 0), made), ir.Store(1, 2))
    operands = (ir.Operand(made, "in", (1,)), ir.Operand(made, "out", (1,)))
    setup = (ir.Param(0, 0, made),)
    nest = ir.Nest((ir.Dim("parallel"),), operands, (made,), (), 0, on.lanes, False, setup, (ir.Phase(body=body),))
    call, _ = load(nest, on)
    x, out = np.resize(np.array(VALUES, dtype), size), np.zeros(size, dtype)
    for one in VALUES:
        word = np.zeros(8, np.uint8)
        word[: made.itemsize] = np.array([one], dtype).view(np.uint8)
        call([x, out], [size, int(word.view(np.int64)[0])], [0, 0, 0, size, 0, 0])
        want = wanted(name, x, one)
        np.testing.assert_array_equal(out, want)
        np.testing.assert_array_equal(np.signbit(out[want == 0]), np.signbit(want[want == 0]))

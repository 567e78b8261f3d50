"""What passes through control flow and custom rules untouched comes out as an Array that owns its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import lax


def _custom_jvp(x: Any) -> Any:
    f = weft.custom_jvp(lambda v: v)
    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    return f(x)


def _custom_vjp(x: Any) -> Any:
    f = weft.custom_vjp(lambda v: v)
    f.defvjp(lambda v: (v, None), lambda _, ct: (ct,))
    return f(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: lax.map(lambda v: v, x),
        lambda x: lax.scan(lambda c, v: (c, v), 0, x)[1],
        lambda x: lax.cond(True, lambda v: v, lambda v: v, x),
        lambda x: lax.switch(1, [lambda v: v, lambda v: v], x),
        _custom_jvp,
        _custom_vjp,
        weft.custom_gradient(lambda v: (v, lambda ct: ct)),
    ],
    ids=["map", "scan", "cond", "switch", "custom_jvp", "custom_vjp", "custom_gradient"],
)
def test_numpy_arrays_that_pass_through_are_copied(call: Callable[[Any], Any]) -> None:
    x = np.arange(3)
    got = call(x)
    x[0] = 9
    assert isinstance(got, weft.Array) and got.tolist() == [0, 1, 2]


def test_python_numbers_that_pass_through_are_weakly_typed_arrays() -> None:
    got = lax.cond(True, lambda v: v, lambda v: v, 3.0)
    assert isinstance(got, weft.Array) and got.weak_type


def test_a_custom_jvp_without_a_rule_cannot_be_called() -> None:
    with pytest.raises(AttributeError, match="No JVP defined for custom_jvp function double"):

        @weft.custom_jvp
        def double(x: Any) -> Any:
            return 2 * x

        double(1.0)


def test_what_a_platform_gives_is_an_array() -> None:
    for x in (1.0, np.float32(1)):
        out = lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x)
        assert isinstance(out, weft.Array) and float(out) == 2.0

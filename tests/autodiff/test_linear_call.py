"""Linear functions: ``linear_call``, transposes through ``custom_jvp`` and out of ``jit``, cotangents in references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.custom_derivatives import linear_call


def scaled(x: Any, factor: Any = 3.0) -> Any:
    """x times a factor; the transpose is marked by another factor."""
    return linear_call(lambda r, x: {"y": r * x}, lambda r, ct: 7 * r * ct["y"], factor, x)["y"]


def test_linear_call_and_its_transpose() -> None:
    assert scaled(2.0).item() == 6.0 and weft.jit(scaled)(2.0).item() == 6.0
    assert [x.item() for x in weft.jvp(scaled, (2.0,), (5.0,))] == [6.0, 15.0]
    assert weft.linear_transpose(scaled, 1.0)(5.0)[0].item() == 105.0
    assert weft.jit(weft.grad(scaled))(2.0).item() == 21.0
    twice = weft.linear_transpose(lambda x: weft.linear_transpose(scaled, 1.0)(x)[0], 1.0)
    assert twice(5.0)[0].item() == 15.0
    with pytest.raises(NotImplementedError, match="residual_args"):
        weft.grad(lambda r: scaled(2.0, r))(3.0)
    wrong = lambda x: linear_call(lambda r, x: r * x, lambda r, ct: (ct, ct), 2.0, x)
    with pytest.raises(TypeError, match="pytree structure"):
        weft.linear_transpose(wrong, 1.0)(1.0)


@weft.custom_jvp
def tripled(x: Any) -> Any:
    return x * 3.0


tripled.defjvp(lambda primals, tangents: (tripled(*primals), tangents[0] * 4.0))


def test_transpose_of_custom_jvp_is_that_of_its_function() -> None:
    one = jnp.ones(2)
    assert weft.linear_transpose(tripled, one)(one)[0].tolist() == [3.0, 3.0]
    assert weft.jit(lambda ct: weft.linear_transpose(weft.jit(tripled), one)(ct))(one)[0].tolist() == [3.0, 3.0]


def test_transpose_returned_from_jit() -> None:
    transposed = weft.jit(lambda x: weft.linear_transpose(lambda y: y * x, x))(jnp.arange(3.0))
    assert transposed(jnp.ones(3))[0].tolist() == [0.0, 1.0, 2.0]


def test_cotangents_are_added_to_references() -> None:
    _, pull = weft.vjp(lambda p, y: p["a"] * y, {"a": jnp.ones(2)}, jnp.full(2, 2.0))
    total = weft.new_ref(jnp.ones(2))
    ct = jnp.array([3.0, 4.0])
    assert pull.with_refs({"a": total}, weft.ad.DontWant())(ct) == ({"a": weft.ad.GradRef()}, weft.ad.DidntWant())
    made = pull.with_refs({"a": total}, weft.ad.GradValue())(ct)
    assert total[...].tolist() == [13.0, 17.0] and made[1].tolist() == [3.0, 4.0]
    with pytest.raises(ValueError, match="structure"):
        pull.with_refs(total, weft.ad.GradValue())

    @weft.jit
    def inside(x: Any, y: Any) -> Any:
        ref = weft.new_ref(jnp.zeros(2))
        weft.vjp(lambda x, y: jnp.sin(x) * y, x, y)[1].with_refs(ref, weft.ad.DontWant())(jnp.ones(2))
        return ref[...]

    x, y = jnp.array([0.5, 1.0]), jnp.array([2.0, 3.0])
    np.testing.assert_allclose(inside(x, y), np.cos(x) * y, rtol=1e-6)

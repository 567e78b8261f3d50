"""Which arguments of a custom_jvp function are part of it, and in which order the rule gets them."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.numpy as wnp
from weft.autodiff.custom_jvp import custom_jvp


def _scaled(x: Any, mode: str, y: Any = 2.0) -> Any:
    return x * y if mode == "scaled" else x


def _called(function: Any, call: Any) -> Any:
    """The parameters of the one equation that a call records, and how many operands it has."""
    function.defjvp(lambda *args: args)
    (eqn,) = weft.make_jaxpr(call)(1.0).eqns
    return eqn.params["jvp"], len(eqn.invars)


@pytest.mark.parametrize("options", [{"nondiff_argnames": ("mode",)}, {"nondiff_argnames": "mode"}])
def test_names_are_positions(options: dict[str, Any]) -> None:
    function = custom_jvp(_scaled, **options)
    assert function.nondiff_argnums == (1,)
    for call in (lambda x: function(x, "scaled"), lambda x: function(x, mode="scaled")):
        rule, operands = _called(function, call)
        assert rule((1.0, 2.0), (0.0, 0.0)) == ("scaled", (1.0, 2.0), (0.0, 0.0))
        assert operands == 2  # the default is an operand too
        assert weft.jit(call)(wnp.float32(3.0)) == 6.0


def test_names_and_positions_together() -> None:
    function = custom_jvp(lambda f, x, scale, y: f(x) * y, nondiff_argnums=(0,), nondiff_argnames=("scale",))
    assert function.nondiff_argnums == (0, 2)
    rule, operands = _called(function, lambda x: function(wnp.sin, x, scale="s", y=x))
    assert rule("p", "t") == (wnp.sin, "s", "p", "t")
    assert operands == 2


@pytest.mark.oracle
def test_positions_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    for options in (
        {"nondiff_argnames": ("mode",)},
        {"nondiff_argnums": (1,), "nondiff_argnames": ("mode", "y")},
        {"nondiff_argnames": ("nothing",)},
    ):
        assert custom_jvp(_scaled, **options).nondiff_argnums == jax.custom_jvp(_scaled, **options).nondiff_argnums

"""Tokens: create_token and after_all, eagerly and in programs."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.numpy as jnp
from tests.oracle import differential
from weft import lax


def _ordered(lax: Any, x: Any) -> Any:
    return x + 1.0, lax.after_all(lax.create_token(x), lax.create_token())


def test_programs_make_take_and_return_tokens() -> None:
    token = lax.create_token().block_until_ready()
    value, made = weft.jit(lambda x: _ordered(lax, x))(2.0)
    assert value == 3.0 and weft.typeof(made) == weft.typeof(token) == weft.typeof(lax.after_all())
    taken = weft.jit(lambda a, b, x: (lax.after_all(a, b), x * 2.0))(token, made, 3.0)
    assert weft.typeof(taken[0]) == weft.typeof(token) and taken[1] == 6.0
    carried, _ = lax.scan(lambda c, x: (lax.after_all(c), x), token, jnp.ones(3))
    chosen = lax.cond(True, lambda t: t, lax.after_all, carried)
    assert weft.typeof(chosen) == weft.typeof(token) and weft.tree.leaves(chosen) == [chosen]


def test_transformations_pass_tokens_by() -> None:
    values, _ = weft.vmap(lambda x: _ordered(lax, x), out_axes=(0, None))(jnp.arange(3.0))
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert weft.grad(lambda x: _ordered(lax, x)[0] * 5.0)(1.0) == 5.0


def test_what_tokens_cannot_be_used_for() -> None:
    token = lax.create_token()
    for wrong in (1, jnp.zeros(0, bool), weft.random.key(0)):
        with pytest.raises(TypeError, match="Arguments to after_all must be tokens"):
            lax.after_all(token, wrong)
    with pytest.raises(TypeError, match="does not accept"):
        lax.add(token, token)
    refused: list[tuple[Any, Any]] = [(lambda x: _ordered(lax, x), 1.0), (lambda t: 1.0, token)]
    for function, argument in refused:
        with pytest.raises(NotImplementedError, match="takes or returns a token"):
            weft.export.export(weft.jit(function))(argument)
    inside = weft.export.export(weft.jit(lambda x: _ordered(lax, x)[0]))(1.0)
    assert inside.call(2.0) == 3.0


@pytest.mark.oracle
def test_tokens_are_printed_as_in_jax() -> None:
    texts = []
    for name in ("weft", "jax"):
        J = differential.namespace(name)
        of_tokens = J.make_jaxpr(lambda a, b, J=J: J.lax.after_all(b, a))(J.lax.create_token(), J.lax.create_token())
        texts.append([str(J.make_jaxpr(lambda x, J=J: _ordered(J.lax, x))(1.0)), str(of_tokens)])
    assert texts[0] == texts[1] and "Tok = after_all" in texts[0][0]

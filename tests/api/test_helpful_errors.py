"""Mistakes that are made every day raise JAX's kind of error, and say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import errors, lax, random

X, V, KEY = jnp.arange(6.0).reshape(2, 3), jnp.arange(3), random.key(0)
CONCRETE = errors.ConcretizationTypeError
PLAIN: list[tuple[Any, type[Exception], str]] = [
    (lambda: jnp.zeros(2, 3), TypeError, r"when you meant `jax\.numpy\.zeros\(\(2, 3\)\)`"),
    (lambda: jnp.ones(2, 3), TypeError, r"when you meant `jax\.numpy\.ones\(\(2, 3\)\)`"),
    (lambda: jnp.empty(2, 3), TypeError, r"when you meant `jax\.numpy\.empty\(\(2, 3\)\)`"),
    (lambda: V == [0, 1, 2], TypeError, "==: 'weft.Array' and 'list'.*asarray"),
    (lambda: V != (1, 2), TypeError, "!=: 'weft.Array' and 'tuple'.*asarray"),
    (lambda: V > [1, 2, 3], TypeError, ">: 'weft.Array' and 'list'.*asarray"),
    (lambda: V - [1, 2, 3], TypeError, r"-: 'weft.Array' and 'list'.*asarray"),
    (lambda: [1, 2, 3] @ V, TypeError, "@: 'weft.Array' and 'list'.*asarray"),
    (lambda: V ** {"a": 1}, TypeError, r"\*\*: 'weft.Array' and 'dict'.*asarray"),
    (lambda: weft.jit(lambda v: v == [1])(V), TypeError, "==: 'weft.Array' and 'list'.*asarray"),
    (lambda: 2.0 in X, ValueError, r"one-dimensional, got arr.shape=\(2, 3\).*any\(\)"),
    (lambda: [1] in V, TypeError, "got <class 'list'>"),
    (lambda: V in V, ValueError, r"must be a scalar, got query.shape=\(3,\)"),
    (lambda: jnp.tensordot(X, X, (0, 1, 2)), TypeError, r"must be an int, a pair .* got \(0, 1, 2\)"),
    (lambda: jnp.tensordot(X, X, 1.0), TypeError, "must be an int, a pair .* got 1.0"),
    (lambda: jnp.tensordot(X, X, (0, (0,))), TypeError, r"both axes lists .* got 0 and \(0,\)"),
    (lambda: jnp.tensordot(X, X, "ab"), TypeError, "must be an int, a pair .* got 'ab'"),
    (lambda: jnp.trace(X, axis1=1, axis2=-1), ValueError, "axis1=1 and axis2=-1"),
    (lambda: X.trace(axis1=0, axis2=0), ValueError, "axis1 and axis2 can not be same"),
    (lambda: jnp.trace(X, 1.5), ValueError, "must be a scalar integer; got f32"),
    *[
        (lambda make=make, shape=shape: make(shape), TypeError, f"concrete values of integer type, got \\({shown}")
        for make in (
            jnp.zeros, lambda s: jnp.full(s, 1), lambda s: jnp.broadcast_to(1, s), lambda s: X.reshape(s),
            lambda s: random.normal(KEY, s), lambda s: lax.full(s, 1.0),
        )
        for shape, shown in ((3.0, "3.0"), ((2.0, 3), "2.0, 3"), (None, "None"), (np.float32(2), "2.0"))
        if not (shape is None and make is jnp.zeros)
    ],
    *[
        (lambda make=make: weft.jit(make)(3), error, "(?s)value.*n.*jit")
        for make, error in (
            (lambda n: jnp.zeros(n), TypeError), (lambda n: jnp.zeros((n, 2)), TypeError),
            (lambda n: random.normal(KEY, (n,)), TypeError), (lambda n: jnp.sum(X, n), CONCRETE),
            (lambda n: jnp.roll(X, 1, n), CONCRETE), (lambda n: jnp.expand_dims(X, n), CONCRETE),
            (lambda n: jnp.squeeze(X, (n,)), CONCRETE), (lambda n: jnp.pad(X, (n, 1)), CONCRETE),
            (lambda n: jnp.indices((n,)), CONCRETE),
        )
    ],
]  # fmt: skip


def test_mistakes_say_what_to_do() -> None:
    for number, (mistake, error, text) in enumerate(PLAIN):
        try:
            found = mistake()
        except Exception as raised:
            with pytest.raises(error, match=text):
                raise raised
        else:
            pytest.fail(f"mistake {number} raised nothing and gave {found!r}, not {error.__name__}: {text}")


def test_what_is_no_mistake() -> None:
    assert (V == None) is False and 2 in V and 9 not in V  # noqa: E711 - the operator is tested
    assert jnp.tensordot(X, X, [[0, 1], [0, 1]]).item() == 55.0

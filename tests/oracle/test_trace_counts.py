"""How often a function is traced: the same scenario under weft and under JAX gives the same counts.

A scenario takes a namespace ``J`` and a ``count`` to call while tracing; it is run with both. Functions that call
``count`` never share traces by identity, so the counts must be equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import weft

pytestmark = pytest.mark.oracle

SCENARIOS: list[Callable[..., None]] = []


def scenario(function: Callable[..., None]) -> Callable[..., None]:
    SCENARIOS.append(function)
    return function


def counted(count: Callable[[], None]) -> Callable[..., Any]:
    def f(x, y=2, *, k=1):
        count()
        return x

    return f


@scenario
def shapes_and_dtypes(J, count):
    f = J.jit(counted(count))
    for value in (
        np.ones(3),
        np.ones(3),
        np.ones(4),
        np.ones(3, int),
        np.ones(3, bool),
        np.ones((3, 1)),
        np.float32(1),
    ):
        f(value)
        f(J.numpy.asarray(value))


@scenario
def python_scalars(J, count):
    f = J.jit(counted(count))
    for value in (1.0, 2.0, np.float32(1), J.numpy.float32(1), 1, True, 1j, J.numpy.asarray(1.0), 2):
        f(value)


@scenario
def call_forms(J, count):
    f = J.jit(counted(count))
    f(1.0)
    f(1.0, 2)
    f(1.0, y=2)
    f(x=1.0)
    f(x=1.0, y=2)
    f(y=2, x=1.0)
    f(1.0, k=3)


@scenario
def containers(J, count):
    f = J.jit(counted(count))
    for value in (
        {"a": 1.0, "b": 2.0}, {"b": 1.0, "a": 2.0}, (1.0, 2.0), [1.0, 2.0], (1.0, None), {"a": 1.0}, {}, (), None,
        (1.0, (2.0,)),
    ):  # fmt: skip
        f(value)
        f(value)


@scenario
def static_values(J, count):
    f = J.jit(counted(count), static_argnames=("k", "y"))
    for k in (1, 1, 1.0, True, "a", "a", None, (1, 2), (1, 2), -0.0, 0.0, frozenset({1})):
        f(1.0, k=k)
    f(1.0, 2)
    f(1.0, y=2)
    f(1.0, y=3)


@scenario
def one_function_many_jits(J, count):
    f = counted(count)
    J.jit(f)(1.0)
    J.jit(f)(1.0)
    J.jit(f, donate_argnums=0)(1.0)
    J.jit(f, keep_unused=True)(1.0)
    J.jit(f, inline=True)(1.0)
    J.jit(f).lower(1.0)
    J.jit(f).trace(1.0)
    J.make_jaxpr(f)(1.0)
    J.eval_shape(f, 1.0)
    J.jit(f)(2)


@scenario
def inside_other_functions(J, count):
    f = J.jit(counted(count))
    f(1.0)
    g = J.jit(lambda x: f(x) + f(x))
    g(1.0)
    g(np.float32(1.0))
    J.make_jaxpr(g)(1.0)
    J.jit(lambda x: f(f(x)) * 2)(1.0)


@scenario
def partials_and_lambdas_made_anew(J, count):
    f = counted(count)
    for _ in range(3):
        J.jit(functools.partial(f))(1.0)
        J.jit(lambda x: f(x))(1.0)
    partial = functools.partial(f)
    J.jit(partial)(1.0)
    J.jit(partial)(1.0)


@scenario
def methods_and_objects(J, count):
    class Model:
        def __call__(self, x):
            count()
            return x

        def method(self, x):
            count()
            return x

    model = Model()
    for _ in range(2):
        J.jit(model)(1.0)
        J.jit(model.method)(1.0)
    method = model.method
    J.jit(method)(1.0)
    J.jit(method)(1.0)


@scenario
def configuration(J, count):
    f = J.jit(counted(count))
    f(1.0)
    with J.enable_x64(True):
        f(1.0)
        f(1.0)
    f(1.0)
    with J.default_matmul_precision("float32"):
        f(1.0)
    f(1.0)
    with J.disable_jit():
        f(1.0)
    with J.named_scope("a"):
        f(1.0)


@scenario
def clearing(J, count):
    f, g = J.jit(counted(count)), J.jit(counted(count))
    f(1.0)
    g(1.0)
    f.clear_cache()
    f(1.0)
    g(1.0)
    J.clear_caches()
    f(1.0)
    g(1.0)


@scenario
def failures_are_not_remembered(J, count):
    @J.jit
    def f(x):
        count()
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            f(1.0)


@scenario
def closed_over_values_change(J, count):
    scale = 1.0

    @J.jit
    def f(x):
        count()
        return x * scale

    assert f(2.0) == 2.0
    scale = 3.0
    assert f(2.0) == 2.0
    assert f(np.ones(1)) == 3.0


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_counts(run: Callable[..., None]) -> None:
    counts = []
    for J in (jax, weft):
        seen: list[None] = []
        run(J, lambda seen=seen: seen.append(None))
        counts.append(len(seen))
    assert counts[0] == counts[1]
    assert counts[0] > 0

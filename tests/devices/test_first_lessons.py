"""The programs of an introduction to jit, run with the device of a plugin as the default, and on the CPU beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

Program = Callable[[], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def selu(x: Any, alpha: float = 1.67, lambda_: float = 1.05) -> Any:
    return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


def branching(x: Any) -> Any:
    if x > 0:
        return x
    return 2 * x


def counting(x: Any, n: Any) -> Any:
    i = 0
    while i < n:
        i += 1
    return x + i


@program
def squares_and_sines() -> Any:
    f = weft.jit(lambda x: jnp.sum(x**2 + jnp.sin(x)))
    return f(jnp.arange(1_000_000.0)), f(jnp.arange(1_000_000.0)), f(jnp.arange(2_000_000.0))


@program
def traces_are_counted() -> Any:
    traces = 0

    @weft.jit
    def f(x: Any) -> Any:
        nonlocal traces
        traces += 1
        return x * 2

    results = [f(jnp.arange(10.0)), f(jnp.arange(10.0)), f(jnp.arange(20.0)), f(jnp.arange(20))]
    return results, traces


@program
def eager_and_jitted() -> Any:
    def slow(x: Any) -> Any:
        y, z = jnp.sin(x), jnp.cos(x)
        return jnp.sum(y * z + y**2)

    x = jnp.ones(10_000)
    return slow(x), weft.jit(slow)(x), weft.jit(slow)(x)


@program
def add_one() -> Any:
    seen = []

    @weft.jit
    def f(x: Any) -> Any:
        seen.append(x.shape)
        return x + 1

    return f(jnp.array([1.0, 2.0])), f(jnp.array([3.0, 4.0])), f(jnp.array([1.0, 2.0, 3.0])), len(seen)


@program
def logarithm() -> Any:
    def log2(x: Any) -> Any:
        return jnp.log(x) / jnp.log(2.0)

    def if_rank_2(x: Any) -> Any:
        return log2(x) if x.ndim == 2 else x

    return (
        log2(3.0),
        weft.jit(log2)(3.0),
        weft.jit(if_rank_2)(jnp.array([1, 2, 3])),
        weft.jit(if_rank_2)(jnp.ones((2, 2))),
    )


@program
def selu_of_integers() -> Any:
    x = jnp.arange(1_000_000)
    return selu(x), weft.jit(selu)(x)


@program
def conditions_raise() -> Any:
    for call in (lambda: weft.jit(branching)(10), lambda: weft.jit(counting)(10, 20)):
        with pytest.raises(weft.errors.TracerBoolConversionError):
            call()
    return weft.jit(lambda x: jnp.where(x > 0, x, -x))(jnp.array([-1.0, 2.0]))


@program
def static_arguments() -> Any:
    decorated = partial(weft.jit, static_argnames=["n"])(counting)
    return (
        weft.jit(branching, static_argnums=0)(10),
        weft.jit(counting, static_argnames=["n"])(10, 20),
        decorated(10, 20),
    )


@program
def jitted_in_loops() -> Any:
    def step(i: Any) -> Any:
        return i + 1

    def repeat(make: Callable[[], Any]) -> Any:
        i = 0
        while i < 20:
            i = make()(i)
        return 10 + i

    inner = weft.jit(step)
    makers = (
        lambda: inner,
        lambda: weft.jit(partial(step)),
        lambda: weft.jit(lambda x: step(x)),
        lambda: weft.jit(step),
    )
    return [repeat(make) for make in makers]


@program
def jaxprs() -> Any:
    def f(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(x) + jnp.cos(y))

    text = str(weft.make_jaxpr(f)(jnp.ones(3), jnp.ones(3)))
    assert "sin" in text and "reduce_sum" in text
    return weft.jit(f)(jnp.ones(3), jnp.ones(3))


@program
def products() -> Any:
    x = jnp.linspace(-1, 1, 128 * 128).reshape(128, 128)
    zeros = jnp.zeros((512, 512))
    f = weft.jit(lambda x: jnp.sin(x @ x) + jnp.cos(x @ x))
    return f(zeros), f(x), x @ x, jnp.dot(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 2.0, 3.0]))


@program
def printing() -> Any:
    @weft.jit
    def f(x: Any) -> Any:
        weft.debug.print("{x}", x=x)
        return jnp.sum(x**2)

    return f(jnp.arange(5.0))


@program
def derivatives() -> Any:
    x = jnp.linspace(-2, 2, 101)
    gradient = weft.grad(lambda x: selu(x).sum())
    return (
        gradient(x),
        weft.jit(gradient)(x),
        weft.vmap(weft.grad(selu))(x),
        weft.jit(weft.hessian(lambda x: jnp.sum(x**3)))(x),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_cpu(name: str, device: Any, capfd: pytest.CaptureFixture[str]) -> None:
    expected = PROGRAMS[name]()
    weft.effects_barrier()
    printed = capfd.readouterr().out
    with weft.default_device(device):
        found = PROGRAMS[name]()
    weft.effects_barrier()
    assert capfd.readouterr().out == printed
    arrays: list[Any] = [leaf for leaf in weft.tree.leaves(found) if isinstance(leaf, weft.Array)]
    assert arrays and all(x.devices() == {device} for x in arrays)
    weft.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-5, 5e-5), found, expected)

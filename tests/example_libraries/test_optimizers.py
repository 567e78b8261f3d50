"""weft.example_libraries.optimizers beside JAX's: the same steps, schedules, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax.example_libraries import optimizers as jax_optimizers

import weft
from weft.example_libraries import optimizers

RNG = np.random.default_rng(1)
PARAMETERS = {"w": RNG.normal(size=(3, 4)).astype(np.float32), "b": [RNG.normal(size=4).astype(np.float32)]}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "sgd": (0.1,), "momentum": (0.1, 0.9), "nesterov": (0.1, 0.9), "adagrad": (0.1,), "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1,), "adam": (0.1,), "adamax": (0.1,), "sm3": (0.1,),
}  # fmt: skip


def gradients(x: Any) -> Any:
    return {"w": 2 * x["w"] + 1, "b": [x["b"][0] * 3 - 1]}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ARGUMENTS)
def test_steps_are_those_of_jax(name: str) -> None:
    results = []
    for module in (optimizers, jax_optimizers):
        init, update, get_params = getattr(module, name)(*ARGUMENTS[name])
        state = init(PARAMETERS)
        for i in range(5):
            state = update(i, gradients(get_params(state)), state)
        results.append(get_params(state))
    for ours, theirs in zip((results[0]["w"], results[0]["b"][0]), (results[1]["w"], results[1]["b"][0]), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_compiled_loop_makes_the_same_steps(name: str) -> None:
    init, update, get_params = getattr(optimizers, name)(*ARGUMENTS[name])
    state = init(PARAMETERS)
    for i in range(4):
        state = update(i, gradients(get_params(state)), state)
    looped = weft.lax.fori_loop(0, 4, lambda i, s: update(i, gradients(get_params(s)), s), init(PARAMETERS))
    found = weft.jit(get_params)(looped)
    np.testing.assert_allclose(np.asarray(found["w"]), np.asarray(get_params(state)["w"]), rtol=1e-5, atol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("constant", (0.3,)), ("inverse_time_decay", (0.3, 4, 0.5)), ("inverse_time_decay", (0.3, 4, 0.5, True)),
        ("exponential_decay", (0.3, 4, 0.5)), ("polynomial_decay", (0.3, 4, 0.1, 2.0)),
        ("piecewise_constant", ([2, 5], [0.3, 0.2, 0.1])),
    ],
)  # fmt: skip
def test_schedules(name: str, arguments: tuple[Any, ...]) -> None:
    ours, theirs = getattr(optimizers, name)(*arguments), getattr(jax_optimizers, name)(*arguments)
    for i in range(9):
        assert float(ours(i)) == pytest.approx(float(theirs(i)), rel=1e-6)


def test_norms() -> None:
    norm = float(optimizers.l2_norm(PARAMETERS))
    assert norm == pytest.approx(
        float(np.sqrt(sum((x**2).sum() for x in (PARAMETERS["w"], PARAMETERS["b"][0])))), rel=1e-6
    )
    assert float(optimizers.l2_norm(optimizers.clip_grads(PARAMETERS, 0.5))) == pytest.approx(0.5, rel=1e-5)
    assert float(optimizers.l2_norm(optimizers.clip_grads(PARAMETERS, 500.0))) == pytest.approx(norm, rel=1e-6)


def test_bad_input() -> None:
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="did not match the parameter tree"):
        update(0, [1.0, 2.0], init([1.0]))
    with pytest.raises(TypeError):
        optimizers.sgd(np.ones(2))
    with pytest.raises(ValueError, match="one shorter"):
        optimizers.piecewise_constant([1], [1.0])


@pytest.mark.oracle
def test_states_apart_and_together_again() -> None:
    for module in (optimizers, jax_optimizers):
        init, update, get_params = module.adam(0.1)
        state = update(0, gradients(PARAMETERS), init(PARAMETERS))
        apart = module.unpack_optimizer_state(state)
        assert len(apart["w"].subtree) == 3
        np.testing.assert_allclose(apart["b"][0].subtree[1], 0.1 * gradients(PARAMETERS)["b"][0], rtol=1e-6)
        again = get_params(update(1, gradients(PARAMETERS), module.pack_optimizer_state(apart)))
        expected = get_params(update(1, gradients(PARAMETERS), state))
        np.testing.assert_array_equal(again["w"], expected["w"])
    with pytest.raises(TypeError, match="JoinPoint"):
        optimizers.pack_optimizer_state(PARAMETERS)

"""checkpoint, and check_grads over compositions of transformations."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import config, test_util


def layered(module: Any) -> Any:
    return module.checkpoint(lambda x, w: module.numpy.sum(module.numpy.tanh(module.numpy.sin(x) @ w)))


@pytest.mark.oracle
@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_are_jax_s(jitted: bool) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(3, 2)).astype(np.float32)

    def gradients(module: Any) -> Any:
        grad = module.grad(layered(module), (0, 1))
        return (module.jit(grad) if jitted else grad)(x, w)

    for found, wanted in zip(gradients(weft), gradients(jax), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-6)


def test_nothing_but_arguments_is_kept() -> None:
    x = wnp.ones(5)
    _, pullback = weft.vjp(weft.checkpoint(lambda x: wnp.sin(wnp.sin(wnp.sin(x)))), x)
    assert len(pullback.residuals) == 1 and pullback.residuals[0] is x
    _, kept = weft.vjp(lambda x: wnp.sin(wnp.sin(wnp.sin(x))), x)
    assert len(kept.residuals) == 3


def test_policies_raise() -> None:
    with pytest.raises(NotImplementedError, match="policies"):
        weft.checkpoint(wnp.sin, policy=lambda *args: True)


FUNCTIONS = {
    "softmax": lambda x: wnp.exp(x) / wnp.sum(wnp.exp(x)),
    "norm": lambda x: wnp.sqrt(wnp.sum(x * x)),
    "jit": weft.jit(lambda x: wnp.tanh(x) * wnp.cumsum(x)),
    "checkpoint": weft.checkpoint(lambda x: wnp.sin(x) * wnp.max(x)),
    "complex": lambda x: wnp.abs(wnp.exp(1j * x) + x),
    "sort": lambda x: wnp.sort(x) * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order_against_differences(name: str) -> None:
    with config.context("enable_x64", True):
        test_util.check_grads(FUNCTIONS[name], (np.array([0.3, -0.8, 1.1]),), order=2)


def test_a_wrong_derivative_is_found() -> None:
    wrong = weft.custom_jvp(lambda x: x * x)
    wrong.defjvp(lambda primals, tangents: (wrong(*primals), primals[0] * tangents[0]))
    with pytest.raises(AssertionError):
        test_util.check_grads(wrong, (1.5,), order=1)

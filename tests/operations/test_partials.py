"""The partial derivatives stated in each elementwise block, against JAX's gradients in float64."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft.lax as lax
from tests.operations import samples
from tests.operations.test_compiled import array
from weft import config
from weft.core import primitive
from weft.core.tangents import Along

pytestmark = pytest.mark.oracle

STATED = [
    operation
    for operation in samples.ELEMENTWISE
    if samples.F64 in operation.dtypes and primitive.registry[operation.primitive_name].partials
]


def params_of(operation: samples.Operation) -> dict[str, Any]:
    accurate = {"exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "tanh"}
    if operation.name in accurate | {"sqrt", "rsqrt", "cbrt"}:
        return {"accuracy": None}
    return {"out_dtype": None} if operation.name == "mul" else {}


@pytest.mark.parametrize("operation", STATED, ids=lambda op: op.name)
def test_partials_agree_with_jax(operation: samples.Operation) -> None:
    rng = np.random.default_rng(7)
    args = [rng.uniform(max(operation.low, -3), min(operation.high, 3), 50) for _ in range(operation.operands)]
    partials = primitive.registry[operation.primitive_name].partials
    with config.context("enable_x64", True), jax.enable_x64(True):
        operands = [array(x) for x in args]
        out = getattr(lax, operation.name)(*operands)
        for i, partial in enumerate(partials):
            if partial is None or out.dtype != np.float64:
                continue
            ones = array(np.ones(out.shape))
            if isinstance(partial, Along):
                found = np.asarray(partial.push(ones, out, *operands, **params_of(operation)))
            else:
                found = np.asarray(partial(out, *operands, **params_of(operation)))
            slope = jax.vmap(jax.grad(getattr(jax.lax, operation.name), i))(*args)
            np.testing.assert_allclose(np.broadcast_to(found, slope.shape), slope, rtol=1e-9, atol=1e-9)


def test_integer_pow_partial() -> None:
    x = np.random.default_rng(7).uniform(0.5, 3, 20)
    with config.context("enable_x64", True), jax.enable_x64(True):
        for y in (-2, 1, 2, 5):
            (partial,) = primitive.registry["integer_pow"].partials
            found = np.asarray(partial(None, array(x), y=y))
            np.testing.assert_allclose(
                found, jax.vmap(jax.grad(lambda v, y=y: jax.lax.integer_pow(v, y)))(x), rtol=1e-9
            )

"""Random compositions of transformations on random programs, beside differences, Python loops, jit and JAX.

Each composition is checked against the one inside of it: a derivative against central differences of that, a mapped
function against a loop over it, what changes nothing against itself. So all transformations but the last may be wrong
only if another example shows it.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import jax
import jax.ad_checkpoint
import jax.lax
import jax.numpy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
import weft.ad_checkpoint
import weft.lax
import weft.nn
import weft.numpy as jnp
from tests.fuzz.compositions import STEPS, TRANSFORMATIONS, Composition, Program, compositions
from weft import config

AT_LEAST = int(os.environ.get("WEFT_FUZZ_EXAMPLES") or 1000)
JIT_EVERY, JAX_EVERY = 8, 60  # compiling takes most of the time
QUICK = {"xla_backend_optimization_level": 0}  # half of the time of XLA
COUNT = {"compositions": 0, "unresolved": 0, "jit": 0, "jax": 0}
X = np.array([0.31, -0.72, 1.13, 0.54])


def near(found: Any, wanted: Any, tolerance: float) -> bool:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == np.float64
    if not np.isfinite(wanted).all():
        return not np.isfinite(found).all()
    return bool(np.max(np.abs(found - wanted), initial=0) <= tolerance * (1 + np.max(np.abs(wanted), initial=0)))


def check(composition: Composition, number: int) -> None:
    """The last transformation against its definition; now and then jit, and JAX."""
    within, outer = composition.functions(weft)
    inner = lambda x: within(jnp.asarray(x))
    last = TRANSFORMATIONS[composition.names[-1]]
    x = jnp.asarray(X)
    y = np.asarray(outer(x))
    assert y.shape == (4,) and y.dtype == np.float64
    wanted, again = (np.asarray(last.expect(inner, X, step)) for step in (2e-6, 1e-6))
    if not near(again, wanted, 2e-4):
        COUNT["unresolved"] += 1  # huge third derivatives: differences do not say what the derivative is
    else:
        assert near(last.measured(y), wanted, 1e-3), f"{composition}\n{last.measured(y)}\n{wanted}"
    if number % JIT_EVERY == 0:
        COUNT["jit"] += 1
        assert near(weft.jit(outer)(x), y, 1e-9), f"jit of {composition}"
    if number % JAX_EVERY == 0:
        COUNT["jax"] += 1
        _, theirs = composition.functions(jax)
        assert near(y, np.asarray(jax.jit(theirs, compiler_options=QUICK)(jax.numpy.asarray(X))), 1e-8), (
            f"JAX: {composition}"
        )


@settings(
    max_examples=AT_LEAST,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(compositions())
def random_compositions(composition: Composition) -> None:
    COUNT["compositions"] += 1
    check(composition, COUNT["compositions"])


@pytest.mark.oracle
def test_random_compositions(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    try:
        with config.context("enable_x64", True), jax.enable_x64(True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            random_compositions()
    finally:
        with capsys.disabled():
            print(f"\ncompositions: {COUNT}, {time.monotonic() - started:.0f} s")
    assert COUNT["compositions"] >= AT_LEAST and COUNT["unresolved"] < AT_LEAST / 10


def test_the_tangent_of_a_repeated_operand_has_the_result_s_shape() -> None:
    x = jnp.ones(4)
    for f in (lambda s: x + s, lambda s: s - x, lambda s: x - s, lambda s: jnp.maximum(x, s), lambda s: x / s):
        assert weft.jvp(f, (2.0,), (1.0,))[1].shape == (4,)
        assert float(weft.vjp(f, 2.0)[1](x)[0]) == float(weft.grad(lambda s, f=f: f(s).sum())(2.0))


SHAPED = {"sort": jnp.sort, "where": lambda v: jnp.where(v > 0, v * v, v), "sin": weft.jit(jnp.sin)}


@pytest.mark.parametrize("f", SHAPED.values(), ids=SHAPED)
def test_second_derivatives_of_rules_that_call_jitted_functions(f: Any) -> None:
    """Values that a rule computes beside tangents, in one jitted call, are no tangents."""
    g = weft.custom_jvp(lambda v: f(v) * v)
    g.defjvp(lambda primals, tangents: weft.jvp(lambda v: f(v) * v, primals, tangents))
    x = jnp.asarray(np.float32([0.3, -0.7, 1.1, 0.5]))
    wanted = weft.hessian(lambda v: (f(v) * v).sum())(x)
    np.testing.assert_allclose(np.asarray(weft.hessian(lambda v: g(v).sum())(x)), np.asarray(wanted), rtol=1e-6)
    np.testing.assert_allclose(
        np.asarray(weft.jacrev(weft.grad(lambda v: g(v).sum()))(x)), np.asarray(wanted), rtol=1e-6
    )


def test_a_jitted_call_of_values_and_tangents_in_a_rule() -> None:
    both = weft.jit(lambda x, t: (jnp.cos(x), jnp.cos(x) * t))
    f = weft.custom_jvp(jnp.sin)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        slope, moved = both(primals[0], tangents[0])
        return f(*primals), (slope * tangents[0] + moved) / 2

    for run in (weft.grad(weft.grad(f)), weft.jit(weft.grad(weft.grad(f))), weft.hessian(f)):
        assert float(run(0.3)) == pytest.approx(-np.sin(0.3), rel=1e-6)


WITHIN_A_MAPPED_RULE = {
    "where": lambda v: jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1.0)), v),
    "switch": lambda v: weft.lax.switch(1, [jnp.sin, jnp.cos], v),
    "fori_loop": lambda v: weft.lax.fori_loop(0, 3, lambda i, s: jnp.sin(s) * v, v),
    "scan": lambda v: weft.lax.scan(lambda s, a: (jnp.tanh(s * a) + a, s), v[0], v)[1],
    "checkpoint": lambda v: weft.checkpoint(lambda a: jnp.where(a > 0.1, a * 2, jnp.sin(a)))(v) * v,
    "derivative": lambda v: weft.grad(lambda a: (weft.checkpoint(jnp.sin)(a) * a).sum())(v),
    "custom_vjp": lambda v: _with_its_own_vjp(v) * v,
}


@weft.custom_vjp
def _with_its_own_vjp(v: Any) -> Any:
    return jnp.sin(v)


_with_its_own_vjp.defvjp(lambda v: (jnp.sin(v), v), lambda v, ct: (jnp.cos(v) * ct,))


@pytest.mark.parametrize("f", WITHIN_A_MAPPED_RULE.values(), ids=WITHIN_A_MAPPED_RULE)
def test_gradients_of_mapped_rules_that_differentiate(f: Any) -> None:
    """The values that such a rule computes are no tangents, whatever lies between it and the gradient."""
    ruled = weft.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: weft.jvp(f, primals, tangents))
    scales = jnp.array([0.5, 1.0, 1.5])

    def total(function: Any, x: Any) -> Any:
        return weft.vmap(lambda s: function(x * s))(scales).sum()

    value, slope = weft.value_and_grad(lambda x: total(ruled, x))(jnp.asarray(X, jnp.float32))
    assert near(np.asarray(value, np.float64), np.asarray(total(f, jnp.asarray(X, jnp.float32)), np.float64), 1e-6)
    expected = weft.grad(lambda x: sum(f(x * s).sum() for s in (0.5, 1.0, 1.5)))(jnp.asarray(X, jnp.float32))
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.37, -2.3])
def test_products_of_rounded_vectors_have_the_same_bits_before_and_after_simplify(scale: float) -> None:
    """Second tangents of a product of vectors sum what is no longer exact: the check compares sums in one order."""
    program = Program(((STEPS.index("(v @ w) * v / 4"), 0, 0),))
    with config.context("enable_x64", True), config.context("check", True):
        for names in (("closure_convert", "linearize", "linearize", "checkpoint"), ("linearize", "linearize")):
            _, function = Composition(program, names).functions(weft)
            x = jnp.asarray(X * scale)
            assert near(np.asarray(weft.jit(function)(x)), np.asarray(function(x)), 1e-14)

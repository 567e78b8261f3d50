"""Programs whose kernels read inputs and write results alone have the plan that the planner makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, nn
from weft.compiler.plans import plan
from weft.compiler.plans.buffer_assignment import Assignment

CAPTURED = jnp.arange(10.0)
X = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)

ALONE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: jnp.sin(x) + 1, (X,)),
    "two results": (lambda x, y: (x + y, x - y), (X, X[:, :1])),
    "results in another order than operands": (lambda x, y: (jnp.cos(y), jnp.sin(x)), (X, X)),
    "rows": (lambda x: nn.softmax(x), (X,)),
    "columns": (lambda x: x.sum(0), (X,)),
    "a number": (lambda x: x.mean(), (X,)),
    "a slice": (lambda x: x[1:, ::2] * 2, (X,)),
    "backwards": (lambda x: x[::-1] * 2, (X,)),
    "a transpose": (lambda x: x.T + 0, (X,)),
    "loops around": (lambda x: jnp.exp(x.transpose(2, 0, 3, 1)), (np.ones((3, 4, 5, 6), np.float32),)),
    "a captured array": (lambda x: x * CAPTURED, (X,)),
    "bool": (lambda x: x > 0, (X,)),
    "complex": (lambda x: x * 1j, (X,)),
    "bfloat16": (lambda x: nn.silu(x), (X.astype(jnp.bfloat16),)),
    "pieces": (lambda x: jnp.pad(x, 2), (X,)),
    "operands in a row": (lambda x: jnp.concatenate([x, x * 2, jnp.sin(x)], 1), (X,)),
    "two kernels": (lambda x, y: (jnp.sin(x), y.sum(0)), (X, np.ones((20, 30), np.float32))),
    "nothing to run": (lambda x: (), (X,)),
    "pieces of nothing": (lambda x: jnp.pad(x[:, :0], ((0, 0), (1, 1))), (X,)),
    "an unused operand": (lambda x, y: x + 1, (X, X)),
}
MORE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nothing": (lambda x: x + 1, (np.ones((3, 0)),)),
    "sum of nothing": (lambda x: x.sum(1), (np.ones((3, 0)),)),
    "a value between kernels": (lambda x: jnp.cumsum(jnp.sort(x), 1) @ x.T, (X,)),
    "a result that is read": (lambda x: (s := jnp.sort(x), s.sum(0)), (X,)),
    "an operand for a result": (lambda x: (x, x + 1), (X,)),
    "one result twice": (lambda x: (x + 1,) * 2, (X,)),
    "a reshaped result": (lambda x: (jnp.sin(x)).reshape(-1), (X,)),
    "an index that is read": (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)) + 1, (X, np.int32(1))),
    "an update": (lambda x: lax.dynamic_update_slice(x, x[:1] * 2, (2, 0)), (X,)),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The plan of each program that was planned, None if it was left to the planner, and the planner's."""
    found: list[tuple[Any, Any]] = []
    quickly = plan._of_results_alone

    def both(kernels: Any, lowered: Any, out_avals: Any) -> Any:
        planned = quickly(kernels, lowered, out_avals)
        found.append((planned, plan.Planner(Assignment(kernels, lowered, (), out_avals)).run()))
        return planned

    monkeypatch.setattr(plan, "_of_results_alone", both)
    weft.clear_caches()
    return found


@pytest.mark.parametrize("name", [*ALONE, *MORE])
def test_the_plan_is_the_planners(name: str, made: list[tuple[Any, Any]]) -> None:
    function, args = {**ALONE, **MORE}[name]
    jitted = weft.jit(lambda *args: function(*args))
    wider = [np.concatenate([x, x]) if np.ndim(x) else x for x in args]
    for given in (args, wider):
        made.clear()
        results = jitted(*given)
        assert made or given is wider  # which the same program may serve
        assert all(quick is None or quick == planned for quick, planned in made)
        assert not made or any(quick is None for quick, _ in made) == (name in MORE)
        eager = function(*map(jnp.asarray, given))
        for result, expected in zip(weft.tree.leaves(results), weft.tree.leaves(eager), strict=True):
            np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-2)


def test_donated_operands_are_planned_for(made: list[tuple[Any, Any]]) -> None:
    x = jnp.asarray(X)
    weft.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert not made

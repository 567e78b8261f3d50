"""References as operands of functions with rules of their own, and in conditions of loops, beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp

WEFT = SimpleNamespace(jax=weft, np=wnp, lax=weft.lax)
JAX = SimpleNamespace(jax=jax, np=jnp, lax=jax.lax)
V = np.arange(4, dtype=np.float32) + 2


def vjp_function(J: Any, primal: Any, fwd: Any, bwd: Any, **options: Any) -> Any:
    function = J.jax.custom_vjp(primal, **options)
    function.defvjp(fwd, bwd)
    return function


def jvp_function(J: Any, primal: Any, rule: Any) -> Any:
    function = J.jax.custom_jvp(primal)
    function.defjvp(rule)
    return function


def reads(J: Any) -> Any:
    """r[0] * x, with ten times the derivative."""
    return vjp_function(
        J, lambda r, x: r[0] * x, lambda r, x: (r[0] * x, r[0]), lambda res, g: (None, g * res * 10)
    )  # fmt: skip


def writes(J: Any) -> Any:
    def primal(r: Any, x: Any) -> Any:
        r[0] = x * 2
        return x * r[1]

    return vjp_function(J, primal, lambda r, x: (primal(r, x), None), lambda res, g: (None, g * 7))


def stashes(J: Any) -> Any:
    """x, whose cotangent is added to r."""

    def bwd(r: Any, g: Any) -> Any:
        r[0] += g
        return None, g

    return vjp_function(J, lambda r, x: x, lambda r, x: (x, r), bwd)


def forward(J: Any) -> Any:
    def primal(r: Any, x: Any) -> Any:
        r[0] = 2 * x
        return x * r[1]

    def rule(primals: Any, tangents: Any) -> Any:
        out = primal(*primals)
        tangents[0][0] = 20 * tangents[1]
        return out, tangents[1] * 5 + tangents[0][1]

    return jvp_function(J, primal, rule)


def scanned(J: Any, f: Any, r: Any) -> Any:
    return lambda xs: J.lax.scan(lambda c, x: (c + f(r, x), None), 0.0, xs)[0]


def call(J: Any, f: Any, r: Any) -> Any:
    return f(r, 3.0), J.jax.jit(f)(r, 2.0), J.jax.jit(lambda r, x: J.jax.jit(f)(r, x) + r[0])(r, 4.0)


def gradient(J: Any, f: Any, r: Any) -> Any:
    slope = J.jax.grad(lambda x: f(r, x) * 3)
    first = slope(2.0), r[0], J.jax.grad(J.jax.jit(lambda x: f(r, x) * 3))(4.0), r[0]
    return *first, J.jax.jit(lambda r, x: J.jax.grad(lambda x: f(r, x) * 3)(x))(r, 5.0), r[0]


def checkpointed(J: Any, f: Any, r: Any) -> Any:
    return J.jax.grad(J.jax.checkpoint(lambda x: f(r, x) * 3))(2.0)


def in_a_scan(J: Any, f: Any, r: Any) -> Any:
    return scanned(J, f, r)(V), J.jax.grad(scanned(J, f, r))(V), J.jax.jit(J.jax.grad(scanned(J, f, r)))(V)


def mapped(J: Any, f: Any, r: Any) -> Any:
    rows = J.jax.new_ref(J.np.asarray(np.stack([V, V + 1, V - 1])))
    out = J.jax.vmap(f)(rows, V[:3]), rows[...], J.jax.jit(J.jax.vmap(f))(rows, V[1:]), rows[...]
    slopes = J.jax.grad(lambda xs: (J.jax.vmap(f)(rows, xs) * 3).sum())(V[:3]), rows[...]
    return out, slopes, J.jax.vmap(lambda r, x: J.jax.grad(lambda x: f(r, x))(x))(rows, V[:3]), rows[...]


def made_inside(J: Any, f: Any, r: Any) -> Any:
    def outer(x: Any) -> Any:
        inner = J.jax.new_ref(x * np.ones(4, np.float32))
        return f(inner, x) + inner[0]

    return J.jax.grad(outer)(2.0), J.jax.grad(J.jax.jit(outer))(2.0)


def pushed(J: Any, f: Any, r: Any) -> Any:
    def outer(x: Any) -> Any:
        inner = J.jax.new_ref(x * np.ones(4, np.float32))
        return f(inner, x), inner[...]

    return J.jax.jvp(outer, (3.0,), (1.0,)), J.jax.jvp(J.jax.jit(outer), (3.0,), (1.0,)), J.jax.jacrev(outer)(3.0)


CASES = {
    "call": (call, (reads, writes, stashes)),
    "gradient": (gradient, (reads, writes, stashes)),
    "checkpointed": (checkpointed, (reads, stashes)),
    "in a scan": (in_a_scan, (reads, writes, stashes)),
    "mapped": (mapped, (reads, writes, stashes)),
    "made inside": (made_inside, (reads, writes)),
    "forward": (pushed, (forward,)),
}


def run(J: Any, program: Any, make: Any) -> Any:
    r = J.jax.new_ref(J.np.asarray(V))
    return J.jax.device_get([program(J, make(J), r), r[...]])


@pytest.mark.parametrize(
    ("program", "make"), [(p, m) for p, makers in CASES.values() for m in makers], ids=lambda x: x.__name__
)
def test_as_jaxs(program: Any, make: Any) -> None:
    ours, theirs = jax.tree.leaves(run(WEFT, program, make)), jax.tree.leaves(run(JAX, program, make))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_closed_over_references() -> None:
    def program(J: Any) -> Any:
        r = J.jax.new_ref(J.np.asarray(V))
        f = vjp_function(J, lambda x: x * r[0], lambda x: (x * r[0], r[0]), lambda res, g: (g * res * 10,))
        values = f(2.0), J.jax.jit(f)(2.0), J.jax.grad(f)(2.0), J.jax.jit(J.jax.grad(f))(2.0)
        slopes = J.jax.grad(J.jax.jit(f))(2.0), J.jax.grad(lambda xs: J.lax.map(f, xs).sum())(V)
        return J.jax.device_get([values, slopes, J.jax.vmap(f)(V)])

    for one, other in zip(*map(jax.tree.leaves, (program(WEFT), program(JAX))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_rule_sees_what_the_loop_wrote_before() -> None:
    """JAX's rule sees the reference as it was before the loop."""
    r = weft.new_ref(V)
    f = vjp_function(WEFT, lambda x: x * r[0], lambda x: (x * r[0], r[0]), lambda res, g: (g * res,))

    def step(total: Any, x: Any) -> Any:
        r[0] += 1.0
        return total + f(x), None

    slopes = weft.grad(lambda xs: weft.lax.scan(step, 0.0, xs)[0])(V)
    np.testing.assert_array_equal(slopes, [3.0, 4.0, 5.0, 6.0])
    assert r[0] == 6.0


def test_functions_with_a_jvp_rule_under_jit() -> None:
    """JAX has no such programs."""
    for make in (forward, reads):
        eager, r = weft.new_ref(V), weft.new_ref(V)
        np.testing.assert_array_equal(weft.jit(make(WEFT))(r, 3.0), make(WEFT)(eager, 3.0))
        np.testing.assert_array_equal(r[...], eager[...])


def test_cotangents_go_to_references() -> None:
    r, total = weft.new_ref(V), weft.new_ref(1.0)
    _, pullback = weft.vjp(lambda x: reads(WEFT)(r, x), 2.0)
    pullback.with_refs(total)(1.0)
    assert total[...] == 21.0


def test_rules_are_printed_as_jaxs() -> None:
    for make in (reads, forward):
        texts = [str(J.jax.make_jaxpr(make(J))(J.jax.new_ref(J.np.asarray(V)), 2.0)) for J in (WEFT, JAX)]
        assert texts[0] == texts[1]


def test_errors() -> None:
    r = weft.new_ref(V)
    same = vjp_function(WEFT, lambda r, s: r[0] + s[0], lambda r, s: (r[0] + s[0], None), lambda res, g: (None, None))
    with pytest.raises(ValueError, match="only one reference to a mutable array"):
        same(r, r)
    with pytest.raises(ValueError, match="returned a mutable array reference"):
        vjp_function(WEFT, lambda r: r, lambda r: (r, None), lambda res, g: (None,))(r)
    with pytest.raises(TypeError, match="can't apply forward-mode"):
        weft.jvp(lambda x: reads(WEFT)(r, x), (2.0,), (1.0,))

    def fwd(r: Any, x: Any) -> Any:
        r[1] = 0.0
        return x, None

    only_fwd = vjp_function(WEFT, lambda r, x: x, fwd, lambda res, g: (None, g))
    with pytest.raises(NotImplementedError, match="the function itself does not write"):
        weft.grad(scanned(WEFT, only_fwd, r))(V)
    assert weft.grad(lambda x: only_fwd(r, x))(1.0) == 1.0
    assert r[1] == 0.0


# -- conditions of loops ----------------------------------------------------------------------------------------------


def counted(x: Any, condition: Callable[[Any, Any], Any], body: Callable[[Any], None] | None = None) -> Any:
    """(steps, what the reference holds) of a loop with a reference to x."""
    r = weft.new_ref(x)

    def step(i: Any) -> Any:
        if body is not None:
            body(r)
        return i + 1

    return weft.lax.while_loop(lambda i: condition(r, i), step, 0), r[...]


def doubling(r: Any, i: Any) -> Any:
    r[...] *= 2
    return r[...] < 50


def nested(r: Any, i: Any) -> Any:
    """A condition with a loop of its own, whose condition writes too."""

    def inner(k: Any) -> Any:
        r[...] += 1
        return k < i

    return weft.lax.while_loop(inner, lambda k: k + 1, 0) + r[...] < 50


def add_three(r: Any) -> None:
    r[...] += 3


@pytest.mark.parametrize("condition", [doubling, nested, lambda r, i: r[...] < 50])
@pytest.mark.parametrize("body", [None, add_three])
def test_conditions_that_use_references(condition: Any, body: Any) -> None:
    """What a condition wrote stays written, as in Python (JAX loses what it wrote when it ended the loop)."""
    if body is None and condition not in (doubling, nested):
        body = add_three
    xs = np.array([1.0, 2.5, 49.0, 60.0], np.float32)
    with weft.disable_jit():
        expected = [counted(wnp.float32(x), condition, body) for x in xs]
    for x, (steps, value) in zip(xs, expected, strict=True):
        for function in (counted, weft.jit(counted, static_argnums=(1, 2))):
            found = function(x, condition, body)
            assert (int(found[0]), float(found[1])) == (int(steps), float(value))
    rows = weft.vmap(lambda x: counted(x, condition, body))(xs)
    np.testing.assert_array_equal(rows[0], [int(steps) for steps, _ in expected])
    np.testing.assert_array_equal(rows[1], [float(value) for _, value in expected])


def test_a_condition_that_writes_has_a_derivative() -> None:
    for transform in (lambda f: f, weft.jit):
        value, slope = weft.jvp(transform(lambda x: counted(x, doubling)[1]), (1.5,), (1.0,))
        assert (float(value), float(slope)) == (96.0, 64.0)


def test_a_reference_from_outside_in_a_condition() -> None:
    r = weft.new_ref(V)

    def condition(i: Any) -> Any:
        r[0] += 1
        return r[0] < 9

    def body(i: Any) -> Any:
        r[0] *= 2
        return i + 1

    assert weft.lax.while_loop(condition, body, 0) == 2
    assert weft.jit(lambda: weft.lax.while_loop(condition, body, 0))() == 0
    assert r[0] == 16.0

"""What all steps of a loop have in common is computed before it; transposed arrays are read in it as they lie."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import config, lax
from weft.core import kinds


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0.1, 1.0, shape).astype(np.float32)


A, B, S = numbers(40, 40), numbers(40), numbers(2000)


def descent(a: Any, b: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, w: w - 0.1 * a.T @ (a @ w - b) / a.shape[0], jnp.zeros_like(b))


def until_small(a: Any, b: Any) -> Any:
    """Common parts in the condition and in the body, a matrix product among them."""
    state = lax.while_loop(lambda s: jnp.max(s[0]) > 1e-3 * (b @ b), lambda s: ((a @ a) @ s[0] / 999, s[1] + 1), (b, 0))
    return state


def nested(a: Any, b: Any) -> Any:
    def outer(r: Any, k: Any) -> tuple[Any, Any]:
        r = lax.fori_loop(0, 3, lambda i, r: jnp.tanh(a * 2 @ r + jnp.sin(b)), r + k)
        return r, r.sum()

    return lax.scan(outer, b, jnp.arange(5, dtype=b.dtype), reverse=True)


def no_steps(a: Any, b: Any) -> Any:
    """What a loop without steps would have computed must not be seen."""
    return lax.while_loop(lambda s: s[0, 0] > 1e9, lambda s: s / jnp.zeros_like(s) @ (a @ a), a)


def mapped(a: Any, b: Any) -> Any:
    def one(x: Any, y: Any) -> Any:
        return lax.while_loop(lambda s: s < 9 * jnp.exp(y), lambda s: s * 1.5 + jnp.exp(-y) * x, x)

    return weft.vmap(one)(b, b[::-1])


def multiplied_transposed(a: Any, b: Any) -> Any:
    t = a.T
    return lax.fori_loop(0, 3, lambda i, r: jnp.tanh(t @ (a @ r)), b)


def read_transposed(a: Any, b: Any) -> Any:
    """Not only multiplied: the transposed array is made once."""
    t = a.T
    return lax.fori_loop(0, 3, lambda i, r: jnp.tanh(t @ r + (t * r).sum(1)), b)


PROGRAMS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (descent, until_small, nested, no_steps, mapped, multiplied_transposed, read_transposed)
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_those_of_the_reference(name: str) -> None:
    closed = weft.make_jaxpr(PROGRAMS[name])(A, B)
    found = ladder.by_machine_code(ladder.compiled(closed), [A, B])
    for one, other in zip(found, ladder.by_reference(closed, [A, B]), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-6)
    with weft.disable_jit():
        eager = weft.tree.leaves(PROGRAMS[name](jnp.asarray(A), jnp.asarray(B)))
    for one, other in zip(found, eager, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def loops_of(function: Callable[..., Any], *args: Any) -> tuple[Any, list[Any]]:
    """The simplified program of a function, and the bodies of its loops."""
    jaxpr = ladder.compiled(weft.make_jaxpr(function)(*args)).jaxpr
    loops = [eqn for eqn in jaxpr.eqns if isinstance(eqn.primitive.kind, kinds.Loop)]
    return jaxpr, [eqn.primitive.kind.parts(eqn.params).body.jaxpr for eqn in loops]


def names(jaxpr: Any) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.eqns]


def test_products_and_what_is_stored_anyway_go_before_the_loop() -> None:
    jaxpr, (body,) = loops_of(descent, A, B)
    assert names(jaxpr).count("mul") == 1 and "mul" not in names(body)
    jaxpr, (body,) = loops_of(until_small, A, B)
    assert names(jaxpr).count("dot_general") == 1 and names(body).count("dot_general") == 1


def test_what_would_make_steps_read_more_stays() -> None:
    """A difference of each with each takes more than both operands; a view costs nothing in the loop."""

    def pairs(s: Any, r: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, r: ((s[:, None] - s) * r).sum(1) / 2000, r)

    jaxpr, (body,) = loops_of(pairs, S, S)
    assert "sub" in names(body) and "sub" not in names(jaxpr)


def test_transposed_arrays_that_are_only_multiplied_are_not_copied() -> None:
    jaxpr, (body,) = loops_of(multiplied_transposed, numbers(300, 300), numbers(300))
    assert "transpose" not in names(jaxpr)
    jaxpr, (body,) = loops_of(read_transposed, numbers(300, 300), numbers(300))
    assert "transpose" in names(jaxpr) and "transpose" not in names(body)


def test_checked_loops_keep_their_steps() -> None:
    """A guard speaks of a step that ran."""

    def f(a: Any, b: Any) -> Any:
        return lax.while_loop(lambda s: s[0] > 1e9, lambda s: s * jnp.log(-b).sum() * (a @ b), b)

    found = weft.jit(f, checks=("nan",))(A, B)
    np.testing.assert_array_equal(np.asarray(found), B)


def test_elements_end_alone_with_common_parts_before_the_loop() -> None:
    jaxpr = ladder.compiled(weft.make_jaxpr(mapped)(A, B)).jaxpr
    assert any(isinstance(eqn.primitive.kind, kinds.Routine) for eqn in jaxpr.eqns)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (3, 0), (5, 1), (33, 7)])
def test_elementwise_operands_of_products_are_read_as_they_lie(shape: tuple[int, int]) -> None:
    x, w = numbers(*shape), numbers(shape[0])

    def f(x: Any, w: Any) -> Any:
        return 0.5 * x.T @ w, (x.T * w) @ x, jnp.exp(x.T / w) @ x, (x.T + x.T * 2) @ w

    found = weft.jit(f)(x, w)
    for one, other in zip(found, f(jnp.asarray(x), jnp.asarray(w)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    np.testing.assert_allclose(np.asarray(found[1]), (wide.T * weights) @ wide, rtol=1e-5, atol=1e-6)
    names_ = names(ladder.compiled(weft.make_jaxpr(lambda x, w: (x.T * w) @ x)(numbers(300, 20), numbers(300))).jaxpr)
    assert names_.count("transpose") <= 1  # of the weights


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "bfloat16", "float16", "complex64", "bool"])
def test_outer_products_are_multiplications(dtype: str) -> None:
    def outer(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, (((), ()), ((), ())))

    with weft.enable_x64():
        r = np.random.default_rng(0)
        x, y = (r.integers(-3, 4, n).astype(jnp.dtype(dtype)) for n in (300, 20))
        found = weft.jit(outer)(x, y)
        expected = np.multiply.outer(x, y) if dtype != "bool" else np.logical_and.outer(x, y)
        np.testing.assert_array_equal(np.asarray(found), expected.astype(found.dtype))
        found = np.asarray(weft.vmap(outer)(jnp.asarray(x[:60].reshape(3, 20)), jnp.asarray(np.stack([y] * 3))))
        np.testing.assert_array_equal(found.reshape(60, 20), expected[:60].astype(found.dtype))


def test_operations() -> None:
    a, b = numbers(200, 200), numbers(200)
    step = lambda a, b: lax.fori_loop(0, 5, lambda i, r: (0.85 * a) @ r + b.sum(), b)
    before = ladder.after("loop_invariants", step, a, b)
    assert {"mul", "reduce_sum"} <= set(before) and before[-1] == "scan"
    assert ladder.after("loop_invariants", lambda b: lax.fori_loop(0, 5, lambda i, r: r * 2 + 1, b), b)[-1] == "scan"


def chain(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x * 0.5 + x * 0.25 + 0.1
    return x


LONG: list[Callable[..., Any]] = [
    lambda a, b: chain(a, 1500) @ b,
    lambda a, b: chain(a.T, 1500) @ b,
    lambda a, b: lax.fori_loop(0, 3, lambda i, s: chain(a, 600) @ s, b),
    lambda a, b: lax.fori_loop(0, 3, lambda i, s: chain(a.T, 40) @ s, b),
]


@pytest.mark.parametrize("number", range(len(LONG)))
def test_long_chains(number: int) -> None:
    """No deep recursion, and no walk along every path: each value of a chain is read twice by the next one."""
    a, b = numbers(12, 12), numbers(12)
    steps = (1500, 1500, 600, 40)[number]
    matrix = chain((a.T if number % 2 else a).astype(np.float64), steps)
    expected = b.astype(np.float64)
    for _ in range(1 if number < 2 else 3):
        expected = matrix @ expected
    with config.context("check", False):
        np.testing.assert_allclose(weft.jit(LONG[number])(a, b), expected, rtol=1e-4)


ENDLESS = """
    import numpy as np
    import weft
    import weft.numpy as jnp
    from weft import lax

    def endless(step, x):
        return lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + step, s[1] + x), (step, x))[1]

    def directly(n, step, x):
        return lax.fori_loop(0, n, lambda i, s: s + endless(step, x), x)

    def in_a_branch(n, step, x):
        return lax.fori_loop(0, n, lambda i, s: s + lax.cond(step < 5, endless, lambda step, x: x, step, x), x)

    def in_a_loop(n, step, x):
        def two(s, _):
            return s + endless(step, x), None

        return lax.fori_loop(0, n, lambda i, s: s + lax.scan(two, x, None, length=2)[0], x)

    for f in (directly, in_a_branch, in_a_loop):
        for x in (np.float32(3), np.ones(40, np.float32)):
            assert (weft.jit(f)(0, 0, x) == x).all()
            once = f(1, 2, x) - x
            np.testing.assert_allclose(weft.jit(f)(2, 2, x), x + 2 * once)
    print("fine")
"""


def test_a_loop_that_might_not_end_stays_where_nothing_may_ask_for_it() -> None:
    """An inner loop goes before another only if a step of that one is known to run."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDLESS)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "fine\n", (done.returncode, done.stderr[-2000:])

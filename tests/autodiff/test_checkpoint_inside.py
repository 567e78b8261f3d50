"""Policies of checkpoint ask about what loops, branches and jitted functions compute inside."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.ad_checkpoint
import numpy as np
import pytest

import weft
import weft.ad_checkpoint
import weft.lax
import weft.numpy as jnp

X = np.linspace(0.2, 1, 3, dtype=np.float32)
ROWS = np.linspace(0.5, 1.5, 15, dtype=np.float32).reshape(5, 3)
W = np.linspace(-0.4, 0.5, 9, dtype=np.float32).reshape(3, 3)


def step(m: Any) -> Any:
    """A step of a loop: a name, a product, and values of neither."""

    def body(w: Any, c: Any, a: Any) -> Any:
        y = m.ad_checkpoint.checkpoint_name(m.numpy.sin(c * a), "y")
        z = w @ y
        return m.numpy.cos(z) * m.numpy.exp(y), z.sum()

    return body


def captures(m: Any) -> Any:
    """A jitted function that holds an array."""
    held = m.numpy.asarray(W)
    return m.jit(lambda a: m.numpy.sin(held @ a))


FUNCTIONS: dict[str, Any] = {
    "scan": lambda m: lambda w, c: m.lax.scan(lambda s, a: step(m)(w, s, a), c, m.numpy.asarray(ROWS)),
    "reversed": lambda m: lambda w, c: m.lax.scan(
        lambda s, a: step(m)(w, s, a), c, m.numpy.asarray(ROWS), reverse=True
    ),
    "fori_loop": lambda m: lambda w, c: m.lax.fori_loop(0, 4, lambda i, s: step(m)(w, s, s)[0], c),
    "state not read again": lambda m: lambda w, c: m.lax.scan(
        lambda s, a: (s + 1.0, step(m)(w, a * a, a)[0]), 0.0, m.numpy.stack([c, c * 2])
    )[1],
    "nested": lambda m: lambda w, c: m.lax.scan(
        lambda s, a: (m.lax.scan(lambda t, b: step(m)(w, t, b * a), s, m.numpy.asarray(ROWS[:2]))[0], None),
        c, m.numpy.asarray(ROWS[:3]),
    )[0],
    "cond": lambda m: lambda w, c: m.lax.cond(
        c[0] > 0, lambda s: step(m)(w, s, s)[0], lambda s: m.numpy.tan(w @ s), c
    ),
    "switch": lambda m: lambda w, c: m.lax.switch(
        1, [lambda s: s, lambda s: step(m)(w, s, s)[0], lambda s: (w @ (w @ s)) * s], c
    ),
    "cond in scan": lambda m: lambda w, c: m.lax.scan(
        lambda s, a: (m.lax.cond(a[0] > 1, lambda t: step(m)(w, t, a)[0], lambda t: m.numpy.sin(t), s), None),
        c, m.numpy.asarray(ROWS),
    )[0],
    "while": lambda m: lambda w, c: c * m.lax.while_loop(
        lambda s: s.sum() < 10, lambda s: s + abs(W @ s), m.lax.stop_gradient(c)
    ),
    "jit": lambda m: lambda w, c: captures(m)(w @ captures(m)(c)),
}  # fmt: skip
POLICIES = {
    "none": lambda policies: None,
    "dots": lambda policies: policies.dots_saveable,
    "only y": lambda policies: policies.save_only_these_names("y"),
    "both": lambda policies: policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("y")
    ),
}


def checkpointed(m: Any, name: str, policy: str) -> Any:
    return m.checkpoint(FUNCTIONS[name](m), policy=POLICIES[policy](m.checkpoint_policies))


@pytest.mark.oracle
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_of_what_is_kept_are_jax_s(name: str, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = []
    for module in (weft, jax):
        module.ad_checkpoint.print_saved_residuals(checkpointed(module, name, policy), W, X)
        lines = [line for line in capsys.readouterr().out.splitlines() if "from a constant" not in line]
        kept.append(sorted(re.split(" output of | from | named ", line)[0] for line in lines))
    if policy == "dots" and name in ("reversed", "scan"):
        assert "f32[5,3]" in kept[0]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("policy", ["dots", "both"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_without(name: str, policy: str) -> None:
    total = lambda f: lambda w, c: sum(leaf.sum() for leaf in weft.tree.leaves(f(w, c)))
    plain, kept = total(FUNCTIONS[name](weft)), total(checkpointed(weft, name, policy))
    wanted = weft.grad(plain, (0, 1))(W, X)
    for run in (weft.grad(kept, (0, 1)), weft.jit(weft.grad(kept, (0, 1)))):
        for found, expected in zip(run(W, X), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    mapped = weft.vmap(weft.grad(kept, 1), (None, 0))(W, jnp.stack([X, X]))
    np.testing.assert_allclose(mapped[1], wanted[1], rtol=1e-5, atol=1e-5)


def test_second_derivatives_through_a_checkpointed_scan() -> None:
    kept, plain = checkpointed(weft, "scan", "both"), FUNCTIONS["scan"](weft)
    total = lambda f: lambda c: f(W, c)[1].sum()
    np.testing.assert_allclose(
        weft.hessian(total(kept))(jnp.asarray(X)), weft.hessian(total(plain))(jnp.asarray(X)), rtol=1e-4, atol=1e-4
    )


def scans(text: str) -> list[int]:
    """For each scan of a printed program, in order, the number of its results."""
    return [len(line.split("=")[0].split()) for line in text.splitlines() if "= scan[" in line]


def test_the_first_of_two_scans_stacks_only_what_is_kept() -> None:
    for policy, results in (("none", 2), ("dots", 3), ("both", 4)):
        f = checkpointed(weft, "scan", policy)
        text = str(weft.make_jaxpr(weft.grad(lambda c, f=f: f(W, c)[1].sum()))(X))
        assert scans(text)[0] == results


def test_products_that_are_kept_are_not_computed_again() -> None:
    for name in ("scan", "cond", "jit"):
        counts = []
        for policy in ("none", "dots"):
            f = checkpointed(weft, name, policy)
            total = lambda c, f=f: sum(leaf.sum() for leaf in weft.tree.leaves(f(W, c)))
            counts.append(str(weft.make_jaxpr(weft.grad(total))(X)).count("dot_general["))
        assert counts[1] < counts[0], name


def test_a_loop_that_is_kept_as_a_whole_is_not_run_again() -> None:
    for policy, loops in ((weft.checkpoint_policies.everything_saveable, 2), (None, 3)):
        f = weft.checkpoint(FUNCTIONS["scan"](weft), policy=policy)
        assert len(scans(str(weft.make_jaxpr(weft.grad(lambda c, f=f: f(W, c)[1].sum()))(X)))) == loops

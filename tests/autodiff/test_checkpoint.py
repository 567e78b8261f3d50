"""checkpoint, and check_grads over compositions of transformations."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.ad_checkpoint
import numpy as np
import pytest

import weft
import weft.ad_checkpoint
import weft.debug
import weft.lax
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
    assert len(pullback.args_res) == 1 and pullback.opaque_residuals == []
    assert pullback.args_res[0].unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    _, kept = weft.vjp(lambda x: wnp.sin(wnp.sin(wnp.sin(x))), x)
    assert len(kept.opaque_residuals) == 3


def named(module: Any) -> Any:
    """A function with a product, two names and a jitted part."""
    np, name = module.numpy, module.ad_checkpoint.checkpoint_name
    inner = module.jit(lambda b: np.cos(b) * 2)
    return lambda x, w: name(inner(name(np.sin(x) @ w, "b")), "c").sum()


POLICIES: dict[str, Any] = {
    "none": lambda policies: None,
    "everything": lambda policies: policies.everything_saveable,
    "nothing": lambda policies: policies.nothing_saveable,
    "dots": lambda policies: policies.dots_saveable,
    "dots without batch": lambda policies: policies.dots_with_no_batch_dims_saveable,
    "only b": lambda policies: policies.save_only_these_names("b"),
    "all names but b": lambda policies: policies.save_any_names_but_these("b"),
    "anything but b": lambda policies: policies.save_anything_except_these_names("b"),
    "both": lambda policies: policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("c")
    ),
    "two memories": lambda policies: policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["b"],
        names_which_can_be_offloaded=["q"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.linspace(0, 2, 9, dtype=np.float32).reshape(3, 3)


@pytest.mark.oracle
@pytest.mark.parametrize("policy", POLICIES)
def test_what_policies_keep_is_jax_s(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = []
    for module in (weft, jax):
        f = module.checkpoint(named(module), policy=POLICIES[policy](module.checkpoint_policies))
        module.ad_checkpoint.print_saved_residuals(f, X, W)
        # where jax keeps the result of an equation in a jitted part, it names the part
        kept.append(
            sorted(line.split(" output of ")[0].split(" from /")[0] for line in capsys.readouterr().out.split("\n"))
        )
    assert kept[0] == kept[1]


@pytest.mark.oracle
@pytest.mark.parametrize("policy", ["none", "nothing", "all names but b"])
def test_programs_that_keep_nothing_are_jax_s(policy: str) -> None:
    def text(module: Any) -> str:
        np = module.numpy
        inner = lambda x, w: module.ad_checkpoint.checkpoint_name(np.cos(np.sin(x) @ w), "b").sum()
        f = module.checkpoint(inner, policy=POLICIES[policy](module.checkpoint_policies))
        found = str(module.make_jaxpr(module.grad(f, (0, 1)))(X, W)) + str(module.make_jaxpr(f)(X, W))
        return re.sub(r"<function .*?>", "function", found)

    assert text(weft) == text(jax)


@pytest.mark.parametrize("policy", POLICIES)
def test_derivatives_are_those_without(policy: str) -> None:
    f = named(weft)
    g = weft.checkpoint(f, policy=POLICIES[policy](weft.checkpoint_policies))
    x, w = wnp.asarray(X), wnp.asarray(W)
    wanted = weft.grad(f, (0, 1))(x, w)
    for run in (weft.grad(g, (0, 1)), weft.jit(weft.grad(g, (0, 1)))):
        for a, b in zip(run(x, w), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)
    rows = wnp.stack([x, x / 2])
    mapped = weft.vmap(weft.grad(g), (0, None))(rows, w)
    np.testing.assert_allclose(np.asarray(mapped[0]), np.asarray(wanted[0]), rtol=1e-5, atol=1e-6)
    second = weft.hessian(lambda s: g(x * s, w))(1.0)
    np.testing.assert_allclose(float(second), float(weft.hessian(lambda s: f(x * s, w))(1.0)), rtol=1e-4)


def test_in_a_scan_with_a_scan_inside() -> None:
    """The compiler may not find what is computed again, and loops inside are run again."""

    def step(c: Any, a: Any) -> Any:
        return wnp.sin(weft.lax.scan(lambda s, _: (s * a, s), c, None, length=3)[0]), c

    def loss(body: Any) -> Any:
        return lambda c: weft.lax.scan(body, c, wnp.linspace(0.5, 1.5, 4))[0]

    wanted = weft.grad(loss(step))(0.7)
    for options in ({}, {"prevent_cse": False}, {"prevent_cse": (True, False)}):
        assert float(weft.grad(loss(weft.checkpoint(step, **options)))(0.7)) == pytest.approx(float(wanted), rel=1e-6)


def test_what_is_computed_again_is_not_found_before() -> None:
    f = lambda x: wnp.sin(wnp.sin(x)) * 2
    text = str(weft.make_jaxpr(weft.grad(weft.checkpoint(f)))(1.0))
    assert text.count("sin ") == 3
    once = weft.jit(weft.value_and_grad(f)).lower(1.0).compile().as_text("kernel")
    again = weft.jit(weft.value_and_grad(weft.checkpoint(f))).lower(1.0).compile().as_text("kernel")
    assert once.count("sin ") == 2 and again.count("sin ") == 3


def test_a_barrier_of_scalars() -> None:
    assert weft.jit(lambda x: weft.lax.optimization_barrier((x, 1.0, 2)))(3.0) == (3.0, 1.0, 2)


@pytest.mark.oracle
def test_prints_happen_in_the_second_computation_as_in_jax() -> None:
    for policy in ("nothing_saveable", "dots_saveable"):
        counts = []
        for m, numpy in ((weft, wnp), (jax, jax.numpy)):
            seen: list[int] = []

            def f(x: Any, m: Any = m, numpy: Any = numpy, seen: list[int] = seen) -> Any:
                m.debug.callback(lambda: seen.append(1))
                return numpy.sin(numpy.sin(x))

            m.grad(m.checkpoint(f, policy=getattr(m.checkpoint_policies, policy)))(1.0)
            m.effects_barrier()
            counts.append(len(seen))
        assert counts == [2, 2]


@pytest.mark.oracle
def test_wrong_use_is_jax_s() -> None:
    def mixed(m: Any) -> Any:
        policies = m.checkpoint_policies
        return policies.save_from_both_policies(lambda *a, **k: m.ad_checkpoint.Saveable, policies.dots_saveable)

    def intersecting(m: Any) -> Any:
        names = {"names_which_can_be_saved": ["a"], "names_which_can_be_offloaded": ["a"]}
        return m.checkpoint_policies.save_and_offload_only_these_names(**names, offload_src="d", offload_dst="h")

    def checkpointed(m: Any, policy: Any) -> Any:
        return m.grad(m.checkpoint(m.numpy.sin, policy=policy))(1.0)

    wrong: list[Any] = [
        (ValueError, "static_argnums", lambda m: m.checkpoint(lambda x: x, static_argnums=3)(1.0)),
        (NotImplementedError, "concrete", lambda m: m.checkpoint(lambda x: x, concrete=True)(1.0)),
        (TypeError, "remat policy should be", lambda m: checkpointed(m, lambda *a, **k: "x")),
        (TypeError, "argument flag", lambda m: m.grad(m.checkpoint(lambda x, flag: x if flag else 2 * x))(1.0, True)),
        (ValueError, "policies", lambda m: checkpointed(m, mixed(m))),
        (ValueError, "exclusive", intersecting),
    ]
    for kind, words, run in wrong:
        for module in (weft, jax):
            with pytest.raises(kind, match=words):
                run(module)


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

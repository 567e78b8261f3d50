"""What ``vjp`` gives besides the result: a function that shows its residuals and lets them be replaced, as in JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as wnp

CAPTURED = np.arange(3, dtype=np.float32)


def layer(module: Any) -> Any:
    return lambda tree, x: module.numpy.tanh(tree["w"] @ x) * module.numpy.cos(tree["b"]) + tree["c"]


PROGRAMS: dict[str, Any] = {
    "layer": layer,
    "jitted": lambda module: module.jit(layer(module)),
    "sum": lambda module: lambda tree, x: x + tree["b"],
    "captured": lambda module: lambda tree, x: x * CAPTURED,
    "checkpoint": lambda module: module.checkpoint(layer(module)),
}


def residuals(module: Any, name: str) -> tuple[Any, list[Any], Any]:
    x = module.numpy.array([1.0, 2.0, 3.0])
    tree = {"w": module.numpy.eye(3) * 0.1, "b": x * 2, "c": x * 3}
    _, pullback = module.vjp(PROGRAMS[name](module), tree, x)
    return pullback.args_res, pullback.opaque_residuals, pullback(x)


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_and_other_residuals_are_apart_as_in_jax(name: str) -> None:
    found, expected = residuals(weft, name), residuals(jax, name)
    assert repr(found[0]) == repr(expected[0])
    others = [sorted([np.asarray(x).tolist() for x in result[1]]) for result in (found, expected)]
    np.testing.assert_allclose(*others, rtol=1e-6)
    for one, other in zip(weft.tree.leaves(found[2]), jax.tree.leaves(expected[2]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_replaced_arguments_are_what_the_pullback_reads(jitted: bool) -> None:
    x, y = wnp.arange(3.0), wnp.arange(3.0) + 1
    forward = lambda x, y: weft.vjp(lambda x, y: x * y, x, y)
    _, pullback = (weft.jit(forward) if jitted else forward)(x, y)
    kept, pullback.args_res = pullback.args_res, [None, None]
    with pytest.raises(TypeError, match="args_res has None where the pullback"):
        pullback(x)
    pullback.args_res = [kept[0] * 10, kept[1]]
    through = weft.jit(lambda pullback, ct: pullback(ct)) if jitted else lambda pullback, ct: pullback(ct)
    for found, expected in zip(through(pullback, y), (y * y, x * 10 * y), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_argument_that_is_captured_or_given_twice_is_not_mistaken() -> None:
    x = wnp.arange(3.0)
    for module in (jax, weft):
        one = module.numpy.arange(3.0)
        linear = module.linearize(lambda y: y * y, one)[1]
        for function in (lambda y, one=one: one * y, linear):  # what a function captured is an argument if it is one
            _, pullback = module.vjp(function, one)
            assert repr(pullback.args_res) == "[Array([0., 1., 2.], dtype=float32)]"
            assert pullback.opaque_residuals == []
        _, pullback = module.vjp(linear, one + 1)
        assert (repr(pullback.args_res), len(pullback.opaque_residuals)) == ("[NotNeeded()]", 1)
    _, pullback = weft.vjp(lambda y, z: y * z, x, x)
    pullback.args_res[0] = x + 1
    for found, expected in zip(pullback(x), (x * x, (x + 1) * x), strict=True):
        np.testing.assert_array_equal(found, expected)


class Strict:
    """A container that takes arrays alone."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = wnp.asarray(x), wnp.asarray(y)


weft.tree_util.register_pytree_node(Strict, lambda s: ((s.x, s.y), None), lambda _, items: Strict(*items))


def test_containers_of_the_users_are_made_of_arrays_alone() -> None:
    x = wnp.arange(3.0)
    _, pullback = weft.vjp(lambda s, z: s.x * z + s.y, Strict(x, x + 1), x)
    assert [type(leaf).__name__ for leaf in pullback.args_res[0]] == ["Array", "NotNeeded"]
    found = pullback(x)[0]
    np.testing.assert_array_equal(found.x, x * x)
    np.testing.assert_array_equal(weft.grad(lambda s: wnp.sum(s.x * 2))(Strict(x, x)).x, [2, 2, 2])


def test_arguments_may_be_nested_as_deep_as_elsewhere() -> None:
    tree: Any = wnp.ones(2)
    for _ in range(900):
        tree = [tree]
    _, pullback = weft.vjp(lambda tree: weft.tree.leaves(tree)[0] * 3, tree)
    assert weft.tree.leaves(pullback(wnp.ones(2)))[0].tolist() == [3, 3]


def test_residuals_of_another_structure_are_refused() -> None:
    x = wnp.arange(3.0)
    _, pullback = weft.vjp(lambda x: wnp.sin(x), x)
    pullback.opaque_residuals = []
    with pytest.raises(TypeError, match="1 opaque_residuals are needed, got 0"):
        pullback(x)
    _, pullback = weft.vjp(lambda x, y: x * y, x, x)
    pullback.args_res = [x]
    with pytest.raises(TypeError, match="structure of the arguments"):
        pullback(x)


def test_the_linear_program_is_shown() -> None:
    _, pullback = weft.vjp(lambda x: 2 * x, wnp.ones(3))
    assert str(pullback.jaxpr) == "{ lambda ; a:f32[3]. let b:f32[3] = mul 2.0:f32[] a in (b,) }"
    leaves, tree = weft.tree.flatten(pullback)
    assert leaves == [] and weft.tree.unflatten(tree, leaves)(wnp.ones(3))[0].tolist() == [2, 2, 2]

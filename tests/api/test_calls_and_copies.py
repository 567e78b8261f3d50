"""What ``jit`` and its kin accept and give back: copies, donation, annotations, prefixes, objects that hold arrays."""

from __future__ import annotations

import copy
import inspect
import typing
from typing import Any

import pytest

import weft
import weft.numpy as jnp
from weft import lax

X = jnp.arange(4.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.array(x), lambda x: jnp.array(x, copy=True), lambda x: x.copy(), jnp.copy, copy.copy,
        copy.deepcopy, weft.jit(lambda x: x), lambda x: weft.jit(lambda x: (x + 1, {"same": x}))(x)[1]["same"],
        lambda x: weft.jit(lambda: x)(), lambda x: weft.jit(jnp.copy)(x),
    ],
)  # fmt: skip
def test_copies_have_memory_of_their_own(function: Any) -> None:
    for _ in range(2):  # a first call, and one that is known
        made = function(X)
        assert made.tolist() == X.tolist() and made.unsafe_buffer_pointer() != X.unsafe_buffer_pointer()


def test_state_that_is_donated_stays_in_place() -> None:
    x = X + 0
    pointer = x.unsafe_buffer_pointer()
    assert weft.jit(lambda x: x, donate_argnums=0)(x).unsafe_buffer_pointer() == pointer and x.is_deleted()


def test_an_array_that_is_donated_may_not_be_used_twice() -> None:
    both = weft.jit(lambda a, b: (a + b, a - b), donate_argnums=(0, 1))
    first = weft.jit(lambda a, b: (a + b,), donate_argnums=0)
    for function in (both, first, both.lower(X, X).compile()):
        assert function(X + 0, X + 1)[0].tolist() == [1.0, 3.0, 5.0, 7.0]
        for _ in range(2):
            x = X + 0
            with pytest.raises(RuntimeError, match="donated in the same call"):
                function(x, x)
            assert not x.is_deleted() and x.tolist() == X.tolist()


def test_static_methods_are_refused() -> None:
    for transform in (weft.jit, weft.vmap, weft.grad):
        with pytest.raises(TypeError, match="staticmethod"):
            transform(staticmethod(lambda x: x))


def test_annotations_are_those_of_the_function() -> None:
    def f(x: int, y: float = 2) -> str:
        return x  # type: ignore[return-value] - its annotations are what is tested

    for transform in (weft.jit, weft.vmap, weft.grad, weft.value_and_grad, weft.jacfwd, weft.jacrev, weft.hessian):
        assert transform(f).__annotations__ == f.__annotations__
    assert typing.get_type_hints(weft.jit(f)) == {"x": int, "y": float, "return": str}
    assert weft.jit(lambda x: x).__annotations__ == {}  # pyright: ignore[reportFunctionMemberAccess]
    jitted: Any = weft.jit(f)
    jitted.__annotations__ = {"x": str}  # as ``functools.wraps`` does
    assert jitted.__annotations__ == {"x": str} and f.__annotations__["x"] == "int"
    del jitted.__annotations__
    del jitted.__annotations__  # nothing is left to go, as of a function
    assert jitted.__annotations__ == f.__annotations__
    annotate: Any = lambda _format: {"x": bytes}
    f.__annotate__ = annotate  # what Python has from 3.14 on, and ``functools.wraps`` copies there
    assert jitted.__annotate__ is annotate and "__annotate__" not in vars(jitted)
    assert "PjitFunction" in str(type(weft.jit(lambda x: x)))  # by which libraries find JAX's jitted functions
    for follow in (True, False):
        assert str(inspect.signature(weft.jit(lambda x, *, k=2: x), follow_wrapped=follow)) == "(x, *, k=2)"


def test_what_is_no_prefix_is_refused_by_device_put() -> None:
    device = weft.devices()[0]
    for options in (
        {"device": (device, device)}, {"device": {"a": device}}, {"device": [device] * 3}, {"src": (device,)},
        {"donate": {"a": True}}, {"may_alias": {"a": True}},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must be a tree prefix"):
            weft.device_put([X, 2.0], **options)
    with pytest.raises(ValueError, match="at the same time"):
        weft.device_put([X, 2.0], donate=True, may_alias=True)
    given = X + 0
    kept, gone = weft.device_put([X, given], [device, None], donate=[False, True])
    assert given.is_deleted() and not X.is_deleted() and kept.tolist() == gone.tolist()


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __jax_array__(self) -> Any:
        return self.held


def test_objects_that_hold_arrays() -> None:
    x = Holder(X)
    for made in (X * x, x_plus(X, x), jnp.sin(x), weft.jit(lambda y: y * x)(X), jnp.stack([x, x])[0], jnp.power(x, 2)):
        assert made.shape == (4,)
    assert (X * x).tolist() == [0.0, 1.0, 4.0, 9.0] and X.__eq__(x).tolist() == [True] * 4
    assert jnp.shape(x) == (4,) and jnp.reshape(x, (2, 2)).shape == (2, 2) and jnp.einsum("i,i", x, x).item() == 14.0
    assert jnp.zeros(4).at[0].set(Holder(jnp.array(7.0))).tolist() == [7.0, 0.0, 0.0, 0.0]
    for refused in (weft.jit(lambda y: y), lax.sin, weft.vmap(lambda y: y), weft.grad(jnp.sum), weft.typeof):
        with pytest.raises(ValueError, match="__jax_array__"):
            refused(x)


def x_plus(x: Any, y: Any) -> Any:
    return jnp.add(x, y)


def test_vmap_passes_on_what_is_not_mapped() -> None:
    assert weft.vmap(lambda x, word: x * len(word), in_axes=(0, None))(X, "abc").tolist() == [0.0, 3.0, 6.0, 9.0]
    apply = weft.jit(lambda x: weft.vmap(lambda x, f: f(x), in_axes=(0, None))(x, jnp.square))
    assert apply(X).tolist() == [0.0, 1.0, 4.0, 9.0]
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.vmap(lambda x, word: (x, word), in_axes=(0, None), out_axes=(0, None))(X, "abc")
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.vmap(lambda x, word: x)(X, "abc")


def test_axes_that_are_no_prefix() -> None:
    with pytest.raises(TypeError, match="in_axes must be an int, None, or a tuple"):
        weft.vmap(lambda x: x, in_axes={0: 0})
    with pytest.raises(ValueError, match="vmap in_axes specification must be a tree prefix"):
        weft.vmap(lambda x, y: x, in_axes=(0, [0]))(X, X)
    with pytest.raises(ValueError, match="vmap out_axes specification must be a tree prefix"):
        weft.vmap(lambda x: x, out_axes=(0, 0))(X)


def test_loops_of_single_elements_without_jit() -> None:
    with weft.disable_jit():
        grown = weft.vmap(lambda x: lax.while_loop(lambda c: c < 3.0, lambda c: c + x, x))(jnp.arange(1.0, 4.0))
        powers = weft.vmap(lambda n: lax.fori_loop(0, n, lambda i, c: c * 2, 1))(jnp.arange(3))
    assert grown.tolist() == [3.0, 4.0, 3.0] and powers.tolist() == [1, 2, 4]

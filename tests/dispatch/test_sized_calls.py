"""Calls of weft's own functions at other sizes: traced with symbols once, then neither traced nor compiled."""

from __future__ import annotations

import types

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, nn, random
from weft.compiler import pipeline
from weft.core.symbolic import sizes
from weft.dispatch.calls import sized_calls
from weft.dispatch.calls.jit_calls import JitState

KEY = random.key(3)
BORDERS = np.linspace(0, 1, 5)


def vector(n, seed=0):
    return np.random.default_rng(seed + n).uniform(0.1, 0.9, n).astype(np.float32)


def matrix(n, m=7):
    return vector(n * m).reshape(n, m)


CALLS = {
    "elements": (lambda n: jnp.logaddexp(vector(n), vector(n, 1)), lambda n: np.logaddexp(vector(n), vector(n, 1))),
    "mean": (lambda n: jnp.mean(matrix(n), axis=0), lambda n: matrix(n).mean(0)),
    "median": (lambda n: jnp.median(vector(n)), lambda n: np.median(vector(n))),
    "differences": (lambda n: jnp.diff(vector(n), n=2), lambda n: np.diff(vector(n), n=2)),
    "gradient": (lambda n: jnp.gradient(vector(n)), lambda n: np.gradient(vector(n))),
    "area": (lambda n: jnp.trapezoid(vector(n)), lambda n: np.trapezoid(vector(n))),
    "covariance": (lambda n: jnp.cov(matrix(n).T), lambda n: np.cov(matrix(n).T)),
    "bins": (lambda n: jnp.digitize(vector(n), BORDERS), lambda n: np.digitize(vector(n), BORDERS)),
    "spaces": (lambda n: jnp.linspace(0.0, 2.0, n), lambda n: np.linspace(0.0, 2.0, n)),
    "identity": (lambda n: jnp.eye(n, n + 3), lambda n: np.eye(n, n + 3)),
    "classes": (lambda n: nn.one_hot(np.arange(5), n), lambda n: np.eye(n)[:5]),
    "triangle": (lambda n: jnp.tril(matrix(n, n), -2), lambda n: np.tril(matrix(n, n), -2)),
    "powers": (lambda n: jnp.vander(vector(5), n)[:, -4:], lambda n: np.vander(vector(5), n)[:, -4:]),
    "order": (lambda n: jnp.lexsort((vector(n), vector(n) > 0.5)), lambda n: np.lexsort((vector(n), vector(n) > 0.5))),
    "norm": (lambda n: jnp.linalg.norm(matrix(n), axis=0), lambda n: np.linalg.norm(matrix(n), axis=0)),
    "pairs": (lambda n: jnp.stack([vector(n), vector(n, 1)]).T, lambda n: np.stack([vector(n), vector(n, 1)]).T),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_at_many_sizes(name):
    """All sizes in turn, small and large: each is NumPy's, whatever program gives it."""
    call, expected = CALLS[name]
    for n in (137, 139, 21, 22, 300, 150, 7, 138):
        np.testing.assert_allclose(call(n), expected(n), rtol=2e-5, atol=1e-6, err_msg=str(n))


@pytest.mark.parametrize("name", ["mean", "differences", "covariance", "spaces", "identity", "classes", "norm"])
def test_nothing_is_traced_or_compiled_at_other_sizes(name, monkeypatch):
    call, _ = CALLS[name]
    with weft.config.context("check", False):
        weft.clear_caches()
        call(1001)
        monkeypatch.setattr(pipeline, "compile_new", None)
        monkeypatch.setattr(JitState, "trace_anew", None)
        call(1003)


def test_a_number_that_equals_an_extent_by_chance():
    for n, classes in [(20, 20), (21, 20), (20, 21), (33, 33), (33, 34)]:
        labels = np.arange(n) % classes
        np.testing.assert_array_equal(nn.one_hot(labels, classes), np.eye(classes, dtype=np.float32)[labels])
        np.testing.assert_array_equal(jnp.full((n,), classes), np.full((n,), classes))
        np.testing.assert_array_equal(jnp.arange(n, n + classes), np.arange(n, n + classes))
        np.testing.assert_array_equal(jnp.resize(vector(n), (classes, 2)), np.resize(vector(n), (classes, 2)))


@pytest.mark.parametrize("exponents", [(21, 22, 35), (35, 22, 21)])
def test_a_number_that_machine_code_is_made_of(exponents):
    for n in exponents:
        np.testing.assert_allclose(jnp.power(np.float64(1.1), n), 1.1**n, rtol=1e-5)
        np.testing.assert_allclose(lax.integer_pow(vector(n), n), vector(n).astype(np.float64) ** n, rtol=1e-4)


def test_equal_programs_of_two_functions():
    """An equal program that another function has compiled has guards of its own."""
    for n in (21, 26, 35):
        expected = np.tile(random.key_data(KEY), (n, 1))
        np.testing.assert_array_equal(random.key_data(jnp.resize(KEY, (n,))), expected)
        np.testing.assert_array_equal(random.key_data(jnp.tile(KEY, (n,))), expected)


def test_a_function_that_takes_no_symbols_is_given_numbers(monkeypatch):
    """While one without them works; what the user sees is the plain function's error."""

    def fails(*_):
        raise NotImplementedError("symbols")

    monkeypatch.setattr(sized_calls, "with_symbols", fails)
    with weft.config.context("check", False):
        weft.clear_caches()
        with pytest.warns(UserWarning, match=r"anew for each size .*symbols"):
            found = jnp.median(vector(50))
        for n in (51, 52):
            with pytest.warns(UserWarning, match="symbols"):
                np.testing.assert_allclose(jnp.median(vector(n)), np.median(vector(n)), rtol=1e-6)
        np.testing.assert_allclose(found, np.median(vector(50)), rtol=1e-6)
    with weft.config.context("check", True), pytest.raises(NotImplementedError, match="symbols"):
        jnp.median(vector(53))
    with pytest.raises(TypeError, match=r"incompatible shapes|broadcast"):
        jnp.logaddexp(vector(50), vector(51))


@weft.tree_util.register_pytree_node_class
class Shaped:
    """An array, and its shape as a part of the structure."""

    def __init__(self, array, shape):
        self.array, self.shape = array, shape

    def tree_flatten(self):
        return (self.array,), self.shape

    @classmethod
    def tree_unflatten(cls, shape, leaves):
        return cls(*leaves, shape)


def test_structures_with_sizes_in_them():
    own = types.FunctionType((lambda x: Shaped(x + 1, x.shape)).__code__, {"__name__": "weft.own", "Shaped": Shaped})
    shaped = weft.jit(own)
    for n in (20, 25, 31):
        found = shaped(vector(n))
        assert found.shape == (n,) == found.array.shape and type(found.shape[0]) is int


def test_sizes_of_two_compilations():
    """A size of an earlier compilation is a number, which the other one notes."""
    old, new = sizes.Guards([300], 1), sizes.Guards([300], 1)
    n, m = old.free[0], new.free[0]
    old.close()
    assert n == m and {n: 1}[m] == 1 and not n < m and n + m == 600 and (n - m) * 2 == 0
    new.close()
    assert new.at([300]) is not None and new.at([301]) is None

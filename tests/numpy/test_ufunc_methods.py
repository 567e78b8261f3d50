"""weft.numpy.add and its kin are ufuncs: attributes and methods, against NumPy's."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

NAMES = [
    "add",
    "multiply",
    "subtract",
    "maximum",
    "minimum",
    "logaddexp",
    "logaddexp2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "logical_and",
    "logical_or",
    "logical_xor",
]
FLOATS = np.float32([[0.5, -2, 3], [4, 0.25, -1]])
INTEGERS = np.int32([[1, 6, 3], [-4, 5, 12]])


def operand(name: str) -> np.ndarray:
    return INTEGERS if name.startswith(("bitwise", "logical")) else FLOATS


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.oracle
def test_the_functions_that_are_ufuncs_are_those_of_jax() -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    theirs = {name for name in dir(jax_numpy) if isinstance(getattr(jax_numpy, name), jax_numpy.ufunc)}
    assert {name for name in dir(jnp) if isinstance(getattr(jnp, name), jnp.ufunc)} == theirs
    for name in theirs:
        own, other = getattr(jnp, name), getattr(jax_numpy, name)
        assert (own.nin, own.nout, own.nargs) == (other.nin, other.nout, other.nargs)
        assert own.identity == other.identity and type(own.identity) is type(other.identity)


def test_jitted_functions_of_ufuncs_are_none() -> None:
    assert not isinstance(weft.jit(jnp.add), jnp.ufunc) and not isinstance(jnp.sin, jnp.ufunc)
    assert pickle.loads(pickle.dumps(jnp.add)) is jnp.add


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, -1])
def test_methods_along_an_axis_are_those_of_numpy(name: str, axis: int) -> None:
    own, theirs, a = getattr(jnp, name), getattr(np, name), operand(name)
    close(own.reduce(a, axis=axis), theirs.reduce(a, axis=axis))
    close(own.reduce(a, axis=axis, keepdims=True), theirs.reduce(a, axis=axis, keepdims=True))
    close(own.accumulate(a, axis), theirs.accumulate(a, axis))
    close(own.reduceat(a, np.array([0, 1]), axis), theirs.reduceat(a, [0, 1], axis))
    close(weft.jit(own.outer)(a, a[0]), theirs.outer(a, a[0]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "subtract"])
def test_reductions_take_a_mask_a_start_and_all_axes(name: str) -> None:
    own, theirs, a = getattr(jnp, name), getattr(np, name), operand(name)
    mask, start = a > 0, 1 if name.startswith("logical") else 3
    close(own.reduce(a, None, keepdims=True), theirs.reduce(a, None, keepdims=True))
    close(own.reduce(a, (0, 1), initial=start), theirs.reduce(a, (0, 1), initial=start))
    close(own.reduce(a, 1, initial=start, where=mask), theirs.reduce(a, 1, initial=start, where=mask))


def test_dtypes_of_reductions() -> None:
    assert jnp.add.reduce(np.int8([100, 100])).dtype == np.int32
    assert jnp.maximum.reduce(INTEGERS, dtype=np.float32).dtype == np.float32
    assert jnp.logical_or.reduce(INTEGERS).dtype == np.bool_
    assert jnp.add.accumulate(INTEGERS, dtype=np.float32).dtype == np.float32
    assert jnp.logaddexp.reduceat(INTEGERS, np.array([0, 1])).dtype == np.float32
    assert jnp.sum(INTEGERS, dtype=bool, initial=0).item() is True
    assert jnp.prod(np.array([0, 1]), dtype=bool, initial=1).item() is False


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "logical_xor", "bitwise_or"])
@pytest.mark.parametrize(
    "index",
    [
        1,
        np.array([0, 0, 1]),
        (np.array([0, 0]), np.array([1, 1])),
        (slice(None), np.array([2, 2])),
        (Ellipsis, -1),
        np.array([[True, False, True], [False, False, True]]),
        (np.array([[0], [1]]), np.array([0, 0])),
    ],
    ids=["int", "rows", "pairs", "columns", "ellipsis", "mask", "grid"],
)
def test_at_applies_once_for_each_index(name: str, index: Any) -> None:
    a = operand(name)
    expected = a.astype(bool) if name.startswith("logical") else a.copy()
    value = np.asarray(3, a.dtype)
    getattr(np, name).at(expected, index, value)
    close(getattr(jnp, name).at(a, index, value, inplace=False), expected)


def test_at_of_one_operand_and_past_the_end() -> None:
    assert jnp.negative.at(FLOATS, np.array([0, 0, 1]), inplace=False)[1].tolist() == [-4, -0.25, 1]
    assert jnp.maximum.at(INTEGERS, np.array([7, -1]), 9, inplace=False).tolist() == [[1, 6, 3], [9, 9, 12]]


def test_derivatives_of_methods() -> None:
    x = np.float32([0.5, 2, 3])
    close(weft.grad(jnp.multiply.reduce)(x), [6, 1.5, 1])
    close(weft.grad(jnp.logaddexp.reduce)(x), np.exp(x) / np.exp(x).sum())
    close(weft.grad(lambda v: jnp.maximum.accumulate(v).sum())(x[::-1].copy()), [3, 0, 0])


@pytest.mark.oracle
@pytest.mark.parametrize("name", [*NAMES, "negative"])
def test_calls_refuse_to_write_to_an_array_as_in_jax(name: str) -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    operands = [np.int32(1)] * getattr(jnp, name).nin
    for option, value in (("out", np.zeros((), np.int32)), ("where", True)):
        text = f"{option} argument of <jnp.ufunc '{name}'>"
        for module in (jnp, jax_numpy):
            with pytest.raises(NotImplementedError, match=text):
                getattr(module, name)(*operands, **{option: value})
        assert getattr(jnp, name)(*operands, **{option: None}) == getattr(jnp, name)(*operands)


def test_wrong_use() -> None:
    with pytest.raises(NotImplementedError, match="inplace=False"):
        jnp.add.at(FLOATS, 0, 1)
    with pytest.raises(ValueError, match="does not have an identity"):
        jnp.maximum.reduce(FLOATS, where=FLOATS > 0)
    with pytest.raises(ValueError, match="only supported for binary ufuncs"):
        jnp.negative.reduce(FLOATS)
    with pytest.raises(ValueError, match="integer argument required; got dtype=float32"):
        jnp.bitwise_or.reduce(FLOATS)
    with pytest.raises(NotImplementedError, match="a tuple of axes"):
        jnp.subtract.reduce(FLOATS, axis=(0, 1))


@pytest.mark.parametrize("name", ["nin", "nout", "nargs", "identity"])
def test_attributes_of_a_ufunc_cannot_be_set(name: str) -> None:
    made = jnp.frompyfunc(lambda x, y: x + y, 2, 1, identity=0)
    assert (made.nin, made.nout, made.nargs, made.identity) == (2, 1, 2, 0)
    with pytest.raises(AttributeError):  # as those of NumPy's
        setattr(made, name, 1)

"""Axes that cannot be: the class of error that JAX raises, in words that name the argument and its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.numpy as wnp

X = np.ones((2, 3, 4), np.float32)
POSITIONAL = {
    "cumsum": lambda a: wnp.cumsum(X, axis=a),
    "cumprod": lambda a: wnp.cumprod(X, axis=a),
    "nancumsum": lambda a: wnp.nancumsum(X, axis=a),
    "flip": lambda a: wnp.flip(X, axis=a),
    "average": lambda a: wnp.average(X, axis=a),
    "nanargmax": lambda a: wnp.nanargmax(X, axis=a),
    "norm": lambda a: wnp.linalg.norm(X, axis=a),
    "sum": lambda a: wnp.sum(X, axis=a),
}


CASES = [(name, axis) for name in POSITIONAL for axis in ("x", 1.5, (1.5,), 1j)]


@pytest.mark.parametrize(
    ("name", "axis"), [case for case in CASES if case != ("sum", "x")]
)  # a reduction's may be named
def test_what_is_no_axis_is_a_type_error_that_shows_it(name: str, axis: Any) -> None:
    with pytest.raises(TypeError, match="axis must be None, an integer or a tuple of integers, got") as info:
        POSITIONAL[name](axis)
    assert str(info.value).endswith(repr(axis))


@pytest.mark.parametrize("axis", ["x", ("x",), (0, "x")])
def test_named_axes_of_reductions_are_unbound_or_not_implemented(axis: Any) -> None:
    for f in (wnp.sum, wnp.max, wnp.mean, wnp.var, wnp.nanmean, wnp.ptp, wnp.count_nonzero):
        with pytest.raises(NameError, match="unbound axis name: x"):
            f(X, axis=axis)
    for f, name in ((wnp.prod, "prod"), (wnp.all, "all"), (wnp.any, "any"), (wnp.nanprod, "prod")):
        with pytest.raises(NotImplementedError, match=f"Named reductions not implemented for jnp.{name}"):
            f(X, axis=axis)


def test_axes_may_repeat_where_each_is_a_step_of_its_own() -> None:
    np.testing.assert_array_equal(wnp.roll(X, (1, 2), axis=(0, 0)), np.roll(X, (1, 2), axis=(0, 0)))
    first, second = wnp.gradient(X, axis=(1, -2))
    np.testing.assert_array_equal(first, second)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "flip": (lambda: wnp.flip(X, axis=(0, -3)), TypeError, r"must be unique, got \(0, 0\)"),
    "sum": (lambda: wnp.sum(X, axis=(0, -3)), ValueError, r"duplicate value in 'axis': \(0, -3\)"),
    "unique, several": (lambda: wnp.unique(X, axis=(0, 1)), TypeError, "integer"),  # type: ignore[arg-type]  # on purpose
    "unique, out of bounds": (lambda: wnp.unique(X, axis=7), ValueError, "axis 7 is out of bounds"),
    "tensordot": (lambda: wnp.tensordot(X, X, axes=[0]), TypeError, r"tensordot axes .* got \[0\]"),
    "put_along_axis": (
        lambda: wnp.put_along_axis(X, np.zeros((2, 3, 4), int), 1.0, axis=None, inplace=False),
        ValueError,
        r"1 dimensions, but indices have shape \(2, 3, 4\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_repeated_and_misplaced_axes_are_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()

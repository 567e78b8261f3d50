"""The factors of equations: which dimensions are the same, and which of them devices may share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.core.primitive import registry
from weft.core.sharding.factors import WHOLE, Draft
from weft.partitioning import rules


def factors(function: Any, *shapes: tuple[int, ...]) -> Any:
    (eqn,) = weft.make_jaxpr(function)(*[np.ones(shape, np.float32) for shape in shapes]).eqns
    return rules.factors(eqn)


@pytest.mark.parametrize(
    ("old", "new", "left", "right"),
    [
        ((6, 4), (2, 3, 4), [(0, 1), 2], [0, 1, 2]),
        ((6, 4), (24,), [0, 1], [(0, 1)]),
        ((4, 1, 3), (4, 3), [0, WHOLE, 1], [0, 1]),
        ((4, 9), (6, 6), [(0, WHOLE), WHOLE], [(0, WHOLE), WHOLE]),
        ((4, 6, 5), (6, 4, 5), [(0, WHOLE), WHOLE, 1], [(0, WHOLE), WHOLE, 1]),
        ((8, 3), (2, 12), [(0, 1), 2], [0, (1, 2)]),
        ((3,), (3, 1, 1), [0], [0, WHOLE, WHOLE]),
        ((), (1, 1), [], [WHOLE, WHOLE]),
        ((5, 7), (7, 5), [WHOLE, WHOLE], [WHOLE, WHOLE]),
    ],
)
def test_reshapes(old: Any, new: Any, left: Any, right: Any) -> None:
    assert rules.split_or_joined(old, new, Draft()) == (left, right)


def test_factors_of_a_reshape_are_the_same_elements() -> None:
    """Half of a factor of both shapes: the same elements of the array."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        parts = rng.integers(1, 5, 4).tolist()
        old = [parts[0] * parts[1], parts[2], parts[3]]
        new = (
            [parts[0], parts[1] * parts[2], parts[3]]
            if rng.random() < 0.5
            else [parts[2] * parts[3], parts[0] * parts[1]]
        )
        draft = Draft()
        dims = rules.split_or_joined(tuple(old), tuple(new), draft)
        array = np.arange(np.prod(old))
        for factor, extent in enumerate(draft.extents):
            digits = [
                digit_of(factor, shape, found, draft.extents) for shape, found in zip((old, new), dims, strict=True)
            ]
            assert extent > 1
            left, right = (digit(array.reshape(shape)).ravel() for digit, shape in zip(digits, (old, new), strict=True))
            assert np.array_equal(left, right)


def digit_of(factor: int, shape: Any, dims: Any, extents: Any) -> Any:
    """For every element of an array, its index along a factor."""

    def run(array: np.ndarray) -> np.ndarray:
        for axis, dim in enumerate(dims):
            group = dim if isinstance(dim, tuple) else (dim,)
            if factor in group:
                before = int(np.prod([extents[f] for f in group[: group.index(factor) + 1]]))
                digit = np.arange(shape[axis]) // (shape[axis] // before) % extents[factor]
                return np.broadcast_to(digit.reshape([-1 if d == axis else 1 for d in range(array.ndim)]), array.shape)
        raise AssertionError(f"factor {factor} is not in {dims}")

    return run


def test_products_sum_over_a_factor() -> None:
    found = factors(lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), (4, 8, 3), (4, 3, 5))
    assert found.operands == ((0, 1, 2), (0, 2, 3)) and found.results == ((0, 1, 3),)
    assert found.reduced == {2: "sum"} and not found.passes


@pytest.mark.parametrize(
    ("function", "combiner"),
    [
        (lambda x: lax.reduce_sum(x, (0,)), "sum"), (lambda x: lax.reduce_max(x, (0,)), "max"),
        (lambda x: lax.reduce_min(x, (0,)), "min"), (lambda x: lax.reduce_prod(x, (0,)), "again"),
    ],
)  # fmt: skip
def test_reductions_say_how_parts_combine(function: Any, combiner: str) -> None:
    found = factors(function, (4, 8))
    assert found.operands == ((0, 1),) and found.results == ((1,),) and found.reduced == {0: combiner}


def test_what_needs_all_of_a_dimension_says_so() -> None:
    assert factors(lambda x: lax.cumsum(x, 1), (4, 8)).operands == ((0, WHOLE),)
    assert factors(lambda x: lax.sort(x, dimension=0), (4, 8)).operands == ((WHOLE, 0),)
    assert factors(lambda x: lax.argmax(x, 1, np.int32), (4, 8)).operands == ((0, WHOLE),)
    assert factors(lambda x: lax.slice(x, (0, 2), (4, 5)), (4, 8)).results == ((0, WHOLE),)
    assert factors(lambda x: lax.rev(x, (1,)), (4, 8)).results == ((0, WHOLE),)
    assert factors(lambda a, b: lax.concatenate([a, b], 1), (4, 8), (4, 3)).operands == ((0, WHOLE), (0, WHOLE))
    assert factors(lambda x: jnp.linalg.cholesky(x, symmetrize_input=False), (5, 4, 4)).operands[0][1:] == (
        WHOLE,
        WHOLE,
    )


def test_convolutions_share_examples_and_features() -> None:
    found = factors(lambda a, w: lax.conv(a, w, (1, 1), "SAME"), (8, 3, 6, 6), (4, 3, 3, 3))
    assert found.operands == ((0, 1, WHOLE, WHOLE), (2, 1, WHOLE, WHOLE)) and found.reduced == {1: "sum"}
    assert found.results == ((0, 2, WHOLE, WHOLE),)


def test_operations_with_extents_in_parameters_say_which() -> None:
    """A parameter that repeats the shape of the result would be wrong on a shard."""
    for name in ("broadcast_in_dim", "reshape", "iota", "slice", "dynamic_slice", "gather"):
        assert registry[name].extents is not None, name


def test_every_equation_has_factors() -> None:
    """Nothing raises and nothing is left out: what is not known is whole."""

    def function(x: Any) -> Any:
        weft.debug.callback(lambda v: None, x)
        return weft.pure_callback(lambda v: v, weft.ShapeDtypeStruct((4, 8), np.float32), x)

    for eqn in weft.make_jaxpr(function)(np.ones((4, 8), np.float32)).eqns:
        found = rules.factors(eqn)
        assert all(dim == WHOLE for dims in found.operands for dim in dims)

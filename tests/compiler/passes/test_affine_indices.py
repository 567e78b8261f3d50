"""Integer arrays that the program itself tells: each component recognised is what NumPy makes of the same program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.passes import affine_indices, pass_list
from weft.core.index_maps import CONSTANT
from weft.core.programs import rewrite

Y = np.array([[2, 0, 1], [1, 1, 5]], np.int32)


def stacked(*columns: Any) -> Any:
    return jnp.stack(jnp.broadcast_arrays(*columns), -1)


VECTORS: dict[str, tuple[Callable[[Any], Any], list[bool]]] = {
    "rows and a value": (lambda y: stacked(jnp.arange(2)[:, None], y), [True, False]),
    "columns": (lambda y: stacked(y, jnp.arange(3)[None], y), [False, True, False]),
    "constants": (lambda y: jnp.stack([jnp.int32(3), jnp.int32(5)]) + 0 * y[0, 0], [False, False]),
    "backwards and by steps": (
        lambda y: stacked(jnp.arange(2)[::-1, None], jnp.arange(9)[1:7:2], y),
        [True, True, False],
    ),
    "counted along the vectors": (lambda y: lax.iota(np.int32, 4), [True] * 4),
    "not negative": (
        lambda y: stacked(*[jnp.where(i < 0, i + 9, i) for i in [jnp.arange(2)[:, None], y]]),
        [True, False],
    ),
    "narrow": (lambda y: stacked(jnp.arange(2).astype(np.int8)[:, None], y.astype(np.int8)), [True, False]),
    "too narrow": (lambda y: jnp.arange(300).astype(np.int8)[:, None], [False]),
    "floats": (lambda y: jnp.arange(3.0)[:, None], [False]),
}


@pytest.mark.parametrize("name", VECTORS)
def test_what_is_recognised_is_what_numpy_makes(name: str) -> None:
    function, recognised = VECTORS[name]
    closed = pass_list.simplified(ladder.traced(lambda y: [function(y)], (Y,)))
    (expected,) = ladder.by_reference(closed, (Y,))
    (indices,) = closed.jaxpr.outvars
    found = affine_indices.components(indices, rewrite.index(closed.jaxpr).makers)
    assert [index is not None for index in found] == recognised
    positions = np.indices(expected.shape[:-1])
    for k, index in enumerate(found):
        if index is not None:
            along = 0 if index.axis == CONSTANT else positions[index.axis]
            np.testing.assert_array_equal(
                index.start + index.step * along, np.broadcast_to(expected[..., k], expected.shape[:-1])
            )


def test_a_wrapped_count_is_not_taken_for_one() -> None:
    closed = pass_list.simplified(ladder.traced(lambda y: [jnp.arange(130).astype(np.int8)], (Y,)))
    (counted,) = closed.jaxpr.outvars
    assert affine_indices.affine(counted, rewrite.index(closed.jaxpr).makers) is None

"""What einsum sums in, and in what order: the programs of JAX, for random operands of mixed dtypes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

EXTENTS = dict(zip("abcde", (2, 3, 1, 4, 2), strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(30))
def test_programs_of_mixed_dtypes_are_those_of_jax(seed: int) -> None:
    jax = pytest.importorskip("jax")
    draw = random.Random(seed)
    inputs = ["".join(draw.choices("abcde", k=draw.randint(0, 3))) for _ in range(draw.randint(1, 3))]
    names = sorted(set("".join(inputs)))
    text = ",".join(inputs) + "->" + "".join(draw.sample(names, draw.randint(0, len(names))))
    dtypes = [draw.choice(["f4", "i4", "u1", "?", "c8", "f2"]) for _ in inputs]
    operands = [np.ones([EXTENTS[name] for name in part], dtype) for part, dtype in zip(inputs, dtypes, strict=True)]
    preferred = draw.choice([None, None, np.float32, np.int32])

    def program(package: Any, numpy: Any) -> str:
        def contract(*operands: object) -> object:
            return numpy.einsum(text, *operands, preferred_element_type=preferred)

        return str(package.make_jaxpr(contract)(*operands))

    assert program(weft, jnp) == program(jax, jax.numpy)


def test_small_integers_are_summed_in_the_type_of_the_result() -> None:
    large, ones = np.full(300, 200, np.uint8), np.ones(2, np.float32)
    assert jnp.einsum("i,j->", large, ones).item() == 120000.0
    assert jnp.einsum("i->", np.array([False, True, True])).item() is True

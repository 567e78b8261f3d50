"""Result types (dtype, shape, weakness) of weft.numpy and weft.lax over weak and strong operands are JAX's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft

OPERANDS = [
    (1.0,), (2,), (True,), (1j,), (1.0, 2.0), (1, 2), (True, False), (2, 2.0), ("weak",), ("weak", 2), ("weak", "weak"),
    (np.float32(1), 2.0), (np.ones(3, np.float16), 2.0), (np.arange(3), 1.5), (np.arange(3, dtype=np.int8), 3),
    (np.ones((2, 2), np.bool_),), (True, 1.0, 2.0), (1.0, 2.0, 3.0),
]  # fmt: skip
# random_gamma_grad is one primitive here; a loop there, whose carried values make a result of rank 1 or more strong;
# a token has no dtype
OTHERWISE = {"random_gamma_grad", "create_token"}


def _names() -> Iterator[str]:
    for module in ("lax", "numpy"):
        theirs, ours = getattr(jax, module), getattr(weft, module)
        for name in sorted(dir(theirs)):
            function = getattr(theirs, name)
            if name.islower() and callable(function) and not isinstance(function, type) and hasattr(ours, name):
                yield f"{module}.{name}"


def _types(library: Any, path: str, operands: tuple[Any, ...]) -> Any:
    module, name = path.split(".")
    args = [library.lax.full((3,), 3.0) if isinstance(x, str) else x for x in operands]
    try:
        made = library.make_jaxpr(getattr(getattr(library, module), name))(*args)
    except Exception as error:
        return error
    return [(str(aval.dtype), aval.shape, aval.weak_type) for aval in made.out_avals]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("letter", "abcdefghijklmnopqrstuvwxz")
def test_result_types(letter: str) -> None:
    for path in (path for path in _names() if path.split(".")[1][0] == letter and path.split(".")[1] not in OTHERWISE):
        for operands in OPERANDS:
            expected = _types(jax, path, operands)
            if isinstance(expected, Exception):
                continue
            found = _types(weft, path, operands)
            if not isinstance(found, NotImplementedError):
                assert found == expected, (path, operands)

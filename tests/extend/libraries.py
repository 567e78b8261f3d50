"""JAX and weft with the modules that libraries are built on, so that one source can be run with either."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

MODULES = (
    "numpy", "lax", "core", "api_util", "custom_derivatives", "tree_util", "extend.core", "extend.core.primitives",
    "extend.linear_util", "extend.source_info_util", "interpreters.ad", "interpreters.batching", "interpreters.mlir",
    "interpreters.partial_eval", "interpreters.xla", "interpreters.pxla",
)  # fmt: skip


def load(name: str) -> Any:
    library = importlib.import_module(name)
    for module in MODULES:
        importlib.import_module(f"{name}.{module}")
    return library


JAX, WEFT = load("jax"), load("weft")


def plain(value: Any) -> Any:
    """Arrays as NumPy arrays, also inside containers."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return np.asarray(value) if hasattr(value, "dtype") and hasattr(value, "shape") else value


def check_equal(found: Any, expected: Any, where: str = "result") -> None:
    assert type(found) is type(expected), (where, found, expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            check_equal(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, list):
        assert len(found) == len(expected), (where, found, expected)
        for index, pair in enumerate(zip(found, expected, strict=True)):
            check_equal(*pair, f"{where}[{index}]")
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (where, found, expected)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6, err_msg=where)
    else:
        assert found == expected, (where, found, expected)


def same_with_both(program: Callable[[Any], Any]) -> Any:
    """What ``program(library)`` gives with weft, after a comparison with what it gives with JAX."""
    found, expected = plain(program(WEFT)), plain(program(JAX))
    check_equal(found, expected)
    return found

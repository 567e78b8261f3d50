"""Samples of reductions of windows: programs that are compared with the oracle's, and calls that must raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

X = (np.arange(12, dtype=np.float32) * 5 % 12).reshape(3, 4)  # all different: selections have derivatives
J = np.arange(12, dtype=np.int32).reshape(3, 4)
C = (X + 1j * X[::-1]).astype(np.complex64)
H = X.astype(ml_dtypes.bfloat16)
B = X > 2
W = np.array([[1, 4, 2], [3, 4, 0]], np.float32)


def _maximum(*windows: Any, **more: Any) -> Callable[..., Any]:
    return lambda lax, x: lax.reduce_window(x, -np.inf, lax.max, *windows, **more)


def _sum(*windows: Any, **more: Any) -> Callable[..., Any]:
    return lambda lax, x: lax.reduce_window(x, np.zeros((), x.dtype)[()], lax.add, *windows, **more)


def _selected(name: str, select: str, **more: Any) -> Callable[..., Any]:
    def run(lax: Any, x: Any, y: Any) -> Any:
        params = {"window_dimensions": (2, 2), "window_strides": (1, 2), "padding": ((0, 0), (1, 0)), **more}
        return getattr(lax, f"{name}_p").bind(x, y, select_prim=getattr(lax, select), **params)

    return run


ONES = {"base_dilation": (1, 1), "window_dilation": (1, 1)}
PROGRAMS: dict[str, list[Any]] = {
    "reduce_window_max": [
        (_maximum((2, 2)), (X,)),
        (_maximum((2, 3), (1, 2), "SAME"), (X,)),
        (_maximum((2, 3), (1, 2), "SAME_LOWER", (1, 2), (2, 1)), (X,)),
        (lambda lax, x: lax.reduce_window(x, np.iinfo(np.int32).min, lax.max, (2, 1)), (J,)),
        (lambda lax, x: lax.reduce_window(x, False, lax.max, (2, 1)), (B,)),
        (lambda lax, x: lax.reduce_window(x, np.asarray(-np.inf, x.dtype)[()], lax.max, (2, 1)), (H,)),
        (_maximum((2, 2), None, ((0, 0), (-6, 0))), (X,)),
    ],
    "reduce_window_min": [
        (lambda lax, x: lax.reduce_window(x, np.inf, lax.min, (2, 2), (2, 1), ((1, 0), (-1, 1))), (X,)),
        (lambda lax, x: lax.reduce_window(x, np.iinfo(np.int32).max, lax.min, (2, 1)), (J,)),
    ],
    "reduce_window_sum": [
        (_sum((2, 2), (2, 1), "SAME"), (X,)),
        (_sum((2, 2), (2, 1), ((1, 1), (2, -1)), (2, 1), (1, 2)), (X,)),
        (_sum((2, 2), (1, 1), "same"), (J,)),
        (_sum((2, 2)), (C,)),
        (_sum((2, 2)), (H,)),
        (_sum((2, 2), padding=((1, 1), (1, 1))), (X[:0],)),
        (_sum((5, 2)), (X,)),
        (_sum(()), (X[0, 0],)),
    ],
    "reduce_window": [
        (lambda lax, x: lax.reduce_window(x, 1.0, lax.add, (2, 2), (1, 1), "SAME"), (X,)),
        (lambda lax, x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), None, ((1, 0), (0, 1)), (1, 2)), (X,)),
        (lambda lax, x: lax.reduce_window(x, True, lax.bitwise_and, (2, 2)), (B,)),
        (lambda lax, x: lax.reduce_window(x, 0, lax.bitwise_or, (1, 2)), (J,)),
        (lambda lax, x: lax.reduce_window(x, 0.0, lambda a, b: lax.max(a, lax.neg(b)), (2, 2)), (X - 5.5,)),
        (
            lambda lax, x, i: lax.reduce_window(
                (x, i), (0.0, 0), lambda a, b: (lax.max(a[0], b[0]), lax.add(a[1], b[1])), (2, 2), (1, 1), "SAME"
            ),
            (X, J),
        ),
    ],
    "select_and_gather_add": [
        (_selected("select_and_gather_add", "ge_p", **ONES), (J.astype(np.float32), X)),
        (_selected("select_and_gather_add", "le_p", base_dilation=(2, 1), window_dilation=(1, 2)), (X[::-1], X)),
    ],
    "select_and_scatter_add": [
        (_selected("select_and_scatter_add", "ge_p"), (X[:2, :2] + 1, X)),
        (_selected("select_and_scatter_add", "le_p", padding=((0, 0), (1, 1))), (W, X)),
        (_selected("select_and_scatter_add", "ge_p", window_strides=(2, 2), padding=((0, 0), (0, 0))),
         (X[:1, :2] + 1, X)),
    ],
}  # fmt: skip

ERRORS: list[Any] = [
    (_sum((2,), (1, 1), "SAME"), (X,)),
    (_sum((2,), (1,), ((0, 0),)), (X,)),
    (_sum((2, -1)), (X,)),
    (_sum((2, 0), (1, 1), "SAME"), (X,)),
    (_sum((2, 2), (1, 0)), (X,)),
    (_sum((2, 2), (1,)), (X,)),
    (_sum((2, 2), None, ((0, 0),)), (X,)),
    (_sum((2, 2), (1, 1), "full"), (X,)),
    (_sum((2, 2), None, "VALID", (0, 1)), (X,)),
    (_sum((2, 2), None, "VALID", (1,)), (X,)),
    (_sum((2, 2), None, "VALID", None, (0, 1)), (X,)),
    (_sum((2, 2)), (B,)),
    (_sum((2.5, 2)), (X,)),
    (lambda lax, x: lax.reduce_window(x, np.int32(1), lax.max, (2, 2)), (X,)),
    (lambda lax, x: lax.reduce_window(x, np.zeros(3, np.float32), lax.add, (2, 2)), (X,)),
    (lambda lax, x: lax.reduce_window((), (), lax.add, (2, 2)), (X,)),
    (lambda lax, x: lax.reduce_window((x, x), 0.0, lax.add, (2, 2)), (X,)),
    (lambda lax, x: lax.reduce_window((x, x), (0.0, 0.0), lambda a, b: a[0], (2, 2)), (X,)),
    (lambda lax, x: lax.reduce_window_shape_tuple((3, 4), (2, 2), (1, 1), ((0, 0), (0, 0)), (0, 1)), (X,)),
]

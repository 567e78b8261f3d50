"""The emitter protocol in NumPy, with which interpreters run the combiners of reductions and scans.

Values are arrays. Only what combiners use is here, with the semantics of ``core.emit``; whole operations have NumPy
references of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.primitive import registry

_PRIMITIVES = {
    "div": "div", "rem": "rem", "neg": "neg", "abs": "abs", "sign": "sign", "max": "max", "min": "min",
    "pow": "pow", "not_": "not", "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "population_count": "population_count", "clz": "clz",
    "floor": "floor", "ceil": "ceil", "is_finite": "is_finite", "nextafter": "nextafter", "real": "real",
    "imag": "imag", "conj": "conj",
}  # fmt: skip


def _reference(name: str) -> Callable[..., Any]:
    """NumPy's function for an elementwise primitive."""
    kind = registry[name].kind
    assert isinstance(kind, kinds.Elementwise), name
    return kind.reference


class NumpyEmit:
    """Scalar expressions over arrays."""

    def const(self, value: Any, dtype: Any) -> np.ndarray:
        return np.asarray(value, np.dtype(dtype))

    def convert(self, x: Any, dtype: Any) -> np.ndarray:
        return np.asarray(x).astype(np.dtype(dtype))

    def bitcast(self, x: Any, dtype: Any) -> np.ndarray:
        return np.asarray(x).view(np.dtype(dtype))

    def add(self, x: Any, y: Any) -> Any:
        return np.add(x, y)

    def sub(self, x: Any, y: Any) -> Any:
        return np.subtract(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return np.multiply(x, y)

    def and_(self, x: Any, y: Any) -> Any:
        return np.bitwise_and(x, y)

    def or_(self, x: Any, y: Any) -> Any:
        return np.bitwise_or(x, y)

    def xor(self, x: Any, y: Any) -> Any:
        return np.bitwise_xor(x, y)

    def compare(self, direction: str, x: Any, y: Any) -> Any:
        names = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"}
        if direction.endswith("_to"):
            return np.asarray(_reference(direction)(x, y))
        return getattr(np, names.get(direction, "greater_equal"))(x, y)

    def select(self, which: Any, on_false: Any, on_true: Any) -> Any:
        return np.where(which, on_true, on_false)

    def complex(self, re: Any, im: Any) -> Any:
        dtype = np.complex64 if np.asarray(re).dtype == np.float32 else np.complex128
        out = np.empty(np.broadcast(re, im).shape, dtype)
        out.real, out.imag = re, im
        return out

    def loop(
        self, going: Any, state: Sequence[Any], body: Callable[..., tuple[Any, Sequence[Any]]], bound: int
    ) -> tuple[Any, ...]:
        values = tuple(np.asarray(v) for v in state)
        for _ in range(bound):
            if not np.any(going):
                break
            goes_on, following = body(*values)
            values = tuple(np.where(going, new, old) for new, old in zip(following, values, strict=True))
            going = np.logical_and(going, goes_on)
        return values

    def function(self, name: str, *args: Any) -> Any:
        return np.asarray(_reference(name)(*args))

    def __getattr__(self, name: str) -> Any:
        if name in _PRIMITIVES:
            return _reference(_PRIMITIVES[name])
        raise AttributeError(f"the NumPy emitter has no {name}")

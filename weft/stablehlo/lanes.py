"""Vector math over tensors: what ``codegen.arithmetic.lanes`` is for registers, so that one expression makes both.

``T`` has the operators of ``codegen.arithmetic.lanes.V``; where that writes an instruction on W lanes, this writes an
operation on a whole tensor. StableHLO has no fused multiply-add: in float32 it is computed in float64, in float64 by
error-free products and sums (Dekker, Knuth), except in polynomials and for results of fewer bits, where a rounded
product does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import codegen  # noqa: F401 - the package is entered whole
from weft.codegen.arithmetic import features
from weft.stablehlo import types
from weft.stablehlo.text import Tensor, Text

ELEMENTS = {"i1": "bool", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "float": "f4", "double": "f8"}
DTYPES = {element: np.dtype(name) for element, name in ELEMENTS.items()}
NAMES = {dtype: element for element, dtype in DTYPES.items()}
INTRINSICS = {"floor": "floor", "ceil": "ceil", "rint": "round_nearest_even", "sqrt": "sqrt", "fabs": "abs"}
SPLIT = 134217729.0  # 2**27 + 1: halves of a float64 (Dekker 1971)


class Processor:
    """The ``codegen.arithmetic.features.Features`` of a machine that is not known."""

    keeps_sums = False  # XLA makes x of (x + c) - c (seen in jaxlib 0.10.2)
    scalar = False


class TensorLanes:
    """All elements of tensors of one shape; ``lanes.V``'s ``Lanes``."""

    native: features.Native[T] = features.Native()  # no instruction but StableHLO's
    features: features.Features = Processor()

    def __init__(self, text: Text, shape: types.Shape, exact: bool = True, narrow: bool = False) -> None:
        self.text = text
        self.shape = shape
        self.width = 1
        self.exact = exact  # whether a float32 fma is rounded once
        self.narrow = narrow  # whether float64 is more than the result has, so that its fma may be rounded twice

    def constant(self, value: Any, element: str) -> T:
        return T(self, self.text.constant(value, self.shape, DTYPES[element]))

    def select(self, condition: T, yes: T | float, no: T | float) -> T:
        element = yes.element if isinstance(yes, T) else no.element  # type: ignore[union-attr]
        a, b = [v if isinstance(v, T) else self.constant(v, element) for v in (yes, no)]
        return T(self, self.text.select(condition.value, a.value, b.value))

    def cold(self, mask: T, slow: Any, *fast: T, rare: bool = True) -> list[T]:
        """Both sides are computed."""
        return [self.select(mask, s, f) for s, f in zip(slow(), fast, strict=True)]


class T:
    """A tensor with the operators of ``codegen.arithmetic.lanes.V``."""

    __slots__ = ("element", "lanes", "value")

    def __init__(self, lanes: TensorLanes, value: Tensor) -> None:
        self.lanes = lanes
        self.value = value
        self.element = NAMES[value.dtype]

    @property
    def text(self) -> str:
        return self.value.name

    @property
    def is_float(self) -> bool:
        return self.value.dtype.kind == "f"

    def like(self, value: Any) -> T:
        return value if isinstance(value, T) else self.lanes.constant(value, self.element)

    def _op(self, name: str, *operands: Any) -> T:
        values = [self.like(y).value for y in operands]
        return T(self.lanes, self.lanes.text.op(name, values, self.lanes.shape, values[0].dtype))

    def __add__(self, y: Any) -> T:
        return self._op("add", self, y)

    def __sub__(self, y: Any) -> T:
        return self._op("subtract", self, y)

    def __mul__(self, y: Any) -> T:
        return self._op("multiply", self, y)

    def __truediv__(self, y: Any) -> T:
        return self._op("divide", self, y)

    def __radd__(self, y: Any) -> T:
        return self._op("add", y, self)

    def __rsub__(self, y: Any) -> T:
        return self._op("subtract", y, self)

    def __rmul__(self, y: Any) -> T:
        return self._op("multiply", y, self)

    def __rtruediv__(self, y: Any) -> T:
        return self._op("divide", y, self)

    def __neg__(self) -> T:
        return self._op("negate", self)

    def __and__(self, y: Any) -> T:
        return self._op("and", self, y)

    def __or__(self, y: Any) -> T:
        return self._op("or", self, y)

    def __xor__(self, y: Any) -> T:
        return self._op("xor", self, y)

    def __invert__(self) -> T:
        return self._op("not", self)

    def __lshift__(self, y: Any) -> T:
        return self._op("shift_left", self, y)

    def __rshift__(self, y: Any) -> T:
        return self._op("shift_right_arithmetic", self, y)

    def lshr(self, y: Any) -> T:
        return self._op("shift_right_logical", self, y)

    def _compare(self, direction: str, y: Any) -> T:
        return T(self.lanes, self.lanes.text.compare(direction, self.value, self.like(y).value))

    def __lt__(self, y: Any) -> T:
        return self._compare("lt", y)

    def __le__(self, y: Any) -> T:
        return self._compare("le", y)

    def __gt__(self, y: Any) -> T:
        return self._compare("gt", y)

    def __ge__(self, y: Any) -> T:
        return self._compare("ge", y)

    def eq(self, y: Any) -> T:
        return self._compare("eq", y)

    def ne(self, y: Any) -> T:
        return self._compare("ne", y)

    def compare(self, predicate: str, y: T) -> T:
        """The one predicate of LLVM that is asked for: whether an operand is NaN."""
        if predicate != "uno":
            raise NotImplementedError(f"[stablehlo] the comparison {predicate} of vector math")
        return self.isnan() | y.isnan()

    def isnan(self) -> T:
        return self.ne(self)

    def cast(self, op: str, element: str) -> T:
        """LLVM's conversions between floats and signed integers, and of bits."""
        name = "bitcast_convert" if op == "bitcast" else "convert"
        return T(self.lanes, self.lanes.text.op(name, [self.value], self.lanes.shape, DTYPES[element]))

    def bits(self) -> T:
        return self.cast("bitcast", "i32" if self.element == "float" else "i64")

    def as_float(self) -> T:
        return self.cast("bitcast", "float" if self.element == "i32" else "double")

    def f64(self) -> T:
        return self.cast("fpext", "double")

    def f32(self) -> T:
        return self.cast("fptrunc", "float")

    def to_float(self, element: str) -> T:
        return self.cast("sitofp", element)

    def intrinsic(self, name: str, *others: Any) -> T:
        if name in INTRINSICS:
            return self._op(INTRINSICS[name], self)
        if name in ("smin", "smax"):
            return self._op("minimum" if name == "smin" else "maximum", self, *others)
        raise NotImplementedError(f"[stablehlo] the vector math instruction {name}")

    def abs(self) -> T:
        return self._op("abs", self)

    def sqrt(self) -> T:
        return self._op("sqrt", self)

    def rint(self) -> T:
        return self._op("round_nearest_even", self)

    def floor(self) -> T:
        return self._op("floor", self)

    def trunc(self) -> T:
        return self.lanes.select(self < 0.0, self._op("ceil", self), self.floor())

    def copysign(self, y: T) -> T:
        """The magnitude of this value with the sign of y.

        By a choice, not by bits: XLA folds a rounding to bfloat16 into the bitcast before it (seen in jaxlib 0.10.2).
        """
        magnitude = self.abs()
        return self.lanes.select(y.bits() < 0, -magnitude, magnitude)

    with_sign_of = copysign

    def fma(self, y: Any, z: Any) -> T:
        """x * y + z with one rounding (with two, by a millionth of an ulp, in float32)."""
        y, z = self.like(y), self.like(z)
        if self.element == "float" and not self.lanes.exact:
            return self * y + z
        if self.element == "float":
            return (self.f64() * y.f64() + z.f64()).f32()
        if self.lanes.narrow:
            return self * y + z
        product, error = _product(self, y)
        total = product + z
        t = total - product
        rest = (product - (total - t)) + (z - t)
        exact = total + (rest + error)
        finite = T(self.lanes, self.lanes.text.op("is_finite", [exact.value], self.lanes.shape, types.BOOL))
        return self.lanes.select(finite, exact, total)

    def polynomial(self, coefficients: Sequence[Any]) -> T:
        """Horner, highest power first; in float64 with rounded products."""
        result = self.like(coefficients[0])
        for c in coefficients[1:]:
            result = result.fma(self, c) if self.element == "float" else result * self + c
        return result

    def polynomial_of_halves(self, square: T, coefficients: Sequence[Any]) -> T:
        one, other = square.polynomial(coefficients[-1::-2][::-1]), square.polynomial(coefficients[-2::-2][::-1])
        return other * self + one


def _product(a: T, b: T) -> tuple[T, T]:
    """a * b of float64, and its rounding error (Dekker 1971), where nothing overflows."""
    p = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: T) -> tuple[T, T]:
    c = a * SPLIT
    high = c - (c - a)
    return high, a - high

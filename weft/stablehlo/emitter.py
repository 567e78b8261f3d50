"""The emitter that writes StableHLO: scalar expressions (``core.emit``) as operations on whole tensors.

Every operand has the shape of the result. What StableHLO, or its dialect of client operations (CHLO), has is one
operation, unless XLA's is inaccurate; other functions are written by weft's own vector math over ``lanes.T``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import codegen, dtypes  # noqa: F401 - the package is entered whole
from weft.codegen import vector_math
from weft.core.emit import integer_power
from weft.stablehlo import types
from weft.stablehlo.lanes import T, TensorLanes
from weft.stablehlo.text import Tensor, Text

NATIVE = {
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "exp": "exponential", "expm1": "exponential_minus_one",
    "log": "log", "log1p": "log_plus_one", "logistic": "logistic", "sin": "sine", "cos": "cosine", "tanh": "tanh",
    "atan2": "atan2", "pow": "power", "tan": "tan",
    "acos": "chlo.acos", "acosh": "chlo.acosh", "asin": "chlo.asin", "asinh": "chlo.asinh", "atan": "chlo.atan",
    "atanh": "chlo.atanh", "erf": "chlo.erf", "erf_inv_drawn": "chlo.erf_inv",
}  # fmt: skip
INACCURATE = {("atanh", np.dtype(np.float64))}  # 128 ulp, where weft's own expression is within 4
# float32 functions whose bound holds with two roundings for each multiply-add
LOOSE = {"exp2", "sinh", "cosh", "asinh", "acosh", "atanh"}


class TensorEmit:
    """Implements ``core.emit.Emit`` over tensors of one shape; ``narrow``: the result is of fewer bits than float64."""

    def __init__(self, text: Text, shape: types.Shape = (), narrow: bool = False) -> None:
        self.text = text
        self.shape = shape
        self.narrow = narrow

    def _same(self, name: str, *operands: Tensor) -> Tensor:
        return self.text.op(name, operands, self.shape, operands[0].dtype)

    def const(self, value: Any, dtype: Any) -> Tensor:
        return self.text.constant(np.asarray(value, dtype)[()], self.shape, np.dtype(dtype))

    def convert(self, x: Tensor, dtype: Any) -> Tensor:
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        if dtype.kind == "b":
            return self.compare("ne", x, self.const(0, x.dtype))
        if x.dtype.kind == "c" and dtype.kind != "c":
            x = self.real(x)
        if dtype.kind == "c" and x.dtype.kind != "c":
            part = np.dtype(f"f{dtype.itemsize // 2}")
            return self.complex(self.convert(x, part), self.const(0, part))
        return self.text.convert(x, dtype)

    def bitcast(self, x: Tensor, dtype: Any) -> Tensor:
        dtype = np.dtype(dtype)
        return x if dtype == x.dtype else self.text.op("bitcast_convert", [x], self.shape, dtype)

    # arithmetic

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("or" if x.dtype.kind == "b" else "add", x, y)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("subtract", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("and" if x.dtype.kind == "b" else "multiply", x, y)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("divide", x, y)

    def rem(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("remainder", x, y)

    def natural_quotient(self, x: Tensor, y: Tensor) -> Tensor:
        return self.div(x, y)

    def neg(self, x: Tensor) -> Tensor:
        return self._same("negate", x)

    def abs(self, x: Tensor) -> Tensor:
        if x.dtype.kind == "c":
            return self.text.op("abs", [x], self.shape, np.dtype(f"f{x.dtype.itemsize // 2}"))
        return x if is_unsigned(x.dtype) else self._same("abs", x)

    def sign(self, x: Tensor) -> Tensor:
        if is_unsigned(x.dtype):
            return self.min(x, self.const(1, x.dtype))
        return self._same("sign", x)

    def max(self, x: Tensor, y: Tensor) -> Tensor:
        return self._extremum("gt", "maximum", x, y)

    def min(self, x: Tensor, y: Tensor) -> Tensor:
        return self._extremum("lt", "minimum", x, y)

    def _extremum(self, direction: str, name: str, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype.kind == "c":  # lexicographic
            return self.text.select(self.compare(direction, x, y), x, y)
        return self._same(name, x, y)

    def fma(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        if x.dtype.kind != "f" or x.dtype.itemsize < 4:
            return self.add(self.mul(x, y), z)
        lanes = TensorLanes(self.text, self.shape, narrow=self.narrow)
        return T(lanes, x).fma(T(lanes, y), T(lanes, z)).value

    def integer_pow(self, x: Tensor, y: int) -> Tensor:
        return integer_power(self, x, y)

    def pow(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("power", x, self.convert(y, x.dtype))

    # comparison

    def compare(self, direction: str, x: Tensor, y: Tensor) -> Tensor:
        if direction.endswith("_to"):
            return self.text.compare(direction[:-3], x, y, total=x.dtype.kind not in "biu")
        if x.dtype.kind == "c" and direction not in ("eq", "ne"):
            (a, b), (c, d) = [(self.real(v), self.imag(v)) for v in (x, y)]
            decided = self.text.compare(direction[:1] + "t", a, c)
            tied = self.and_(self.text.compare("eq", a, c), self.text.compare(direction, b, d))
            return self.or_(decided, tied)
        return self.text.compare(direction, x, y)

    def select(self, which: Tensor, on_false: Tensor, on_true: Tensor) -> Tensor:
        return self.text.select(which, on_true, on_false)

    def is_finite(self, x: Tensor) -> Tensor:
        if x.dtype.kind == "c":
            return self.and_(self.is_finite(self.real(x)), self.is_finite(self.imag(x)))
        if not dtypes.issubdtype(x.dtype, np.floating):
            return self.const(True, types.BOOL)
        return self.text.op("is_finite", [x], self.shape, types.BOOL)

    def loop(
        self, going: Tensor, state: Sequence[Tensor], body: Callable[..., tuple[Tensor, Sequence[Tensor]]], bound: int
    ) -> tuple[Tensor, ...]:
        """A loop over whole tensors; elements that are done keep their values."""
        text = self.text
        carried = [text.constant(0, (), types.INT32), going, *state]
        kinds = [(x.shape, x.dtype) for x in carried]

        def goes_on(count: Tensor, active: Tensor, *_: Tensor) -> list[Tensor]:
            left = text.compare("lt", count, text.constant(bound, (), types.INT32))
            return [text.op("and", [left, self._any(active)], (), types.BOOL)]

        def turn(count: Tensor, active: Tensor, *values: Tensor) -> list[Tensor]:
            more, following = body(*values)
            kept = [text.select(active, new, old) for new, old in zip(following, values, strict=True)]
            count = text.op("add", [count, text.constant(1, (), types.INT32)], (), types.INT32)
            return [count, self.and_(active, more), *kept]

        regions = [text.region(kinds, goes_on), text.region(kinds, turn)]
        return tuple(text.ops("while", carried, kinds, "", regions)[2:])

    def _any(self, x: Tensor) -> Tensor:
        if not self.shape:
            return x
        text, one = self.text, ((), types.BOOL)
        either = text.region([one, one], lambda a, b: [text.op("or", [a, b], (), types.BOOL)])
        dims = f"dimensions = {types.array(range(x.ndim))}"
        return text.op("reduce", [x, text.constant(False, (), types.BOOL)], (), types.BOOL, dims, [either])

    # bits

    def and_(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("and", x, y)

    def or_(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("or", x, y)

    def xor(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("xor", x, y)

    def not_(self, x: Tensor) -> Tensor:
        return self._same("not", x)

    def shift_left(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("shift_left", x, y)

    def shift_right_logical(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("shift_right_logical", x, y)

    def shift_right_arithmetic(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("shift_right_arithmetic", x, y)

    def population_count(self, x: Tensor) -> Tensor:
        return self._same("popcnt", x)

    def clz(self, x: Tensor) -> Tensor:
        return self._same("count_leading_zeros", x)

    # rounding and float structure

    def floor(self, x: Tensor) -> Tensor:
        return self._same("floor", x)

    def ceil(self, x: Tensor) -> Tensor:
        return self._same("ceil", x)

    def round_half_even(self, x: Tensor) -> Tensor:
        return self._same("round_nearest_even", x)

    def round_half_away(self, x: Tensor) -> Tensor:
        return self._same("round_nearest_afz", x)

    def nextafter(self, x: Tensor, y: Tensor) -> Tensor:
        return self._same("chlo.next_after", x, y)

    def reduce_precision(self, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        given = f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32"
        return self.text.op("reduce_precision", [x], self.shape, x.dtype, given)

    # complex parts

    def complex(self, re: Tensor, im: Tensor) -> Tensor:
        return self.text.op("complex", [re, im], self.shape, np.dtype(f"c{2 * re.dtype.itemsize}"))

    def real(self, x: Tensor) -> Tensor:
        if x.dtype.kind != "c":
            return x
        return self.text.op("real", [x], self.shape, np.dtype(f"f{x.dtype.itemsize // 2}"))

    def imag(self, x: Tensor) -> Tensor:
        if x.dtype.kind != "c":
            return self.const(0, x.dtype)
        return self.text.op("imag", [x], self.shape, np.dtype(f"f{x.dtype.itemsize // 2}"))

    def conj(self, x: Tensor) -> Tensor:
        return x if x.dtype.kind != "c" else self.complex(self.real(x), self.neg(self.imag(x)))

    # functions

    def function(self, name: str, *args: Tensor) -> Tensor:
        x = args[0]
        if name == "square":
            return self.mul(x, x)
        if name in NATIVE and (name, x.dtype) not in INACCURATE:
            return self._same(NATIVE[name], *args)
        if x.dtype == ml_dtypes.bfloat16 or x.dtype == np.float16:
            wide = [self.convert(a, np.float32) for a in args]
            return self.convert(self.function(name, *wide), x.dtype)
        lanes = TensorLanes(self.text, self.shape, name not in LOOSE, self.narrow)
        return vector_math.function(self, name, *[T(lanes, a) for a in args]).value  # type: ignore[arg-type]

    is_second = False  # vector math asks whether it writes the second of two vectors at once

    def __getattr__(self, name: str) -> Any:
        """``emit.sin(x)`` is ``emit.function("sin", x)``."""
        if name.startswith("_") or name not in vector_math.NAMES:
            raise AttributeError(name)
        return lambda *args: self.function(name, *args)


def is_unsigned(dtype: np.dtype) -> bool:
    return dtypes.issubdtype(dtype, np.unsignedinteger)

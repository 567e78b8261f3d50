"""Elementwise operations: one operation of StableHLO where there is one, or the scalar expression over tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.core.programs.jaxpr import JaxprEqn
from weft.stablehlo import types
from weft.stablehlo.emitter import INACCURATE, NATIVE, TensorEmit
from weft.stablehlo.text import Tensor, Text

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter

# Where a scalar expression is one operation for float32, that operation is written for half precisions too: each reader
# rounds its result once, as weft does.
HALVES = {
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "neg": "negate", "abs": "abs", "sign": "sign", "max": "maximum", "min": "minimum", "floor": "floor", "ceil": "ceil",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "exp": "exponential", "expm1": "exponential_minus_one",
    "log": "log", "log1p": "log_plus_one", "sin": "sine", "cos": "cosine", "tanh": "tanh", "atan2": "atan2",
    "pow": "power", "nextafter": "chlo.next_after", "tan": "tan", "acos": "chlo.acos", "asin": "chlo.asin",
    "atan": "chlo.atan", "erf": "chlo.erf", "erfc": "chlo.erfc", "sinh": "chlo.sinh", "cosh": "chlo.cosh",
    "digamma": "chlo.digamma", "bessel_i1e": "chlo.bessel_i1e",
}  # fmt: skip
# Complex functions that XLA has within weft's own bounds, also of very large and very small numbers.
COMPLEX = {
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negate",
    "abs": "abs", "sign": "sign", "sqrt": "sqrt", "rsqrt": "rsqrt", "log": "log", "log1p": "log_plus_one",
    "logistic": "logistic", "tanh": "tanh", "acos": "chlo.acos", "acosh": "chlo.acosh", "asin": "chlo.asin",
    "asinh": "chlo.asinh", "atan": "chlo.atan", "atanh": "chlo.atanh", "eq": "compare", "ne": "compare",
}  # fmt: skip

LONG = 8.0  # the cost of an expression from which on it is a function of its own


def write(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """Operands are brought to the shape of the result first."""
    text, (out,) = writer.text, eqn.outvars
    shape, dtype = out.aval.shape, out.aval.dtype
    native = _native(eqn.primitive.name, [x.dtype for x in operands], dtype)
    if eqn.primitive.kind.chooses and operands[0].ndim == 0 and len(operands) == 3 and operands[0].dtype.kind == "b":
        which, *values = operands
        on_false, on_true = [text.spread(x, shape) for x in values]
        return [text.select(which, on_true, on_false)]
    values = [text.spread(x, shape) for x in operands]
    if native == "compare":
        return [text.compare(eqn.primitive.name, values[0], values[1])]
    if native is not None:
        return [text.op(native, values, shape, dtype)]

    def expression(text: Text, values: Sequence[Tensor]) -> Tensor:
        emit = TensorEmit(text, shape, dtype.itemsize < (16 if dtype.kind == "c" else 8))
        return emit.convert(eqn.primitive.kind.scalar(emit, *values, **eqn.params), dtype)

    if shape == () or text.sizes or not _is_long(eqn):
        return [expression(text, values)]
    key = (eqn.primitive, *eqn.params.items(), shape, *[x.dtype for x in values])
    try:
        function = writer.module.expression(key, marked_name(eqn), values, expression)
    except TypeError:  # an unhashable parameter
        return [expression(text, values)]
    return text.ops("call", values, [(shape, dtype)], f"callee = @{function}", dialect="func")


def marked_name(eqn: JaxprEqn) -> str:
    """The name of the function of an expression: ``weft.erf`` tells weft's reader that it is the primitive erf.

    ``weft.tan.accuracy`` is tan with the parameter accuracy=None; primitives with other parameters are not marked.
    """
    if any(value is not None for value in eqn.params.values()):
        return eqn.primitive.name
    return ".".join(["weft", eqn.primitive.name, *eqn.params])


def _is_long(eqn: JaxprEqn) -> bool:
    """Whether the expression is worth a function: more than a few operations."""
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    native = name in NATIVE and dtype.kind == "f" and (name, dtype) not in INACCURATE
    return eqn.primitive.kind.cost >= LONG and not native


def _native(name: str, operands: Sequence[np.dtype], dtype: np.dtype) -> str | None:
    """The operation for operands of this dtype, where it is not the one that the scalar expression writes."""
    if len({*operands}) != 1:
        return None
    if operands[0].kind == "c":
        return COMPLEX.get(name)
    narrow = dtype == operands[0] and dtype.itemsize == 2 and types.element(dtype) in ("bf16", "f16")
    return HALVES.get(name) if narrow else None

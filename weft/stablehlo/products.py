"""Matrix products, convolutions, Fourier transforms, and the linear algebra that StableHLO has operations for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.programs.jaxpr import JaxprEqn
from weft.operations.contract import contraction_dtype
from weft.stablehlo import types
from weft.stablehlo.text import Tensor, Text

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter


def _precision(precision: Any) -> str:
    """The precision of both operands; an algorithm, or none, asks for what weft gives: the dtype's own."""
    names = []
    for one in precision if isinstance(precision, tuple) and len(precision) == 2 else (precision, precision):
        names.append(getattr(one, "name", "DEFAULT"))
    known = {"DEFAULT", "HIGH", "HIGHEST"}
    listed = [f"#stablehlo<precision {name if name in known else 'DEFAULT'}>" for name in names]
    return f"precision_config = [{', '.join(listed)}]"


def _operands(text: Text, lhs: Tensor, rhs: Tensor, out: np.dtype) -> tuple[Tensor, Tensor, np.dtype]:
    """Operands of one dtype, and the dtype of the product.

    Compilers add products of half precisions in float32, and round a result of their own dtype once.
    """
    dtype = out if lhs.dtype == rhs.dtype == out else contraction_dtype(lhs.dtype, rhs.dtype, out)
    if lhs.dtype != rhs.dtype:
        lhs, rhs = text.convert(lhs, dtype), text.convert(rhs, dtype)
    if lhs.dtype.kind == "b" or (dtype.kind == "c") != (lhs.dtype.kind == "c"):
        lhs, rhs = text.convert(lhs, dtype), text.convert(rhs, dtype)
    return lhs, rhs, dtype


def contraction(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, params, out = writer.text, eqn.params, eqn.outvars[0].aval
    if operands[0].dtype.kind == operands[1].dtype.kind == out.dtype.kind == "b":
        operands = [text.convert(x, types.INT32) for x in operands]
        lhs, rhs, dtype = *operands, types.INT32
    else:
        lhs, rhs, dtype = _operands(text, operands[0], operands[1], out.dtype)
    (lhs_sums, rhs_sums), (lhs_batch, rhs_batch) = params["dimension_numbers"]
    parts = [
        f"lhs_batching_dimensions = {types.listed(lhs_batch)}",
        f"rhs_batching_dimensions = {types.listed(rhs_batch)}",
        f"lhs_contracting_dimensions = {types.listed(lhs_sums)}",
        f"rhs_contracting_dimensions = {types.listed(rhs_sums)}",
    ]
    given = f"dot_dimension_numbers = #stablehlo.dot<{', '.join([p for p in parts if not p.endswith('[]')])}>"
    given += f", {_precision(params['precision'])}"
    found = text.op("dot_general", [lhs, rhs], out.shape, dtype, given)
    return [_result(text, found, out)]


def _result(text: Text, x: Tensor, out: Any) -> Tensor:
    if x.dtype.kind == "c" and out.dtype.kind != "c":
        x = text.op("real", [x], x.shape, np.dtype(f"f{x.dtype.itemsize // 2}"))
    if out.dtype.kind == "b":
        return text.compare("ne", x, text.constant(0, x.shape, x.dtype))
    return text.convert(x, out.dtype)


def _roles(spec: Sequence[int], first: str, second: str) -> str:
    """``b, f, 0, 1``: what each dimension of an operand is, from the dimensions in order of their roles."""
    roles = {dim: role for role, dim in zip([first, second, *range(len(spec) - 2)], spec, strict=True)}
    return "[" + ", ".join([str(roles[dim]) for dim in range(len(spec))]) + "]"


def convolution(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, params, out = writer.text, eqn.params, eqn.outvars[0].aval
    if types.is_empty(out.shape):
        return [text.constant(np.zeros((), out.dtype), out.shape, out.dtype)]
    if operands[0].dtype.kind == "b":
        operands = [text.convert(x, types.INT32) for x in operands]
    wanted = types.INT32 if out.dtype.kind == "b" else out.dtype
    lhs, rhs, dtype = _operands(text, operands[0], operands[1], wanted)
    numbers = params["dimension_numbers"]
    named = "x".join([_roles(numbers.lhs_spec, "b", "f"), _roles(numbers.rhs_spec, "o", "i")])
    rank = len(params["window_strides"])
    given = ", ".join(
        [
            f"batch_group_count = {params['batch_group_count']} : i64",
            f"dimension_numbers = #stablehlo.conv<{named}->{_roles(numbers.out_spec, 'b', 'f')}>",
            f"feature_group_count = {params['feature_group_count']} : i64",
            f"lhs_dilation = {types.array(params['lhs_dilation'])}",
            f"padding = {types.padding(params['padding'])}",
            _precision(params["precision"]),
            f"rhs_dilation = {types.array(params['rhs_dilation'])}",
            f"window_reversal = {types.array([False] * rank, 'i1')}",
            f"window_strides = {types.array(params['window_strides'])}",
        ]
    )
    return [_result(text, text.op("convolution", [lhs, rhs], out.shape, dtype, given), out)]


def fourier(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, (x,), out = writer.text, operands, eqn.outvars[0].aval
    lengths, kind = eqn.params["fft_lengths"], eqn.params["fft_type"]
    if types.is_empty(out.shape) or types.is_empty(x.shape):
        return [text.constant(np.zeros((), out.dtype), out.shape, out.dtype)]
    given = f"fft_length = {types.array(lengths)}, fft_type = #stablehlo<fft_type {kind.name.upper()}>"
    return [text.op("fft", [x], out.shape, out.dtype, given)]


# -- linear algebra ----------------------------------------------------------------------------------------------------


def cholesky(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The lower factor; what is above the diagonal is not defined by StableHLO and becomes zero."""
    text, (x,) = writer.text, operands
    found = text.op("cholesky", [x], x.shape, x.dtype, "lower = true")
    rows = text.iota(x.shape, types.INT32, x.ndim - 2)
    columns = text.iota(x.shape, types.INT32, x.ndim - 1)
    zero = text.constant(np.zeros((), x.dtype), x.shape, x.dtype)
    return [text.select(text.compare("ge", rows, columns), found, zero)]


def triangular_solve(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, params, (a, b) = writer.text, eqn.params, operands
    if types.is_empty(b.shape):
        return [b]
    turned = "NO_TRANSPOSE"
    if params["transpose_a"]:
        turned = "ADJOINT" if params["conjugate_a"] else "TRANSPOSE"
    elif params["conjugate_a"] and a.dtype.kind == "c":
        a = conjugate(text, a)
    words = {name: str(bool(params[name])).lower() for name in ("left_side", "lower", "unit_diagonal")}
    given = ", ".join([f"{name} = {value}" for name, value in words.items()])
    given += f", transpose_a = #stablehlo<transpose {turned}>"
    return [text.op("triangular_solve", [a, b], b.shape, b.dtype, given)]


def conjugate(text: Text, x: Tensor) -> Tensor:
    part = np.dtype(f"f{x.dtype.itemsize // 2}")
    re, im = (text.op(name, [x], x.shape, part) for name in ("real", "imag"))
    return text.op("complex", [re, text.op("negate", [im], x.shape, part)], x.shape, x.dtype)

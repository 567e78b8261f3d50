"""Calls, loops and branches: inner programs as functions and as regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.control.branches import platform_branch
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.stablehlo import collectives, types
from weft.stablehlo.text import Tensor, Text

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter


def call(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A call of a function of the module; a program of shards, where the module is for several devices."""
    kind = eqn.primitive.kind
    if kind.written_shards is not None and writer.module.meshes is not None and eqn.params["mesh"].size > 1:
        return collectives.manual(writer, eqn, operands, kind.written_shards(eqn.params))
    inner = kind.inline(eqn.params)
    if inner is None:
        raise NotImplementedError(f"[stablehlo] {eqn.primitive.name} cannot be exported yet")
    if writer.text.sizes or writer.module.chooses:  # a function would not know the sizes, or on what it runs
        return writer.program(inner, operands)
    name = eqn.params.get("name")
    function = writer.module.called(inner, name if isinstance(name, str) else eqn.primitive.name)
    results = [(v.aval.shape, x) for v, x in zip(eqn.outvars, _dtypes(inner), strict=True)]
    return writer.text.ops("call", operands, results, f"callee = @{function}", dialect="func")


def _dtypes(inner: object) -> list[np.dtype]:
    return [types.stored(v.aval.dtype) for v in inner.jaxpr.outvars]  # type: ignore[attr-defined]


def loop(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A ``while``: captured values, and inputs and outputs of a scan, are carried along with the state."""
    text, parts = writer.text, eqn.primitive.kind.parts(eqn.params)
    first = parts.n_cond_consts
    second = first + parts.n_consts
    third = second + parts.n_carry
    cond_consts, consts = operands[:first], operands[first:second]
    state, inputs = operands[second:third], operands[third:]
    trips = 0 if parts.trips is None else parts.trips
    if parts.cond is not None:
        return _while(writer, parts, [*cond_consts, *consts, *state])
    made = [(v.aval.shape, types.stored(v.aval.dtype)) for v in eqn.outvars[parts.n_carry :]]
    outputs = [text.constant(np.zeros((), dtype), shape, dtype) for shape, dtype in made]
    if not types.is_open(trips) and not trips:
        return [*state, *outputs]
    carried = [text.constant(0, (), types.INT32), *consts, *state, *inputs, *outputs]
    sizes = [len(consts), len(state), len(inputs), len(outputs)]

    def going(count: Tensor, *_: Tensor) -> list[Tensor]:
        return [text.compare("lt", count, text.extent(trips))]

    def turn(count: Tensor, *values: Tensor) -> list[Tensor]:
        given = iter(values)
        held, now, xs, ys = [[next(given) for _ in range(size)] for size in sizes]
        index = count
        if parts.reverse:
            last = text.extent(trips - 1)
            index = text.op("subtract", [last, count], (), types.INT32)
        elements = [_element(text, x, index) for x in xs]
        found = _body(writer, parts.body, [*held, *now, *elements])
        written = [_written(text, y, new, index) for y, new in zip(ys, found[len(now) :], strict=True)]
        following = text.op("add", [count, text.constant(1, (), types.INT32)], (), types.INT32)
        return [following, *held, *found[: len(now)], *xs, *written]

    results = _repeat(text, carried, going, turn)
    start = 1 + sizes[0]
    return [*results[start : start + sizes[1]], *results[start + sizes[1] + sizes[2] :]]


def _repeat(text: Text, carried: Sequence[Tensor], going: object, turn: object) -> list[Tensor]:
    carried_types = [(x.shape, x.dtype) for x in carried]
    regions = [text.region(carried_types, going), text.region(carried_types, turn)]  # type: ignore[arg-type]
    return text.ops("while", carried, carried_types, "", regions)


def _while(writer: FunctionWriter, parts: kinds.LoopParts, carried: list[Tensor]) -> list[Tensor]:
    first, second = parts.n_cond_consts, parts.n_cond_consts + parts.n_consts

    def going(*values: Tensor) -> Sequence[Tensor]:
        return writer.program(parts.cond, [*values[:first], *values[second:]])

    def turn(*values: Tensor) -> list[Tensor]:
        return [*values[:second], *_body(writer, parts.body, list(values[first:]))]

    return _repeat(writer.text, carried, going, turn)[second:]


def _body(writer: FunctionWriter, body: object, operands: list[Tensor]) -> list[Tensor]:
    return writer.program(body, operands)  # type: ignore[arg-type]


def _element(text: Text, x: Tensor, index: Tensor) -> Tensor:
    """``x[index]``."""
    zeros = [text.constant(0, (), types.INT32)] * (x.ndim - 1)
    return text.reshape(text.dynamic_slice(x, [index, *zeros], (1, *x.shape[1:])), x.shape[1:])


def _written(text: Text, y: Tensor, new: Tensor, index: Tensor) -> Tensor:
    """y with ``new`` at ``index``."""
    zeros = [text.constant(0, (), types.INT32)] * (y.ndim - 1)
    update = text.reshape(new, (1, *new.shape))
    return text.op("dynamic_update_slice", [y, update, index, *zeros], y.shape, y.dtype)


def branch(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A ``case``; its branches read the operands from outside of their regions."""
    text, (index, *values) = writer.text, operands
    branches = eqn.primitive.kind.branches(eqn.params)
    platforms = eqn.params.get("branches_platforms")
    numbers = {platform_branch(platforms, name) for name in writer.module.platforms} if platforms else {0}
    if len(branches) == 1 or (platforms and len(numbers) == 1):
        return writer.program(branches[numbers.pop()], values)
    index = text.convert(index, types.INT32)
    least, most = text.constant(0, (), types.INT32), text.constant(len(branches) - 1, (), types.INT32)
    index = text.op("clamp", [least, index, most], (), types.INT32)
    regions = [text.region([], lambda closed=closed: writer.program(closed, values)) for closed in branches]
    results = [(v.aval.shape, types.stored(v.aval.dtype)) for v in eqn.outvars]
    return text.ops("case", [index], results, "", regions)

"""Sorts in the order of the kind ``Ordering``: numbers ascend, the two zeros are equal, NaN is last, ties stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import dtypes
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.stablehlo import types
from weft.stablehlo.text import Tensor, Text


def ordered(text: Text, ordering: kinds.Ordering, eqn: JaxprEqn, operands: Sequence[Tensor]) -> list[Tensor]:
    """One stable ``sort`` of the operands, beside the positions where those are results."""
    axis, results = ordering.axis, eqn.outvars
    moved = ordering.moved if ordering.moved is not None else tuple(range(len(operands)))
    outs = [(v.aval.shape, v.aval.dtype) for v in results]
    if any(types.is_empty(shape) for shape, _ in outs):
        return [text.constant(np.zeros((), dtype), shape, dtype) for shape, dtype in outs]
    if ordering.largest is not None:
        return _largest(text, operands[0], axis, ordering.largest, [dtype for _, dtype in outs])
    values = list(operands)
    if len(results) > len(moved):
        values.append(text.iota(operands[0].shape, outs[-1][1], axis))

    def less(*args: Tensor) -> list[Tensor]:
        return [_less(text, [(args[2 * k], args[2 * k + 1]) for k in range(ordering.n_keys)])]

    region = text.region([((), x.dtype) for x in values for _ in range(2)], less)
    given = f"dimension = {axis} : i64, is_stable = true"
    found = text.ops("sort", values, [(x.shape, x.dtype) for x in values], given, [region])
    return [found[k] for k in moved] + found[len(operands) :]


def _largest(text: Text, x: Tensor, axis: int, count: int, wanted: Sequence[np.dtype]) -> list[Tensor]:
    """The operation that selects along the last dimension, in the order of signs, numbers and NaN."""
    order = [*[d for d in range(x.ndim) if d != axis], axis]
    x = text.transpose(x, order)
    shape = (*x.shape[:-1], count)
    found = text.ops("chlo.top_k", [x], [(shape, x.dtype), (shape, types.INT32)], f"k = {count} : i64")
    back = [order.index(d) for d in range(len(order))]
    return [text.convert(text.transpose(y, back), dtype) for y, dtype in zip(found, wanted, strict=False)]


def _less(text: Text, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Whether the keys on the left come before those on the right; the first pair decides unless it is equal."""
    parts = [part for pair in pairs for part in _parts(text, *pair)]
    result = None
    for x, y in reversed([_comparable(text, x, y) for x, y in parts]):
        total = types.element(x.dtype).startswith(("f", "bf"))
        before = text.compare("lt", x, y, total)
        if result is not None:
            tied = text.op("and", [text.compare("eq", x, y, total), result], (), types.BOOL)
            before = text.op("or", [before, tied], (), types.BOOL)
        result = before
    assert result is not None
    return result


def _parts(text: Text, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """A complex key as two keys."""
    if x.dtype.kind != "c":
        return [(x, y)]
    part = np.dtype(f"f{x.dtype.itemsize // 2}")
    return [tuple(text.op(name, [v], (), part) for v in (x, y)) for name in ("real", "imag")]  # type: ignore[misc]


def _comparable(text: Text, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Floats whose total order is that of numbers: one zero and one, positive, NaN.

    XLA knows a comparison of exactly this form, zeros first, and calls a library's sort for it on a GPU.
    """
    if not dtypes.issubdtype(x.dtype, np.floating):
        return x, y
    found = []
    for v in (x, y):
        zero = text.constant(np.zeros((), v.dtype), (), v.dtype)
        known = text.select(text.compare("eq", v, zero), zero, v)
        nan = text.constant(np.asarray(math.nan).astype(v.dtype), (), v.dtype)
        found.append(text.select(text.compare("ne", v, v), nan, known))
    return found[0], found[1]

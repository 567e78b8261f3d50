"""Operations on extents: small integers that are known where a module is read, computed in NumPy.

A module for open extents asks for them (``get_dimension_size``), computes with them, and makes arrays of the shapes
that follow (``dynamic_broadcast_in_dim``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.core import avals
from weft.stablehlo.reading import parser

MOST = 16  # larger arrays of integers are data


def are_known(operands: Sequence[Any]) -> bool:
    """Whether all operands are small arrays of integers or booleans whose values are known."""
    return all(isinstance(x, np.ndarray) and x.dtype.kind in "biu" and x.size <= MOST for x in operands)


def fold(name: str, operands: Sequence[Any]) -> Callable[..., Any] | None:
    """The function that computes an operation while reading; None if that is left to the program.

    So is division by zero, whose results are the compiler's to say.
    """
    if name not in FOLDS or not are_known(operands):
        return None
    if name in ("stablehlo.divide", "stablehlo.remainder") and not np.all(operands[1]):
        return None
    return FOLDS[name]


def extents(x: Any, what: str) -> tuple[int, ...]:
    """The values of a shape. Raises NotImplementedError if it depends on data."""
    if not isinstance(x, np.ndarray):
        raise NotImplementedError(f"[stablehlo] {what} by a shape that depends on values of arrays")
    return tuple(int(n) for n in np.ravel(x))


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def folded(site: Any, *xs: Any) -> Any:
        with np.errstate(all="ignore"):  # numbers wrap around, as in the program
            return np.asarray(function(*xs)).astype(site.types[0][1])

    return folded


def _compare(site: Any, x: Any, y: Any) -> Any:
    direction = parser.word(site.attribute("comparison_direction"))
    names = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"}
    return np.asarray(getattr(np, names[direction])(x, y))


def _concatenate(site: Any, *xs: Any) -> Any:
    return np.concatenate(xs, parser.integer(site.attribute("dimension")))


def _slice(site: Any, x: Any) -> Any:
    rows = [parser.integers(site.attribute(name)) for name in ("start_indices", "limit_indices", "strides")]
    return x[tuple([slice(*bounds) for bounds in zip(*rows, strict=True)])]


def _quotient(x: Any, y: Any) -> Any:
    """Toward zero; in integers, since float64 does not hold those of 64 bits."""
    inexact = np.fmod(x, y) != 0
    return np.floor_divide(x, y) + (inexact & ((x < 0) != (y < 0)))


FOLDS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": _elementwise(np.add),
    "stablehlo.subtract": _elementwise(np.subtract),
    "stablehlo.multiply": _elementwise(np.multiply),
    "stablehlo.divide": _elementwise(_quotient),
    "stablehlo.remainder": _elementwise(np.fmod),
    "stablehlo.maximum": _elementwise(np.maximum),
    "stablehlo.minimum": _elementwise(np.minimum),
    "stablehlo.negate": _elementwise(np.negative),
    "stablehlo.sign": _elementwise(np.sign),
    "stablehlo.and": _elementwise(np.bitwise_and),
    "stablehlo.or": _elementwise(np.bitwise_or),
    "stablehlo.not": _elementwise(np.bitwise_not),
    "stablehlo.clamp": _elementwise(lambda low, x, high: np.clip(x, low, high)),
    "stablehlo.select": _elementwise(np.where),
    "stablehlo.compare": _compare,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.slice": _slice,
}


def _folded_shape(site: Any, x: Any) -> Any:
    return np.reshape(x, site.types[0][0])


def _convert(site: Any, x: Any) -> Any:
    dtype = site.types[0][1]
    return x.astype(dtype) if dtype.kind in "biu" else lax.convert_element_type(x, dtype)


def _broadcast(site: Any, x: Any) -> Any:
    shape, dims = site.types[0][0], parser.integers(site.attribute("broadcast_dimensions"))
    if np.prod(shape) > MOST:
        return lax.broadcast_in_dim(x, shape, dims)
    spread = [x.shape[dims.index(d)] if d in dims else 1 for d in range(len(shape))]
    return np.broadcast_to(np.reshape(x, spread), shape)


FOLDS |= {"stablehlo.reshape": _folded_shape, "stablehlo.convert": _convert, "stablehlo.broadcast_in_dim": _broadcast}

# -- arrays of open shapes --------------------------------------------------------------------------------------------


def dimension_size(site: Any, x: Any) -> Any:
    return np.asarray(avals.get_aval(x).shape[parser.integer(site.attribute("dimension"))], np.int32)


def broadcast(site: Any, x: Any, shape: Any) -> Any:
    dims = parser.integers(site.attribute("broadcast_dimensions"))
    return lax.broadcast_in_dim(x, extents(shape, "dynamic_broadcast_in_dim"), dims)


def reshape(site: Any, x: Any, shape: Any) -> Any:
    return lax.reshape(x, extents(shape, "dynamic_reshape"))


def iota(site: Any, shape: Any) -> Any:
    dimension = parser.integer(site.attribute("iota_dimension"))
    return lax.broadcasted_iota(site.types[0][1], extents(shape, "dynamic_iota"), dimension)


def sliced(site: Any, x: Any, *bounds: Any) -> Any:
    return lax.slice(x, *[extents(bound, "real_dynamic_slice") for bound in bounds])


def pad(site: Any, x: Any, value: Any, *amounts: Any) -> Any:
    return lax.pad(x, value, list(zip(*[extents(amount, "dynamic_pad") for amount in amounts], strict=True)))


def check(site: Any, holds: Any, *values: Any) -> list[Any]:
    """An assertion about extents; what is known only at run time is not checked."""
    if isinstance(holds, np.ndarray) and not holds:
        message = (site.attribute("error_message") or "").strip('"')
        for index, value in enumerate(values):
            message = message.replace(f"{{{index}}}", str(value))
        raise ValueError(message)
    return []


DYNAMIC: dict[str, Callable[..., Any]] = {
    "stablehlo.get_dimension_size": dimension_size,
    "stablehlo.dynamic_broadcast_in_dim": broadcast,
    "stablehlo.dynamic_reshape": reshape,
    "stablehlo.dynamic_iota": iota,
    "stablehlo.real_dynamic_slice": sliced,
    "stablehlo.dynamic_pad": pad,
}

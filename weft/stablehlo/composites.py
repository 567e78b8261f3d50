"""``lax.composite`` as ``stablehlo.composite``: name, version, attributes, and a function that is its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import runtime
from weft.core.programs.jaxpr import JaxprEqn
from weft.stablehlo import types
from weft.stablehlo.text import Tensor

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter


def composite(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The operation by its name; where extents have no value, its program, since a function would not know them."""
    params = eqn.params
    if writer.text.sizes or writer.module.chooses:
        return writer.program(params["jaxpr"], operands)
    function = writer.module.called(params["jaxpr"], params["name"])
    listed = ", ".join(
        [
            f"{word(key)} = {attribute(runtime.tree_unflatten(tree, list(leaves)))}"
            for key, leaves, tree in sorted(params["attributes"], key=lambda item: item[0])
        ]
    )
    given = f"composite_attributes = {{{listed}}}, decomposition = @{function}, name = {string(params['name'])}"
    results = [(v.aval.shape, types.stored(v.aval.dtype)) for v in eqn.outvars]
    return writer.text.ops("composite", operands, results, f"{given}, version = {params['version']} : i32")


def word(name: str) -> str:
    """The name of an attribute."""
    return name if name.isidentifier() and name.isascii() else string(name)


def string(text: str | bytes) -> str:
    """A string as MLIR writes it."""
    data = text.encode() if isinstance(text, str) else text
    plain = [chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}" for byte in data]
    return f'"{"".join(plain)}"'


def attribute(value: Any) -> str:
    """A value of Python or NumPy as an attribute. Raises NotImplementedError for one that MLIR has no form of."""
    if value is None:
        return "unit"
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, str):
        return string(value)
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return types.dense(np.float64(value), (), np.dtype(np.float64))[6:].split(">")[0] + " : f64"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{word(k)} = {attribute(v)}" for k, v in sorted(value.items())]) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join([attribute(item) for item in value]) + "]"
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        array = np.asarray(value)
        dtype = types.stored(array.dtype)
        if isinstance(value, np.generic):
            return types.dense(array[()], (), dtype)[6:].split(">")[0] + f" : {types.element(dtype)}"
        return types.dense(array, array.shape, dtype)
    raise NotImplementedError(f"[composite] an attribute of type {type(value).__name__} cannot be written as StableHLO")

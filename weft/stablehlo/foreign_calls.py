"""Calls of foreign functions as custom calls of StableHLO, written and read.

ffi_call[target_name=rms_norm eps=1e-05] a
"stablehlo.custom_call"(%a) <{call_target_name = "rms_norm", ...}> {mhlo.backend_config = {eps = 1.0e-05 : f32}}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft import dtypes, runtime
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, subjaxprs
from weft.effects import foreign_calls
from weft.effects.foreign_calls import ARRAY, DICTIONARY, STRING, Attribute
from weft.operations.tokens import TOKEN
from weft.stablehlo import composites, types
from weft.stablehlo.function_writer import FunctionWriter, not_written
from weft.stablehlo.reading import parser
from weft.stablehlo.text import Tensor, Text

effect = foreign_calls.effect  # of calls that may not be left out


def is_known(target: str) -> bool:
    return any(name == target for name, _ in runtime.foreign_targets())


def targets(jaxpr: Jaxpr) -> set[str]:
    """The names of the foreign functions that a program calls."""
    found = {eqn.params["target_name"] for eqn in jaxpr.eqns if eqn.primitive is foreign_calls.ffi_call_p}
    return found.union(*[targets(inner) for inner in subjaxprs(jaxpr)])


# -- written ----------------------------------------------------------------------------------------------------------


def write(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The custom call, of operands in the order of their dimensions; the layouts say how it wants them in memory."""
    if any(map(types.is_open, [n for v in (*eqn.invars, *eqn.outvars) for n in v.aval.shape])):
        raise not_written(eqn, "a foreign function of arrays of unknown sizes is not built: export for known ones")
    text, params = writer.text, eqn.params
    ins, outs = params["input_layouts"], params["output_layouts"]
    given = [
        x if order is None else text.transpose(x, foreign_calls.inverse(order))
        for x, order in zip(operands, ins, strict=True)
    ]
    results = [(tuple(aval.shape), types.stored(aval.dtype)) for aval in params["result_avals"]]
    token_ins, token_outs = foreign_calls.token_indices(params)
    given = [_token(text, eqn, x) if i in token_ins else x for i, x in enumerate(given)]
    results = [((), TOKEN) if o in token_outs else kind for o, kind in enumerate(results)]
    listed = [
        f"call_target_name = {composites.string(params['target_name'])}",
        f"operand_layouts = {_layouts(ins, [x.ndim for x in given])}",
        f"result_layouts = {_layouts(outs, [len(shape) for shape, _ in results])}",
    ]
    if params["has_side_effect"]:
        listed.append("has_side_effect = true")
    if params["input_output_aliases"]:
        listed.append(f"output_operand_aliases = {_aliases(params['input_output_aliases'], len(results))}")
    version, more = params["custom_call_api_version"], ""
    if version < 4:
        legacy = composites.string(params["legacy_backend_config"] or "")
        listed += [f"api_version = {version} : i32", f"backend_config = {legacy}"]
    else:
        more = f"mhlo.backend_config = {_dictionary(params['attributes'])}"
    made = text.ops("custom_call", given, results, ", ".join(listed), discardable=more)
    made = [_words(text, y) if o in token_outs else y for o, y in enumerate(made)]
    return [y if order is None else text.transpose(y, order) for y, order in zip(made, outs, strict=True)]


def _token(text: Text, eqn: JaxprEqn, words: Tensor) -> Tensor:
    """The token that a value stands for: one that a call gave, or a new one for a constant."""
    if words.name in text.tokens:
        return text.tokens[words.name]
    if not text.is_constant(words):
        raise not_written(eqn, "its token is of a loop, a branch or after_all; pass one of create_token or of a call")
    return text.op("create_token", (), (), TOKEN)


def _words(text: Text, token: Tensor) -> Tensor:
    """A value that stands for a token in what follows."""
    words = text.op("optimization_barrier", [text.constant(False, (1,), types.BOOL)], (1,), types.BOOL)
    text.tokens[words.name] = token
    return words


def _layouts(orders: Sequence[Any], ranks: Sequence[int]) -> str:
    """Dimensions from the innermost outwards."""
    listed = [tuple(range(rank) if order is None else order)[::-1] for order, rank in zip(orders, ranks, strict=True)]
    each = [f"dense<{types.listed(x) if x else ''}> : tensor<{len(x)}xindex>" for x in listed]
    return f"[{', '.join(each)}]"


def _aliases(pairs: Sequence[tuple[int, int]], results: int) -> str:
    each = [
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{o if results > 1 else ''}], operand_index = {i}, "
        "operand_tuple_indices = []>"
        for i, o in pairs
    ]
    return f"[{', '.join(each)}]"


def _dictionary(attributes: Sequence[Attribute]) -> str:
    return "{" + ", ".join([f"{composites.word(each.name)} = {_value(each)}" for each in attributes]) + "}"


def _value(attribute: Attribute) -> str:
    if attribute.type == DICTIONARY:
        return _dictionary(attribute.data)
    if attribute.type == STRING:
        return composites.string(attribute.data)
    value, dtype = attribute.value(), dtypes.as_dtype(attribute.dtype)
    if attribute.type == ARRAY:
        return types.dense(value, value.shape, dtype)
    if dtype.kind == "c":
        raise NotImplementedError(
            f"[stablehlo] the attribute {attribute.name} is complex, which StableHLO has no text for"
        )
    text = types.scalar(value, dtype)
    return text if dtype.kind == "b" else f"{text} : {types.element(dtype)}"


# -- read -------------------------------------------------------------------------------------------------------------


def read(site: Any, *operands: Any) -> list[Any]:
    """The results of a custom call that names a foreign function."""
    version = parser.integer(site.attribute("api_version"), 1)
    typed = site.attribute("mhlo.backend_config") is not None or version == 4
    config = site.attribute("backend_config") or ""
    entries = site.attribute("mhlo.backend_config") or (config if config.startswith("{") else "{}")
    aliases = site.attribute("output_operand_aliases") or ""
    pairs = re.findall(r"output_tuple_indices = \[(\d*)\], operand_index = (\d+)", aliases)
    call = foreign_calls.ffi_call(
        _unescaped((site.attribute("call_target_name") or "").strip('"')).decode(),
        [runtime.ShapedArray(shape, dtype) for shape, dtype in site.types],
        has_side_effect=site.attribute("has_side_effect") == "true",
        input_layouts=_orders(site.attribute("operand_layouts"), len(operands)),
        output_layouts=_orders(site.attribute("result_layouts"), len(site.types)),
        input_output_aliases={int(i): int(o or 0) for o, i in pairs},
        custom_call_api_version=4 if typed else version,
        legacy_backend_config=None if typed else _unescaped(config.strip('"')).decode(),
    )
    return call(*operands, **(_values(entries) if typed else {}))


def _orders(text: str | None, count: int) -> list[Any] | None:
    found = re.findall(r"dense<([^>]*)>", text or "")
    if len(found) != count:
        return None
    return [tuple([int(n) for n in re.findall(r"\d+", each)])[::-1] for each in found]


def _values(text: str) -> dict[str, Any]:
    inner = parser.Parser(text)
    inner.take("{")
    return {_unescaped(name).decode(): _read_value(value) for name, value in inner.attributes("}").items()}


def _read_value(text: str) -> Any:
    if text.startswith("{"):
        return _values(text)
    if text.startswith('"'):
        return _unescaped(text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("dense"):
        return parser.constant(text)
    number, _, element = text.rpartition(" : ")
    return parser.constant(f"dense<{number}> : tensor<{element}>")[()]


def _unescaped(text: str) -> bytes:
    """The bytes of a string between its quotes: MLIR writes two digits of a byte after a backslash, or a backslash."""

    def byte(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 16)]) if len(found[1]) == 2 else {b"n": b"\n", b"t": b"\t"}.get(found[1], found[1])

    return re.sub(rb"\\([0-9A-Fa-f]{2}|.)", byte, text.encode())

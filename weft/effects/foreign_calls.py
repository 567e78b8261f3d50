"""Calls of foreign functions: machine code that users compile, called as a step of a program.

    b:f32[4] = ffi_call[target_name=rms_norm attributes=(eps=1e-06,) vmap_method=broadcast_all ...] a

The function is found by its name when a program is made (``weft.ffi.register_ffi_target``). It gets addresses, dtypes
and shapes of its operands and results, and attributes: numbers, arrays of them, texts, and dictionaries of those. In
another layout than row-major, operands are transposed before the call, results after it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from weft import dtypes, runtime
from weft._base.record import Record
from weft.core import avals, effects, kinds
from weft.core.primitive import Primitive
from weft.core.tracing.tracer import Tracer
from weft.effects import callbacks
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim, at, repeated
from weft.operations.tokens import TOKEN

# The numbers of dtypes in the C interface.
DTYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "complex64": 15, "bfloat16": 16, "complex128": 18, "float8_e5m2": 19,
    "float8_e4m3fn": 20, "int4": 21, "uint4": 22, "float8_e4m3b11fnuz": 23, "float8_e5m2fnuz": 24,
    "float8_e4m3fnuz": 25, "int2": 26, "uint2": 27, "float8_e4m3": 28, "float8_e3m4": 29, "float4_e2m1fn": 32,
    "float8_e8m0fnu": 33,
}  # fmt: skip
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
TOKEN_NUMBER = 17  # the number of the dtype of tokens in the C interface, where they are of rank 0
effect = effects.NamedEffect("FFI")


class Attribute(Record):
    """A named value that is known when the program is made: ``data`` has its bytes, or the entries of a dictionary."""

    name: str
    type: int
    dtype: str  # "" of texts and dictionaries
    size: int  # elements
    data: Any

    def plain(self) -> tuple[Any, ...]:
        """Name, type, dtype and bytes, as the instruction of the call takes them."""
        if self.type == DICTIONARY:
            return self.name, self.type, 0, plain(self.data)
        if self.type == ARRAY:
            return self.name, self.type, DTYPES[self.dtype], (self.size, self.data)
        return self.name, self.type, DTYPES.get(self.dtype, 0), self.data

    def value(self) -> Any:
        if self.type == DICTIONARY:
            return {entry.name: entry.value() for entry in self.data}
        if self.type == STRING:
            return self.data.decode(errors="replace")
        found = np.frombuffer(self.data, dtypes.as_dtype(self.dtype))
        return found if self.type == ARRAY else found[0]

    def __repr__(self) -> str:
        return f"{self.name}={self.value()!r}"

    def __fingerprint__(self) -> str:
        data = plain(self.data) if self.type == DICTIONARY else self.data.hex()
        return repr((self.name, self.type, self.dtype, self.size, data))


def plain(attributes: Sequence[Attribute]) -> tuple[Any, ...]:
    return tuple([attribute.plain() for attribute in attributes])


def as_attributes(values: Mapping[str, Any], inside: str = "") -> tuple[Attribute, ...]:
    """Keyword arguments as attributes, sorted by the bytes of their names, as functions search them."""
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"[ffi_call] keys of the attribute {inside} must be strings, got {name!r}")
    entries = sorted(values.items(), key=lambda entry: entry[0].encode())
    return tuple([_attribute(name, value, f"{inside}[{name!r}]" if inside else name) for name, value in entries])


def _attribute(name: str, value: Any, where: str) -> Attribute:
    if isinstance(value, dict):
        return Attribute(name, DICTIONARY, "", len(value), as_attributes(value, where))
    if isinstance(value, (str, bytes)):
        return Attribute(name, STRING, "", 1, value if isinstance(value, bytes) else value.encode())
    if isinstance(value, Tracer):
        raise TypeError(
            f"[ffi_call] the attribute {where} is a traced value, but attributes are part of the program: pass it as "
            f"an operand, or mark it static where the function is traced"
        )
    found = _numbers(value, where)
    is_array = isinstance(value, np.ndarray) or (isinstance(value, runtime.Array) and value.ndim > 0)
    return Attribute(name, ARRAY if is_array else SCALAR, found.dtype.name, found.size, found.tobytes())


def _numbers(value: Any, where: str) -> np.ndarray:
    """The value, contiguous and in the processor's byte order. Python's numbers have 64 bits (a complex one 128)."""
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128)):
        if isinstance(value, kind) and not isinstance(value, np.generic):
            try:
                return np.asarray(value, dtype)
            except OverflowError as error:
                raise OverflowError(f"[ffi_call] the attribute {where}={value} does not fit into int64") from error
    found = np.asarray(value) if isinstance(value, (np.generic, np.ndarray, runtime.Array)) else None
    if found is None or found.dtype.name not in DTYPES:
        raise TypeError(
            f"[ffi_call] the attribute {where} is {value!r} of type {type(value).__name__}. Attributes are numbers of "
            "Python or NumPy, strings, NumPy arrays of numbers, and dictionaries of these; make a NumPy array of a "
            "sequence of numbers"
        )
    return np.ascontiguousarray(found, found.dtype.newbyteorder("="))


def _permuted(shape: Sequence[Any], order: Sequence[int] | None) -> tuple[Any, ...]:
    return tuple(shape) if order is None else tuple([shape[d] for d in order])


def _physical(aval: Any, order: Sequence[int] | None) -> Any:
    return aval.update(shape=_permuted(aval.shape, order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple([order.index(d) for d in range(len(order))])


def _logical(shape: Sequence[int], order: Sequence[int] | None) -> tuple[int, ...]:
    return _permuted(shape, order and inverse(order))


def _number(dtype: Any) -> int:
    if dtype.name not in DTYPES:
        raise NotImplementedError(
            f"[ffi_call] foreign functions get no arrays of {dtype}: their C interface has no name for it"
        )
    return DTYPES[dtype.name]


def token_indices(params: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which operands, and which results, are tokens."""
    return params.get("tokens", ((), ()))


def _handler(in_avals: Sequence[Any], params: Mapping[str, Any]) -> kinds.Handler:
    out_avals = params["result_avals"]
    ins, outs = token_indices(params)
    tokens = {*ins, *[len(in_avals) + index for index in outs]}
    legacy = params["legacy_backend_config"]
    shapes = [_logical(a.shape, order) for a, order in zip(in_avals, params["input_layouts"], strict=True)]
    shapes += [tuple(aval.shape) for aval in out_avals]
    numbers = [_number(aval.dtype) for aval in (*in_avals, *out_avals)]
    return kinds.Handler(
        target=params["target_name"],
        version=params["custom_call_api_version"],
        attributes=plain(params["attributes"]),
        opaque=b"" if legacy is None else legacy.encode(),
        dtypes=tuple([TOKEN_NUMBER if index in tokens else n for index, n in enumerate(numbers)]),
        shapes=tuple([() if index in tokens else n for index, n in enumerate(shapes)]),
        aliases=params["input_output_aliases"],
    )


def _run(*values: Any, **params: Any) -> tuple[np.ndarray, ...]:
    """The call on the host, for programs that run elsewhere: a program of its own."""
    arrays = callbacks.as_arrays(values)
    return tuple([np.asarray(x) for x in ffi_call_p.bind(*arrays, **params)])


ffi_call_p = Primitive(
    "ffi_call", kinds.External(_run, foreign=True, handler=_handler), multiple_results=True, memoize=False
)


def _types(*in_avals: Any, result_avals: Any, output_layouts: Any, has_side_effect: bool, **_: Any) -> tuple[Any, Any]:
    outs = [_physical(aval, order) for aval, order in zip(result_avals, output_layouts, strict=True)]
    return outs, frozenset({effect}) if has_side_effect else effects.no_effects


ffi_call_p.def_effectful_abstract_eval(_types)


def _no_derivative(*args: Any, **params: Any) -> NoReturn:
    raise ValueError(
        f"The FFI call to `{params['target_name']}` cannot be differentiated. You can use `weft.custom_jvp` or "
        "`weft.custom_vjp` to add support."
    )


def _batched_order(order: Sequence[int] | None) -> tuple[int, ...] | None:
    """The layout with the mapped axis outermost."""
    return None if order is None else (0, *[d + 1 for d in order])


def _batch(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    method, (token_ins, token_outs) = params["vmap_method"], token_indices(params)
    if method in ("sequential", "sequential_unrolled"):
        if token_outs:
            raise NotImplementedError(
                f"[ffi_call] vmap of {params['target_name']!r}, one call for each element: a result is a token, and "
                "there are no arrays of tokens. Return no token from what is mapped"
            )
        unroll = method == "sequential_unrolled"
        return callbacks.one_by_one(ffi_call_p, size, values, dims, params, unroll=unroll)
    if method is None:
        raise NotImplementedError(
            f"vmap is only supported for the ffi_call primitive when vmap_method is one of 'sequential', "
            f"'sequential_unrolled', 'expand_dims', 'broadcast_all', or 'legacy_vectorized'. Got vmap_method=None, in "
            f"the call of {params['target_name']!r}: say by ffi_call(..., vmap_method=...) how its function is mapped."
        )
    whole, layouts = [], []
    shared = {i for i, _ in params["input_output_aliases"]}  # these have the shape of a result
    for i, (value, dim, order) in enumerate(zip(values, dims, params["input_layouts"], strict=True)):
        how = "broadcast_all" if i in shared else method
        if i in token_ins:  # of the one call
            whole.append(value)
            layouts.append(order)
            continue
        if dim is not None:
            value = at(value, dim, 0)
        elif how != "legacy_vectorized":
            value = repeated(size if how == "broadcast_all" else 1, value, 0)
        whole.append(value)
        layouts.append(order if dim is None and how == "legacy_vectorized" else _batched_order(order))
    types = params["result_avals"]
    stacked = callbacks.with_axis(types, size)
    changed = {
        "result_avals": tuple([types[o] if o in token_outs else aval for o, aval in enumerate(stacked)]),
        "input_layouts": tuple(layouts),
        "output_layouts": tuple([_batched_order(order) for order in params["output_layouts"]]),
    }
    outs = ffi_call_p.bind(*whole, **{**params, **changed})
    return outs, [None if o in token_outs else 0 for o in range(len(outs))]


def _on_words(operations: Any, primitive: Primitive, operands: Any, params: Any, words: Any) -> Any:
    """Keys are passed as their words, which lie side by side."""

    def widened(order: Sequence[int] | None, shape: Sequence[int]) -> tuple[int, ...] | None:
        return None if order is None else (*order, *range(len(order), len(shape)))

    types = [avals.physical_aval(aval) for aval in params["result_avals"]]
    ins = [widened(order, x.shape) for order, x in zip(params["input_layouts"], operands, strict=True)]
    outs = [widened(order, aval.shape) for order, aval in zip(params["output_layouts"], types, strict=True)]
    changed = {"result_avals": tuple(types), "input_layouts": tuple(ins), "output_layouts": tuple(outs)}
    return primitive.bind(*operands, **{**params, **changed})


ffi_call_p.jvp, ffi_call_p.transpose, ffi_call_p.batch = _no_derivative, _no_derivative, _batch
ffi_call_p.on_words = _on_words


# -- the function of users --------------------------------------------------------------------------------------------


def order_of(layout: Any, rank: int, what: str) -> tuple[int, ...] | None:
    """Dimensions from the outermost to the innermost; None: row-major."""
    if layout is None:
        return None
    if hasattr(layout, "major_to_minor"):
        if layout.tiling is not None:
            raise ValueError("The FFI does not support layouts with tiling")
        layout = layout.major_to_minor
    order = tuple([operator.index(d) for d in layout])
    if sorted(order) != list(range(rank)):
        raise ValueError(
            f"[ffi_call] the layout {order} of {what} is no order of its {rank} dimensions: name each of 0 to "
            f"{rank - 1} once, the outermost first"
        )
    return None if order == tuple(range(rank)) else order


def _orders(layouts: Any, types: Sequence[Any], what: str) -> tuple[tuple[int, ...] | None, ...]:
    if layouts is None:
        return (None,) * len(types)
    if len(layouts) != len(types):
        raise ValueError(
            f"The number of {what} arguments ({len(types)}) must equal the number of {what} layouts ({len(layouts)})."
            if what == "input"
            else f"The number of outputs ({len(types)}) must equal the number of output layouts ({len(layouts)})."
        )
    return tuple(
        [
            order_of(layout, aval.ndim, f"{what} {i}")
            for i, (layout, aval) in enumerate(zip(layouts, types, strict=True))
        ]
    )


def _result_avals(results: Sequence[Any]) -> tuple[Any, ...]:
    found = []
    for position, result in enumerate(results):
        if type(result).__name__ == "AbstractToken":
            found.append(runtime.ShapedArray((), TOKEN))
            continue
        if not hasattr(result, "shape") or not hasattr(result, "dtype"):
            raise ValueError(
                f"All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes. Got {result} at "
                f"position {position}."
            )
        found.append(runtime.ShapedArray(tuple(result.shape), dtypes.as_dtype(result.dtype)))
    return tuple(found)


def _aliases(given: Mapping[int, int] | None, in_avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """Pairs (operand, result) that share memory, checked."""
    pairs = []
    outs, orders = params["result_avals"], (params["input_layouts"], params["output_layouts"])
    for i, o in sorted((given or {}).items()):
        i, o = operator.index(i), operator.index(o)
        start = f"input_output_aliases contains the mapping '{i}:{o}'"
        for index, count, side in ((i, len(in_avals), "input"), (o, len(outs), "output")):
            if not 0 <= index < count:
                raise ValueError(f"{start} with {side} index {index} outside the range [0, {count}).")
        if any(o == other for _, other in pairs):
            raise ValueError(f"{start}, but output {o} is another input's already.")
        if (in_avals[i].shape, in_avals[i].dtype) != (outs[o].shape, outs[o].dtype):
            raise ValueError(
                f"{start} referring to an input with abstract value {in_avals[i]} and an output with a different "
                f"abstract value {outs[o]}."
            )
        if orders[0][i] != orders[1][o]:
            raise ValueError(
                f"{start} referring to an input with layout {orders[0][i]} and an output with a different layout "
                f"{orders[1][o]}."
            )
        pairs.append((i, o))
    return tuple(pairs)


def _check_version(version: int, legacy: Any) -> None:
    if version not in (1, 2, 3, 4):
        raise NotImplementedError(
            f"[ffi_call] custom_call_api_version={version} is not built: 4 is the typed interface, and 1, 2 and 3 the "
            "older ones, of bare pointers"
        )
    if version >= 4 and legacy is not None:
        raise ValueError(
            f"The use of the legacy_backend_config parameter requires custom_call_api_version < 4; got {version}."
        )


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function that calls the foreign function registered as ``target_name`` (``register_ffi_target``).

    The function takes arrays, which are the operands, and keyword arguments, which are attributes: numbers, NumPy
    arrays of numbers, strings, and dictionaries of these. A Python int is passed as int64, a float as float64: write
    ``np.float32(x)`` for another type. It gives an array of the shape and dtype of ``result_shape_dtypes``, or for a
    sequence of them as many arrays. Operands and results may be tokens (``lax.create_token``, ``core.abstract_token``
    among the results): a function sees them as ``ffi::Token``, and one that takes a token is called after the one that
    gave it.

    ``has_side_effect``: the call happens even if nothing uses its results. ``vmap_method``: what ``vmap`` makes of it,
    as for ``pure_callback``; None raises. ``input_layouts`` and ``output_layouts``: for each array None (row-major) or
    the order of its dimensions in memory, the outermost first. ``input_output_aliases``: which result, by its index,
    begins as which operand, and is updated in its memory. ``custom_call_api_version``: 4, or 1 to 3 for functions of
    bare pointers, which get ``legacy_backend_config`` instead of attributes.

    The call has no derivative: wrap it in ``weft.custom_jvp`` or ``weft.custom_vjp``. What the function answers as an
    error is raised as JaxRuntimeError.

    >>> x = weft.ShapeDtypeStruct((4,), "float32")
    >>> f = weft.ffi.ffi_call("rms_norm", x, vmap_method="broadcast_all")
    >>> weft.eval_shape(lambda x: f(x, eps=np.float32(1e-5)), x)
    ShapeDtypeStruct(shape=(4,), dtype=float32)
    """
    if vmap_method not in callbacks.VMAP_METHODS:
        allowed = list(callbacks.VMAP_METHODS)
        raise ValueError(f"vmap_method must be on of the allowed methods {allowed}, but got: {vmap_method}")
    _check_version(custom_call_api_version, legacy_backend_config)
    several = isinstance(result_shape_dtypes, Sequence)
    result_avals = _result_avals(result_shape_dtypes if several else [result_shape_dtypes])

    options: dict[str, Any] = {
        "target_name": str(target_name),
        "has_side_effect": bool(has_side_effect),
        "vmap_method": vmap_method,
        "custom_call_api_version": custom_call_api_version,
        "legacy_backend_config": legacy_backend_config,
        "result_avals": result_avals,
    }
    outs = [output_layouts] if output_layouts is not None and not several else output_layouts

    def wrapped(*args: Any, **attributes: Any) -> Any:
        results = _called(args, attributes, dict(options), input_layouts, outs, input_output_aliases)
        return results[0] if not several else tuple(results) if isinstance(result_shape_dtypes, tuple) else results

    return wrapped


def _called(
    operands: Sequence[Any], attributes: Mapping[str, Any], params: dict[str, Any], ins: Any, outs: Any, aliases: Any
) -> list[Any]:
    """The results of a call, with operands and results in row-major order."""
    if attributes and params["custom_call_api_version"] < 4:
        raise ValueError(
            "The use of ffi_call attributes requires a custom call API version of at least 4; got "
            f"api_version={params['custom_call_api_version']}."
        )
    in_avals = [avals.get_aval(x) for x in operands]
    tokens = [
        tuple([i for i, a in enumerate(types) if a.dtype is TOKEN]) for types in (in_avals, params["result_avals"])
    ]
    if any(tokens):
        params["tokens"] = tuple(tokens)
    params["attributes"] = as_attributes(attributes)
    params["input_layouts"] = _orders(ins, in_avals, "input")
    params["output_layouts"] = _orders(outs, params["result_avals"], "output")
    params["input_output_aliases"] = _aliases(aliases, in_avals, params)
    given = [_reordered(x, order) for x, order in zip(operands, params["input_layouts"], strict=True)]
    found = ffi_call_p.bind(*given, **params)
    back = [order and inverse(order) for order in params["output_layouts"]]
    return [_reordered(x, order) for x, order in zip(found, back, strict=True)]


def _reordered(value: Any, order: Sequence[int] | None) -> Any:
    return value if order is None else shape.transpose(value, order)

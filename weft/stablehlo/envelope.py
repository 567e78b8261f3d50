"""Exported functions as bytes, in the file format of ``jax.export`` (a FlatBuffers schema): both read each other's.

The numbers of fields and kinds are those of JAX 0.10's ``serialization.fbs``, whose file version is 11.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.core.sharding import explicit
from weft.dispatch.calls import struct
from weft.stablehlo import envelope_shardings, flat_tables, foreign_calls
from weft.stablehlo.exported import DisabledSafetyCheck, Exported
from weft.stablehlo.flat_tables import Numbers, Scalar, Table, View
from weft.stablehlo.unknown_sizes import symbolic_scopes

VERSION = 3  # what JAX writes, so that readers from before 2026 take the file
LEAF, NONE, TUPLE, LIST, DICT, CUSTOM = range(6)
_NAMES = """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 int4
    uint4 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float0 float8_e4m3 float8_e3m4
    float8_e8m0fnu float4_e2m1fn"""  # the kinds of dtypes, in their order
_KEYS = 27  # the number of the first kind of random keys; the others follow in this order
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")


def _dtype(name: str) -> Any:
    if name == "float0":
        return dtypes.float0
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


KINDS = {_dtype(name): number for number, name in enumerate(_NAMES.split())}
DTYPES = {number: dtype for dtype, number in KINDS.items()}


def _key_dtypes() -> list[Any]:
    return [lazy.submodule("weft.random").key_dtype(name) for name in _GENERATORS]


# -- custom nodes of trees --------------------------------------------------------------------------------------------


class Node(NamedTuple):
    """How nodes of a type are written."""

    type: type
    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    from_children: Callable[[Any, Sequence[Any]], Any] | None


_by_type: dict[type, Node] = {}
_by_name: dict[str, Node] = {}


def register(node: Node) -> None:
    """Raises ValueError if the type or the name is registered already."""
    if node.type in _by_type:
        raise ValueError(
            f"Duplicate serialization registration for type `{node.type}`. Previous registration was with "
            f"serialized_name `{_by_type[node.type].name}`."
        )
    if node.name in _by_name:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{node.name}`. Previous registration was for "
            f"type `{_by_name[node.name].type}`."
        )
    _by_type[node.type] = _by_name[node.name] = node


def _ordered_keys(keys: Any) -> bytes:
    if not all(isinstance(key, str) for key in keys):
        raise NotImplementedError(f"[serialize] keys of an OrderedDict must be strings, got {keys}")
    return json.dumps(list(keys)).encode()


register(
    Node(
        collections.OrderedDict,
        "collections.OrderedDict",
        _ordered_keys,
        lambda data: tuple(json.loads(data)),
        lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
    )
)

# -- writing ----------------------------------------------------------------------------------------------------------


def serialized(exported: Exported, vjp_order: int = 0) -> bytearray:
    """The bytes of a file; ``vjp_order`` derivatives are written with the function."""
    return bytearray(flat_tables.written(_exported_table(exported, vjp_order)))


def _exported_table(exported: Exported, vjp_order: int) -> Table:
    if vjp_order > 0 and not exported.has_vjp():
        raise ValueError("serialization of an Exported that does not have vjps of high-enough order")
    ins, outs = exported.in_avals, exported.out_avals
    unique = list(dict.fromkeys([_key(aval) for aval in (*ins, *outs)]))
    numbers = {key: index for index, key in enumerate(unique)}
    slots = {
        0: Scalar(VERSION, "H"),
        1: exported.fun_name,
        2: _tree(exported.in_tree),
        3: [_aval(_key(aval)) for aval in ins],
        4: _tree(exported.out_tree),
        5: [_aval(_key(aval)) for aval in outs],
        9: list(exported.platforms),
        10: [],
        11: [Table({0: _FFI}) for _ in exported.unordered_effects],
        12: [_check(check) for check in exported.disabled_safety_checks],
        13: exported.mlir_module_serialized,
        14: Scalar(exported.calling_convention_version, "H"),
        15: Numbers(exported.module_kept_var_idx, "H"),
        16: Scalar(int(exported.uses_global_constants), "B"),
        17: _exported_table(exported.vjp(), vjp_order - 1) if vjp_order > 0 else None,
        18: Scalar(exported.nr_devices, "I"),
        19: [_aval(key) for key in unique],
        22: Numbers([numbers[_key(aval)] for aval in ins], "I"),
        23: Numbers([numbers[_key(aval)] for aval in outs], "I"),
        **envelope_shardings.slots(exported._in_named_shardings, exported._out_named_shardings),
    }
    return Table(slots)


def _key(aval: Any) -> tuple[tuple[str, ...], Any]:
    return tuple(map(str, aval.shape)), aval.dtype


def _aval(key: tuple[tuple[str, ...], Any]) -> Table:
    shape, dtype = key
    if dtypes.is_extended(dtype):
        keys = _key_dtypes()
        if dtype not in keys:
            raise ValueError(
                f"[serialize] random keys of a generator of your own ({dtype.name}) cannot be written: files of "
                f"exported functions have those of {', '.join(_GENERATORS)}. Pass weft.random.key_data(key) instead"
            )
        number = _KEYS + keys.index(dtype)
    else:
        number = KINDS[dtype]
    return Table({0: Scalar(0, "b"), 1: list(shape), 2: Scalar(number, "b"), 3: Scalar(1, "b")})


def _check(check: DisabledSafetyCheck) -> Table:
    target = check.is_custom_call()
    return Table({0: Scalar(0 if target is None else 1, "b"), 1: target})


def _tree(tree: Any) -> Table:
    data, children = tree.node_data(), [_tree(child) for child in tree.children()]
    if data is None:
        return Table({0: Scalar(LEAF, "b")})
    kind, more = _KINDS_OF_NODES.get(data[0], CUSTOM), {}
    if kind == DICT:
        for key in data[1]:
            if not isinstance(key, str):
                raise TypeError(
                    f"Serialization is supported only for dictionaries with string keys. Found key {key} of type "
                    f"{type(key)}."
                )
        more = {2: list(data[1])}
    elif kind == CUSTOM:
        node = _by_type.get(data[0])
        if node is None:
            raise ValueError(
                f"Cannot serialize PyTreeDef containing an unregistered type `{data[0]}`. Use "
                "`export.register_pytree_node_serialization` or `export.register_namedtuple_serialization`."
            )
        written = node.serialize(data[1])
        if not isinstance(written, (bytes, bytearray)):
            raise ValueError(
                f"The custom serialization function for `{data[0]}` must return a `bytes` object. It returned a "
                f"{type(written)}."
            )
        more = {3: node.name, 4: bytes(written)}
    return Table({0: Scalar(kind, "b"), 1: children or None, **more})


_KINDS_OF_NODES: dict[type, int] = {type(None): NONE, tuple: TUPLE, list: LIST, dict: DICT}

# -- reading ----------------------------------------------------------------------------------------------------------


def deserialized(data: bytes | bytearray) -> Exported:
    """The exported function in a file. Raises ValueError for bytes that are no such file."""
    return _checked(View.root(bytes(data)))


_FFI = "<class 'jax._src.ffi.FfiEffect'>"  # of calls of foreign functions with effects, as files name it
DAMAGED = "[deserialize] the bytes are damaged, or no exported function"


def _checked(view: View) -> Exported:
    """Damaged bytes give numbers, names and structures that fail in many ways: the caller sees one error for all."""
    try:
        return _read_exported(view)
    except (LookupError, StopIteration, RecursionError, TypeError, OverflowError, UnicodeDecodeError) as e:
        raise ValueError(DAMAGED) from e


def _read_exported(view: View) -> Exported:
    scope = symbolic_scopes.SymbolicScope()
    unique = [_read_aval(table, scope) for table in view.tables(19)]
    avals = []
    for plain, numbered in ((3, 22), (5, 23)):
        numbers = view.numbers(numbered, "I")
        avals.append(
            tuple(
                [unique[n] for n in numbers] if numbers else [_read_aval(table, scope) for table in view.tables(plain)]
            )
        )
    ins, outs = avals
    effects = [table.string(0) for slot in (10, 11) for table in view.tables(slot)]
    if not all(effects):
        raise ValueError(DAMAGED)
    of_calls = [foreign_calls.effect for name in effects if name == _FFI]
    if len(of_calls) < len(effects):
        raise NotImplementedError(f"[deserialize] programs with effects are not read: {', '.join(effects)}")
    in_tree, out_tree = view.table(2), view.table(4)
    if in_tree is None or out_tree is None or not view.has(13):
        raise ValueError(DAMAGED)
    vjp = view.table(17)
    in_shardings, out_shardings = envelope_shardings.read(view)
    ins, outs = _with_types(ins, in_shardings), _with_types(outs, out_shardings)
    return Exported(
        fun_name=view.string(1),
        in_tree=_read_tree(in_tree, ins),
        in_avals=ins,
        out_tree=_read_tree(out_tree, outs),
        out_avals=outs,
        nr_devices=view.number(18, "I") or view.number(6, "h") or 1,
        platforms=tuple(view.strings(9)),
        disabled_safety_checks=tuple([_read_check(table) for table in view.tables(12)]),
        artifact=view.blob(13),
        calling_convention_version=view.number(14, "H"),
        module_kept_var_idx=view.numbers(15, "H"),
        uses_global_constants=bool(view.number(16, "B")),
        unordered_effects=tuple(of_calls),
        get_vjp=None if vjp is None else lambda _: _checked(vjp),
        in_shardings=in_shardings,
        out_shardings=out_shardings,
    )


def _with_types(avals: tuple[Any, ...], shardings: Sequence[Any]) -> tuple[Any, ...]:
    """Types that say how values lie along explicit axes."""
    if not shardings:
        return avals
    pairs = zip(avals, shardings, strict=True)
    return tuple([
        explicit.sharded(aval, sharding) if isinstance(aval, runtime.ShapedArray) and sharding is not None else aval
        for aval, sharding in pairs
    ])  # fmt: skip


def _read_aval(view: View, scope: Any) -> Any:
    number = view.number(2, "b")
    if number >= _KEYS:
        dtype = _key_dtypes()[number - _KEYS]
    else:
        dtype = DTYPES[number]
    shape = view.strings(1)
    if all(extent.isdigit() for extent in shape):
        return runtime.ShapedArray(tuple(map(int, shape)), dtype)
    return struct.ShapeDtypeStruct(tuple([_extent(text, scope) for text in shape]), dtype)


def _extent(text: str, scope: Any) -> Any:
    (extent,) = symbolic_scopes.symbolic_shape(text, scope=scope) or (None,)
    if extent is None:
        raise ValueError(DAMAGED)
    return extent


def _read_check(view: View) -> DisabledSafetyCheck:
    return DisabledSafetyCheck.custom_call(view.string(1)) if view.number(0, "b") else DisabledSafetyCheck.platform()


def _read_tree(view: View, leaves: Sequence[Any]) -> Any:
    """A structure, found by flattening a tree of it."""
    return runtime.tree_flatten(_read_node(view, _Source(iter(leaves), len(view.data) // 4)))[1]


class _Source:
    """The parts of a structure: its leaves, and how many nodes the file has room for.

    Each node needs four bytes that refer to it. In damaged files nodes may share their children, so that a few hundred
    bytes would be read as a structure of millions of nodes.
    """

    def __init__(self, leaves: Iterator[Any], nodes: int) -> None:
        self.leaves = leaves
        self.nodes = nodes

    def take(self, children: list[View]) -> list[View]:
        self.nodes -= len(children)
        if self.nodes < 0:
            raise ValueError(DAMAGED)
        return children


def _read_node(view: View, source: _Source) -> Any:
    kind = view.number(0, "b")
    if kind == LEAF:
        return next(source.leaves)
    children = [_read_node(child, source) for child in source.take(view.tables(1))]
    if kind == NONE:
        return None
    if kind in (TUPLE, LIST):
        return tuple(children) if kind == TUPLE else children
    if kind == DICT:
        return dict(zip(view.strings(2), children, strict=True))
    name = view.string(3)
    node = _by_name.get(name)
    if kind != CUSTOM or node is None:
        raise ValueError(
            f"Cannot deserialize a PyTreeDef containing an unregistered type `{name}`. Use "
            "`export.register_pytree_node_serialization` or `export.register_namedtuple_serialization`."
        )
    data = node.deserialize(view.blob(4))
    if node.from_children is not None:
        return node.from_children(data, children)
    leaf = runtime.tree_flatten(0)[1]
    definition = runtime.PyTreeDef.from_node_data_and_children((node.type, data), [leaf] * len(children))
    return runtime.tree_unflatten(definition, children)

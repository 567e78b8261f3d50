"""weft.export: functions as StableHLO, saved in the files of ``jax.export`` and called here or there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from weft._base import lazy, unbuilt

if TYPE_CHECKING:
    from weft.stablehlo.exported import DisabledSafetyCheck, Exported, call, export
    from weft.stablehlo.unknown_sizes.symbolic_dims import is_symbolic_dim
    from weft.stablehlo.unknown_sizes.symbolic_scopes import SymbolicScope, symbolic_args_specs, symbolic_shape

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "call",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

T = TypeVar("T")
_NAMES = lazy.Names(
    "weft.export",
    {
        "stablehlo.exported": "DisabledSafetyCheck Exported call export",
        "stablehlo.unknown_sizes.symbolic_dims": "is_symbolic_dim",
        "stablehlo.unknown_sizes.symbolic_scopes": "SymbolicScope symbolic_args_specs symbolic_shape",
    },
)
_missing = unbuilt.fallback(__name__)

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10


def __getattr__(name: str) -> Any:
    return _NAMES.find(name) if name in _NAMES else _missing(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})


def deserialize(blob: bytes | bytearray) -> Any:
    """The exported function in bytes that ``Exported.serialize`` of weft, or of JAX, has written.

    Raises ValueError for other bytes. The program is read when it is first called, by jaxlib.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise TypeError(f"[deserialize] takes the bytes of an exported function, got {type(blob).__name__}")
    return lazy.submodule("weft.stablehlo.envelope").deserialized(blob)


def default_export_platform() -> str:
    """The platform that functions are exported for unless others are named.

    >>> weft.export.default_export_platform()
    'cpu'
    """
    return "cpu"


def register_pytree_node_serialization(
    nodetype: type[T],
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type[T]:
    """Let nodes of a registered type of tree be arguments and results of functions that are serialized.

    ``serialize_auxdata`` and its inverse turn the static data of a node into bytes; ``from_children(data, children)``
    makes a node (by default as the type was registered). Raises ValueError where type or name are registered already.
    """
    envelope = lazy.submodule("weft.stablehlo.envelope")
    envelope.register(envelope.Node(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children))
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """Let named tuples of this type be arguments and results of functions that are serialized."""
    fields = getattr(nodetype, "_fields", None)
    if not issubclass(nodetype, tuple) or fields is None:
        raise ValueError("Use `export.register_pytree_node_serialization` for types that are no named tuples.")
    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda data: json.dumps(fields).encode(),
        deserialize_auxdata=json.loads,
        from_children=lambda names, children: nodetype(**dict(zip(names, children, strict=True))),
    )

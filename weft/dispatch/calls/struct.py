"""ShapeDtypeStruct: the shape and dtype of an array without its values.

In: shape, dtype, optional sharding and weak_type. Out: an immutable, hashable description that ``eval_shape``
returns and ``jit(f).lower``, ``make_jaxpr`` and ``eval_shape`` accept instead of arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from weft import dtypes, runtime
from weft.core import avals
from weft.core.sharding.meshes import chosen_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding, Sharding


def _checked_sharding(value: Any, shape: Sequence[int]) -> Any:
    """A sharding that a user described an array with; a spec alone belongs to the chosen mesh."""
    if isinstance(value, PartitionSpec):
        mesh = chosen_mesh()
        if mesh.empty:
            raise TypeError(
                "When specifying PartitionSpec to `ShapeDtypeStruct`, the context mesh cannot be empty. Please use "
                "`weft.set_mesh` to set the mesh context."
            )
        value = NamedSharding(mesh, value)
    if not isinstance(value, Sharding):
        raise ValueError(
            "sharding should be an instance of `weft.sharding.Sharding`, `weft.sharding.PartitionSpec` or "
            f"`weft.experimental.layout.Format`. Got {value} of type {type(value)}."
        )
    if isinstance(value, NamedSharding):
        value.check_compatible_aval(shape)
    return value


def _extent(value: Any) -> Any:
    """An int, or an extent without a value (see weft.export)."""
    return value if getattr(value, "is_symbolic", False) else operator.index(value)


class ShapeDtypeStruct:
    """The shape, dtype and other static attributes of an array.

    >>> weft.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __module__ = "weft"
    __slots__ = ("dtype", "is_ref", "manual_axis_type", "shape", "sharding", "weak_type")

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        manual_axis_type: Any = None,
        is_ref: bool = False,
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        put = object.__setattr__
        put(self, "shape", tuple(map(_extent, shape)))
        put(self, "dtype", dtypes.as_dtype(dtype))
        put(self, "sharding", sharding if sharding is None else _checked_sharding(sharding, self.shape))
        put(self, "weak_type", bool(weak_type))
        put(self, "manual_axis_type", manual_axis_type)
        put(self, "is_ref", bool(is_ref))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def format(self) -> Any:
        return self.sharding

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with the named attributes replaced."""
        unknown = set(changes) - set(self.__slots__)
        if unknown:
            raise TypeError(f"[ShapeDtypeStruct] update takes {', '.join(self.__slots__)}, got {sorted(unknown)}")
        values = {name: getattr(self, name) for name in self.__slots__} | changes
        return ShapeDtypeStruct(values.pop("shape"), values.pop("dtype"), **values)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The description of an existing array or struct."""
        aval = getattr(x, "aval", x)
        return cls(aval.shape, aval.dtype, sharding=getattr(x, "sharding", None), weak_type=aval.weak_type)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"[ShapeDtypeStruct] cannot set {name}: it is immutable, use .update({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"[ShapeDtypeStruct] cannot delete {name}: it is immutable")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak_type = ", weak_type=True" if self.weak_type else ""
        is_ref = ", is_ref=True" if self.is_ref else ""
        dtype = getattr(self.dtype, "name", str(self.dtype))
        return f"{type(self).__name__}(shape={self.shape}, dtype={dtype}{sharding}{weak_type}{is_ref})"

    __str__ = __repr__

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.dtype, self.sharding, self.weak_type, self.manual_axis_type, self.is_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, ({name: getattr(self, name) for name in self.__slots__},))


def _rebuild(values: dict[str, Any]) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(values.pop("shape"), values.pop("dtype"), **values)


def described(leaf: Any) -> Any:
    """The aval of a ShapeDtypeStruct, of an aval, or of what else has a shape and a dtype; None for other values."""
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return None
    canonical = dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    return runtime.ShapedArray(tuple(shape), canonical, weak_type=bool(getattr(leaf, "weak_type", False)))


avals.structs[ShapeDtypeStruct] = described

"""weft.experimental.layout: the order of an array's elements in memory, which is always row-major."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import runtime
from weft._base import unbuilt
from weft.core.sharding.shardings import Sharding
from weft.core.tracing.tracer import Tracer

__all__ = ["Format", "Layout", "with_layout_constraint"]


class _Auto:
    """``Layout.AUTO``: the compiler chooses."""

    def __repr__(self) -> str:
        return "AUTO"


class Layout:
    """The order of dimensions in memory, the outermost first; arrays of weft have ``(0, 1, 2, ...)``.

    >>> from weft.experimental.layout import Layout
    >>> Layout((0, 1)).major_to_minor
    (0, 1)
    """

    AUTO = _Auto()

    def __init__(self, major_to_minor: Any, tiling: Any = None, sub_byte_element_size_in_bits: int = 0) -> None:
        self.major_to_minor = tuple(major_to_minor)
        self.tiling = None if tiling is None else tuple(map(tuple, tiling))
        self.sub_byte_element_size_in_bits = sub_byte_element_size_in_bits

    def check_compatible_aval(self, aval_shape: Any) -> None:
        """ValueError if it is one of another number of dimensions."""
        if len(self.major_to_minor) != len(aval_shape):
            raise ValueError(
                "Length of major_to_minor and the rank of the value should match. Got "
                f"major_to_minor={self.major_to_minor} and shape={aval_shape}"
            )

    def update(self, **changed: Any) -> Layout:
        """This layout with other attributes."""
        return Layout(**{**self._fields(), **changed})

    def _fields(self) -> dict[str, Any]:
        return {
            "major_to_minor": self.major_to_minor, "tiling": self.tiling,
            "sub_byte_element_size_in_bits": self.sub_byte_element_size_in_bits,
        }  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(tuple(self._fields().values()))

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{name}={value}' for name, value in self._fields().items())})"


class Format:
    """A layout and a sharding.

    >>> from weft.experimental.layout import Format, Layout
    >>> Format(Layout((0,)), jnp.arange(3).sharding).layout.major_to_minor
    (0,)
    """

    __slots__ = ("layout", "sharding")

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        if isinstance(layout, Layout) and sharding is None:
            raise ValueError(
                f"Sharding has to be concrete when layout is of type {type(layout)}. Please pass a "
                "`weft.sharding.NamedSharding` or `weft.sharding.SingleDeviceSharding` to the sharding argument. Got "
                f"sharding {sharding}"
            )
        if not isinstance(layout, Layout | _Auto | None):
            raise TypeError(
                "Invalid value received for the layout argument. Expected values are `None`, `Layout.AUTO` or an "
                f"instance of `Layout`. Got {layout} of type {type(layout)}"
            )
        if not isinstance(sharding, Sharding | None):
            raise TypeError(
                "Invalid value received for the sharding argument. Expected values are `None` or an instance of "
                f"`weft.sharding.Sharding`. Got {sharding} of type {type(sharding)}"
            )
        self.layout, self.sharding = layout, sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self.layout == other.layout and self.sharding == other.sharding

    def __hash__(self) -> int:
        return hash((self.layout, self.sharding))

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


def dense(sharding: Sharding, ndim: int) -> Format:
    """The format of an array of weft that lies so."""
    return Format(Layout(range(ndim)), sharding)


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """``x`` (a tree of arrays) in a layout, which is row-major: NotImplementedError for others.

    >>> from weft.experimental.layout import Layout, with_layout_constraint
    >>> with_layout_constraint(jnp.arange(3), Layout((0,)))
    Array([0, 1, 2], dtype=int32)
    """
    if not isinstance(layouts, Layout):
        raise TypeError(f"[with_layout_constraint] layouts is a weft.experimental.layout.Layout, got {layouts!r}")
    for leaf in runtime.tree_flatten(x)[0]:
        shape = leaf.shape if isinstance(leaf, runtime.Array | Tracer) else np.shape(leaf)
        layouts.check_compatible_aval(shape)
        if layouts.major_to_minor != tuple(range(len(shape))) or layouts.tiling:
            raise NotImplementedError(
                f"[with_layout_constraint] arrays of weft are row-major, {Layout(range(len(shape)))}; got {layouts}"
            )
    return x


__getattr__ = unbuilt.fallback(__name__)

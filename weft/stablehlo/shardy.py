"""Meshes and shardings as text, in the dialect of Shardy, which XLA reads: ``#sdy.sharding<@mesh, [{"x"}, {}]>``.

A module with shardings opens with its meshes. An argument, a result and a constraint name one of them and, for each
dimension, axes of it, the outermost first; ``{?}`` is a dimension that is left open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding


class Meshes:
    """The meshes of a module, by their axes. Devices are numbered in the order of the mesh, in all of them.

    ``count``: on how many devices the module runs; 0 while no mesh is known.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._symbols: dict[tuple[tuple[str, int], ...], str] = {}

    def symbol(self, mesh: Any) -> str:
        """The name of a mesh; NotImplementedError if it has another number of devices than those before."""
        if not mesh.empty and self.count not in (0, mesh.size):
            raise NotImplementedError(
                f"[stablehlo] a program for {self.count} devices names {mesh}, a mesh of {mesh.size}: a module is for "
                "one list of devices"
            )
        self.count = self.count or mesh.size
        axes = tuple([(str(name), size) for name, size in mesh.shape_tuple])
        number = len(self._symbols)
        return self._symbols.setdefault(axes, "mesh" if not number else f"mesh_{number - 1}")

    def text(self) -> str:
        """The operations with which the module opens."""
        lines = []
        for axes, symbol in self._symbols.items():
            listed = ", ".join([f"{quoted(name)}={size}" for name, size in axes])
            lines.append(f'  "sdy.mesh"() <{{mesh = #sdy.mesh<[{listed}]>, sym_name = "{symbol}"}}> : () -> ()\n')
        return "".join(lines)

    def short(self, mesh: Any, spec: PartitionSpec, ndim: int, among: frozenset[Any] | None = None) -> str:
        """``<@mesh, [{"x"}, {}]>``. ``among``: the axes that are cut by hand; others may cut further."""
        is_open = among is not None and bool(set(mesh.axis_names) - among)
        entries = []
        for entry in spec.padded(ndim).partitions:
            axes = [quoted(name) for name in names_of(entry)]
            entries.append("{" + ", ".join([*axes, *["?"] * (is_open or entry is UNCONSTRAINED)]) + "}")
        partial = f", unreduced={{{', '.join(sorted(map(quoted, spec.unreduced)))}}}" if spec.unreduced else ""
        return f"<@{self.symbol(mesh)}, [{', '.join(entries)}]{partial}>"

    def sharding(self, sharding: NamedSharding, ndim: int) -> str:
        """``#sdy.sharding<@mesh, [{"x"}, {}]>``."""
        return f"#sdy.sharding{self.short(sharding.mesh, sharding.spec, ndim)}"

    def attributes(self, shardings: Sequence[NamedSharding | None], ranks: Sequence[int]) -> list[str]:
        """For each argument (or result) of a function the attribute that says how it lies; empty if nothing does."""
        return [
            "" if given is None else f"sdy.sharding = {self.sharding(given, ndim)}"
            for given, ndim in zip(shardings, ranks, strict=True)
        ]


def quoted(name: Any) -> str:
    """The name of an axis as a string of MLIR."""
    return json.dumps(str(name), ensure_ascii=False)


def says_something(sharding: Any) -> bool:
    """Whether it is one that can be written: over the axes of a mesh."""
    return isinstance(sharding, NamedSharding) and not sharding.mesh.empty


# For operations that ask for shardings of their results: these shardings, from the parameters.
ASKED: dict[str, Callable[[dict[str, Any]], Sequence[Any]]] = {
    "sharding_constraint": lambda params: [params["sharding"]],
    "reshard": lambda params: [params["dst_sharding"]],
    "exported_value": lambda params: [params["sharding"]],
    "device_put": lambda params: params["devices"],
}

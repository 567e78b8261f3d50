"""PartitionSpec: along which axes of a mesh the dimensions of an array lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class _Unconstrained:
    """``PartitionSpec.UNCONSTRAINED``: the dimension may lie anyhow."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class PartitionSpec:
    """For each dimension of an array the mesh axis (or axes) along which it is cut; None where it is not.

    ``unreduced`` and ``reduced`` name axes along which values are partial sums, which one device does not have.

    >>> from weft.sharding import PartitionSpec as P
    >>> P("batch", None, ("x", "y"))
    P('batch', None, ('x', 'y'))
    """

    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> None:
        self._partitions = tuple(
            entry[0] if isinstance(entry, tuple) and len(entry) == 1 else entry for entry in partitions
        )
        self.unreduced, self.reduced = frozenset(unreduced), frozenset(reduced)

    @property
    def partitions(self) -> tuple[Any, ...]:
        return self._partitions

    def update(self, **changed: Any) -> PartitionSpec:
        """The same with other ``partitions``, ``unreduced`` or ``reduced``."""
        partitions = changed.pop("partitions", self._partitions)
        return PartitionSpec(*partitions, **{"unreduced": self.unreduced, "reduced": self.reduced, **changed})

    def index(self, value: Any) -> int:
        return self._partitions.index(value)

    def count(self, value: Any) -> int:
        return self._partitions.count(value)

    def _key(self) -> tuple[Any, ...]:
        return self._partitions, self.unreduced, self.reduced

    def __getitem__(self, index: Any) -> Any:
        return self._partitions[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, PartitionSpec | tuple):
            return NotImplemented
        return self.update(partitions=(*self, *other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        words = [repr(entry) for entry in self._partitions]
        words += [
            f"{name}={set(value)}"
            for name, value in (("unreduced", self.unreduced), ("reduced", self.reduced))
            if value
        ]
        return f"P({words[0]},)" if len(words) == 1 and self._partitions else f"P({', '.join(words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _spec, (self._partitions, self.unreduced, self.reduced)


def _spec(partitions: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)

"""PartitionSpec: for each dimension of an array, the axes of a mesh along which it is cut.

    P("batch", None, ("x", "y"))     dimension 0 along batch, 1 whole, 2 along x (major) and y (minor)

``unreduced`` names axes along which every device has only a term of the sum that the array is, ``reduced`` those along
which a cotangent is such a sum.
"""

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


def _entry(value: Any) -> Any:
    """One entry in its usual form: no tuples of one name, None for no names."""
    if isinstance(value, tuple | list):
        return tuple(value) if len(value) > 1 else value[0] if value else None
    return value


def names_of(entry: Any) -> tuple[Any, ...]:
    """The mesh axes that one entry of a spec names, the major one first."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def _axes(name: str, value: Any) -> frozenset[Any]:
    if not isinstance(value, set | frozenset):
        raise TypeError(f"{name} argument of PartitionSpec should of type `frozenset` or `set`. Got type {value}")
    if None in value:
        raise ValueError(f"{name} cannot contain None. All elements in {name} should refer to the mesh axes.")
    return frozenset(value)


class PartitionSpec:
    """For each dimension of an array the mesh axis (or axes) along which it is cut; None where it is whole.

    ``unreduced`` and ``reduced`` name axes along which values are partial sums, which one device does not have.

    >>> from weft.sharding import PartitionSpec as P
    >>> P("batch", None, ("x", "y"))
    P('batch', None, ('x', 'y'))
    """

    __slots__ = ("__weakref__", "_hash", "_partitions", "reduced", "unreduced")

    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> None:
        self._partitions = tuple([_entry(entry) for entry in partitions])
        self.unreduced, self.reduced = unreduced, reduced
        if unreduced or reduced or not isinstance(unreduced, frozenset) or not isinstance(reduced, frozenset):
            self._check_partial()
        self._hash = hash((self._partitions, self.unreduced, self.reduced))

    def _check_partial(self) -> None:
        self.unreduced, self.reduced = _axes("unreduced", self.unreduced), _axes("reduced", self.reduced)
        if self.unreduced & self.reduced:
            raise ValueError(
                "`unreduced` and `reduced` argument to PartitionSpec cannot overlap. "
                f"Got unreduced: {self.unreduced} and reduced: {self.reduced}"
            )
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if any(axis in axes for entry in self._partitions for axis in names_of(entry)):
                raise ValueError(
                    f"partitions cannot overlap with {name} axes passed to PartitionSpec. Got partitions: "
                    f"{self._partitions} and {name} axes: {axes}"
                )

    @property
    def partitions(self) -> tuple[Any, ...]:
        return self._partitions

    @property
    def is_partial(self) -> bool:
        """Whether it names unreduced or reduced axes."""
        return bool(self.unreduced or self.reduced)

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None) -> PartitionSpec:
        """This spec with other ``partitions``, ``unreduced`` or ``reduced``."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def axes(self) -> tuple[Any, ...]:
        """All axes that cut a dimension, in the order of the dimensions."""
        return tuple([axis for entry in self._partitions for axis in names_of(entry)])

    def padded(self, ndim: int) -> PartitionSpec:
        """With an entry for each of ``ndim`` dimensions."""
        missing = ndim - len(self._partitions)
        return self.update((*self._partitions, *(None,) * missing)) if missing > 0 else self

    def index(self, value: Any) -> int:
        return self._partitions.index(_entry(value))

    def count(self, value: Any) -> int:
        return self._partitions.count(_entry(value))

    def _refuse_partial(self, what: str) -> None:
        if self.is_partial:
            raise ValueError(
                f"Using {what} is dangerous when PartitionSpec has non-empty unreduced/reduced set. Please use "
                f"{what.replace('pspec', 'spec.partitions')}"
            )

    def __getitem__(self, index: Any) -> Any:
        self._refuse_partial("pspec[...]")
        return self._partitions[index]

    def __iter__(self) -> Iterator[Any]:
        self._refuse_partial("*pspec")
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            both = (*self._partitions, *other._partitions)
            return PartitionSpec(
                *both, unreduced=self.unreduced | other.unreduced, reduced=self.reduced | other.reduced
            )
        if not isinstance(other, tuple):
            raise NotImplementedError(f"[PartitionSpec] P + {other!r}: a spec takes a spec or a tuple")
        self._check_joined(other)
        return PartitionSpec(*self._partitions, *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, tuple):
            raise NotImplementedError(f"[PartitionSpec] {other!r} + P: a spec takes a spec or a tuple")
        self._check_joined(other)
        return PartitionSpec(*other, *self._partitions)

    def _check_joined(self, other: tuple[Any, ...]) -> None:
        if self.is_partial:
            raise TypeError(
                f"[PartitionSpec] a tuple cannot be joined to {self}, which has unreduced or reduced axes; got {other}"
            )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, PartitionSpec)
            and self._hash == other._hash
            and self._partitions == other._partitions
            and self.unreduced == other.unreduced
            and self.reduced == other.reduced
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        text = repr(self._partitions)[1:-1]
        partial = [
            f"{name}={set(axes)!r}" for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)) if axes
        ]
        if not partial:
            return f"P({text})"
        return f"P({', '.join([*([text.rstrip(',')] if text else []), *partial])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _spec, (self._partitions, self.unreduced, self.reduced)


def _spec(partitions: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)

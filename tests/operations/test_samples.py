"""The table is complete: every primitive that weft.operations declares has samples, and none is listed twice."""

from __future__ import annotations

import pytest

import weft.lax as lax
from tests.operations import samples
from weft import core, operations
from weft.core import kinds, primitive

# what `//`, `reduce` and `argsort` become; programs, no primitives, in JAX
INTERNAL = {"floor_div", "fold", "random_gamma_grad", "sort_order"}
WITHOUT_RESULTS = {"dce_sink"}  # nothing to compare: tests/dispatch/test_composites.py


def declared() -> dict[str, core.Primitive]:
    found = [value for value in vars(operations).values() if isinstance(value, core.Primitive)]
    return {p.name: p for p in found}


@pytest.mark.parametrize("name", sorted(set(declared()) - INTERNAL - WITHOUT_RESULTS))
def test_primitive_has_samples(name: str) -> None:
    listed = {operation.primitive_name for operation in samples.ELEMENTWISE} | set(samples.PROGRAMS)
    assert name in listed


def test_names_are_listed_once() -> None:
    names = [operation.name for operation in samples.ELEMENTWISE]
    assert len(set(names)) == len(names)


def test_every_slot_of_an_elementwise_operation_is_given() -> None:
    for p in declared().values():
        assert p is primitive.registry[p.name]
        if isinstance(p.kind, kinds.Elementwise):
            assert callable(p.kind.scalar) and callable(p.kind.reference) and p.kind.cost > 0


def test_facade_has_every_operation() -> None:
    public = {name for name in dir(operations) if not name.startswith("_")}
    functions = {name for name in public if callable(getattr(operations, name)) or name.endswith("_p")}
    assert functions - set(vars(lax)) == set()

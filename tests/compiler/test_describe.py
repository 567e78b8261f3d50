"""The native part of describing a program: what it is given is checked, and what it does not know is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, runtime
from weft.compiler import flat
from weft.core.jaxpr import ClosedJaxpr


def _described(closed: Any) -> flat.Flat:
    found = flat.describe(closed)
    assert found is not None
    return found


def test_a_literal_that_was_met_before_is_the_same_class() -> None:
    def twice(x: Any) -> Any:
        return (x + 2.5) * 2.5

    def apart(x: Any) -> Any:
        return (x + 2.5) * 3.5

    x = jnp.ones((3, 5))
    same, other = (_described(weft.make_jaxpr(f)(x)) for f in (twice, apart))
    assert same.key == other.key
    assert same.pattern != other.pattern
    assert [value for value in same.numbers if type(value) is float] == [2.5, 2.5]
    assert [value for value in other.numbers if type(value) is float] == [2.5, 3.5]


@pytest.mark.parametrize("values", [(0.0, -0.0), (-0.0, 0.0), (0.0, 1e-300), (np.nan, np.inf), (np.inf, -np.inf)])
def test_literals_that_compare_alike_or_not_at_all_are_told_apart(values: tuple[float, float]) -> None:
    first, second = values
    x = jnp.ones((3, 5))
    keys = []
    for a, b in ((first, second), (first, first), (second, second)):
        described = _described(weft.make_jaxpr(lambda x, a=a, b=b: lax.div(lax.add(x, a), b))(x))
        keys.append((described.key, described.pattern, described.numbers))
    assert len(set(keys)) == 3


def test_a_variable_that_is_a_literal_is_described_as_one() -> None:
    """Inside of a call an operand's number may be a literal's."""
    inner = weft.jit(lambda x, y: x * y + y)
    x = jnp.ones((4, 6))
    called = weft.jit(lambda x: inner(x, 0.75))
    direct = lax.add(lax.mul(x, 0.75), 0.75)
    np.testing.assert_array_equal(called(x), direct)
    described = _described(weft.make_jaxpr(lambda x: inner(x, 0.75))(x))
    assert sum(value == 0.75 for value in described.numbers if type(value) is float) >= 1


class _Writer:
    """One that is asked, and answers with what it is given."""

    def __init__(self, described: Any = (), type_of: Any = (("t",), ()), value: Any = None) -> None:
        self.lists: tuple[list[Any], ...] = ([], [], [], [], [], [])
        rows, avals, literals, key, pattern, values = self.lists
        self.tables = (
            rows, avals, literals, key, pattern, values, {}, {}, {}, lax.div_p,
            lambda *_: described, lambda *_: type_of, lambda *_: value, 10,
        )  # fmt: skip


def _program() -> ClosedJaxpr:
    return weft.make_jaxpr(lambda x: x + 1.5)(jnp.ones(3))


def test_every_equation_of_an_unknown_kind_is_asked_for() -> None:
    jaxpr, writer = _program().jaxpr, _Writer(described=("p",))
    runtime.describe_equations(writer, writer.tables, jaxpr.eqns, {jaxpr.invars[0]: 0}, None)
    rows, avals, literals, key, pattern, values = writer.lists
    assert len(rows) == len(avals) == len(literals) == 1
    assert key == [jaxpr.eqns[0].primitive, ("p",), 0, -1, ("t",)]
    assert pattern == values == []


def test_what_was_described_otherwise_writes_nothing() -> None:
    jaxpr, writer = _program().jaxpr, _Writer(described=None)
    runtime.describe_equations(writer, writer.tables, jaxpr.eqns, {jaxpr.invars[0]: 0}, None)
    assert [len(written) for written in writer.lists] == [0, 0, 1, 0, 0, 0]


def test_bad_input_raises() -> None:
    jaxpr, writer = _program().jaxpr, _Writer()
    env = {jaxpr.invars[0]: 0}
    tables = writer.tables
    for given in ((), tables[:-1], (*tables[:-1], "x"), (tables[:1], *tables[1:]), (*tables[:8], set(), *tables[9:])):
        with pytest.raises(TypeError):
            runtime.describe_equations(writer, given, jaxpr.eqns, env, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is no equation"):
        runtime.describe_equations(writer, tables, [3], env, None)
    with pytest.raises(KeyError):  # a variable that nobody has numbered
        runtime.describe_equations(writer, tables, jaxpr.eqns, {}, None)
    wrong = _Writer(type_of=3)
    with pytest.raises(TypeError, match="a type is described by a pair"):
        runtime.describe_equations(wrong, wrong.tables, jaxpr.eqns, env, None)


def test_errors_of_what_is_asked_are_passed_on() -> None:
    jaxpr, writer = _program().jaxpr, _Writer()

    def refuse(*_: Any) -> Any:
        raise flat.Unfit

    tables = (*writer.tables[:10], refuse, *writer.tables[11:])
    with pytest.raises(flat.Unfit):
        runtime.describe_equations(writer, tables, jaxpr.eqns, {jaxpr.invars[0]: 0}, None)

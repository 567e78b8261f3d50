"""Equations made natively: what the collector is shown of them, and that cycles through programs are still found."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, runtime
from weft.core.programs.jaxpr import JaxprEqn, Literal, Var
from weft.core.tracing.trace import DynamicJaxprTracer


def _chain(x: Any) -> Any:
    for _ in range(500):
        x = lax.mul(lax.add(x, x), x) * 2.0
        x = lax.transpose(lax.reshape(x, (2, 3)), (1, 0)).sum(axis=0)
        x = jnp.concatenate([x, x, x])
    return x


def test_a_collection_does_not_walk_the_equations_of_a_program() -> None:
    x = np.ones(6, np.float32)
    weft.make_jaxpr(lambda x: _chain(x) + 1)(x)  # imports
    gc.collect()
    before = len(gc.get_objects())
    closed = weft.make_jaxpr(_chain)(x)
    assert len(closed.eqns) >= 3000
    assert len(gc.get_objects()) - before < len(closed.eqns) / 10


def test_equations_that_carry_programs_or_functions_stay_known_to_the_collector() -> None:
    inner = weft.jit(lambda x: jnp.sin(x) + 1)
    jaxpr = weft.make_jaxpr(lambda x: weft.pure_callback(np.sin, x, inner(x)))(np.float32(1))
    carrying = [eqn for eqn in jaxpr.eqns if any(gc.is_tracked(value) for value in eqn.params.values())]
    assert len(carrying) >= 2
    assert all(gc.is_tracked(eqn) and gc.is_tracked(eqn.params) for eqn in carrying)


class _Scale:
    """A function that is a parameter of the program which it holds."""

    program: Any = None

    def __call__(self, x: Any) -> Any:
        return np.asarray(x) * 2


def _forgotten(reference: weakref.ref[Any]) -> bool:
    weft.clear_caches()
    gc.collect()
    return reference() is None


def test_a_cycle_through_a_program_is_collected() -> None:
    def cycle() -> weakref.ref[Any]:
        scale = _Scale()
        x = np.ones(3, np.float32)
        scale.program = weft.make_jaxpr(lambda v: jnp.sin(weft.pure_callback(scale, v, jnp.cos(v))))(x)
        assert any(eqn.primitive.name == "pure_callback" for eqn in scale.program.eqns)
        return weakref.ref(scale)

    assert _forgotten(cycle())


def test_values_kept_from_a_trace_are_collected_with_their_cycle() -> None:
    def cycle() -> weakref.ref[Any]:
        keeper = _Scale()

        def f(x: Any) -> Any:
            keeper.program = [keeper, *(x + i for i in range(10))]
            return x

        weft.make_jaxpr(f)(1.0)
        return weakref.ref(keeper.program[1]._trace)

    assert _forgotten(cycle())


def test_parameters_are_as_many_references_as_the_program_holds() -> None:
    marker = (object.__new__(_Scale),)
    aval = weft.typeof(np.ones(3, np.float32))
    counts = [sys.getrefcount(marker), sys.getrefcount(aval)]
    eqn = runtime.equation([Var(aval)], (aval, aval), lax.add_p, {"x": marker}, frozenset(), None)
    assert [v.aval for v in eqn.outvars] == [aval, aval]
    assert gc.is_tracked(eqn)
    del eqn
    assert [sys.getrefcount(marker), sys.getrefcount(aval)] == counts


def test_atoms_of_operands() -> None:
    def traced(x: Any) -> Any:
        other: list[Any] = []
        weft.make_jaxpr(lambda y: other.append(y) or y)(1.0)  # a value of a trace that is over
        found, avals = runtime.atoms(x._trace, (x, 2.0, np.float32(3)))
        assert found[0] is x.val
        assert [type(atom) for atom in found[1:]] == [Literal, Literal]
        assert list(avals) == [atom.aval for atom in found]
        with pytest.raises(weft.errors.UnexpectedTracerError):
            runtime.atoms(x._trace, (x, *other))
        with pytest.raises(TypeError, match="not a valid JAX type"):
            runtime.atoms(x._trace, (x, "a"))
        return x

    weft.make_jaxpr(traced)(np.ones(3, np.float32))


def test_bad_arguments_raise() -> None:
    with pytest.raises(TypeError, match="expected a trace and a tuple"):
        runtime.atoms(None, [])  # type: ignore[arg-type]  # refused at run time too
    with pytest.raises(TypeError, match="expected a list of operands and a dict"):
        runtime.equation((), None, None, {}, frozenset(), None)  # type: ignore[arg-type]  # refused at run time too
    with pytest.raises(TypeError, match="expected 8 arguments, got 2"):
        runtime.record(None, [])  # type: ignore[call-arg]  # refused at run time too
    with pytest.raises(TypeError, match="expected a list"):
        runtime.record(None, (), [], None, None, {}, frozenset(), None)  # type: ignore[arg-type]  # refused at run time too
    with pytest.raises(TypeError, match="expected a class"):
        runtime.install_recording(1, Literal, JaxprEqn, DynamicJaxprTracer)  # type: ignore[arg-type]  # refused at run time too
    with pytest.raises(AttributeError, match="val"):
        runtime.install_recording(Var, Var, JaxprEqn, DynamicJaxprTracer)
    with pytest.raises(TypeError, match="is no slot"):
        runtime.install_recording(type("V", (), {"aval": 1}), Literal, JaxprEqn, DynamicJaxprTracer)
    assert str(weft.make_jaxpr(lambda x: x + 1)(1.0))


def _template() -> tuple[list[Any], Var]:
    jaxpr = weft.make_jaxpr(lambda x: lax.mul(lax.add(x, 2.0), x))(jnp.ones(3)).jaxpr
    numbers = {jaxpr.invars[0]: 0, jaxpr.eqns[0].outvars[0]: 1}
    steps = []
    for eqn in jaxpr.eqns:
        reads = tuple([atom if isinstance(atom, Literal) else numbers[atom] for atom in eqn.invars])
        steps.append((eqn.primitive, eqn.params, eqn.effects, reads, tuple([v.aval for v in eqn.outvars])))
    return steps, jaxpr.invars[0]


def test_a_template_is_replayed_on_new_variables() -> None:
    steps, x = _template()
    equations: list[JaxprEqn] = []
    atoms: list[Any] = [x]
    runtime.replay(equations, steps, atoms, ("here",))
    assert [eqn.primitive for eqn in equations] == [lax.add_p, lax.mul_p]
    assert equations[0].invars[0] is x and type(equations[0].invars[1]) is Literal
    assert equations[1].invars == [equations[0].outvars[0], x]
    assert atoms == [x, equations[0].outvars[0], equations[1].outvars[0]]
    assert all(eqn.source == ("here",) for eqn in equations)


def test_bad_templates_raise() -> None:
    steps, x = _template()
    with pytest.raises(IndexError, match="there is no atom 1"):
        runtime.replay([], steps[1:], [x], None)
    with pytest.raises(IndexError, match="there is no atom -1"):
        runtime.replay([], [(*steps[0][:3], (-1,), steps[0][4])], [x], None)
    for step in (3, steps[0][:4], (*steps[0][:4], [])):
        with pytest.raises(TypeError, match="is no step of a template"):
            runtime.replay([], [step], [x], None)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        runtime.replay((), steps, [x], None)  # type: ignore[arg-type]

"""A call that is replayed records what running it records: the printed program, the positions, the constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.oracle import differential, test_numpy_jaxprs
from weft import runtime
from weft.dispatch.calls import replay

ROWS = [(group, row) for group, row in test_numpy_jaxprs._ROWS if not test_numpy_jaxprs._parted(row)[0]]


def program(expression: str, types: list[str]) -> tuple[str, list[str]]:
    """The printed program of an expression that is evaluated twice, and the position of each equation."""
    names = ", ".join("xyz"[: len(types)])
    namespace = test_numpy_jaxprs._namespace(weft)
    function = eval(f"lambda {names}: (({expression}), ({expression}))", namespace)
    arguments = [weft.random.key(0) if text == "key" else differential.argument(text) for text in types]
    closed = weft.make_jaxpr(function)(*arguments)
    return differential.normalized(str(closed)), [str(eqn.source_info) for eqn in closed.eqns]


@pytest.mark.parametrize(("group", "row"), ROWS, ids=[f"{group}-{row}" for group, row in ROWS])
def test_replayed_equals_run(group: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expression, _, types = row.rpartition(" |")
    program(expression, types.split())
    replayed = program(expression, types.split())
    monkeypatch.setattr(replay, "call_of", lambda *_: None)
    run = program(expression, types.split())
    assert replayed == run


def traced(function: Any, *args: Any) -> str:
    return str(weft.make_jaxpr(lambda *a: function(*a))(*args))


def test_calls_with_rules_have_jaxprs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(3, np.float32)
    function = lambda a: weft.nn.relu(a) + weft.nn.relu(weft.nn.relu6(a)) + jnp.logaddexp(a, weft.nn.relu(a))
    traced(function, x)
    remembered = traced(function, x)
    for rule in (weft.nn.relu, weft.nn.relu6):
        monkeypatch.setattr(rule, "_programs", None)
    assert remembered == traced(function, x)
    assert np.allclose(weft.jit(function)(x), function(x))


def test_cleared_caches_leave_no_old_program_of_a_custom_rule() -> None:
    x = np.ones(3, np.float32)
    before = traced(jnp.ldexp, x, np.arange(3))
    weft.clear_caches()
    assert traced(jnp.ldexp, x, np.arange(3)) == before


def test_an_operand_that_is_given_twice() -> None:
    x, y = np.ones(3, np.float32), np.ones(3, np.float32)
    assert "add a a" in traced(lambda a, b: jnp.add(a, a), x, y)
    assert "add a b" in traced(lambda a, b: jnp.add(a, b), x, y)
    assert "add b a" in traced(lambda a, b: jnp.add(b, a), x, y)


def test_zeros_of_both_signs() -> None:
    x = np.ones(3, np.float32)
    for zero in (0.0, -0.0, np.float32(0.0), np.float32(-0.0)):
        assert f"{zero}:f32[]" in traced(lambda a, zero=zero: a + zero, x)
    assert "(1-0j)" in traced(lambda a: a + complex(1, -0.0), np.ones(3, np.complex64))
    assert "(1+0j)" in traced(lambda a: a + complex(1, 0.0), np.ones(3, np.complex64))


def test_scalars_of_equal_value_and_other_type() -> None:
    x = np.ones(3, np.int32)
    assert "i32[3] = add a 1:i32[]" in traced(lambda a: a + 1, x)
    assert "f32[3]" in traced(lambda a: a + 1.0, x)
    assert "i32[3] = add a 1:i32[]" in traced(lambda a: a + True, x)


def test_a_captured_value_is_not_taken_for_an_argument() -> None:
    def outer(x: Any, y: Any) -> Any:
        inner = weft.jit(lambda a: a * x)
        return inner(x), inner(y), inner(y)

    x, y = np.full(3, 2.0, np.float32), np.full(3, 3.0, np.float32)
    found = [np.asarray(v).tolist() for v in weft.jit(outer)(x, y)]
    assert found == [[4.0] * 3, [6.0] * 3, [6.0] * 3]


def test_constants_keep_their_order() -> None:
    first, second = weft.device_put(np.ones(3, np.float32)), weft.device_put(np.full(3, 2.0, np.float32))
    x = np.ones(3, np.float32)
    for _ in range(2):
        closed = weft.make_jaxpr(lambda a: jnp.where(a > 0, second, first) + first)(x)
        assert [float(value[0]) for value in closed.consts] == [2.0, 1.0]


def test_a_changed_configuration_is_another_call() -> None:
    x = np.ones(3, np.float32)
    traced(lambda a: jnp.sum(a > 0), x)
    with weft.enable_x64(True):
        assert "i64" in traced(lambda a: jnp.sum(a > 0), x)


def test_errors_are_raised_every_time() -> None:
    for _ in range(3):
        with pytest.raises(TypeError):
            traced(lambda a: jnp.add(a, "text"), np.ones(3, np.float32))


def calls_of(*calls: tuple[tuple[Any, ...], dict[str, Any]], static: tuple[str, ...] = ()) -> list[Any]:
    """What identifies each of some calls of a function under one trace; ``...`` stands for its traced argument."""
    keys: list[Any] = []

    def traced(x: Any) -> Any:
        trace = x._trace
        for args, kwargs in calls:
            args = tuple(x if arg is ... else arg for arg in args)
            keys.append(runtime.call_key(trace, 7, args, kwargs, (), static))
        return x

    weft.make_jaxpr(traced)(np.ones((2, 3), np.float32))
    return [None if key is None else key[0] for key in keys]


def test_what_a_key_holds() -> None:
    array, host = jnp.ones(3), np.ones((2, 2))
    found = calls_of(((..., 1, ...), {}), ((array, host), {}), ((None, 2.5), {"axis": (0, 1)}), static=("axis",))
    aval = runtime.ShapedArray((2, 3), np.dtype(np.float32))
    assert found[0] == (7, aval, int, 1, 0)  # the argument again: its position among the operands
    assert found[1] == (7, runtime.Array, array.aval, np.ndarray, host.dtype, (2, 2))
    assert found[2] == (7, None, float, 2.5, "axis", tuple, (0, 1))


def test_keys_tell_scalars_apart() -> None:
    scalars = [0, 0.0, -0.0, 0j, complex(0, -0.0), complex(-0.0, 0), False, 1, 1.0, True, np.float32(1), np.float64(1)]
    scalars += [np.int32(0), np.complex64(complex(0.0, -0.0)), np.complex64(0)]
    keys = calls_of(*[((scalar,), {}) for scalar in scalars])
    assert len(set(keys)) == len(scalars)


def test_calls_without_a_key() -> None:
    array = jnp.ones(3)
    others = [((object(),), {}), (([1],), {}), ((np.array(2.0),), {}), ((array, array), {}), ((len,), {})]
    others += [((...,), {"f": np.sin}), (tuple(jnp.ones(1) for _ in range(65)), {})]
    assert calls_of(*others, static=("f",)) == [None] * len(others)


def test_a_tracer_of_another_trace_has_no_key() -> None:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            assert runtime.call_key(y._trace, 7, (y, x), {}, (), ()) is None
            return y

        weft.make_jaxpr(inner)(1.0)
        return x

    weft.make_jaxpr(outer)(1.0)


@pytest.mark.parametrize(
    "arguments", [(), (None,) * 5, (None, 0, [], {}, (), ()), (None, 0, (), [], (), ()), (None, 0, (), {}, [], ())]
)
def test_arguments_that_are_no_call_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="call_key"):
        runtime.call_key(*arguments)
    with pytest.raises(TypeError, match="user_position"):
        runtime.user_position(*arguments)

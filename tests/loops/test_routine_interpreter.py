"""The interpreter of routines sees a wrong routine, and runs guards; tests of loops compare it with machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from tests.loops import routine_interpreter
from weft import lax
from weft.compiler.plans import steps
from weft.loops.routines import register_promotion, routine


def lowered(run: Callable[..., Any], *args: Any) -> register_promotion.Lowered:
    """The one routine of a program."""
    program = ladder.compiled(weft.make_jaxpr(run)(*args))
    (entry,) = [entry for entry in program.plan.instructions if isinstance(entry, steps.Native)]
    return entry.lowered


def buffers(low: register_promotion.Lowered, *given: Any) -> list[np.ndarray]:
    """Those operands, then zeros for what a routine writes: as many elements as the largest operand has."""
    most = max(np.size(x) for x in given)
    outs = [np.zeros(most, operand.dtype) for operand in low.routine.operands[len(given) :]]
    ins = [np.array(x, operand.dtype).ravel() for x, operand in zip(given, low.routine.operands, strict=False)]
    return [*ins, *outs]


@pytest.mark.parametrize("shape", [(3,), (40,)])
def test_a_wrong_routine_gives_other_results(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    low = lowered(lambda x: lax.fori_loop(0, 5, lambda i, c: c[::-1] * 2 + 1, x), x)
    right, wrong = buffers(low, x), buffers(low, x)
    routine_interpreter.interpret(low, right)
    expected = x
    for _ in range(5):
        expected = expected[::-1] * 2 + 1
    np.testing.assert_array_equal(right[-1], expected)
    routine_interpreter.interpret(low.replace(trips=(4,)), wrong)
    assert not np.array_equal(wrong[-1], expected)


def test_a_value_common_to_all_lanes_is_not_made_of_their_values() -> None:
    x = np.arange(40, dtype=np.float32)
    low = lowered(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + 1, x), x)
    assert low.routine.lanes
    types = tuple([kind.replace(lanes=False) for kind in low.routine.types])
    with pytest.raises(AssertionError, match="common to all lanes"):
        routine_interpreter.interpret(low.replace(routine=low.routine.replace(types=types)), buffers(low, x))


@pytest.mark.parametrize("shape", [(), (40,)])
@pytest.mark.parametrize("start", [100, 2**30])
def test_integers_that_wrap_set_the_byte(start: int, shape: tuple[int, ...]) -> None:
    x = np.full(shape, start, np.int32)
    with weft.checks("overflow"):
        low = lowered(lambda x: lax.fori_loop(0, 3, lambda i, c: c + c, x), x)
    assert low.routine.guarded and low.routine.lanes == bool(shape)
    found = buffers(low, x)
    routine_interpreter.interpret(low, found)
    assert bool(found[-1][0]) == (start * 8 > np.iinfo(np.int32).max)


@pytest.mark.parametrize("index", [0, 3, 4, -1])
def test_starts_outside_set_the_byte(index: int) -> None:
    with weft.checks("index"):
        low = lowered(
            lambda x, i: lax.fori_loop(0, 3, lambda _, c: c + lax.dynamic_slice(c, (i,), (2,)).sum(), x),
            jnp.arange(5.0), np.int32(0),
        )  # fmt: skip
    assert any(isinstance(s, routine.Slice) and s.guarded for s in routine.statements(low.routine.block))
    order = (np.arange(5), index) if low.routine.operands[0].dtype.kind == "f" else (index, np.arange(5))
    found = buffers(low, *order)
    routine_interpreter.interpret(low, found)
    assert bool(found[-1][0]) == (not 0 <= index <= 3)

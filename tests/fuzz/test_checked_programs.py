"""Random programs with guards: the same bits as without, no NaN is missed, and nothing is said of finite numbers."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
import weft.numpy as jnp
from tests.fuzz.programs import Program, kind_of, programs
from weft import config, errors
from weft.compiler.checks import reference_interpreter
from weft.compiler.passes import inline
from weft.core.programs.jaxpr import Literal

EXAMPLES = int(os.environ.get("WEFT_FUZZ_EXAMPLES") or 60)
COUNT = {"programs": 0, "raised": 0}


def _finite(value: Any) -> bool:
    value = np.asarray(value)
    return kind_of(value.dtype) != "float" or bool(np.isfinite(value.astype(np.float64)).all())


def _values(function: Any, arrays: list[Any]) -> list[np.ndarray]:
    """Everything that a program computes, by the references of its operations."""
    closed = inline.inline(weft.make_jaxpr(function)(*arrays))
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    env.update(zip(closed.jaxpr.invars, map(np.asarray, arrays), strict=True))
    for equation in closed.jaxpr.eqns:
        given = [np.asarray(a.val).astype(a.aval.dtype) if isinstance(a, Literal) else env[a] for a in equation.invars]
        outs = reference_interpreter.run_equation(equation, given)
        env.update(zip(equation.outvars, map(np.asarray, outs), strict=True))
    return list(env.values())


def _check(program: Program) -> None:
    arrays = [jnp.asarray(array) for array in program.arrays()]
    function = lambda *inputs: program.run(jnp, *inputs)
    plain = [np.asarray(out) for out in weft.jit(function)(*arrays)]
    COUNT["programs"] += 1
    try:
        checked = [np.asarray(out) for out in weft.jit(function, checks="all")(*arrays)]
    except errors.CheckError as error:
        COUNT["raised"] += 1
        assert error.check != "index", f"{program.source()}\n{error}"
        if error.check == "nan" or "made" in str(error):
            assert not all(map(_finite, _values(function, arrays))), f"{program.source()}\n{error}"
        return
    for a, b in zip(plain, checked, strict=True):
        same = a.tobytes() == b.tobytes() or kind_of(a.dtype) == "float"
        assert same and a.shape == b.shape and a.dtype == b.dtype, program.source()
        if kind_of(a.dtype) == "float":
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64), err_msg=program.source())
    if all(map(_finite, arrays)) and "mode='fill'" not in program.source():  # which fills with NaN, as asked
        assert all(not np.isnan(out.astype(np.float64)).any() for out in checked if kind_of(out.dtype) == "float"), (
            f"a NaN was missed\n{program.source()}"
        )


@pytest.mark.filterwarnings("ignore")
def test_random_programs_with_guards() -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(programs())
    def run(program: Program) -> None:
        with config.context("check", False), contextlib.ExitStack():
            _check(program)

    run()
    assert COUNT["raised"] < COUNT["programs"]

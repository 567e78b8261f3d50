"""Jaxprs of lax programs print character for character as JAX's, and wrong calls raise the same classes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.operations import oracle, samples
from weft.errors import AxisError, ShapeError

pytestmark = pytest.mark.oracle

PROGRAMS = [(name, i, *sample) for name, listed in samples.PROGRAMS.items() for i, sample in enumerate(listed)]


def printed(jaxpr: Any) -> str:
    """The text without the address of a user's function."""
    return re.sub(r"computation=<.*>", "computation=...", str(jaxpr))


@pytest.mark.parametrize(("name", "index", "program", "args"), PROGRAMS, ids=[f"{p[0]}-{p[1]}" for p in PROGRAMS])
def test_program_prints_as_the_oracle(name: str, index: int, program: samples.Program, args: Any) -> None:
    assert printed(oracle.weft_jaxpr(program, args)) == printed(oracle.jax_jaxpr(program, args))


@pytest.mark.parametrize("operation", samples.ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_prints_as_the_oracle(operation: samples.Operation) -> None:
    def program(lax: Any, *xs: Any) -> Any:
        return getattr(lax, operation.name)(*xs)

    for dtype in operation.dtypes:
        if (dtype.itemsize == 8 and dtype.kind != "c") or dtype == samples.C128:
            continue
        args = tuple(samples.values(operation, dtype, i)[:6].reshape(2, 3) for i in range(operation.operands))
        assert str(oracle.weft_jaxpr(program, args)) == str(oracle.jax_jaxpr(program, args))


@pytest.mark.parametrize("index", range(len(samples.ERRORS)))
def test_error_class_is_the_oracles(index: int) -> None:
    program, args = samples.ERRORS[index]
    with pytest.raises(Exception) as expected:
        oracle.jax_jaxpr(program, args)
    with pytest.raises(expected.type) as raised:
        oracle.weft_jaxpr(program, args)
    assert type(raised.value) in (expected.type, AxisError, ShapeError)  # which are of both of JAX's classes

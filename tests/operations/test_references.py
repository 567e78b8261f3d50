"""The NumPy oracle of every operation against JAX's results.

JAX flushes subnormals and errs more than weft may (``jax_ulps``); subnormal results are left out. Real operations
must agree on every special value; complex ones are compared where operands and results are finite.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import weft.lax as weft_lax
from tests.operations import oracle, samples
from tests.oracle import together
from weft import config
from weft.core import primitive

pytestmark = pytest.mark.oracle

PARAMS: dict[str, Any] = {"round": {"rounding_method": weft_lax.RoundingMethod.AWAY_FROM_ZERO}}
CASES = [(op, dtype) for op in samples.ELEMENTWISE for dtype in op.dtypes]


def reference(operation: samples.Operation, *args: np.ndarray) -> np.ndarray:
    params = {"input_dtype": args[0].dtype} if operation.name == "conj" else PARAMS.get(operation.name, {})
    return primitive.registry[operation.primitive_name].kind.reference(*args, **params)


def is_normal(x: np.ndarray) -> np.ndarray:
    """Finite and not near the subnormals."""
    if x.dtype.kind in "biu":
        return np.ones(x.shape, bool)
    if x.dtype.kind == "c":
        return is_normal(x.real) & is_normal(x.imag)
    size, tiny = np.abs(x.astype(np.longdouble)), np.longdouble(ml_dtypes.finfo(x.dtype).smallest_normal)
    return np.isfinite(size) & ((size == 0) | (size > 8 * tiny))


def operands(operation: samples.Operation, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    return tuple(samples.values(operation, dtype, i) for i in range(operation.operands))


@pytest.fixture(scope="module")
def elementwise_of_jax(chosen: Any) -> together.Together:
    cases = [(params["operation"], params["dtype"]) for params in chosen(test_reference_agrees_with_jax)]
    return together.Together(
        {(op.name, dtype): (getattr(jax.lax, op.name), operands(op, dtype)) for op, dtype in cases}
    )


@pytest.mark.parametrize(("operation", "dtype"), CASES, ids=[f"{op.name}-{dtype}" for op, dtype in CASES])
def test_reference_agrees_with_jax(
    operation: samples.Operation, dtype: np.dtype, elementwise_of_jax: together.Together
) -> None:
    args = operands(operation, dtype)
    with config.context("enable_x64", True), jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = reference(operation, *args)
        values = elementwise_of_jax[operation.name, dtype]
        if isinstance(values, (NotImplementedError, jax.errors.JaxRuntimeError)):
            pytest.skip(f"the oracle does not compile it: {values}")
        assert not isinstance(values, Exception), values
        expected = np.asarray(values[0])
    assert found.dtype == expected.dtype and found.shape == expected.shape
    compared = is_normal(found)
    for x in args:
        compared &= is_normal(x)
    if dtype.kind == "c":
        compared[200:] = False  # special values: JAX's and C99's choices differ
    distance = oracle.ulps_between(found, expected)
    if operation.absolute:
        eps = float(ml_dtypes.finfo(found.dtype).eps)
        with np.errstate(invalid="ignore"):
            near = np.abs(found.astype(np.complex256) - expected.astype(np.complex256)) <= operation.absolute * eps
        distance = np.where(near, 0, distance)
    wrong = np.flatnonzero(compared & (distance > operation.jax_ulps))
    assert not len(wrong), [(x[wrong][:4], found[wrong][:4], expected[wrong][:4]) for x in args]
    if dtype.kind != "c" and found.dtype.kind != "c" and found.dtype.kind not in "biu":
        check_specials(args, found, expected)


def check_specials(args: tuple[np.ndarray, ...], found: np.ndarray, expected: np.ndarray) -> None:
    """NaN and infinities agree wherever no operand is subnormal."""
    kept = np.ones(found.shape, bool)
    for x in args:
        with np.errstate(all="ignore"):
            kept &= is_normal(x) | ~np.isfinite(x.astype(np.longdouble))
    a, b = found[kept].astype(np.longdouble), expected[kept].astype(np.longdouble)
    assert np.array_equal(np.isnan(a), np.isnan(b))
    assert np.array_equal(np.where(np.isinf(a), np.sign(a), 0), np.where(np.isinf(b), np.sign(b), 0))


PROGRAMS = [(name, i, *sample) for name, listed in samples.PROGRAMS.items() for i, sample in enumerate(listed)]
PROGRAMS = [program for program in PROGRAMS if program[0] != "empty"]  # its elements may be anything


@pytest.fixture(scope="module")
def programs_of_jax(chosen: Any) -> together.Together:
    def bound(program: samples.Program) -> Any:
        return lambda *xs: program(jax.lax, *xs)

    cases = chosen(test_programs_agree_with_jax)
    return together.Together({(case["name"], case["index"]): (bound(case["program"]), case["args"]) for case in cases})


@pytest.mark.parametrize(("name", "index", "program", "args"), PROGRAMS, ids=[f"{p[0]}-{p[1]}" for p in PROGRAMS])
def test_programs_agree_with_jax(
    name: str, index: int, program: samples.Program, args: Any, programs_of_jax: together.Together
) -> None:
    found = oracle.reference_values(program, args)
    if name == "argmax" and any(np.iscomplexobj(arg) for arg in args):
        with pytest.raises(TypeError, match="complex64"):  # the oracle refuses what weft answers: nothing to compare
            oracle.jax_values(program, args)
        return
    values = programs_of_jax[name, index]
    assert not isinstance(values, Exception), values
    expected = [np.asarray(x) for x in values]
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        if x.dtype.kind in "fcV" and name != "bitcast_convert_type":
            a, b = x.astype(np.complex128), y.astype(np.complex128)
            with np.errstate(invalid="ignore"):
                close = np.abs(a - b) <= 1e-6 * np.abs(b) + 1e-6
            assert np.all(close | (oracle.ulps_between(x, y) <= 1)), (x, y)
        else:
            assert np.array_equal(x, y), (x, y)

"""Compiled operations against their NumPy oracles, in every layout: contiguous, strided, 0-d, empty; jit as eager.

An operation is called eagerly through ``weft.lax`` on arrays of random and special values of every dtype.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.lax as lax
from tests.operations import oracle, samples
from tests.operations.test_references import CASES, reference
from weft import config, core, runtime

ORACLE_ULPS = {("erf", "f8"): 4, ("erfc", "f8"): 32, ("erf_inv", "f8"): 4}  # scipy's own error
NARROW = 2


def array(value: Any) -> Any:
    aval = core.get_aval(value)
    return runtime.array_from_numpy(np.array(value, aval.dtype), aval)


def allowed(operation: samples.Operation, operand: np.dtype, result: np.dtype) -> float:
    if result.kind in "biu":
        return 0
    if operand.kind == "c":
        return operation.complex_ulps
    own = ORACLE_ULPS.get((operation.name, f"{operand.kind}{operand.itemsize}"), 0)
    return max(operation.ulps, own, 1 if operation.ulps and operand.itemsize == NARROW else 0)


def has_nan(x: np.ndarray) -> np.ndarray:
    return x != x


def bits(x: Any) -> bytes:
    return np.asarray(x).tobytes()


@pytest.mark.parametrize(("operation", "dtype"), CASES, ids=[f"{op.name}-{dtype}" for op, dtype in CASES])
def test_eager_agrees_with_the_oracle(operation: samples.Operation, dtype: np.dtype) -> None:
    args = [samples.values(operation, dtype, i) for i in range(operation.operands)]
    with config.context("enable_x64", True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference(operation, *args)
        found = np.asarray(getattr(lax, operation.name)(*map(array, args)))
    assert found.dtype == expected.dtype and found.shape == expected.shape
    distance = oracle.ulps_between(found, expected)
    if operation.absolute:
        eps = float(ml_dtypes.finfo(found.dtype).eps)
        with np.errstate(invalid="ignore"):
            near = np.abs(found.astype(np.complex256) - expected.astype(np.complex256)) <= operation.absolute * eps
        distance = np.where(near, 0, distance)
    if dtype.kind == "c":
        distance = np.where(has_nan(expected), 0, distance)  # which part becomes NaN differs from NumPy's choice
        distance[200:] = np.where(np.abs(distance[200:]) == np.inf, distance[200:], 0)
    wrong = np.flatnonzero(distance > allowed(operation, dtype, found.dtype))
    assert not len(wrong), (
        distance[wrong].max(),
        [(x[wrong][:4], found[wrong][:4], expected[wrong][:4]) for x in args],
    )


HALVES = [op for op in samples.ELEMENTWISE if samples.BF16 in op.dtypes]


@pytest.mark.parametrize("operation", HALVES, ids=lambda op: op.name)
def test_a_nan_of_any_bits_is_rounded_to_a_nan(operation: samples.Operation) -> None:
    nans = np.concatenate([np.arange(0x7F81, 0x8000), np.arange(0xFF81, 0x10000)]).astype(np.uint16).view(samples.BF16)
    operate = getattr(lax, operation.name)
    for position in range(operation.operands):
        args = [np.resize(samples.values(operation, samples.BF16, i), nans.shape) for i in range(operation.operands)]
        args[position] = nans
        found = np.asarray(operate(*map(array, args)))
        single = np.asarray(operate(*(array(a.astype(np.float32)) for a in args)))
        with np.errstate(invalid="ignore"):  # signalling NaN
            np.testing.assert_array_equal(has_nan(found), has_nan(single))


@pytest.mark.parametrize("dtype", [samples.BF16, np.dtype(np.float16)], ids=str)
def test_signs_and_whole_numbers_of_every_half(dtype: np.dtype) -> None:
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    wide = x.astype(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaN
        expected = {"neg": -wide, "abs": np.abs(wide), "floor": np.floor(wide), "ceil": np.ceil(wide)}
    for name, values in expected.items():
        found = np.asarray(getattr(lax, name)(x)).astype(np.float32)
        np.testing.assert_array_equal(found, values, name)
        np.testing.assert_array_equal(np.signbit(found) | np.isnan(found), np.signbit(values) | np.isnan(values), name)


LAYOUTS: dict[str, Callable[..., Any]] = {
    "transposed": lambda op, *xs: op(*(lax.transpose(x, (1, 0)) for x in xs)),
    "reversed": lambda op, *xs: op(*(lax.rev(x, (1,)) for x in xs)),
    "sliced": lambda op, *xs: op(*(lax.slice(x, (0, 1), x.shape, (2, 3)) for x in xs)),
    "mixed": lambda op, x, *xs: op(lax.rev(x, (0, 1)), *xs),
    "scalar": lambda op, *xs: op(*(lax.squeeze(lax.slice(x, (1, 2), (2, 3)), (0, 1)) for x in xs)),
    "empty": lambda op, *xs: op(*(lax.slice(x, (0, 3), (x.shape[0], 3)) for x in xs)),
    "broadcast": lambda op, x, *xs: op(
        x, *(lax.broadcast_in_dim(lax.index_in_dim(y, 1, 0, False), y.shape, (1,)) for y in xs)
    ),
}


@pytest.mark.parametrize("operation", samples.ELEMENTWISE, ids=lambda op: op.name)
def test_layouts_and_jit_give_the_same_bits(operation: samples.Operation) -> None:
    operate = getattr(lax, operation.name)
    for dtype in operation.dtypes:
        if dtype not in (
            samples.F32,
            samples.BF16,
            np.dtype(np.int32),
            np.dtype(np.uint8),
            np.dtype(bool),
            samples.C64,
        ):
            continue
        args = [array(samples.values(operation, dtype, i)[:105].reshape(5, 21)) for i in range(operation.operands)]
        for name, layout in LAYOUTS.items():
            steps: list[Any] = []

            def record(*xs: Any, steps: list[Any] = steps) -> Any:
                steps.extend(xs)
                return operate(*xs)

            eager = layout(record, *args)
            dense = operate(*(array(np.asarray(x)) for x in steps))
            fused = weft.jit(lambda *xs, layout=layout: layout(operate, *xs))(*args)
            assert bits(eager) == bits(dense), (name, dtype)
            assert fused.aval is eager.aval and bits(fused) == bits(eager), (name, dtype)


PROGRAMS = [(name, i, *sample) for name, listed in samples.PROGRAMS.items() for i, sample in enumerate(listed)]
SAME_BITS_NOT_PROMISED = {"dot_general"}


@pytest.mark.parametrize(("name", "index", "program", "args"), PROGRAMS, ids=[f"{p[0]}-{p[1]}" for p in PROGRAMS])
def test_programs_agree_with_the_oracle(name: str, index: int, program: samples.Program, args: Any) -> None:
    expected = oracle.reference_values(program, args)
    operands = [array(a) for a in args]
    eager, _ = runtime.tree_flatten(program(lax, *operands))
    jitted, _ = runtime.tree_flatten(weft.jit(lambda *xs: program(lax, *xs))(*operands))
    assert len(eager) == len(jitted) == len(expected)
    for x, y, z in zip(eager, jitted, expected, strict=True):
        found = np.asarray(x)
        assert found.shape == z.shape and found.dtype == z.dtype
        assert y.aval.dtype == z.dtype and (name in SAME_BITS_NOT_PROMISED or bits(x) == bits(y))
        if found.dtype.kind in "biu" or name == "bitcast_convert_type":
            assert np.array_equal(found, z)
        else:
            assert np.max(oracle.ulps_between(found, z), initial=0) <= (16 if name == "cumlogsumexp" else 4), (found, z)

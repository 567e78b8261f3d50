"""The table of samples, written as StableHLO and run by jaxlib and by plugins: results beside the NumPy oracles.

Every sample is run by one of them, and every operation by each; with WEFT_STRESS=1 each runs all samples. Plugins are
those of ``tests/devices``: installed packages, or the libraries that WEFT_PJRT_TEST_PLUGINS names.

XLA's CPU backend flushes subnormal numbers to zero, which is allowed for. Which part of a complex result becomes NaN
differs between libraries, so special values of complex operands are not compared.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft.lax as lax
from tests.operations import indexing_samples, oracle, samples
from tests.operations.test_compiled import ORACLE_ULPS
from tests.operations.test_references import reference
from weft import config

pytest.importorskip("jaxlib", reason="StableHLO is run by jaxlib")

from tests.devices.conftest import plugin_paths
from tests.stablehlo import running

STRESS = os.environ.get("WEFT_STRESS") == "1"
COUNT = 60
# Their expressions are long in these dtypes, and XLA needs a second for each: they are left to the long run.
WIDE = {samples.F64, samples.C128}
NATIVE = {
    "neg", "sign", "floor", "ceil", "round", "is_finite", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sqrt",
    "rsqrt", "cbrt", "square", "abs", "real", "imag", "conj", "add", "sub", "mul", "div", "rem", "max", "min", "pow",
    "atan2", "nextafter", "complex", "eq", "ne", "lt", "le", "gt", "ge", "clamp",
}  # fmt: skip

XLA_ULPS = {"log1p": 128}  # as in the table, for float64
PLUGIN_ULPS = {"cbrt": 128}  # by pow, in XLA of 2025


def flushed(x: np.ndarray) -> np.ndarray:
    """Subnormal numbers as zeros."""
    if x.dtype.kind in "biu":
        return x
    if x.dtype.kind == "c":
        return flushed(np.ascontiguousarray(x).view(f"f{x.dtype.itemsize // 2}")).view(x.dtype)
    tiny = ml_dtypes.finfo(x.dtype).smallest_normal
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(x) < 2 * tiny, np.zeros((), x.dtype), x).astype(x.dtype)


def cases() -> list[tuple[samples.Operation, np.dtype]]:
    return [
        (operation, dtype)
        for operation in samples.ELEMENTWISE
        for dtype in operation.dtypes
        if STRESS or dtype not in WIDE or (operation.name in NATIVE and dtype == samples.F64)
    ]


MACHINES = [None, *plugin_paths()]  # None is jaxlib
NAMES = ["jaxlib" if path is None else path.stem for path in MACHINES]
each_machine = pytest.mark.parametrize("machine", range(len(MACHINES)), ids=NAMES)


SHARES = 1 if STRESS or len(MACHINES) == 1 else 2


def share(rows: list[Any], machine: int) -> list[Any]:
    """What one machine runs: of two neighbours, every sample is run by one."""
    return rows[machine % SHARES :: SHARES]


def together(machine: int, functions: Any, operands: Any) -> list[list[np.ndarray]]:
    path = MACHINES[machine]
    if path is None:
        return running.together(functions, operands)
    return running.on_plugin(path, functions, operands)


@each_machine
def test_elementwise_operations(machine: int) -> None:
    listed = share(cases(), machine)
    with config.context("enable_x64", True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operands = [[samples.values(op, dtype, i, COUNT) for i in range(op.operands)] for op, dtype in listed]
        found = together(machine, [getattr(lax, op.name) for op, _ in listed], operands)
        expected = [reference(op, *row) for (op, _), row in zip(listed, operands, strict=True)]
    wrong = []
    for (operation, dtype), (x,), y, row in zip(listed, found, expected, operands, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape, operation
        distance = oracle.ulps_between(flushed(x), flushed(y))
        if dtype.kind == "c":
            distance[COUNT:] = 0
        if operation.absolute and dtype.kind == "f":
            eps = float(ml_dtypes.finfo(dtype).eps)
            with np.errstate(all="ignore"):
                near = np.abs(x.astype(np.longdouble) - y.astype(np.longdouble)) <= operation.absolute * eps
            distance = np.where(near, 0, distance)
        indices = np.flatnonzero(distance > bound(operation, dtype, x.dtype, MACHINES[machine] is not None))
        wrong += [(operation.name, str(dtype), *[v[k] for v in row], x[k], y[k]) for k in indices[:3]]
    assert not wrong, wrong


def bound(operation: samples.Operation, dtype: np.dtype, result: np.dtype, is_plugin: bool) -> float:
    if result.kind in "biu":
        return 0
    if not operation.ulps and dtype.kind != "c":
        return 0
    if dtype.kind == "c":
        return operation.complex_ulps + 12
    oracles = ORACLE_ULPS.get((operation.name, f"{dtype.kind}{dtype.itemsize}"), 0)
    return max(XLA_ULPS.get(operation.name, 4), is_plugin * PLUGIN_ULPS.get(operation.name, 0), oracles)


LONG = {"igamma", "igammac", "igamma_grad_a", "polygamma", "regularized_incomplete_beta"}
PROGRAMS = [
    (name, *sample)
    for table in (samples, indexing_samples)
    for name, row in table.PROGRAMS.items()
    for sample in row
    if STRESS or name not in LONG
]
CHUNK = 80  # programs in a module: XLA's time grows faster than its size


@each_machine
@pytest.mark.parametrize("first", range(0, -(-len(PROGRAMS) // SHARES), CHUNK))
def test_programs(first: int, machine: int) -> None:
    rows = share(PROGRAMS, machine)
    chunk, wrong = rows[first : first + CHUNK], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = [lambda *xs, program=program: program(lax, *xs) for _, program, _ in chunk]
        found = together(machine, functions, [args for *_, args in chunk])
        for (name, program, args), outs in zip(chunk, found, strict=True):
            for x, y in zip(outs, oracle.reference_values(program, args), strict=True):
                assert x.dtype == y.dtype and x.shape == y.shape, name
                if np.max(oracle.ulps_between(x, y), initial=0) > (16 if name == "cumlogsumexp" else 4):
                    wrong.append((name, args, x, y))
    assert not wrong, wrong

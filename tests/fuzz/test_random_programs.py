"""Random programs: jit gives eager's bits, and both agree with the NumPy reference interpreter."""

from __future__ import annotations

import os
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings

import weft
import weft.numpy as jnp
from tests.fuzz.programs import Program, kind_of, programs
from weft import config
from weft.compiler import interpret

EXAMPLES = int(os.environ.get("WEFT_FUZZ_EXAMPLES", "1000"))

# The reference rounds each primitive as the kernels do; what remains is the ulps of vector math, amplified by
# cancellation, and overflow in half precision.
RELATIVE = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 6e-2, "float16": 2e-2}


def assert_same_bits(program: Program, jitted: np.ndarray, eager: np.ndarray) -> None:
    assert jitted.dtype == eager.dtype and jitted.shape == eager.shape, program.source()
    same = jitted.tobytes() == eager.tobytes()
    if not same and kind_of(jitted.dtype) == "float":  # which NaN it is, is not promised
        with np.errstate(invalid="ignore"):
            a, b = jitted.astype(np.float64), eager.astype(np.float64)
        same = bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))
    assert same, f"jit and eager differ\n{program.source()}\n{jitted}\n{eager}"


def assert_near_reference(program: Program, got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, program.source()
    if kind_of(got.dtype) != "float":
        return  # comparisons of nearly equal floats may differ; exact integer programs are compared below
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    tolerance = RELATIVE[str(got.dtype)]
    scale = np.maximum(np.abs(b), np.max(np.abs(b), where=finite, initial=1.0))
    with np.errstate(invalid="ignore"):  # inf - inf
        wrong = finite & (np.abs(a - b) > tolerance * scale)
    assert not wrong.any(), f"the reference differs\n{program.source()}\n{got}\n{want}"


def is_exact(program: Program) -> bool:
    """No float anywhere: every answer must equal the reference."""
    casts = [dict(s.static).get("dtype", "int32") for s in program.steps]
    names = {s.name for s in program.steps}
    return "mean" not in names and all(kind_of(d) != "float" for d in [d for d, _ in program.inputs] + casts)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(programs())
def test_random_programs(program: Program) -> None:
    arrays = program.arrays()
    function = weft.jit(lambda *inputs: program.run(jnp, *inputs))
    with config.context("compile", "isolated"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's overflow warnings in the reference
        jitted = [np.asarray(a) for a in function(*arrays)]
        eager = [np.asarray(a) for a in program.run(jnp, *(jnp.asarray(a) for a in arrays))]
        closed = weft.make_jaxpr(lambda *inputs: program.run(jnp, *inputs))(*arrays)
        reference = [np.asarray(a) for a in interpret.interpret(closed, arrays)]
    for j, e, r in zip(jitted, eager, reference, strict=True):
        assert_same_bits(program, j, e)
        assert_near_reference(program, j, r)
        if is_exact(program):
            np.testing.assert_array_equal(j, r, err_msg=program.source())

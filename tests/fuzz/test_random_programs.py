"""Random programs: jit gives eager's bits whatever the strides; both agree with the reference interpreter and JAX.

Runs for 15 s (40 s where the variable CI is set, else ``WEFT_FUZZ_SECONDS``) and at least 500 programs, the same
each time; ``WEFT_FUZZ_EXAMPLES=50000`` is the long mode, with other programs each time. A failure shrinks, and its
smallest form is written to ``repro.py``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
import weft.numpy as jnp
from tests.fuzz.programs import Program, Step, kind_of, programs
from weft import config
from weft.compiler.checks import reference_interpreter

jax: Any
try:
    import jax
except ImportError:
    jax = None

LONG = os.environ.get("WEFT_FUZZ_EXAMPLES")
SECONDS = float(os.environ.get("WEFT_FUZZ_SECONDS") or (40 if os.environ.get("CI") else 15))
AT_LEAST = min(500, int(LONG or 500))
JAX_EVERY = 5  # its compilations take most of the time
REPRO = Path("repro.py")
COUNT = {"programs": 0, "jax": 0, "failed": 0}
STARTED = [0.0]

# The reference rounds each primitive as the kernels do; what remains is the ulps of vector math, amplified by
# cancellation, and overflow in half precision.
RELATIVE = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 6e-2, "float16": 2e-2}
INEXACT = (
    *("atan", "atan2", "asinh", "cbrt", "cos", "cosh", "exp", "exp2", "expm1", "log", "log1p", "logistic", "pow"),
    *("sin", "sinh", "tan", "tanh"),
)
SHAKES = 8


def assert_same_bits(program: Program, jitted: np.ndarray, eager: np.ndarray) -> None:
    assert jitted.dtype == eager.dtype and jitted.shape == eager.shape, program.source()
    same = jitted.tobytes() == eager.tobytes()
    if not same and kind_of(jitted.dtype) == "float":  # which NaN it is, is not promised
        with np.errstate(invalid="ignore"):
            a, b = jitted.astype(np.float64), eager.astype(np.float64)
        same = bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))
    assert same, f"jit and eager differ\n{program.source()}\n{jitted}\n{eager}"


def assert_near_reference(
    program: Program, got: np.ndarray, want: np.ndarray, shaken: Callable[[], list[np.ndarray]]
) -> None:
    """``shaken``: the reference's results with last places of vector math changed, asked where ``want`` is not near."""
    assert got.dtype == want.dtype and got.shape == want.shape, program.source()
    if kind_of(got.dtype) != "float":
        return  # comparisons of nearly equal floats may differ; exact integer programs are compared below
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    tolerance = RELATIVE[str(got.dtype)]
    scale = np.maximum(np.abs(b), np.max(np.abs(b), where=finite, initial=1.0))
    with np.errstate(invalid="ignore"):  # inf - inf
        wrong = finite & (np.abs(a - b) > tolerance * scale)
        if wrong.any():  # sin(cosh(85)): one unit in the last place of cosh is any sine
            others = [other.astype(np.float64) for other in shaken()]
            sure = np.all([np.abs(other - b) <= tolerance * scale for other in others], axis=0)
            wrong &= sure
    assert not wrong.any(), f"the reference differs\n{program.source()}\n{got}\n{want}"


def shaken_references(closed: Any, arrays: list[np.ndarray]) -> list[list[np.ndarray]]:
    """What the reference gives where each function of vector math is two to four last places off, either way."""
    rng = np.random.default_rng(0)
    run_equation = reference_interpreter.run_equation

    def shake(equation: Any, operands: Any) -> Any:
        results = run_equation(equation, operands)
        if equation.primitive.name not in INEXACT:
            return results
        return [shaken(np.asarray(result)) for result in results]

    def shaken(result: np.ndarray) -> np.ndarray:
        if kind_of(result.dtype) != "float":
            return result
        step = 2 * float(ml_dtypes.finfo(result.dtype).eps) * rng.choice((-1, 1), result.shape)
        return (result.astype(np.float64) * (1 + step)).astype(result.dtype)

    with mock.patch.object(reference_interpreter, "run_equation", shake):
        return [[np.asarray(a) for a in reference_interpreter.interpret(closed, arrays)] for _ in range(SHAKES)]


def is_exact(program: Program) -> bool:
    """No float anywhere: every answer must equal the reference."""
    casts = [dict(s.static).get("dtype", "int32") for s in program.steps]
    names = {s.name for s in program.steps}
    return "mean" not in names and all(kind_of(d) != "float" for d in [d for d, _ in program.inputs] + casts)


def strided(array: np.ndarray, how: int) -> np.ndarray:
    """The same values behind other strides: as they are, transposed in memory, every second element, reversed."""
    if how == 0 or array.ndim == 0:
        return array
    if how == 1:
        return np.asfortranarray(array)
    if how == 2:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return np.ascontiguousarray(array[::-1])[::-1]


def check(program: Program) -> None:
    """jit = eager bit for bit, whatever the strides; both near the reference; types and exact values are JAX's."""
    arrays = program.arrays()
    function = weft.jit(lambda *inputs: program.run(jnp, *inputs))
    with config.context("compile", "isolated"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's overflow warnings in the reference
        jitted = [np.asarray(a) for a in function(*arrays)]
        moved = [strided(array, (program.seed + i) % 4) for i, array in enumerate(arrays)]
        again = [np.asarray(a) for a in function(*moved)]
        eager = [np.asarray(a) for a in program.run(jnp, *(jnp.asarray(a) for a in moved))]
        closed = weft.make_jaxpr(lambda *inputs: program.run(jnp, *inputs))(*arrays)
        reference = [np.asarray(a) for a in reference_interpreter.interpret(closed, arrays)]
    shaken = functools.cache(lambda: shaken_references(closed, arrays))
    for i, (j, m, e, r) in enumerate(zip(jitted, again, eager, reference, strict=True)):
        assert_same_bits(program, j, e)
        assert_same_bits(program, j, m)
        assert_near_reference(program, j, r, lambda i=i: [results[i] for results in shaken()])
        if is_exact(program):
            np.testing.assert_array_equal(j, r, err_msg=program.source())
    if jax is not None and COUNT["programs"] % JAX_EVERY == 0:
        check_jax(program, arrays, jitted)


def check_jax(program: Program, arrays: list[np.ndarray], ours: list[np.ndarray]) -> None:
    """The types, which take no compilation of JAX's, and the values of programs whose values are exact."""
    exact = is_exact(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = jax.jit(lambda *inputs: program.run(jax.numpy, *inputs))
        theirs = [np.asarray(a) for a in run(*arrays)] if exact else run.eval_shape(*arrays)
        if exact and any((a != b).any() for a, b in zip(ours, theirs, strict=True) if a.shape == b.shape):
            # XLA takes the square of an integer for positive, even where it overflows: not so operation by operation
            theirs = [np.asarray(a) for a in program.run(jax.numpy, *(jax.numpy.asarray(a) for a in arrays))]
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, f"JAX: {b.dtype}{b.shape}\n{program.source()}"
        if exact:
            np.testing.assert_array_equal(a, b, err_msg=f"JAX\n{program.source()}")
    COUNT["jax"] += 1


class Enough(BaseException):
    """Ends the run: hypothesis would go on to draw programs, at 5 ms each."""


def over() -> bool:
    """Whether enough was done: as many programs as fit in the time, and at least 500."""
    return (
        (not LONG or "WEFT_FUZZ_SECONDS" in os.environ)
        and not COUNT["failed"]  # it shrinks first
        and COUNT["programs"] >= AT_LEAST
        and time.monotonic() - STARTED[0] > SECONDS
    )


@settings(
    max_examples=int(LONG) if LONG else 20_000,
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(programs())
def random_programs(program: Program) -> None:
    if over():
        raise Enough
    try:
        check(program)
    except Exception:
        COUNT["failed"] += 1
        REPRO.write_text(program.repro())  # the last one to fail is the smallest
        raise
    COUNT["programs"] += 1


def test_random_programs(record_property: Callable[[str, object], None]) -> None:
    STARTED[0] = time.monotonic()
    try:
        with contextlib.suppress(Enough):
            random_programs()
    finally:
        spent = time.monotonic() - STARTED[0]
        said = f"fuzz: {COUNT['programs']} programs, {COUNT['jax']} of them beside JAX, {spent:.0f} s"
        record_property("summary", said)
    assert COUNT["programs"] >= AT_LEAST


def test_the_absolute_value_of_a_square_that_overflows() -> None:
    """67 * 67 is -119 in int8, its absolute value 119: fuzzing found that XLA leaves it negative when it fuses."""
    steps = (Step("multiply", (0, 0)), Step("abs", (1,)), Step("add", (0, 2)))
    program = Program((("int8", (5,)),), steps, (3,), 2)
    arrays = [np.array([67, -67, 100, 127, -128], np.int8)]
    assert (arrays[0] * arrays[0] < 0).any()
    ours = [np.asarray(a) for a in weft.jit(lambda *inputs: program.run(jnp, *inputs))(*arrays)]
    np.testing.assert_array_equal(ours[0], arrays[0] + np.abs(arrays[0] * arrays[0]))
    if jax is not None:
        check_jax(program, arrays, ours)


def test_the_sine_of_what_is_huge() -> None:
    """Fuzzing found that the reference's cosh(85) is another float, 0.5 units away, and its sine anything."""
    steps = (Step("astype", (0,), (("dtype", "float32"),)), Step("cosh", (1,)), Step("sin", (2,)))
    program = Program((("int32", (5,)),), steps, (1, 3), 0)
    arrays = [np.array([-85, 62, 82, 1, 0], np.int32)]
    closed = weft.make_jaxpr(lambda *inputs: program.run(jnp, *inputs))(*arrays)
    (_, want), shaken = reference_interpreter.interpret(closed, arrays), shaken_references(closed, arrays)
    others = [results[1] for results in shaken]
    assert np.ptp([other[:3] for other in others], axis=0).min() > 0.1
    assert_near_reference(program, np.where(np.arange(5) < 3, np.float32(0.5), want), want, lambda: others)
    with pytest.raises(AssertionError, match="the reference differs"):  # sin(cosh(1)) is known
        assert_near_reference(program, np.where(np.arange(5) == 3, want + np.float32(0.01), want), want, lambda: others)


def test_a_failure_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every running sum were wrong, what is left of a program is a running sum, even if the time is over."""

    def wrong(program: Program) -> None:
        assert all(step.name != "cumsum" for step in program.steps)

    here = sys.modules[__name__]
    monkeypatch.setattr(here, "check", wrong)
    monkeypatch.setattr(here, "REPRO", tmp_path / "repro.py")
    monkeypatch.setattr(here, "COUNT", {"programs": 0, "jax": 0, "failed": 0})
    monkeypatch.setattr(here, "STARTED", [time.monotonic() - SECONDS - 1])
    with pytest.raises(AssertionError):
        random_programs()
    text = (tmp_path / "repro.py").read_text()
    steps = [line for line in text.splitlines() if line.startswith("    v")]
    assert len(steps) == 1 and "m.cumsum" in steps[0]


def test_a_repro_runs_on_its_own(tmp_path: Path) -> None:
    """What a failure leaves behind is a program that shows it: here one that does not fail."""
    found: list[Program] = []

    @settings(max_examples=30, database=None, derandomize=True)
    @given(programs())
    def draw(program: Program) -> None:
        found.append(program)

    draw()
    program = max(found, key=lambda program: len(program.steps))
    path = tmp_path / "repro.py"
    path.write_text(program.repro())
    environment = {**os.environ, "WEFT_CHECK": "0"}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + path.read_text()
    assert "jit and eager agree" in done.stdout

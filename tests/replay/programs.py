"""The programs of the replay: samples of every operation, the timed programs, and random ones with fixed seeds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import weft
import weft.lax
import weft.nn
import weft.numpy
import weft.ops
import weft.random
import weft.scipy.linalg
import weft.scipy.special
import weft.tree
from tests.aarch64 import samples_of_operations
from tests.compiler.random_programs import Generator
from tests.fuzz import programs as fuzz_programs

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FIELD, GENERATED, FUZZED = 300, 200, 150  # how many of each

Entry = tuple[str, Callable[..., Any], tuple[Any, ...], bool]  # label, function, arguments, with 64-bit types


def every() -> Iterator[Entry]:
    """All programs; the labels differ."""
    yield from samples_of_operations.elementwise()
    yield from samples_of_operations.others()
    yield from _workloads()
    yield from _field()
    yield from _generated()
    yield from _fuzzed()


def _benchmark(name: str) -> Any:
    """A module of the folder of benchmarks, which is no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


def _workloads() -> Iterator[Entry]:
    for name, work in _benchmark("workloads").REGISTRY.items():
        if work.own_jit or (work.jx is None and work.xp is None):
            continue
        function = work.jx(weft) if work.jx else work.xp(weft.numpy)
        yield f"workload {name}", function, tuple(work.inputs(np.random.default_rng(1), 0)), work.x64


def _field() -> Iterator[Entry]:
    field = _benchmark("field_draw")
    for number in range(FIELD):
        program = field.drawn(number)
        names: dict[str, Any] = {"jax": weft, "jnp": weft.numpy, "lax": weft.lax}
        exec(compile(program.source, str(program), "exec"), names)
        args = tuple([weft.ShapeDtypeStruct(x.shape, weft.numpy.dtype(x.dtype)) for x in program.inputs])
        yield f"field {number}: {program.name}", names["f"], args, program.dtype == "float64"


def _generated() -> Iterator[Entry]:
    for number in range(GENERATED):
        generator = Generator(number, 4 + number % 12)
        yield f"generated {number}", generator.program, tuple(generator.inputs()), False


def _fuzzed() -> Iterator[Entry]:
    found: list[fuzz_programs.Program] = []

    @seed(FUZZED)
    @settings(
        max_examples=FUZZED, database=None, phases=[Phase.generate], deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )  # fmt: skip
    @given(fuzz_programs.programs())
    def draw(program: fuzz_programs.Program) -> None:
        found.append(program)

    draw()
    for number, program in enumerate(found):

        def run(*args: Any, program: fuzz_programs.Program = program) -> Any:
            return program.run(weft.numpy, *args)

        yield f"fuzzed {number}", run, tuple(program.arrays()), False

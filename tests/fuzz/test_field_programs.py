"""The programs of ``benchmarks/field.py`` read, have seeds that repeat, and give what JAX gives."""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import Any

import jax
import jax.nn.initializers
import jax.ops
import jax.scipy.linalg
import numpy as np
import pytest

import weft
import weft.lax
import weft.nn
import weft.numpy
import weft.ops
import weft.random
import weft.scipy.linalg
import weft.tree

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS, MOST = 40, 2000
# XLA does not try hard: its results are wanted, not its speed
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("field_draw")


def run(module: Any, field: Any, program: Any) -> list[np.ndarray[Any, Any]]:
    names: dict[str, Any] = {"jax": module, "jnp": module.numpy, "lax": module.lax}
    exec(compile(program.source, str(program), "exec"), names)
    with module.enable_x64(program.dtype == "float64"):
        arguments = [
            module.numpy.asarray(value, dtype=told.dtype) for told, value in zip(program.inputs, program.arrays())
        ]
        options = {"compiler_options": QUICK} if module is jax else {}
        out = module.tree.leaves(module.jit(names["f"], **options)(*arguments))
        return [np.asarray(x.astype("float32") if x.dtype == "bfloat16" else x) for x in out]


def test_random_programs_beside_jax(field: Any) -> None:
    """Results are within the program's tolerance of JAX's: a share of a magnitude plus the root mean square of all."""
    for seed in range(PROGRAMS):
        program = field.drawn(seed, most=MOST)
        found, wanted = run(weft, field, program), run(jax, field, program)
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), f"seed {seed}: {program}\n{program.source}"
            size = np.sqrt(np.mean(np.abs(want.astype(np.float64)) ** 2))
            np.testing.assert_allclose(
                got,
                want,
                rtol=program.tolerance,
                atol=program.tolerance * size,
                err_msg=f"seed {seed}: {program}\n{program.source}",
            )


def test_every_row_can_be_drawn(field: Any) -> None:
    """Each row has a program, of a million elements too where it scales, whose texts are Python; a seed repeats it."""
    drawn: set[tuple[str, str]] = set()
    for seed in range(20 * len(field.KINDS)):
        for least in (0, 1_000_000):
            program = field.drawn(seed, least)
            again = field.drawn(seed, least)
            assert (program.source, program.inputs) == (again.source, again.inputs)
            compile(program.source, str(program), "exec")
            compile(field.numba_source(program), str(program), "exec")
            assert not least or max(np.prod(i.shape) for i in program.inputs) > least / 8, program
            assert program.grows == bool(re.search(r"\[[\w ]*[a-z]", program.row.inputs) or program.kind == "vmap")
            drawn.add((program.kind, program.row.body))
    assert {kind for kind, _ in drawn} == set(field.KINDS)

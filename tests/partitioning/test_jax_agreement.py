"""Shardings of results beside JAX's, for every program of ``programs.py``, on 8 virtual devices of a JAX process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests.partitioning.namespaces import WEFT, arguments
from tests.partitioning.programs import PROGRAMS, SIZES
from weft import partitioning

ROOT = Path(__file__).resolve().parents[2]
# name -> why weft's results lie otherwise; docs/DISTRIBUTED.md says the same in words
DIFFERENT = {
    "add_conflict": "of two operands of equal size JAX takes neither sharding, weft the first",
    "roll_cut": "JAX cuts extents that the axis does not divide (15 and 1), with padding; weft does not",
    "conv_cut_space": "JAX keeps the sharding of a spatial dimension; in weft windows are whole",
}


@pytest.fixture(scope="module")
def jax_shardings() -> dict[str, list[list[list[str]]]]:
    pytest.importorskip("jax")
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # half of the time
    done = subprocess.run(
        [sys.executable, "-m", "tests.partitioning.jax_oracle"], env=environment, cwd=ROOT, timeout=240, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_results_lie_as_in_jax(jax_shardings: dict[str, list[list[list[str]]]]) -> None:
    assert len(PROGRAMS) >= 110
    different = {}
    for name, program in PROGRAMS.items():
        closed = weft.make_jaxpr(program.make(WEFT))(*arguments(program))
        plan, known = partitioning.propagated(closed, SIZES, [a.spec for a in program.arguments])
        mine = [[list(axes) for axes in known.of(atom)] for atom in plan.closed.jaxpr.outvars]
        if mine != jax_shardings[name]:
            different[name] = (mine, jax_shardings[name])
    assert set(different) == set(DIFFERENT), different

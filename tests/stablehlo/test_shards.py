"""Programs over 8 virtual devices as files: JAX runs weft's, weft runs JAX's and its own; both say the same of them.

weft writes its files, then one process of JAX reads these and writes its own, then weft reads all.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stablehlo import shard_programs

pytest.importorskip("jax.export")
pytest.importorskip("flatbuffers", reason="JAX reads its files by it")

ROOT = Path(__file__).parents[2]
Found = dict[str, Any]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, chosen: Any) -> tuple[Found, Found]:
    """What weft and JAX found for the programs of the cases that run, and the first, on which errors are tried."""
    tests = (
        test_each_runs_the_others_files,
        test_what_is_written_and_read_gives_the_same_bits,
        test_both_say_the_same_of_devices,
    )
    cases = {params["name"] for test in tests for params in chosen(test)} | {"data parallel"}
    folder = tmp_path_factory.mktemp("shards")
    devices = {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    environment = {**os.environ, **devices, "PYTHONPATH": str(ROOT)}
    for library in ("weft", "jax", "weft"):
        command = [sys.executable, "-m", "tests.stablehlo.shard_process", library, str(folder), *sorted(cases)]
        done = subprocess.run(command, env=environment, cwd=ROOT, timeout=240, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
    names = ("results", "written", "read", "errors")
    weft, jax = [
        Found(zip(names, pickle.loads((folder / f"{library}.pickle").read_bytes()), strict=True))
        for library in ("weft", "jax")
    ]
    return weft, jax


@pytest.mark.parametrize("name", shard_programs.PROGRAMS)
def test_each_runs_the_others_files(processes: tuple[Found, Found], name: str) -> None:
    weft, jax = processes
    expected = jax["results"]["own"][name]
    for found in (weft["results"]["own"], jax["results"]["weft"], weft["results"]["jax"]):
        for one, other in zip(found[name], expected, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", shard_programs.PROGRAMS)
def test_what_is_written_and_read_gives_the_same_bits(processes: tuple[Found, Found], name: str) -> None:
    weft, _ = processes
    for one, other in zip(weft["results"]["weft"][name], weft["results"]["own"][name], strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", shard_programs.PROGRAMS)
def test_both_say_the_same_of_devices(processes: tuple[Found, Found], name: str) -> None:
    weft, jax = processes
    expected = jax["written"][name]
    for found in (weft["written"], weft["read"]["weft"], weft["read"]["jax"], jax["read"]["weft"]):
        assert found[name] == expected


def test_other_numbers_of_devices_are_refused(processes: tuple[Found, Found]) -> None:
    weft, jax = processes
    assert weft["errors"] == jax["errors"] and len(weft["errors"]) == 4
    assert "exported for 8 devices" in weft["errors"][0]

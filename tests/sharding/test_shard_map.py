"""shard_map, smap and pmap on 8 virtual devices beside JAX: values, types, texts of jaxprs, classes of errors."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sharding import shard_map_cases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """(weft's, JAX's) results of all cases, each from one process."""
    folder = tmp_path_factory.mktemp("shard_map")
    program = ROOT / "tests" / "sharding" / "shard_map_cases.py"
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **devices, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, str(program), name, str(folder / name)], env=environment)
        for name in ("weft", "jax")
    ]
    try:
        assert [process.wait(timeout=240) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    return tuple(pickle.loads((folder / name).read_bytes()) for name in ("weft", "jax"))  # type: ignore[return-value]


@pytest.mark.parametrize("name", shard_map_cases.CASES)
def test_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    mine, expected = (found[name] for found in results)
    if isinstance(expected, tuple):
        assert isinstance(mine, tuple), f"JAX raises {expected}"
        assert mine[0] == expected[0], (mine, expected)
        return
    assert not isinstance(mine, tuple), mine
    for leaves in mine:
        assert len(leaves) == len(expected[0])
        for value, wanted in zip(leaves, expected[0], strict=True):
            assert value.shape == wanted.shape
            np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(shard_map_cases.TEXT))
def test_text_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    mine, expected = (found[f"{name}: text"] for found in results)
    assert mine == expected


def test_types_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    mine, expected = (found["types"] for found in results)
    assert mine == expected

"""How many devices the CPU has, and what must hold of arrays on them; each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = "import weft; print(weft.device_count(), weft.jit(lambda x: x + 1)(1.0).device.id)"
WAYS = {
    "nothing": ({}, COUNT, "1 0"),
    "jax's variable": ({"JAX_NUM_CPU_DEVICES": "3"}, COUNT, "3 0"),
    "weft's variable counts first": ({"JAX_NUM_CPU_DEVICES": "3", "WEFT_NUM_CPU_DEVICES": "5"}, COUNT, "5 0"),
    "a flag": ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=4"}, COUNT, "4 0"),
    "the option": ({}, f"import weft; weft.config.update('jax_num_cpu_devices', 6); {COUNT}", "6 0"),
    "no number": ({"JAX_NUM_CPU_DEVICES": "many"}, COUNT, "ValueError: JAX_NUM_CPU_DEVICES takes an integer"),
    "none": ({}, f"import weft; weft.config.update('num_cpu_devices', 0); {COUNT}", "ValueError: [config] num_cpu_"),
    "too late": (
        {}, f"{COUNT}; weft.config.update('num_cpu_devices', 6)", "RuntimeError: jax_num_cpu_devices config should be",
    ),
}  # fmt: skip


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if not name.endswith(("NUM_CPU_DEVICES", "XLA_FLAGS"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**others, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_devices(way: str) -> None:
    environment, program, expected = WAYS[way]
    done = run("-c", program, **environment)
    assert expected in done.stdout + done.stderr, done


def test_arrays_on_virtual_devices() -> None:
    done = run(str(ROOT / "tests" / "sharding" / "own_checks.py"), JAX_NUM_CPU_DEVICES="8")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 7

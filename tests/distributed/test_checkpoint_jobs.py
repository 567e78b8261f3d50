"""Checkpoints of a job of two processes: saved by both, restored by one or both on other meshes; errors on all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed import jobs

PROGRAM = Path(__file__).with_name("checkpoint_processes.py")
pytestmark = jobs.needs_mpi
pytest.importorskip("tensorstore", reason="checkpoints are kept by tensorstore, which is an extra")


def job(processes: int, folder: Path, what: str, devices: int = 1) -> None:
    """Run the program on processes of so many virtual devices each; every one has to say that it is done."""
    variables = {"WEFT_NUM_CPU_DEVICES": str(devices), "WEFT_CHECK": "0"}
    if processes > 1:
        done = jobs.run(PROGRAM.name, folder, what, processes=processes, **variables)
        status, out, text = done.status, done.out, str(done)
    else:
        command = [sys.executable, str(PROGRAM), str(folder), what, "--alone"]
        environment = {**os.environ, **jobs.environment(**variables)}
        alone = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
        status, out, text = alone.returncode, alone.stdout, alone.stdout + alone.stderr
    assert status == 0, text
    assert out.count(f" of {processes}: {what} done") == processes, text


def test_saved_by_two_processes_and_restored_by_any_number(tmp_path: Path) -> None:
    job(2, tmp_path / "by two", "save", devices=2)
    job(1, tmp_path / "by two", "restore", devices=4)
    job(1, tmp_path / "by one", "save", devices=4)
    job(2, tmp_path / "by one", "restore", devices=2)


def test_errors_are_raised_on_all_processes(tmp_path: Path) -> None:
    job(2, tmp_path, "errors")

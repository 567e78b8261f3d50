"""Checkpoints of a job of two processes: saved by both, restored by one or both on other meshes; errors on all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("checkpoint_processes.py")
pytest.importorskip("tensorstore", reason="checkpoints are kept by tensorstore, which is an extra")
pytest.importorskip("mpi4py", reason="jobs are MPI's, which is an extra")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def job(processes: int, *arguments: str, devices: int = 1) -> None:
    """Run the program on processes of so many virtual devices each; every one has to say that it is done."""
    start = ["-m", "weft", "launch", "-n", str(processes)] if processes > 1 else []
    done = subprocess.run(
        [sys.executable, *start, str(PROGRAM), *arguments, *(["--alone"] if processes == 1 else [])],
        env={**os.environ, **AS_ROOT, "PYTHONPATH": str(ROOT), "WEFT_CHECK": "0", "WEFT_NUM_CPU_DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f" of {processes}: {arguments[1]} done") == processes, done.stdout + done.stderr


def test_saved_by_two_processes_and_restored_by_any_number(tmp_path: Path) -> None:
    job(2, str(tmp_path / "by two"), "save", devices=2)
    job(2, str(tmp_path / "by two"), "restore", devices=1)
    job(1, str(tmp_path / "by two"), "restore", devices=4)
    job(1, str(tmp_path / "by one"), "save", devices=4)
    job(2, str(tmp_path / "by one"), "restore", devices=2)


def test_errors_are_raised_on_all_processes(tmp_path: Path) -> None:
    job(2, str(tmp_path), "errors")

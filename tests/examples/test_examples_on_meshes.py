"""The programs of ``examples/`` for several devices give what one gives: on virtual devices, and in a job of two.

Each runs in a process of its own, since the number of devices is fixed once they are used.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed import jobs

FOLDER = jobs.ROOT / "examples"
DIFFERENCE = re.compile(r"the largest difference to [a-z ]*one device is (\S+?)[;\s]", re.S)


def printed(name: str, *words: object, processes: int = 1) -> str:
    """What an example prints."""
    variables = {"WEFT_CHECK": "0", "COLUMNS": "200"}
    if processes > 1:
        done = jobs.run(str(FOLDER / name), *words, processes=processes, seconds=150, **variables)
        assert done.status == 0, str(done)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.out)  # mpirun's processes see a terminal
    command = [sys.executable, str(FOLDER / name), *map(str, words)]
    environment = {**os.environ, **jobs.environment(**variables)}
    alone = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    return alone.stdout


def difference(text: str) -> float:
    found = DIFFERENCE.search(text + "\n")
    assert found, text
    return float(found[1])


def test_tensor_parallel(tmp_path: Path) -> None:
    text = tmp_path / "verse.txt"
    text.write_text("the rose is red, the violet is blue, and so are you. " * 20)
    out = printed("tensor_parallel.py", "--steps", 30, "--text", text)
    assert difference(out) == 0
    assert "psum along 'model'" in out
    assert "P('model',)" in out
    found = re.search(r"(\d+\.\d+) nats a character before, (\d+\.\d+) after", out)
    assert found
    before, after = map(float, found.groups())
    assert after < before - 1


def test_halo(tmp_path: Path) -> None:
    out = printed("halo.py", "--size", 64, "--steps", 90, "--devices", 4, "--plot", tmp_path / "halo.png")
    assert difference(out) == 0
    assert (tmp_path / "halo.png").read_bytes().startswith(b"\x89PNG")
    command = [sys.executable, str(FOLDER / "halo.py"), "--size", "65"]
    refused = subprocess.run(command, env={**os.environ, **jobs.environment()}, capture_output=True, text=True)
    assert "65 rows cannot be cut into 2 equal strips" in refused.stderr


def test_data_parallel_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("tensorstore", reason="checkpoints are kept by tensorstore, which is an extra")
    assert difference(printed("data_parallel.py", "--epochs", 2, "--save", tmp_path / "run")) == 0
    out = printed("data_parallel.py", "--epochs", 4, "--save", tmp_path / "run", "--resume", "--devices", 4)
    assert "going on after epoch 2" in out
    assert difference(out) == 0
    assert float(re.search(r"accuracy (0\.\d+)", out)[1]) > 0.9  # type: ignore[index] - it is printed


@jobs.needs_mpi
def test_on_two_processes(tmp_path: Path) -> None:
    assert difference(printed("data_parallel.py", "--epochs", 1, processes=2)) < 1e-5
    plot = tmp_path / "halo.png"
    assert difference(printed("halo.py", "--size", 64, "--steps", 12, "--plot", plot, processes=2)) == 0
    assert difference(printed("tensor_parallel.py", "--steps", 3, processes=2)) < 1e-4

"""Kills a program while it saves, and looks at what is left: ``python checkpoint_kills.py [--kills 60] [--seed 0]``.

The program saves states one after the other, alternately with steps and without, in the foreground and background;
in state n every number is n. It is killed at a time drawn by seed. What is restored then has to be one state, whole:
the last that the program said was saved, or the next. A new program goes on from there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import checkpoint

SHAPES = [(700, 1000), (3,), (), (64, 64), (2_500_000,)]


def state(number: int) -> dict[str, Any]:
    return {"number": number, "arrays": [jnp.full(shape, number, jnp.int32) for shape in SHAPES]}


def save_for_ever(folder: str, first: int) -> None:
    number = first
    while True:
        with_steps, background = Path(folder, "steps"), number % 2 == 0
        made = checkpoint.save(with_steps, state(number), step=number, keep=2, background=background)
        checkpoint.save(Path(folder, "one"), state(number))
        made.wait()
        print(number, flush=True)
        number += 1


def looked_at(folder: Path) -> int:
    """The number of the state that is there; AssertionError if it is not one state."""
    found = checkpoint.restore(folder)
    number = found["number"]
    for array, shape in zip(found["arrays"], SHAPES, strict=True):
        assert array.shape == shape
        assert np.all(np.asarray(array) == number), f"state {number} has other values: {array}"
    return number


def kill_once(folder: Path, first: int, wait: float) -> int:
    """Start the program, kill it ``wait`` seconds after its first save, and check what it left; the next number."""
    command = [sys.executable, __file__, "--save", str(folder), "--first", str(first)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert program.stdout is not None
    said = int(program.stdout.readline())
    time.sleep(wait)
    program.send_signal(signal.SIGKILL)
    rest = program.stdout.read().split("\n")
    program.wait(30)
    said = max([said, *[int(line) for line in rest[:-1]]])  # the last line may be cut
    for name in ("steps", "one"):
        number = looked_at(folder / name)
        assert said <= number <= said + 1, (
            f"{name}: state {number} was restored, and {said} was the last that was saved"
        )
    for step in checkpoint.steps(folder / "steps"):
        assert checkpoint.restore(folder / "steps", step=step)["number"] == step
    return looked_at(folder / "steps") + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="be the program that saves to this folder")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if options.save is not None:
        save_for_ever(options.save, options.first)
    draw = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp())
    begin, first = time.perf_counter(), 0
    try:
        for _ in range(options.kills):
            first = kill_once(folder, first, draw.uniform(0, 0.4))
        left = sum(name.startswith("weft-arrays") for name in os.listdir(folder / "steps"))
    finally:
        shutil.rmtree(folder)
    seconds = time.perf_counter() - begin
    print(f"{options.kills} kills, {first} states saved, what was left always whole; {left} folders, {seconds:.0f} s")


if __name__ == "__main__":
    main()

"""Fuzzing for hours: ``python tests/fuzz/long.py FOLDER [PROGRAMS]`` runs 1,000 programs to a process and seed.

FOLDER/log has a line for every range that has ended; the same command goes on after the last of them. A range that
fails leaves its output and its ``repro.py`` in FOLDER/<seed>, and the others run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANGE = 1000
TEST = f"{ROOT}/tests/fuzz/test_random_programs.py::test_random_programs"


def run_range(seed: int, folder: Path) -> tuple[int, bool]:
    """How many programs of a range agreed, and whether all did."""
    own = folder / str(seed)
    own.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", f"{ROOT}/pyproject.toml"]
    done = subprocess.run(
        [*command, f"--rootdir={ROOT}", f"--hypothesis-seed={seed}", TEST],
        cwd=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "WEFT_FUZZ_EXAMPLES": str(RANGE), "WEFT_CHECK": "1"},
    )  # fmt: skip
    (own / "output").write_text(done.stdout)
    counted = re.search(r"fuzz: (\d+) programs", done.stdout)
    return int(counted[1]) if counted else 0, done.returncode == 0


def main() -> int:
    folder, wanted = Path(sys.argv[1]).resolve(), int((*sys.argv, 50_000)[2])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    total = sum(int(line.split()[3]) for line in lines)
    while total < wanted:
        seed = int(lines[-1].split()[1]) + 1 if lines else time.time_ns() // 1_000_000_000 * 1000
        count, good = run_range(seed, folder)
        total += count
        lines.append(f"seed {seed} programs {count} {'good' if good else 'FAILED'} total {total}")
        print(lines[-1], flush=True)
        with log.open("a") as file:
            file.write(lines[-1] + "\n")
    bad = [line.split()[1] for line in lines if "FAILED" in line]
    print(f"{total} programs; " + (f"failed: {', '.join(bad)}" if bad else "all agree"))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

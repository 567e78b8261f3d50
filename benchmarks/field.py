"""weft beside its peers on what a scientist would write: fixed texts of every kind, sizes and numbers drawn by seed.

    python benchmarks/field.py                             # 100 programs, every system that is installed here
    python benchmarks/field.py --systems weft,jax --count 300 --first-seed 1000
    python benchmarks/field.py --seed 17                   # one program: its text, inputs and times
    python benchmarks/field.py --kind 'loops|rows' --min-size 1000000 --isa v3
    python benchmarks/field.py --python torch=/opt/torch/bin/python --python numba=/opt/numba/bin/python

A seed chooses a program: its kind is the seed's remainder by the number of kinds, and one of the texts of that kind
(with holes, in ``programs/``) gets numbers, sizes and a dtype. No text is drawn. weft and JAX run the same
text; NumPy and PyTorch run it where it has only their functions, numba as a loop where the program has such a form.

Each system has its own process for the whole run (``field_worker.py``). A program is prepared in all of them (its first
call, then one at a larger shape), the results are compared with JAX's (where they differ, a float64 run says who is
right), then warm calls are timed in rounds A B C A B C, and the least time counts. Ratios are the peer's seconds over
weft's. A program that fails in a system, or whose results would take more than half a gigabyte, is listed with the
reason. ``--isa v3`` holds everyone to AVX2 and says what was seen of it (``isa.py``). A JSON line for each program is
appended to benchmarks/results/field.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import field_draw
import field_report
import isa
import run
from field_draw import DrawnProgram
from field_rows import KINDS
from listing import watched

LIMIT_SECONDS = 60.0  # for any answer of a worker
COUNT = 100
MOST_RESULT_BYTES = 1 << 29  # bytes of a program's results: every system has them, and copies of them to compare


class Team:
    """The processes of the systems; one that ends or does not answer is started again for the next program."""

    def __init__(self, pythons: dict[str, str], least: int, held: str, folder: Path) -> None:
        self.pythons, self.least, self.held, self.folder = pythons, least, held, folder
        self.environments = {python: isa.environment(held, python) for python in set(pythons.values())}
        self.workers = {system: self.started(system) for system in pythons}

    def started(self, system: str) -> run.Worker:
        python = self.pythons[system]
        command = (str(run.HERE / "field_worker.py"), system, str(self.folder), str(self.least), self.held)
        return run.Worker(system, python, command, self.environments[python])

    def ask(self, system: str, do: str, seed: int) -> dict[str, Any]:
        reply = self.workers[system].ask(do, str(seed), LIMIT_SECONDS)
        if reply["status"] in ("crash", "timeout"):
            self.workers[system].stop()
            self.workers[system] = self.started(system)
        return reply

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()


def measured(team: Team, program: DrawnProgram, rounds: int) -> dict[str, dict[str, Any]]:
    """A row for each system: its status, and its seconds of the first, second and warm calls."""
    asked = "jax" if "jax" in team.workers else "weft"  # weft would have the trace at the first call
    size = team.ask(asked, "bytes", program.seed).get("bytes", 0) if program.row.jit else 0
    if size > MOST_RESULT_BYTES:
        reason = f"not run: its results take {size / 1e9:.2f} GB"
        return {system: {"status": "large", "reason": reason} for system in team.workers}
    rows = {}
    for path in team.folder.glob("*.npz"):
        path.unlink()
    for system in team.workers:
        rows[system] = team.ask(system, "prepare", program.seed)
    field_report.compare(team.folder, rows, program, lambda: team.ask("jax", "wide", program.seed)["status"] == "ok")
    for _ in range(rounds):
        for system, row in rows.items():
            if row["status"] != "ok":
                continue
            reply = team.ask(system, "sample", program.seed)
            if reply["status"] == "ok":
                row["warm"] = min(row.get("warm", float("inf")), reply["seconds"])
            else:
                row.update(reply)
    return rows


def chosen_seeds(options: argparse.Namespace) -> list[int]:
    if options.seed is not None:
        return [options.seed]
    found, seed = [], options.first_seed
    kinds = [field_draw.kind_of(i, options.min_size) for i in range(len(KINDS))]
    if not any(re.search(options.kind, kind) for kind in kinds):
        sys.exit(f"no kind matches {options.kind!r}; known: {', '.join(dict.fromkeys(kinds))}")
    while len(found) < options.count:
        if re.search(options.kind, field_draw.kind_of(seed, options.min_size)):
            found.append(seed)
        seed += 1
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, help="the program of this seed only, shown in full")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT, help="how many programs")
    parser.add_argument("--kind", default="", help="regular expression over kinds")
    parser.add_argument("--min-size", type=int, default=0, metavar="ELEMENTS", help="of the first input, at least")
    parser.add_argument("--rounds", type=int, default=3)
    run.add_system_options(parser)
    results = run.HERE / "results" / "field.jsonl"
    parser.add_argument("--json", type=Path, default=results, help="file that gets a line for each program")
    return parser.parse_args()


def main() -> None:
    options = parse()
    pythons = run.interpreters(options)
    if "weft" not in pythons:
        sys.exit("weft is not installed here, or not among the systems")
    begin = time.perf_counter()
    records = []
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, options.json.open("a") as file:
        team = Team(pythons, options.min_size, options.isa, Path(folder))
        try:
            run.print_systems(list(team.workers.values()))
            seeds = chosen_seeds(options)
            programs = [field_draw.drawn(seed, options.min_size) for seed in seeds]
            for _, program in watched([(f"seed {p.seed}, {p}", p) for p in programs]):
                record = field_report.Record(program, measured(team, program, options.rounds))
                records.append(record)
                print(json.dumps({"isa": options.isa, **record.as_json()}), file=file, flush=True)
        finally:
            team.stop()
    if options.seed is not None:
        field_report.print_one(records[0])
    else:
        field_report.print_all(records)
        print(f"{len(records)} programs in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()

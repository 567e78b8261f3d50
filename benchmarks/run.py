"""weft beside its peers in one interleaved run.

    python benchmarks/run.py                              # every system that is installed here
    python benchmarks/run.py --only 'softmax|matmul' --rounds 5
    python benchmarks/run.py --isa v3                     # all held to AVX2 (isa.py)
    python benchmarks/run.py --python torch=/opt/torch/bin/python --python numba=/opt/torch/bin/python
    python benchmarks/run.py --systems weft,before,jax --python before=/old/weft/.venv/bin/python   # another weft

Each system has its own process for the whole run; a workload is prepared in all of them (first call, check
against a float64 reference, second shape, stages apart), then timed in rounds A B C A B C. The figure is the
minimum over rounds. The limit is bytes over the copy bandwidth measured at that footprint, or flops over the
best matrix-product rate measured here. A JSON line is appended to benchmarks/results/runs.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import isa
import numpy as np
import workloads

HERE = Path(__file__).resolve().parent
SYSTEMS = ("weft", "jax", "torch", "torch.compile", "numba", "numpy")
MODULE = {"torch.compile": "torch", "before": "weft"}


class Worker:
    """A system's process; every request is answered by one JSON line."""

    def __init__(self, system: str, python: str, command: Sequence[str], environment: dict[str, str]) -> None:
        self.system = system
        self.process = subprocess.Popen(
            [python, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
            env={"WEFT_CACHE": "off", **os.environ, **environment},  # first calls are those of a first process
        )
        ready = self.answer()
        self.version, self.findings = ready.get("version", "?"), ready.get("findings", ["did not start"])

    def answer(self, seconds: float | None = None) -> dict[str, Any]:
        """Its next line; ``crash`` if it has ended, ``timeout`` if there is none after so many seconds."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return {"status": "timeout", "reason": f"no answer in {seconds:g} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"status": "crash", "reason": f"ended with code {self.process.wait(10)}"}

    def ask(self, do: str, name: str = "", seconds: float | None = None) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, "name": name}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"status": "crash", "reason": f"ended with code {self.process.wait(10)}"}
        return self.answer(seconds)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def installed(module: str, python: str) -> bool:
    test = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", test], cwd=HERE, capture_output=True).returncode == 0


def copy_bandwidth(size_bytes: int) -> float:
    """Bytes read and written per second by a copy whose source and target together have this footprint."""
    source = np.ones(max(size_bytes // 8, 1024), np.float32)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best * (os.cpu_count() or 1 if size_bytes <= 2**24 else 1)


def product_rate() -> float:
    """Best float32 matrix-product flops per second of this machine."""
    a = np.ones((1024, 1024), np.float32)
    best = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 1024**3 / best


def limit_seconds(w: workloads.Workload, rate: float) -> float | None:
    if w.flops:
        return w.flops / rate
    return w.bytes / copy_bandwidth(w.bytes) if w.bytes else None


def text_of(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def measure(name: str, workers: list[Worker], rounds: int) -> dict[str, dict[str, Any]]:
    rows = {w.system: w.ask("prepare", name) for w in workers}
    for _ in range(rounds):
        for worker in workers:
            row = rows[worker.system]
            if row.get("status") == "ok":
                seconds = worker.ask("sample").get("seconds")
                if seconds is not None:
                    row["seconds"] = min(row.get("seconds", float("inf")), seconds)
    return rows


def report(name: str, rows: dict[str, dict[str, Any]], limit: float | None) -> str:
    ours = rows.get("weft", {})
    times = {s: r["seconds"] for s, r in rows.items() if "seconds" in r}
    peers = {s: t for s, t in times.items() if s != "weft"}
    best = min(peers, key=peers.__getitem__) if peers else None
    cells = [f"{name:20}"]
    for system, row in rows.items():
        cells.append(f"{system} {text_of(times[system]) if system in times else row.get('status', '?')}")
    if best and "weft" in times:
        cells.append(f"best peer/weft {peers[best] / times['weft']:.2f}x ({best})")
    if limit and "weft" in times:
        cells.append(f"weft/limit {times['weft'] / limit:.2f}x")
    stages = [
        f"{key.rsplit('_', 1)[0]} {ours[key]:.3g} {key.rsplit('_', 1)[1]}"
        for key in ("first_ms", "new_shape_ms", "trace_ms", "compile_ms", "dispatch_us")
        if key in ours
    ]
    if "dispatch_us" in ours and "weft" in times:
        stages.append(f"kernel {text_of(max(times['weft'] - 1e-6 * ours['dispatch_us'], 0.0))}")
    reasons = [
        f"{s}: {r['reason']}" for s, r in rows.items() if r.get("status") in ("error", "wrong") and "reason" in r
    ]
    return (
        "  ".join(cells)
        + ("\n    weft: " + ", ".join(stages) if stages else "")
        + "".join(f"\n    {r}" for r in reasons)
    )


def add_system_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated systems to run")
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=PATH", help="a system's interpreter")
    parser.add_argument("--isa", choices=isa.NAMES, default="host", help="v3: nobody uses more than AVX2")


def interpreters(options: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each asked system that is installed."""
    given = dict(entry.split("=", 1) for entry in options.python)
    found = {}
    for system in options.systems.split(","):
        module = MODULE.get(system, system)
        python = given.get(system, given.get(module, sys.executable))
        if installed(module, python):
            found[system] = python
    return found


def print_systems(workers: Sequence[Worker]) -> None:
    print("systems:", ", ".join(f"{w.system} {w.version}" for w in workers), flush=True)
    for worker in workers:
        for line in worker.findings:
            print(f"    {worker.system}: {line}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="regular expression over workload names")
    parser.add_argument("--rounds", type=int, default=3)
    add_system_options(parser)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "runs.jsonl", help="file a line is appended to")
    return parser.parse_args()


def main() -> None:
    options = parse()
    workers = [
        Worker(system, python, (str(HERE / "worker.py"), system, options.isa), isa.environment(options.isa, python))
        for system, python in interpreters(options).items()
    ]
    print_systems(workers)
    rate, record = product_rate(), {}
    try:
        for name in workloads.REGISTRY:
            if re.search(options.only, name):
                record[name] = measure(name, workers, options.rounds)
                print(report(name, record[name], limit_seconds(workloads.REGISTRY[name], rate)), flush=True)
    finally:
        for worker in workers:
            worker.stop()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "isa": options.isa,
        "machine": f"{platform.machine()} {os.cpu_count()} CPUs",
        "versions": {w.system: w.version for w in workers},
        "rows": record,
    }
    with options.json.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

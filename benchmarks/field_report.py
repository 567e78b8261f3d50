"""The report on the measurements of ``field.py``: who agrees with whom, and the ratios of each kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from field_draw import DrawnProgram
from run import text_of

CALLS = {"warm": "warm calls", "first": "first calls", "second": "second shapes"}
DRAWN_AT_RANDOM = ("random numbers", "walkers")  # float64 draws other numbers


@dataclass
class Record:
    """A program and a row for each system: status, reason, seconds of the first, second and warm calls."""

    program: DrawnProgram
    rows: dict[str, dict[str, Any]]

    def ratio(self, call: str, peer: str) -> float | None:
        """The peer's seconds over weft's; ``best`` is the fastest peer."""
        ours = self.rows["weft"].get(call)
        others = [row.get(call) for system, row in self.rows.items() if system != "weft" and peer in (system, "best")]
        found = [seconds for seconds in others if seconds]
        return min(found) / ours if ours and found else None

    def as_json(self) -> dict[str, Any]:
        p = self.program
        return {"seed": p.seed, "kind": p.kind, "program": str(p), "rows": self.rows}


# ---------------------------------------------------------------------------------------------------- agreement
def compare(folder: Path, rows: dict[str, dict[str, Any]], program: DrawnProgram, run_wide: Callable[[], bool]) -> None:
    """Mark systems that differ from JAX (without it from NumPy) as ``wrong``; a float64 run says if JAX is right."""
    trusted = next((system for system in ("jax", "numpy") if rows.get(system, {}).get("status") == "ok"), None)
    if trusted is None:
        return
    want = loaded(folder / f"{trusted}.npz")
    far = {
        system: error
        for system, row in rows.items()
        if system != trusted and row["status"] == "ok"
        and not (error := error_of(loaded(folder / f"{system}.npz"), want)) <= program.tolerance
    }  # fmt: skip
    if not far:
        return
    decidable = program.kind not in DRAWN_AT_RANDOM and program.dtype != "float64" and trusted == "jax"
    wide = loaded(folder / "wide.npz") if decidable and run_wide() else None
    theirs = error_of(want, wide) if wide else 0.0
    for system, error in far.items():
        ours = error_of(loaded(folder / f"{system}.npz"), wide) if wide else error
        if wide and ours <= max(2 * theirs, program.tolerance):  # nobody's digits are certain, or JAX's are wrong
            rows[system]["note"] = f"differs from JAX by {error:.2g}; from float64 by {ours:.2g}, JAX {theirs:.2g}"
        else:
            rows[system].update(status="wrong", reason=f"error {error:.2g} beside {trusted}, {ours:.2g} beside float64")


def loaded(path: Path) -> list[Any]:
    with np.load(path) as parts:
        return [parts[name] for name in parts.files]


def error_of(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the wanted magnitude plus the root mean square of all; inf: shapes."""
    if len(found) != len(wanted):
        return math.inf
    worst = 0.0
    for got, want in zip(found, wanted):
        if got.shape != want.shape:
            return math.inf
        got, want = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, want))
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        finite = np.isfinite(want) & np.isfinite(got)
        if np.any(~same & ~finite):
            return math.inf
        want, got = np.where(finite, want, 0), np.where(finite, got, 0)
        scale = np.abs(want) + math.sqrt(float(np.mean(np.abs(want) ** 2))) if want.size else np.ones(())
        worst = max(worst, float(np.max(np.abs(got - want) / np.where(scale == 0, 1, scale), initial=0.0)))
    return worst


# ------------------------------------------------------------------------------------------------------ printing
def print_one(record: Record) -> None:
    print(f"seed {record.program.seed}, {record.program.kind}: {record.program}\n{record.program.source}\n")
    for system, row in record.rows.items():
        times = ", ".join(f"{told} {text_of(row[call])}" for call, told in CALLS.items() if call in row)
        print(f"{system:14} {row['status']:8} {times} {row.get('reason', row.get('note', ''))}")


def print_all(records: Sequence[Record]) -> None:
    """Every kind against JAX and the best peer, the worst programs, and what failed."""
    peers = sorted({system for r in records for system, row in r.rows.items() if "warm" in row and system != "weft"})
    kinds = list(dict.fromkeys(r.program.kind for r in records))
    for peer in [p for p in ("jax", "best") if p in peers or (p == "best" and len(peers) > 1)]:
        for call, told in CALLS.items():
            if peer == "best" and call != "warm":  # NumPy compiles nothing
                continue
            print(f"\n{told}: seconds of {'the best of ' + ', '.join(peers) if peer == 'best' else 'JAX'} over weft's")
            print(f"{'kind':18}{'count':>6}{'mean':>8}{'10 %':>8}{'>= 1':>7}   worst (seed)")
            for kind in ["all", *kinds]:
                chosen = [(x, r) for r in records if kind in ("all", r.program.kind) and (x := r.ratio(call, peer))]
                if chosen:
                    print(_line(kind, chosen))
    _print_slow(records)
    _print_failed(records)


def _line(kind: str, chosen: list[tuple[float, Record]]) -> str:
    chosen.sort(key=lambda pair: pair[0])
    ratios = [ratio for ratio, _ in chosen]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    level = sum(ratio >= 1 for ratio in ratios) / len(ratios)
    worst = "  ".join(f"{ratio:.2f} ({r.program.seed})" for ratio, r in chosen[:5])
    tenth = float(np.percentile(ratios, 10))
    return f"{kind:18}{len(ratios):6}{mean:8.2f}{tenth:8.2f}{level:7.0%}   {worst}"


def _print_slow(records: Sequence[Record]) -> None:
    slow = sorted((x, r.program.seed, r) for r in records if (x := r.ratio("warm", "best")) and x < 1)
    if slow:
        print("\nwarm calls behind the best peer: ratio, seed, seconds, program")
    for ratio, seed, r in slow[:40]:
        times = ", ".join(f"{s} {text_of(row['warm'])}" for s, row in r.rows.items() if "warm" in row)
        print(f"{ratio:7.2f} {seed:6}  {times}  {r.program.kind}: {r.program}")


def _print_failed(records: Sequence[Record]) -> None:
    """weft's and JAX's failures one by one, the other peers' by count: their names are not all of NumPy's."""
    heading = "\nfailed, and results that differ\n"
    counts: dict[tuple[str, str], int] = {}
    for r in records:
        for system, row in r.rows.items():
            if row["status"] != "ok" and system not in ("weft", "jax"):
                counts[system, row["status"]] = counts.get((system, row["status"]), 0) + 1
            elif row["status"] != "ok" or "note" in row:
                print(heading, end="")
                print(f"{system}: seed {r.program.seed}, {r.program.kind}: {r.program}")
                print(f"    {row['status']} {row.get('reason', row.get('note', ''))}")
                heading = ""
    for (system, status), count in sorted(counts.items()):
        print(f"{system}: {count} {status}")

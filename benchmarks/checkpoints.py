"""Saves and restores 1 GB by weft.checkpoint and by tensorstore alone, in turns: in one process, or by weft launch.

    python benchmarks/checkpoints.py [--seconds 60] [--folder FOLDER] [--gigabytes 1]
    weft launch -n 2 benchmarks/checkpoints.py

"tensorstore alone" writes one array with a chunk for each process, synced, without checksum, manifest or removal of
the state before. What is read was just written, and is in the page cache. Minima count: a disk that others use is
noisy.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

import weft
from weft import checkpoint
from weft.distributed import environment, transport
from weft.sharding import AxisType, NamedSharding
from weft.sharding import PartitionSpec as P

COLUMNS = 8192


def together(what: str) -> None:
    """Wait until all processes are here."""
    link = transport.current()
    if link is not None:
        link.barrier(what)


class Case:
    def __init__(self, folder: Path, gigabytes: float) -> None:
        count = weft.device_count()
        rows = int(gigabytes * 2**30 / 4 / COLUMNS) // count * count
        mesh = weft.make_mesh((count,), ("x",), (AxisType.Auto,))
        self.sharding = NamedSharding(mesh, P("x"))
        draw = np.random.default_rng(0)
        self.shape, self.folder = (rows, COLUMNS), folder
        self.array = weft.make_array_from_callback(
            self.shape, self.sharding, lambda index: draw.standard_normal((rows // count, COLUMNS), np.float32)
        )

    def spec(self) -> dict[str, Any]:
        chunk = {"name": "regular", "configuration": {"chunk_shape": list(self.sharding.shard_shape(self.shape))}}
        described = {"shape": list(self.shape), "data_type": "float32", "chunk_grid": chunk}
        store = {"driver": "file", "path": f"{self.folder / 'alone'}/"}
        return {"driver": "zarr3", "kvstore": store, "metadata": described}

    def save(self) -> None:
        checkpoint.save(self.folder / "weft", {"x": self.array})

    def restore(self) -> None:
        weft.block_until_ready(checkpoint.restore(self.folder / "weft", shardings=self.sharding))

    def write(self) -> None:
        first = weft.process_index() == 0
        if first:
            tensorstore.open(self.spec(), create=True, delete_existing=True).result()
        together("the array is described")
        store = tensorstore.open(self.spec(), open=True).result()
        writes = [
            store[shard.index].write(np.asarray(shard.data), can_reference_source_data_indefinitely=True)
            for shard in self.array.addressable_shards
        ]
        for each in writes:
            each.result()

    def read(self) -> None:
        store = tensorstore.open(self.spec(), open=True).result()
        reads = [store[shard.index].read() for shard in self.array.addressable_shards]
        for each in reads:
            each.result()


def measure(case: Case, seconds: float) -> dict[str, list[float]]:
    ways: dict[str, Callable[[], None]] = {
        "tensorstore alone, write": case.write, "weft.checkpoint.save": case.save,
        "tensorstore alone, read": case.read, "weft.checkpoint.restore": case.restore,
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(max(2, int(seconds / 6))):  # a turn takes about six seconds; all processes take as many
        order = list(ways) if turn % 2 == 0 else [list(ways)[i] for i in (1, 0, 3, 2)]
        for name in order:
            together(name)
            begin = time.perf_counter()
            ways[name]()
            together(name)
            times[name].append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; all processes see it")
    parser.add_argument("--gigabytes", type=float, default=1)
    options = parser.parse_args()
    if environment.find(None) is not None:
        weft.distributed.initialize()
    link = transport.current()
    name = "" if link is not None and link.rank > 0 else tempfile.mkdtemp(dir=options.folder)
    folder = Path(name if link is None else link.bcast(name.encode()).decode())
    try:
        times = measure(Case(folder, options.gigabytes), options.seconds)
    finally:
        together("all is measured")
        if weft.process_index() == 0:
            shutil.rmtree(folder)
    if weft.process_index() == 0:
        print(f"{options.gigabytes} GB, {weft.process_count()} processes; seconds, minimum and median")
        for what, taken in times.items():
            print(f"{what:26} {min(taken):6.2f} {statistics.median(taken):6.2f}   {len(taken)} times")


if __name__ == "__main__":
    main()

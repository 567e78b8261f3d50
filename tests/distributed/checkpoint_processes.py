"""Checkpoints of a job: ``checkpoint_processes.py FOLDER WHAT`` is run by every process; see test_checkpoint_jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from weft import checkpoint, random
from weft.checkpoints import CheckpointError, stores
from weft.sharding import AxisType, NamedSharding
from weft.sharding import PartitionSpec as P

X = np.arange(16 * 12, dtype=np.float32).reshape(16, 12)
Y = np.arange(8.0, dtype=np.float32).astype("bfloat16")


def mesh(*shape: int) -> Any:
    return weft.make_mesh(shape, ("x", "y")[: len(shape)], (AxisType.Auto,) * len(shape))


def put(values: Any, sharding: Any) -> Any:
    return weft.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def state() -> dict[str, Any]:
    on = NamedSharding(mesh(weft.device_count()), P("x"))
    return {
        "cut": put(X, on),
        "whole": put(X, on.update(spec=P())),
        "half": put(Y, on),
        "own": jnp.arange(3),  # each process has its own
        "host": np.arange(4.0),
        "key": random.key(5),
        "keys": weft.device_put(random.split(random.key(1), 4), on.update(spec=P())),
        "none": put(np.zeros((8, 0), np.float32), on),
        "epoch": 7,
    }


def check(again: dict[str, Any]) -> None:
    for name, values in (("cut", X), ("whole", X), ("half", Y)):
        assert again[name].shape == values.shape
        assert again[name].dtype == values.dtype
        for shard in again[name].addressable_shards:
            assert np.array_equal(np.asarray(shard.data), values[shard.index]), name
    assert again["own"].tolist() == [0, 1, 2]
    assert again["host"].tolist() == [0, 1, 2, 3]
    assert random.key_data(again["key"]).tolist() == [0, 5]
    assert again["none"].shape == (8, 0)
    assert again["epoch"] == 7


def save(folder: Path) -> None:
    tree = state()
    checkpoint.save(folder, tree, step=1)
    made = checkpoint.save(folder, tree, step=2, keep=1, background=True)
    made.wait()
    found = checkpoint.steps(folder)  # the first process drops the step before, which others may still see
    assert found == [2] if weft.process_index() == 0 else found[-1] == 2
    check(checkpoint.restore(folder, tree))


def restore(folder: Path) -> None:
    """On as many processes and devices as there are now, cut in other ways."""
    count = weft.device_count()
    cut = NamedSharding(mesh(count), P(None, "x"))
    named = {"cut": cut, "whole": cut.update(spec=P("x")), "half": cut.update(spec=P()), "own": None, "host": None}
    again = checkpoint.restore(
        folder, shardings={**named, "key": cut.update(spec=P()), "keys": None, "none": None, "epoch": None}
    )
    check(again)
    assert again["cut"].sharding == cut
    assert again["cut"].addressable_shards[0].data.shape == (16, 12 // count)
    keys = checkpoint.restore(folder)["keys"]
    assert np.array_equal(random.key_data(keys), random.key_data(random.split(random.key(1), 4)))
    if count == 4:
        grid = NamedSharding(mesh(2, 2), P("y", "x"))
        like = {"cut": weft.ShapeDtypeStruct(X.shape, X.dtype, sharding=grid)}
        check({**again, **checkpoint.restore(folder, like, partial=True)})


def fails(call: Any, *texts: str) -> None:
    try:
        call()
    except (CheckpointError, OSError) as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"no error; expected {texts}")


def errors(folder: Path) -> None:
    rank, tree = weft.process_index(), state()
    checkpoint.save(folder, tree)
    fails(
        lambda: checkpoint.save(folder, {**tree, "own": jnp.ones(3 + rank)}),
        "processes save different trees: leaf ['own']",
    )
    fails(
        lambda: checkpoint.save(folder, {"a": 1} if rank else {"b": 1}), "the form of the tree differs between rank 0"
    )
    fails(lambda: checkpoint.save(folder, [1] * (1 + rank)), "processes save different trees")
    write = stores.write

    def full(*given: Any) -> None:
        raise OSError("no space left")

    for bad in (0, 1):  # the rank that cannot write
        for background in (False, True):
            stores.write = full if rank == bad else write
            fails(lambda b=background: checkpoint.save(folder, tree, background=b).wait(), "no space left")
    stores.write = write
    check(checkpoint.restore(folder, tree))
    if rank == 0:
        folder.joinpath("checkpoint.json").rename(folder / "hidden")
    fails(lambda: checkpoint.restore(folder), "no checkpoint.json")
    if rank == 0:
        folder.joinpath("hidden").rename(folder / "checkpoint.json")
        for file in folder.glob("weft-arrays-*/*.cut/c.*"):
            if file.name == f"c.{weft.device_count() - 1}.0":
                file.unlink()
    fails(lambda: checkpoint.restore(folder, tree), "leaf ['cut'] cannot be read")  # by the last process alone
    checkpoint.save(folder, tree)
    check(checkpoint.restore(folder, tree))
    late(folder / "late")


def late(folder: Path) -> None:
    """A process that does not write its part is named."""
    if weft.process_index() == 1:
        stores.write = lambda *given: time.sleep(3)
    fails(
        lambda: checkpoint.save(folder, state(), timeout=0.5),
        *(["ranks [1] have not written their part"] if weft.process_index() == 0 else ["failed on rank 0"]),
    )


if __name__ == "__main__":
    weft.distributed.initialize(*([] if "--alone" not in sys.argv else [None, 1, 0]))
    {"save": save, "restore": restore, "errors": errors}[sys.argv[2]](Path(sys.argv[1]))
    print(f"rank {weft.process_index()} of {weft.process_count()}: {sys.argv[2]} done")

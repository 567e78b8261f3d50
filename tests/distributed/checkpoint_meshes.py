"""Checkpoints on eight virtual devices: shards are chunks, and are restored on other meshes; run by test_checkpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from weft import checkpoint, random
from weft.sharding import AxisType, NamedSharding
from weft.sharding import PartitionSpec as P

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)


def mesh(*shape: int) -> Any:
    names = ("x", "y")[: len(shape)]
    return weft.make_mesh(shape, names, (AxisType.Auto,) * len(shape))


def a_shard_is_a_chunk(folder: Path) -> None:
    w = weft.device_put(X, NamedSharding(mesh(4, 2), P("x", "y")))
    half = weft.device_put(X, NamedSharding(mesh(4, 2), P("y")))  # each part on four devices, written once
    whole = weft.device_put(X, NamedSharding(mesh(8), P()))
    checkpoint.save(folder, {"w": w, "half": half, "whole": whole})
    files = {file.name: len(list(file.glob("c.*"))) for file in next(folder.glob("weft-arrays-*")).iterdir()}
    assert files == {"00002.whole": 1, "00000.half": 2, "00001.w": 8}, files


def restores_on_any_mesh(folder: Path) -> None:
    saved_on = NamedSharding(mesh(4, 2), P("x", "y"))
    tree = {
        "w": weft.device_put(X, saved_on),
        "k": weft.device_put(random.split(random.key(0), 8), saved_on.update(spec=P("y"))),
    }
    checkpoint.save(folder, tree)
    for shape, spec in (
        ((8,), P("x")),
        ((2, 4), P("y", "x")),
        ((2, 2), P(("x", "y"))),
        ((1,), P("x")),
        ((8,), P(None, "x")),
        ((2,), P()),
    ):
        sharding = NamedSharding(mesh(*shape), spec)
        again = checkpoint.restore(folder, shardings={"w": sharding, "k": sharding.update(spec=P("x"))})
        assert again["w"].sharding == sharding
        assert np.array_equal(again["w"], X)
        for shard in again["w"].addressable_shards:
            assert np.array_equal(shard.data, X[shard.index])
        assert np.array_equal(random.key_data(again["k"]), random.key_data(tree["k"]))
        assert again["k"].sharding.spec == P("x")
        like = {"w": weft.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding), "k": tree["k"]}
        assert checkpoint.restore(folder, like)["w"].sharding == sharding
        assert checkpoint.restore(folder, like)["k"].sharding == tree["k"].sharding
    assert checkpoint.restore(folder)["w"].sharding.device_set == {weft.devices()[0]}
    assert not checkpoint.restore(folder)["w"].committed
    on_third = checkpoint.restore(folder, shardings=weft.devices()[3])
    assert on_third["w"].device == on_third["k"].device == weft.devices()[3]


def what_does_not_fit_is_named(folder: Path) -> None:
    checkpoint.save(folder, {"w": X[:6], "n": 3, "v": jnp.ones((6, 2))})
    try:
        checkpoint.restore(folder, shardings=NamedSharding(mesh(4), P("x")))
    except ValueError as error:
        assert "leaf ['v'] cannot lie as asked" in str(error), error
    else:
        raise AssertionError("a dimension of 6 over 4 devices")
    again = checkpoint.restore(folder, shardings=NamedSharding(mesh(2), P("x")))  # only arrays of weft lie somewhere
    assert isinstance(again["w"], np.ndarray)
    assert again["n"] == 3


def training_goes_on_where_it_stopped(folder: Path) -> None:
    def step(w: Any) -> Any:
        return w - 0.1 * weft.grad(lambda w: jnp.sum(jnp.sin(w * X)))(w)

    start = weft.device_put(X / 100, NamedSharding(mesh(4, 2), P("x", "y")))
    straight = start
    for _ in range(6):
        straight = weft.jit(step)(straight)
    w = start
    update = weft.jit(step, donate_argnums=0)
    w = w + 0
    for at in range(3):
        w = update(w)
        checkpoint.save(folder, {"w": w}, step=at, keep=1, background=True)
    again = checkpoint.restore if checkpoint.save(folder, {"w": w}, step=3, keep=1).done() else None
    assert again is not None
    w = again(folder, shardings=NamedSharding(mesh(2, 4), P("y", "x")))["w"]
    assert checkpoint.steps(folder) == [3]
    for _ in range(3):
        w = update(w)
    assert np.array_equal(w, straight)


if __name__ == "__main__":
    for check in (
        a_shard_is_a_chunk,
        restores_on_any_mesh,
        what_does_not_fit_is_named,
        training_goes_on_where_it_stopped,
    ):
        with tempfile.TemporaryDirectory() as name:
            check(Path(name))
        print(check.__name__)

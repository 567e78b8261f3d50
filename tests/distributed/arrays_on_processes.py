"""A job of two processes: arrays of which each has a part, and how they are made, read, moved and used."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from weft import lax
from weft.sharding import AxisType, NamedSharding
from weft.sharding import PartitionSpec as P

X = np.arange(16, dtype=np.float32).reshape(8, 2)


def raises(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {kind.__name__} with {words!r}")


def part(array: Any) -> np.ndarray:
    return np.asarray(array.addressable_data(0))


def devices(me: int) -> None:
    assert weft.process_count() == 2 and weft.process_indices() == [0, 1]
    assert [device.process_index for device in weft.devices()] == [0, 1]
    assert weft.local_devices() == [weft.devices()[me]] and weft.local_devices(1 - me) == [weft.devices()[1 - me]]
    assert weft.device_count() == 2 and weft.local_device_count() == 1
    assert jnp.ones(2).devices() == set(weft.local_devices()) and jnp.ones(2).is_fully_addressable
    raises(ValueError, "Unknown process_index 7", lambda: weft.local_devices(7))
    raises(ValueError, f"belongs to process {1 - me}", lambda: weft.device_put(X, weft.devices()[1 - me]))
    raises(ValueError, f"belongs to process {1 - me}", lambda: weft.jit(jnp.sin, device=weft.devices()[1 - me])(X))


def made(me: int, mesh: Any) -> None:
    cut = NamedSharding(mesh, P("x"))
    mine = X[4 * me : 4 * me + 4]
    local = weft.device_put(mine, weft.local_devices()[0])
    for array in (
        weft.device_put(X, cut),
        weft.make_array_from_callback((8, 2), cut, lambda index: X[index]),
        weft.make_array_from_process_local_data(cut, mine),
        weft.make_array_from_process_local_data(cut, X, (8, 2)),
        weft.make_array_from_single_device_arrays((8, 2), cut, [local]),
        weft.jit(lambda: jnp.arange(16.0).reshape(8, 2), out_shardings=cut)(),
        weft.jit(lambda v: lax.with_sharding_constraint(v, cut))(X),
        lax.with_sharding_constraint(X, cut),
    ):
        assert array.shape == (8, 2) and array.sharding.is_equivalent_to(cut, 2)
        assert not array.is_fully_addressable and not array.is_fully_replicated
        (shard,) = array.addressable_shards
        assert np.array_equal(np.asarray(shard.data), mine) and shard.index[0] == slice(4 * me, 4 * me + 4)
        assert [each.data is None for each in array.global_shards] == [me == 1, me == 0]
    raises(ValueError, "has shape (3, 2)", lambda: weft.make_array_from_process_local_data(cut, X[:3], (8, 2)))
    raises(ValueError, "differs between processes", lambda: weft.device_put(X + me, cut))
    keys = weft.device_put(weft.random.split(weft.random.key(3), 8), cut)
    draw = weft.vmap(weft.random.uniform)
    assert np.array_equal(
        part(weft.jit(draw)(keys)), np.asarray(draw(weft.random.split(weft.random.key(3), 8)))[4 * me :][:4]
    )


def read(mesh: Any) -> None:
    x = weft.device_put(X, NamedSharding(mesh, P("x")))
    for call in (
        lambda: np.asarray(x), lambda: pickle.dumps(x), lambda: weft.device_get(x), lambda: x.tolist(), lambda: list(x),
        lambda: memoryview(x), lambda: x.__dlpack__(), lambda: weft.device_put(x, weft.local_devices()[0]),
    ):  # fmt: skip
        raises(RuntimeError, "spans devices of other processes", call)
    assert repr(x) == str(x) == "Array(shape=(8, 2), dtype=float32)"
    whole = weft.device_put(x, NamedSharding(mesh, P()))
    assert np.array_equal(np.asarray(whole), X) and whole.is_fully_replicated and not whole.is_fully_addressable
    assert np.array_equal(pickle.loads(pickle.dumps(whole)), X)
    assert float(x[3, 1]) == 7.0 and np.array_equal(x[2:4], X[2:4])
    x.delete()
    raises(RuntimeError, "deleted", lambda: x + 1)


def used(me: int, mesh: Any) -> None:
    cut, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    x, mine = weft.device_put(X, cut), X[4 * me : 4 * me + 4]

    def loss(x: Any) -> Any:
        return (x**2).sum()

    assert np.array_equal(part(x * 2 + 1), mine * 2 + 1) and np.array_equal(part(jnp.sin(x)), np.asarray(jnp.sin(mine)))
    assert float(loss(x)) == float(loss(X)) == float(weft.jit(loss, in_shardings=cut)(x))
    assert np.array_equal(part(weft.grad(loss)(x)), 2 * mine)
    assert np.array_equal(part(weft.vmap(jnp.sum)(x)), mine.sum(1))
    assert np.array_equal(np.asarray(weft.jit(lambda x: x, out_shardings=whole)(x)), X)
    assert float(weft.jit(loss).lower(x).compile()(x)) == 1240.0
    assert float(weft.jit(lambda: x.sum())()) == 120.0  # captured
    assert float(weft.jit(lambda a: a.sum())(x.astype(jnp.bfloat16))) == 120.0
    raises(ValueError, "a value of this process alone", lambda: weft.jit(loss, in_shardings=cut)(X))
    raises(ValueError, "incompatible devices", lambda: x + weft.device_put(X, weft.local_devices()[0]))
    advance = weft.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        old, x = x, advance(x)
        assert old.is_deleted()
    assert np.array_equal(part(x), mine + 3)
    other = NamedSharding(weft.make_mesh((2,), ("other",), axis_types=(AxisType.Auto,)), P(None, "other"))
    assert np.array_equal(part(weft.device_put(x, other)), X[:, me : me + 1] + 3)
    called = weft.jit(lambda a: weft.pure_callback(lambda v: v * 2, weft.ShapeDtypeStruct(a.shape, a.dtype), a))(x)
    assert np.array_equal(np.asarray(called.addressable_data(0)), ((X + 3) * 2)[called.addressable_shards[0].index])


def explicit(me: int) -> None:
    mesh = weft.make_mesh((2,), ("x",))
    x = weft.device_put(X, NamedSharding(mesh, P("x")))
    assert str(weft.typeof(x)) == "float32[8@x,2]" and str(weft.typeof(x + 1)) == "float32[8@x,2]"
    assert np.array_equal(np.asarray(weft.jit(lambda a: a.sum(0))(x)), X.sum(0))
    assert np.array_equal(np.asarray(weft.reshard(x, NamedSharding(mesh, P()))), X)


def differ(me: int, mesh: Any) -> None:
    """The processes run different programs."""
    x = weft.device_put(X, NamedSharding(mesh, P("x")))

    def smallest(x: Any) -> Any:
        return x.min()

    def largest(x: Any) -> Any:
        return x.max()

    raises(weft.errors.DistributedError, "largest", lambda: float(weft.jit(largest if me else smallest)(x)))
    raises(weft.errors.DistributedError, "no longer stand at the same place", lambda: float(weft.jit(largest)(x)))


def main() -> None:
    weft.distributed.initialize()
    me = weft.process_index()
    mesh = weft.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    if sys.argv[1:] == ["differ"]:
        differ(me, mesh)
    else:
        devices(me)
        made(me, mesh)
        read(mesh)
        used(me, mesh)
        explicit(me)
    print("as expected", flush=True)


if __name__ == "__main__":
    main()

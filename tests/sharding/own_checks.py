"""What must hold of arrays on virtual devices without looking at JAX; run by ``test_virtual_devices``."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from weft import lax
from weft.sharding import Mesh, NamedSharding, get_abstract_mesh, reshard
from weft.sharding import PartitionSpec as P

MESH = Mesh(np.array(weft.devices()[:4]), ("b",))
X = np.sin(np.arange(32, dtype=np.float32)).reshape(8, 4)


def sharded(x: Any, *axes: Any) -> Any:
    return weft.device_put(x, NamedSharding(MESH, P(*axes)))


def one_buffer_backs_all_devices() -> None:
    x = weft.device_put(X)
    xs = sharded(x, "b")
    assert xs.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    part = xs.addressable_shards[1].data
    assert part.unsafe_buffer_pointer() == x.unsafe_buffer_pointer() + 2 * 4 * 4
    assert sharded(x, None, "b").addressable_shards[3].data.tolist() == X[:, 3:].tolist()


def what_lies_so_already_is_the_same_array() -> None:
    xs = sharded(X, "b")
    assert weft.device_put(xs) is xs and sharded(xs, "b") is xs and weft.device_put(xs, xs.sharding) is xs
    assert sharded(xs, "b", None) is not None and sharded(xs, None, "b") is not xs
    keys = sharded(weft.random.split(weft.random.key(0), 4), "b")
    assert sharded(keys, "b") is keys
    got = weft.device_get(keys)
    assert got.dtype == keys.dtype and len(got.devices()) == 1
    assert (weft.random.key_data(got) == weft.random.key_data(keys)).all()
    on_one = weft.make_array_from_process_local_data(weft.devices()[1], X)
    assert on_one.devices() == {weft.devices()[1]} and on_one.committed


def a_sharded_call_compiles_and_traces_nothing_new() -> None:
    f = weft.jit(lambda v: jnp.tanh(v) * 3 + v)
    x, xs = weft.device_put(X), sharded(X, "b")
    expected = f(x)
    before = f.cache_info()
    found = f(xs)
    after = f.cache_info()
    assert (after.traces, after.kernels_built) == (before.traces, before.kernels_built)
    for _ in range(5):
        found = f(xs)
    assert f.cache_info().hits - after.hits == 5, "warm calls run no Python"
    assert found.sharding == xs.sharding and found.tolist() == expected.tolist()


def results_have_their_own_shardings() -> None:
    f = weft.jit(lambda v: {"same": v * 2, "sum": v.sum(), "turned": v.T, "new": jnp.zeros(3)})
    for _ in range(2):
        out = f(sharded(X, "b"))
        specs = {name: array.sharding.spec for name, array in out.items()}
        assert specs == {"same": P("b"), "sum": P(), "turned": P(None, "b"), "new": P()}


def a_data_parallel_step_gives_the_bits_of_one_device() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 16), (16, 2))]

    def loss(ws: Any, v: Any) -> Any:
        return jnp.mean(jnp.square(jnp.maximum(v @ ws[0], 0) @ ws[1]))

    step = weft.jit(lambda ws, v: [w - 0.1 * g for w, g in zip(ws, weft.grad(loss)(ws, v), strict=True)])
    one = step([weft.device_put(w) for w in weights], weft.device_put(X))
    many = step(sharded(weights), sharded(X, "b"))
    assert [w.tolist() for w in one] == [w.tolist() for w in many]
    assert all(w.sharding.is_fully_replicated for w in many)


def explicit_types_cost_nothing_in_the_compiled_program() -> None:
    mesh = weft.make_mesh((4, 2), ("x", "y"))
    with weft.set_mesh(mesh):
        x = weft.device_put(X, P("x", "y"))
        f = weft.jit(lambda v: reshard(jnp.sin(v), P("y", "x")) + 1)
        out = f(x)
        assert str(weft.typeof(out)) == "float32[8@y,4@x]"
        assert f(x).tolist() == weft.jit(lambda v: jnp.sin(v) + 1)(X).tolist()
        assert "@" not in f.lower(x).as_text("kernel")
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(get_abstract_mesh().empty))
        other.start()
        other.join()
        assert seen == [True], "a mesh is chosen for one thread"
    assert get_abstract_mesh().empty


def arrays_are_copied_donated_and_deleted() -> None:
    xs = sharded(X, "b")
    assert copy.deepcopy(xs).sharding == xs.sharding and jnp.copy(xs).sharding == xs.sharding
    out = weft.jit(lambda v: v + 1, donate_argnums=0)(xs)
    assert xs.is_deleted() and out.sharding.spec == P("b")
    with np.testing.assert_raises(RuntimeError):
        xs.addressable_shards[0].data.tolist()


def operations_at_other_sizes_run_on_every_device() -> None:
    last = weft.devices()[-1]
    with weft.config.context("check", False):  # else every size is compiled
        for n in (24, 28, 32):
            x = np.sin(np.arange(n, dtype=np.float32))
            for given in (weft.device_put(x), sharded(x, "b"), weft.device_put(x, last)):
                total, many = lax.reduce_sum(given, (0,)), lax.exp(lax.add(given, given))
                np.testing.assert_allclose(total, x.sum(), rtol=1e-4, atol=1e-6)
                np.testing.assert_allclose(many, np.exp(2 * x), rtol=1e-6)
                assert many.sharding == given.sharding and total.devices() == given.devices()
            with weft.default_device(last):
                made = jnp.eye(n, n + 1)
            assert made.devices() == {last} and made.tolist() == np.eye(n, n + 1).tolist()


if __name__ == "__main__":
    for check in (
        one_buffer_backs_all_devices, a_sharded_call_compiles_and_traces_nothing_new, results_have_their_own_shardings,
        a_data_parallel_step_gives_the_bits_of_one_device, explicit_types_cost_nothing_in_the_compiled_program,
        arrays_are_copied_donated_and_deleted, operations_at_other_sizes_run_on_every_device,
    ):  # fmt: skip
        check()
        print(check.__name__)

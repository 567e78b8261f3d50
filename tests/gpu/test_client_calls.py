"""What a warm call asks of a GPU's driver, counted, and programs that are replayed as graphs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import driver, native_build

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)


def counts(**expected: float) -> dict[str, float]:
    """Calls of the driver since the last time, beside those that are expected."""
    found = driver.calls()
    return {name: found.get(name, 0) - count for name, count in ({**dict.fromkeys(found, 0), **expected}).items()}


def test_a_call_is_one_launch_and_one_event(device: Any) -> None:
    step = weft.jit(lambda x: x + 1)
    x = weft.device_put(np.zeros(3, np.float32), device)
    x = step(step(x))
    x.block_until_ready()
    driver.calls()
    for _ in range(20):
        x = step(x)
    found = driver.calls()
    assert found.pop("cuCtxGetCurrent") <= 40 and found == {"cuLaunchKernel": 20, "cuEventRecord": 20}
    assert np.array_equal(np.asarray(x), [22, 22, 22])


def _loss(p: Any, x: Any, t: Any) -> Any:
    return ((jnp.tanh(x @ p[0] + p[1]) @ p[2] - t) ** 2).mean()


def train(p: Any, x: Any, t: Any) -> Any:
    return weft.tree.map(lambda a, g: a - 0.01 * g, p, weft.grad(_loss)(p, x, t))


def _data(seed: int) -> tuple[Any, Any, Any]:
    r = np.random.default_rng(seed)

    def values(*shape: int) -> np.ndarray:
        return r.standard_normal(shape).astype(np.float32)

    return [values(8, 16), values(16), values(16, 1)], values(4, 8), values(4, 1)


@pytest.mark.parametrize("donates", [False, True])
def test_small_programs_are_replayed_as_graphs(device: Any, donates: bool) -> None:
    here = weft.jit(train)
    there = weft.jit(lambda p, x, t: train(p, x, t), donate_argnums=0 if donates else ())
    expected = p, x, t = weft.device_put(_data(0), weft.devices("cpu")[0])
    found, x_there, t_there = weft.device_put(_data(0), device)
    for number in range(30):
        expected = p = here(p, x, t)
        driver.calls()
        found = there(found, x_there, t_there)
        asked = driver.calls()
        if number > 5:  # the first calls launch kernels
            assert "cuLaunchKernel" not in asked and asked["cuGraphLaunch"] == 1
        if number > 20:  # addresses come again: there is a graph for each of their sets
            assert "cuGraphCreate" not in asked
            # of donated and new memory there are more sets than graphs are kept
            assert donates or "cuGraphExecKernelNodeSetParams_v2" not in asked
    for mine, other in zip(found, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_graphs_get_new_addresses(device: Any) -> None:
    here, there = weft.jit(train), weft.jit(lambda p, x, t: train(p, x, t))
    kept = []
    for seed in range(20):
        data = _data(seed)
        kept.append((there(*weft.device_put(data, device)), weft.device_put(data, device)))  # memory is not used again
        if seed > 5:
            asked = counts(cuGraphLaunch=1)
            assert asked["cuGraphLaunch"] == 0 and asked["cuGraphExecKernelNodeSetParams_v2"] > 0
        driver.calls()
    for seed, (found, _) in enumerate(kept):
        for mine, other in zip(found, here(*_data(seed)), strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_threads_share_a_program_that_is_a_graph(device: Any) -> None:
    here, there = weft.jit(train), weft.jit(lambda p, x, t: train(p, x, t))
    wrong = list[int]()

    def work(seed: int) -> None:
        p, x, t = weft.device_put(_data(seed), device)
        for _ in range(25):
            p = there(p, x, t)
        q, x, t = weft.device_put(_data(seed), weft.devices("cpu")[0])
        for _ in range(25):
            q = here(q, x, t)
        wrong.extend([seed] if any(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in zip(p, q)) else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_working_memory_is_kept_until_its_graph_is_launched(device: Any) -> None:
    def f(x: Any) -> Any:  # sums of so many rows leave parts of sums in working memory
        return [(x * k).sum(0) for k in range(1, 4)], jnp.cumsum(x[:, 0]), (x + 1).max()

    jitted = weft.jit(f)
    found: Any = None
    other: Any = None
    x = np.random.default_rng(0).standard_normal((700, 3)).astype(np.float32)
    there = weft.device_put(x, device)
    for _ in range(8):
        found = weft.tree.leaves(jitted(there))
        other = jnp.cumsum(there[:, 1] * 2)  # gets memory that was freed
    assert driver.calls()["cuGraphLaunch"] > 0
    for mine, expected in zip(found, weft.tree.leaves(jitted(x)), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(expected).tobytes()
    assert np.asarray(other).tobytes() == np.asarray(jnp.cumsum(jnp.asarray(x)[:, 1] * 2)).tobytes()


def test_a_program_with_steps_of_the_host_is_no_graph(device: Any) -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            x = weft.pure_callback(np.negative, x, jnp.sin(x).sum() + x)
        return x

    x = weft.device_put(np.ones(5, np.float32), device)
    jitted = weft.jit(f)
    driver.calls()
    found = [jitted(x) for _ in range(8)][-1]
    assert "cuGraphLaunch" not in driver.calls()
    assert np.allclose(np.asarray(found), np.asarray(f(jnp.ones(5))))

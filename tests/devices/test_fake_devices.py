"""Whole programs on fake devices, whose memory the host cannot touch: results are those of the CPU, bit for bit.

A step that reads such memory on the host ends the process (``runtime/src/devices/fake_device.cpp``): a test fails
loudly here.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

X = np.random.default_rng(0).standard_normal((17, 33)).astype(np.float32)
V = X[0]
SPD = X @ X.T + 20 * np.eye(17, dtype=np.float32)


@pytest.fixture(scope="module")
def fakes() -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_FAKE_DEVICES", "2")
        return weft.devices("fake")


@pytest.fixture
def device(fakes: list[Any]) -> Any:
    return fakes[0]


def _scan(x: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c + row), (c.sum(), c[:3])), jnp.zeros(33, jnp.float32), x)


def _while(x: Any) -> Any:
    return lax.while_loop(
        lambda c: (c[1] < 60) & (jnp.abs(c[0]).max() < 50), lambda c: (c[0] * 1.1 - x, c[1] + 1), (x, 0)
    )


def _swapped(x: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, c: (c[1], c[0] + 1.0, c[2] @ c[2].T / 40), (x, x * 2, SPD))


def _branches(x: Any) -> Any:
    picks = [lambda v: v.sum(), lambda v: v.max() * 2, lambda v: jnp.sort(v)[3]]
    return [lax.switch(x[0, i].astype(int) % 3, picks, x[i]) for i in range(3)], lax.cond(
        x[0, 0] > 5, jnp.sin, jnp.cos, x
    )


def _nested(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        inner = lax.fori_loop(0, 3, lambda i, t: lax.cond(t.sum() > 0, lambda u: u - row, lambda u: u + row, t), c)
        return inner, inner.sum()

    return lax.scan(outer, x[0], x, reverse=True)


def _starts(x: Any) -> Any:
    i = jnp.argmax(x[:, 0])
    return (
        lax.dynamic_slice(x, (i, i + 1), (3, 4)),
        lax.dynamic_update_slice(x, x[:2, :2] * 0, (i, 100)),
        x[i],
        x.at[i, 2].set(9.0),
    )


def _callback(x: Any) -> Any:
    shape = weft.ShapeDtypeStruct((33,), np.float32)
    seen = weft.pure_callback(lambda a, b: np.asarray(a).sum(0) + np.asarray(b), shape, x * 2, x[1])
    return seen + 1, weft.pure_callback(
        lambda n: np.asarray(n) + 1, weft.ShapeDtypeStruct((), np.int32), x.argmax().astype(np.int32)
    )


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: (jnp.sin(x) * x + 1, x > 0, x.astype(jnp.bfloat16), jnp.where(x > 0, x, 1j)), (X,)),
    "reductions": (lambda x: (x.sum(), x.sum(0), x.max(1), x.argmin(0), jnp.cumsum(x, 1), weft.nn.logsumexp(x)), (X,)),
    "layouts": (
        lambda x: (x.T + 0, x[::-2, ::3], jnp.concatenate([x, x.T[:17]], 1), jnp.pad(x, 3), jnp.roll(x, 5, 1)),
        (X,),
    ),
    "products": (lambda x: (x @ x.T, x @ x[0], jnp.einsum("ij,kj->ik", x[:4], x), (x @ x.T).clip(0) + 1), (X,)),
    "sorts": (
        lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), lax.top_k(x, 5), jnp.unique(x[0], size=40), jnp.median(x)),
        (X,),
    ),
    "gathers": (
        lambda x, i: (x[i], x[:, i], jnp.take_along_axis(x, i[None] * 2, 1), x[i, i]),
        (X, np.array([3, 1, 0, 3, 16])),
    ),
    "scatters": (
        lambda x, i: (x.at[i].add(2), x.at[i, i].set(7), x.at[:, i].max(0.5), jnp.zeros(5).at[i].add(1.0)),
        (X, np.array([3, 1, 0, 3, 16])),
    ),
    "linear algebra": (
        lambda a: (jnp.linalg.solve(a, a[0]), jnp.linalg.cholesky(a), jnp.linalg.det(a), jnp.linalg.eigh(a)[0]),
        (SPD,),
    ),
    "fourier": (lambda x: (jnp.fft.fft(x), jnp.fft.rfft2(x), jnp.fft.irfft(x)), (X,)),
    "convolutions": (
        lambda x: (jnp.convolve(x[0], x[1]), lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME")),
        (X,),
    ),
    "random": (
        lambda k: (weft.random.normal(weft.random.key(k), (50,)), weft.random.permutation(weft.random.key(k), 9)),
        (3,),
    ),
    "scan": (_scan, (X,)),
    "while": (_while, (V,)),
    "swapped state": (_swapped, (V,)),
    "branches": (_branches, (np.abs(X) * 3,)),
    "nested control flow": (_nested, (X,)),
    "dynamic starts": (_starts, (X,)),
    "callbacks": (_callback, (X,)),
    "derivatives": (weft.grad(lambda x: (jnp.tanh(x @ x.T) ** 2).sum() + _scan(x)[0].sum()), (X,)),
    "batches": (weft.vmap(lambda r: jnp.sort(r)[2] + lax.fori_loop(0, 5, lambda i, c: c * 0.5 + r.sum(), 0.0)), (X,)),
    "empty and scalar": (lambda x, s: (x[:0] + s, x[:0].sum(), s * 2, x.sum() + s), (X, np.float32(3))),
    "integers": (
        lambda i: (i // 3, i % 5, jnp.bitwise_xor(i, 7), i.astype(jnp.int8), jnp.bincount(i, length=9)),
        (np.arange(20),),
    ),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_bits_of_the_cpu(name: str, device: Any) -> None:
    function, args = PROGRAMS[name]
    # keys lie where new arrays lie
    check(weft.jit(function), args, device, all_there=name != "random")


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_outside_of_jit_give_the_bits_of_the_cpu(name: str, device: Any) -> None:
    function, args = PROGRAMS[name]
    # what Python returns lies where new arrays lie
    check(function, args, device, all_there=name not in ("random", "callbacks"))


def check(run: Callable[..., Any], args: tuple[Any, ...], device: Any, all_there: bool) -> None:
    args = weft.tree.map(jnp.asarray, args)
    wanted = weft.tree.leaves(run(*args))
    for _ in range(2):  # the first call compiles
        found = weft.tree.leaves(run(*weft.device_put(args, device)))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.device is device or not all_there
            assert one.dtype == other.dtype and one.shape == other.shape
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_arrays_go_there_and_back(fakes: list[Any]) -> None:
    for value in (
        X,
        X[:0],
        np.float64(2.5).astype(np.float32),
        np.arange(5, dtype=np.int8),
        X.astype(np.complex64),
        True,
    ):
        first = weft.device_put(value, fakes[0])
        assert first.device is fakes[0] and first.committed and first.platform() == "fake"
        second = weft.device_put(first, fakes[1])
        for array in (first, second, weft.device_put(second, weft.devices("cpu")[0])):
            assert np.asarray(array).tobytes() == np.asarray(value).tobytes()
            assert array.block_until_ready() is array and array.is_ready()
    keys = weft.device_put(weft.random.split(weft.random.key(1), 3), fakes[0])
    np.testing.assert_array_equal(
        weft.random.key_data(keys), weft.random.key_data(weft.random.split(weft.random.key(1), 3))
    )


def test_devices_say_what_they_are(fakes: list[Any]) -> None:
    assert [str(device) for device in fakes] == ["fake:0", "fake:1"] and weft.devices("fake") == fakes
    assert fakes[0].platform == "fake" and fakes[0].memory_stats() is None
    assert {fakes[0], fakes[1]}.isdisjoint(weft.devices())


def test_two_devices_disagree(fakes: list[Any]) -> None:
    with pytest.raises(ValueError, match="incompatible devices"):
        weft.jit(jnp.add)(weft.device_put(X, fakes[0]), weft.device_put(X, fakes[1]))


def test_scalars_and_host_arrays_are_moved_to_where_the_program_runs(device: Any) -> None:
    f = weft.jit(lambda x, y, s: x * y + s)
    on = weft.device_put(X, device)
    for _ in range(2):
        for y, s in ((X, 2.0), (jnp.asarray(X), np.float32(2)), (X.astype(np.float32)[::1], 2)):
            found = f(on, y, s)
            assert found.device is device
            np.testing.assert_array_equal(found, weft.jit(lambda x, y, s: x * y + s)(X, y, s))


def test_captured_arrays_lie_there_once(device: Any) -> None:
    large, table = jnp.asarray(X), np.arange(33, dtype=np.float32)
    f = weft.jit(lambda x: lax.scan(lambda c, r: (c + large[0] * table, r @ large.T), x[0], x))
    for _ in range(2):
        for found, wanted in zip(f(weft.device_put(X, device)), f(X), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_donated_memory_is_used_again(device: Any) -> None:
    step = weft.jit(lambda x, y: (x + y, y), donate_argnums=0)
    state = weft.device_put(X, device)
    wanted = X
    for _ in range(5):
        given = state
        state, _ = step(state, V)
        wanted = wanted + V
        assert given.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(given)
    np.testing.assert_array_equal(state, wanted)


def test_a_program_that_fails_has_taken_what_was_donated(device: Any) -> None:
    """It may have written there: the array is gone, as on the CPU."""
    run = weft.jit(lambda x: jnp.log(x), donate_argnums=0, checks="nan")
    given = weft.device_put(np.array([1, -2], np.float32), device)
    with pytest.raises(FloatingPointError):
        run(given)
    assert given.is_deleted()


def test_many_calls_in_flight_keep_their_order(device: Any) -> None:
    """Memory that is free for the host is still used by what was asked for before."""
    f = weft.jit(lambda x, i: jnp.sort(x * 1.5 + i)[::-1])
    values = [f(weft.device_put(V, device), i) for i in range(60)]
    wanted = [weft.jit(lambda x, i: jnp.sort(x * 1.5 + i)[::-1])(V, i) for i in range(60)]
    for found, right in zip(values, wanted, strict=True):
        np.testing.assert_array_equal(found, right)
    before = values[0] + 1
    del values
    gc.collect()
    np.testing.assert_array_equal(before, wanted[0] + 1)


def test_guards_look_at_the_devices_memory(device: Any) -> None:
    f = weft.jit(lambda x, i: (jnp.log(x), x[i]))
    on = weft.device_put(V, device)
    with weft.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        weft.jit(lambda x: jnp.log(x) * 2)(on)
    np.testing.assert_array_equal(f(on, 2)[1], V[2])


def test_an_exception_of_a_callback_arrives(device: Any) -> None:
    def fail(_: Any) -> Any:
        raise KeyError("mine")

    f = weft.jit(lambda x: weft.pure_callback(fail, weft.ShapeDtypeStruct((), np.float32), x.sum()) + 1)
    with pytest.raises(Exception, match="mine"):
        np.asarray(f(weft.device_put(X, device)))


def test_more_than_there_is(device: Any) -> None:
    with pytest.raises(MemoryError, match="fake:0"):
        weft.jit(lambda x: jnp.broadcast_to(x[:1, :1], (1 << 15, 1 << 14)) + x[0, 1])(weft.device_put(X, device))


CHILD = """
import ctypes, os, sys
import numpy as np
import weft
import weft.numpy as jnp
on = weft.device_put(np.ones(40, np.float32), weft.devices("fake")[1])
def touch(x):
    print("alive", flush=True)
    ctypes.string_at(on.unsafe_buffer_pointer(), 4)
    print("not protected", flush=True)
{program}
"""


def in_child(program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "WEFT_FAKE_DEVICES": "2", "PYTHONFAULTHANDLER": ""}
    return subprocess.run(
        [sys.executable, "-c", CHILD.replace("{program}", program)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_the_host_cannot_read_there() -> None:
    done = in_child("touch(on)")
    assert done.stdout == "alive\n" and done.returncode == -signal.SIGSEGV


def test_a_forked_child_is_refused() -> None:
    done = in_child(
        """
child = os.fork()
if child == 0:
    try:
        on + 1
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(float(on.sum()))
"""
    )
    assert "forked child" in done.stdout and done.stdout.endswith("40.0\n"), done.stderr


def test_none_without_the_variable() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "WEFT_FAKE_DEVICES"}
    program = "import weft; print(weft.devices()); weft.devices('fake')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "[CpuDevice(id=0)]\n" and "fake" in done.stderr and done.returncode == 1

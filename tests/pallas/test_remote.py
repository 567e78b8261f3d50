"""Copies and signals from device to device, compiled and interpreted, as JAX's interpreter of a TPU runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.lax as lax
import weft.numpy as jnp
from weft.experimental.pallas import tpu

X = np.arange(8, dtype=np.float32)
ROWS = X.reshape(4, 2)
WANTED = {
    "to_the_right": np.roll(X, 2),
    "to_the_left_by_name": np.roll(X, -2),
    "reversed_by_number": ROWS[::-1].ravel(),
    "transposed": ROWS.reshape(2, 2, 2).swapaxes(0, 1).ravel(),
    "along_one_axis": ROWS[[1, 0, 3, 2]].ravel(),
    "gathered_around_a_ring": np.tile(ROWS, (4, 1)),
}


def results(*words: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.pallas.remote_cases", *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env={**os.environ})
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_every_device_gets_what_is_sent_to_it() -> None:
    for found in results("weft", "compiled", "interpreted", "checked"):
        assert found == {name: array.tolist() for name, array in WANTED.items()}


@pytest.mark.oracle
def test_jax_sends_the_same() -> None:
    (found,) = results("jax", "checked")
    for name in WANTED.keys() - {"gathered_around_a_ring"}:  # whose threads race in JAX's interpreter: a slot stays NaN
        assert found[name] == WANTED[name].tolist(), name


def along(kernel: Any) -> Any:
    """A kernel on each of four elements of a named axis."""
    call = pl.pallas_call(kernel, weft.ShapeDtypeStruct((2,), "float32"), scratch_shapes=[tpu.SemaphoreType.DMA] * 2)
    return weft.vmap(call, axis_name="i")(ROWS)


def test_collectives_in_kernels() -> None:
    def kernel(x: Any, o: Any, *_: Any) -> None:
        o[...] = jnp.zeros(2)

        @pl.loop(0, 3)
        def _(k: Any) -> None:
            o[...] += lax.psum(x[...], "i") + k * lax.axis_index("i")

    np.testing.assert_array_equal(along(kernel), 3 * ROWS.sum(0) + 3 * np.arange(4)[:, None])


def test_a_copy_to_oneself_needs_no_mesh() -> None:
    def kernel(x: Any, o: Any, sent: Any, received: Any) -> None:
        tpu.async_remote_copy(x, o, sent, received, device_id=0, device_id_type=pl.DeviceIdType.LOGICAL).wait()

    out = weft.ShapeDtypeStruct((8,), "float32")
    run = pl.pallas_call(kernel, out, scratch_shapes=[tpu.SemaphoreType.DMA] * 2)
    np.testing.assert_array_equal(run(X), X)


def test_a_copy_that_only_some_devices_start_is_refused() -> None:
    mesh = weft.make_mesh((1,), ("d",))

    def kernel(x: Any, o: Any, sent: Any, received: Any) -> None:
        @pl.when(lax.axis_index("d") == 0)
        def _() -> None:
            tpu.async_remote_copy(x, o, sent, received, device_id=(0,)).wait()

    run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((8,), "float32"), scratch_shapes=[tpu.SemaphoreType.DMA] * 2)
    mapped = weft.jit(weft.shard_map(run, mesh=mesh, in_specs=weft.P(), out_specs=weft.P(), check_vma=False))
    with pytest.raises(NotImplementedError, match="a remote copy or signal in a branch that some take"):
        mapped(X)


def test_errors_of_device_ids() -> None:
    mesh = weft.make_mesh((1,), ("d",))

    def sends_to(device: Any) -> Any:
        def kernel(x: Any, o: Any, sent: Any, received: Any) -> None:
            tpu.async_remote_copy(x, o, sent, received, device_id=device).wait()

        run = pl.pallas_call(kernel, weft.ShapeDtypeStruct((8,), "float32"), scratch_shapes=[tpu.SemaphoreType.DMA] * 2)
        return weft.shard_map(run, mesh=mesh, in_specs=weft.P(), out_specs=weft.P(), check_vma=False)(X)

    np.testing.assert_array_equal(sends_to(0), X)
    with pytest.raises(ValueError, match=r"2 coordinates for the 1 axes of devices \['d'\]"):
        sends_to((0, 0))
    with pytest.raises(ValueError, match=r"'e' is no axis of devices around the kernel: \['d'\]"):
        sends_to({"e": 0})

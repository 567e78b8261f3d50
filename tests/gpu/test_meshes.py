"""Programs for a mesh of two GPUs give what they give on two virtual devices of the CPU, and say the same of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.gpu import driver, native_build

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
PROGRAM = """
import sys, warnings
import numpy as np
import weft, weft.numpy as jnp
from weft import lax
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard

A = np.arange(32, dtype=np.float32).reshape(4, 8)
B = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
told = []
warnings.showwarning = lambda message, *_: told.append(str(message))

def show(word, x, wanted):
    found = np.asarray(x)
    assert found.shape == np.shape(wanted) and np.allclose(found, wanted, rtol=1e-5, atol=1e-5), (word, found, wanted)
    for shard in x.addressable_shards:  # the parts are those of the whole, and lie where the sharding says
        assert shard.data.devices() == {shard.device} and np.array_equal(shard.data, found[shard.index]), word
    print(word, getattr(x.sharding, "spec", None), sorted(str(device.id) for device in x.devices()))

def on(devices, kind):
    mesh = weft.make_mesh((2,), ("d",), (kind,), devices=devices)
    cut, whole, across = [NamedSharding(mesh, P(*spec)) for spec in (("d",), (), (None, "d"))]
    x, y = weft.device_put(A, cut), weft.device_put(B, whole)
    show("put", x, A), show("whole", y, B)
    f = weft.jit(lambda x, y: (x @ y, (x * 2).sum(), x + 1, jnp.sin(x).T))
    for _ in range(2):  # the second call is the native table's
        for word, found, wanted in zip("psqt", f(x, y), (A @ B, 2 * A.sum(), A + 1, np.sin(A).T)):
            show(word, found, wanted)
    show("added", x + y[:4], A + B[:4])
    show("sum", jnp.sum(x), A.sum())
    show("moved", reshard(x, across) if kind is AxisType.Explicit else weft.device_put(x, across), A)
    show("scattered", weft.jit(lambda x: x.at[:, 3].add(1.0))(x), A + (np.arange(8) == 3))
    show("loop", weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: x @ (jnp.ones((8, 8)) * 0.1), x))(x),
         A @ np.linalg.matrix_power(np.full((8, 8), 0.1), 3))
    show("said", weft.jit(lambda x: x - 1, in_shardings=cut, out_shardings=whole)(x), A - 1)
    show("given", weft.jit(lambda x: x * 2, donate_argnums=0)(weft.device_put(A, cut)), A * 2)
    parts = weft.shard_map(lambda x: x - lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    wanted = (A.reshape(2, 2, 8) - A.reshape(2, 2, 8).sum(0)).reshape(4, 8)
    show("mapped", parts(x), wanted), show("mapped and compiled", weft.jit(parts)(x), wanted)
    show("gradient", weft.jit(weft.grad(lambda y, x: (x @ y).sum()))(y, x), np.repeat(A.sum(0)[:, None], 8, 1))
    show("made", weft.make_array_from_callback(A.shape, cut, lambda index: A[index]), A)
    second = weft.device_put(x, devices[1])
    assert second.devices() == {devices[1]}
    show("back", weft.device_put(second, cut), A)
    try:
        f(x, weft.device_put(y, devices[1]))
    except ValueError as error:
        print("refused", "incompatible devices" in str(error))
    if kind is AxisType.Auto:
        show("constrained", weft.jit(lambda x: lax.with_sharding_constraint(x * 3, across))(x), A * 3)
        show("row", x[1], A[1])

for kind in (AxisType.Auto, AxisType.Explicit):
    on(weft.devices(PLATFORM), kind)
print("told", len([text for text in told if "run on the first of them" in text]))
"""


def said(platform: str, **settings: Any) -> list[str]:
    found = driver.run(f"PLATFORM = {platform!r}\n{PROGRAM}", devices=2, **settings)
    assert found.returncode == 0, found.stderr
    return re.sub(r"Cpu|Cuda", "", found.stdout).splitlines()


def test_a_mesh_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_NUM_CPU_DEVICES", "2")
    *cpu, cpu_told = said("cpu")
    *gpu, gpu_told = said("cuda")
    assert gpu == cpu and len(gpu) > 40
    assert cpu_told == "told 0" and gpu_told == "told 1"  # that they share no work is said once
    assert said("cuda", peer=0)[:-1] == cpu


def test_devices_of_two_kinds_are_no_mesh() -> None:
    program = """
import weft, numpy as np
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array([weft.devices("cuda")[0], weft.devices("cpu")[0]], object), ("d",))
weft.device_put(np.ones(4), NamedSharding(mesh, P("d")))
"""
    found = driver.run(program)
    assert found.returncode and "arrays lie over several devices of the CPU, or GPUs, only so far" in found.stderr

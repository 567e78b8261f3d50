"""``as_text("sharding")`` and ``explain``: where values lie, and each collective with its line, bytes and reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import numpy as np
import weft
import weft.numpy as jnp
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(weft.devices()).reshape(2, 4), ("x", "y"))


def put(x, *spec):
    return weft.device_put(x, NamedSharding(mesh, P(*spec)))


@weft.jit
def f(w1, w2, x):
    h = jnp.tanh(x @ w1)
    return jnp.mean(h @ w2, 0)


def ones(*shape):
    return np.ones(shape, np.float32)


args = put(ones(8, 16), None, "y"), put(ones(16, 4), "y"), put(ones(16, 8), "x")
print(f.lower(*args).as_text("sharding"))
print("-----")
print(f.lower(*args).compile().as_text("sharding"))
print("-----")
print(f(*args).sharding)
print(weft.inspect.explain(f, *args))
print("-----")
print(weft.jit(lambda x: x + 1).lower(1.0).as_text("sharding"))
print(weft.inspect.explain(weft.jit(lambda x: x + 2), 1.0))
print("-----")


@weft.jit
def loop(ws, x):
    def body(c, w):
        return weft.lax.with_sharding_constraint(c @ w, NamedSharding(mesh, P("x"))), None
    return weft.lax.scan(body, x, ws)[0]


print(loop.lower(put(ones(3, 8, 8), None, None, "y"), put(ones(16, 8), "x")).as_text("sharding"))
"""


def test_reports(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(PROGRAM)
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lowered, compiled, explained, one, loop = done.stdout.split("-----\n")
    assert lowered == compiled
    assert lowered.startswith("mesh: x=2, y=4\n")
    assert "w1  f32[8,16]  P(None, 'y')   as given; each device f32[8,4]" in lowered
    assert "P('x', 'y')   tanh, " in lowered and "model.py:16:" in lowered
    assert "collectives: 2; each device receives 208 bytes" in lowered
    wanted = "psum along 'y' of f32[8,4], 192 bytes: each device along 'y' has dot_general of its part; "
    assert wanted + str(path) + ":17:" in lowered
    assert "psum[axes=('y',)" in lowered.partition("on each device")[2]
    assert "cut among the devices of its mesh:\ncollectives: 2" in explained
    assert "mean" not in one and "one device" in one
    assert "each device receives 576 bytes" in loop and "192 bytes, 3 times: " in loop

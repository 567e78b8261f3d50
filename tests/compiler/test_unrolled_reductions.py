"""Reductions of a few elements across rows, written out: the bits of the tree, at any shape, and what computes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen import on_avx2
from weft import lax
from weft.compiler import inline, unrolled_reductions, unstacked
from weft.loops import reduction_tree
from weft.operations import reductions

CASES = [  # shape, axes
    ((97, 16, 2, 3), (2,)), ((60, 2, 50, 2, 3), (1, 3)), ((130, 2, 70, 2), (1, 3)), ((41, 4, 33, 4), (1, 3)),
    ((3000, 4, 3), (1,)), ((1, 5, 3333, 2), (1, 3)), ((16, 1200, 1), (0,)), ((2, 8000, 2), (0, 2)),
    ((90, 3, 30, 3), (1, 3)), ((900, 5, 7), (1,)), ((2, 3, 2, 1500, 1), (0, 2)), ((7, 2, 90, 2, 31), (1, 3)),
    ((2000, 3, 3), (2,)), ((5001, 4), (1,)), ((90, 70, 3), (2,)), ((2100, 2, 4), (2,)),
]  # fmt: skip
DTYPES = ["float32", "float64", "bfloat16", "int32", "uint8", "bool", "complex64", "float16"]


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "or", "xor"])
def test_bits_of_the_tree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    primitive = getattr(reductions, f"reduce_{name}_p")
    rng = np.random.default_rng(len(name))
    for number, (shape, axes) in enumerate(CASES):
        kind = DTYPES[(number + len(name)) % len(DTYPES)]
        if name in ("or", "xor"):
            kind = ("int32", "bool", "uint8")[number % 3]
        elif kind == "bool" or (kind == "complex64" and name in ("max", "min")):
            kind = "float32"
        x = (rng.integers(-3, 4, shape) * (-0.0 if number % 4 == 0 else 0.37 if kind[0] in "fb" else 1)).astype(
            ml_dtypes.bfloat16 if kind == "bfloat16" else kind
        )
        if x.dtype.kind == "f":
            x.flat[:3] = np.nan, np.inf, -0.0
        with weft.enable_x64(True):
            aval = weft.typeof(jnp.asarray(x))
            params = {"axes": axes, "out_sharding": None} if name == "sum" else {"axes": axes}
            got = np.asarray(weft.jit(lambda x: primitive.bind(x, **params))(x))  # noqa: B023 - called here
        (expected,) = reduction_tree.reduce(primitive.kind, [x], params, [aval])
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=f"{shape} {axes} {kind}")
        if x.dtype.kind == "f":
            with weft.enable_x64(True), monkeypatch.context() as patched:
                patched.setattr(unrolled_reductions, "MANY", 1 << 60)
                weft.clear_caches()
                by_loop = np.asarray(weft.jit(lambda x: primitive.bind(x, **params))(x))  # noqa: B023 - called here
            assert (np.signbit(got) == np.signbit(by_loop))[~np.isnan(got)].all()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "computed": lambda x: jnp.exp(x * 0.5).reshape(-1, 2, 50, 2, 3).mean((1, 3)),
    "read twice": lambda x: (jnp.tanh(x), jnp.tanh(x).reshape(-1, 2, 50, 2, 3).sum((1, 3))),
    "mean and maximum": lambda x: x.reshape(-1, 2, 50, 2, 3).mean((1, 3)) - x.reshape(-1, 2, 50, 2, 3).max((1, 3)),
    "softmax": lambda x: weft.nn.softmax(x.reshape(-1, 4, 3), 1),
    "gradient": weft.grad(lambda x: (x.reshape(-1, 2, 50, 2, 3).mean((1, 3)) ** 2).sum()),
    "matrices by vectors": lambda x: (x[:80, :99].reshape(-1, 3, 3) * x[:80, :99, 0].reshape(-1, 1, 3)).sum(-1),
    "flags": lambda x: ((x > 0).any(-1), (x[:, :, :2] > 0).all(-1), jnp.sum(x > 0.5, -1)),
    "vmap": weft.vmap(lambda x: x.reshape(-1, 2, 3).max(1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((80, 100, 3)).astype(np.float32)
    got = weft.tree.leaves(weft.jit(lambda x: PROGRAMS[name](x))(x))
    monkeypatch.setattr(unrolled_reductions, "MANY", 1 << 60)
    weft.clear_caches()
    plain = weft.tree.leaves(weft.jit(lambda x: PROGRAMS[name](x))(x))
    for a, b in zip(got, plain, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_no_loop_is_left() -> None:
    def loops(f: Any, *shape: int) -> str:
        return weft.jit(f).lower(jnp.zeros(shape)).compile().as_text("loops") or ""

    assert "reduced" not in loops(lambda x: x.reshape(64, 2, 64, 2, 3).mean((1, 3)), 128, 128, 3)
    assert "reduced" in loops(lambda x: x.reshape(8, 2, 8, 2, 3).mean((1, 3)), 16, 16, 3)  # of few elements
    assert "reduced" in loops(lambda x: x.reshape(64, 2, 64, 2, 64).mean((1, 3)), 128, 128, 64)  # rows that fill lanes
    assert "reduced" in loops(lambda x: x.reshape(-1, 3).sum(1), 3000, 30)  # short rows


def test_on_avx2() -> None:
    on_avx2.run_again(__file__)


def _rewritten(f: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The operations that reductions become."""
    closed = inline.inline(weft.make_jaxpr(f)(*[jnp.zeros(shape) for shape in shapes]))
    made = unstacked.unstacked(unrolled_reductions.unrolled_reductions(closed))
    return [eqn.primitive.name for eqn in made.jaxpr.eqns]


def test_operations_of_few_elements() -> None:
    parts = ["slice", "squeeze"] * 3
    assert _rewritten(lambda x: lax.reduce_sum(x, (1,)), (6000, 3, 5)) == [*parts, "add", "add", "add"]
    assert _rewritten(lambda x: lax.reduce_max(x, (1,)), (6000, 3, 5)) == [*parts, "max", "max"]
    assert _rewritten(lambda x: lax.reduce_prod(x, (1,)), (6000, 3, 5)) == [*parts, "mul", "mul"]
    assert _rewritten(lambda x: lax.reduce_sum(x, (1,)), (60, 3, 5)) == ["reduce_sum"]
    assert _rewritten(lambda x: lax.reduce_sum(x[:, None], (1,)), (9,)) == ["broadcast_in_dim", "squeeze", "add"]
    assert _rewritten(lambda x: lax.reduce_max(x[:, None], (1,)), (9,)) == ["broadcast_in_dim", "squeeze"]
    assert "argmax" not in _rewritten(lambda x: lax.argmax(x, 1, np.int32), (6000, 3, 5))


USERS = """
import sys
from tests.compiler.test_unrolled_reductions import _rewritten
from weft import lax
ours = lambda x, axes: lax.reduce_sum(lax.abs(x), axes)
programs = [
    (lambda one: lambda x: one(x, (1,)), [(6000, 3, 5)]),
    (lambda one: lambda x: one(x, (1, 3)), [(90, 2, 50, 2, 3)]),
    (lambda one: lambda x: one(x[:, None], (1,)), [(9,)]),
    (lambda one: lambda x, y: one(jnp.stack([x, y, x * y]), (0,)), [(9,), (9,)]),
]
for program, shapes in programs:
    users, own = (sorted(_rewritten(program(one), *shapes)) for one in (reduce_l1, ours))
    assert "reduce_l1" not in users and users.count("add") == own.count("add") > 0, (users, own)
    xs = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes]
    assert np.asarray(weft.jit(program(reduce_l1))(*xs)).tobytes() == np.asarray(weft.jit(program(ours))(*xs)).tobytes()
"""


@pytest.mark.every_case
def test_reductions_of_users_are_rewritten_too() -> None:
    """That of CONTRIBUTING.md, in a process of its own: it is no operation of weft."""
    root = Path(__file__).resolve().parents[2]
    text = (root / "CONTRIBUTING.md").read_text()
    (program,) = re.findall(r"```python\n((?:(?!```).)*reduce_l1_p = .*?)```", text, re.S)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program + USERS], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_place_of_the_only_element_is_an_array() -> None:
    assert jnp.argmax(3.0).item() == 0 and jnp.argmin(np.float32(2)).item() == 0
    rows = weft.jit(lambda x, y: (jnp.argmax(x, axis=1), y[jnp.argmax(x, axis=1)], jnp.sort(jnp.argmin(x, axis=1))))
    found = rows(np.ones((3, 1), np.float32), np.arange(2.0, 5.0, dtype=np.float32))
    assert [np.asarray(x).tolist() for x in found] == [[0, 0, 0], [2, 2, 2], [0, 0, 0]]


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_integers_of_half_a_byte(dtype: Any) -> None:
    x = (np.arange(18000) % 3).reshape(6000, 3, 1).astype(dtype)
    ufuncs = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "or": np.bitwise_or, "xor": np.bitwise_xor}
    for name, ufunc in ufuncs.items():
        found = weft.jit(getattr(lax, f"reduce_{name}"), static_argnums=1)(x, (1,))
        np.testing.assert_array_equal(np.asarray(found), ufunc.reduce(x.astype(np.int8), axis=1).astype(dtype))

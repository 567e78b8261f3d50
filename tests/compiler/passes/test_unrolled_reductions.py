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
from tests.compiler import ladder
from weft import lax, test_util
from weft.compiler.passes import unrolled_reductions
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


def _rewritten(f: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The operations that reductions become."""
    return ladder.after("unrolled_reductions", f, *[jnp.zeros(shape) for shape in shapes])


def test_operations_of_stacks() -> None:
    assert _rewritten(lambda x, y: jnp.stack([x, y]).max(0), (9,), (9,)) == [
        "broadcast_in_dim", "broadcast_in_dim", "squeeze", "squeeze", "max",
    ]  # fmt: skip
    both = _rewritten(lambda x, y: (lambda s: (jnp.exp(s).sum(0), s[1]))(jnp.stack([x, y])), (9,), (9,))
    assert both.count("exp") == 2 and "concatenate" not in both
    assert "concatenate" in _rewritten(lambda x, y: (lambda s: (s.max(0), s))(jnp.stack([x, y])), (9,), (9,))
    # of two stacks that are combined one is needed: neither is taken apart
    two = lambda x, y: (lambda s, t: ((s * t).max(0), t))(jnp.stack([x, y]), jnp.stack([y, x]))
    assert _rewritten(two, (9,), (9,)).count("concatenate") == 2


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
from tests.compiler.passes.test_unrolled_reductions import _rewritten
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
    root = Path(__file__).resolve().parents[3]
    text = (root / "CONTRIBUTING.md").read_text()
    (program,) = re.findall(r"```python\n((?:(?!```).)*reduce_l1_p = .*?)```", text, re.S)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program + USERS], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_position_of_the_only_element_is_an_array() -> None:
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


STACKS: dict[str, Callable[..., Any]] = {
    "max_of_shifted": lambda x: jnp.stack([x[:-2], x[1:-1], x[2:]]).max(0),
    "sum_along_last": lambda x: jnp.stack([x * i for i in range(1, 6)], -1).sum(-1),
    "logsumexp": lambda x: weft.nn.logsumexp(jnp.stack([x, x + 1, -x]), axis=0),
    "weighted": lambda x: (jnp.stack([x, x + 1]) * lax.broadcasted_iota(x.dtype, (2, x.size), 0)).sum(0),
    "norm_in_the_middle": lambda x: jnp.sqrt((jnp.stack([x[:-1, None], x[1:, None]], 1) ** 2).sum(1)),
    "product_of_seventeen": lambda x: jnp.stack([x / (i + 1) for i in range(17)]).prod(0),
    "of_two_stacks": lambda x: (jnp.stack([x, x + 1]) * jnp.stack([x - 1, x * 2])).min(0),
    "of_scalars": lambda x: jnp.stack([x[0], x[1], x[2]]).sum() + x,
    "position_of_the_largest": lambda x: jnp.argmax(jnp.stack([x, -x, x * 0, x]), 0),
    "position_of_the_smallest": lambda x: jnp.argmin(jnp.stack([x, -x, x * 0, x - 1], -1), -1),
    "position_in_scalars": lambda x: jnp.argmax(jnp.stack([x[0], x[1], x[2]])) + x,
    "also_a_result": lambda x: (lambda s: (s, s.max(0)))(jnp.stack([x, -x])),
    "also_sliced": lambda x: (lambda s: s[1] + s.max(0))(jnp.stack([x, -x])),
    "also_sliced_in_part": lambda x: (lambda s: s[1, :1] + s.max(0))(jnp.stack([x, -x])),
}
UNSTACKED = sorted(STACKS.keys() - {"product_of_seventeen", "also_a_result", "also_sliced_in_part"})


def numbers(n: int, dtype: Any = np.float32) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=n) * 3
    x[::7] = -0.0
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8"])
@pytest.mark.parametrize("name", STACKS)
def test_stacks_have_the_bits_of_eager_operations(name: str, dtype: str) -> None:
    x = jnp.asarray(numbers(300, jnp.dtype(dtype)))
    jitted, eager = weft.jit(STACKS[name])(x), STACKS[name](x)
    for left, right in zip(weft.tree.leaves(jitted), weft.tree.leaves(eager), strict=True):
        assert left.dtype == right.dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


@pytest.mark.parametrize("name", UNSTACKED)
def test_one_kernel_and_no_stack(name: str) -> None:
    text = weft.jit(STACKS[name]).lower(numbers(300)).as_text("kernel")
    assert text.count("kernel ") == 1


def test_nan_and_minus_zero_in_stacks() -> None:
    x = np.float32([-0.0, 0.0, np.nan, 1.0, -np.inf])
    y = np.float32([-0.0, -0.0, 2.0, np.nan, -np.inf])
    total = weft.jit(lambda x, y: jnp.stack([x, y]).sum(0))(x, y)
    assert np.signbit(np.asarray(total))[:2].tolist() == [False, False]
    most = weft.jit(lambda x, y: jnp.stack([x, y]).max(0))(x, y)
    np.testing.assert_array_equal(np.asarray(most), np.maximum(x, y))


def test_derivatives_of_stacks() -> None:
    x = numbers(50, np.float64)
    with weft.enable_x64():
        test_util.check_grads(lambda x: jnp.stack([x[:-1], x[1:] * 2]).max(0), (x,), order=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("axis", [0, -1])
def test_positions_are_the_first_of_equals_and_of_nan(axis: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 3, (5, 200)).astype(np.float32)
    if dtype in ("float32", "bfloat16"):
        rows[rng.random(rows.shape) < 0.1] = np.nan
        rows[rows == 1] *= -0.0
    rows = rows.astype(jnp.dtype(dtype))
    for name in ("argmax", "argmin"):
        position = getattr(jnp, name)
        jitted = weft.jit(lambda *xs, position=position: position(jnp.stack(xs, axis), axis))
        wanted = getattr(np, name)(rows.astype(np.float32), 0)
        np.testing.assert_array_equal(np.asarray(jitted(*rows)), wanted)
        assert "reduced" not in (jitted.lower(*rows).compile().as_text("loops") or "")


def test_positions_in_complex_stacks_are_those_of_the_reduction() -> None:
    x = numbers(50, np.complex64) * np.complex64(1 + 2j)
    f = lambda x: jnp.argmax(jnp.stack([x, -x, x * 1j]), 0)
    np.testing.assert_array_equal(np.asarray(weft.jit(f)(x)), np.asarray(f(x)))


def test_complex_products_have_the_bits_of_the_reduction() -> None:
    x = np.array([complex(np.inf, 1), complex(-0.0, -0.0), 1 + 2j], np.complex64)
    y = np.array([1 + 1j, complex(0, -0.0), complex(np.nan, 1)], np.complex64)
    product = lambda x, y: jnp.stack([x, y]).prod(0)
    eager = np.asarray(product(jnp.asarray(x), jnp.asarray(y)))
    assert np.asarray(weft.jit(product)(x, y)).tobytes() == eager.tobytes()

"""Reductions of columns are cut along the rows if there are enough: the same bits in every way of cutting them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen.running import HOST
from tests.compiler import ladder
from weft.loops import ir
from weft.loops.schedules import parallel

PROGRAMS: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(0),
    "sum and maximum": lambda x: (x.sum(0), x.max(0, initial=0)),
    "position": lambda x: jnp.argmax(x, 0),
    "mean of squares": lambda x: jnp.mean(x * x, 0) + 1,
    "any": lambda x: (x != 0).any(0),
    "of two axes": lambda x: jnp.sum((x.reshape(x.shape[0], 1, -1) - x[:1].reshape(1, 1, -1)) * 3, axis=(0, 1)),
}
SHAPES = [(1000, 4), (513, 1), (256, 3), (257, 70), (1, 5), (4099, 17), (40_001, 2), (300, 2000), (2071, 1100)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rung_agrees(name: str) -> None:
    function = PROGRAMS[name]
    for number, shape in enumerate(SHAPES):
        for dtype in ("float32", ("int8", ml_dtypes.bfloat16, "int32", "float16", "uint16")[number % 5]):
            x = (np.random.default_rng(number).standard_normal(shape) * 9).astype(np.dtype(dtype))
            closed = weft.make_jaxpr(function)(x)
            program = ladder.compiled(closed)
            expected = [out.tobytes() for out in ladder.by_loops(program, [x])]
            for threads in (1, 2):
                with weft.threads(threads):
                    assert [out.tobytes() for out in ladder.by_machine_code(program, [x])] == expected, (shape, dtype)


@pytest.mark.parametrize("shape", [(40, 512), (300, 3000), (1000, 515), (17, 40_000)])
def test_columns_that_threads_share_wait_in_memory_too(shape: tuple[int, int]) -> None:
    """Each thread sums its columns some rows at a time, and finishes them."""
    for name in ("sum", "mean of squares"):
        x = (np.random.default_rng(0).standard_normal(shape) * 9).astype("float32")
        program = ladder.compiled(weft.make_jaxpr(PROGRAMS[name])(x))
        (low,) = [low for low in program.lowered if low is not None]
        outline = parallel.outline(low.nest)
        assert outline.split_at(low.extents)[0] == "vector" and outline.partial_bytes("vector", low.extents) > 0
        expected = [out.tobytes() for out in ladder.by_loops(program, [x])]
        for threads in (1, 2, 3):
            with weft.threads(threads):
                assert [out.tobytes() for out in ladder.by_machine_code(program, [x])] == expected


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(2048, 1024), (2300, 1037), (2049, 260), (2100, 257)])
def test_long_rows_are_read_side_by_side(shape: tuple[int, int], dtype: str) -> None:
    """Sixteen at a time: what they add up to waits in memory, but for the bits nothing changes."""
    with weft.enable_x64(True):
        x = (np.random.default_rng(0).standard_normal(shape) * 9).astype(dtype)
        names = ["sum"] if dtype == "complex64" else ["sum", "sum and maximum", "mean of squares", "position"]
        for name in names:
            closed = weft.make_jaxpr(PROGRAMS[name])(x)
            program = ladder.compiled(closed)
            assert {parallel.split_of(low)[0] for low in program.lowered if low is not None} == {"blocks"}
            expected = [out.tobytes() for out in ladder.by_loops(program, [x])]
            for threads in (1, 2, 3):
                with weft.threads(threads):
                    assert [out.tobytes() for out in ladder.by_machine_code(program, [x])] == expected


def test_no_rows() -> None:
    assert np.asarray(weft.jit(lambda x: x.sum(0))(np.zeros((0, 3), np.float32))).tolist() == [0.0, 0.0, 0.0]


def test_many_rows_are_cut_and_few_rows_of_many_columns_or_of_long_computations_are_not() -> None:
    def exponentials(x: Any) -> Any:
        return jnp.exp(jnp.sin(x)).sum(0)

    for function, shape, split in (
        (PROGRAMS["sum"], (100_000, 4), "blocks"), (PROGRAMS["sum"], (4096, 1024), "blocks"),
        (PROGRAMS["sum"], (1024, 4096), "vector"), (PROGRAMS["sum"], (255, 4), "vector"),
        (exponentials, (4096, 1024), "vector"), (exponentials, (100_000, 4), "blocks"),
    ):  # fmt: skip
        program = ladder.compiled(weft.make_jaxpr(function)(np.zeros(shape, np.float32)))
        (low,) = [low for low in program.lowered if low is not None]
        assert parallel.split_of(low)[0] == split, shape


def test_all_shapes_have_one_machine_code() -> None:
    nests = [
        ladder.compiled(weft.make_jaxpr(lambda x: x.sum(0))(np.zeros(shape, np.float32))).nests() for shape in SHAPES
    ]
    assert all(found == nests[0] for found in nests)


def test_phases_over_few_or_long_columns_are_kernels_of_their_own() -> None:
    def kernels(rows: int, columns: int) -> int:
        x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
        closed = weft.make_jaxpr(lambda x: (x - x.mean(0)) / x.std(0))(x)
        program = ladder.compiled(closed)
        found, expected = ladder.by_machine_code(program, [x])[0], ladder.by_eager(closed, [x])[0]
        np.testing.assert_array_equal(found, expected)
        return ladder.n_kernels(program)

    assert kernels(1000, 8) == kernels(4000, 80) == 1
    assert kernels(50_000, 8) == 3
    assert kernels(4096, 100) == 3


@pytest.mark.parametrize("shape", [(4096, 80), (64, 64, 80)])
def test_long_columns_are_cut_at_every_size_that_is_recalled(shape: tuple[int, ...]) -> None:
    """The last shape has the same pattern of sizes as the first, and shorter columns."""
    axes = tuple(range(len(shape) - 1))
    function = weft.jit(lambda x: (x - x.mean(axes)) / (x.var(axes) + 1))
    for sizes in (shape, tuple(n + 1 for n in shape), tuple(n - 1 for n in shape)):
        x = np.random.default_rng(1).standard_normal(sizes).astype(np.float32)
        y = x.astype(np.float64)
        expected = (y - y.mean(axes)) / (y.var(axes) + 1)
        np.testing.assert_allclose(np.asarray(function(x)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_a_norm_stores_no_array_but_its_results(axis: int) -> None:
    def loss(x: Any, scale: Any, bias: Any, weights: Any) -> Any:
        centered = x - x.mean(axis, keepdims=True)
        return ((centered * weft.lax.rsqrt(x.var(axis, keepdims=True) + 1e-5) * scale + bias) * weights).sum()

    random = np.random.default_rng(0)
    x, weights = (random.standard_normal((600, 500)).astype(np.float32) for _ in range(2))
    row = np.ones((500,), np.float32)
    program = ladder.compiled(weft.make_jaxpr(weft.grad(loss, (0, 1, 2)))(x, row, row, weights))
    stored = [out.target.aval for step in program.kernels.steps if step.kernel for out in step.kernel.outputs]
    assert sum(aval.size == x.size for aval in stored) == 1


def test_what_is_the_same_in_all_columns_is_computed_once() -> None:
    """Tiles of columns walk all rows: each would take the root of every row again."""
    x = np.ones((700, 600), np.float32)
    program = ladder.compiled(weft.make_jaxpr(lambda x: (x * weft.lax.rsqrt(x.sum(1, keepdims=True))).sum(0))(x))
    names = [[s.name for p in nest.phases for s in p.body if isinstance(s, ir.Apply)] for nest in program.nests()]
    assert names == [[], ["mul"]]


def _of_windows(x: Any) -> tuple[Any, ...]:
    """Sums over three axes whose rows do not follow each other in memory: a run of rows ends inside of a block."""
    inner, shifted = x[:, 1:-1, 1:-1], x[:, 2:, :-2]
    return (jnp.sum(inner * shifted, (0, 1, 2)), jnp.max(inner, (0, 1, 2)), jnp.argmax(shifted, 0))


@pytest.mark.parametrize("shape", [(3, 23, 31, 40), (5, 40, 9, 3), (1, 3, 300, 8)])
def test_rows_in_runs(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    program = ladder.compiled(weft.make_jaxpr(_of_windows)(x))
    expected = [out.tobytes() for out in ladder.by_loops(program, [x])]
    copied = weft.jit(lambda a, b: (jnp.sum(a * b, 0), jnp.max(a, 0)))(
        x[:, 1:-1, 1:-1].reshape(-1, shape[-1]), x[:, 2:, :-2].reshape(-1, shape[-1])
    )
    assert [np.asarray(out).tobytes() for out in copied] == expected[:2]
    for threads in (1, 2):
        with weft.threads(threads):
            assert [out.tobytes() for out in ladder.by_machine_code(program, [x])] == expected


BOOLS = """
import numpy as np, weft, weft.numpy as jnp
programs = {
    "any": lambda np, a, b, f: a.any(0),
    "all": lambda np, a, b, f: (a | b).all(0),
    "under a mask": lambda np, a, b, f: ((a & f[:, None]).any(0), (a | ~f[:, None]).all(0)),
    "by a row": lambda np, a, b, f: ((a ^ b[:1]) & ~b).any(0),
    "of two axes": lambda np, a, b, f: (a.reshape(-1, 1, a.shape[1]) & b.reshape(-1, 1, a.shape[1])).any((0, 1)),
    "count": lambda np, a, b, f: (a & f[:, None]).sum(0),
    "of numbers": lambda np, a, b, f: ((a * 3.0 > f[:, None]) & b).any(0),
    "and a step": lambda np, a, b, f: (a & f[:, None]).any(0) & ~b[0],
    "and numbers": lambda np, a, b, f: np.where((a & f[:, None]).any(0) & (b[0] < f[0]), np.float32(3), b[1 % len(b)]),
}
compiled = {name: weft.jit(lambda a, b, f, g=g: g(jnp, a, b, f)) for name, g in programs.items()}
rng = np.random.default_rng(0)
shapes = [(3, 1), (1, 16), (5, 15), (40, 17), (300, 31), (17, 33), (258, 64), (700, 79), (33, 130), (2060, 1037)]
for rows, columns in shapes:
    for likely in (0.5, 1 / rows, 1 - 1 / rows):
        a, b, f = (rng.random(s) < likely for s in ((rows, columns), (rows, columns), (rows,)))
        for name, g in programs.items():
            for found, expected in zip(weft.tree.leaves(compiled[name](a, b, f)), weft.tree.leaves(g(np, a, b, f))):
                np.testing.assert_array_equal(np.asarray(found), expected, f"{name} {rows} {columns}")
none = np.zeros((0, 20), bool)
assert not np.asarray(compiled["any"](none, none, none[:, 0])).any()
assert np.asarray(compiled["all"](none, none, none[:, 0])).all()
print("right")
"""


@pytest.mark.parametrize("target", ["x86-64-v3", ""] if HOST.triple.startswith("x86_64") else [""])
def test_columns_of_bools(target: str) -> None:
    """AVX2 has sixteen of them side by side, and does what is left one by one."""
    environment = {**os.environ, **({"WEFT_TARGET": target} if target else {})}
    ran = subprocess.run([sys.executable, "-c", BOOLS], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "right\n", ran.stderr

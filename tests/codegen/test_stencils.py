"""Neighbourhoods: rows are computed two at a time out of shared loads; the bits, and what is read, stay the same."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.codegen.test_bounds import NAMES
from tests.compiler import ladder
from weft import lax
from weft._base import target
from weft.codegen.compile import text_of


def inside(u: Any, shifts: tuple[int, ...]) -> Any:
    """An array without its border, moved."""
    return u[tuple([slice(1 + shift, n - 1 + shift) for shift, n in zip(shifts, u.shape, strict=True)])]


def cross(u: Any) -> Any:
    """Sums of the neighbours along every axis, less the element itself."""
    units = np.eye(u.ndim, dtype=int)
    return sum(inside(u, tuple(sign * unit)) for unit in units for sign in (1, -1)) - inside(u, (0,) * u.ndim)


def box(u: Any) -> Any:
    """Weighted sums of all neighbours; the weights are whole numbers."""
    around = itertools.product((-1, 0, 1), repeat=u.ndim)
    return sum(inside(u, shifts) * np.asarray(k + 1, u.dtype) for k, shifts in enumerate(around))


def whole_numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(dtype)


SHAPES = [(3, 3), (4, 18), (5, 19), (6, 34), (7, 35), (8, 36), (9, 50), (10, 51), (35, 4), (4, 5, 37), (5, 6, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [cross, box])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bfloat16", "complex64"])
def test_neighbourhoods_equal_numpys(shape: tuple[int, ...], function: Any, dtype: str) -> None:
    u = whole_numbers(shape, "float32").astype(jnp.dtype(dtype))
    np.testing.assert_array_equal(np.asarray(weft.jit(function)(u)), function(u))


@pytest.mark.parametrize("shape", SHAPES)
def test_neighbourhoods_of_64_bits_equal_numpys(shape: tuple[int, ...]) -> None:
    with weft.enable_x64(True):
        for dtype in ("float64", "int64", "complex128"):
            u = whole_numbers(shape, dtype)
            np.testing.assert_array_equal(np.asarray(weft.jit(cross)(u)), cross(u))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(301, 400), (5, 40001)])
def test_steps_on_several_workers_equal_numpys(threads: int, shape: tuple[int, int]) -> None:
    def step(u: Any) -> Any:
        return u.at[1:-1, 1:-1].set(jnp.clip(cross(u), -9, 9))

    u = whole_numbers(shape, "float32")
    expected = u.copy()
    for _ in range(3):
        expected[1:-1, 1:-1] = np.clip(cross(expected), -9, 9)
    with weft.threads(threads):
        found = weft.jit(lambda u: lax.fori_loop(0, 3, lambda _, v: step(v), u))(u)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_values_of_rows_and_results_beside_neighbourhoods() -> None:
    def function(u: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        made = cross(u) * rows[:, None] + columns
        return made, made > 0

    u, rows, columns = (whole_numbers(shape, "float32") for shape in ((8, 40), (6,), (38,)))
    found = weft.jit(function)(u, rows, columns)
    for left, right in zip(found, function(u, rows, columns), strict=True):
        np.testing.assert_array_equal(np.asarray(left), right)


def test_one_code_serves_all_sizes() -> None:
    shapes = (30, 40), (31, 1000), (3, 60)
    programs = [ladder.compiled(weft.make_jaxpr(cross)(np.zeros(shape, np.float32))) for shape in shapes]
    assert len({program.lowered[0].nest for program in programs}) == 1
    assert "in3 f32 [*, 1] at in0[-1, -1]" in programs[0].text("loops")


@pytest.mark.parametrize(
    "function", [lambda u: u[:, 2:] - u[:, :-2], lambda u: u[2:] - u[:-2], lambda u: u[9:] + u[:-9]]
)
def test_rows_that_share_nothing_stay_alone(function: Any) -> None:
    program = ladder.compiled(weft.make_jaxpr(function)(np.zeros((30, 40), np.float32)))
    assert " at in" not in program.text("loops")


@pytest.mark.parametrize("row_by_row", [False, True])
def test_rows_one_by_one_are_fetched_ahead_and_rows_in_pairs_are_not(row_by_row: bool) -> None:
    """The first row that the next one reads, and the next that is written; twice for the vectors of a tile."""
    (low,) = ladder.compiled(weft.make_jaxpr(cross)(np.zeros((30, 40), np.float32))).lowered
    on = target.named("x86-64-v4").replace(row_by_row=row_by_row)
    text = text_of(low.nest.replace(width=on.lanes), on)
    assert text.count("call void @llvm.prefetch") == (4 if row_by_row else 0)
    assert text.count("call void @llvm.masked.store") == (1 if row_by_row else 3)


PROGRAM = """
    import sys
    import numpy as np
    import weft
    from tests.codegen.running import guarded, load
    from tests.compiler import ladder
    from tests.codegen.test_stencils import box, cross
    from weft._base import target

    on = target.named(sys.argv[1]).replace(row_by_row=sys.argv[2] == "rows")
    weft.config.update("enable_x64", True)
    for function in (cross, box):
        for dtype in (np.float32, np.float64, np.int8):
            for shape in ((4, 4), (4, 18), (5, 33), (6, 34), (7, 66), (4, 5, 50)):
                low = ladder.compiled(weft.make_jaxpr(function)(np.zeros(shape, dtype))).lowered[0]
                assert any(operand.near for operand in low.nest.operands), (function, dtype, shape)
                call, _ = load(low.nest.replace(width=on.lanes), on)
                words = np.frombuffer(low.params.block(), np.int64)
                for end in (False, True):
                    u = guarded(np.prod(shape), dtype, end)
                    u[:] = np.arange(u.size) % 7
                    expected = function(u.reshape(shape))
                    out = guarded(expected.size, dtype, end)
                    bases = [(out if b.role == "out" else u).ctypes.data + b.offset * u.itemsize for b in low.operands]
                    call(bases, words, [0, low.extents[0], 0, low.extents[-1], 0, 0])
                    assert (out.reshape(expected.shape) == expected).all(), (function, dtype, shape)
    print("inside")
"""


@pytest.mark.parametrize("way", ["pairs", "rows"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_read_outside_a_neighbourhood(name: str, way: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), name, way], capture_output=True, text=True, check=False
    )
    assert child.stdout == "inside\n", child.stderr[-2000:]

"""Operands that do not walk the flattened axes of a reduction as one: one kernel, no temporary, the tree's bits."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.fusion import groups

DTYPES = ["bool", "int8", "uint16", "int32", "bfloat16", "float16", "float32", "complex64"]
SHAPES = [(3, 5), (17, 33), (33, 17), (1, 17), (17, 1), (0, 4), (4, 0), (300, 40), (2, 4099), (5, 3, 7), (2, 3, 4, 5)]


def _square_sum(x: Any, y: Any) -> Any:
    return jnp.sum((x + y) * y)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "first row": lambda x: _square_sum(x, x[:1]),
    "first column": lambda x: _square_sum(x, x[..., :1]),
    "both": lambda x: jnp.max(x[:1] * x[..., :1] + x) if 0 not in x.shape else jnp.sum(x[:1] + x),
    "transposed": lambda x: jnp.sum(jnp.swapaxes(x, 0, -1) * 2),
    "every other": lambda x: jnp.sum(x[..., ::2] * x[..., ::2]),
    "reversed": lambda x: jnp.sum(x[..., ::-1] * x),
    "an index": lambda x: jnp.sum(x * lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)),
    "an outer index": lambda x: jnp.sum(x * lax.broadcasted_iota(np.int32, x.shape, 0)),
    "two reductions": lambda x: (jnp.sum(x - x[:1]) if x.dtype != bool else jnp.sum(x ^ x[:1]), jnp.sum(x * x)),
}


def _operand(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=shape) * 4
    return values.astype(np.dtype(getattr(weft.numpy, dtype).dtype if dtype == "bfloat16" else dtype))


def _rungs_agree(function: Callable[..., Any], *args: np.ndarray) -> Any:
    """The compiled program, after comparing every rung of the oracle ladder bit for bit."""
    closed = weft.make_jaxpr(function)(*args)
    program = ladder.compiled(closed)
    expected = [np.asarray(out).tobytes() for out in ladder.by_eager(closed, args)]
    for rung in (lambda: ladder.by_machine_code(program, args), lambda: ladder.by_loops(program, args)):
        assert [np.asarray(out).tobytes() for out in rung()] == expected
    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_no_temporary_and_the_bits_of_eager(name: str) -> None:
    for number, shape in enumerate(SHAPES):
        for dtype in (DTYPES[number % 8], DTYPES[(number + 3) % 8], "float32"):
            program = _rungs_agree(PROGRAMS[name], _operand(shape, dtype))
            assert ladder.n_kernels(program) <= 1, (shape, dtype, program.text("kernel"))
            assert program.plan.arena_bytes == 0, (shape, dtype, program.text("plan"))


@pytest.mark.parametrize("shape", [(1_000_003, 1), (1, 1_000_003), (1009, 991), (3, 333_334), (333_334, 3)])
def test_many_elements(shape: tuple[int, int]) -> None:
    x = _operand(shape, "float32")
    program = ladder.compiled(closed := weft.make_jaxpr(PROGRAMS["first row"])(x))
    assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)
    assert ladder.by_machine_code(program, [x])[0].tobytes() == ladder.by_eager(closed, [x])[0].tobytes()


def test_rows_of_a_kept_last_axis() -> None:
    for shape in [(5, 7, 3), (40, 20, 33), (2, 300, 1), (0, 3, 4), (3, 0, 4), (1, 1, 1)]:
        program = _rungs_agree(lambda x: jnp.sum((x - x[:1]) ** 2, axis=(0, 1)), _operand(shape, "float32"))
        assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)


def test_a_kept_first_axis() -> None:
    for shape in [(5, 7, 3), (3, 20, 33), (2, 300, 50), (0, 3, 4), (3, 1, 4)]:
        program = _rungs_agree(lambda x: jnp.sum((x - x[:, :1]) * 2, axis=(1, 2)), _operand(shape, "float32"))
        assert (ladder.n_kernels(program) <= 1, program.plan.arena_bytes) == (True, 0)


def test_a_row_of_means_is_all_that_is_stored() -> None:
    for axis in (0, 1):
        program = _rungs_agree(
            lambda x, axis=axis: ((x - x.mean(axis, keepdims=True)) ** 2).sum(), _operand((33, 50), "float32")
        )
        assert ladder.n_kernels(program) == 2
        assert program.plan.arena_bytes <= 256, program.text("plan")


def test_normalised_by_the_whole_and_scaled_by_rows() -> None:
    """Two phases over the flattened axes, a broadcast operand in the second, a stored result."""

    def scaled(x: Any, w: Any) -> Any:
        return (x - jnp.max(x)) / jnp.sum(jnp.abs(x - jnp.max(x))) * w

    for shape in [(17, 33), (3, 5), (40, 300)]:
        x = _operand(shape, "float32")
        program = _rungs_agree(scaled, x, x[0])
        assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)


def test_long_rows_stay_parallel() -> None:
    x = np.random.default_rng(0).standard_normal((2, groups.LONG_ROW // 2)).astype(np.float32)
    closed = weft.make_jaxpr(lambda x: jnp.sum((x - x[0]) ** 2))(x)
    program = ladder.compiled(closed)
    assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)
    assert all(nest.split for nest in program.nests())
    assert ladder.by_machine_code(program, [x])[0].tobytes() == ladder.by_eager(closed, [x])[0].tobytes()


def test_other_extents_compile_nothing() -> None:
    nests = [
        ladder.compiled(weft.make_jaxpr(PROGRAMS["first row"])(np.zeros(shape, np.float32))).nests()
        for shape in [(3, 5), (17, 33), (7, 7), (300, 2)]
    ]
    assert all(found == nests[0] for found in nests)


BOUNDS = """
    import ctypes, mmap
    import numpy as np
    import weft, weft.numpy as jnp
    from tests.codegen.test_flattened_runs import PROGRAMS

    libc, kept = ctypes.CDLL(None, use_errno=True), []

    def guarded(values, at_end):
        '''The same values, ending before a page that must not be touched or beginning behind one.'''
        pages = -(-values.nbytes // mmap.PAGESIZE)
        memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        kept.append(memory)
        for page in (0, pages + 1):
            assert libc.mprotect(ctypes.c_void_p(base + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
        start = (pages + 1) * mmap.PAGESIZE - values.nbytes if at_end else mmap.PAGESIZE
        array = np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)
        array[...] = values
        x = jnp.from_dlpack(array)
        assert x.unsafe_buffer_pointer() == array.ctypes.data
        return x

    for shape in [(8, 2, 7), (300, 40), (2, 4112), (16, 33)]:
        for dtype in (np.float32, np.complex64):
            values = np.ones(shape, dtype)
            assert values.nbytes % 64 == 0
            for program in PROGRAMS.values():
                function = weft.jit(program)
                for at_end in (True, False):
                    x = guarded(values, at_end)
                    [np.asarray(out) for out in weft.tree.leaves(function(x))]
    print("inside")
"""


def test_no_element_past_the_last_row_is_read() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(BOUNDS)], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "inside", f"{done.returncode}: {done.stderr[-3000:]}"

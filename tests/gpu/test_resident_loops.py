"""Loops of small kernels are one kernel of one block, with the CPU's bits, where all of the body has a form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import native_build, prediction
from tests.gpu.beside_the_cpu import check
from tests.gpu.ptx_machine import Buffer, Module
from weft import lax
from weft.codegen import llvm
from weft.codegen.gpu import kernel
from weft.compiler.plans.steps import Control, Launched
from weft.loops.gpu import resident
from weft.loops.gpu.resident import Resident

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def rnn(w: Any, u: Any, b: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u + b)
        return h, (h.sum(), h[:3])

    return lax.scan(step, h, xs, reverse=True)


def heat(u: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * inner)

    return lax.fori_loop(0, 3, step, u)


def jacobi(a: Any, b: Any, x: Any) -> Any:
    def step(state: Any) -> Any:
        x, _, count = state
        y = (b - a @ x) * 0.1 + x
        return y, jnp.abs(y - x).max(), count + 1

    return lax.while_loop(lambda s: (s[1] > 1e-3) & (s[2] < 9), step, (x, jnp.float32(1), 0))


def branches(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        several = [jnp.sin, lambda x: x @ (x[:, None] * x) * 0.1 + x, lambda x: x, lambda x: x[::-1] - 1]
        return lax.switch(jnp.int32(x.sum() * 10) % 6 - 1, several, x)

    return lax.fori_loop(0, 6, step, x)


def exchanged(x: Any, y: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, s: (s[1], s[2], jnp.cumsum(s[0])[::-1] * 0.01 + s[1]), (x, y, x + y))


def slices(a: Any, x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        at = jnp.int32(jnp.argmax(x)) * 3 - 20
        y = a @ lax.dynamic_slice(x, (at,), (40,))
        return lax.dynamic_update_slice(x, y, (90 - 2 * at,)) * 0.5

    return lax.fori_loop(0, 4, step, x)


def within(a: Any, x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        x = lax.fori_loop(0, i + 1, lambda j, y: jnp.cos(a @ y) + j, x)
        return lax.scan(lambda c, row: (c + row * 0.1, c), x, a)[0]

    return lax.fori_loop(0, 3, outer, x)


def indexed(x: Any, i: Any) -> Any:
    return lax.fori_loop(0, 3, lambda k, x: x[i] * 1.01 + x.at[i].add(x * 0.1), x)


def narrow(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, x: (x @ x.T @ x + x[::-1]).astype(x.dtype), x)


def weights(matrices: Any, x: Any) -> Any:
    """Products from both sides, with matrices that threads may hold."""

    def step(i: Any, x: Any) -> Any:
        for k, a in enumerate(matrices):
            x = jnp.tanh(a @ x) if k % 2 else jnp.tanh(x @ a) + i.astype(x.dtype)
        return x

    return lax.fori_loop(0, 4, step, x)


def square(n: int, m: int, dtype: str = "float32") -> Any:
    """Two matrices for vectors of n elements, and a vector."""
    return [jnp.asarray(f32(*shape)).astype(dtype) for shape in ((n, m), (n, m))], jnp.asarray(f32(n)).astype(dtype)


def rows(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        return jnp.cumsum(h)[::-1] * 0.1 + x[0] * x[1], (x[0][:3], h)

    return lax.scan(step, xs[0][0], xs, reverse=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan": (rnn, (f32(64, 64), f32(8, 64), f32(64), f32(64), f32(5, 8))),
    "stencil": (heat, (f32(40, 41),)),
    "while": (jacobi, (f32(40, 40), f32(40), f32(40))),
    "branches": (branches, (f32(40),)),
    "exchanged": (exchanged, (f32(700), f32(700))),
    "in global memory": (exchanged, (f32(9000), f32(9000))),
    "starts of slices": (slices, (f32(40, 40), f32(150))),
    "loops in a loop": (within, (f32(40, 40), f32(40))),
    "indices": (indexed, (f32(50), RNG.integers(0, 50, 50).astype(np.int32))),
    "integers": (narrow, ((f32(20, 30) * 10).astype(np.int8),)),
    "columns and rows": (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 0.5 + x.sum(0), x), (f32(600, 3),)),
    "held matrices": (weights, square(64, 64)),
    "held parts of matrices": (weights, square(61, 43)),
    "many held terms": (weights, square(100, 100)),
    "held halves": (weights, square(48, 64, "bfloat16")),
    "rows ahead": (rows, ((f32(5, 500), f32(5, 500)),)),
    "rows too long to be ahead": (rows, ((f32(3, 1500), f32(3, 1500)),)),
    "no steps": (lambda a, x: lax.fori_loop(0, 0, lambda i, x: a @ x, x), (f32(40, 40), f32(40))),
}


def loops_of(compiled: Any) -> list[Any]:
    """The loops of a program that are one kernel of one block."""
    entries = compiled._program().plan.instructions
    return [entry for entry in entries if isinstance(entry, Launched) and isinstance(entry.nest, Resident)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_is_one_kernel(device: Any, name: str) -> None:
    compiled = check(device, *PROGRAMS[name])
    kinds = [type(entry) for entry in compiled._program().plan.instructions]
    assert Control not in kinds
    assert name == "no steps" or len(loops_of(compiled)) == 1


def test_products_of_doubles(device: Any) -> None:
    with weft.enable_x64(True):
        matrices, x = ([f32(43, 43).astype(np.float64)] * 2, f32(43).astype(np.float64))
        (loop,) = loops_of(check(device, weights, (matrices, x)))
    assert [call.held for call in resident.calls(loop.nest.steps) if call.held is not None]


@pytest.mark.parametrize("name, terms", [("held matrices", [16, 16]), ("held parts of matrices", [16, 16])])
def test_threads_hold_matrices(device: Any, name: str, terms: list[int]) -> None:
    function, args = PROGRAMS[name]
    with weft.default_device(device):
        (loop,) = loops_of(weft.jit(function).lower(*args).compile())
    found = [call.held for call in resident.calls(loop.nest.steps) if call.held is not None]
    assert [held.terms for held in found] == terms and [held.operand for held in found] == [1, 0]


def test_other_sizes_have_the_same_kernel(device: Any) -> None:
    def record(n: int, steps: int) -> Any:
        shapes = [weft.ShapeDtypeStruct(s, np.float32) for s in ((n, n), (8, n), (n,), (n,), (steps, 8))]
        with weft.default_device(device):
            (loop,) = loops_of(weft.jit(rnn).lower(*shapes).compile())
        return loop.nest

    assert record(61, 10) == record(59, 1000) != record(64, 10)  # which has no part of 16 terms


def cycles(loop: Any, device: Any) -> float:
    """Of a launch on the machine; operands are zeros."""
    module = Module(llvm.emit_assembly(kernel.text_of(loop.nest, device.grid), device.grid))
    operands = [Buffer(1 << 16) for _ in loop.operands]
    for operand in operands:
        operand.write(np.zeros(1 << 16, np.uint8))
    words = np.frombuffer(loop.params, np.int64).tolist()
    ((_, _, _, _, threads, shared),) = loop.grids
    counts = module.launch("loop", 1, threads, *operands, 0, *words, 0, 0, shared=shared, counted=2, checks=0)
    return counts.block_cycles


def test_a_step_of_a_recurrent_network_takes_a_third_of_a_microsecond(device: Any) -> None:
    def scan(w: Any, h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)

    def taken(steps: int) -> float:
        shapes = [weft.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 64), (64,), (steps, 64))]
        with weft.default_device(device):
            (loop,) = loops_of(weft.jit(scan).lower(*shapes).compile())
        return cycles(loop, device)

    assert (taken(30) - taken(10)) / 20 / prediction.CLOCK < 0.3


def test_the_state_of_a_block_is_in_its_memory(device: Any) -> None:
    def near(n: int) -> bool:
        with weft.default_device(device):
            (loop,) = loops_of(weft.jit(exchanged).lower(*[weft.ShapeDtypeStruct((n,), np.float32)] * 2).compile())
        return loop.nest.near

    assert near(700) and not near(9000)


def test_what_one_block_should_not_do_stays_a_loop_of_launches(device: Any) -> None:
    def times(a: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, a: jnp.tanh(a @ a), a)

    def told(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            weft.debug.callback(lambda n: None, i)
            return x * 2

        return lax.fori_loop(0, 2, step, x)

    large: list[tuple[Callable[..., Any], tuple[int, ...]]]

    def copied(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, s: (s[1], s[0].at[i].set(s[1][3])), (x, x + 1))

    large = [(copied, (400, 400)), (times, (600, 600)), (heat, (400, 400)), (told, (40,))]
    for function, shape in large:
        with weft.default_device(device):
            compiled = weft.jit(function).lower(weft.ShapeDtypeStruct(shape, np.float32)).compile()
        assert not loops_of(compiled)
        assert any(isinstance(entry, Control) for entry in compiled._program().plan.instructions)

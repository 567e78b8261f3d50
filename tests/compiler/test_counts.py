"""Performance facts as counts: kernels, temporaries, machine code per program and per shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import compiler
from weft.compiler.fusion import groups
from weft.compiler.plans.instructions import Gemm


def selu(x: Any) -> Any:
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


def sum_square_sine(x: Any) -> Any:
    return jnp.sum(x**2 + jnp.sin(x))


def sincos_sum(x: Any) -> Any:
    y, z = jnp.sin(x), jnp.cos(x)
    return jnp.sum(y * z + y**2)


def softmax(x: Any, axis: int = -1) -> Any:
    e = jnp.exp(x - jnp.max(x, axis=axis, keepdims=True))
    return e / jnp.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Any) -> Any:
    shifted = x - jnp.max(x, axis=-1, keepdims=True)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))


def layernorm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def two_reductions(x: Any) -> Any:
    return x.sum(), x.max()


def siblings(x: Any) -> Any:
    return x + 1, x * 2, jnp.sin(x)


ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "selu": (selu, (1003,)),
    "selu of rank 5": (selu, (2, 3, 4, 5, 6)),
    "sum of squares and sines": (sum_square_sine, (1003,)),
    "of rank 3": (sum_square_sine, (3, 5, 7)),
    "sines and cosines": (sincos_sum, (1003,)),
    "softmax": (softmax, (33, 50)),
    "softmax along the first axis": (lambda x: softmax(x, 0), (33, 50)),
    "softmax of a vector": (softmax, (1003,)),
    "softmax of rank 4": (softmax, (2, 3, 4, 50)),
    "log_softmax": (log_softmax, (33, 50)),
    "layernorm": (layernorm, (33, 50)),
    "variance": (lambda x: jnp.var(x, axis=-1), (33, 50)),
    "variance of all": (jnp.var, (33, 50)),
    "standard deviation along the first axis": (lambda x: jnp.std(x, axis=0), (33, 50)),
    "two reductions": (two_reductions, (1003,)),
    "two reductions of rows": (lambda x: (x.sum(1), x.max(1), x.argmax(1)), (33, 50)),
    "siblings": (siblings, (1003,)),
    "transposed": (lambda x: x.T + 1, (33, 50)),
    "sliced": (lambda x: x[1:, ::2] * 2 + x[:-1, ::2], (33, 50)),
    "reshaped between": (lambda x: jnp.exp(jnp.sin(x).reshape(-1)), (33, 50)),
    # of another structure when an extent is 1: the slice is then the whole
    "broadcast": (lambda x: jnp.sin(x[:, :1]) + x[:1] * 2, (33, 50)),
}


def program_of(function: Callable[..., Any], *args: Any) -> compiler.Program:
    return ladder.compiled(weft.make_jaxpr(function)(*args))


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_and_no_temporary(name: str) -> None:
    function, shape = ONE_KERNEL[name]
    program = program_of(function, np.zeros(shape, np.float32))
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    assert program.plan.arena_bytes == 0, program.text("plan")


@pytest.mark.parametrize("name", [name for name in ONE_KERNEL if name != "broadcast"])
def test_another_shape_compiles_nothing(name: str) -> None:
    function, shape = ONE_KERNEL[name]
    program = program_of(function, np.zeros(shape, np.float32))
    first = program.nests()
    for change in (lambda n: n + 3, lambda n: 1, lambda n: 2 * n):
        for dim in range(len(shape)):
            other = (*shape[:dim], change(shape[dim]), *shape[dim + 1 :])
            assert program_of(function, np.zeros(other, np.float32)).nests() == first, other


def test_an_empty_batch_compiles_nothing() -> None:
    before = compiler.stats()["kernels_built"]
    program_of(layernorm, np.zeros((0, 50), np.float32))
    program_of(softmax, np.zeros((0, 50), np.float32))
    assert compiler.stats()["kernels_built"] == before


def test_chain_of_forty_over_broadcast_inputs() -> None:
    random = np.random.default_rng(0)
    args = [np.ones(shape, np.float32) for shape in ((8, 1), (1, 9), (8, 9), (9,))]

    def chain(*xs: Any) -> Any:
        value = xs[2]
        for _ in range(40):
            pick = random.integers(6)
            other = xs[random.integers(4)]
            value = (value + other, value * other, jnp.sin(value), jnp.maximum(value, other), -value, value - other)[
                pick
            ]
        return value

    program = program_of(chain, *args)
    assert ladder.n_kernels(program) == 1
    assert program.plan.arena_bytes == 0


def test_independent_siblings_share_machine_code() -> None:
    args = [np.ones(n, np.float32) for n in (3, 4, 5)]
    program = program_of(lambda *xs: [x + 1 for x in xs], *args)
    assert ladder.n_kernels(program) == 3
    assert len(program.nests()) == 1


def test_an_equal_computation_of_a_general_reduction_compiles_once() -> None:
    x = np.ones((5, 7), np.float32)

    def reduced(x: Any, factor: float) -> Any:
        return weft.lax.reduce(x, np.float32(0), lambda a, b: a + factor * b, (1,))

    first = program_of(lambda x: reduced(x, 2.0), x)
    before = compiler.stats()
    again = program_of(lambda x: reduced(x, 2.0), x)
    assert compiler.stats()["kernels_built"] == before["kernels_built"]
    assert again.nests() == first.nests()
    other = program_of(lambda x: reduced(x, 3.0), x)
    assert other.nests() != first.nests()


def test_literals_are_parameters() -> None:
    x = np.ones(5, np.float32)
    nests = [program_of(lambda x, c=c: x * c + c, x).nests() for c in (2.5, 3.5, 7.25)]
    assert nests[0] == nests[1] == nests[2]


def test_a_quotient_and_its_remainder_share_the_divisor() -> None:
    x = np.arange(5, dtype=np.int32)
    nests = [program_of(lambda x, c=c: jnp.divmod(x, c), x).nests() for c in (7, 1000, -7, -1000)]
    assert nests[0] == nests[1] and nests[2] == nests[3]
    assert [scalar.name for scalar in nests[0][0].scalars] == ["int32"]


def test_a_product_takes_transposes_as_flags() -> None:
    x = np.ones((5, 7), np.float32)
    program = program_of(lambda x: x.T @ x, x)
    assert ladder.n_kernels(program) == 0
    assert [type(entry) for entry in program.plan.instructions] == [Gemm]


def test_compile_time_is_linear() -> None:
    def chain(x: Any, n: int) -> Any:
        for i in range(n):
            x = x * 2 + i if i % 50 else jnp.cumsum(x)
        return x

    for n in (100, 400):
        program = program_of(lambda x, n=n: chain(x, n), np.ones(7, np.float32))
        assert ladder.n_kernels(program) <= n // 10 + 2


@pytest.mark.parametrize("function", [jnp.var, two_reductions])
def test_points_are_one_kernel_too(function: Callable[..., Any]) -> None:
    program = program_of(function, np.float32(2))
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    expected = ladder.by_reference(weft.make_jaxpr(function)(np.float32(2)), [np.float32(2)])
    for rung in (ladder.by_machine_code, ladder.by_loops):
        np.testing.assert_array_equal(rung(program, [np.float32(2)]), expected)


def test_sizes_beyond_any_machine() -> None:
    with pytest.raises(MemoryError, match=r"f32\[1099511627776,1099511627776\]"):
        jnp.zeros((1 << 40, 1 << 40))


def test_a_row_too_long_for_one_worker_is_several_kernels() -> None:
    x = np.random.default_rng(0).standard_normal(groups.LONG_ROW).astype(np.float32)
    for function, count in ((softmax, 3), (jnp.var, 2), (lambda x: x / jnp.sum(x), 2), (two_reductions, 1)):
        program = program_of(function, x)
        assert ladder.n_kernels(program) == count, program.text("kernel")
        assert all(nest.split for nest in program.nests() if any(phase.reductions for phase in nest.phases))
        closed = weft.make_jaxpr(function)(x)
        for out, expected in zip(ladder.by_machine_code(program, [x]), ladder.by_eager(closed, [x]), strict=True):
            np.testing.assert_array_equal(out, expected)


def test_the_sum_and_extrema_of_a_long_row_are_one_kernel() -> None:
    x = np.ones(groups.LONG_ROW, np.float32)
    program = program_of(lambda x: jnp.sum(x) / 3 + jnp.max(x) - jnp.min(x), x)
    assert ladder.n_kernels(program) == 1, program.text("kernel")

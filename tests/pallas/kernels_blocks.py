"""Kernels for every kind of block, grid, tree of operands, and way to begin an output."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.pallas.table import floats, ints, kernel, normal

NAN, LEAST = np.float32(np.nan), np.iinfo(np.int32).min


@kernel(floats(4, 6), floats(4, 6, seed=1), expect=lambda x, y: x * 2 + y)
def elementwise(m: Any, call: Any) -> Any:
    def body(x, y, o):
        o[...] = x[...] * 2 + y[...]

    return call(body, m.out((4, 6)))


@kernel(floats(8), expect=lambda x: x + 1)
def elementwise_blocks(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + 1

    spec = m.block((2,), lambda i: i)
    return call(body, m.out((8,)), grid=4, in_specs=[spec], out_specs=spec)


@kernel(floats(6, 8), expect=lambda x: x.T)
def transposed_blocks(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...].T

    return call(
        body, m.out((8, 6)), grid=(3, 2), in_specs=[m.block((2, 4), lambda i, j: (i, j))],
        out_specs=m.block((4, 2), lambda i, j: (j, i)),
    )  # fmt: skip


@kernel(np.float32(3), expect=lambda x: x * x)
def scalars(m: Any, call: Any) -> Any:
    def body(x, o):
        o[()] = x[()] * x[()]

    return call(body, m.out(()))


@kernel(expect=lambda: np.arange(24).reshape(2, 3, 4) * 10 + 1)
def program_ids_3d(m: Any, call: Any) -> Any:
    def body(o):
        i, j, k = (m.pl.program_id(axis) for axis in range(3))
        o[...] = 10 * ((i * m.pl.num_programs(1) + j) * m.pl.num_programs(2) + k) + 1

    spec = m.block((None, None, None), lambda i, j, k: (i, j, k))
    return call(body, m.out((2, 3, 4), "int32"), grid=(2, 3, 4), out_specs=spec)


@kernel(floats(5, 4), expect=lambda x: x * 3)
def squeezed_rows(m: Any, call: Any) -> Any:
    def body(x, o):
        assert x.shape == (4,)
        o[...] = x[...] * 3

    spec = m.block((None, 4), lambda i: (i, 0))
    return call(body, m.out((5, 4)), grid=(5,), in_specs=[spec], out_specs=spec)


@kernel(floats(3, 4), expect=lambda x: x.sum(0) + 0 * x[0])
def squeezed_by_name(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] += x[...]

    def start(x, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = m.np.zeros_like(o)

        body(x, o)

    return call(
        start, m.out((4,)), grid=(3,), in_specs=[m.block((m.pl.squeezed, m.pl.Blocked(4)), lambda i: (i, 0))],
        out_specs=m.block((4,), lambda i: (0,)),
    )  # fmt: skip


@kernel(floats(7), expect=lambda x: x + 1)
def ragged_edge(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + 1

    spec = m.block((3,), lambda i: i)
    return call(body, m.out((7,)), grid=(3,), in_specs=[spec], out_specs=spec)


@kernel(floats(3), expect=lambda x: np.array([*x, NAN, NAN, NAN]))
def edge_is_nan(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    return call(body, m.out((6,)), grid=(1,), in_specs=[m.block((6,), lambda i: 0)])


@kernel(ints(3), expect=lambda x: np.array([*x, LEAST, LEAST, LEAST]))
def edge_is_least(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    return call(body, m.out((6,), "int32"), grid=(1,), in_specs=[m.block((6,), lambda i: 0)])


@kernel(expect=lambda: np.array([NAN, NAN, 1, 1, NAN, NAN]))
def unwritten_is_nan(m: Any, call: Any) -> Any:
    def body(o):
        o[...] = m.np.ones_like(o)

    return call(body, m.out((6,)), grid=(1,), out_specs=m.block((2,), lambda i: 1))


@kernel(floats(10), expect=lambda x: x[:-2] + x[1:-1] + x[2:])
def halo_stencil(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[0:4] + x[1:5] + x[2:6]

    return call(
        body, m.out((8,)), grid=(2,), in_specs=[m.block((m.pl.Element(6),), lambda i: i * 4)],
        out_specs=m.block((4,), lambda i: i),
    )  # fmt: skip


@kernel(floats(3), expect=lambda x: np.array([NAN, *x, NAN, NAN]))
def element_padding(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    return call(body, m.out((6,)), grid=(1,), in_specs=[m.block((m.pl.Element(6, (1, 2)),), lambda i: 0)])


@kernel(floats(8), expect=lambda x: np.concatenate([x[4:], x[6:], x[6:]]))
def index_beyond_the_end(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    return call(
        body, m.out((8,)), grid=(4,), in_specs=[m.block((2,), lambda i: i + 2)], out_specs=m.block((2,), lambda i: i)
    )


@kernel(floats(6), expect=lambda x: x[::-1].reshape(3, 2)[:, ::-1].reshape(6))
def blocks_in_reverse(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    last = m.block((2,), lambda i: 2 - i)
    return call(body, m.out((6,)), grid=(3,), in_specs=[last], out_specs=m.block((2,), lambda i: i))


@kernel({"a": floats(4), "b": (floats(4, seed=2), ints(4))}, expect=lambda t: {"s": t["a"] + t["b"][0], "n": t["b"][1]})
def trees(m: Any, call: Any) -> Any:
    def body(t, o):
        o["s"][...] = t["a"][...] + t["b"][0][...]
        o["n"][...] = t["b"][1][...]

    spec = m.block((2,), lambda i: i)
    return call(
        body, {"s": m.out((4,)), "n": m.out((4,), "int32")}, grid=2, in_specs=[{"a": spec, "b": (spec, spec)}],
        out_specs={"s": spec, "n": spec},
    )  # fmt: skip


@kernel(floats(4), expect=lambda x: (x.max(keepdims=True), x.min(keepdims=True)))
def two_results(m: Any, call: Any) -> Any:
    def body(x, high, low):
        high[0] = m.np.max(x[...])
        low[0] = m.np.min(x[...])

    return call(body, [m.out((1,)), m.out((1,))])


@kernel(floats(4), expect=lambda x: x + 6)
def alias(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = o[...] + 2

    return call(body, m.out((4,)), grid=(3,), input_output_aliases={0: 0})


@kernel(floats(4), expect=lambda x: np.array([x[0], x[1], -1, -1], np.float32))
def alias_keeps_what_is_not_written(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = -m.np.ones_like(o)

    return call(
        body, m.out((4,)), grid=(1,), in_specs=[m.block((2,), lambda i: 0)], out_specs=m.block((2,), lambda i: 1),
        input_output_aliases={0: 0},
    )  # fmt: skip


@kernel(floats(4), expect=lambda x: x + 3)
def input_written_to(m: Any, call: Any) -> Any:
    def body(x, o):
        x[...] = x[...] + 1
        o[...] = x[...]

    return call(body, m.out((4,)), grid=(3,))


@kernel(floats(0, 3), expect=lambda x: x, in_jax=False)
def no_elements(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + 1

    return call(body, m.out((0, 3)))


@kernel(floats(4), expect=lambda x: np.full(4, NAN))
def no_cells(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

    return call(body, m.out((4,)), grid=(0,))


@kernel(floats(4), expect=lambda x: ())
def no_results(m: Any, call: Any) -> Any:
    return call(lambda x: None, ())


@kernel(floats(3), np.int32(2), expect=lambda x, n: x * n)
def scalar_operand(m: Any, call: Any) -> Any:
    def body(x, n, o):
        o[...] = x[...] * n[...].astype("float32")

    return call(body, m.out((3,)), in_specs=[m.block(None), m.block(memory_space=m.tpu.SMEM)])


@kernel(ints(2, 6), expect=lambda x: x + np.arange(2, dtype=np.int32)[:, None] * 10 + np.arange(6, dtype=np.int32) // 3)
def named_grid(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + 10 * m.pl.program_id(0) + m.pl.program_id(1)
        assert m.lax.psum(1, "rows") == 2

    spec = m.block((1, 3), lambda i, j: (i, j))
    return call(body, m.out((2, 6), "int32"), grid=(("rows", 2), ("columns", 2)), in_specs=[spec], out_specs=spec)


@kernel(np.array([2, 0, 1], np.int32), floats(3, 4), expect=lambda order, x: x[order])
def prefetched_order(m: Any, call: Any) -> Any:
    def body(order, x, o):
        o[...] = x[...]

    spec = m.tpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(3,), in_specs=[m.block((None, 4), lambda i, order: (order[i], 0))],
        out_specs=m.block((None, 4), lambda i, order: (i, 0)),
    )  # fmt: skip
    return call(body, m.out((3, 4)), grid_spec=spec)


@kernel(
    np.array([0, 0, 2], np.int32), np.array([1, 2, 0], np.int32), floats(3, 2, 2), floats(6, 3, seed=1),
    expect=lambda rows, columns, blocks, y: sum(
        np.pad(blocks[k] @ y[2 * columns[k] : 2 * columns[k] + 2], ((2 * rows[k], 4 - 2 * rows[k]), (0, 0)))
        for k in range(3)
    ),
)  # fmt: skip
def block_sparse_product(m: Any, call: Any) -> Any:
    def body(rows, columns, blocks, y, begun, o):
        o[...] += m.np.dot(blocks[...], y[...])

    def at_row(k, rows, columns):
        return rows[k], 0

    spec = m.tpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2, grid=(3,),
        in_specs=[
            m.block((None, 2, 2), lambda k, rows, columns: (k, 0, 0)),
            m.block((2, 3), lambda k, rows, columns: (columns[k], 0)),
            m.block((2, 3), at_row),
        ],
        out_specs=m.block((2, 3), at_row),
    )  # fmt: skip
    run = call(body, m.out((6, 3)), grid_spec=spec, input_output_aliases={4: 0})
    return lambda rows, columns, blocks, y: run(rows, columns, blocks, y, m.np.zeros((6, 3), "float32"))


@kernel(normal(4, 6).astype(ml_dtypes.bfloat16), expect=lambda x: (x.astype(np.float32) * 2).astype(x.dtype))
def half_precision(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] * 2

    spec = m.block((2, 3), lambda i, j: (i, j))
    return call(body, m.out((4, 6), "bfloat16"), grid=(2, 2), in_specs=[spec], out_specs=spec)


@kernel((normal(4) + 1j * normal(4, seed=1)).astype(np.complex64), expect=lambda x: np.conj(x) * 2, in_jax=False)
def complex_numbers(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = m.np.conj(x[...]) * 2

    spec = m.block((2,), lambda i: i)
    return call(body, m.out((4,), "complex64"), grid=2, in_specs=[spec], out_specs=spec)


@kernel(np.array([True, False, True]), np.array([True, True, False]), expect=lambda x, y: x & ~y)
def booleans(m: Any, call: Any) -> Any:
    def body(x, y, o):
        o[...] = m.np.logical_and(x[...], m.np.logical_not(y[...]))

    return call(body, m.out((3,), "bool"))


@kernel(ints(9, low=-128, high=128).astype(np.int8), expect=lambda x: x.astype(np.int32) * 3)
def small_integers(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...].astype("int32") * 3

    spec = m.block((4,), lambda i: i)
    return call(body, m.out((9,), "int32"), grid=3, in_specs=[spec], out_specs=spec)


@kernel(np.int32(3), floats(6), expect=lambda n, x: x + 1)
def traced_grid(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + 1

    spec = m.block((2,), lambda i: i)
    return m.top.jit(lambda n, x: call(body, m.out((6,)), grid=(n,), in_specs=[spec], out_specs=spec)(x))

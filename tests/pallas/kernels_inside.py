"""Kernels for what is written inside: accesses, masks, atomic updates, branches, loops, scratch, whole algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.pallas.table import floats, ints, kernel, normal


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# -- accesses ---------------------------------------------------------------------------------------------------------


@kernel(floats(5), expect=lambda x: np.array([*x[3:], 7, 7], np.float32))
def masked_load(m: Any, call: Any) -> Any:
    def body(x, o):
        at = 3 + m.pl.program_id(0) + m.np.arange(4)
        o[...] = m.triton.load(x.at[at], mask=at < 5, other=7.0)

    return call(body, m.out((4,)), grid=(1,))


@kernel(floats(5), expect=lambda x: np.concatenate([x, np.zeros(3, np.float32)]))
def masked_load_of_a_slice(m: Any, call: Any) -> Any:
    def body(x, o):
        first = 4 * m.pl.program_id(0)
        o[...] = m.triton.load(x.at[m.pl.ds(first, 4)], mask=first + m.np.arange(4) < 5, other=0.0)

    return call(body, m.out((8,)), grid=(2,), out_specs=m.block((4,), lambda i: i))


@kernel(floats(4), expect=lambda x: np.array([0, 0, x[0], x[1], 0], np.float32))
def masked_store_of_a_slice(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = m.np.zeros_like(o)
        m.triton.store(o.at[m.pl.ds(2 + m.pl.program_id(0), 4)], x[...], mask=m.np.arange(4) < 2)

    return call(body, m.out((5,)), grid=(1,))


@kernel(floats(7), expect=lambda x: x * 2)
def masked_vector_code(m: Any, call: Any) -> Any:
    def body(x, o):
        at = 4 * m.pl.program_id(0) + m.np.arange(4)
        value = m.triton.load(x.at[at], mask=at < 7, other=0.0)
        m.triton.store(o.at[at], value * 2, mask=at < 7)

    return call(body, m.out((7,)), grid=(2,), compiler_params=m.triton.CompilerParams(num_warps=4, num_stages=2))


@kernel(floats(3, 5), expect=softmax, close=1e-6)
def masked_softmax(m: Any, call: Any) -> Any:
    def body(x, o):
        row, at = m.pl.program_id(0), m.np.arange(8)
        value = m.triton.load(x.at[row, at], mask=at < 5, other=-m.np.inf)
        e = m.np.exp(value - m.np.max(value, axis=0))
        m.triton.store(o.at[row, at], e / m.np.sum(e, axis=0), mask=at < 5)

    return call(body, m.out((3, 5)), grid=(3,))


@kernel(floats(8), expect=lambda x: x[1::2])
def strided_slice(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[m.pl.ds(1, 4, 2)]

    return call(body, m.out((4,)))


@kernel(floats(6, 4), ints(3, low=0, high=6), expect=lambda x, i: x[i])
def index_array(m: Any, call: Any) -> Any:
    def body(x, i, o):
        o[...] = x[i[...]]

    return call(body, m.out((3, 4)))


@kernel(floats(4, 4), expect=lambda x: np.where(np.arange(16).reshape(4, 4) == 6, 9, x).astype(np.float32))
def single_element(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]
        i = m.pl.program_id(0) + 1
        o[i, i + 1] = m.np.float32(9)

    return call(body, m.out((4, 4)), grid=(1,))


@kernel(floats(4, 6), expect=lambda x: x[1:3, 2:5])
def parts_of_parts(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x.at[m.pl.ds(m.pl.program_id(0) + 1, 2)][:, 2:5]

    return call(body, m.out((2, 3)), grid=(1,))


# -- atomic updates ---------------------------------------------------------------------------------------------------


@kernel(ints(12, low=0, high=4), expect=lambda x: np.bincount(x, minlength=4).astype(np.int32), in_jax=False)
def histogram(m: Any, call: Any) -> Any:
    def body(x, o):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            o[...] = m.np.zeros_like(o)

        m.triton.atomic_add(o, x[...], m.np.ones_like(x))

    return call(body, m.out((4,), "int32"), grid=(3,), in_specs=[m.block((4,), lambda i: i)])


@kernel(
    np.array([1, 1, 0, 1], np.int32), floats(4),
    expect=lambda i, x: (np.array([x[2], x[0] + x[1] + x[3]]), np.array([0, x[0], 0, x[0] + x[1]])), in_jax=False,
)  # fmt: skip
def atomic_add_gives_what_was_there(m: Any, call: Any) -> Any:
    def body(i, x, o, before):
        o[...] = m.np.zeros_like(o)
        before[...] = m.triton.atomic_add(o, i[...], x[...])

    return call(body, (m.out((2,)), m.out((4,))))


@kernel(
    ints(4), ints(4, seed=1), in_jax=False,
    expect=lambda x, y: (np.maximum(x, y), np.minimum(x, y), x & y, x | y, x ^ y),
)  # fmt: skip
def atomic_kinds(m: Any, call: Any) -> Any:
    names = ("max", "min", "and", "or", "xor")

    def body(x, y, *outs):
        for name, o in zip(names, outs, strict=True):
            o[...] = x[...]
            getattr(m.triton, f"atomic_{name}")(o, (slice(None),), y[...])

    return call(body, (m.out((4,), "int32"),) * 5)


@kernel(np.array([0, 1, 1], np.int32), expect=lambda i: (np.array([7, 9]), np.array([0, 0, 8])), in_jax=False)
def atomic_exchange(m: Any, call: Any) -> Any:
    def body(i, o, before):
        o[...] = m.np.zeros_like(o)
        before[...] = m.triton.atomic_xchg(o, i[...], 7 + m.np.arange(3, dtype="int32"))

    return call(body, (m.out((2,), "int32"), m.out((3,), "int32")))


@kernel(np.array([True, False, True]), expect=lambda k: np.array([2, 0], np.int32), in_jax=False)
def masked_atomic(m: Any, call: Any) -> Any:
    def body(k, o):
        o[...] = m.np.zeros_like(o)
        m.triton.atomic_add(o, m.np.arange(3) // 3, m.np.ones(3, "int32"), mask=k[...])

    return call(body, m.out((2,), "int32"))


@kernel(np.int32(4), floats(6), expect=lambda i, x: np.array([0, 0, 0, 0, x[0], x[1]]), in_jax=False)
def masked_atomic_of_a_slice_across_the_end(m: Any, call: Any) -> Any:
    def body(i, x, o):
        o[...] = m.np.zeros_like(o)
        m.triton.atomic_add(o, m.pl.ds(i[...], 4), x[:4], mask=i[...] + m.np.arange(4) < 6)

    return call(body, m.out((6,)))


@kernel(
    np.int32(2), np.array([True, False]), in_jax=False,
    expect=lambda i, k: (np.array([0, 0, 9, 0], np.int32), np.array([5, 0], np.int32)),
)  # fmt: skip
def atomic_of_one_element(m: Any, call: Any) -> Any:
    def body(i, k, o, before):
        o[...] = m.np.zeros_like(o)
        m.triton.atomic_add(o, i[...], np.int32(5))
        before[0] = m.triton.atomic_xchg(o, i[...], np.int32(9), mask=k[0])
        m.triton.atomic_xchg(o, i[...], np.int32(7), mask=k[1])
        before[1] = 0

    return call(body, (m.out((4,), "int32"), m.out((2,), "int32")))


@kernel(expect=lambda: np.array([9, 1, 5, 1], np.int32), in_jax=False)
def compare_and_swap(m: Any, call: Any) -> Any:
    def body(o):
        o[0] = o[1] = m.np.int32(1)
        o[2] = m.triton.atomic_cas(o.at[0], 1, 9) + 4
        o[3] = m.triton.atomic_cas(o.at[1], 2, 9)

    return call(body, m.out((4,), "int32"))


# -- branches and loops -----------------------------------------------------------------------------------------------


@kernel(floats(6), expect=lambda x: np.where(np.arange(6) // 2 == 1, -x, x))
def when_on_a_number(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...]

        @m.pl.when(m.pl.program_id(0) == 1)
        def _():
            o[...] = -x[...]

        @m.pl.when(False)
        def _():
            raise AssertionError

    spec = m.block((2,), lambda i: i)
    return call(body, m.out((6,)), grid=3, in_specs=[spec], out_specs=spec)


@kernel(np.int32(1), floats(3), expect=lambda n, x: x * x)
def switch(m: Any, call: Any) -> Any:
    def body(n, x, o):
        o[...] = m.lax.switch(n[...], [lambda x: -x, lambda x: x * x, lambda x: x], x[...])

    return call(body, m.out((3,)))


@kernel(floats(8), expect=lambda x: x.cumsum(dtype=np.float32))
def loop_writes(m: Any, call: Any) -> Any:
    def body(x, o):
        def step(i, total):
            total = total + x[i]
            o[i] = total
            return total

        m.lax.fori_loop(0, 8, step, m.np.float32(0))

    return call(body, m.out((8,)))


@kernel(np.int32(5), expect=lambda n: np.array([0, 1, 2, 3, 4, 99], np.int32))
def loop_of_traced_length(m: Any, call: Any) -> Any:
    def body(n, o):
        o[...] = m.np.full((6,), 99, "int32")

        @m.pl.loop(0, n[...])
        def _(i):
            o[i] = i.astype("int32")

    return call(body, m.out((6,), "int32"))


@kernel(floats(8), expect=lambda x: x[0] + x[2] + x[4] + x[6])
def loop_with_carry(m: Any, call: Any) -> Any:
    def body(x, o):
        @m.pl.loop(0, 8, step=2, init_carry=m.np.float32(0))
        def total(i, carry):
            return carry + x[i]

        o[...] = total

    return call(body, m.out(()))


@kernel(np.int32(27), expect=lambda n: np.int32(111))
def while_loop(m: Any, call: Any) -> Any:
    def body(n, o):
        def step(state):
            k, count = state
            return m.np.where(k % 2 == 0, k // 2, 3 * k + 1), count + 1

        o[...] = m.lax.while_loop(lambda state: state[0] != 1, step, (n[...], m.np.int32(0)))[1]

    return call(body, m.out((), "int32"))


@kernel(ints(3, 4), expect=lambda x: x[:, ::-1].cumsum(1)[:, ::-1].astype(np.int32))
def scan_inside(m: Any, call: Any) -> Any:
    def body(x, o):
        _, ys = m.lax.scan(lambda c, y: (c + y, c + y), m.np.int32(0), x[...], reverse=True)
        o[...] = ys

    spec = m.block((None, 4), lambda i: (i, 0))
    return call(body, m.out((3, 4), "int32"), grid=3, in_specs=[spec], out_specs=spec)


# -- scratch ----------------------------------------------------------------------------------------------------------


@kernel(floats(4, 3), expect=lambda x: x.cumsum(0, dtype=np.float32))
def running_sum_in_scratch(m: Any, call: Any) -> Any:
    def body(x, o, total):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            total[...] = m.np.zeros_like(total)

        total[...] += x[...]
        o[...] = total[...]

    spec = m.block((None, 3), lambda i: (i, 0))
    return call(
        body, m.out((4, 3)), grid=(4,), in_specs=[spec], out_specs=spec, scratch_shapes=[m.tpu.VMEM((3,), "float32")]
    )


@kernel(expect=lambda: (np.full(2, np.nan, np.float32), np.full(2, np.iinfo(np.int32).min)))
def scratch_is_undefined(m: Any, call: Any) -> Any:
    def body(o, n, *, real, whole):
        o[...], n[...] = real[...], whole[...]

    scratch = {"real": m.tpu.VMEM((2,), m.np.float32), "whole": m.tpu.SMEM((2,), m.np.int32)}
    return call(body, (m.out((2,)), m.out((2,), "int32")), scratch_shapes=scratch)


@kernel(floats(3), expect=lambda x: (x + 1) * (x + 1))
def scoped(m: Any, call: Any) -> Any:
    def body(x, o):
        def inner(t):
            t[...] = x[...] + 1
            return t[...] * t[...]

        o[...] = m.pl.run_scoped(inner, m.tpu.VMEM((3,), m.np.float32))

    return call(body, m.out((3,)))


@kernel(expect=lambda: np.array([2, 3, 0, 1], np.int32))
def semaphores(m: Any, call: Any) -> Any:
    def body(o, one, many):
        @m.pl.when(m.pl.program_id(0) == 0)
        def _():
            m.pl.semaphore_signal(one, 3)
            m.pl.semaphore_wait(one, 1)
            m.pl.semaphore_signal(many.at[0], 3)
            m.pl.semaphore_signal(many.at[2])

        o[0] = m.pl.semaphore_read(one)
        for k in range(3):
            o[1 + k] = m.pl.semaphore_read(many.at[k])

    kinds = [m.tpu.SemaphoreType.REGULAR, m.tpu.SemaphoreType.REGULAR((3,))]
    return call(body, m.out((4,), "int32"), grid=(2,), scratch_shapes=kinds)


@kernel(floats(4), expect=lambda x: x, in_jax=False)
def copies(m: Any, call: Any) -> Any:
    def body(x, o, buffer, done):
        copy = m.tpu.make_async_copy(x, buffer, done)
        copy.start()
        copy.wait()
        m.tpu.sync_copy(buffer, o)

    kinds = [m.tpu.VMEM((4,), "float32"), m.tpu.SemaphoreType.DMA]
    return call(body, m.out((4,)), scratch_shapes=kinds)


@kernel(floats(7), expect=lambda x: x * 2, in_jax=False)
def pipeline_inside(m: Any, call: Any) -> Any:
    def inner(x, o):
        o[...] = x[...] * 2

    spec = m.block((3,), lambda i: i)

    def body(x, o):
        m.tpu.emit_pipeline(inner, grid=(3,), in_specs=[spec], out_specs=[spec])(x, o)

    whole = m.block(memory_space=m.pl.ANY)
    return call(body, m.out((7,)), in_specs=[whole], out_specs=whole)


# -- whole algorithms -------------------------------------------------------------------------------------------------


@kernel(normal(6, 8), expect=softmax, close=1e-6)
def softmax_rows(m: Any, call: Any) -> Any:
    def body(x, o):
        e = m.np.exp(x[...] - m.np.max(x[...], axis=-1, keepdims=True))
        o[...] = e / m.np.sum(e, axis=-1, keepdims=True)

    spec = m.block((2, 8), lambda i: (i, 0))
    return call(body, m.out((6, 8)), grid=(3,), in_specs=[spec], out_specs=spec)


@kernel(floats(4, 6), floats(6, 8, seed=1), expect=lambda x, y: x @ y)
def product_sums_in_output(m: Any, call: Any) -> Any:
    def body(x, y, o):
        @m.pl.when(m.pl.program_id(2) == 0)
        def _():
            o[...] = m.np.zeros_like(o)

        o[...] += m.np.dot(x[...], y[...])

    return call(
        body, m.out((4, 8)), grid=(2, 2, 3),
        in_specs=[m.block((2, 2), lambda i, j, k: (i, k)), m.block((2, 4), lambda i, j, k: (k, j))],
        out_specs=m.block((2, 4), lambda i, j, k: (i, j)),
    )  # fmt: skip


@kernel(floats(4, 6), floats(6, 8, seed=1), floats(8, seed=2), expect=lambda x, y, b: np.maximum(x @ y + b, 0))
def product_with_fused_end(m: Any, call: Any) -> Any:
    def body(x, y, b, o, total):
        @m.pl.when(m.pl.program_id(2) == 0)
        def _():
            total[...] = m.np.zeros_like(total)

        total[...] += m.np.dot(x[...], y[...])

        @m.pl.when(m.pl.program_id(2) == m.pl.num_programs(2) - 1)
        def _():
            o[...] = m.np.maximum(total[...] + b[...], 0)

    return call(
        body, m.out((4, 8)), grid=(2, 2, 3), scratch_shapes=[m.tpu.VMEM((2, 4), m.np.float32)],
        in_specs=[
            m.block((2, 2), lambda i, j, k: (i, k)),
            m.block((2, 4), lambda i, j, k: (k, j)),
            m.block((4,), lambda i, j, k: (j,)),
        ],
        out_specs=m.block((2, 4), lambda i, j, k: (i, j)),
        compiler_params=m.tpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )  # fmt: skip


@kernel(floats(5, 7), floats(7, 3, seed=1), expect=lambda x, y: x @ y)
def ragged_product(m: Any, call: Any) -> Any:
    def body(x, y, o):
        left = 7 - 4 * m.pl.program_id(1)
        a = m.np.where(m.lax.broadcasted_iota("int32", (2, 4), 1) < left, x[...], 0.0)
        b = m.np.where(m.lax.broadcasted_iota("int32", (4, 3), 0) < left, y[...], 0.0)
        before = m.np.where(m.pl.program_id(1) == 0, m.np.zeros_like(o), o[...])
        o[...] = before + m.np.dot(a, b)

    return call(
        body, m.out((5, 3)), grid=(3, 2),
        in_specs=[m.block((2, 4), lambda i, k: (i, k)), m.block((4, 3), lambda i, k: (k, 0))],
        out_specs=m.block((2, 3), lambda i, k: (i, 0)),
    )  # fmt: skip


@kernel(floats(4, 3), floats(5, 3, seed=1), expect=lambda x, y: x @ y.T)
def dot_transposed(m: Any, call: Any) -> Any:
    def body(x, y, o):
        o[...] = m.triton.dot(x[...], y[...], trans_b=True)

    return call(body, m.out((4, 5)))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.where(np.tril(np.ones((8, 8), bool)), q @ k.T, -np.inf)
    return softmax(scores) @ v


@kernel(normal(8, 4), normal(8, 4, seed=1), normal(8, 4, seed=2), expect=attention, close=1e-5)
def causal_attention(m: Any, call: Any) -> Any:
    def body(q, k, v, o):
        first = 4 * m.pl.program_id(0)
        rows = first + m.lax.broadcasted_iota("int32", (4, 2), 0)

        def step(j, state):
            high, total, acc = state
            at = m.pl.ds(2 * j, 2)
            scores = m.np.dot(q[...], k[at, :].T)
            columns = 2 * j + m.lax.broadcasted_iota("int32", (4, 2), 1)
            scores = m.np.where(rows >= columns, scores, -1e30)
            new = m.np.maximum(high, scores.max(axis=1))
            p = m.np.exp(scores - new[:, None])
            scale = m.np.exp(high - new)
            return new, total * scale + p.sum(axis=1), acc * scale[:, None] + m.np.dot(p, v[at, :])

        start = (m.np.full((4,), -1e30, "float32"), m.np.zeros((4,), "float32"), m.np.zeros((4, 4), "float32"))
        _, total, acc = m.lax.fori_loop(0, 2 * (m.pl.program_id(0) + 1), step, start)
        o[...] = acc / total[:, None]

    whole = m.block((8, 4), lambda i: (0, 0))
    spec = m.block((4, 4), lambda i: (i, 0))
    return call(body, m.out((8, 4)), grid=(2,), in_specs=[spec, whole, whole], out_specs=spec)


@kernel(
    normal(4, 8), normal(8, seed=1), normal(8, seed=2), close=1e-5,
    expect=lambda x, g, b: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b,
)  # fmt: skip
def layer_norm(m: Any, call: Any) -> Any:
    def body(x, g, b, o):
        mean = m.np.mean(x[...], axis=1, keepdims=True)
        var = m.np.mean((x[...] - mean) ** 2, axis=1, keepdims=True)
        o[...] = (x[...] - mean) * m.lax.rsqrt(var + 1e-5) * g[...] + b[...]

    spec, row = m.block((2, 8), lambda i: (i, 0)), m.block((8,), lambda i: (0,))
    return call(body, m.out((4, 8)), grid=2, in_specs=[spec, row, row], out_specs=spec)


@kernel(floats(6), np.array([0, 2, 2, 5, 6]), ints(6, low=0, high=4), floats(4, 3, seed=3),
        expect=lambda data, ends, columns, y: np.stack([
            sum([data[k] * y[columns[k]] for k in range(ends[i], ends[i + 1])], np.zeros(3, np.float32))
            for i in range(4)]), in_jax=False)  # fmt: skip
def sparse_rows(m: Any, call: Any) -> Any:
    def body(ends, columns, data, y, o):
        i = m.pl.program_id(0)

        def step(k, total):
            return total + data[k] * y[columns[k], :]

        o[...] = m.lax.fori_loop(ends[i], ends[i + 1], step, m.np.zeros((3,), "float32"))

    spec = m.tpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2, grid=(4,), in_specs=[m.block(None), m.block(None)],
        out_specs=m.block((None, 3), lambda i, *_: (i, 0)),
    )  # fmt: skip
    run = call(body, m.out((4, 3)), grid_spec=spec)
    return lambda data, ends, columns, y: run(ends, columns, data, y)


@kernel(floats(2, 3, 4), expect=lambda x: x.sum((0, 2)))
def reduction_over_two_axes(m: Any, call: Any) -> Any:
    def body(x, o):
        @m.pl.when((m.pl.program_id(1) == 0) & (m.pl.program_id(2) == 0))
        def _():
            o[...] = 0.0

        o[...] += m.np.sum(x[...])

    return call(
        body, m.out((3,)), grid=(3, 2, 2), in_specs=[m.block((None, None, 2), lambda j, i, k: (i, j, k))],
        out_specs=m.block((None,), lambda j, i, k: (j,)),
    )  # fmt: skip


@kernel(floats(6, 6), expect=lambda x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:])
def five_point_stencil(m: Any, call: Any) -> Any:
    def body(x, o):
        i, j = 2 * m.pl.program_id(0), 2 * m.pl.program_id(1)
        window = x[m.pl.ds(i, 4), m.pl.ds(j, 4)]
        centre = window[1:3, 1:3]
        o[...] = centre * 4 - window[0:2, 1:3] - window[2:4, 1:3] - window[1:3, 0:2] - window[1:3, 2:4]

    return call(body, m.out((4, 4)), grid=(2, 2), out_specs=m.block((2, 2), lambda i, j: (i, j)))


@kernel(normal(8, 3), ints(8, low=0, high=3), close=1e-5,
        expect=lambda x, y: np.log(np.exp(x).sum(1)) - x[np.arange(8), y])  # fmt: skip
def cross_entropy(m: Any, call: Any) -> Any:
    def body(x, y, o):
        chosen = m.np.sum(m.np.where(m.lax.broadcasted_iota("int32", (4, 3), 1) == y[...][:, None], x[...], 0), axis=1)
        o[...] = m.nn.logsumexp(x[...], axis=1) - chosen

    return call(
        body, m.out((8,)), grid=2, in_specs=[m.block((4, 3), lambda i: (i, 0)), m.block((4,), lambda i: (i,))],
        out_specs=m.block((4,), lambda i: (i,)),
    )  # fmt: skip


# -- references in the state of loops, and scalars as blocks -----------------------------------------------------------


def by_opcode(program: np.ndarray, params: np.ndarray, x: np.ndarray) -> np.ndarray:
    return sum(params[i, op] * np.float32(2**i) * x for i, op in enumerate(program)).astype(np.float32)


@kernel(np.int32([0, 2, 1, 1]), floats(4, 3), floats(7), expect=by_opcode, close=1e-6)
def loop_that_carries_references(m: Any, call: Any) -> Any:
    def body(program, params, x, o):
        def step(i, state):
            total, program, params = state
            branches = [lambda total, params, i, k=k: total + params[i, k] * 2.0**i * x[...] for k in range(3)]
            return m.lax.switch(program[i], branches, total, params, i), program, params

        o[...] = m.lax.fori_loop(0, 4, step, (m.np.zeros(x.shape, "float32"), program, params))[0]

    whole = [m.block((4,), lambda _: (0,)), m.block((4, 3), lambda _: (0, 0))]
    return call(
        body, m.out((7,)), grid=2, in_specs=[*whole, m.block((4,), lambda i: i)], out_specs=m.block((4,), lambda i: i)
    )


@kernel(floats(5), np.float32(40.0), expect=lambda x, most: x * 2 ** np.ceil(np.log2(most / x.sum())), close=1e-6)
def while_loop_that_carries_a_reference(m: Any, call: Any) -> Any:
    def body(x, most, o):
        def double(state):
            ref, total = state
            ref[...] = ref[...] * 2
            return ref, total * 2

        o[...] = x[...]
        m.lax.while_loop(lambda state: state[1] < most[...], double, (o, m.np.sum(x[...])))

    return call(body, m.out((5,)))


@kernel(np.int32(1), floats(8), expect=lambda which, x: -x)
def branch_by_a_scalar_block(m: Any, call: Any) -> Any:
    def body(which, x, o):
        o[...] = m.lax.switch(which[...], (lambda x: x**2, lambda x: -x), x[...])

    blocks = [m.block((), lambda _: ()), m.block((2,), lambda i: i)]
    return call(body, m.out((8,)), grid=4, in_specs=blocks, out_specs=m.block((2,), lambda i: i))


@kernel(floats(6), floats(6), np.arange(6) > 2, in_jax=False,
        expect=lambda x, y, m: (np.where(m, y, x), np.where(m, x, y)))  # fmt: skip
def masked_swap(m: Any, call: Any) -> Any:
    def body(x, y, mask, a, b):
        b[...] = y[...]
        a[...] = m.pl.swap(b, (slice(None),), x[...], mask=mask[...])

    return call(body, (m.out((6,)), m.out((6,))))


def four_rows_as_one(x: np.ndarray) -> np.ndarray:
    return x.reshape(2, 4, 6).swapaxes(1, 2).copy().view(np.uint32)[..., 0]


@kernel(ints(8, 6).astype(np.uint8), expect=four_rows_as_one)
def bytes_as_words(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x.bitcast(m.np.uint32)[...]

    return call(body, m.out((2, 6), "uint32"))


@kernel(floats(4, 6), expect=lambda x: x * (np.arange(24).reshape(4, 6) >= 8), in_jax=False)
def reshaped_block(m: Any, call: Any) -> Any:
    def body(x, o):
        seen = o.reshape(3, 8)
        seen[0:1] = m.np.zeros((1, 8), "float32")
        seen[1:] = x.reshape(3, 8)[1:]

    return call(body, m.out((4, 6)))


def rows_rolled(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return np.stack([np.roll(row, shift + 3 * i, 1) for i, row in enumerate(x)])


@kernel(ints(4, 2, 7), np.int32(2), expect=rows_rolled)
def rows_rolled_by_a_stride(m: Any, call: Any) -> Any:
    def body(x, shift, o):
        o[...] = m.tpu.roll(x[...], shift[...], 2, stride=3, stride_axis=0)

    return call(body, m.out((4, 2, 7), "int32"))


@kernel(floats(4, 6), expect=lambda x: x.reshape(2, 2, 3, 2).transpose(3, 1, 0, 2).reshape(4, 2, 3))
def split_and_merged_dimensions(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = m.tpu.einshape("(ab) (cd) -> (db) a c", x[...], a=2, d=2)

    return call(body, m.out((4, 2, 3)))


@kernel(floats(6), expect=lambda x: x[::-1] + 6)
def numbers_of_cells_in_index_maps(m: Any, call: Any) -> Any:
    def body(x, o):
        o[...] = x[...] + m.pl.num_programs(0)

    back = m.block((1,), lambda i: (m.pl.num_programs(0) - 1 - m.pl.program_id(0),))
    return call(body, m.out((6,)), grid=6, in_specs=[back], out_specs=m.block((1,), lambda i: i))

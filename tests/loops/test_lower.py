"""Kernels to nests: phases, row buffers, collapsed dimensions, vector dimensions, and the text of a nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from tests.compiler import ladder
from weft import operations as lax
from weft.loops import index_math, ir, printer
from weft.loops.index_math import Sizes, Stride


def nests(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[ir.Nest]:
    closed = ladder.traced(function, [np.zeros(shape, np.float32) for shape in shapes])
    return ladder.compiled(closed).nests()


def softmax(x: Any) -> list[Any]:
    n = x.shape[0]
    top = lax.broadcast_in_dim(lax.reduce_max(x, (1,)), (n, 1), (0,))
    e = lax.exp(lax.sub(x, top))
    return [lax.div(e, lax.broadcast_in_dim(lax.reduce_sum(e, (1,)), (n, 1), (0,)))]


SOFTMAX = """\
nest exp_reduce_sum_div  parallel i0; reduced i1 lanes x{lanes}
  in0 f32 [*, 1]   out1 f32 [*, 1]   row0 f32
  phase 0
    for i1
      v0 = load in0
    v1 = reduce_max(v0) row
  phase 1
    for i1
      v2 = load in0
      v3 = sub v2 v1  # f32
      v4 = exp v3  # f32
      store row0 = v4
    v5 = reduce_sum(v4) row
  phase 2
    for i1
      v6 = load row0
      v7 = div v6 v5  # f32
      store out1 = v7"""


def test_softmax_keeps_its_exponentials_in_a_row() -> None:
    (nest,) = nests(softmax, (3, 50))
    assert printer.text(nest) == SOFTMAX.format(lanes=nest.width)


def test_cheap_values_are_computed_again() -> None:
    def variance(x: Any) -> list[Any]:
        mean = lax.div(lax.broadcast_in_dim(lax.reduce_sum(x, (1,)), (x.shape[0], 1), (0,)), np.float32(50))
        d = lax.sub(x, mean)
        return [d, lax.reduce_sum(lax.mul(d, d), (1,))]

    (nest,) = nests(variance, (3, 50))
    assert nest.rows == ()
    assert len([phase for phase in nest.phases if phase.reductions]) == 2


def test_what_the_program_says_first_does_not_matter() -> None:
    """Equal kernels are one, wherever their constants stood in the program, and each has its own values."""

    def constants_first(x: Any, y: Any) -> list[Any]:
        two, three = lax.full_like(y, 2.0), lax.full_like(x, 3.0)
        return [lax.select(lax.gt(x, three), y, two), lax.reduce_sum(lax.mul(y, two), (0,))]

    def constants_last(x: Any, y: Any) -> list[Any]:
        chosen = lax.select(lax.gt(x, lax.full_like(x, 7.0)), y, lax.full_like(y, 2.0))
        return [chosen, lax.reduce_sum(lax.mul(y, lax.full_like(y, 2.0)), (0,))]

    for shape in ((50,), (40, 50)):
        first, last = nests(constants_first, shape, shape), nests(constants_last, shape, shape)
        assert first == last
        assert [printer.text(nest) for nest in first] == [printer.text(nest) for nest in last]
    x, y = np.float32([1, 4, 8]), np.float32([5, 6, 9])
    assert np.asarray(weft.jit(constants_first)(x, y)[0]).tolist() == [2, 6, 9]
    assert np.asarray(weft.jit(constants_last)(x, y)[0]).tolist() == [2, 2, 9]


def test_neighbouring_dimensions_are_collapsed() -> None:
    (nest,) = nests(lambda x, y: [lax.add(x, y)], (2, 3, 4, 5), (2, 3, 4, 5))
    assert len(nest.dims) == 1
    (nest,) = nests(lambda x, y: [lax.add(x, y)], (2, 3, 4, 5), (1, 1, 4, 5))
    assert [operand.strides for operand in nest.operands] == [(ir.RUNTIME, 1), (0, 1), (ir.RUNTIME, 1)]


def test_extents_that_happen_to_be_equal_do_not_matter() -> None:
    def function(x: Any) -> list[Any]:
        return [lax.add(lax.transpose(x, (1, 0)), lax.slice(lax.transpose(x, (1, 0)), (0, 0), x.shape[::-1]))]

    assert nests(function, (4, 4)) == nests(function, (4, 5)) == nests(function, (1, 4)) == nests(function, (4, 1))


def test_a_full_reduction_is_split_unless_it_has_more_phases() -> None:
    assert nests(lambda x: [lax.reduce_sum(x, (0, 1))], (3, 50))[0].split
    assert nests(lambda x: [lax.reduce_sum(x, (0, 1)), lax.neg(x)], (3, 50))[0].split
    assert not nests(lambda x: [lax.reduce_sum(x, (1,))], (3, 50))[0].split


def test_the_vector_dimension() -> None:
    assert nests(lambda x: [lax.reduce_sum(x, (1,))], (3, 50))[0].vector == 1
    assert nests(lambda x: [lax.reduce_sum(x, (0,))], (3, 50))[0].vector == 0
    assert nests(lambda x: [lax.cumsum(x, 0)], (3, 50))[0].vector == 0
    assert nests(lambda x: [lax.cumsum(x, 1)], (3, 50))[0].vector is None
    assert nests(lambda x: [lax.transpose(x, (1, 0))], (3, 50))[0].vector == 1


def test_outer_dimensions_are_walked_around_the_nest() -> None:
    x = np.arange(2 * 3 * 4 * 5 * 6, dtype=np.float32).reshape(2, 3, 4, 5, 6)
    closed = ladder.traced(lambda x: [lax.add(lax.transpose(x, (4, 3, 2, 1, 0)), np.float32(1))], [x])
    program = ladder.compiled(closed)
    assert len(program.nests()[0].dims) == 4
    (out,) = ladder.by_machine_code(program, [x])
    np.testing.assert_array_equal(out, x.transpose(4, 3, 2, 1, 0) + 1)


def test_strides_are_products_of_symbols() -> None:
    sizes = Sizes()
    b, n = sizes.fresh(), sizes.fresh()
    outer, inner = index_math.dense_strides((3, 5), (b, n))
    assert (outer, inner) == (Stride(5, 1, (n,)), Stride(1, 1, ()))
    assert index_math.follows(outer, inner, n)
    assert not index_math.follows(outer, index_math.scaled(inner, 2), n)
    assert index_math.follows(index_math.ZERO, index_math.ZERO, n)
    assert not index_math.follows(outer, index_math.ZERO, n)
    assert sizes.unite(b, n) == sizes.find(n) == sizes.find(b)

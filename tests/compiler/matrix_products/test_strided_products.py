"""Products of strided views have the bits of the product of the copied matrices, wherever their elements lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft
from weft import config, dtypes, lax
from weft.compiler.checks import reference_interpreter
from weft.core.product_spaces import ProductSpace
from weft.operations.windowed.strided_products import strided_product

KINDS = ["float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int32", "int8", "bool"]


def drawn(rng: np.random.Generator, size: int, kind: str) -> np.ndarray:
    if kind.startswith(("int", "bool")):
        return rng.integers(-100, 100, size).astype(kind)
    x = rng.standard_normal(size) * 4.0 ** rng.integers(-2, 3, size)
    if kind.startswith("complex"):
        x = x + 1j * rng.standard_normal(size)
    return x.astype(dtypes.bfloat16 if kind == "bfloat16" else kind)


def random_space(rng: np.random.Generator) -> ProductSpace:
    """Loops as windows have them: strides of a few sizes, which overlap or leave holes, in any order of the result."""

    def extents(least: int, most: int) -> list[int]:
        return [int(n) for n in rng.integers(1, 8, int(rng.integers(least, most)))]

    def stride() -> int:
        return int(rng.choice([1, 1, 1, 2, 3, 8, 21, 64]))

    rows, columns = [(n, stride()) for n in extents(0, 4)], [(n, stride()) for n in extents(0, 4)]
    if rng.random() < 0.3:
        rows.append((int(rng.integers(8, 60)), stride()))
    if rng.random() < 0.5:
        columns.append((int(rng.integers(8, 60)), 1))
    summed = [(n, stride(), stride()) for n in extents(0, 4)]
    if rng.random() < 0.5:
        summed.append((int(rng.integers(8, 40)), 1, stride()))
    batch = [(n, stride(), stride()) for n in extents(0, 3)]
    order = None
    if rng.random() < 0.5:
        order = tuple(rng.permutation(len(batch) + len(rows) + len(columns)).tolist())
    elif rng.random() < 0.5:
        order = (*range(len(batch), len(batch) + len(rows)), *range(len(batch)))
        order += tuple(range(len(order), len(order) + len(columns)))
    starts = int(rng.integers(3)), int(rng.integers(3))
    space = ProductSpace(tuple(batch), tuple(rows), tuple(columns), tuple(summed), starts, order)
    return space if math.prod(space.shape) * space.terms < 1 << 20 else random_space(rng)


def matrices(x: np.ndarray, y: np.ndarray, space: ProductSpace) -> tuple[np.ndarray, np.ndarray]:
    """The operands [batch, m, k] and [batch, k, n] as copies."""
    batch, (m, n), k = math.prod([loop[0] for loop in space.batch]), space.sizes, space.terms
    left = [*space.batch, *[(e, s, 0) for e, s in space.rows], *space.summed]
    right = [*space.batch, *space.summed, *[(e, 0, s) for e, s in space.columns]]
    a = np.lib.stride_tricks.as_strided(
        x[space.starts[0] :], [loop[0] for loop in left], [loop[1] * x.itemsize for loop in left]
    )
    b = np.lib.stride_tricks.as_strided(
        y[space.starts[1] :], [loop[0] for loop in right], [loop[2] * y.itemsize for loop in right]
    )
    return a.reshape(batch, m, k), b.reshape(batch, k, n)


def laid_out(product: np.ndarray, space: ProductSpace) -> np.ndarray:
    """[batch, m, n] as the result has it."""
    out = product.reshape([axis[0] for axis in space.axes])
    return out if space.order is None else out.transpose(space.order)


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices by dot_general; a vector has a row or column of zeros beside it, which makes it one."""
    m, n = a.shape[1], b.shape[2]
    if m == 1:
        a = np.concatenate([a, np.zeros_like(a)], 1)
    if n == 1:
        b = np.concatenate([b, np.zeros_like(b)], 2)
    return np.asarray(lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))))[:, :m, :n]


def bits(x: Any) -> np.ndarray:
    x = np.ascontiguousarray(x)
    return x.view(np.uint8 if x.dtype.itemsize == 1 else np.uint16 if x.dtype.itemsize == 2 else np.uint32)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.int64 if x.dtype.kind in "bi" else np.float64)


def check(x: np.ndarray, y: np.ndarray, space: ProductSpace) -> None:
    a, b = matrices(x, y, space)
    result = np.asarray(weft.jit(lambda x, y: strided_product(x, y, space))(x, y))
    assert result.shape == space.shape
    np.testing.assert_array_equal(bits(result), bits(laid_out(multiplied(a, b), space)), err_msg=str(space))
    if result.dtype.kind in "fc" and result.dtype.itemsize >= 4:
        exact, size = wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))
        error = np.abs(result - laid_out(exact, space))
        assert (error <= 40 * np.finfo(result.dtype).eps * laid_out(size, space)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_random_spaces(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    with weft.enable_x64(True), config.context("check", False):
        for _ in range(12):
            space = random_space(rng)
            x, y = (drawn(rng, reach + int(rng.integers(3)), kind) for reach in space.reach)
            check(x, y, space)


def convolution(n: int, h: int, w: int, c: int, o: int, k: int, stride: int, dilation: int) -> dict[str, ProductSpace]:
    """The spaces of a convolution [n,h,w,c] by [k,k,c,o] and of its gradients, of one [n,c,h,w] by [o,c,k,k], and of a
    transposed one, whose phases it interleaves."""
    oh, ow = ((size - (k - 1) * dilation - 1) // stride + 1 for size in (h, w))
    outputs = ((n, h * w * c), (oh, stride * w * c), (ow, stride * c))
    taps = ((k, dilation * w * c), (k, dilation * c), (c, 1))
    kernel = (k * c * o, c * o, o)
    forward = tuple([(e, s, t) for (e, s), t in zip(taps, kernel, strict=True)])
    back = tuple([(e, s, t) for (e, s), t in zip(outputs, (oh * ow * o, ow * o, o), strict=True)])
    channels = ((c, h * w, k * k), (k, dilation * w, k), (k, dilation, 1))
    return {
        "by_channel": ProductSpace((), outputs, ((o, 1),), forward),
        "kernel": ProductSpace((), taps, ((o, 1),), back),
        "channels_first": ProductSpace(
            ((n, c * h * w, 0),), ((oh, stride * w), (ow, stride)), ((o, c * k * k),), channels, (0, 0), (0, 3, 1, 2)
        ),
        "phases": ProductSpace(
            ((2, w * c, o), (2, c, 2 * o)), ((n, h * w * c), (h - 2, w * c), (w - 2, c)), ((o, 1),),
            ((2, w * c, 4 * o * c), (2, c, 4 * o), (c, 1, 4)), (0, 0), (2, 3, 0, 4, 1, 5),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("form", ["by_channel", "kernel", "channels_first", "phases"])
def test_convolutions(form: str, kind: str) -> None:
    rng = np.random.default_rng(5)
    with weft.enable_x64(True), config.context("check", False):
        for sizes in [(2, 20, 23, 16, 33, 3, 1, 1), (3, 19, 30, 3, 64, 5, 2, 1), (1, 40, 40, 32, 16, 3, 1, 2)]:
            space = convolution(*sizes)[form]
            x, y = (drawn(rng, reach, kind) for reach in space.reach)
            check(x, y, space)


@pytest.mark.parametrize("form", ["by_channel", "kernel", "channels_first", "phases"])
def test_large_ones_on_two_threads(form: str) -> None:
    """With as many rows, columns and terms as the matrix unit takes, and blocks of terms.

    The unit has them only where 64 terms of a window, and rows of the result, follow each other: else they are chains.
    """
    space = convolution(4, 30, 30, 64, 64, 3, 1, 1)[form]
    rng = np.random.default_rng(6)
    x, y = (drawn(rng, reach, "float32") for reach in space.reach)
    with weft.threads(1):
        a, b = matrices(x, y, space)
        fewer = [a] if form == "by_channel" else [a[:, row : row + 60] for row in range(0, a.shape[1], 60)]
        expected = bits(laid_out(np.concatenate([multiplied(part, b) for part in fewer], 1), space))
        np.testing.assert_array_equal(bits(weft.jit(lambda x, y: strided_product(x, y, space))(x, y)), expected)
    with weft.threads(2):
        np.testing.assert_array_equal(bits(weft.jit(lambda x, y: strided_product(x, y, space))(x, y)), expected)


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64"])
def test_rows_that_are_read_where_they_lie(kind: str) -> None:
    """Terms in runs across borders of blocks, rows in runs that no tiles divide, columns that are no whole vectors."""
    rng = np.random.default_rng(9)
    with weft.enable_x64(True), config.context("check", False):
        for rows, columns, terms in [(31, 35, ((5, 900, 1), (131, 1, 5))), (15, 9, ((70, 211, 9), (9, 1, 1)))]:
            space = ProductSpace((), ((20, 77), (rows, 3)), ((columns, 1),), terms)
            x, y = (drawn(rng, reach, kind) for reach in space.reach)
            for threads in (1, 2):
                with weft.threads(threads):
                    check(x, y, space)


def test_many_rows_of_a_matrix_are_read_where_they_lie() -> None:
    rng = np.random.default_rng(10)
    a, b = drawn(rng, 700 * 130, "float32").reshape(700, 130), drawn(rng, 130 * 91, "float32").reshape(130, 91)
    parts = np.concatenate([multiplied(a[None, i : i + 50], b[None])[0] for i in range(0, 700, 50)])
    for threads in (1, 2):
        with weft.threads(threads):
            np.testing.assert_array_equal(bits(weft.jit(lambda a, b: a @ b)(a, b)), bits(parts))


def test_rows_by_the_same_rows_are_read_where_they_lie() -> None:
    """Columns beyond the diagonal are left out, and those that are made need not be whole tiles."""
    x = drawn(np.random.default_rng(11), 20 * 77 + 37 * 3 + 900, "float32")
    loops = ((20, 77), (37, 3))
    space = ProductSpace((), loops, loops, ((3, 200, 200), (40, 1, 1)))
    a, b = matrices(x, x, space)
    expected = np.concatenate([multiplied(a[:, row : row + 50], b) for row in range(0, 740, 50)], 1)
    for threads in (1, 2):
        with weft.threads(threads):
            found = np.asarray(weft.jit(lambda x: strided_product(x, x, space))(x))
            np.testing.assert_array_equal(bits(found), bits(laid_out(expected, space)))


def test_a_kernel_that_reads_the_result_runs_on_its_parts() -> None:
    space = convolution(2, 12, 12, 16, 32, 3, 1, 1)["by_channel"]
    rng = np.random.default_rng(7)
    x, y = (drawn(rng, reach, "float32") for reach in space.reach)
    bias = drawn(rng, 32, "float32")

    def activated(x: Any, y: Any, bias: Any) -> Any:
        return weft.numpy.maximum(strided_product(x, y, space) + bias, 0)

    program = weft.jit(activated).lower(x, y, bias).compile()
    assert "on its" in program.as_text("plan")
    product = laid_out(multiplied(*matrices(x, y, space)), space)
    np.testing.assert_array_equal(np.asarray(program(x, y, bias)), np.maximum(product + bias, 0))


def test_nothing_to_sum_and_nothing_to_make() -> None:
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    program = weft.jit(strided_product, static_argnums=2)
    for summed in [((0, 1, 1),), ((2, 1, 1), (0, 0, 0))]:
        space = ProductSpace(((2, 1, 0),), ((3, 1),), ((2, 1),), summed)
        np.testing.assert_array_equal(np.asarray(program(x, y, space)), np.zeros((2, 3, 2)))
    np.testing.assert_array_equal(np.asarray(program(x[:0], y, space)), np.zeros((2, 3, 2)))
    assert program(x, y, ProductSpace((), ((0, 1),), ((2, 1),), ((2, 1, 1),))).shape == (0, 2)
    assert float(program(x, y, ProductSpace((), (), (), ((4, 1, 1),)))) == 4.0


def test_the_interpreter_agrees() -> None:
    rng = np.random.default_rng(8)
    for kind in ("float32", "complex64", "bfloat16"):
        space = convolution(1, 6, 7, 3, 5, 2, 1, 1)["channels_first"]
        x, y = (drawn(rng, reach, kind) for reach in space.reach)
        program = weft.make_jaxpr(lambda x, y, space=space: strided_product(x, y, space))(x, y)
        (found,) = reference_interpreter.interpret(program, [x, y])
        expected = np.asarray(weft.jit(lambda x, y, space=space: strided_product(x, y, space))(x, y))
        np.testing.assert_allclose(wide(found), wide(expected), rtol=1e-6, atol=1e-6)


def test_what_is_out_of_bounds_is_refused() -> None:
    x, y = np.ones(4, np.float32), np.ones(2, np.float32)
    with pytest.raises(ValueError, match="element 4 is read"):
        strided_product(x, y, ProductSpace((), ((4, 1),), (), ((2, 1, 1),)))
    with pytest.raises(ValueError, match="right operand"):
        strided_product(x, y, ProductSpace((), (), ((2, 1),), ((2, 1, 1),)))
    with pytest.raises(ValueError, match="negative"):
        strided_product(x, y, ProductSpace((), ((2, -1),), (), ((2, 1, 1),)))
    with pytest.raises(ValueError, match="order"):
        strided_product(x, y, ProductSpace((), ((2, 1),), (), ((2, 1, 1),), order=(1,)))

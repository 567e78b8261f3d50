"""Trees of reductions and running sums: the programs of docs/NUMERICS.md and machine code give the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.compiler import ladder
from weft import operations as lax
from weft.core.primitive import registry
from weft.loops import reduction_tree

SHAPES = [(5,), (70,), (20_000,), (3, 70), (300, 5), (2, 3, 40), (1, 1), (600, 3), (3, 4, 5, 6)]


def documented(name: str) -> Callable[..., Any]:
    """The function of docs/NUMERICS.md with this name."""
    text = (Path(__file__).parents[2] / "docs" / "NUMERICS.md").read_text()
    (source,) = [program for program in re.findall(r"```python\n(.*?)```", text, re.S) if f"def {name}(" in program]
    scope: dict[str, Any] = {"np": np, "prod": prod}
    exec(source, scope)
    return scope[name]


def axes_of(rank: int) -> list[tuple[int, ...]]:
    return [axes for bits in range(1, 1 << rank) if (axes := tuple(d for d in range(rank) if bits >> d & 1))]


@pytest.mark.parametrize("shape", [(5,), (70,), (9000,), (3, 70), (300, 5), (2, 3, 4), (3, 4, 2, 3), (300, 2, 4)])
def test_the_documented_program_is_the_tree(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    written = documented("reduce")
    kind = registry["reduce_sum"].kind
    for axes in axes_of(len(shape)):
        expected = written(x, axes, np.float32(0), lambda a, b: np.float32(a + b))
        (out,) = reduction_tree.reduce(kind, [x], {"axes": axes}, [ladder.core.get_aval(x)])
        np.testing.assert_array_equal(out, np.asarray(expected, np.float32), err_msg=str(axes))


def stretched(x: Any) -> Any:
    first = lax.slice_in_dim(x, 0, 1, axis=0)
    return lax.add(x, lax.broadcast_in_dim(first, x.shape, tuple(range(len(x.shape)))))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "computed": lambda x: lax.mul(x, x),
    "transposed": lambda x: lax.transpose(x, tuple(reversed(range(len(x.shape))))),
    "reversed": lambda x: lax.rev(x, (len(x.shape) - 1,)),
    "sliced": lambda x: lax.slice(x, (0,) * len(x.shape), x.shape, tuple(2 for _ in x.shape)),
    "broadcast": stretched,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_views_and_fusion_do_not_change_the_bits(shape: tuple[int, ...], view: str) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for axes in axes_of(len(shape)):
        closed = ladder.traced(lambda x, axes=axes: [lax.reduce_sum(VIEWS[view](x), axes)], [x])
        program = ladder.compiled(closed)
        (expected,) = ladder.by_reference(closed, [x])
        for rung in (ladder.by_machine_code, ladder.by_loops):
            (out,) = rung(program, [x])
            np.testing.assert_array_equal(out, expected, err_msg=f"{rung.__name__} {axes}")


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int64, np.complex64])
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "argmax", "argmin"])
def test_dtypes(name: str, dtype: Any) -> None:
    if (dtype is np.complex64 and name != "reduce_sum") or dtype is np.int64:
        return
    x = (np.random.default_rng(2).standard_normal((37, 53)) * 50).astype(dtype)
    for axis in (0, 1):
        extra: tuple[Any, ...] = (axis, np.int32) if name.startswith("arg") else ((axis,),)
        closed = ladder.traced(lambda x, extra=extra: [getattr(lax, name)(x, *extra)], [x])
        (expected,), (out,) = ladder.by_reference(closed, [x]), ladder.by_machine_code(ladder.compiled(closed), [x])
        np.testing.assert_array_equal(out, expected)


def test_the_bits_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(3).standard_normal(1_000_003).astype(np.float32)
    closed = ladder.traced(lambda x: [lax.reduce_sum(lax.mul(x, x), (0,)), lax.reduce_max(x, (0,))], [x])
    program = ladder.compiled(closed)
    before = ladder.runtime.Pool.get_threads()
    results = []
    try:
        for threads in (1, 2):
            ladder.runtime.Pool.set_threads(threads)
            results.append([out.tobytes() for out in ladder.by_machine_code(program, [x])])
    finally:
        ladder.runtime.Pool.set_threads(before)
    assert results[0] == results[1]
    assert results[0] == [out.tobytes() for out in ladder.by_reference(closed, [x])]


# of more than one group of blocks: over everything, in rows, in columns, over axes that are not side by side
MANY_BLOCKS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2**21 + 300_005,), (0,)), ((1, 2**21 + 200_600), (1,)), ((67_000, 2), (0,)), ((66_800, 40), (0,)),
    ((300, 3, 40), (0, 2)), ((140, 2, 9000), (0, 2)), ((90, 2, 800, 3), (0, 2)),
]  # fmt: skip


def with_threads(program: Any, args: list[Any]) -> list[np.ndarray]:
    """The first result with one thread and with two."""
    before, found = ladder.runtime.Pool.get_threads(), []
    try:
        for threads in (1, 2):
            ladder.runtime.Pool.set_threads(threads)
            found.append(ladder.by_machine_code(program, args)[0])
    finally:
        ladder.runtime.Pool.set_threads(before)
    return found


@pytest.mark.parametrize(("shape", "axes"), MANY_BLOCKS, ids=str)
def test_the_blocks_of_long_sums_go_by_groups(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = drawn(shape, np.float32)
    x[tuple([0 if axis in axes else slice(None) for axis in range(x.ndim)])] = 1e7  # so that the order shows
    closed = ladder.traced(lambda x: [lax.reduce_sum(x, axes)], [x])
    program = ladder.compiled(closed)
    (expected,) = ladder.by_reference(closed, [x])
    for found in (*with_threads(program, [x]), *ladder.by_loops(program, [x])):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(expected, x.sum(axes, dtype=np.float64), rtol=1e-5)


def two_of(x: Any, axes: tuple[int, ...]) -> Any:
    """Two reductions of one kernel, one of them exact in every order."""
    return lax.add(lax.reduce_sum(lax.mul(x, x), axes), lax.reduce_max(x, axes))


def by_the_user(x: Any, axes: tuple[int, ...]) -> Any:
    return lax.reduce(x, np.array(-np.inf, x.dtype), weft.numpy.logaddexp, axes)


@pytest.mark.parametrize(
    ("reduce", "dtype"),
    [(lax.reduce_sum, ml_dtypes.bfloat16), (lax.reduce_sum, np.complex64), (lax.reduce_prod, np.float32),
     (two_of, np.float32), (by_the_user, np.float32)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(300, 3, 17), (300, 2, 5, 3)], ids=str)
def test_long_reductions_of_other_kinds(reduce: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    x, axes = drawn(shape, dtype), (0, 2)
    x = x / 2**20 + 1 if reduce is lax.reduce_prod else x
    closed = ladder.traced(lambda x: [reduce(x, axes)], [x])
    (expected,) = ladder.by_reference(closed, [x])
    for found in with_threads(ladder.compiled(closed), [x]):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.float32], ids=lambda d: d.__name__)
def test_long_reductions_that_every_order_gives(dtype: Any) -> None:
    for shape, axis in (((2**21 + 9,), 0), ((70_000, 3), 0)):
        x = (drawn(shape, np.float32) * 1000).astype(dtype)
        kernels = {"max": np.max, "argmin": np.argmin, **({"sum": np.sum} if dtype is np.int32 else {})}
        for name, wanted in kernels.items():
            found = weft.jit(lambda x, name=name, axis=axis: getattr(weft.numpy, name)(x * 1, axis))(x)
            np.testing.assert_array_equal(np.asarray(found), wanted(x, axis).astype(found.dtype))


def test_one_program_at_sizes_with_one_group_and_with_several() -> None:
    x = drawn((2**21 + 190_000,), np.float32)
    x[0] = 4000
    total = weft.jit(lambda x: weft.numpy.sum(x * x))
    for size in (5000, 2**21, 2**21 + 190_000):
        closed = ladder.traced(lambda x: [lax.reduce_sum(lax.mul(x, x), (0,))], [x[:size]])
        np.testing.assert_array_equal(np.asarray(total(x[:size])), ladder.by_reference(closed, [x[:size]])[0])


def test_zeros_and_nan_in_groups_of_blocks() -> None:
    x = np.full((300, 4), -0.0, np.float32)
    for axes in ((0, 1), (0,)):
        found = np.asarray(weft.lax.reduce_sum(np.broadcast_to(x, (300, *x.shape)), (0, *[a + 1 for a in axes])))
        assert not np.signbit(found).any()
    x[270, 2] = np.nan
    assert np.isnan(np.asarray(weft.lax.reduce_sum(x[:, None, :], (0, 2)))).all()


# ---- running combinations

LENGTHS = [0, 1, 63, 64, 65, 255, 256, 257, 319, 320, 321, 8191, 8192, 8193, 9500, 100_003, 3_000_000]
CUMULATIVE = {"cumsum": (np.add, 0), "cumprod": (np.multiply, 1), "cummax": (np.maximum, -np.inf)}


def in_order(name: str, x: np.ndarray, axis: int = 0, reverse: bool = False) -> np.ndarray:
    """By the program of docs/NUMERICS.md."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    rows = np.moveaxis(wide, axis, 0)[:: -1 if reverse else 1]
    combine, identity = CUMULATIVE[name]
    with np.errstate(all="ignore"):
        out = documented("running")(rows, identity, combine)
    return np.moveaxis(out[:: -1 if reverse else 1], 0, axis).astype(x.dtype)


def drawn(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    x = random.standard_normal(shape)
    return (x + 1j * random.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_documented_program_gives_running_sums(length: int, dtype: Any) -> None:
    x = drawn((length,), dtype)
    with weft.enable_x64():
        for reverse in (False, True):
            expected = in_order("cumsum", x, reverse=reverse)
            eager = weft.lax.cumsum(x, reverse=reverse)
            jitted = weft.jit(lambda x, reverse=reverse: weft.lax.cumsum(x * 1, reverse=reverse))(x)
            np.testing.assert_array_equal(np.asarray(eager), expected)
            np.testing.assert_array_equal(np.asarray(jitted), expected)


@pytest.mark.parametrize("name", CUMULATIVE)
@pytest.mark.parametrize(
    "shape", [(3, 5), (1300, 7), (7, 1300), (3, 8500, 2), (40, 600), (2, 3, 520), (600, 40)], ids=str
)
def test_every_axis_is_combined_in_the_documented_order(shape: tuple[int, ...], name: str) -> None:
    x = 1 + drawn(shape, np.float32) / 64
    run = getattr(weft.lax, name)
    for axis in range(len(shape)):
        for reverse in (False, True):
            expected = in_order(name, x, axis, reverse)
            closed = ladder.traced(lambda x, axis=axis, reverse=reverse: [run(x, axis, reverse)], [x])
            program = ladder.compiled(closed)
            for found in (ladder.by_reference(closed, [x]), ladder.by_loops(program, [x])):
                np.testing.assert_array_equal(found[0], expected)
            for found in with_threads(program, [x]):
                np.testing.assert_array_equal(found, expected)
            moved = np.moveaxis(x, 0, -1)
            along = (axis - 1) % len(shape)
            mapped = weft.vmap(lambda x, axis=along, reverse=reverse: run(x, axis, reverse), in_axes=-1, out_axes=-1)
            if axis:
                found = np.moveaxis(np.asarray(weft.jit(mapped)(moved)), -1, 0)
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(700,), (9000,), (7, 700), (700, 19), (2, 300, 3)], ids=str)
def test_running_combinations_that_every_order_gives(shape: tuple[int, ...], dtype: Any) -> None:
    """Integers, which wrap, and extrema, of which the first NaN makes all after it NaN."""
    x = (drawn(shape, np.float32) * 100).astype(dtype)
    if np.dtype(dtype).kind not in "iu":
        x.reshape(-1)[641::97] = np.nan
    else:
        x |= 1  # products of even numbers are soon 0
    names = {"cummax": np.maximum, "cummin": np.minimum, "cumsum": np.add, "cumprod": np.multiply}
    for name in list(names)[: 4 if np.dtype(dtype).kind in "iu" else 2]:
        for axis in range(len(shape)):
            program = ladder.compiled(ladder.traced(lambda x, n=name, a=axis: [getattr(weft.lax, n)(x, a)], [x]))
            with np.errstate(invalid="ignore"):
                expected = names[name].accumulate(x, axis, dtype=dtype).astype(np.float64)
            for found in (*with_threads(program, [x]), *ladder.by_loops(program, [x])):
                np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_only_combinations_whose_order_matters_have_groups() -> None:
    """A group has 2**21 elements."""

    def groups(function: Callable[[Any], Any], dtype: Any = np.float32) -> int:
        text = weft.jit(function).lower(np.ones(3000, dtype)).compile().as_text("llvm")
        return len(re.findall(r"and i64 %\w+, 2097151", text))

    cumsum, cummax = weft.lax.cumsum, weft.lax.cummax
    assert groups(cumsum) > 0
    assert groups(cummax) == groups(cumsum, np.int32) == 0


@pytest.mark.parametrize("length", [63, 64, 65, 3000])
def test_a_running_extremum_of_a_running_sum(length: int) -> None:
    x = drawn((length, 3), np.float32)
    for axis, given in ((0, x), (1, x.T.copy()), (0, x[:, 0].copy())):
        sums = in_order("cumsum", given, axis)
        found = weft.jit(lambda x, axis=axis: weft.lax.cummax(weft.lax.cumsum(x, axis), axis) - x)(given)
        np.testing.assert_array_equal(np.asarray(found), np.maximum.accumulate(sums, axis) - given)


def test_running_sums_join_what_is_around_them() -> None:
    """Fused, of fused operands, one of another, and of the extents of another shape."""
    x, y = drawn((1500, 3), np.float32), drawn((1500, 3), np.float32)

    @weft.jit
    def run(x: Any, y: Any) -> Any:
        first = weft.lax.cumsum(x * y, 0)
        return weft.lax.cumsum(first, 0, reverse=True), first - y, weft.lax.cummax(x * y, 0)

    for rows in (1500, 700, 1025, 200):
        a, b = x[:rows], y[:rows]
        first = in_order("cumsum", a * b)
        expected = in_order("cumsum", first, reverse=True), first - b, in_order("cummax", a * b)
        for turned in (False, True):
            operands = (a.T.copy(), b.T.copy()) if turned else (a, b)
            found = weft.vmap(run, 0, 0)(*[o[..., None] for o in operands]) if turned else run(*operands)
            for one, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(one[..., 0].T if turned else one), wanted)


def test_both_of_two_running_sums_along_rows() -> None:
    x = drawn((3, 9000), np.float32)
    found = weft.jit(lambda x: weft.lax.cumsum(weft.lax.cumsum(x, 1) + 1, 1) * 2)(x)
    expected = in_order("cumsum", in_order("cumsum", x, 1) + np.float32(1), 1) * np.float32(2)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ["cumlogsumexp", "cumprod"])
def test_large_combinations_have_the_same_bits_along_every_axis(name: str, dtype: Any) -> None:
    """What a run begins with is combined by functions of the module; beside another machine's order of exponentials."""
    x = drawn((5, 8400), dtype)
    x = x / np.abs(x) if name == "cumprod" else x
    run = getattr(weft.lax, name)
    along, across = (np.asarray(run(y, axis)) for y, axis in ((x, 1), (x.T.copy(), 0)))
    np.testing.assert_array_equal(along, across.T)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda x: run(x * 1, 1, True)[:, ::-1])(x[:, ::-1])), along)
    exact = x.astype(np.complex128 if dtype is np.complex64 else np.float64)
    wanted = np.cumprod(exact, 1) if name == "cumprod" else np.log(np.cumsum(np.exp(exact), 1))
    np.testing.assert_allclose(np.exp(along) if name == "cumlogsumexp" else along,
                               np.exp(wanted) if name == "cumlogsumexp" else wanted, rtol=2e-4)  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 3e38])
def test_special_values_end_in_the_results_after_them(value: float) -> None:
    for length, at in ((1, 0), (70, 66), (9000, 8200), (300, 10)):
        x = np.zeros(length, np.float32) if value == 0 else drawn((length,), np.float32)
        x[at] = value
        for name in CUMULATIVE:
            for reverse in (False, True):
                expected = in_order(name, x, 0, reverse)
                found = np.asarray(getattr(weft.lax, name)(x, 0, reverse))
                np.testing.assert_array_equal(found, expected)
                if name != "cummax":  # NumPy does not order zeros
                    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_a_loop_in_registers_has_the_order_too() -> None:
    x, steps = drawn((200,), np.float32) / 16, 3
    found = weft.jit(lambda x: weft.lax.fori_loop(0, steps, lambda _, c: weft.lax.cumsum(c) / 8, x))(x)
    expected = x
    for _ in range(steps):
        expected = in_order("cumsum", expected) / np.float32(8)
    np.testing.assert_array_equal(np.asarray(found), expected)

"""The reduction tree: the program of docs/NUMERICS.md, the interpreter's tree and machine code give the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler import ladder
from weft import operations as lax
from weft.core.primitive import registry
from weft.loops import reduction_tree

SHAPES = [(5,), (70,), (20_000,), (3, 70), (300, 5), (2, 3, 40), (1, 1), (600, 3), (3, 4, 5, 6)]


def documented() -> dict[str, Any]:
    """The program in docs/NUMERICS.md."""
    text = (Path(__file__).parents[2] / "docs" / "NUMERICS.md").read_text()
    source = re.search(r"```python\n(.*?)```", text, re.S)
    assert source is not None
    scope: dict[str, Any] = {"np": np, "prod": prod}
    exec(source.group(1), scope)
    return scope


def axes_of(rank: int) -> list[tuple[int, ...]]:
    return [axes for bits in range(1, 1 << rank) if (axes := tuple(d for d in range(rank) if bits >> d & 1))]


@pytest.mark.parametrize("shape", [(5,), (70,), (9000,), (3, 70), (300, 5), (2, 3, 4), (3, 4, 2, 3)])
def test_the_documented_program_is_the_tree(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    written = documented()["reduce"]
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

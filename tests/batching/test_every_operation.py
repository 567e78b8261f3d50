"""vmap of every operation of the sample table beside a Python loop: mapped in front, at the end, in part, twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
from tests.operations import samples

SIZE = 3
# Products, and what is made of them, are summed in another order when they are one product of all elements.
INEXACT = {"dot_general"}


def variants(value: Any) -> np.ndarray:
    """SIZE operands of the type of one, stacked."""
    found = np.asarray(value)
    if found.dtype == np.float64:
        found = found.astype(np.float32)
    elif found.dtype == np.int64:
        found = found.astype(np.int32)
    if found.ndim:
        return np.stack([np.roll(found, k) for k in range(SIZE)])
    step = found.dtype.type(1 if found.dtype.kind in "iufc" else 0)
    return np.stack([found, found + step if step else ~found, found]).astype(found.dtype)


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for operation in samples.ELEMENTWISE:
        function = getattr(lax, operation.name)
        kept = [d for d in operation.dtypes if d.itemsize * (1 if d.kind != "c" else 0.5) <= 4] or operation.dtypes
        dtype = next((d for d in kept if d == np.float32), kept[-1])
        given = tuple(samples.values(operation, dtype, k, 4)[:6].reshape(2, 3) for k in range(operation.operands))
        yield operation.name, function, given
    for name, listed in samples.PROGRAMS.items():
        for number, (program, given) in enumerate(listed):
            if given:
                yield f"{name}-{number}", lambda *args, program=program: program(lax, *args), given


CASES = list(programs())


def assert_equal(found: Any, expected: Any, exact: bool) -> None:
    ours, theirs = weft.tree.leaves(found), weft.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "fcV" and not exact:
            np.testing.assert_allclose(a.astype(np.complex64), b.astype(np.complex64), rtol=1e-5, atol=1e-5)
        elif a.dtype.kind in "biu":
            assert np.array_equal(a, b)
        else:
            np.testing.assert_array_equal(a.astype(np.complex128), b.astype(np.complex128))


def stacked(rows: Sequence[Any]) -> Any:
    return weft.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *rows)


@pytest.mark.parametrize(("name", "function", "given"), CASES, ids=[name for name, *_ in CASES])
def test_vmap_is_a_loop(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    exact = name.split("-")[0] not in INEXACT
    whole = [variants(value) for value in given]
    arrays = [weft.numpy.asarray(value) for value in whole]
    rows = [function(*(x[k] for x in arrays)) for k in range(SIZE)]
    expected = stacked(rows)
    assert_equal(weft.vmap(function)(*arrays), expected, exact)
    if "-" not in name:  # elementwise operations share one rule
        return
    last = [weft.numpy.asarray(np.moveaxis(value, 0, -1)) for value in whole]
    moved = weft.vmap(function, in_axes=-1, out_axes=-1)(*last)
    assert_equal(weft.tree.map(lambda x: np.moveaxis(np.asarray(x), -1, 0), moved), expected, exact)
    twice = [weft.numpy.asarray(np.stack([value, value[::-1]])) for value in whole]
    both = weft.jit(weft.vmap(weft.vmap(function)))(*twice)
    assert_equal(both, stacked([expected, weft.tree.map(lambda x: np.asarray(x)[::-1], expected)]), exact)


PARTLY = [(name, function, given) for name, function, given in CASES if len(given) > 1]


@pytest.mark.parametrize(("name", "function", "given"), PARTLY, ids=[name for name, *_ in PARTLY])
def test_operands_that_are_not_mapped(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    exact = name.split("-")[0] not in INEXACT
    arrays = [weft.numpy.asarray(variants(value)) for value in given]
    for index in range(len(given)):
        operands = [x if k == index else x[1] for k, x in enumerate(arrays)]
        in_axes = tuple([0 if k == index else None for k in range(len(given))])
        rows = [function(*[x[n] if k == index else x for k, x in enumerate(operands)]) for n in range(SIZE)]
        assert_equal(weft.jit(weft.vmap(function, in_axes=in_axes))(*operands), stacked(rows), exact)

"""Samples of gather and scatter: programs whose jaxprs are compared with the oracle's, and calls that must raise."""

from __future__ import annotations

from typing import Any

import numpy as np

A = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
ROWS = np.array([[1], [5]], np.int32)


def rows(lax: Any) -> Any:
    return lax.GatherDimensionNumbers((1, 2), (0,), (0,))


def put_rows(lax: Any) -> Any:
    return lax.ScatterDimensionNumbers((1, 2), (0,), (0,))


def _gathers() -> list[Any]:
    def with_mode(**options: Any) -> Any:
        return lambda lax, x, i: lax.gather(x, i, rows(lax), (1, 3, 2), **options)

    def points(lax: Any, x: Any, i: Any) -> Any:
        return lax.gather(x, i, lax.GatherDimensionNumbers((), (0, 1, 2), (2, 0, 1)), (1, 1, 1))

    def batched(lax: Any, x: Any, i: Any) -> Any:
        return lax.gather(x, i, lax.GatherDimensionNumbers((1,), (1,), (1,), (0,), (0,)), (1, 1, 2), mode="clip")

    found = [(with_mode(), (A, ROWS)), (points, (A, np.zeros((5, 3), np.int8))), (batched, (A, ROWS[:1].repeat(4, 0)))]
    options: list[dict[str, Any]] = [{"mode": "clip", "indices_are_sorted": True, "unique_indices": True}]
    options += [{"mode": "fill"}, {"mode": "fill", "fill_value": 2}, {"mode": "clip", "fill_value": 2}]
    found += [(with_mode(**some), (A, ROWS)) for some in options]
    for dtype in (np.bool_, np.int8, np.int32, np.uint8, np.uint32, np.float16, np.complex64):
        found.append((with_mode(mode="drop"), (A.astype(dtype), ROWS.astype(np.uint8))))
    return found


def _scatters(name: str) -> list[Any]:
    def rows_put(lax: Any, x: Any, i: Any, u: Any) -> Any:
        return getattr(lax, name)(x, i, u, put_rows(lax))

    def with_options(lax: Any, x: Any, i: Any, u: Any) -> Any:
        return getattr(lax, name)(x, i, u, put_rows(lax), mode="clip", unique_indices=True, indices_are_sorted=True)

    def scalar_update(lax: Any, x: Any, i: Any) -> Any:
        return getattr(lax, name)(x, i, 2.0, lax.ScatterDimensionNumbers((), (0, 1, 2), (0, 1, 2)))

    def batched(lax: Any, x: Any, i: Any, u: Any) -> Any:
        return getattr(lax, name)(x, i, u, lax.ScatterDimensionNumbers((1,), (1,), (1,), (0,), (0,)))

    def twice(lax: Any, x: Any, i: Any, u: Any) -> Any:
        return rows_put(lax, rows_put(lax, x, i, u), i, u)

    return [
        (rows_put, (A, ROWS, A[:2])),
        (with_options, (A, ROWS, A[:2])),
        (scalar_update, (A, np.array([0, 1, 1], np.int32))),
        (batched, (A, ROWS[:1].repeat(4, 0), A[:, 0])),
        (twice, (A, ROWS, A[:2])),
        (rows_put, (A.astype(np.int32), ROWS, A[:2].astype(np.int32))),
    ]


def _applied() -> list[Any]:
    def applied(lax: Any, x: Any, i: Any) -> Any:
        return lax.scatter_apply(x, i, lax.sin, put_rows(lax), update_shape=(2, 3, 2))

    def two_steps(lax: Any, x: Any, i: Any) -> Any:
        return lax.scatter_apply(x, i, lambda v: lax.add(lax.mul(v, v), v), put_rows(lax), update_shape=(2, 3, 2))

    return [(applied, (A, ROWS)), (two_steps, (A, ROWS))]


def _taken() -> list[Any]:
    i = np.array([1, -1, 5], np.int32)
    return [
        (lambda lax, x, i: lax.index_take(x, (i,), (0,)), (A, i)),
        (lambda lax, x, i, j: lax.index_take(x, (i, j), (0, 2)), (A, i, i)),
    ]


PROGRAMS: dict[str, list[Any]] = {
    "gather": _gathers() + _taken(),
    "scatter": _scatters("scatter") + _applied(),
    **{f"scatter-{op}": _scatters(f"scatter_{op}") for op in ("add", "sub", "mul", "min", "max")},
}


def _bad_gather(indices: Any, numbers: Any, sizes: Any, operand: Any = A, **options: Any) -> Any:
    def program(lax: Any, x: Any, i: Any) -> Any:
        return lax.gather(x, i, lax.GatherDimensionNumbers(*numbers), sizes, **options)

    return program, (operand, np.zeros(indices, np.int32) if isinstance(indices, tuple) else indices)


def _bad_scatter(indices: Any, updates: Any, numbers: Any, name: str = "scatter_add", **options: Any) -> Any:
    def program(lax: Any, x: Any, i: Any, u: Any) -> Any:
        return getattr(lax, name)(x, i, u, lax.ScatterDimensionNumbers(*numbers), **options)

    i = np.zeros(indices, np.int32) if isinstance(indices, tuple) else indices
    return program, (A, i, np.zeros(updates, np.float32) if isinstance(updates, tuple) else updates)


ERRORS: list[Any] = [
    _bad_gather((5, 1), ((2, 1), (0,), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((1, 1), (0,), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((1, 3), (0,), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((-1, 2), (0,), (0,)), (1, 3, 2)),
    _bad_gather((5, 2), ((1, 2), (0,), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((1, 2), (0,), (3,)), (1, 3, 2)),
    _bad_gather((5, 2), ((1, 2), (0,), (0, 0)), (1, 3, 2)),
    _bad_gather((5, 1), ((1, 2), (0, 0), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((1,), (1, 0), (0,)), (1, 1, 2)),
    _bad_gather((5, 1), ((1, 2), (4,), (0,)), (1, 3, 2)),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (2, 3, 2)),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (1, 4, 2)),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (1, -1, 2)),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (1, 3)),
    _bad_gather((5, 1), ((1,), (0,), (0,)), (1, 3, 2)),
    _bad_gather((), ((0, 1), (0,), (0,)), (1, 3, 2)),
    _bad_gather(np.zeros((5, 1), np.float32), ((1, 2), (0,), (0,)), (1, 3, 2)),
    _bad_gather(np.zeros((5, 1), np.bool_), ((1, 2), (0,), (0,)), (1, 3, 2)),
    _bad_gather((4, 1), ((1,), (1,), (1,), (0,), (1,)), (1, 1, 2)),
    _bad_gather((4, 1), ((1,), (1,), (1,), (0,), (2,)), (1, 1, 2)),
    _bad_gather((5, 1), ((1,), (1,), (1,), (0,), (0,)), (1, 1, 2)),
    _bad_gather((4, 1), ((1,), (1,), (0,), (0,), (0,)), (1, 1, 2)),
    _bad_gather((4, 1), ((1,), (0,), (1,), (0,), (0,)), (1, 1, 2)),
    _bad_gather((4, 1), ((1,), (1,), (1,), (0,), ()), (1, 1, 2)),
    _bad_gather((4, 1), ((1,), (1,), (1,), (0,), (0,)), (2, 1, 2)),
    _bad_gather((4, 3, 1), ((), (2,), (2,), (1, 0), (1, 0)), (1, 1, 1)),
    _bad_gather((4, 3, 1), ((), (2,), (2,), (0, 1), (1, 0)), (1, 1, 1)),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (1, 3, 2), A[:0]),
    _bad_gather((5, 1), ((1, 2), (0,), (0,)), (1, 3, 2), mode="bla"),
    _bad_scatter((5, 1), (5, 4, 2), ((1, 2), (0,), (0,))),
    _bad_scatter((5, 1), (6, 3, 2), ((1, 2), (0,), (0,))),
    _bad_scatter((5, 1), (5, 3), ((1, 2), (0,), (0,))),
    _bad_scatter((5, 1), (5, 3, 2), ((2, 1), (0,), (0,))),
    _bad_scatter((5, 1), (5, 3, 2), ((1, 1), (0,), (0,))),
    _bad_scatter((5, 1), (5, 3, 2), ((1, 3), (0,), (0,))),
    _bad_scatter((5, 2), (5, 3, 2), ((1, 2), (0,), (0,))),
    _bad_scatter((5, 1), (5, 3, 2), ((1, 2), (0,), (3,))),
    _bad_scatter((5, 2), (5, 3, 2), ((1, 2), (0,), (0, 0))),
    _bad_scatter((5, 1), (5, 2), ((1,), (1, 0), (0,))),
    _bad_scatter((5, 1), (5, 3, 2), ((1, 2), (), (0,))),
    _bad_scatter(np.zeros((5, 1), np.float32), (5, 3, 2), ((1, 2), (0,), (0,))),
    _bad_scatter((), (3, 2), ((0, 1), (0,), (0,))),
    _bad_scatter((5, 1), (5, 2), ((1,), (1,), (1,), (0,), (0,))),
    _bad_scatter((4, 1), (4, 2), ((1,), (1,), (0,), (0,), (0,))),
    _bad_scatter((5, 1), np.zeros((5, 3, 2), np.int32), ((1, 2), (0,), (0,))),
    _bad_scatter((5, 1), np.zeros((5, 3, 2), np.float16), ((1, 2), (0,), (0,)), "scatter"),
    _bad_scatter((5, 1), (5, 3, 2), ((1, 2), (0,), (0,)), mode="xx"),
    (
        lambda lax, x, i, u: lax.scatter_add(x, i, u, lax.ScatterDimensionNumbers((1, 2), (0,), (0,))),
        (A > 1, ROWS, A[:2] > 1),
    ),
]

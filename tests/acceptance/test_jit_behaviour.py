"""What jit accepts, refuses, counts and restores is what JAX does: each case runs under both libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy
from weft.errors import AxisError

CASES: dict[str, Callable[[Any, Any], Any]] = {}


def _case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    CASES[function.__name__] = function
    return function


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The value, or the name of the exception's class."""
    try:
        return function(*args)
    except Exception as error:
        return "ValueError" if isinstance(error, AxisError) else type(error).__name__  # JAX: both, by function


@_case
def counts_over_types(lib: Any, np_: Any) -> Any:
    traces = []
    function = lib.jit(lambda x: (traces.append(1), x * 2)[1])
    for x in (
        np_.arange(10.0), np_.arange(10.0), np_.arange(20.0), np_.arange(20), 1, 2, 1.0, True, 1j,
        np.ones(3, np.float32), np_.ones(3), np.ones(3), np.float32(1), np.float64(1), np_.float32(1), np_.array(1),
        np_.array(1.0),
    ):  # fmt: skip
        function(x)
    return len(traces)


@_case
def counts_over_static_arguments(lib: Any, np_: Any) -> Any:
    traces = []

    @functools.partial(lib.jit, static_argnums=(1,), static_argnames="mode")
    def function(x: Any, k: Any, *, mode: str = "a", b: Any = 3) -> Any:
        traces.append(mode)
        return x * k + b

    for args, options in (
        ((1.0, 2), {}), ((1.0, 2), {}), ((1.0, 3), {}), ((1.0,), {"k": 2}), ((1.0, 2), {"mode": "b"}),
        ((1.0, 2), {"mode": "a"}), ((1.0, 2), {"b": 3}), ((1.0, 2), {"b": 4}), ((1.0, 2.0), {}), ((1.0, True), {}),
    ):  # fmt: skip
        function(*args, **options)
    return len(traces)


@_case
def bad_arguments(lib: Any, np_: Any) -> Any:
    same = lib.jit(lambda x: x)
    bad = ["a", object(), np.array([object()]), np.array(["a"]), np.array([1], "datetime64[s]"), 2**40, len, [[], "b"]]
    return [_outcome(same, x) for x in bad] + [float(same(1.0))]


@_case
def bad_options(lib: Any, np_: Any) -> Any:
    wrong: list[dict[str, Any]] = [
        {"static_argnums": 3}, {"static_argnames": "q"}, {"donate_argnames": "zz"}, {"backend": "gpu"},
        {"donate_argnums": 0, "static_argnums": 0},
    ]  # fmt: skip
    return [_outcome(lambda options=options: float(lib.jit(lambda x: x, **options)(1.0))) for options in wrong]


@_case
def bad_shapes_and_axes(lib: Any, np_: Any) -> Any:
    wide, tall = np_.ones((2, 3)), np_.ones((3, 3))
    calls: list[Callable[[], Any]] = [
        lambda: wide + np_.ones(4), lambda: wide * tall, lambda: wide @ wide, lambda: np_.sum(wide, axis=2),
        lambda: np_.sum(wide, axis=(0, 0)), lambda: wide.reshape(4), lambda: np_.concatenate([]),
        lambda: np_.stack([np_.ones(2), np_.ones(3)]), lambda: np_.ones(2, dtype="foo"), lambda: np_.sin([1.0]),
        lambda: np_.add(wide, [1, 2, 3]), lambda: wide + None, lambda: wide << 1, lambda: wide[0, 0, 0],
        lambda: wide["a"],
        lambda: np_.argmax(np_.ones(0)), lambda: np_.transpose(wide, (0, 0)), lambda: np_.array([[1], [2, 3]]),
        lambda: np_.einsum("ij,jk->iz", wide, tall), lambda: lib.lax.add(wide, np_.ones((2, 3), "int32")),
        lambda: -np_.array([True]), lambda: bool(wide), lambda: hash(wide), lambda: lib.lax.slice(wide, (0, 0), (5, 5)),
    ]  # fmt: skip
    return [found if isinstance(found := _outcome(call), str) else "no error" for call in calls]


@_case
def values_needed_while_tracing(lib: Any, np_: Any) -> Any:
    uses: list[Callable[[Any], Any]] = [
        bool, int, float, complex, hash, len, list, range, np.sin, lambda x: x.item(), lambda x: x.tolist(),
        lambda x: [1, 2][x], lambda x: np_.ones(x), lambda x: f"{x:.2f}", lambda x: x.__setitem__(0, 1),
    ]  # fmt: skip
    return [[_outcome(lib.jit(lambda x, use=use: use(x)), value) for value in (1, 1.0)] for use in uses]


@_case
def donation(lib: Any, np_: Any) -> Any:
    tree = {"a": np_.arange(4.0), "b": np_.ones((2, 3))}
    lib.jit(lambda t: {key: value * 2 for key, value in t.items()}, donate_argnums=0)(tree)
    x = np_.arange(3.0)
    lib.jit(lambda *, a: a + 1, donate_argnames="a")(a=x)
    return [value.is_deleted() for value in tree.values()], [
        _outcome(use, x) for use in (lambda v: v + 1, np.asarray, lib.jit(lambda v: v), repr)
    ]


@_case
def failures_leave_no_trace(lib: Any, np_: Any) -> Any:
    failures: list[type[BaseException]] = [ValueError, KeyboardInterrupt, SystemExit, RecursionError]
    found = []
    for failure in failures:
        pending = [failure]

        def inner(x: Any, pending: list[Any] = pending) -> Any:
            if pending:
                raise pending.pop()
            return x + 1

        function = lib.jit(lambda y, inner=inner: lib.jit(inner)(y) * 2)
        with pytest.raises(failure):
            function(1.0)
        found.append((float(function(1.0)), float(np_.sum(np_.ones(3)))))
    return found


@_case
def recursion_and_reentrance(lib: Any, np_: Any) -> Any:
    @functools.partial(lib.jit, static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x, n - 1) * 2

    double = lib.jit(lambda y: y * 2)
    seen = []
    outer = lib.jit(lambda x: (seen.append(_outcome(lambda: float(double(3.0)))), double(x) + 1)[1])
    endless = lib.jit(lambda x: endless(x) + 1)
    return float(power(1.0, 10)), float(outer(1.0)), seen, _outcome(endless, 1.0), float(outer(2.0))


@_case
def compile_time_values_and_disabled_jit(lib: Any, np_: Any) -> Any:
    @lib.jit
    def scaled(x: Any) -> Any:
        with lib.ensure_compile_time_eval():
            count = int(np_.sum(np_.arange(4)))
        return x * count

    absolute = lib.jit(lambda x: -x if x < 0 else x)
    with lib.disable_jit():
        found = [float(absolute(-2.0)), float(scaled(2.0))]
    return found, float(scaled(2.0)), _outcome(absolute, 1.0)


@_case
def leaks(lib: Any, np_: Any) -> Any:
    kept: list[Any] = []
    lib.jit(lambda x: kept.append(x + 1))(1.0)
    with lib.checking_leaks():
        checked = _outcome(lib.jit(lambda x: (kept.append(x), x)[1]), 1.0)
    return _outcome(lambda: kept[0] + 1), _outcome(lib.jit(lambda y: y + kept[0]), 1.0), checked


@_case
def placing_and_getting(lib: Any, np_: Any) -> Any:
    put = lib.device_put({"a": np.ones(2), "b": [3, True, 2.5]})
    got = lib.device_get(put)
    return (
        [(value.weak_type, str(value.dtype)) for value in lib.tree.leaves(put)],
        repr(got),
        [type(value).__name__ for value in lib.tree.leaves(got)],
        [_outcome(lib.device_put, "abc"), _outcome(lib.devices, "tpux"), len(lib.devices()), lib.default_backend()],
    )


@_case
def iteration_is_lazy(lib: Any, np_: Any) -> Any:
    uses: list[Callable[[Any], Any]] = [
        lambda x: [row * 2 for row in x], lambda x: [a + b for a, b in zip(x, x, strict=True)], lambda x: next(iter(x)),
    ]  # fmt: skip
    return [str(lib.make_jaxpr(use)(np.ones((3, 2), np.float32))) for use in uses]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str) -> None:
    assert CASES[name](weft, weft.numpy) == CASES[name](jax, jax.numpy)

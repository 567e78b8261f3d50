"""What weft's uniform functions record at new sizes is written without running them, and is what they would record."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import errors, nn
from weft import operations as lax
from weft.core.jaxpr import subjaxprs
from weft.higher import jit as jit_module
from weft.higher import resize
from weft.numpy import padding, selection, statistics

Program = Callable[..., Any]

# a program of one operand, and the function of weft's that it is about
PROGRAMS: dict[str, tuple[Program, Any]] = {
    "mean": (lambda x: jnp.mean(x), statistics._mean),
    "mean of columns": (lambda x: x.mean(0), statistics._mean),
    "mean with kept dimensions": (lambda x: x.mean((0, -1), keepdims=True), statistics._mean),
    "mean of float16 in float16": (lambda x: jnp.mean(x.astype(jnp.float16), -1, dtype=jnp.float16), statistics._mean),
    "mean of integers": (lambda x: jnp.mean(x.astype(int), 0), statistics._mean),
    "mean where": (lambda x: jnp.mean(x, 0, where=x > 0), statistics._mean),
    "two means": (lambda x: jnp.mean(x, 0).sum() + jnp.mean(x, -1), statistics._mean),
    "variance": (lambda x: jnp.var(x, -1, ddof=1), statistics._var),
    "variance about a mean": (lambda x: jnp.var(x, -1, mean=x.mean(-1, keepdims=True), keepdims=True), statistics._var),
    "variance of bfloat16": (lambda x: jnp.var(x.astype(jnp.bfloat16)), statistics._var),
    "variance of complex numbers": (lambda x: jnp.var(x + 1j * x, -1), statistics._var),
    "variances of two axes": (lambda x: x.var(0).sum() + x.var(-1) + x.var(-1), statistics._var),
    "variance with an extent for ddof": (lambda x: jnp.var(x, 0, ddof=6), statistics._var),
    "variances with equal statistics": (lambda x: jnp.var(x, 0, ddof=1) + jnp.var(x, 0, ddof=1.0), statistics._var),
    "deviation": (lambda x: jnp.std(x, 0, keepdims=True), statistics._std),
    "softmax": (lambda x: nn.softmax(x), nn.normalized._softmax),
    "softmax of columns where": (lambda x: nn.softmax(x, 0, where=x > 0), nn.normalized._softmax),
    "log_softmax": (lambda x: nn.log_softmax(x, where=x > 0), nn.normalized._log_softmax),
    "where": (lambda x: jnp.where(x > 0, x, 2.0), selection._where),
    "where with an extent for a value": (lambda x: jnp.where(x > 0, x, 10.0), selection._where),
    "where with a zero of each sign": (
        lambda x: jnp.where(x > 0, x, 0.0) + jnp.where(x > 0, x, -0.0),
        selection._where,
    ),
    "where of one value twice": (lambda x: jnp.where(x > 0, x, x), selection._where),
    "where with a value of NumPy's": (lambda x: jnp.where(x > 0, x, np.float32(10)), selection._where),
    "where rows are chosen": (lambda x: jnp.where(x[:, :1] > 0, x, 1), selection._where),
    "where of rows": (lambda x: jnp.where(x[:1] > 0, x, x[..., :1] * 2), selection._where),
    "pad": (lambda x: jnp.pad(x, 3), padding._pad_evenly),
    "pad of unlike widths": (lambda x: jnp.pad(x, (1, 4), constant_values=7), padding._pad_evenly),
}
SHAPES = [(6, 10), (8, 12), (10, 10), (12, 6), (1, 10), (6, 1), (1, 1), (0, 10), (6, 0), (2, 3), (3, 2), (70, 1000)]


def text(program: Program, shape: tuple[int, ...]) -> str:
    """The printed program, and the positions of its equations."""
    closed = weft.make_jaxpr(program)(np.ones(shape, np.float32))
    inner = [eqn for jaxpr in subjaxprs(closed.jaxpr) for eqn in jaxpr.eqns]
    return "\n".join(map(str, [closed, *[eqn.source_info for eqn in (*closed.eqns, *inner)]]))


def runs_of(function: Any, call: Callable[[], Any]) -> int:
    """How often the Python of a jitted function runs in a call."""
    code, count = function.__wrapped__.__code__, itertools.count()

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            next(count)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return next(count)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_at_a_new_size_is_the_one_that_running_the_function_gives(name: str) -> None:
    program, _ = PROGRAMS[name]
    expected = {}
    for shape in SHAPES:
        weft.clear_caches()
        expected[shape] = text(program, shape)
    with weft.config.context("check", False):  # which compares them as well
        for first in SHAPES[:5]:
            weft.clear_caches()
            text(program, first)
            assert {shape: text(program, shape) for shape in SHAPES} == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_does_not_run_for_its_second_shape(name: str) -> None:
    program, function = PROGRAMS[name]
    weft.clear_caches()
    with weft.config.context("check", False):
        jitted = weft.jit(lambda x: program(x))
        assert runs_of(function, lambda: jitted(np.ones((6, 10), np.float32))) > 0
        assert runs_of(function, lambda: jitted(np.ones((8, 12), np.float32))) == 0


def test_equal_calls_at_a_new_size_share_one_program() -> None:
    weft.clear_caches()
    text(lambda x: x.var(-1), (6, 10))
    jaxpr = weft.make_jaxpr(lambda x: (x.var(-1), x.var(-1)))(np.ones((8, 12), np.float32)).jaxpr
    first, second = [eqn.params["jaxpr"].jaxpr for eqn in jaxpr.eqns]
    assert first is second


def test_clear_caches_forgets_what_was_recorded() -> None:
    program, function = PROGRAMS["variance"]
    text(program, (6, 10))
    weft.clear_caches()
    assert runs_of(function, lambda: text(program, (8, 12))) > 0


def test_other_options_are_other_calls() -> None:
    program, function = PROGRAMS["mean"]
    weft.clear_caches()
    text(program, (6, 10))
    with weft.enable_x64(True):
        assert runs_of(function, lambda: text(program, (8, 12))) > 0


def declared(function: Program, inline: bool = True) -> Any:
    """``function`` as one of weft's own, marked."""
    own = FunctionType(function.__code__, {**globals(), "__name__": "weft.numpy.statistics"}, function.__name__)
    return functools.partial(jit_module.jit, inline=inline)(resize.uniform(own))


def _twice_the_rows(x: Any) -> Any:
    return lax.mul(x, np.asarray(2 * x.shape[0], np.float32))


def _compares_extents(x: Any) -> Any:
    return lax.sin(x) if x.shape[0] < 7 else lax.cos(x)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "call"])
@pytest.mark.parametrize("function", [_twice_the_rows, _compares_extents])
def test_a_function_that_is_not_uniform_is_found_out_under_check(function: Program, inline: bool) -> None:
    jitted = declared(function, inline)
    weft.make_jaxpr(lambda x: jitted(x))(np.ones((6, 10)))
    with pytest.raises(errors.InternalError, match="not uniform"):
        weft.make_jaxpr(lambda x: jitted(x))(np.ones((8, 10)))


def _cut(x: Any) -> Any:
    return lax.slice(x, (0, 0), (x.shape[0], x.shape[1] - 1))


def _many(x: Any) -> Any:  # the number of all elements, and infinity in float16
    return lax.add(lax.reduce_sum(x, (0, 1)), np.asarray(np.inf, np.float16))


@pytest.mark.parametrize(("function", "shapes"), [(_cut, ((6, 10), (8, 12))), (_many, ((300, 300), (3, 3)))])
def test_a_program_that_sizes_alone_do_not_tell_is_recorded_by_its_function(function: Program, shapes: Any) -> None:
    jitted = declared(function)
    for shape in shapes:
        made = weft.make_jaxpr(lambda x: jitted(x))(np.ones(shape, np.float16))
        assert str(made) == str(weft.make_jaxpr(function)(np.ones(shape, np.float16)))


def test_what_is_known_of_calls_is_freed_without_the_collector() -> None:
    def recipes() -> int:
        return sum(isinstance(x, resize.Recipes) for x in gc.get_objects())

    def call() -> None:
        program = weft.jit(
            lambda x: x.var(0) + jnp.where(x > 0, x, 1.0) + x.std(1, keepdims=True) + jnp.pad(x, 1)[1:-1, 1:-1]
        )
        for n in (3, 4, 5):
            program(np.ones((n, n + 7), np.float32))

    gc.collect()
    gc.disable()
    try:
        call()
        assert recipes() >= 4
        weft.clear_caches()
        assert recipes() == 0
    finally:
        gc.enable()


def layernorm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("program", "most"),
    [
        (layernorm, 600),
        (lambda x: nn.softmax(x), 370),
        (lambda x: jnp.mean(x, axis=1), 350),
        (lambda x: jnp.pad(x, 3), 620),
        (lambda x: x[2:, ::2] * 2, 420),
    ],
    ids=["layernorm", "softmax", "mean", "pad", "slice"],
)
def test_a_second_shape_takes_few_calls_of_python_functions(program: Program, most: int) -> None:
    """Each costs about a microsecond when it is cold, as in a process that has just compiled the first shape."""
    with weft.config.context("check", False):
        assert min(_calls_of_a_second_shape(program) for _ in range(3)) <= most


def _calls_of_a_second_shape(program: Program) -> int:
    """Python functions called. The collector's callbacks are none of the program's: it rests meanwhile."""
    weft.clear_caches()
    counts = itertools.count()
    jitted = weft.jit(lambda x: program(x))
    jitted(np.ones((64, 100), np.float32))
    other = np.ones((80, 120), np.float32)
    built = jitted.cache_info().kernels_built
    gc.collect()
    gc.disable()
    sys.setprofile(lambda frame, event, _: event == "call" and next(counts))
    try:
        jitted(other)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert jitted.cache_info().kernels_built == built
    return next(counts)

"""Typing of every elementwise operation and reduction over every dtype, and the spread of weak types."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import weft.lax as weft_lax
from tests.operations import samples
from weft import config, core, runtime

pytestmark = pytest.mark.oracle


def weft_type(program: Any, avals: list[Any]) -> Any:
    def flat(*tracers: Any) -> list[Any]:
        return runtime.tree_flatten(program(weft_lax, *tracers))[0]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, outs = core.trace_to_jaxpr(flat, avals)
    except (TypeError, ValueError) as error:
        return type(error)
    return [(out.shape, str(out.dtype), out.weak_type) for out in outs]


def jax_type(program: Any, avals: list[Any]) -> Any:
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            closed = jax.make_jaxpr(lambda *xs: program(jax.lax, *xs))(*structs)
    except (TypeError, ValueError) as error:
        return type(error)
    return [(out.shape, str(out.dtype), out.weak_type) for out in closed.out_avals]


@pytest.mark.parametrize("operation", samples.ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_types(operation: samples.Operation) -> None:
    def program(lax: Any, *xs: Any) -> Any:
        return getattr(lax, operation.name)(*xs)

    with config.context("enable_x64", True), jax.enable_x64(True):
        for dtype in samples.ANY:
            avals = [runtime.ShapedArray((2, 4), dtype)] * operation.operands
            found = weft_type(program, avals)
            assert found == jax_type(program, avals), dtype
            assert (dtype in operation.dtypes) == isinstance(found, list)


UNARY_PROGRAMS = {
    **{f"reduce_{n}": lambda lax, x, n=n: getattr(lax, f"reduce_{n}")(x, (0,)) for n in ("sum", "prod", "max", "min")},
    **{f"reduce_{n}": lambda lax, x, n=n: getattr(lax, f"reduce_{n}")(x, (0,)) for n in ("and", "or", "xor")},
    **{n: lambda lax, x, n=n: getattr(lax, n)(x, 0, np.int32) for n in ("argmax", "argmin")},
    **{n: lambda lax, x, n=n: getattr(lax, n)(x) for n in ("cumsum", "cumprod", "cummax", "cummin")},
    **{f"integer_pow_{y}": lambda lax, x, y=y: lax.integer_pow(x, y) for y in (-1, 0, 2)},
    **{f"convert_{d}": lambda lax, x, d=d: lax.convert_element_type(x, d) for d in samples.ANY},
    **{f"bitcast_{d}": lambda lax, x, d=d: lax.bitcast_convert_type(x, d) for d in samples.ANY},
    "reduce_precision": lambda lax, x: lax.reduce_precision(x, 5, 5),
    "iota": lambda lax, x: lax.iota(x.dtype, 3),
    "dot_general": lambda lax, x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))),
    "eq_to": lambda lax, x: lax.eq_to_p.bind(x, x),
    "lt_to": lambda lax, x: lax.lt_to_p.bind(x, x),
    "full_like": lambda lax, x: lax.full_like(x, 1),
    "select": lambda lax, x: lax.select(True, x, x),
    "transpose": lambda lax, x: lax.transpose(x, (1, 0)),
}


@pytest.mark.parametrize("name", UNARY_PROGRAMS)
def test_other_types(name: str) -> None:
    with config.context("enable_x64", True), jax.enable_x64(True):
        for dtype in samples.ANY:
            avals = [runtime.ShapedArray((2, 4), dtype)]
            assert weft_type(UNARY_PROGRAMS[name], avals) == jax_type(UNARY_PROGRAMS[name], avals), dtype


@pytest.mark.parametrize("name", ["pow", "dot_general"])
def test_pairs_of_dtypes(name: str) -> None:
    programs = {
        "pow": lambda lax, x, y: lax.pow(x, y),
        "dot_general": lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))),
    }
    with config.context("enable_x64", True), jax.enable_x64(True):
        for left in samples.ANY:
            for right in samples.ANY:
                avals = [runtime.ShapedArray((2, 4), left), runtime.ShapedArray((2, 4), right)]
                assert weft_type(programs[name], avals) == jax_type(programs[name], avals), (left, right)


WEAK_PROGRAMS = {
    **{
        op.name: lambda lax, *xs, op=op: getattr(lax, op.name)(*xs)
        for op in samples.ELEMENTWISE
        if samples.F32 in op.dtypes
    },
    "select": lambda lax, x, y: lax.select(True, x, y),
    "concatenate": lambda lax, x, y: lax.concatenate([lax.reshape(x, (1,)), lax.reshape(y, (1,))], 0),
    "stack": lambda lax, x, y: lax.stack([x, y]),
    "pad": lambda lax, x, y: lax.pad(x, y, ()),
    "broadcast": lambda lax, x, y: lax.broadcast(x, (3,)),
    "full": lambda lax, x, y: lax.full((2,), x),
    "full_like": lambda lax, x, y: lax.full_like(x, y),
    "full_like_1": lambda lax, x, y: lax.full_like(x, 1),
    "reshape": lambda lax, x, y: lax.reshape(x, (1,)),
    "reduce_sum": lambda lax, x, y: lax.reduce_sum(x, ()),
    "reduce_max": lambda lax, x, y: lax.reduce_max(lax.broadcast(x, (3,)), (0,)),
    "argmax": lambda lax, x, y: lax.argmax(lax.broadcast(x, (3,)), 0, np.int32),
    "cumsum": lambda lax, x, y: lax.cumsum(lax.broadcast(x, (3,))),
    "cummax": lambda lax, x, y: lax.cummax(lax.broadcast(x, (3,))),
    "reduce": lambda lax, x, y: lax.reduce(lax.broadcast(x, (3,)), y, lambda a, b: lax.add(a, b), (0,)),
    "dot_general": lambda lax, x, y: lax.dot_general(x, y, (((), ()), ((), ()))),
    "integer_pow": lambda lax, x, y: lax.integer_pow(x, 2),
    "convert": lambda lax, x, y: lax.convert_element_type(x, np.float32),
    "stop_gradient": lambda lax, x, y: lax.stop_gradient(x),
    "optimization_barrier": lambda lax, x, y: lax.optimization_barrier((x, y)),
    "copy": lambda lax, x, y: lax.copy_p.bind(x),
    "dynamic_slice": lambda lax, x, y: lax.dynamic_slice(lax.broadcast(x, (3,)), (0,), (1,)),
    "gather": lambda lax, x, y: lax.gather(
        lax.broadcast(x, (3,)), np.int32([[0]]), lax.GatherDimensionNumbers((), (0,), (0,)), (1,)
    ),
    "scatter": lambda lax, x, y: lax.scatter(
        lax.broadcast(x, (3,)), np.int32([[0]]), lax.broadcast(y, (1,)), lax.ScatterDimensionNumbers((), (0,), (0,))
    ),
    "dynamic_update_slice": lambda lax, x, y: lax.dynamic_update_slice(
        lax.broadcast(x, (3,)), lax.broadcast(y, (3,)), (0,)
    ),
    "split": lambda lax, x, y: lax.split(lax.broadcast(x, (3,)), (1, 2)),
    "tile": lambda lax, x, y: lax.tile(lax.broadcast(x, (3,)), (2,)),
    "reduce_precision": lambda lax, x, y: lax.reduce_precision(x, 5, 5),
    "bitcast": lambda lax, x, y: lax.bitcast_convert_type(x, np.int32),
    "bitcast_same": lambda lax, x, y: lax.bitcast_convert_type(x, np.float32),
}


@pytest.mark.parametrize("name", WEAK_PROGRAMS)
def test_weak_types(name: str) -> None:
    program = WEAK_PROGRAMS[name]
    counts = {op.name: op.operands for op in samples.ELEMENTWISE}
    for weak in ([True, True, True], [True, False, False], [False, True, True], [False, False, False]):
        flags = weak[: counts.get(name, 2)]
        avals = [runtime.ShapedArray((), np.dtype(np.float32), weak_type=flag) for flag in flags]
        assert weft_type(program, avals) == jax_type(program, avals), flags

"""Schedules: what is decided for each kind of nest on each target, and that parts of a body are the whole body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
import weft.numpy as jnp
from tests.aarch64.programs import nests, traced
from weft._base import target
from weft._base.target import Target
from weft.loops import ir
from weft.loops.schedules import decisions, peeled_regions, schedule_printer
from weft.loops.schedules.lane_loops import LaneLoop

V4, V3, ARM = (target.named(name) for name in ("x86-64-v4", "x86-64-v3", "aarch64"))


def f32(*shape: int) -> Any:
    return jnp.zeros(shape, jnp.float32)


def lines(f: Callable[..., Any], on: Target, *args: Any) -> list[str]:
    """The schedules of the nests of a program."""
    found = [nest for nest in nests(traced(f, args), on) if isinstance(nest, ir.Nest)]
    return [schedule_printer.text(nest, on).removeprefix("schedule: ") for nest in found]


def price(s: Any, k: Any, t: Any, v: Any) -> Any:
    d = (jnp.log(s / k) + (0.03 + 0.5 * v * v) * t) / (v * jnp.sqrt(t))
    return s * weft.lax.erf(d) - k * jnp.exp(-0.03 * t) * weft.lax.erf(d - v)


def heat(u: Any) -> Any:
    return u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


SCHEDULES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "elementwise": (
        lambda x: x + 1,
        (f32(1000),),
        ["lanes i0 x16; 2 in flight, last masked; out1 streamed from 64 MB"],
    ),
    "narrow": (
        lambda x: x + 1,
        (jnp.zeros(1000, jnp.int8),),
        ["lanes i0 x64; 2 in flight, last masked; out1 streamed from 64 MB"],
    ),
    "columns": (
        lambda x: x.sum(0),
        (f32(600, 100),),
        ["lanes i0 x16; 4 in flight, last masked; 16 rows at a time above 256 columns"],
    ),
    "rows": (
        weft.nn.softmax,
        (f32(64, 100),),
        ["lanes i1 x16; loops 2 | 1 | 1 in flight; next row of in0 fetched; out1 streamed from 64 MB"],
    ),
    "positions": (
        lambda x: jnp.argmax(x, 1),
        (jnp.zeros((64, 100), jnp.int8),),
        ["lanes i1 x64; 2 (then positions) in flight, last masked"],
    ),
    "short rows": (
        lambda x: x.sum(1),
        (f32(5000, 6),),
        ["lanes i0 x16; 1 in flight, last masked; blocks of in0 transposed; strides 6 shuffled"],
    ),
    "neighbours": (
        heat,
        (f32(100, 100),),
        ["lanes i1 x16; 2 rows by 2 in flight, last masked; 2 of 4 lines shuffled; out5 streamed from 64 MB"],
    ),
    "transpose": (
        lambda x: x.T * 2,
        (f32(64, 100),),
        ["lanes i1 x16; in0 transposed along i0, blocks of 32 lanes; strides 2 3 4 shuffled; out1 streamed from 8 MB"],
    ),
    "one after the other": (lambda x: jnp.cumsum(x, 1), (f32(64, 100),), ["one by one, 4 side by side"]),
    "one after the other, rounded": (lambda x: jnp.cumsum(x.astype("bfloat16"), 1), (f32(64, 100),), ["one by one"]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_of_each_kind(name: str) -> None:
    f, args, wanted = SCHEDULES[name]
    assert lines(f, V4, *args) == wanted


def test_targets_differ_where_their_facts_do() -> None:
    """Registers for masks: halves. None: single elements, padded copies, stages. Neighbourhoods: what they hold."""
    x = f32(1000)
    assert "in halves" in lines(price, V4, x, x, x, x)[0]
    assert "in halves" not in lines(price, V3, x, x, x, x)[0]
    assert lines(lambda x: x + 1, ARM, x) == ["lanes i0 x4; 2 in flight, last lanes one by one"]
    assert lines(jnp.exp, V3, x) == ["lanes i0 x8; 1 in flight, last on padded copies; out1 streamed from 64 MB"]
    chain = lines(lambda x: jnp.exp(jnp.tanh(x) / 3), ARM, x)[0]
    assert chain.startswith("lanes i0 x4; 1 in flight, last on padded copies; 2 parts over blocks of 512 elements, v")
    wide, narrow = (lines(heat, on, f32(100, 100))[0] for on in (V4, V3))
    assert "2 of 4 lines shuffled" in wide and "0 of 4 lines shuffled" in narrow


def programs() -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    x = f32(1000)
    choice = lambda x: jnp.where(x > 0, jnp.exp(x) * jnp.sin(x), jnp.log(-x))
    return [(price, (x, x, x, x)), (choice, (x,)), *[(f, args) for f, args, _ in SCHEDULES.values()]]


@pytest.mark.parametrize("on", [V4, V3, ARM], ids=lambda on: on.name)
def test_parts_of_a_body_are_the_whole_body(on: Target) -> None:
    """Each statement is in a half (loads may be in both); sides leave none out; values come before their uses."""
    for f, args in programs():
        found = [nest for nest in nests(traced(f, args), on) if isinstance(nest, ir.Nest)]
        for nest in found:
            schedule = decisions.of(nest, on)
            for phase in schedule.nest.phases:
                ordered = flat(peeled_regions.grouped(phase.body, schedule.peeled))
                assert sorted(map(repr, ordered)) == sorted(map(repr, phase.body))
                check_order(ordered, {n for s in (*nest.setup, *phase.before) for n in outs(s)} | earlier(nest, phase))
            for loop in schedule.loops:
                if loop.parts:
                    check_parts(schedule.nest, loop)


def check_parts(nest: ir.Nest, loop: LaneLoop) -> None:
    """Nothing but loads and indices is in two parts; each takes what earlier ones keep; the last one stores."""
    body = [*nest.phases[0].before, *nest.phases[0].body]
    assert {s for part in loop.parts for s in part.statements} == set(body)
    applied = [s for part in loop.parts for s in part.statements if isinstance(s, ir.Apply)]
    assert len(applied) == len(set(applied))
    kept: set[int] = set()
    for part in loop.parts:
        taken = {s.out for s in part.taken}
        assert taken <= kept
        check_order(list(part.statements), taken | {n for s in nest.setup for n in outs(s)})
        assert part is loop.parts[-1] or not any(isinstance(s, ir.Store) for s in part.statements)
        kept |= {s.out for s in part.kept}


def flat(block: peeled_regions.WithRegions) -> list[ir.Statement]:
    return [one for s in block for one in (s.statements if isinstance(s, peeled_regions.PeeledRegion) else (s,))]


def outs(s: ir.Statement) -> tuple[int, ...]:
    return s.outs if isinstance(s, ir.Scan) else (s.out,) if hasattr(s, "out") else ()


def earlier(nest: ir.Nest, phase: ir.Phase) -> set[int]:
    """The values of the phases before."""
    done = nest.phases[: nest.phases.index(phase)]
    values = {n for p in done for s in (*p.before, *p.body) for n in outs(s)}
    return values | {n for p in done for r in p.reductions for n in r.outs}


def check_order(statements: list[ir.Statement], known: set[int]) -> None:
    for s in statements:
        assert known.issuperset(ir.arguments(s))
        known.update(outs(s))


def test_schedules_are_printed_with_the_loops() -> None:
    text = weft.jit(lambda x: x + 1).lower(f32(1000)).compile().as_text("loops") or ""
    assert text.splitlines()[2].startswith("  schedule: lanes i0 x")
    looped = weft.jit(lambda x: weft.lax.fori_loop(0, 10, lambda _, c: c * 0.5 + 1, x))
    assert "lanes at a time" in (looped.lower(f32(1000)).compile().as_text("loops") or "")


def test_models_cover_the_targets() -> None:
    for on in (V4, V3, ARM):
        model = on.model
        assert model.register_bytes >= 4 * on.lanes and model.unrolled < model.twice <= model.pipelined

"""Moves from one spec to another, and the choice between ways of computing, by their bytes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import weft
from tests.partitioning.programs import SIZES
from tests.partitioning.test_programs import both, collectives
from weft import partitioning
from weft.partitioning import choose, moves, propagate
from weft.partitioning.moves import Cut, Exchange, Gather, Sum, SumPart

ENTRIES = [(), ("x",), ("y",), ("x", "y"), ("y", "x")]
SPECS = [
    spec for spec in itertools.product(ENTRIES, repeat=2) if len({*spec[0], *spec[1]}) == len(spec[0]) + len(spec[1])
]


@pytest.mark.parametrize("seed", range(4))
def test_every_move_keeps_the_array(seed: int) -> None:
    """Fifteen pairs of specs, each followed by another: both ways of moving are one program."""
    x = np.arange(128, dtype=np.float32).reshape(16, 8)
    pairs = random.Random(seed).sample(list(itertools.product(SPECS, SPECS)), 15)

    def function(*args: Any) -> Any:
        return args

    args = [x + index for index in range(len(pairs))]
    both(function, args, [old for old, _ in pairs], [new for _, new in pairs])


@pytest.mark.parametrize(
    ("old", "new", "steps", "received"),
    [
        ((("x",), ()), ((), ()), [Gather(0, ("x",))], 64),
        ((("x",), ()), ((), ("x",)), [Exchange(0, 1, "x")], 32),
        (((), ()), (("x", "y"), ()), [Cut(0, ("x", "y"))], 0),
        ((("x", "y"), ()), (("x",), ("y",)), [Exchange(0, 1, "y")], 48),
        ((("x", "y"), ()), (("x",), ()), [Gather(0, ("y",))], 192),
        ((("x",), ()), (("y",), ()), [Gather(0, ("x",)), Cut(0, ("y",))], 64),
        (((), ("x",)), (("y",), ()), [Cut(0, ("y",)), Gather(1, ("x",))], 16),
    ],
)
def test_steps_and_bytes(old: Any, new: Any, steps: Any, received: float) -> None:
    found = moves.moves(old, new)
    assert list(found) == steps
    assert moves.cost(found, 64, SIZES) == received


def test_sums_that_are_cut_are_made_of_parts() -> None:
    assert moves.combined(("x",), "sum", ((), ()), (("x",), ())) == (SumPart(0, ("x",)),)
    assert moves.combined(("x",), "sum", ((), ()), ((), ())) == (Sum(("x",), "sum"),)
    assert moves.combined(("x",), "max", ((), ()), (("x",), ())) == (Sum(("x",), "max"), Cut(0, ("x",)))
    assert moves.cost((Sum(("y",), "sum"),), 64, SIZES) == 96 and moves.cost((SumPart(0, ("y",)),), 64, SIZES) == 48


def product(rows: int, inner: int, columns: int, in_specs: Any, out_spec: Any = None) -> Any:
    closed = weft.make_jaxpr(lambda a, w: a @ w)(np.ones((rows, inner), "f"), np.ones((inner, columns), "f"))
    return partitioning.partition(closed, SIZES, in_specs, [out_spec])


def test_conflicts_are_decided_by_bytes() -> None:
    """Rows and the summed dimension both lie along x: the smaller of the two ways is taken."""
    small = product(512, 16, 16, [("x",), ("x",)])
    assert collectives(small) == [("all_gather", ("x",))]
    assert small.moved[0].aval.shape == (8, 16) and small.moved[0].received == 8 * 16 * 4
    large = product(8, 512, 512, [("x",), ("x",)])
    assert collectives(large) == [("all_to_all", ("x",)), ("psum_scatter", ("x",))]
    assert large.out_specs == small.out_specs == ((("x",), ()),)


def test_a_sum_of_which_each_device_keeps_a_part() -> None:
    made = product(8, 512, 512, [(None, "y"), ("y",)], ("y",))
    assert collectives(made) == [("psum_scatter", ("y",))]


def test_the_larger_value_stays_where_it_is() -> None:
    def function(a: Any, b: Any) -> Any:
        return a @ b

    closed = weft.make_jaxpr(function)(np.ones((64, 8), "f"), np.ones((8, 16), "f"))
    made = partitioning.partition(closed, SIZES, [("x",), (None, "x")])
    assert made.out_specs == ((("x",), ()),)
    closed = weft.make_jaxpr(function)(np.ones((16, 8), "f"), np.ones((8, 64), "f"))
    made = partitioning.partition(closed, SIZES, [("x",), (None, "x")])
    assert made.out_specs == (((), ("x",)),)


def test_equations_are_visited_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Propagation is linear: three visits an equation are enough, however long the program is."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(60):
            x = weft.numpy.tanh(x @ w) + x
        return x

    visits = []
    visit = propagate._visit
    monkeypatch.setattr(propagate, "_visit", lambda *args: visits.append(1) or visit(*args))
    chosen = []
    original = choose._choice
    monkeypatch.setattr(choose, "_choice", lambda *args: chosen.append(1) or original(*args))
    closed = weft.make_jaxpr(function)(np.ones((16, 8), "f"), np.ones((8, 8), "f"))
    partitioning.partition(closed, SIZES, [("x",), (None, "y")])
    assert len(visits) <= 3 * len(closed.jaxpr.eqns)
    assert len(chosen) <= 40  # equations alike are decided once


def test_values_that_only_pass_a_barrier_together_are_cut_apart() -> None:
    """A checkpoint's operands pass one barrier: batch, weights and cotangent, which may be cut along one axis each."""

    def step(w: Any, x: Any) -> Any:
        return weft.grad(weft.checkpoint(lambda w, x: weft.numpy.sum(weft.numpy.tanh(x @ w))), (0, 1))(w, x)

    given = [np.linspace(0, 1, 64, dtype="f").reshape(8, 8), np.linspace(0, 1, 256, dtype="f").reshape(32, 8)]
    assert collectives(both(step, given, [None, ("x",)])) == [("psum", ("x",))]
    fsdp = collectives(both(step, given, [("x",), ("x",)], [("x",), ("x",)]))
    assert fsdp == [("all_gather", ("x",)), ("psum_scatter", ("x",))]
    closed = weft.make_jaxpr(lambda a, b: weft.lax.optimization_barrier((a, b)))(*given)
    made = partitioning.partition(closed, SIZES, [("x",), (None, "x")])
    assert made.out_specs == ((("x",), ()), ((), ("x",)))
    assert not made.moved

"""Random programs: every rung of the oracle ladder gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler import ladder
from tests.compiler.random_programs import INDEXED, Generator
from weft import config, core
from weft._base.record import Record
from weft.compiler import pipeline
from weft.compiler.checks import verify
from weft.core.caches.store import PROGRAMS
from weft.core.symbolic.sizes import is_sized

SEEDS = [*range(60), 6814]


def agree(left: np.ndarray, right: np.ndarray, exact: bool) -> bool:
    """Equal up to the sign of zeros (NumPy's max of -0.0 and 0.0 is either); products only closely."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if exact:
        return bool(np.all((left == right) | (np.isnan(left) & np.isnan(right))))
    return np.allclose(left, right, 1e-4, 1e-4, equal_nan=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_rung_gives_the_same(seed: int) -> None:
    check(Generator(seed, 12 if seed % 3 else 30), seed % 4 == 0)


@pytest.mark.parametrize("seed", range(200, 260))
def test_every_rung_of_indexed_programs_gives_the_same(seed: int) -> None:
    check(Generator(seed, 6 if seed % 3 else 16, INDEXED), seed % 4 == 0)


def check(generator: Generator, eagerly: bool) -> None:
    args = generator.inputs()
    closed = ladder.traced(generator.program, args)
    program = ladder.compiled(closed)
    verify.verify("passes", closed, core.ClosedJaxpr(program.jaxpr))
    exact = not any(equation.primitive.name == "dot_general" for equation in closed.jaxpr.eqns)
    reference = ladder.by_reference(closed, args)
    machine = ladder.by_machine_code(program, args)
    for name, outs in (("loops", ladder.by_loops(program, args)), ("machine code", machine)):
        for index, (out, expected) in enumerate(zip(outs, reference, strict=True)):
            assert agree(out, expected, exact), f"{name}: result {index}\n{program.text('kernel')}"
    if exact and eagerly:
        for index, (out, expected) in enumerate(zip(ladder.by_eager(closed, args), machine, strict=True)):
            assert verify.same_bits(out, expected), f"eager: result {index}\n{program.text('kernel')}"


@pytest.mark.parametrize("seed", range(100, 130))
def test_donation_changes_no_answer(seed: int) -> None:
    generator = Generator(seed, 20, INDEXED if seed % 2 else None)
    args = generator.inputs()
    closed = ladder.traced(generator.program, args)
    plain, donating = ladder.compiled(closed), ladder.compiled(closed, (True,) * len(args))
    given = ladder.arrays(args)
    outs = donating.executable.run(given, [True] * len(given))
    for out, expected in zip(outs, ladder.by_machine_code(plain, args), strict=True):
        assert verify.same_bits(np.asarray(out), expected), donating.text("plan")


@pytest.mark.parametrize("seed", [*range(300, 312), 6814])
def test_other_sizes_give_the_same(seed: int) -> None:
    """Programs whose numbers are computed from those of another size, beside the reference at each size."""
    operations = INDEXED if seed % 3 == 0 else None
    with config.context("check", False):
        function = list[Any]()
        jitted = weft.jit(lambda *args: function[0](*args))
        for sizes in ((3, 5, 7), (3, 6, 7), (4, 5, 9), (2, 5, 17), (30, 5, 7), (3, 5, 64)):
            generator = Generator(seed, 10, operations)
            generator.shapes = [tuple([{3: sizes[0], 5: sizes[1], 7: sizes[2]}.get(n, n) for n in shape])
                                for shape in generator.shapes]  # fmt: skip
            args = generator.inputs()
            closed = ladder.traced(generator.program, args)
            function[:] = [generator.program]
            exact = not any(equation.primitive.name == "dot_general" for equation in closed.jaxpr.eqns)
            for out, expected in zip(jitted(*args), ladder.by_reference(closed, args), strict=True):
                assert agree(np.asarray(out), expected, exact), f"at {sizes}: {closed}"
    for program in PROGRAMS.entries.values():
        if type(program) is pipeline.Program:
            assert not any(_holds_sizes(nest) for nest in program.nests()), program.text("loops")


def _holds_sizes(value: object) -> bool:
    """Whether a number in a nest follows from sizes: machine code has none in it."""
    if isinstance(value, Record):
        value = tuple([getattr(value, name) for name in type(value)._fields])
    return any(map(_holds_sizes, value)) if isinstance(value, tuple | list) else is_sized(value)

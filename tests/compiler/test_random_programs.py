"""Random programs: every rung of the oracle ladder gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler import ladder
from tests.compiler.random_programs import INDEXED, Generator
from weft import core
from weft.compiler import verify

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

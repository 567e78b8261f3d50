"""Random programs of all dtypes, of sizes from 0, under ``vjp``, ``jvp`` and ``vmap``: ``jit`` gives eager's bits."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import grown_programs

COUNT = int(os.environ.get("WEFT_FUZZ_EXAMPLES", 0)) or 40


@pytest.mark.parametrize("first", range(0, COUNT, 40))
def test_random_programs_of_all_dtypes(first: int) -> None:
    told = [grown_programs.run_one(seed) for seed in range(first, min(first + 40, COUNT))]
    assert not [text for text in told if text is not None and "refused: " not in text]


def test_a_finding_is_a_program_that_runs_by_itself() -> None:
    program = grown_programs.grow(11)
    assert program.steps and program.repro().count("\n") == len(program.steps) + 2
    compile(program.source(), "program", "exec")

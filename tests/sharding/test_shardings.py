"""Meshes, shardings, arrays and programs on 8 virtual devices beside JAX: values as text, and classes of errors.

Expressions are evaluated by two processes, one with each library. Where both raise, the classes are compared; the first
error of a kind is compared in words by ``tests/dispatch/test_shardings.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sharding import sharding_cases

ROOT = Path(__file__).parents[2]
CASES = [(group, number) for group in sharding_cases.GROUPS for number in range(len(sharding_cases.cases(group)))]
# Where weft differs on purpose: what it says instead, and why.
DIFFERENCES = {
    # JAX has an IndexError of its own code here
    "S(mesh, P('x')).shard_shape(())": "ValueError",
    # JAX has a KeyError of its own code here
    "auto_axes(lambda v: v.T @ v, axes='z', out_sharding=P())(x)": "ValueError",
    # the compiler is free to choose: JAX gathers the gradient along x
    "jax.grad(lambda v: (v * v).sum())(xs).sharding, jax.jit(jax.grad(lambda v: (v @ v.T).sum()))(xs).sharding":
        "spec=P('x', 'y'), memory_kind=device), NamedSharding",
}  # fmt: skip

Found = dict[str, dict[str, list[str]]]
ERRORS = (
    ("x + c", ("[add]", "operand 0 lies along 'x' where operand 1 lies along 'y'", "f32[8@x,4@y]", "f32[8@y,4@x]")),
    ("jnp.dot(k.T, k)", ("[dot_general]", "ambiguous", "`out_sharding`", "f32[16@x,8]")),
    ("jnp.cumsum(x, 0)", ("[cumsum]", "dimension 0 of operand 0 lies along 'x'", "all of it")),
    ("x[:3]", ("extent 3", "4 equal parts")),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, chosen: Any) -> Found:
    """What each library says of the expressions of the cases that run, by group and number."""
    folder = tmp_path_factory.mktemp("shardings")
    wanted = {f"{params['group']}-{params['number']}" for params in chosen(test_as_in_jax)}
    wanted |= {f"explicit-{sharding_cases.cases('explicit').index(expression)}" for expression, _ in ERRORS}
    program = ROOT / "tests" / "sharding" / "sharding_cases.py"
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **devices, "PYTHONPATH": str(ROOT)}
    running = {
        name: subprocess.Popen(
            [sys.executable, str(program), name, str(folder / name), *sorted(wanted)], env=environment
        )
        for name in ("weft", "jax")
    }
    try:
        assert [process.wait(timeout=240) for process in running.values()] == [0, 0]
    finally:
        for process in running.values():
            process.kill()
    return {name: json.loads((folder / name).read_text()) for name in running}


@pytest.mark.oracle
@pytest.mark.parametrize(("group", "number"), CASES, ids=[f"{group}-{number}" for group, number in CASES])
def test_as_in_jax(found: Found, group: str, number: int) -> None:
    expression = sharding_cases.cases(group)[number]
    mine, expected = (found[library][f"{group}-{number}"] for library in ("weft", "jax"))
    if expression in DIFFERENCES:
        assert DIFFERENCES[expression] in mine[1], expression
        assert mine != expected, f"{expression} is no difference any more"
    elif expected[0] == "error":
        assert mine[:2] == expected[:2], (expression, mine, expected)
    else:
        assert mine == expected, expression


def test_errors_of_explicit_mode_say_what_lies_how_and_the_ways_out(found: Found) -> None:
    cases = sharding_cases.cases("explicit")
    for expression, words in ERRORS:
        text = found["weft"][f"explicit-{cases.index(expression)}"][2]
        for word in (*words, "Ways out", "reshard", "auto_axes"):
            assert word in text, (expression, word, text)

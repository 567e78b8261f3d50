"""What a function reads and does, found from its bytecode: on every Python the same, and never an exception."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dis
import functools
import inspect
import json.decoder
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
import weft.numpy as wnp
from weft.dispatch import code_facts

MODULES = (argparse, ast, functools, inspect, json.decoder, types, typing)
analysed = pytest.mark.skipif(sys.version_info >= (3, 14), reason="nothing is shared on this Python")


def code_of(module: types.ModuleType) -> Iterator[types.CodeType]:
    """All code of a module's source file, nested code included."""
    source = inspect.getsource(module)
    pending = [compile(source, module.__name__, "exec")]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))


@analysed
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_instructions_are_those_of_dis(module: types.ModuleType) -> None:
    skipped = ("CACHE", "EXTENDED_ARG")
    for code in code_of(module):
        expected = [ins for ins in dis.get_instructions(code) if ins.opname not in skipped]
        found = code_facts.instructions_of(code)
        assert [(ins.offset, ins.name) for ins in found] == [(ins.offset, ins.opname) for ins in expected]
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.arg == (theirs.arg or 0) or theirs.arg is None
            if mine.value is not None and "SUPER" not in mine.name:
                assert mine.value == theirs.argval or mine.value != mine.value, (code, theirs)
        code_facts.facts_of(code)


def comprehension(xs):
    return [x.a for x in xs if x] + [OFFSET for _ in xs]


def nested(x):
    def inner(y):
        return y * OFFSET

    return inner(wnp.sin(x))


def two_locals(x, y):
    return wnp.add(x, y) * wnp.multiply(*(x, y), **KEYWORDS)


def keywords(x):
    return wnp.sum(x, axis=0, keepdims=True)


def slices(x):
    return x[1:2] + wnp.concatenate([x, *x])[::2]


def formatted(x):
    if x is None:
        raise ValueError(f"{x!r:>{OFFSET}}")
    return +x


def loops(x):
    total = 0
    for i in range(OFFSET):
        total = total + i if i > 1 else x
    with contextlib.suppress(ValueError):
        return total


OFFSET = 3
KEYWORDS: dict[str, Any] = {}


@analysed
@pytest.mark.parametrize(
    ("function", "reads", "loose"),
    [
        (comprehension, {("OFFSET", False)}, True),
        (nested, {("OFFSET", False), ("wnp.sin", True)}, False),
        (two_locals, {("wnp.add", True), ("wnp.multiply", True), ("KEYWORDS", False)}, False),
        (keywords, {("wnp.sum", True)}, False),
        (slices, {("wnp.concatenate", True)}, False),
        (formatted, {("OFFSET", False), ("ValueError", True)}, False),
        (loops, {("OFFSET", False), ("range", True), ("contextlib.suppress", True), ("ValueError", False)}, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_reads(function: Callable[..., Any], reads: set[tuple[str, bool]], loose: bool) -> None:
    facts = code_facts.facts_of(function.__code__)
    assert facts.refusal is None
    assert {(str(read), read.called) for read in facts.reads} == reads
    assert (facts.loose_attribute is not None) == loose


def shadowing(value: Any) -> Callable[..., Any]:
    """A comprehension's variable has the name of a closure variable, and is itself read by nested functions."""

    def f(x):
        late = [value() for value in [(lambda: value) for value in (1, 2)] if value]  # noqa: B023 - a cell bound late is what is tested
        return x * sum(late) + outside()

    def outside():
        return value

    return f


def shadowing_at_once(value: Any) -> Callable[..., Any]:
    def f(x):
        first = value
        return x * first + sum([(lambda: value)() for value in (1, 2)])

    return f


@pytest.mark.parametrize("make", [shadowing, shadowing_at_once], ids=lambda make: make.__name__)
def test_comprehension_variables_that_shadow_closure_variables(make: Callable[..., Any]) -> None:
    for value in (1.0, 2.0, 1.0, 5.0):
        assert weft.jit(make(value))(2.0) == make(value)(2.0)


def test_an_unknown_instruction_refuses_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return -x

    code_facts.forget()
    monkeypatch.setattr(code_facts, "_ACCEPTED", code_facts._ACCEPTED - {"UNARY_NEGATIVE"})
    try:
        refusal = code_facts.facts_of(f.__code__).refusal
    finally:
        code_facts.forget()
    assert refusal is not None
    assert weft.jit(f)(2.0) == -2.0


def test_an_unknown_python_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return x * 2

    code_facts.forget()
    monkeypatch.setattr(code_facts, "_ANALYSED", False)
    try:
        assert "is not analysed" in str(code_facts.facts_of(f.__code__).refusal)
        assert weft.jit(f)(2.0) == 4.0
    finally:
        code_facts.forget()

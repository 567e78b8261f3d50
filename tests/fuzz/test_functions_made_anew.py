"""Random function objects made anew give what their Python gives now, whatever was traced and compiled before.

Functions of many shapes over values of all kinds (globals that change, closures, partials, jitted callables, Arrays)
are called jitted and as they are; the results must have the same bits. Many of them are the same program.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import compiler

OFFSET: Any = 1.0
SCALE: Any = 2.0


def offset(x):
    return x + OFFSET


def offset_and_scale(x):
    return offset(x) * SCALE


def times(value):
    return lambda x: x * value


ARRAYS = [wnp.full(3, float(i)) for i in range(3)]
NUMBERS = [True, False, 0, 1, 2, 1.0, 2.0, 0.0, -0.0, 3.5, ARRAYS[1], np.float32(2)]
FUNCTIONS = [wnp.sin, wnp.cos, wnp.negative, offset, offset_and_scale]
TEXTS = [None, "a", "ab", "cd", b"ab", (1, 2), (1,)]


def new_function(rng: random.Random) -> Callable[..., Any]:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(FUNCTIONS)
    if kind == 1:
        return times(rng.choice(NUMBERS))
    if kind == 2:
        return functools.partial(lambda a, x: x * a, rng.choice(NUMBERS))
    if kind == 3:
        return weft.jit(times(rng.choice(NUMBERS)))
    if kind == 4:
        return (lambda c: lambda x: x + c)(rng.choice(ARRAYS))
    inner = new_function(rng)
    return lambda x: inner(x) + 1


def default(value):
    return lambda x, u=value: x * u


def comprehension(g, value):
    return lambda x: sum([a * value for a in (x, g(x))])


def composition(functions):
    return lambda x: functions[0](functions[1](x))


def text(s):
    return lambda x: x if s is None else x * len(s) + (1 if s == "ab" else 2)


def loop(g):
    def f(x):
        for _ in range(2):
            x = g(x)
        return x.sum() + x.T

    return f


def new_program(rng: random.Random) -> Callable[..., Any]:
    return rng.choice(
        [
            lambda: times(rng.choice(NUMBERS)),
            lambda: default(rng.choice(NUMBERS)),
            lambda: comprehension(new_function(rng), rng.choice(NUMBERS)),
            lambda: composition((new_function(rng), new_function(rng))),
            lambda: text(rng.choice(TEXTS)),
            lambda: loop(new_function(rng)),
        ]
    )()


def test_new_functions_give_what_their_python_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    x = wnp.arange(3.0) + 1
    before = compiler.stats()["programs_reused"]
    for _ in range(500):
        if rng.random() < 0.05:
            monkeypatch.setitem(globals(), "OFFSET", rng.choice([1.0, 2.0, 1, True, ARRAYS[0]]))
        if rng.random() < 0.05:
            monkeypatch.setitem(globals(), "SCALE", rng.choice([1.0, 2.0, 3]))
        f = new_program(rng)
        got, expected = np.asarray(weft.jit(f)(x)), np.asarray(f(x))
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()
    assert compiler.stats()["programs_reused"] - before > 100

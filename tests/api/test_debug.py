"""Prints and callbacks of compiled programs: once per execution, with the values of that execution."""

from __future__ import annotations

import pytest

import weft
import weft.numpy as wnp


def test_print_shows_values_at_every_execution(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.jit
    def f(x):
        weft.debug.print("x={x} {}", 3, x=x)
        return x + 1

    for value in (1.0, 2.0, 3.0):
        f(value).block_until_ready()
    assert capsys.readouterr().out == "x=1.0 3\nx=2.0 3\nx=3.0 3\n"
    assert f.cache_info().traces == 1
    weft.debug.print("{:.3f} {t} {d}", wnp.float32(1.23456), t="text", d={"a": wnp.ones(2)})
    assert capsys.readouterr().out == "1.235 text {'a': Array([1., 1.], dtype=float32)}\n"
    with weft.disable_jit():
        f(5.0)
    assert capsys.readouterr().out == "x=5.0 3\n"


def test_prints_keep_their_order_and_are_never_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.jit
    def f(x):
        for number in range(3):
            weft.debug.print("same")
            weft.debug.print(f"{number}: {{}}", x * number, ordered=True)

    f(wnp.ones(2))
    weft.effects_barrier()
    assert capsys.readouterr().out == "same\n0: [0. 0.]\nsame\n1: [1. 1.]\nsame\n2: [2. 2.]\n"


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda: weft.debug.print("{y}", x=1), KeyError),
        (lambda: weft.debug.print("{} {}", 1), IndexError),
        (lambda: weft.debug.print(3), TypeError),
        (lambda: weft.debug.print("{x}", 1, x=2), ValueError),
        (lambda: weft.debug.print("{}", 1, x=2), ValueError),
        (lambda: weft.debug.callback(3), TypeError),
        (lambda: weft.debug.breakpoint(), RuntimeError),
    ],
)
def test_wrong_use(attempt, error: type[Exception]) -> None:
    with pytest.raises(error):
        attempt()


def test_callback_gets_arrays_and_keywords() -> None:
    seen = []

    @weft.jit
    def f(x):
        weft.debug.callback(lambda v, k, n: seen.append((float(v.sum()), k, n)), x * 2, k="s", n=None)
        return x

    f(wnp.ones(3)).block_until_ready()
    f(wnp.zeros(3)).block_until_ready()
    weft.effects_barrier()
    assert seen == [(6.0, "s", None), (0.0, "s", None)]


def test_inner_calls_have_their_effects(capsys: pytest.CaptureFixture[str]) -> None:
    inner = weft.jit(lambda x: (weft.debug.print("in {}", x), x + 1)[1])
    weft.jit(lambda x: inner(inner(x)))(1.0).block_until_ready()
    assert capsys.readouterr().out == "in 1.0\nin 2.0\n"

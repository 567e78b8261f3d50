"""debug.print in all its forms beside JAX's, debug.log, debug.breakpoint at a terminal and without one."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

PRINTS = {
    "plain": "m.debug.print('text')",
    "positional": "m.debug.print('{} and {}', x, x[1])",
    "named": "m.debug.print('{a:.3f} {b}', a=x[1], b=x)",
    "numbered": "m.debug.print('{1} {0}', x[0], x[1])",
    "braces": "m.debug.print('{a} {{}}', a=x[0])",
    "attributes": "m.debug.print('{a.shape} {b[0]} {c!r}', a=x, b=[x, 1], c='s')",
    "nested": "m.debug.print('{v:{w}.{p}f}', v=x[1], w=8, p=2)",
    "static": "m.debug.print('{} {} {}', None, 'text', x[2])",
    "tree": "m.debug.print('{d}', d={'a': x[0], 'b': (1, x[1])})",
    "two_calls": "m.debug.print(ordered=True)('{x}', x=x)",
    "ordered": "[m.debug.print('{}', v, ordered=True) for v in x]",
    "partitioned": "m.debug.print('{}', x, partitioned=False)",
    "unchecked": "m.debug.print('text', x[0], skip_format_check=True)",
    "scan": "lax.scan(lambda c, v: (m.debug.print('{} {}', c, v), (c + v, None))[1], 0.0, x)[0]",
    "while": "lax.while_loop(lambda s: s < 3, lambda s: (m.debug.print('at {:.1f}', s), s + 1)[1], x[0])",
    "cond": "lax.cond(x[1] > 0, lambda v: (m.debug.print('yes {}', v), v)[1], lambda v: v, x[1])",
    "vmap": "m.vmap(lambda v: (m.debug.print('{}', v), v * 2)[1])(x)",
    "vmap_two": "m.vmap(lambda v, w: m.debug.print('{} {}', v, w), (0, None))(x, x[1])",
    "grad": "m.grad(lambda v: (m.debug.print('{}', v), v ** 2)[1])(x[1])",
    "vmap_grad": "m.vmap(m.grad(lambda v: (m.debug.print('{}', v), v ** 2)[1]))(x)",
    "jit": "m.jit(lambda v: (m.debug.print('inner {}', v), v)[1])(x)",
}
WRONG = {
    "missing": (lambda m: m.debug.print("{y}", x=1), KeyError),
    "too few": (lambda m: m.debug.print("{} {}", 1), IndexError),
    "too many": (lambda m: m.debug.print("{}", 1, 2), ValueError),
    "unused": (lambda m: m.debug.print("{}", 1, x=2), ValueError),
    "f-string": (lambda m: m.debug.print("3.0", x=2), ValueError),
    "no text": (lambda m: m.debug.print(3), TypeError),
    "two calls": (lambda m: m.debug.print(x=1), TypeError),
    "unclosed": (lambda m: m.debug.print("{", 1), ValueError),
    "specification": (lambda m: m.debug.print("{x:d}", x=1.5), ValueError),
}


def printed(name: str, text: str, jitted: bool, capsys: pytest.CaptureFixture[str]) -> str:
    m, numpy = (weft, jnp) if name == "weft" else (jax, jax.numpy)
    function = eval(f"lambda x: {text}", {"m": m, "lax": lax if m is weft else jax.lax})
    jax.tree.map(np.asarray, (m.jit(function) if jitted else function)(numpy.arange(3.0)))
    m.effects_barrier()
    return capsys.readouterr().out


@pytest.mark.oracle
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PRINTS)
def test_prints_what_jax_prints(name: str, jitted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    ours = printed("weft", PRINTS[name], jitted, capsys)
    assert ours == printed("jax", PRINTS[name], jitted, capsys)
    assert ours


@pytest.mark.oracle
@pytest.mark.parametrize("name", WRONG)
def test_wrong_formats_raise_at_once_as_in_jax(name: str) -> None:
    attempt, error = WRONG[name]
    for m in (weft, jax):
        with pytest.raises(error):
            attempt(m)


@pytest.mark.oracle
def test_programs_print_as_jax_s() -> None:
    def program(m: Any) -> Any:
        return lambda x: (m.debug.print("{} {a}", x, a=1, ordered=True), m.debug.print("text"), x)[2]

    assert str(weft.make_jaxpr(program(weft))(1.0)) == str(jax.make_jaxpr(program(jax))(1.0))


def test_options_of_numpy_at_the_call_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with np.printoptions(precision=2):
        f = weft.jit(lambda x: weft.debug.print("{}", x))
        f(jnp.asarray([1.23456]))
    weft.effects_barrier()
    assert capsys.readouterr().out == "[1.23]\n"


def test_log_goes_to_the_logger_with_the_user_s_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "weft.debug"):
        weft.jit(lambda x: weft.debug.log("value {}", x))(3.0)
        weft.effects_barrier()
    (record,) = caplog.records
    assert record.getMessage() == "value 3.0" and record.pathname == __file__


# -- breakpoint -------------------------------------------------------------------------------------------------------


def session(commands: str, run: Any) -> str:
    out = io.StringIO()
    run({"stdin": io.StringIO(commands), "stdout": out})
    weft.effects_barrier()
    return out.getvalue()


def test_a_breakpoint_shows_traced_variables_and_frames() -> None:
    def run(streams: dict[str, object]) -> None:
        @weft.jit
        def f(x, n):
            tree = {"double": x * 2}

            def inner(y):
                weft.debug.breakpoint(**streams)
                return y

            return inner(tree["double"]) + n

        assert float(f(1.5, 2)) == 5.0

    text = session("y\nu\nx\ntree['double'] + 1\n[n for _ in range(2)]\nnope\nw\nl\nd\nd\na\npp y\nhelp\nc\n", run)
    for expected in (
        "Array(3., dtype=float32)", "Array(1.5, dtype=float32)", "Array(4., dtype=float32)",
        "[Array(2, dtype=int32), Array(2, dtype=int32)]", "*** NameError: name 'nope' is not defined", "in inner",
        "weft.debug.breakpoint(**streams)", "At bottommost frame.", "y = Array(3., dtype=float32)",
        "Documented commands",
    ):  # fmt: skip
        assert expected in text, expected


def test_a_breakpoint_in_a_loop_stops_at_every_step_and_passes_a_token() -> None:
    def run(streams: dict[str, object]) -> None:
        def step(s, v):
            weft.debug.breakpoint(**streams)
            return s + v, None

        assert float(lax.scan(step, 0.0, jnp.arange(3.0))[0]) == 3.0

    text = session("s, v\nc\n" * 3, run)
    assert re.findall(r"Array\((.*?), dtype", text) == ["0.", "0.", "0.", "1.", "1.", "2."]

    def with_token(streams: dict[str, object]) -> None:
        y = weft.jit(lambda x: weft.debug.breakpoint(token={"a": x}, **streams)["a"] * 2)(4.0)
        assert float(y) == 8.0

    assert "Array(4., dtype=float32" in session("x\nc\n", with_token)
    with pytest.raises(SystemExit):
        session("x\n", with_token)


def test_wrong_breakpoints() -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        weft.debug.breakpoint(token=jnp.ones(1), ordered=True)
    with pytest.raises(ValueError, match="backend='web'"):
        weft.debug.breakpoint(backend="web")
    with pytest.raises(TypeError, match="unknown arguments"):
        weft.debug.breakpoint(colour=True)


SHAPES = [(4, 4), (3, 5), (5, 3), (2, 3), (10, 11), (100, 1), (2, 8), (1,), (7,)]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "options", [{}, {"scale": 0.5}, {"scale": 2.0}, {"scale": 0.1, "min_width": 1}, {"max_width": 12}]
)
def test_pictures_of_shardings_are_jax_s(options: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for shape in SHAPES:
        pictures = []
        for module, array in ((weft, jnp.ones(1)), (jax, jax.numpy.ones(1))):
            module.debug.visualize_sharding(shape, array.sharding, use_color=False, **options)
            pictures.append([line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()])
        assert pictures[0] == pictures[1], shape


def test_shardings_can_be_inspected_while_tracing(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        weft.debug.inspect_array_sharding(x, callback=seen.append)
        return x * 2

    x = jnp.ones(2)
    f(x)
    jitted = weft.jit(f)
    jitted(x)
    jitted(x)
    weft.grad(lambda x: f(x).sum())(x)
    weft.vmap(f)(x)
    assert seen == [x.sharding] * 4
    weft.jit(lambda x: weft.debug.visualize_array_sharding(x))(x)
    assert capsys.readouterr().out.splitlines()[1] == "│  CPU 0   │"
    with pytest.raises(AttributeError, match="sharding"):
        weft.debug.inspect_array_sharding(1.0, callback=seen.append)
    for shape in ((2, 2, 2), (), (0, 3)):
        with pytest.raises(ValueError, match="1 and 2 dimensions"):
            weft.debug.visualize_array_sharding(jnp.zeros(shape))


SCRIPT = """
import weft
@weft.jit
def f(x):
    y = x + 1
    weft.debug.breakpoint()
    return y
print("result", float(f(1.0)))
"""


def test_without_a_terminal_it_raises(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"there is no terminal to ask ({path}:6)" in done.stderr


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen([sys.executable, str(path)], stdin=theirs, stdout=subprocess.PIPE, text=True)
        os.write(ours, b"y\nc\n")
        out, _ = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Array(2., dtype=float32)" in out and out.endswith("result 2.0\n")
    assert process.returncode == 0

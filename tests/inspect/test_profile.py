"""Profiles: counts are exact, names and lines are the user's, nothing of it stays when the block has ended."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, runtime
from weft.inspect import profiling


def _named(found: profiling.Profile, name: str) -> profiling.ProgramTimes:
    (program,) = [p for p in found.programs if p.name == name]
    return program


def test_calls_kernels_and_lines_are_counted() -> None:
    def smooth(x):
        y = jnp.sin(x) * 2  # line A
        return jnp.sum(y)

    f = weft.jit(smooth)
    with weft.profile(every_call=True) as block:
        for _ in range(7):
            f(jnp.ones(1000))
    program = _named(block.result, "smooth")
    assert (program.times.runs, program.times.timed) == (7, 7)
    assert 0 < program.times.least <= program.times.mean <= program.times.total <= block.result.seconds
    (step,) = program.steps
    assert step.what == "kernel"
    assert step.nbytes == 4004
    first = smooth.__code__.co_firstlineno
    assert set(step.lines) == {(__file__, first + 1), (__file__, first + 2)}
    assert sum(step.lines.values()) == pytest.approx(1)
    assert (__file__, first + 1) in block.result.lines
    assert "smooth" in str(block.result)
    assert "<table>" in block.result._repr_html_()
    assert "smooth" in repr(block.result.calls)


def test_short_programs_are_timed_at_some_calls_and_counted_at_all() -> None:
    def tiny(x):
        return x + 1.0625  # no other function of this process computes this

    f, x = weft.jit(tiny), jnp.ones(3)
    with weft.profile() as block:
        for _ in range(1000):
            f(x)
    times = _named(block.result, "tiny").times
    assert times.runs == 1000
    assert 1 <= times.timed < 500
    assert times.total == pytest.approx(times.mean * 1000)


def test_loops_show_their_bodies_and_lines_count_once() -> None:
    def walk(x):
        return weft.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=40)[0]

    f, x = weft.jit(walk), jnp.ones((64, 64)) / 64
    with weft.profile(every_call=True) as block:
        f(x).block_until_ready()
    outer, body = [p for p in block.result.programs if p.name == "walk"]
    assert (outer.inside, body.inside) == ("", "walk")
    assert body.times.runs == 40
    assert "loop" in [step.what for step in outer.steps]
    assert any("tanh" in step.name for step in body.steps)
    assert sum(block.result.lines.values()) <= 1.05 * sum(p.times.total for p in block.result.calls)


SIDE = 40
PRODUCT = 2 * SIDE**3  # operations
LOOPS: dict[str, tuple[Callable[[Any], Any], int]] = {  # a function, and how often it runs a product
    "fori": (lambda x: lax.fori_loop(0, 7, lambda i, c: jnp.tanh(c @ c), x), 7),
    "scan": (lambda x: lax.scan(lambda c, r: (jnp.tanh(c @ c) + r, None), x, x)[0], SIDE),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.tanh(c[1] @ c[1])), (0, x))[1], 5),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ x), lambda x: x * 2, x), 1),
    "other branch": (lambda x: lax.cond(x.sum() < 0, lambda x: jnp.tanh(x @ x), lambda x: x * 2, x), 0),
    "nested": (
        lambda x: lax.fori_loop(
            0, 3, lambda i, c: lax.scan(lambda d, r: (jnp.tanh(d @ d), None), c, None, length=4)[0], x
        ),
        12,
    ),
    "branch in a loop": (
        lambda x: lax.fori_loop(
            0, 6, lambda i, c: lax.cond(i % 3 == 0, lambda c: jnp.tanh(c @ c), lambda c: c * 2, c), x
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_loops_and_branches_cost_what_their_steps_cost_as_often_as_they_run(name: str) -> None:
    function, products = LOOPS[name]
    f, x = weft.jit(function), jnp.ones((SIDE, SIDE))
    f(x)
    for calls in (1, 3):
        with weft.profile(every_call=True) as block:
            for _ in range(calls):
                f(x)
        steps = [s for p in block.result.programs for s in p.steps if p.inside == "" and s.what in ("loop", "branch")]
        (step,) = steps
        few = 100 * SIDE**2  # elementwise operations of all steps
        assert products * PRODUCT <= step.operations <= products * PRODUCT + few
        moved = max(products, 1) * 2 * x.nbytes  # each product reads one array and writes another
        assert moved <= step.nbytes <= 10 * max(products, 6) * x.nbytes
        assert step.estimate > 0


def test_loops_in_registers_cost_their_operations() -> None:
    f = weft.jit(lambda x: lax.fori_loop(0, 100_000, lambda i, c: c * 0.5 + 1, x))
    f(1.0)
    with weft.profile(every_call=True) as block:
        f(1.0)
    (step,) = [s for p in block.result.programs for s in p.steps if s.what == "loop"]
    assert 0 < step.nbytes <= 16 and 200_000 <= step.operations <= 500_000 and step.estimate > 0


def test_long_programs_run_on_the_stream_with_shares_of_workers() -> None:
    f, x = weft.jit(lambda x: jnp.sin(x) + jnp.exp(x)), jnp.ones(2_000_000)
    with weft.threads(2), weft.profile() as block:
        for _ in range(3):
            f(x).block_until_ready()
    kinds = {span.kind for span in block.result.spans}
    assert {"call", "step"} <= kinds
    assert all(span.begin <= span.end for span in block.result.spans)


def test_results_are_the_same_and_errors_end_the_profile() -> None:
    f, x = weft.jit(lambda x: jnp.cumsum(jnp.sin(x))), jnp.arange(500.0)
    expected = np.asarray(f(x))
    with pytest.raises(ZeroDivisionError), weft.profile():
        np.testing.assert_array_equal(np.asarray(f(x)), expected)
        1 / 0
    with weft.profile() as block, pytest.raises(RuntimeError, match="already"), weft.profile():
        pass
    with pytest.raises(RuntimeError, match="no profile"):
        runtime.profile_stop()
    with pytest.raises(ValueError, match="spans"):
        runtime.profile_start(-1, False)
    assert block.result.seconds > 0
    with pytest.raises(RuntimeError, match="ended"):
        _ = weft.profile().result


def test_a_decorated_function_prints_and_keeps_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.profile()
    def train(x):
        return weft.jit(lambda v: v * 3)(x)

    assert float(train(jnp.float32(2))) == 6
    assert "programs" in capsys.readouterr().out
    assert getattr(train, "profile").calls  # noqa: B009 - an attribute that type checkers do not see


def test_threads_may_call_during_a_profile() -> None:
    f, x = weft.jit(lambda x: jnp.sum(x * 2)), jnp.ones(100)
    f(x)
    with weft.profile(every_call=True) as block:
        threads = [threading.Thread(target=lambda: [f(x) for _ in range(200)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sum(p.times.runs for p in block.result.calls if p.name == "<lambda>") == 600


def test_spans_without_room_are_counted() -> None:
    f, x = weft.jit(lambda x: x + 2), jnp.ones(3)
    f(x)
    with weft.profile(every_call=True, most_spans=4) as block:
        for _ in range(10):
            f(x)
    assert block.result.dropped > 0
    assert max(program.times.runs for program in block.result.calls) == 10


def test_traces_are_written_under_jax_names(tmp_path: Path) -> None:
    f = weft.jit(lambda x: jnp.cos(x))
    with weft.profiler.trace(tmp_path, create_perfetto_trace=True):
        with weft.profiler.StepTraceAnnotation("train", step_num=3):
            f(jnp.ones(10)).block_until_ready()
        assert weft.profiler.annotate_function(lambda: 5, name="five")() == 5
    (file,) = tmp_path.glob("plugins/profile/*/perfetto_trace.json.gz")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    by_name = {event["name"]: event for event in trace["traceEvents"]}
    assert by_name["train"]["args"] == {"step_num": 3}
    assert by_name["five"]["cat"] == "annotation"
    assert any(event.get("cat") == "trace" for event in trace["traceEvents"])
    assert all(event["dur"] >= 0 for event in trace["traceEvents"] if event["ph"] == "X")
    data = weft.profiler.ProfileData.from_file(file)
    plane = data.find_plane_with_name("weft")
    assert plane is not None
    names = {event.name for line in plane.lines for event in line.events}
    assert "train" in names
    with pytest.raises(RuntimeError, match="no trace"):
        weft.profiler.stop_trace()
    with pytest.raises(NotImplementedError, match="link"):
        weft.profiler.start_trace(tmp_path, create_perfetto_link=True)
    for refused in (weft.profiler.start_server, weft.profiler.register_subprocess):
        with pytest.raises(NotImplementedError, match=r"weft\.profiler"):
            refused(9999)


# In a process of its own: JAX, where tests have loaded it, warns of every fork.
FORK = """
import os, weft, weft.numpy as jnp
from weft import runtime
f, x = weft.jit(lambda x: x - 1), jnp.ones(3)
f(x)
with weft.profile():
    child = os.fork()
    if child == 0:
        try:
            f(x)
            runtime.profile_stop()
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_is_not_profiled() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

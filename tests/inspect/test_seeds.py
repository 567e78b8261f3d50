"""Each seeded cause is named, with its line and a cure."""

from __future__ import annotations

import inspect
import logging
import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.inspect import seeds
from weft.dispatch.calls import miss_causes
from weft.dispatch.programs import history
from weft.inspect import findings


def _marked(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if line.rstrip().endswith("# <-"))


def test_there_are_enough_seeds() -> None:
    assert len({*seeds.CAUSES, *seeds.PROGRAMS, *seeds.CALLS, *seeds.ERRORS}) >= 40
    assert {seeds.CODES[name] for name in seeds.CAUSES} <= set(miss_causes.CURES)
    assert {seeds.CODES[name] for name in (*seeds.PROGRAMS, *seeds.CALLS)} <= set(findings.CURES)


@pytest.mark.parametrize("name", seeds.CAUSES)
def test_causes_of_traces(name: str, caplog: pytest.LogCaptureFixture) -> None:
    history.clear()
    with weft.explain_cache_misses(True), caplog.at_level(logging.WARNING, "weft"):
        seeds.CAUSES[name]()
    event = [e for e in history.events() if e.kind == "trace" and e.causes][-1]
    assert seeds.CODES[name] in [cause.kind for cause in event.causes], event
    assert event.line == (seeds.__file__, _marked(seeds.CAUSES[name]))
    text = caplog.records[-1].getMessage()
    for cause in event.causes:
        assert f"  * {cause.text}\n    cure: {cause.cure}" in text
    assert f"{seeds.__file__}:{event.line[1]}" in text


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.filterwarnings("ignore:.*float64")
@pytest.mark.parametrize("name", seeds.PROGRAMS)
def test_findings_about_programs(name: str) -> None:
    with weft.enable_x64(seeds.CODES[name] == "float64"):
        report = weft.inspect(*seeds.PROGRAMS[name]())
    found = [f for f in report.findings if f.code == seeds.CODES[name]]
    assert found, [str(f) for f in report.findings]
    assert (seeds.__file__, _marked(seeds.PROGRAMS[name])) in [f.line for f in found]
    for finding in found:
        assert f"cure: {finding.cure}" in str(finding)
        assert str(finding) in report.text(())


@pytest.mark.parametrize("name", seeds.CALLS)
def test_findings_about_calls(name: str) -> None:
    with weft.profile() as block:
        seeds.CALLS[name]()
    found = [f for f in block.result.findings if f.code == seeds.CODES[name]]
    assert (seeds.__file__, _marked(seeds.CALLS[name])) in [f.line for f in found], block.result.findings


@pytest.mark.parametrize("name", seeds.ERRORS)
def test_errors_name_cause_and_cure(name: str) -> None:
    pattern, function = seeds.ERRORS[name]
    with pytest.raises((RuntimeError, ValueError)) as caught:
        function()
    assert re.search(pattern, str(caught.value), re.S)
    assert _marked(function) in [frame.lineno for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_program_with_nothing_wrong_has_no_findings() -> None:
    f = weft.jit(lambda x: weft.numpy.sum(weft.numpy.sin(x) * x))
    assert weft.inspect(f, weft.ShapeDtypeStruct((100_000,), weft.numpy.float32)).findings == []

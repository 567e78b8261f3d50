"""What the calls seen in a profile could do otherwise: Python that waits in a loop, operations outside of ``jit``."""

from __future__ import annotations

from collections.abc import Iterator

from weft.dispatch.programs import history
from weft.inspect import account
from weft.inspect.findings import Finding
from weft.inspect.profiling import Profile

MANY = 8  # times from which a wait or an operation is worth a word


def of_profile(profile: Profile) -> list[Finding]:
    """The findings of a profile."""
    return [*_waits(profile), *_eager(profile)]


def _waits(profile: Profile) -> Iterator[Finding]:
    for wait in profile.waits:
        if wait.times >= MANY:
            text = f"Python waited {wait.times} times for a result, {wait.seconds * 1e3:.3g} ms in all"
            yield Finding("waits in a loop", text, wait.line, 0)


def _eager(profile: Profile) -> Iterator[Finding]:
    jitted = [p for p in profile.calls if not p.is_eager and p.times.runs >= MANY]
    for program in profile.calls:
        if program.is_eager and program.times.runs >= MANY and jitted:
            text = f"{program.name} ran {program.times.runs} times outside of jit, beside jitted functions"
            yield Finding("eager operations", text, _first_call(program.name), 0)


def _first_call(name: str) -> account.Line:
    """Where a program of this name was first made."""
    return next((event.line for event in history.events() if event.name == name and event.line[0]), account.UNKNOWN)

"""What the runtime counted during a profile, with names: of programs, kernels and the user's lines."""

from __future__ import annotations

import struct
from typing import Any

from weft.inspect import account
from weft.inspect.profiling import KernelTimes, Profile, ProgramTimes, Span, Times, Wait

_SPAN = struct.Struct("=qqIi")  # begin, end, program, step; as in runtime/src/profile.cpp
_SHARE = 1 << 30
_Counter = tuple[int, int, int]  # runs that were timed, their nanoseconds, those of the fastest


def result(seconds: float, found: list[Any], threads: list[Any], waits: list[Any], notes: list[Span]) -> Profile:
    """The profile of what ``runtime.profile_stop`` gives."""
    known, eager = account.programs_by_executable(), account.eager_executables()
    inside = {inner.executable: program.name for program in known.values() for inner in program.nested}
    runs = {id(executable): calls for executable, calls, *_ in found}
    programs, names = [], []
    for executable, calls, _, counter, steps in found:
        program = known.get(executable)
        kernels = tuple(_kernels(program, steps, calls, runs))
        names.append((executable.name, id(executable), kernels))
        programs.append(
            ProgramTimes(
                executable.name,
                _times(counter, calls),
                kernels,
                inside.get(executable, ""),
                id(executable),
                executable in eager,
            )
        )
    spans = [span for thread, label, data, _ in threads for span in _spans(thread, label, data, names)]
    dropped = sum(thread[3] for thread in threads)
    lines = [Wait((line.rpartition(":")[0], int(line.rpartition(":")[2] or 0)), n, ns * 1e-9) for line, n, ns in waits]
    return Profile(seconds, [p for p in programs if p.times.runs], sorted([*spans, *notes], key=_begin), lines, dropped)


def _begin(span: Span) -> int:
    return span.begin


def _times(counter: _Counter, runs: int) -> Times:
    timed, total, least = counter
    mean = total / timed if timed else 0.0
    return Times(runs, timed, mean * runs * 1e-9, mean * 1e-9, least * 1e-9)


def _kernels(program: Any, steps: Any, calls: int, runs: dict[int, int]) -> list[KernelTimes]:
    """The steps of a program; for one whose compiled form is gone or came from disk, without names."""
    if program is None:
        return [
            KernelTimes(f"step {number}", "step", _times(counter, calls), 0.0, 0.0, 0.0, {account.UNKNOWN: 1.0}, number)
            for number, (_, counter) in enumerate(steps)
        ]
    parts = account.parts(program, runs)
    bounds = [first for first, _ in steps] + [len(parts)]
    return [
        _kernel(parts[first:after], counter, calls) for (first, counter), after in zip(steps, bounds[1:], strict=True)
    ]


def _kernel(parts: list[account.Part], counter: _Counter, calls: int) -> KernelTimes:
    """One step of the runtime: an instruction, or several equal kernels that follow each other."""
    first = parts[0]
    name = first.name if len(parts) == 1 else f"{first.name} x{len(parts)}"
    lines: dict[account.Line, float] = {}
    for part in parts:
        for line, share in part.lines.items():
            lines[line] = lines.get(line, 0.0) + share / len(parts)
    nbytes, operations = sum([p.nbytes for p in parts]), sum([p.operations for p in parts])
    estimate = sum([p.estimate_ns for p in parts]) * 1e-9
    return KernelTimes(name, first.what, _times(counter, calls), nbytes, operations, estimate, lines, first.number)


def _spans(thread: int, label: str, data: bytes, names: list[tuple[str, int, tuple[KernelTimes, ...]]]) -> list[Span]:
    spans = []
    for begin, end, program, step in _SPAN.iter_unpack(data):
        if program >= len(names):
            continue
        name, key, kernels = names[program]
        if step < 0:
            spans.append(Span(name, "call", begin, end, thread, {"on": label, "key": key}))
            continue
        kind, number = ("share", step - _SHARE) if step >= _SHARE else ("step", step)
        facts = {"program": name, "step": number, "on": label, "key": key, "instruction": kernels[number].first}
        spans.append(Span(kernels[number].name, kind, begin, end, thread, facts))
    return spans

"""The content of a report's page as plain data: source lines, equations, kernels, their texts, memory, times, history.

Numbers link them: an equation knows its source line and its steps, a step its equations, texts and values. ``build``
makes the whole; the page (``page``) shows it, and tests look at it without a browser.
"""

from __future__ import annotations

import base64
import linecache
import os
import platform
import zlib
from collections.abc import Sequence
from typing import Any

from weft import codegen
from weft._base import api
from weft._base.target import Target
from weft.compiler.pipeline import Program
from weft.compiler.plans import buffers, residuals, steps
from weft.core import kinds
from weft.core.programs import jaxpr as jaxpr_module
from weft.core.programs import printer
from weft.core.programs.jaxpr import DropVar, JaxprEqn, Literal
from weft.dispatch.programs import history
from weft.inspect import account, boundaries, machine_limits
from weft.inspect.profiling import Profile
from weft.loops import printer as loops_printer

Data = dict[str, Any]
_NEAR = 6  # lines between two shown lines that are shown too
_MOST_TEXT = 240_000  # characters of one text
_MOST_PARAM = 60
_FAR = 0.02  # share of a machine's limit: below it something else takes the time


def build(name: str, program: Program, traced: str, profile: Profile | None, findings: Sequence[Any]) -> Data:
    """All that the page of one compiled function shows."""
    limits = machine_limits.limits() if profile is not None else None
    programs = list(account.walk(program))
    runs = None if profile is None else {one.key: one.times.runs for one in profile.programs}
    made = [_Section(number, one, runs) for number, one in enumerate(programs)]
    texts = _Texts(program.stages.target)
    lines = _Lines()
    times = _times(profile)
    steps_data = [step for one in made for step in one.steps(texts, lines, times, limits, programs)]
    data: Data = {
        "name": name,
        "version": api.VERSION,
        "machine": f"{platform.machine()} {program.stages.target.name}, Python {platform.python_version()}",
        "limits": None if limits is None else limits._asdict(),
        "equations": [equation for one in made for equation in one.equations(lines)],
        "steps": steps_data,
        "boundaries": [edge for one in made for edge in one.boundaries()],
        "memory": [entry for one in made for entry in one.memory()],
        "residuals": [line for one in made for line in one.residuals()],
        "programs": [{"name": one.title, "plan": one.program.plan.describe()} for one in made],
        "texts": texts.packed,
        "traced": _pack(traced),
        "timeline": _timeline(profile, made),
        "history": _history(),
        "findings": [finding.as_data(lines.of) for finding in findings],
        "seconds": _seconds(profile, program),
    }
    data["sources"] = lines.sources(profile)
    return data


class _Lines:
    """The source lines that something of the program comes from; a line is (file number, line number)."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.used: dict[str, set[int]] = {}

    def of(self, line: account.Line) -> list[int] | None:
        file, number = line
        if not file:
            return None
        self.used.setdefault(file, set()).add(number)
        return [self.files.setdefault(file, len(self.files)), number]

    def sources(self, profile: Profile | None) -> list[Data]:
        """Each file with the blocks of lines around those that are used."""
        times = {} if profile is None else profile.lines
        found = []
        for file in self.files:
            blocks = [
                [first, [linecache.getline(file, n).rstrip("\n") for n in range(first, last + 1)]]
                for first, last in _blocks(sorted(self.used[file]))
            ]
            seconds = {str(n): s for (name, n), s in times.items() if name == file and n in self.used[file]}
            found.append({"file": file, "short": os.path.basename(file), "blocks": blocks, "seconds": seconds})
        return found


def _blocks(numbers: list[int]) -> list[tuple[int, int]]:
    """Ranges of lines that are shown."""
    found: list[tuple[int, int]] = []
    for n in numbers:
        first, last = max(n - 2, 1), n + 1
        if found and first - found[-1][1] <= _NEAR:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


class _Texts:
    """Loops, LLVM and assembly of each distinct nest, compressed."""

    def __init__(self, on: Target) -> None:
        self.target = on
        self.packed: list[Data] = []
        self.known: dict[Any, int] = {}

    def of(self, nest: Any) -> int:
        found = self.known.get(nest)
        if found is None:
            found = self.known[nest] = len(self.packed)
            self.packed.append(_forms(nest, self.target))
        return found


def _forms(nest: Any, machine: Target) -> Data:
    compiled = codegen.compile_nest(nest, machine)
    return {
        "loops": loops_printer.text(nest),
        "llvm": _pack(codegen.text_of(nest, machine)),
        "asm": _pack(codegen.assembly(compiled, machine)),
    }


def _pack(text: str) -> str:
    """Text as base64 of raw deflate, which browsers unpack."""
    if len(text) > _MOST_TEXT:
        text = f"{text[:_MOST_TEXT]}\n... {len(text) - _MOST_TEXT} more characters: as_text() has all"
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()


class _Section:
    """One program of the page: the function's, or what a loop or branch runs."""

    def __init__(self, number: int, program: Program, runs: dict[int, int] | None) -> None:
        self.number, self.program = number, program
        self.parts = account.parts(program, runs)
        self.context = printer.Context()
        jaxpr = program.jaxpr
        for variable in (*jaxpr.constvars, *jaxpr.invars, *[v for e in jaxpr.eqns for v in e.outvars]):
            self.context.name(variable)
        self.positions = {equation: position for position, equation in enumerate(jaxpr.eqns)}
        self.report = buffers.MemoryReport(program.assignment())
        self.entries = self.report.entries()
        self.kinds = {entry.variable: entry.kind for entry in self.entries if entry.kind != "copy"}

    @property
    def title(self) -> str:
        return self.program.name if self.number == 0 else f"{self.program.name}, inner program {self.number}"

    def key(self, equation: JaxprEqn) -> str | None:
        position = self.positions.get(equation)
        return None if position is None else f"{self.number}.{position}"

    def value(self, variable: Any) -> str:
        return f"{self.number}:{self.context.name(variable)}"

    def equations(self, lines: _Lines) -> list[Data]:
        runs: dict[JaxprEqn, list[str]] = {}
        for part in self.parts:
            for equation in part.equations:
                runs.setdefault(equation, []).append(f"{self.number}.{part.number}")
        return [
            {
                "id": f"{self.number}.{position}", "program": self.number, "text": self._text(equation),
                "line": lines.of(account.line_of(equation)), "steps": list(dict.fromkeys(runs.get(equation, []))),
                "backward": residuals.is_backward(equation),
                "makes": [self.value(v) for v in equation.outvars if type(v) is not DropVar],
            }
            for position, equation in enumerate(self.program.jaxpr.eqns)
        ]  # fmt: skip

    def _text(self, equation: JaxprEqn) -> str:
        names = " ".join([f"{self.context.name(v)}:{v.aval.str_short()}" for v in equation.outvars])
        operands = " ".join([printer.atom_text(atom, self.context) for atom in equation.invars])
        given = [f"{key}={text}" for key, value in sorted(equation.params.items()) if (text := _param(value))]
        shown = f"[{' '.join(given)}]" if given else ""
        return f"{names} = {equation.primitive.name}{shown} {operands}".strip()

    def steps(self, texts: _Texts, lines: _Lines, times: Any, limits: Any, programs: list[Program]) -> list[Data]:
        found = []
        measured = times.get(id(self.program.executable), {})
        for part in self.parts:
            entry = self.program.plan.sources[part.number]
            seconds = measured.get(part.number)
            found.append(
                {
                    "id": f"{self.number}.{part.number}", "program": self.number, "name": part.name, "what": part.what,
                    "equations": [key for e in part.equations if (key := self.key(e)) is not None],
                    "bytes": part.nbytes, "operations": part.operations, "estimate": part.estimate_ns * 1e-9,
                    "measured": seconds, **_shares(part, seconds, limits),
                    "texts": [texts.of(nest) for nest in _nests(entry)],
                    "operands": self._operands(part, entry),
                    "lines": [[*position, share] for line, share in part.lines.items() if (position := lines.of(line))],
                    "runs": [programs.index(inner) for inner in part.programs],
                }
            )  # fmt: skip
        return found

    def _operands(self, part: account.Part, entry: Any) -> list[Data]:
        found: dict[tuple[str, str], Data] = {}
        runs = entry.runs if isinstance(entry, steps.Chain) else [entry.run if hasattr(entry, "run") else entry]
        for run in runs:
            for binding in getattr(getattr(run, "lowered", None), "operands", ()):
                if hasattr(binding, "variable"):
                    found.setdefault((self.context.name(binding.variable), binding.role), self._operand(binding))
        for equation in part.equations if not found or part.what == "product" else ():
            if part.what == "product" and isinstance(equation.primitive.kind, kinds.Elementwise):
                continue
            for role, atoms in (("in", equation.invars), ("out", equation.outvars)):
                for atom in atoms:
                    if type(atom) is not Literal and (part.what != "product" or _is_product(equation)):
                        data = {"name": self.context.name(atom), "type": atom.aval.str_short(), "role": role,
                                "bytes": atom.aval.nbytes, "memory": self.kinds.get(atom, "")}  # fmt: skip
                        found.setdefault((data["name"], role), data)
        return [{**data, "value": f"{self.number}:{data['name']}"} for data in found.values()]

    def _operand(self, binding: Any) -> Data:
        variable = binding.variable
        return {
            "name": self.context.name(variable), "type": variable.aval.str_short(), "role": binding.role,
            "bytes": variable.aval.nbytes, "memory": self.kinds.get(variable, ""),
        }  # fmt: skip

    def boundaries(self) -> list[Data]:
        step_of = {position: f"{self.number}.{part.number}" for part in self.parts for position in part.steps}
        return [
            {
                "value": self.value(edge.variable), "name": self.context.name(edge.variable),
                "type": edge.variable.aval.str_short(), "maker": step_of.get(edge.maker),
                "reader": step_of.get(edge.reader), "code": edge.code, "why": edge.text, "cure": edge.cure,
                "bytes": edge.nbytes,
            }
            for edge in boundaries.boundaries(self.program)
        ]  # fmt: skip

    def memory(self) -> list[Data]:
        return [
            {
                "value": "" if entry.variable is None else self.value(entry.variable), "kind": entry.kind,
                "text": entry.text, "bytes": entry.nbytes, "program": self.number,
            }
            for entry in self.entries
        ]  # fmt: skip

    def residuals(self) -> list[Data]:
        found = []
        for line in self.report.residuals():
            words = line.split()
            name = words[1] if words[0] == "kept" else words[2] if line.startswith("  not kept") else ""
            found.append({"text": line, "value": f"{self.number}:{name}" if name else ""})
        return found


def _is_product(equation: JaxprEqn) -> bool:
    return isinstance(equation.primitive.kind, kinds.Contraction | kinds.StridedContraction)


def _param(value: Any) -> str:
    """A parameter as text; programs and long values are left out."""
    if value is None or value is False or callable(value) or jaxpr_module.jaxprs_in_params({"": value}):
        return ""
    text = printer.printed_value(value)
    return "" if len(text) > _MOST_PARAM or text.startswith("<") else text


def _nests(entry: Any) -> list[Any]:
    if isinstance(entry, steps.Run):
        return [entry.lowered.nest]
    if isinstance(entry, steps.FusedEpilogue):
        return [entry.run.lowered.nest]
    if isinstance(entry, steps.Chain):
        return [run.lowered.nest for run in entry.runs]
    return [entry.lowered.routine] if isinstance(entry, steps.Native) else []


def _times(profile: Profile | None) -> dict[int, dict[int, Data]]:
    """Executable -> instruction -> what was measured."""
    if profile is None:
        return {}
    found: dict[int, dict[int, Data]] = {}
    for program in profile.programs:
        calls = max(program.times.runs, 1)
        found[program.key] = {
            step.first: {"mean": step.times.mean, "best": step.times.least, "runs": step.times.runs, "calls": calls}
            for step in program.steps
        }
    return found


def _shares(part: account.Part, seconds: Data | None, limits: Any) -> Data:
    """Shares of the machine's limits that a step reaches, and which limit is nearer."""
    if limits is None or not seconds or not seconds["best"]:
        return {"bandwidth": None, "arithmetic": None, "limit": ""}
    memory = part.nbytes / seconds["best"] / limits.bandwidth
    arithmetic = part.operations / seconds["best"] / limits.flops
    nearer = "memory" if memory >= arithmetic else "arithmetic"
    if max(memory, arithmetic) <= _FAR:
        nearer = {"loop": "steps", "branch": "steps"}.get(part.what, "start")
    return {"bandwidth": memory, "arithmetic": arithmetic, "limit": nearer}


def _seconds(profile: Profile | None, program: Program) -> Data | None:
    if profile is None:
        return None
    for one in profile.programs:
        if one.key == id(program.executable):
            times = one.times
            return {"mean": times.mean, "best": times.least, "runs": times.runs}
    return None


def _timeline(profile: Profile | None, made: list[_Section]) -> Data | None:
    """One call: its spans by thread, in nanoseconds from its begin."""
    if profile is None:
        return None
    numbers = {id(one.program.executable): one.number for one in made}
    calls = [s for s in profile.spans if s.kind == "call" and numbers.get(s.facts["key"]) == 0]
    if not calls:
        return None
    call = min(calls, key=lambda span: span.end - span.begin)
    spans = [s for s in profile.spans if call.begin <= s.begin and s.end <= call.end and s.facts.get("key") in numbers]
    threads = list(dict.fromkeys([call.thread, *[s.thread for s in spans]]))
    names = {s.thread: s.facts["on"] for s in spans}
    return {
        "length": call.end - call.begin,
        "threads": [f"{names.get(t, 'python')} {t}" for t in threads],
        "spans": [
            [threads.index(s.thread), s.begin - call.begin, s.end - s.begin, s.kind, s.name,
             f"{numbers[s.facts['key']]}.{s.facts['instruction']}" if s.kind != "call" else ""]
            for s in spans
        ][:4000],
    }  # fmt: skip


def _history() -> list[Data]:
    """What this process traced and compiled, for the user's functions."""
    return [
        {
            "kind": event.kind, "name": event.name, "types": ", ".join([a.str_short() for a in event.types])[:200],
            "ms": event.milliseconds, "at": f"{os.path.basename(event.line[0])}:{event.line[1]}",
            "causes": [[cause.kind, cause.text, cause.cure] for cause in event.causes],
            "stages": event.stages, "kernels": event.kernels,
        }
        for event in history.events()[-300:]
    ]  # fmt: skip

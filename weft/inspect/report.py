"""``weft.inspect(f, *args)``: what a function compiles to, as text, as data and as a page that links all its forms.

In: a function (jitted or not) and arguments, arrays or ShapeDtypeStructs. Out: a ``Report``. With arrays the function
is run a few times, so that steps have measured times, unless it calls Python; with types alone nothing is run.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weft import runtime
from weft._base import lazy
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.programs import ahead_of_time, executables
from weft.inspect.kernel_sources import kernel_sources
from weft.inspect.profiling import Profile, profile

FORMS = ahead_of_time.FORMS
_MOST_RUNS, _MOST_SECONDS = 20, 0.4  # runs and seconds spent on measuring


class Report:
    """One compiled call, to be printed, saved as a page, or shown in a notebook."""

    def __init__(
        self, compiled: ahead_of_time.Compiled, facts: dict[str, dict[str, Any]], found: Profile | None
    ) -> None:
        arguments, parts = compiled.parts()
        types = ", ".join(aval.str_short() for aval in arguments.avals)
        self.name = f"{compiled.fun_name}({types})"
        self.facts = facts  # title -> measured or estimated numbers, by name
        self.profile = found
        self.program = parts.program
        self._compiled = compiled
        self._data: dict[str, Any] | None = None
        self._findings: list[Any] | None = None

    @property
    def forms(self) -> dict[str, str]:
        """The program as text in each form."""
        return {form: self._compiled.as_text(form) for form in FORMS}

    @property
    def findings(self) -> list[Any]:
        """What costs time or memory and could be otherwise: each with its line, its price and a cure."""
        found = self._findings
        if found is None:
            closed = self._compiled.parts()[0].trace.closed
            found = lazy.submodule("weft.inspect.findings").findings(self.program, closed, self.donatable())
            self._findings = found
        return list(found)

    def donatable(self) -> list[tuple[str, Any, bool]]:
        """Each argument leaf: its path, its type, and whether it is donated."""
        arguments, _ = self._compiled.parts()
        return list(zip(arguments.paths(), arguments.avals, arguments.donated, strict=True))

    @property
    def data(self) -> dict[str, Any]:
        """All that the page shows, as plain data."""
        if self._data is None:
            build = lazy.submodule("weft.inspect.page_data").build
            self._data = build(self.name, self.program, self._compiled.as_text("jaxpr"), self.profile, self.findings)
        assert self._data is not None
        return self._data

    def text(self, forms: Sequence[str] = FORMS) -> str:
        """The report as plain text."""
        parts = [f"{self.name}"]
        for title, values in self.facts.items():
            parts.append("\n".join([f"{title}:", *[f"  {name}: {_number(value)}" for name, value in values.items()]]))
        if self.findings:
            parts.append("\n".join(["findings:", *[f"  {finding}" for finding in self.findings]]))
        written = kernel_sources(self._compiled.parts()[0].trace.closed.jaxpr)
        parts += [f"kernel {name}, as written:\n{source.rstrip()}" for name, source in written.items()]
        parts += [f"{form}:\n{self._compiled.as_text(form)}" for form in forms]
        return "\n\n".join(parts)

    def html(self) -> str:
        """The report as one HTML page without references to other files."""
        return lazy.submodule("weft.inspect.page").text(self.data)

    def save(self, path: Any = None) -> Path:
        """Write the page, by default to ``weft-<function>.html`` in this folder; gives where it is."""
        name = re.sub(r"\W+", "-", self._compiled.fun_name).strip("-") or "function"
        target = Path(f"weft-{name}.html" if path is None else path)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.page").frame(self.html())

    def __str__(self) -> str:
        return self.text(("jaxpr", "kernel", "plan"))


def _number(value: Any) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def report(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Trace and compile ``function`` for these arguments and report on it; see ``weft.inspect``.

    >>> r = weft.inspect(lambda x: jnp.sin(x) * 2, weft.ShapeDtypeStruct((8,), jnp.float32))
    >>> r.name, len(r.data["steps"]), r.html().startswith("<!doctype html>")
    ('<lambda>(f32[8])', 1, True)
    """
    jitted: Any = function if hasattr(function, "cache_info") else jit_module.jit(function)
    compiled = jitted.lower(*args, **kwargs).compile()
    return of_compiled(compiled, jitted.cache_info(), *args, **kwargs)


def of_compiled(compiled: ahead_of_time.Compiled, info: Any, *args: Any, **kwargs: Any) -> Report:
    """The report of a compiled function; it is run if arrays are given as arguments."""
    compiled = _own(compiled)
    facts: dict[str, dict[str, Any]] = {}
    if info is not None:
        facts["milliseconds per stage"] = info.milliseconds
        facts["caches"] = {name: value for name, value in info._asdict().items() if name != "milliseconds"}
    program = compiled.parts()[1].program
    if not hasattr(program, "forms"):
        raise NotImplementedError(
            f"[inspect] {compiled.fun_name} runs on another device than the CPU, and its plugin compiled it: weft can "
            "inspect what it compiles itself; call .lower(...).as_text() for the program that the plugin got"
        )
    facts["estimated cost"] = compiled.cost_analysis()
    facts["memory"] = compiled.memory_analysis()
    return Report(compiled, facts, _measured(compiled, args, kwargs) if args or kwargs else None)


def _own(compiled: ahead_of_time.Compiled) -> ahead_of_time.Compiled:
    """The program, compiled for this function itself, so that it shows the function's lines and names."""
    arguments, parts = compiled.parts()
    source, closed = getattr(parts.program, "source", None), arguments.trace.closed
    if closed is None or not devices.backend_at(arguments.place).step_kinds:  # another compiler made it
        return compiled
    theirs = [] if source is None else source.jaxpr.eqns
    if len(theirs) == len(closed.jaxpr.eqns) and all(map(operator.is_, theirs, closed.jaxpr.eqns)):
        return compiled
    return compiled.compiled_anew()


def _measured(compiled: ahead_of_time.Compiled, args: Any, kwargs: Any) -> Profile | None:
    """The profile of a few runs; None if arguments are types, or the program calls Python."""
    arguments, parts = compiled.parts()
    prepared = arguments.state.prepare(args, kwargs, accept_structs=True)
    leaves = prepared.leaves
    if any(not hasattr(leaf, "__array__") and not isinstance(leaf, (int, float, complex)) for leaf in leaves):
        return None
    if arguments.trace.closed.effects or _calls_python(parts.program):
        return None

    def run() -> None:
        given = [_copy(leaf) if donated else leaf for leaf, donated in zip(leaves, arguments.donated, strict=True)]
        outs = executables.run(parts, arguments.trace, given, arguments.avals)
        for out in runtime.tree_flatten(outs)[0]:
            getattr(out, "block_until_ready", bool)()

    begin = time.perf_counter()
    run()
    took = time.perf_counter() - begin
    with profile(every_call=True) as block:
        for _ in range(max(2, min(_MOST_RUNS, int(_MOST_SECONDS / max(took, 1e-6))))):
            run()
    return block.result


def _copy(leaf: Any) -> Any:
    return lazy.submodule("weft.numpy").array(leaf, copy=True)


def _calls_python(program: Any) -> bool:
    callback = lazy.submodule("weft.compiler.plans.instructions").Callback
    return any(isinstance(entry, callback) for entry in program.plan.instructions) or any(
        _calls_python(inner) for inner in program.nested
    )


def show(function: Callable[..., Any], *args: Any, forms: Sequence[str] = ("jaxpr", "kernel"), **kwargs: Any) -> None:
    """Print ``function`` compiled for these arguments in some of its forms."""
    print(report(function, *args, **kwargs).text(forms))

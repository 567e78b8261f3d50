"""What a user required of memory, checked where a program is compiled: donations are used, updates do not copy.

``ValueError`` names the argument or the line, the bytes, and why a copy would be made, in the words of ``buffers``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from weft.compiler.plans.buffers import MemoryReport
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.tracing import source_info
from weft.dispatch.programs import in_place

_AT_RUN_TIME = "only if others hold"  # how ``buffers`` begins the reason of a copy that depends on the caller


def check_donations(program: Any, names: Sequence[str]) -> None:
    """ValueError if a donated input is not written over, or is copied first; ``names``: of the inputs."""
    report = _report(program)
    for entry in report.entries():
        index = report.memory.inputs.get(entry.variable, -1)
        if index not in report.given:
            continue
        reason = ""
        if entry.kind == "input" and "donated, not reused: " in entry.text:
            reason = entry.text.partition("donated, not reused: ")[2]
        elif entry.kind == "copy" and _AT_RUN_TIME not in entry.text:
            reason = entry.text
        if reason:
            what = f"{names[index]} {entry.variable.aval.str_short()}, {entry.nbytes} bytes"
            raise ValueError(
                f"[jit] donate='require': {what}, is donated and cannot be reused: {reason}. Change the function so "
                "that a result of its size is made after its last use, or leave out donate='require'."
            )


def check_updates(program: Any) -> None:
    """ValueError if an update marked by ``inplace="require"`` copies its array."""
    updated: set[Any] = set()  # positions in the user's code
    for inner in _walk(program):
        copied = {entry.step: entry.text for entry in _report(inner).entries() if entry.kind == "copy"}
        for number, step in enumerate(inner.kernels.steps):
            for equation in _marked_updates(step):
                updated.add(_position(equation))
                reason = copied.get(number, _AT_RUN_TIME)
                if _AT_RUN_TIME not in reason:
                    _refuse(equation, equation.outvars[0].aval.nbytes, reason)
    for inner in _walk(program):
        for step in inner.kernels.steps:
            for equation in _marked_rest(step):
                if _position(equation) not in updated:
                    reason = (
                        f"the compiler made it part of kernel {step.kernel.name}, which writes the whole array anew"
                    )
                    _refuse(equation, equation.outvars[0].aval.nbytes, reason)


def _refuse(equation: JaxprEqn, nbytes: int, reason: str) -> NoReturn:
    raise ValueError(
        f"[at] inplace='require': the update at {source_info.summarize(equation.source)} would copy {nbytes} bytes: "
        f"{reason}. Donate the array (donate_argnums), and do not use it after the update."
    )


def _position(equation: JaxprEqn) -> Any:
    return None if equation.source is None else equation.source[:2]


def _marked_updates(step: Any) -> list[JaxprEqn]:
    if step.kernel is None:
        return []
    updates = [o.targets.equation if o.targets else o.starts for o in step.kernel.outputs if o.targets or o.starts]
    return [equation for equation in updates if in_place.is_marked(equation)]


def _marked_rest(step: Any) -> list[JaxprEqn]:
    """What became of updates that a pass has rewritten: elementwise equations whose result is stored."""
    if step.kernel is None:
        return []
    stored = {output.node.atom for output in step.kernel.outputs}
    return [
        equation
        for equation in step.kernel.equations
        if in_place.is_marked(equation) and not stored.isdisjoint(equation.outvars)
    ]


def _walk(program: Any) -> Iterator[Any]:
    yield program
    for inner in program.nested:
        yield from _walk(inner)


def _report(program: Any) -> MemoryReport:
    return MemoryReport(program.assignment())

"""Findings: avoidable costs of a compiled function in time or memory, each with line, price and cure; a closed list.

    stored concatenation (model.py:12, 8.0 MB): the array that concatenate makes is written and read again
      cure: ...

Findings are facts about the program, not rules of style: each names what the compiler had to do and what it moves.
"""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.compiler.pipeline import Program
from weft.compiler.plans import buffers, residuals, steps
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params
from weft.inspect import account, boundaries

LEAST_BYTES = 1 << 16  # bytes: smaller arrays cost too little to be seen
LARGE_BYTES = 1 << 20
SMALL_PRODUCT = 32**3  # multiplications of one matrix product of a batch
_MOST = 60
_LOOK_BACK = 64  # equations that a search goes back through
_LOCAL = (kinds.Elementwise, kinds.View, kinds.Generate)

CURES = {
    "captured constant": "pass the array as an argument: a captured one is kept, and compared, with the program",
    "gather in the way": "gather from the inputs first and compute after: what is gathered from must be in memory",
    "layout copy": "keep arrays in the order in which they are read; products read transposed operands where they lie",
    "reshape of a transposed array": "reshape first, or keep the transposed order: a reshape needs rows in order",
    "float64": "keep float32: give NumPy arrays and constants a dtype; a float64 operand makes all that follow float64",
    "widened half": "compute in the half precision, or keep the widened array only where it is summed",
    "complex upcast": "keep real arrays real: use rfft, or separate real and imaginary parts",
    "integer division": "divide by a Python number, which is compiled to a multiplication, or by a power of two",
    "integers made floats": "divide with //, or convert once where the array is made",
    "stored concatenation": "let the readers take the pieces, or write them into one array with .at[...].set",
    "several readers": "use the value in one expression; readers over different shapes each need it in memory",
    "small products": "put the batch into one matrix product: reshape so that all their rows lie together",
    "strided reduction": "reduce along the last axis, or store the array transposed: rows are read one after the other",
    "read across rows": boundaries.REFUSALS["read across rows"][1],
    "ordered scatter": "unique_indices=True if no index occurs twice: then updates run in vectors and on all threads",
    "missing donation": "jit(..., donate_argnums=...): the result is then written over an argument not needed again",
    "donation unused": "donate only what a result of the same size can replace",
    "residuals": "weft.checkpoint around the part, with a policy: values are recomputed instead of kept",
    "unneeded checkpoint": "leave checkpoint out: what it saves is small, and the forward pass is computed twice",
    "loop of kernels": "do more in an iteration (unroll, or batch with vmap): starting takes much of a short one",
    "callback in a loop": "call once after the loop with the stacked values: each iteration waits for Python",
    "callback": "keep callbacks out of what is timed: the program waits for Python and cannot be kept on disk",
    "copy before update": "donate the array, or do not use it after its update: then it is updated in place",
    "sort": "sort once, outside of the function, or use top_k; a sort is a step of its own and reads memory",
    "large intermediate": "reduce before you broadcast: write the sum as a matrix product or an einsum",
    "scan in order": boundaries.REFUSALS["scan needs no vectors"][1],
    "linear algebra": "factorise once and reuse it (cho_factor, lu_factor); solve instead of inverting",
    "waits in a loop": "keep results as arrays and look at them after the loop, or every so many steps",
    "eager operations": "put them into the jitted function: each costs a call, and its result goes through memory",
    "many phases": "nothing by itself: reductions over different axes need each other's results from memory",
}


class Finding(NamedTuple):
    """One finding; ``nbytes``: what it moves or holds in a call (0: not counted in bytes)."""

    code: str
    text: str
    line: account.Line
    nbytes: int

    @property
    def cure(self) -> str:
        return CURES[self.code]

    def as_data(self, line: Callable[[account.Line], Any]) -> dict[str, Any]:
        """The finding as plain data; the line has its number on the page."""
        where = line(self.line)
        return {"code": self.code, "text": self.text, "line": where, "bytes": self.nbytes, "cure": self.cure}

    def __str__(self) -> str:
        file, number = self.line
        where = f"{os.path.basename(file)}:{number}" if file else "no line"
        price = f", {self.nbytes:,} bytes" if self.nbytes else ""
        return f"{self.code} ({where}{price}): {self.text}\n    cure: {self.cure}"


def findings(program: Program, traced: ClosedJaxpr | None, arguments: Sequence[tuple[str, Any, bool]]) -> list[Finding]:
    """All findings about a program, the most costly first; one for each code and line."""
    found: dict[tuple[str, account.Line], Finding] = {}
    for finding in _all(program, traced, arguments):
        key = finding.code, finding.line
        before = found.get(key)
        found[key] = finding if before is None else before._replace(nbytes=before.nbytes + finding.nbytes)
    return sorted(found.values(), key=lambda f: -f.nbytes)[:_MOST]


def _all(program: Program, traced: ClosedJaxpr | None, arguments: Sequence[Any]) -> Iterator[Finding]:
    if traced is not None:
        yield from _constants(traced)
        for equation, in_loop in _equations(traced.jaxpr, False):
            yield from _of_equation(equation, in_loop)
        yield from _checkpoints(traced.jaxpr)
    yield from _donations(program, arguments)
    for one in account.walk(program):
        yield from _of_program(one)


def _equations(jaxpr: Jaxpr, in_loop: bool) -> Iterator[tuple[JaxprEqn, bool]]:
    """All equations, and whether a loop runs them."""
    for equation in jaxpr.eqns:
        yield equation, in_loop
        is_loop = isinstance(equation.primitive.kind, kinds.Loop)
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner, in_loop or is_loop)


# ---- of the program as it was traced


def _constants(traced: ClosedJaxpr) -> Iterator[Finding]:
    for variable, value in zip(traced.jaxpr.constvars, traced.consts, strict=True):
        nbytes = getattr(value, "nbytes", 0)
        if nbytes >= LEAST_BYTES:
            reader = next((e for e, _ in _equations(traced.jaxpr, False) if variable in _variables(e)), None)
            line = account.UNKNOWN if reader is None else account.line_of(reader)
            text = f"the function captures an array {variable.aval.str_short()}"
            yield Finding("captured constant", text, line, nbytes)


def _variables(equation: JaxprEqn) -> list[Any]:
    return [v for v in equation.invars if type(v) is not Literal]


def _of_equation(equation: JaxprEqn, in_loop: bool) -> Iterator[Finding]:
    kind, line = equation.primitive.kind, account.line_of(equation)
    if isinstance(kind, kinds.Effect) or _is_callback(equation):
        code = "callback in a loop" if in_loop else "callback"
        yield Finding(
            code, f"{equation.primitive.name} calls Python{' in every iteration' if in_loop else ''}", line, 0
        )
    if isinstance(kind, kinds.Elementwise) and equation.outvars and equation.invars:
        yield from _conversions(equation, line)
    if isinstance(kind, kinds.Scatter) and not equation.params.get("unique_indices", True):
        yield from _ordered(equation, line)


def _is_callback(equation: JaxprEqn) -> bool:
    return isinstance(equation.primitive.kind, kinds.External) and "callback" in equation.params


def _ordered(equation: JaxprEqn, line: account.Line) -> Iterator[Finding]:
    updates = equation.invars[2].aval
    if updates.nbytes >= LEAST_BYTES:
        text = (
            f"{equation.primitive.name} of {updates.str_short()} may write an element twice, so that its order is kept"
        )
        yield Finding("ordered scatter", text, line, updates.nbytes)


def _conversions(equation: JaxprEqn, line: account.Line) -> Iterator[Finding]:
    out = equation.outvars[0].aval
    operands = [v.aval for v in equation.invars]
    before, after = np.dtype(operands[0].dtype), np.dtype(out.dtype)
    if out.nbytes < LEAST_BYTES:
        return
    types = f"{operands[0].str_short()} becomes {out.str_short()}"
    if len(operands) == 1 and before != after:
        if after.name in ("float64", "complex128") and before.name not in ("float64", "complex128"):
            yield Finding("float64", types, line, out.nbytes)
        elif before.itemsize == 2 and before.kind in "fV" and after.name == "float32":
            yield Finding("widened half", types, line, out.nbytes)
        elif after.kind == "c" and before.kind != "c":
            yield Finding("complex upcast", types, line, out.nbytes)
        elif before.kind in "iu" and after.kind == "f":
            yield Finding("integers made floats", types, line, out.nbytes)
    whole = before.kind in "iu" and after.kind in "iu" and len(operands) == 2
    if whole and equation.primitive.name in ("div", "rem") and not isinstance(equation.invars[1], Literal):
        yield Finding("integer division", f"{out.str_short()} is divided element by element", line, out.nbytes)


def _checkpoints(jaxpr: Jaxpr) -> Iterator[Finding]:
    """Checkpoints that save little: their inner values are no larger than what enters and leaves."""
    for equation, _ in _equations(jaxpr, False):
        inner = next(iter(jaxprs_in_params(equation.params)), None)
        if inner is None or "prevent_cse" not in equation.params:
            continue
        saved = sum([v.aval.nbytes for e in inner.eqns for v in e.outvars])
        if saved < LARGE_BYTES:
            text = f"it recomputes {len(inner.eqns)} equations to save at most {saved:,} bytes"
            yield Finding(
                "unneeded checkpoint", text, account.line_of(inner.eqns[0] if inner.eqns else equation), saved
            )


# ---- of arguments


def _donations(program: Program, arguments: Sequence[tuple[str, Any, bool]]) -> Iterator[Finding]:
    sizes = [aval.nbytes for aval in program.out_avals]
    for path, aval, donated in arguments:
        if donated or aval.nbytes < LARGE_BYTES or aval.nbytes not in sizes:
            continue
        if any(v.str_short() == aval.str_short() for v in program.out_avals):
            sizes.remove(aval.nbytes)
            text = f"{path} {aval.str_short()} is not donated, and a result of the same type takes new memory"
            yield Finding("missing donation", text, _first_line(program), aval.nbytes)
    results = [aval.nbytes for aval in program.out_avals]
    for path, aval, donated in arguments:
        if donated and aval.nbytes >= LEAST_BYTES and aval.nbytes not in results:
            text = f"{path} {aval.str_short()} is donated, but no result has its size"
            yield Finding("donation unused", text, _first_line(program), aval.nbytes)
    for entry in _memory(program).entries():
        if "donated, not reused" in entry.text and entry.nbytes >= LEAST_BYTES:
            yield Finding("donation unused", entry.text, _first_line(program), entry.nbytes)


def _memory(program: Program) -> buffers.MemoryReport:
    return buffers.MemoryReport(program.assignment())


def _first_line(program: Program) -> account.Line:
    lines = [account.line_of(equation) for equation in program.jaxpr.eqns]
    return next((line for line in lines if line[0]), account.UNKNOWN)


# ---- of the compiled program


def _of_program(program: Program) -> Iterator[Finding]:
    makers = {v: e for e in program.jaxpr.eqns for v in e.outvars}
    parts = account.parts(program)
    yield from _copies(program)
    yield from _moves(program, makers)
    yield from _of_boundaries(program, makers)
    yield from _residuals(program)
    for part in parts:
        yield from _of_part(program, part)


def _copies(program: Program) -> Iterator[Finding]:
    report = _memory(program)
    for entry in report.entries():
        if entry.kind == "copy" and entry.nbytes >= LEAST_BYTES and "only if others" not in entry.text:
            yield Finding("copy before update", entry.text, _line_of_step(program, entry.step), 2 * entry.nbytes)


def _line_of_step(program: Program, number: int) -> account.Line:
    step = program.kernels.steps[number]
    if step.kernel is None:
        return account.line_of(step.equation)
    updates = [o.targets.equation if o.targets else o.starts for o in step.kernel.outputs if o.targets or o.starts]
    equations = [*updates, *step.kernel.equations]
    return next((line for e in equations if (line := account.line_of(e))[0]), account.UNKNOWN)


def _moves(program: Program, makers: dict[Any, JaxprEqn]) -> Iterator[Finding]:
    """Kernels that only move elements into another order."""
    users: dict[Any, list[JaxprEqn]] = {}
    for equation in program.jaxpr.eqns:
        for v in _variables(equation):
            users.setdefault(v, []).append(equation)
    for step in program.kernels.steps:
        kernel = step.kernel
        if kernel is None or step.copies or not kernel.equations:
            continue
        if not all(isinstance(e.primitive.kind, (kinds.View, kinds.Identity, kinds.Reshape)) for e in kernel.equations):
            continue
        nbytes = sum([output.target.aval.nbytes for output in kernel.outputs])
        reads = max([v.aval.nbytes for e in kernel.equations for v in _variables(e)], default=0)
        if nbytes < LEAST_BYTES or reads < nbytes // 2:
            continue
        last = kernel.equations[-1]
        after = [u for v in last.outvars for u in users.get(v, []) if isinstance(u.primitive.kind, kinds.Reshape)]
        if after:
            text = f"{last.outvars[0].aval.str_short()} is copied into its new order, so that it can be reshaped"
            yield Finding("reshape of a transposed array", text, account.line_of(after[0]), 2 * nbytes)
        else:
            text = f"{last.primitive.name} copies {last.outvars[0].aval.str_short()} into another order"
            yield Finding("layout copy", text, account.line_of(last), 2 * nbytes)


_OF_EDGES = {
    "read across rows": "read across rows",
    "gathered several times": "gather in the way",
    "scan needs no vectors": "scan in order",
    "strict order": "scan in order",
    "other axes": "many phases",
}


def _of_boundaries(program: Program, makers: dict[Any, JaxprEqn]) -> Iterator[Finding]:
    uses = collections.Counter([v for equation in program.jaxpr.eqns for v in _variables(equation)])
    for edge in boundaries.boundaries(program):
        maker = makers.get(edge.variable)
        if maker is None or edge.nbytes < LEAST_BYTES or edge.reader < 0:
            continue
        line, kind = account.line_of(maker), maker.primitive.kind
        what = f"{maker.primitive.name} makes {edge.variable.aval.str_short()}"
        text = f"{what}, which is written and read again: {edge.text}"
        reader = program.kernels.steps[edge.reader]
        gathers = [] if reader.kernel is None else reader.kernel.equations
        gather = next((e for e in gathers if isinstance(e.primitive.kind, kinds.Gather)), None)
        if isinstance(kind, kinds.Assemble):
            yield Finding("stored concatenation", text, line, edge.nbytes)
        elif gather is not None and edge.variable in _through_views(gather.invars[0], makers):
            yield Finding("gather in the way", text, account.line_of(gather), edge.nbytes)
        elif edge.code in _OF_EDGES:
            yield Finding(_OF_EDGES[edge.code], text, line, edge.nbytes)
        if uses[edge.variable] > 1 and edge.code != "epilogue" and isinstance(kind, kinds.Elementwise):
            yield Finding("several readers", text, line, edge.nbytes)
        if edge.variable.aval.nbytes >= LARGE_BYTES and _is_spread(maker, makers):
            yield Finding("large intermediate", text, line, edge.nbytes)


def _is_spread(maker: JaxprEqn, makers: dict[Any, JaxprEqn]) -> bool:
    """Whether an elementwise result is far larger than each of its operands, which broadcasts spread."""
    if not isinstance(maker.primitive.kind, kinds.Elementwise):
        return False
    most, waiting, seen = 1, [maker], {maker}
    while waiting and len(seen) < _LOOK_BACK:
        for variable in _variables(waiting.pop()):
            before = makers.get(variable)
            if before is None or not isinstance(before.primitive.kind, _LOCAL):
                most = max(most, variable.aval.size)
            elif before not in seen:
                seen.add(before)
                waiting.append(before)
    return 8 * most <= maker.outvars[0].aval.size


def _through_views(variable: Any, makers: dict[Any, JaxprEqn]) -> list[Any]:
    found = [variable]
    while (maker := makers.get(variable)) and isinstance(maker.primitive.kind, (kinds.View, kinds.Reshape)):
        variable = maker.invars[0]
        if type(variable) is Literal:
            break
        found.append(variable)
    return found


def _residuals(program: Program) -> Iterator[Finding]:
    report = _memory(program)
    lines = report.residuals()
    kept = [line.split() for line in lines if line.startswith("  kept")]
    nbytes = sum([int(words[3]) for words in kept])
    if nbytes < LARGE_BYTES:
        return
    names = {report.name(v): e for e in program.jaxpr.eqns if not residuals.is_backward(e) for v in e.outvars}
    largest = max(kept, key=lambda words: int(words[3]))
    line = account.line_of(names[largest[1]]) if largest[1] in names else account.UNKNOWN
    text = f"{len(kept)} values stay in memory for the backward pass, the largest is {largest[2]}"
    yield Finding("residuals", text, line, nbytes)


def _of_part(program: Program, part: account.Part) -> Iterator[Finding]:
    entry = program.plan.sources[part.number]
    line = max(part.lines, key=part.lines.__getitem__)
    if part.what == "sort":
        yield Finding("sort", f"{part.name} of {_shape(part)} is a step of its own", line, _operand_bytes(part))
    elif part.what == "library":
        yield Finding("linear algebra", f"{part.name} of {_shape(part)} calls LAPACK", line, _operand_bytes(part))
    elif part.what == "callback" and not part.equations[0].effects:
        yield Finding("callback", f"{part.name} calls Python", line, 0)
    elif part.what == "product":
        yield from _small_products(entry, part, line)
    elif part.what == "loop" and isinstance(entry, steps.Control):
        yield from _loops(entry, part, line)
    yield from _strided(program, part)


def _shape(part: account.Part) -> str:
    return part.equations[0].invars[0].aval.str_short()


def _operand_bytes(part: account.Part) -> int:
    return sum([v.aval.nbytes for e in part.equations for v in _variables(e)])


def _small_products(entry: Any, part: account.Part, line: account.Line) -> Iterator[Finding]:
    product = entry.product if isinstance(entry, steps.FusedEpilogue) else entry
    if not hasattr(product, "batch"):
        return
    batch, rows, columns, terms = (
        math.prod([dim[0] for dim in dims]) for dims in (product.batch, product.rows, product.columns, product.summed)
    )
    if batch >= 8 and rows * columns * terms <= SMALL_PRODUCT:
        text = f"{batch} products of [{rows}, {terms}] and [{terms}, {columns}], one after the other"
        yield Finding("small products", text, line, int(part.nbytes))


def _loops(entry: Any, part: account.Part, line: account.Line) -> Iterator[Finding]:
    body = part.programs[0]
    kernels, cost = len(body.plan.instructions), body.executable.cost_ns
    if kernels and cost / kernels < 20_000:
        text = (
            f"each iteration starts {kernels} step{'s' if kernels > 1 else ''}, of {cost / kernels:.0f} ns by estimate"
        )
        yield Finding("loop of kernels", text, line, 0)


def _strided(program: Program, part: account.Part) -> Iterator[Finding]:
    for equation in part.equations:
        kind = equation.primitive.kind
        if not isinstance(kind, kinds.Reduction) or type(equation.invars[0]) is Literal:
            continue
        aval, axes = equation.invars[0].aval, kind.axes(equation.params)
        if aval.nbytes >= LARGE_BYTES and aval.ndim - 1 not in axes and aval.shape[-1] > 1:
            text = f"{equation.primitive.name} of {aval.str_short()} along {tuple(axes)} reads with a stride"
            yield Finding("strided reduction", text, account.line_of(equation), aval.nbytes)

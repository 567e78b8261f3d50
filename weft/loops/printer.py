"""A nest or a routine as text: the form ``loops`` of ``as_text``, also used in golden files.

nest exp_reduce_sum_div  parallel i0; reduced i1 lanes x16
  in0 f32 [*, 1]   out1 f32 [*, 1]   row0 f32
  schedule: lanes i1 x16; 2 in flight, last masked
  phase 0: for i1
    v0 = load in0
  v1 = reduce_max(v0) lanes

routine scan
  in0 i32   out1 f32 rows of 3
  v2 f32[3] = repeat trips 0 (v1)
    body (v3)
      v4 f32[3] = mul v3 v0
      -> v4
  v5 f32[1]* = a value that each lane has its own of
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.loops import ir
from weft.loops.routines import routine

_CLASSES = {0: "0", 1: "1", ir.REVERSED: "-1", ir.RUNTIME: "*"}


def text(nest: ir.Nest | routine.Routine, schedule: str = "") -> str:
    """The nest or routine, one statement a line; ``schedule`` is a line that says how it is run."""
    decided = [f"  {schedule}"] if schedule else []
    lines = _routine(nest, decided) if isinstance(nest, routine.Routine) else _nest(nest, decided)
    return "\n".join(lines)


def _nest(nest: ir.Nest, schedule: list[str]) -> list[str]:
    dims = "; ".join(
        f"{dim.role} i{i}{'' if dim.extent is None else f' of {dim.extent}'}{' in runs' if dim.runs else ''}"
        f"{f' lanes x{nest.width}' if i == nest.vector else ''}"
        for i, dim in enumerate(nest.dims)
    )
    lines = [f"nest {nest.name}  {dims or 'one point'}{'  split' if nest.split else ''}{'  long' if nest.long else ''}"]
    operands = [
        f"{operand.role}{i} {_dtype(operand.dtype)} [{', '.join(_CLASSES[s] for s in operand.strides)}]"
        + ("" if operand.near is None else " at in{}[{:+}, {:+}]".format(*operand.near))
        + ("" if operand.apart is None else " by {}, {}".format(*operand.apart))
        for i, operand in enumerate(nest.operands)
    ]
    operands += [f"row{i} {_dtype(dtype)}" for i, dtype in enumerate(nest.rows)]
    lines += ["  " + "   ".join(operands), *schedule]
    lines += [f"  {_statement(nest.operands, s)}" for s in nest.setup]
    reduced = ", ".join(f"i{i}" for i, dim in enumerate(nest.dims) if dim.role == "reduced")
    for number, phase in enumerate(nest.phases):
        lines.append(f"  phase {number}")
        lines += [f"    {_statement(nest.operands, s)}" for s in phase.before]
        if phase.body and reduced:
            lines.append(f"    for {reduced}")
        lines += [f"      {_statement(nest.operands, s)}" for s in phase.body]
        lines += [f"    {_statement(nest.operands, r)}" for r in phase.reductions]
    if nest.edges:
        lines += ["  edges", *[f"      {_statement(nest.operands, s)}" for s in nest.edges]]
    return lines


def body_text(body: Any) -> str:
    """A body: its operands with their strides by axis, then its statements over those axes."""
    lines = []
    for i, operand in enumerate(body.operands):
        strides = ", ".join(f"{key}: {stride.elems}" for key, stride in operand.strides.items())
        lines.append(f"  {operand.role}{i} {_dtype(operand.dtype)} offset {operand.offset} strides {{{strides}}}")
    lines += [f"  row{i} {_dtype(dtype)}" for i, dtype in enumerate(body.rows)]
    lines += [f"  {_statement(body.operands, s)}" for s in body.setup]
    for number, (before, inside, reductions) in enumerate(body.phases):
        lines.append(f"  phase {number}")
        lines += [f"    {_statement(body.operands, s)}" for s in before]
        lines += [f"      {_statement(body.operands, s)}" for s in inside]
        lines += [f"    {_statement(body.operands, r)}" for r in reductions]
    return "\n".join(lines)


def _dtype(dtype: np.dtype) -> str:
    short = {"b": "bool", "i": "i", "u": "u", "f": "f", "c": "c"}.get(dtype.kind, dtype.name)
    return short if short in ("bool", dtype.name) else f"{short}{dtype.itemsize * 8}"


def _values(numbers: Sequence[int], between: str = " ") -> str:
    return between.join([f"v{n}" for n in numbers])


def _statement(operands: Sequence[Any], s: ir.Statement | ir.Reduce) -> str:
    """A statement of a nest."""
    outs = routine.outs(s)
    dtype = f"  # {_dtype(s.dtype)}" if isinstance(s, ir.Apply) else ""
    return (f"{_values(outs, ', ')} = " if outs else "") + _right(operands, s) + dtype


def _right(operands: Sequence[Any], s: Any) -> str:
    """What a statement of a nest or a routine does, without the values that it defines."""
    match s:
        case ir.Load(_, operand):
            return f"load {operands[operand].role}{operand}"
        case ir.Store(operand, value):
            return f"store {operands[operand].role}{operand} = v{value}"
        case ir.LoadAt(_, operand, offset, inside):
            given = "" if inside is None else f" if v{inside}"
            return f"load {operands[operand].role}{operand} at v{offset}{given}"
        case ir.Update(operand, offset, inside, old, steps, new, guard):
            given = "" if inside is None else f" if v{inside}"
            inner = "".join(f"{_statement(operands, step)}; " for step in steps)
            tested = "" if guard is None else f"; {_statement(operands, guard)}"
            return f"update {operands[operand].role}{operand} at v{offset}{given}: v{old} -> {inner}v{new}{tested}"
        case ir.Guard(operand, value, fails):
            test = {"true": "", "nan": " is nan", "finite": " is not finite"}[fails]
            return f"guard {operands[operand].role}{operand} if v{value}{test}"
        case ir.RowStore(row, value):
            return f"store row{row} = v{value}"
        case ir.RowLoad(_, row):
            return f"load row{row}"
        case ir.Param(_, index, dtype):
            return f"param {index} {_dtype(dtype)}"
        case ir.IndexOf(_, dim, dtype):
            return f"index i{dim} {_dtype(dtype)}"
        case ir.Apply(_, name, _, params, args):
            given = " ".join([f"{key}={value}" for key, value in params if value is not None])
            return f"{name}{f'[{given}]' if given else ''} {_values(args)}"
        case ir.Scan(_, name, _, _, args):
            return f"scan {name} {_values(args)}{f' run {s.run}' if isinstance(s, routine.Running) else ''}"
        case ir.Reduce(_, name, _, _, args):
            of_parts = f" kept {s.kept} outer {s.outer} run {s.run}" if isinstance(s, routine.Fold) else ""
            at = _at(s.positions) if isinstance(s, routine.Fold) else ""
            return f"{name}({_values(args, ', ')}){at}{of_parts} {s.tree}"
        case routine.Pick(_, sources):
            return f"pick {_few([f'v{value}.{element}' for value, element in sources])}"
        case routine.Spread(_, value):
            return f"v{value} in every lane"
        case routine.Product(_, lhs, rhs, (batch, m, n, k)):
            return f"product v{lhs} v{rhs} (batch {batch} m {m} n {n} k {k})"
        case routine.Take():
            return f"{_source(operands, s)} at v{s.index}"
        case routine.Slice():
            size = "size " if s.value is None else ""
            return f"slice {_source(operands, s)} at {_starts(s.starts, size)}"
        case routine.Update():
            return f"update v{s.value} at {_starts(s.starts, '')} with v{s.update}"
    raise ValueError(f"[loops] {type(s).__name__} has no text")


# routines


def _routine(program: routine.Routine, schedule: list[str]) -> list[str]:
    operands = [
        f"{operand.role}{k} {_dtype(operand.dtype)}{'*' if operand.lanes else ''}"
        + (f" rows of {operand.size}" if operand.size else "")
        for k, operand in enumerate(program.operands)
    ]
    first = f"routine {program.name}{' in lanes' if program.lanes else ''}"
    return [first, "  " + "   ".join(operands), *schedule, *_block(program, program.block, "  ")]


def _block(program: routine.Routine, block: routine.Block, indent: str) -> list[str]:
    lines = [indent + line for s in block.statements for line in _lines(program, s)]
    return [*lines, f"{indent}-> {_values(block.results)}"] if block.results else lines


def _lines(program: routine.Routine, s: Any) -> list[str]:
    """A statement of a routine; one with blocks has several lines."""
    found = [(n, program.types[n]) for n in routine.outs(s)]
    typed = [f"v{n} {_dtype(kind.dtype)}[{kind.size}]{'*' if kind.lanes else ''}" for n, kind in found]
    left = f"{', '.join(typed)} = " if typed else ""
    if isinstance(s, routine.Constant):
        values = np.frombuffer(s.bits, program.types[s.out].dtype)
        return [f"{left}constant {_few([str(value) for value in values])}"]
    if isinstance(s, routine.Repeat):
        count = f"trips {s.trips}{' from the last' if s.reverse else ''}" if s.cond is None else "as long as"
        lines = [f"{left}repeat {count}{' in any lane' if s.by_element else ''} ({_values(s.initial)})"]
        if s.cond is not None:
            lines += [f"  cond ({_values(s.cond.arguments)})", *_block(program, s.cond, "    ")]
        return [*lines, f"  body ({_values(s.body.arguments)})", *_block(program, s.body, "    ")]
    if isinstance(s, routine.Choose):
        cases = [(f"  case {k}", *_block(program, block, "    ")) for k, block in enumerate(s.blocks)]
        return [f"{left}choose v{s.index}", *[line for case in cases for line in case]]
    return [left + _right(program.operands, s)]


def _few(texts: Sequence[str]) -> str:
    return f"{' '.join(texts[:16])}{' ...' if len(texts) > 16 else ''}"


def _at(positions: Sequence[int] | None) -> str:
    return "" if positions is None else f" at {_few([str(position) for position in positions])}"


def _source(operands: Sequence[Any], s: routine.Slice | routine.Take) -> str:
    return f"v{s.value}" if s.operand is None else f"{operands[s.operand].role}{s.operand}"


def _starts(starts: Sequence[tuple[int, int, int | None]], size: str) -> str:
    texts = [f"clamp(v{value}, 0, {size}{most})" + (f"*{size}{stride}" if stride is not None else "")
             for value, most, stride in starts]  # fmt: skip
    return " + ".join(texts) or "0"

"""Routines as text: one statement a line, blocks indented.

v3 f32[3] = mul v1 v2
v7 f32[3] = repeat trips0 (v1)
  body (v4) ... -> (v6)
v8 f32[1]* = a value that each lane has its own of
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.loops import routine


def text(program: routine.Routine, schedule: str = "") -> str:
    """The whole routine; ``schedule`` is a line that says how it is run."""
    lines = [f"routine {program.name}{' in lanes' if program.lanes else ''}"]
    for k, operand in enumerate(program.operands):
        lines.append(
            f"  operand {k}: {operand.role} {operand.dtype.name}{' of each lane' if operand.lanes else ''}"
            + (f", rows of {operand.size}" if operand.size else "")
        )
    lines += [f"  {schedule}"] if schedule else []
    return "\n".join([*lines, *_block(program, program.block, "  ")])


def _block(program: routine.Routine, block: routine.Block, indent: str) -> list[str]:
    lines: list[str] = []
    for statement in block.statements:
        lines += [indent + line for line in _statement(program, statement)]
    if block.results:
        lines.append(f"{indent}-> {_values(block.results)}")
    return lines


def _values(numbers: Sequence[int]) -> str:
    return " ".join(f"v{n}" for n in numbers)


def _typed(program: routine.Routine, numbers: Sequence[int]) -> str:
    kinds = [program.types[n] for n in numbers]
    texts = [f"{kind.dtype.name}[{kind.size}]{'*' if kind.lanes else ''}" for kind in kinds]
    return ", ".join(f"v{n} {text}" for n, text in zip(numbers, texts, strict=True))


def _statement(program: routine.Routine, s: Any) -> list[str]:
    if isinstance(s, routine.Write):
        return [f"write operand {s.operand}{' row' if s.row else ''} v{s.value}"]
    if isinstance(s, routine.Guard):
        return [f"guard if v{s.value}"]
    outs = s.outs if hasattr(s, "outs") else (s.out,)
    left = f"{_typed(program, outs)} = "
    if isinstance(s, routine.Repeat):
        count = f"trips {s.trips}{' from the last' if s.reverse else ''}" if s.cond is None else "as long as"
        count += " in any lane" if s.by_element else ""
        lines = [f"{left}repeat {count} ({_values(s.initial)})"]
        if s.cond is not None:
            lines += [f"  cond ({_values(s.cond.arguments)})", *_block(program, s.cond, "    ")]
        return [*lines, f"  body ({_values(s.body.arguments)})", *_block(program, s.body, "    ")]
    if isinstance(s, routine.Choose):
        lines = [f"{left}choose v{s.index}"]
        for k, block in enumerate(s.blocks):
            lines += [f"  case {k}", *_block(program, block, "    ")]
        return lines
    return [left + _right(program, s)]


def _right(program: routine.Routine, s: Any) -> str:
    if isinstance(s, routine.Constant):
        values = np.frombuffer(s.bits, program.types[s.out].dtype)
        return f"constant {' '.join(str(value) for value in values[:8])}{' ...' if values.size > 8 else ''}"
    if isinstance(s, routine.Param):
        return f"param {s.index}"
    if isinstance(s, routine.Pick):
        shown = " ".join(f"v{value}.{element}" for value, element in s.sources[:16])
        return f"pick {shown}{' ...' if len(s.sources) > 16 else ''}"
    if isinstance(s, routine.Spread):
        return f"v{s.value} in every lane"
    if isinstance(s, routine.Map):
        return f"{s.name} {_values(s.args)}"
    if isinstance(s, routine.Fold):
        shown = "" if s.places is None else f" at {' '.join(map(str, s.places[:16]))}{' ...' * (len(s.places) > 16)}"
        return f"{s.name} {_values(s.args)}{shown} kept {s.kept} outer {s.outer} run {s.run} ({s.tree})"
    if isinstance(s, routine.Running):
        return f"{s.name} {_values(s.args)} run {s.run}"
    if isinstance(s, routine.Product):
        return f"product v{s.lhs} v{s.rhs} (batch {s.extents[0]} m {s.extents[1]} n {s.extents[2]} k {s.extents[3]})"
    if isinstance(s, routine.Read):
        return f"read operand {s.operand}{' row' if s.row else ''}"
    if isinstance(s, routine.Take):
        return f"{f'v{s.value}' if s.value is not None else f'operand {s.operand}'} at v{s.place}"
    far = isinstance(s, routine.Slice) and s.operand is not None
    at = " + ".join(_place(far, value, most, stride) for value, most, stride in s.starts) or "0"
    if isinstance(s, routine.Update):
        return f"update v{s.value} at {at} with v{s.update}"
    return f"slice {f'v{s.value}' if s.value is not None else f'operand {s.operand}'} at {at}"


def _place(far: bool, value: int, most: int, stride: int | None) -> str:
    size = "size " if far else ""
    return f"clamp(v{value}, 0, {size}{most})" + (f"*{size}{stride}" if stride is not None else "")

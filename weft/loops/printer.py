"""A nest as text: the form ``loops`` of ``as_text``, also used in golden files.

nest exp_reduce_sum_div  parallel i0; reduced i1 lanes x16
  in0 f32 [*, 1]   out1 f32 [*, 1]   row0 f32
  schedule: lanes i1 x16; 2 in flight, last masked
  phase 0: for i1
    v0 = load in0
  v1 = reduce_max(v0) lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.loops import ir

_CLASSES = {0: "0", 1: "1", ir.REVERSED: "-1", ir.RUNTIME: "*"}


def text(nest: ir.Nest, schedule: str = "") -> str:
    """The nest, one statement a line; ``schedule`` is a line that says how it is run."""
    dims = "; ".join(
        f"{dim.role} i{i}{'' if dim.extent is None else f' of {dim.extent}'}{' in runs' if dim.runs else ''}"
        f"{f' lanes x{nest.width}' if i == nest.vector else ''}"
        for i, dim in enumerate(nest.dims)
    )
    lines = [f"nest {nest.name}  {dims or 'one point'}{'  split' if nest.split else ''}"]
    operands = [
        f"{operand.role}{i} {_dtype(operand.dtype)} [{', '.join(_CLASSES[s] for s in operand.strides)}]"
        + ("" if operand.near is None else " at in{}[{:+}, {:+}]".format(*operand.near))
        + ("" if operand.apart is None else " by {}, {}".format(*operand.apart))
        for i, operand in enumerate(nest.operands)
    ]
    operands += [f"row{i} {_dtype(dtype)}" for i, dtype in enumerate(nest.rows)]
    lines.append("  " + "   ".join(operands))
    lines += [f"  {schedule}"] if schedule else []
    lines += [f"  {_statement(nest.operands, s)}" for s in nest.setup]
    reduced = ", ".join(f"i{i}" for i, dim in enumerate(nest.dims) if dim.role == "reduced")
    for number, phase in enumerate(nest.phases):
        lines.append(f"  phase {number}")
        lines += [f"    {_statement(nest.operands, s)}" for s in phase.before]
        if phase.body and reduced:
            lines.append(f"    for {reduced}")
        lines += [f"      {_statement(nest.operands, s)}" for s in phase.body]
        for reduce in phase.reductions:
            args = ", ".join(f"v{arg}" for arg in reduce.args)
            lines.append(f"    {_outs(reduce.outs)} = {reduce.name}({args}) {reduce.tree}")
    if nest.edges:
        lines += ["  edges", *[f"      {_statement(nest.operands, s)}" for s in nest.edges]]
    return "\n".join(lines)


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
        lines += [
            f"    {_outs(r.outs)} = {r.name}({', '.join(f'v{arg}' for arg in r.args)}) {r.tree}" for r in reductions
        ]
    return "\n".join(lines)


def _outs(outs: tuple[int, ...]) -> str:
    return ", ".join(f"v{out}" for out in outs)


def _dtype(dtype: np.dtype) -> str:
    short = {"b": "bool", "i": "i", "u": "u", "f": "f", "c": "c"}.get(dtype.kind, dtype.name)
    return short if short in ("bool", dtype.name) else f"{short}{dtype.itemsize * 8}"


def _statement(operands: Sequence[Any], s: ir.Statement) -> str:
    match s:
        case ir.Load(out, operand):
            return f"v{out} = load {operands[operand].role}{operand}"
        case ir.Store(operand, value):
            return f"store {operands[operand].role}{operand} = v{value}"
        case ir.LoadAt(out, operand, offset, inside):
            given = "" if inside is None else f" if v{inside}"
            return f"v{out} = load {operands[operand].role}{operand} at v{offset}{given}"
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
        case ir.RowLoad(out, row):
            return f"v{out} = load row{row}"
        case ir.Param(out, index, dtype):
            return f"v{out} = param {index} {_dtype(dtype)}"
        case ir.IndexOf(out, dim, dtype):
            return f"v{out} = index i{dim} {_dtype(dtype)}"
        case ir.Apply(out, name, _, params, args, dtype):
            given = [f"{key}={value}" for key, value in params if value is not None]
            shown = f"[{' '.join(given)}]" if given else ""
            return f"v{out} = {name}{shown} {' '.join(f'v{arg}' for arg in args)}  # {_dtype(dtype)}"
        case ir.Scan(outs, name, _, _, args):
            return f"{_outs(outs)} = scan {name} {' '.join(f'v{arg}' for arg in args)}"

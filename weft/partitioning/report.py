"""The report of a partitioned program, ``as_text("sharding")``: where values lie, and each collective with its reason.

mesh: x=2, y=4
inputs
  a  f32[16,8]  P('x', None)   as given; each device f32[8,8]
values
  c  f32[16,4]  P('x', None)   dot_general, model.py:7:4 (f)
collectives: 1; each device receives 1024 bytes
  psum along 'x' of f32[16,4], 1024 bytes: each device along 'x' has reduce_sum of its part; model.py:8:4 (f)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.core import axis_names
from weft.core.programs.jaxpr import DropVar, Jaxpr, jaxprs_in_params
from weft.core.programs.printer import Context
from weft.core.tracing import source_info
from weft.partitioning import specs
from weft.partitioning.programs import Partitioned


def text(partitioned: Partitioned, names: Sequence[str], given: Sequence[bool], results: Sequence[str]) -> str:
    """The report. ``names`` are those of inputs, ``given`` whether the user said how each lies; ``results`` paths."""
    jaxpr = partitioned.whole.jaxpr
    context = Context()
    for variable in (*jaxpr.constvars, *jaxpr.invars):
        context.name(variable)
    lines = ["mesh: " + ", ".join([f"{axis}={size}" for axis, size in partitioned.sizes.items()])]
    lines.append("inputs")
    for name, variable, spec, known in zip(names, jaxpr.invars, partitioned.in_specs, given, strict=True):
        lines.append(_row(partitioned, name, variable.aval, spec, "as given" if known else "found by propagation"))
    lines += ["values", *_values(partitioned, jaxpr, context, "  ")]
    lines.append("results")
    for name, atom, spec in zip(results, jaxpr.outvars, partitioned.out_specs, strict=True):
        lines.append(_row(partitioned, name, atom.aval, spec, ""))
    lines += list(collectives(partitioned))
    with axis_names.bound(tuple(partitioned.sizes.items())):
        lines += ["on each device", str(partitioned.local)]
    return "\n".join(lines)


def _row(partitioned: Partitioned, name: str, aval: Any, spec: specs.Spec, note: str) -> str:
    shard = specs.local_aval(aval, spec, partitioned.sizes)
    note = "; ".join([part for part in (note, f"each device {shard.str_short()}") if part])
    return f"  {name}  {aval.str_short()}  {specs.text(spec)}   {note}"


def _values(partitioned: Partitioned, jaxpr: Jaxpr, context: Context, indent: str) -> Iterator[str]:
    """A line for each value that an equation makes; those of programs inside are indented."""
    for eqn in jaxpr.eqns:
        location = source_info.summarize(eqn.source)
        for variable in eqn.outvars:
            if not isinstance(variable, DropVar):
                spec = specs.text(partitioned.known.of(variable))
                name = context.name(variable)
                yield f"{indent}{name}  {variable.aval.str_short()}  {spec}   {eqn.primitive.name}, {location}"
        for inner in jaxprs_in_params(eqn.params):
            yield from _values(partitioned, inner, context, indent + "  ")


def collectives(partitioned: Partitioned) -> Iterator[str]:
    """A line for each collective: what it moves, the bytes, why, and the user's line."""
    moved = partitioned.moved
    if not moved:
        yield "collectives: none"
        return
    total = sum(each.received * math.prod([n or 1 for n in each.loops]) for each in moved)
    unknown = " and more, in loops without a known number of steps" if any(None in each.loops for each in moved) else ""
    yield f"collectives: {len(moved)}; each device receives {total} bytes{unknown}"
    for each in moved:
        axes = ", ".join(map(repr, each.axes))
        often = "".join([" in each step" if n is None else f", {n} times" for n in each.loops])
        yield (
            f"  {each.name} along {axes} of {each.aval.str_short()}, {each.received} bytes{often}: {each.reason}; "
            f"{source_info.summarize(each.source)}"
        )

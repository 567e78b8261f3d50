"""Loops with a small state become one equation each (register_loop), compiled as one native function.

    c:i32[] d:f32[] = while[...] n a b      ->      c:i32[] d:f32[] = register_loop[...] n

A routine in lanes is tried first: its code does not depend on the number of elements. Scalars with known values become
parameters of the routine. Loops unsuited to registers (large arrays, effects, library calls) are left as they are, and
run their body as a plan.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import numpy as np

from weft._base import lazy
from weft.batching import batched_programs
from weft.compiler.passes import indexing, lane_exits
from weft.control import while_loop
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.loops.routines import lane_routine, register_promotion
from weft.loops.routines.promoted_values import TooLarge
from weft.loops.routines.register_promotion import Flatten


def loops_in_registers(closed: ClosedJaxpr, simplified: Flatten, threads: bool = False) -> ClosedJaxpr:
    """The program with its small loops as routines; ``simplified`` gives the body of a loop after all passes.

    ``threads``: those of a GPU run it.
    """
    equations = closed.jaxpr.eqns
    known = {
        equation.outvars[0]: equation.invars[0]
        for equation in equations
        if isinstance(equation.primitive.kind, kinds.View) and isinstance(equation.invars[0], Literal)
    }
    read = set(rewrite.variables([*closed.jaxpr.outvars, *[a for e in equations for a in e.invars]]))
    made = [
        _routine(equation, known, simplified, read, threads) if _may_be(equation) else equation
        for equation in equations
    ]
    return closed if all(map(operator.is_, made, equations)) else rewrite.with_equations(closed, made)


def _may_be(equation: JaxprEqn) -> bool:
    return isinstance(equation.primitive.kind, kinds.Loop) and not equation.effects


def _routine(
    equation: JaxprEqn, known: dict[Any, Literal], flatten: Flatten, read: Collection[Any], threads: bool
) -> JaxprEqn:
    """The loop as a routine if possible; ``known`` are variables with a literal as value, ``read`` those of any use."""
    parts = equation.primitive.kind.parts(equation.params)
    if threads and parts.independent:  # each step is a block's
        return equation
    atoms = [known.get(atom, atom) if not isinstance(atom, Literal) and not atom.aval.shape else atom
             for atom in equation.invars]  # fmt: skip
    if parts.cond is None or batched_programs.ends_by_element(parts.cond):
        mask = None
    else:
        unread = [k for k, out in enumerate(equation.outvars) if out not in read]
        mask = lane_exits.mask(parts, atoms, flatten, unread)
    by_element = batched_programs.ends_by_element

    def flat(closed: ClosedJaxpr) -> ClosedJaxpr:
        return indexing.single_windows(flatten(closed))

    lowered = lane_routine.lower_loop(parts, atoms, flat, equation.primitive.name, by_element, mask, threads)
    try:
        lowered = lowered or register_promotion.lower_loop(parts, atoms, flat, equation.primitive.name)
    except TooLarge:
        return equation
    if threads and not lazy.submodule("weft.loops.gpu.grid").runs(lowered.routine):  # a block may run its kernels
        return equation
    literals = [np.asarray(atom.val).astype(atom.aval.dtype) if isinstance(atom, Literal) else None for atom in atoms]
    params = {
        "lowered": lowered,
        "parts": parts,
        "literals": tuple(literals),
        "out_avals": tuple([v.aval for v in equation.outvars]),
    }
    operands = [atom for atom in atoms if not isinstance(atom, Literal)]
    return JaxprEqn(operands, equation.outvars, while_loop.register_loop_p, params, equation.effects, equation.source)

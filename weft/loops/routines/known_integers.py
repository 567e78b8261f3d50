"""Integers of a body that computes offsets into arrays, as constants of the routine: tests of bounds are then known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.loops import ir
from weft.loops.routines import routine


def known_integers(statements: Sequence[Any], scalars: Sequence[Any], first: int) -> tuple[list[Any], list[Any]]:
    """The statements of the outermost block and the parameters that are left, those before ``first`` among them."""
    moving = (routine.Take, routine.Update)
    if not any(isinstance(s, moving) for s in routine.statements(routine.Block((), tuple(statements), ()))):
        return list(statements), list(scalars)
    written, left = list[Any](), list[Any]()
    for s in statements:
        if not isinstance(s, ir.Param):
            written.append(s)
        elif s.index >= first and scalars[s.index].dtype.kind in "iu":
            written.append(routine.Constant(s.out, scalars[s.index].tobytes()))
        else:
            written.append(s.replace(index=len(left)))
            left.append(scalars[s.index])
    return written, left

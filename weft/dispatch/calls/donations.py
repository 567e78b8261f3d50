"""Which leaves of a call are donated, and which of those donations a program can use.

In: the arguments named by ``donate_argnums`` and ``donate_argnames``. Out: a flag for each leaf. The memory of a
donated leaf becomes that of a result of the same size. If there is no such result the leaf stays valid, and a warning
names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from weft._base import lazy, own_files
from weft.dispatch.calls import signature


def leaves(roles: signature.Roles, call: signature.Call, in_tree: Any) -> tuple[bool, ...]:
    """For each leaf whether the argument it belongs to is donated."""
    static = {argument for argument, _ in call.statics}
    numbers = {number + call.count if number < 0 else number for number in roles.donate_argnums}
    traced = [index for index in range(call.count) if index not in static]
    args_tree, kwargs_tree = in_tree.children()
    flags: list[bool] = []
    for index, child in zip(traced, args_tree.children(), strict=True):
        flags += [index in numbers] * child.num_leaves
    for name, child in zip(sorted(call.kwargs), kwargs_tree.children(), strict=True):
        flags += [name in roles.donate_argnames] * child.num_leaves
    return tuple(flags)


def of_kept(
    avals: Sequence[Any], kept: Sequence[int], donated: Sequence[bool], out_avals: Sequence[Any]
) -> tuple[bool, ...]:
    """Which of the leaves that a program takes are donated to it."""
    flags = tuple([donated[index] for index in kept])
    return usable([avals[index] for index in kept], flags, out_avals) if any(flags) else flags


def usable(avals: Sequence[Any], donated: Sequence[bool], out_avals: Sequence[Any]) -> tuple[bool, ...]:
    """The donations for which there is a result of the same size; a warning names the others, which stay valid."""
    sizes = [aval.nbytes for aval in out_avals]
    takers: list[bool] = []
    for aval, given in zip(avals, donated, strict=True):
        takes = given and aval.nbytes in sizes
        if takes:
            sizes.remove(aval.nbytes)
        takers.append(takes)
    left = [aval for aval, given, takes in zip(avals, donated, takers, strict=True) if given and not takes]
    if left:
        types = ", ".join(aval.strip_weak_type().str_short(short_dtypes=False) for aval in left)
        text = f"Some donated buffers were not usable: {types}. No result has their size, so they stay valid."
        warnings.warn(text, stacklevel=own_files.depth_of_user())  # also of programs from disk: not counted
    return tuple(takers)


def check_used(trace: Any, donated: Sequence[bool], compiled: Any) -> None:
    """ValueError, with the reason, if a donated leaf's memory is not reused (``donate="require"``)."""
    info = trace.closed.jaxpr.debug_info
    avals = trace.closed.in_avals
    names = list((info and info.arg_names) or [f"argument {n}" for n in range(len(avals))])
    taken = {leaf for leaf, takes in zip(compiled.kept, compiled.donated, strict=True) if takes}
    for leaf, (given, aval) in enumerate(zip(donated, avals, strict=True)):
        if given and leaf not in taken and aval.nbytes:
            reason = "no result has its size" if leaf in compiled.kept else "the program does not read it"
            raise ValueError(
                f"[jit] donate='require': {names[leaf]} {aval.str_short()}, {aval.nbytes} bytes, is donated and cannot "
                f"be reused: {reason}. Return a result of its size, or do not donate it."
            )
    program = compiled.program
    if not hasattr(program, "forms"):
        raise NotImplementedError("[jit] donate='require' on another device than the CPU: its plugin decides that")
    hidden = ["a constant"] * (len(program.in_avals) - len(compiled.kept))
    lazy.submodule("weft.compiler.plans.requirements").check_donations(
        program, [*hidden, *[names[leaf] for leaf in compiled.kept]]
    )

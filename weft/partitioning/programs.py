"""Divides a program among the devices of a mesh: how its values lie, and the program that each device runs.

The local program names the axes of the mesh. ``vmap`` over these axes, and processes that exchange messages, give what
the whole program gives: the same bits, except for sums that were split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import config
from weft._base.record import NamedTuple
from weft.core import axis_names
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.partitioning import specs, verify
from weft.partitioning.flat import flat
from weft.partitioning.local import Local, Making, Moved
from weft.partitioning.propagate import FactoredProgram, Known, analysed, propagate
from weft.partitioning.specs import Sizes, Spec


class Partitioned(NamedTuple):
    """A program for each device, and how the values of the whole program lie."""

    whole: ClosedJaxpr
    local: ClosedJaxpr
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    sizes: Sizes
    known: Known
    moved: list[Moved]
    is_exact: bool  # no sum was split, and no product has another shape


Given = Sequence[Any] | None  # a spec as the user writes it, or None: left to propagation


def partition(
    closed: ClosedJaxpr,
    sizes: Mapping[Any, int],
    in_specs: Sequence[Given],
    out_specs: Sequence[Given] | None = None,
    values: Mapping[Any, Given] | None = None,
) -> Partitioned:
    """Divide a program among the devices of a mesh whose axes have these sizes.

    A spec is a sequence of one entry for each dimension: None, the name of an axis or a tuple of names; a spec that is
    None is chosen by propagation. ``values``: specs of variables of the program, which are then left as they are.
    ValueError for a spec that does not fit its array.
    """
    program, known = propagated(closed, sizes, in_specs, out_specs, values)
    made = local_program(program, known)
    if config.read("check"):
        verify.verified(made)
    return made


def propagated(
    closed: ClosedJaxpr,
    sizes: Mapping[Any, int],
    in_specs: Sequence[Given],
    out_specs: Sequence[Given] | None = None,
    values: Mapping[Any, Given] | None = None,
) -> tuple[FactoredProgram, Known]:
    """The flat program, and the specs of all its values."""
    old = closed.jaxpr
    given = [*in_specs, *([None] * len(old.outvars) if out_specs is None else out_specs)]
    if len(given) != len(old.invars) + len(old.outvars):
        raise ValueError(
            f"[partition] {len(given)} specs for {len(old.invars)} inputs and {len(old.outvars)} results: one for each"
        )
    program = analysed(flat(closed, sizes), sizes)
    jaxpr, known = program.closed.jaxpr, Known(sizes)
    n_in = len(old.invars)
    rows = zip((*old.invars, *old.outvars), (*jaxpr.invars, *jaxpr.outvars), given, strict=True)
    for number, (before, variable, spec) in enumerate(rows):
        found = None
        if spec is not None:
            what = f"input {number}" if number < n_in else f"result {number - n_in}"
            found = specs.checked(spec, before.aval.shape, sizes, what)
            found += ((),) * (len(variable.aval.shape) - len(found))  # the words of keys
            known.set(variable, found)
        if number >= n_in:
            known.results.append(found)
    for eqn in program.constraints:
        variable, asked = eqn.outvars[0], eqn.primitive.kind.constraint(eqn.params)
        if asked is not None and all(axis in sizes for axes in asked for axis in axes or ()):  # else: another mesh's
            # dimensions that it does not name, and the words of keys, are not cut
            known.set(variable, (*asked, *[()] * (len(variable.aval.shape) - len(asked))))
    for variable, spec in (values or {}).items():
        if spec is not None:
            known.set(variable, specs.checked(spec, variable.aval.shape, sizes, "a value"))
    propagate(program, known)
    return program, known


def local_program(program: FactoredProgram, known: Known) -> Partitioned:
    """The program of each device, once every value has its spec."""
    old, making = program.closed.jaxpr, Making(program, known)
    out_specs = [known.of(v) if given is None else given for v, given in zip(old.outvars, known.results, strict=True)]
    with axis_names.bound(tuple(known.sizes.items())):
        made = Local(making)
        jaxpr = made.jaxpr(old, out_specs)
    consts = [*program.closed.consts, *made.consts]
    return Partitioned(
        program.closed, ClosedJaxpr(jaxpr, consts), tuple(map(known.of, old.invars)), tuple(out_specs),
        known.sizes, known, making.moved, making.is_exact,
    )  # fmt: skip

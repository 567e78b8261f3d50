"""The partitioner: from a program and the specs of its values to the program that each device runs on its shards.

    b:f32[8,4] = dot_general a:f32[8,16] w:f32[16,4]      a (-, x), w (x, -), x = 2

    c:f32[8,4] = dot_general a:f32[8,8] w:f32[8,4]        on each device
    b:f32[8,4] = psum[axes=('x',)] c

The local program names the axes of the mesh. ``vmap`` over these axes, and processes that exchange messages, give what
the whole program gives: the same bits, except for sums that were split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core import axis_names, kinds, source_info
from weft.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.primitive import Extents
from weft.core.rewrite import Builder
from weft.core.trace import trace_to_jaxpr
from weft.operations import arithmetic, convert
from weft.partitioning import moves, specs
from weft.partitioning.choose import Choice, choose, steps_of_result
from weft.partitioning.flat import flat
from weft.partitioning.propagate import Known, Program, analysed, propagate
from weft.partitioning.specs import Sizes, Spec, local_aval


class Moved(NamedTuple):
    """A collective of the local program: what moves, how many bytes a device receives, where and why."""

    name: str
    axes: tuple[Any, ...]
    aval: Any
    received: int
    reason: str
    source: source_info.Captured | None


class Partitioned(NamedTuple):
    """A program for each device, and how the values of the whole program lie."""

    whole: ClosedJaxpr
    local: ClosedJaxpr
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    sizes: Sizes
    known: Known
    moved: list[Moved]


Given = Sequence[Any] | None  # a spec as the user writes it, or None: left to propagation


def partition(closed: ClosedJaxpr, sizes: Mapping[Any, int], in_specs: Sequence[Given], out_specs: Sequence[Given] | None = None) -> Partitioned:  # fmt: skip
    """Divide a program among the devices of a mesh whose axes have these sizes.

    A spec is a sequence of one entry for each dimension: None, the name of an axis or a tuple of names; a spec that is
    None is chosen by propagation. ValueError for a spec that does not fit its array.
    """
    program, known = propagated(closed, sizes, in_specs, out_specs)
    return local_program(program, known)


def propagated(closed: ClosedJaxpr, sizes: Mapping[Any, int], in_specs: Sequence[Given], out_specs: Sequence[Given] | None = None) -> tuple[Program, Known]:  # fmt: skip
    """The flat program, and the specs of all its values."""
    old = closed.jaxpr
    given = [*in_specs, *([None] * len(old.outvars) if out_specs is None else out_specs)]
    if len(given) != len(old.invars) + len(old.outvars):
        raise ValueError(
            f"[partition] {len(given)} specs for {len(old.invars)} inputs and {len(old.outvars)} results: one for each"
        )
    program = analysed(flat(closed))
    jaxpr, known = program.closed.jaxpr, Known(sizes)
    for number, (before, variable) in enumerate(zip((*old.invars, *old.outvars), (*jaxpr.invars, *jaxpr.outvars), strict=True)):
        n_in = len(old.invars)
        what = f"input {number}" if number < n_in else f"result {number - n_in}"
        spec = given[number]
        if spec is not None:
            found = specs.checked(spec, before.aval.shape, sizes, what)
            known.set(variable, found + ((),) * (len(variable.aval.shape) - len(found)))  # the words of keys
    for eqn in program.constraints:
        variable, asked = eqn.outvars[0], eqn.primitive.kind.constraint(eqn.params)
        if asked is not None:  # dimensions that it does not name, and the words of keys, are not cut
            known.set(variable, (*asked, *[()] * (len(variable.aval.shape) - len(asked))))
    propagate(program, known)
    return program, known


def local_program(program: Program, known: Known) -> Partitioned:
    """The program of each device, once every value has its spec."""
    old = program.closed.jaxpr
    moved: list[Moved] = []
    with axis_names.bound(tuple(known.sizes.items())):
        jaxpr = _Local(program, known, moved).jaxpr(old, [known.of(v) for v in old.outvars])
    return Partitioned(
        program.closed, ClosedJaxpr(jaxpr, program.closed.consts), tuple(map(known.of, old.invars)),
        tuple(map(known.of, old.outvars)), known.sizes, known, moved,
    )  # fmt: skip


class _Local:
    """One program (or the body of a loop) being made for each device."""

    def __init__(self, program: Program, known: Known, moved: list[Moved], templates: dict[Any, Any] | None = None) -> None:
        self.program, self.known, self.sizes, self.moved = program, known, known.sizes, moved
        self.templates: dict[Any, ClosedJaxpr] = {} if templates is None else templates
        self.builder = Builder()
        self.lies: dict[Any, Spec] = {}  # how the values made so far lie
        self.choices: dict[Any, Choice] = {}
        self.resharded: dict[Any, Atom] = {}

    def jaxpr(self, old: Jaxpr, out_specs: Sequence[Spec]) -> Jaxpr:
        """The local program of ``old``, whose results are to lie as ``out_specs``."""
        builder = self.builder
        constvars, invars = ([self._input(v) for v in variables] for variables in (old.constvars, old.invars))
        for eqn in old.eqns:
            builder.source = eqn.source
            found = self.program.factors.get(eqn)
            if found is None:
                self._control(eqn)
            else:
                self._equation(eqn, found)
        outvars = [
            self.read(atom, spec, "a result of the program") for atom, spec in zip(old.outvars, out_specs, strict=True)
        ]
        eqns = builder.eqns
        return Jaxpr(constvars, invars, outvars, eqns, joined_effects(eqns), old.debug_info)

    def _input(self, variable: Var) -> Var:
        spec = self.lies[variable] = self.known.of(variable)
        made = self.builder.env[variable] = Var(local_aval(variable.aval, spec, self.sizes))
        return made

    def read(self, atom: Atom, wanted: Spec, reason: Any) -> Atom:
        """The local atom of a value, moved to where it is wanted."""
        if type(atom) is Literal:
            return atom
        lies = self.lies[atom]
        if lies == wanted:
            return self.builder.env[atom]
        key = atom, wanted
        if key not in self.resharded:
            steps = moves.moves(lies, wanted)
            self.resharded[key] = self.move(self.builder.env[atom], steps, reason)
        return self.resharded[key]

    def move(self, atom: Atom, steps: tuple[moves.Move, ...], reason: Any, again: Callable[[Any], Any] | None = None) -> Atom:
        """The local atom after these steps."""
        self._report(atom.aval, steps, reason)
        key = steps, atom.aval, again if again is None else id(again)
        template = self.templates.get(key)
        if template is None:
            template = self.templates[key] = moves.program(steps, atom.aval, self.sizes, again)
        return self._splice(template, [atom])[0]

    def _splice(self, template: ClosedJaxpr, atoms: Sequence[Atom]) -> list[Atom]:
        """The equations of a small program, at the place of the equation they belong to."""
        builder = self.builder
        builder.write(template.jaxpr.invars, atoms)
        for eqn in template.jaxpr.eqns:
            made = builder.keep(eqn.replace(source=builder.source))
            builder.write(eqn.outvars, made)
        return [builder.read(atom) for atom in template.jaxpr.outvars]

    def _report(self, aval: Any, steps: Sequence[moves.Move], reason: Any) -> None:
        size: float = aval.size * aval.dtype.itemsize
        for step in steps:
            received, size = moves.received_and_size(step, size, self.sizes)
            if isinstance(step, moves.Cut):
                continue
            axes = (step.axis,) if isinstance(step, moves.Exchange) else step.axes
            name = f"p{step.combiner}" if isinstance(step, moves.Sum) else moves.NAMES[type(step)]
            name = "all_gather" if name == "pagain" else name
            why = reason() if callable(reason) else reason
            self.moved.append(Moved(name, axes, aval, int(received), why, self.builder.source))

    # -- equations without programs inside

    def _equation(self, eqn: JaxprEqn, factors: Any) -> None:
        lies, known = self.lies, self.known
        operands = tuple([() if type(v) is Literal else lies[v] for v in eqn.invars])
        wanted = tuple([known.of(v) for v in eqn.outvars])
        key = id(factors), operands, wanted
        choice = self.choices.get(key)
        if choice is None:
            choice = choose(
                factors, [v.aval for v in eqn.invars], operands, [v.aval for v in eqn.outvars], wanted, self.sizes
            )
            self.choices[key] = choice
        env = self.builder.env
        if operands == choice.operands:
            atoms = [v if type(v) is Literal else env[v] for v in eqn.invars]
        else:
            atoms = [
                self.read(v, spec, lambda i=i: _reason_of_operand(eqn, i, self.lies[eqn.invars[i]], choice))
                for i, (v, spec) in enumerate(zip(eqn.invars, choice.operands, strict=True))
            ]
        outs = self._made(eqn, atoms, choice)
        if choice.reduced or choice.results != wanted:
            outs = [
                self._result(eqn, i, out, choice, spec) if type(out) is not Literal else out
                for i, (out, spec) in enumerate(zip(outs, wanted, strict=True))
            ]
        env.update(zip(eqn.outvars, outs, strict=True))
        lies.update(zip(eqn.outvars, wanted, strict=True))

    def _made(self, eqn: JaxprEqn, atoms: list[Atom], choice: Choice) -> list[Any]:
        """The equation on shards."""
        kind, sizes = eqn.primitive.kind, self.sizes
        outvars: list[Any] = [Var(local_aval(v.aval, spec, sizes)) for v, spec in zip(eqn.outvars, choice.results, strict=True)]
        params = eqn.params
        if eqn.primitive.extents is not None:
            old = [eqn.invars[0].aval.shape, atoms[0].aval.shape] if atoms else [None, None]
            new = outvars[0].aval.shape
            if (new, old[1]) != (eqn.outvars[0].aval.shape, old[0]):
                params = {**params, **eqn.primitive.extents(params, Extents(*old, eqn.outvars[0].aval.shape, new))}
        if type(kind) is kinds.Identity and kind.constraint is not None:
            return list(atoms)
        if type(kind) is kinds.Generate and choice.results[0][kind.dimension(params)]:
            return self._generated(eqn, params, choice.results[0], outvars[0].aval)
        self.builder.eqns.append(JaxprEqn(atoms, outvars, eqn.primitive, params, eqn.effects, eqn.source))
        return outvars

    def _generated(self, eqn: JaxprEqn, params: dict[str, Any], spec: Spec, aval: Any) -> list[Atom]:
        """The indices of this device's part: counted as integers, so that no index is rounded twice."""
        axes = spec[eqn.primitive.kind.dimension(params)]
        extent = aval.shape[eqn.primitive.kind.dimension(params)]
        counter = np.dtype(np.int32)

        def run() -> list[Any]:
            mine = eqn.primitive.bind(**{**params, "dtype": counter})
            index = arithmetic.add(mine, moves.first_index(axes, extent))
            return [index if aval.dtype == counter else convert.convert(index, aval.dtype, False)]

        return self._splice(trace_to_jaxpr(run, [])[0], [])

    def _result(self, eqn: JaxprEqn, place: int, out: Atom, choice: Choice, wanted: Spec) -> Atom:
        """A result as it is wanted: parts combined, then moved."""
        steps = steps_of_result(choice.reduced, choice.results[place], wanted)
        if not steps:
            return out

        def again(x: Any) -> Any:
            return eqn.primitive.bind(x, **{**eqn.params, "axes": (0,)})

        own = again if any(isinstance(step, moves.Sum) and step.combiner == "again" for step in steps) else None
        return self.move(out, steps, lambda: _reason_of_result(eqn, choice, wanted), own)

    # -- loops and branches

    def _control(self, eqn: JaxprEqn) -> None:
        """Every part of a loop's state, and what its programs read, lies as propagation found, inside and outside."""
        kind, known = eqn.primitive.kind, self.known
        inner: dict[int, ClosedJaxpr] = {}
        name = eqn.primitive.name
        if isinstance(kind, kinds.Branch):
            branches = kind.branches(eqn.params)
            ins = [(), *[known.of(v) for v in branches[0].jaxpr.invars]]
            outs = [known.of(v) for v in eqn.outvars]
            for branch in branches:
                inner[id(branch)] = self._inner(branch, ins[1:], outs)
        else:
            ins, outs = self._loop(kind.parts(eqn.params), eqn, inner)
        atoms = [
            self.read(v, spec, f"operand {i} of {name} lies otherwise inside")
            for i, (v, spec) in enumerate(zip(eqn.invars, ins, strict=True))
        ]
        outvars = [type(v)(local_aval(v.aval, spec, self.sizes)) for v, spec in zip(eqn.outvars, outs, strict=True)]
        params = kind.mapped(eqn.params, lambda program: inner[id(program)])
        effects = eqn.effects.union(*[program.effects for program in inner.values()])
        self.builder.eqns.append(JaxprEqn(atoms, outvars, eqn.primitive, params, effects, eqn.source))
        for variable, out, spec in zip(eqn.outvars, outvars, outs, strict=True):
            self.builder.env[variable], self.lies[variable] = out, spec
            wanted = known.of(variable)
            if wanted != spec:
                self.builder.env[variable] = self.read(variable, wanted, f"a result of {name} lies otherwise inside")
                self.lies[variable] = wanted

    def _loop(self, parts: kinds.LoopParts, eqn: JaxprEqn, inner: dict[int, ClosedJaxpr]) -> tuple[list[Spec], list[Spec]]:
        """The specs of operands and results; ``inner`` gets the programs."""
        known, body = self.known, parts.body.jaxpr
        moving = parts.n_consts + parts.n_carry
        inside = [known.of(v) for v in body.invars]
        state = inside[parts.n_consts : moving]
        made = [known.of(v) for v in body.outvars[parts.n_carry :]]
        inner[id(parts.body)] = self._inner(parts.body, inside, [*state, *made])
        conditions: list[Spec] = []
        if parts.cond is not None:
            conditions = [known.of(v) for v in parts.cond.jaxpr.invars[: parts.n_cond_consts]]
            inner[id(parts.cond)] = self._inner(parts.cond, [*conditions, *state], [()])
        ins = [*conditions, *inside[:moving], *[((), *spec) for spec in inside[moving:]]]
        return ins, [*state, *[((), *spec) for spec in made]]

    def _inner(self, closed: ClosedJaxpr, in_specs: Sequence[Spec], out_specs: Sequence[Spec]) -> ClosedJaxpr:
        """A program inside, whose inputs and results lie so."""
        for variable, spec in zip(closed.jaxpr.invars, in_specs, strict=True):
            self.known.specs[variable] = spec
        made = _Local(self.program, self.known, self.moved, self.templates)
        return ClosedJaxpr(made.jaxpr(closed.jaxpr, out_specs), closed.consts)


def _reason_of_operand(eqn: JaxprEqn, place: int, lies: Spec, choice: Choice) -> str:
    wanted = choice.operands[place]
    return f"operand {place} of {eqn.primitive.name} lies as {specs.text(lies)}, it is read as {specs.text(wanted)}"


def _reason_of_result(eqn: JaxprEqn, choice: Choice, wanted: Spec) -> str:
    if choice.reduced:
        axes = ", ".join([repr(axis) for found, _ in choice.reduced for axis in found])
        return f"each device along {axes} has {eqn.primitive.name} of its part"
    made = choice.results[0]
    return f"{eqn.primitive.name} gives {specs.text(made)}, the value is kept as {specs.text(wanted)}"

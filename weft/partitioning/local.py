"""The program of one device: every equation on shards, with collectives where values must move.

b:f32[8,4] = dot_general a:f32[8,16] w:f32[16,4]      a (-, x), w (x, -), x = 2

c:f32[8,4] = dot_general a:f32[8,8] w:f32[8,4]        on each device
b:f32[8,4] = psum[axes=('x',)] c
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core import kinds
from weft.core.primitive import Extents
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.programs.rewrite import Builder
from weft.core.tracing import source_info
from weft.core.tracing.trace import trace_to_jaxpr
from weft.operations.pointwise import arithmetic, convert
from weft.partitioning import moves, rows, specs
from weft.partitioning.choose import Choice, choose, steps_of_result
from weft.partitioning.flat import shards_of
from weft.partitioning.propagate import FactoredProgram, Known
from weft.partitioning.specs import Spec, local_aval


class Moved(NamedTuple):
    """A collective of the local program: what moves, how many bytes a device receives, where and why."""

    name: str
    axes: tuple[Any, ...]
    aval: Any
    received: int
    reason: str
    source: source_info.Captured | None
    loops: tuple[int | None, ...] = ()  # the loops around it: how often each runs its body, None if that is not known


# Operations whose order of summation may depend on the shape of the result.
_SUMS = (kinds.Contraction, kinds.StridedContraction, kinds.Resolve)


class Making:
    """State that nested programs share while they are made for each device."""

    def __init__(self, program: FactoredProgram, known: Known) -> None:
        self.program, self.known, self.sizes = program, known, known.sizes
        self.moved: list[Moved] = []
        self.templates: dict[Any, ClosedJaxpr] = {}  # moves as small programs
        self.loops: list[int | None] = []  # around the program that is being made
        self.is_exact = True


class Local:
    """One program (or the body of a loop) being made for each device."""

    def __init__(self, making: Making) -> None:
        self.making, self.known, self.sizes = making, making.known, making.sizes
        self.builder = Builder()
        self.lies: dict[Any, Spec] = {}  # how the values made so far lie
        self.choices: dict[Any, Choice] = {}
        self.resharded: dict[Any, Atom] = {}
        self.constvars: list[Var] = []  # of programs of shards
        self.consts: list[Any] = []

    def jaxpr(self, old: Jaxpr, out_specs: Sequence[Spec]) -> Jaxpr:
        """The local program of ``old``, whose results are to lie as ``out_specs``."""
        builder = self.builder
        constvars, invars = ([self._input(v) for v in variables] for variables in (old.constvars, old.invars))
        for eqn in old.eqns:
            builder.source = eqn.source
            found = self.making.program.factors.get(eqn)
            if found is None:
                self._program(eqn)
            else:
                self._equation(eqn, found)
        outvars = [
            self.read(atom, spec, "a result of the program") for atom, spec in zip(old.outvars, out_specs, strict=True)
        ]
        eqns = builder.eqns
        return Jaxpr([*constvars, *self.constvars], invars, outvars, eqns, joined_effects(eqns), old.debug_info)

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

    def move(
        self, atom: Atom, steps: tuple[moves.Move, ...], reason: Any, again: Callable[[Any], Any] | None = None
    ) -> Atom:
        """The local atom after these steps."""
        self._report(atom.aval, steps, reason)
        template = None if again is not None else self.making.templates.get((steps, atom.aval))
        if template is None:
            template = moves.program(steps, atom.aval, self.sizes, again)
            if again is None:
                self.making.templates[steps, atom.aval] = template
        return self._splice(template, [atom])[0]

    def _splice(self, template: ClosedJaxpr, atoms: Sequence[Atom]) -> list[Atom]:
        """The equations of a small program, instead of the equation they belong to."""
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
            why = reason if isinstance(reason, str) else reason()
            self.making.moved.append(
                Moved(name, axes, aval, int(received), why, self.builder.source, tuple(self.making.loops))
            )

    # -- equations without programs inside

    def _equation(self, eqn: JaxprEqn, factors: Any) -> None:
        lies, known = self.lies, self.known
        operands = tuple([() if type(v) is Literal else lies[v] for v in eqn.invars])
        wanted = tuple([known.of(v) for v in eqn.outvars])
        key = id(factors), operands, wanted, eqn.outvars[0].aval if eqn.outvars else None
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
            rows_ = enumerate(zip(eqn.invars, operands, choice.operands, strict=True))
            atoms = [
                self.read(v, spec, lambda row=(i, old, spec): _reason_of_operand(eqn, *row))
                for i, (v, old, spec) in rows_
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
        outvars: list[Any] = [
            Var(local_aval(v.aval, spec, sizes)) for v, spec in zip(eqn.outvars, choice.results, strict=True)
        ]
        params = eqn.params
        if eqn.primitive.extents is not None:
            before, after = (eqn.invars[0].aval.shape, atoms[0].aval.shape) if atoms else (None, None)
            shapes = Extents(before, after, eqn.outvars[0].aval.shape, outvars[0].aval.shape)
            if before != after or shapes.old != shapes.new:
                params = {**params, **eqn.primitive.extents(params, shapes)}
        if type(kind) is kinds.Identity and kind.constraint is not None:
            return list(atoms)
        if type(kind) is kinds.Generate and choice.results[0][kind.dimension(params)]:
            return self._generated(eqn, params, choice.results[0], outvars[0].aval)
        if rows.is_shared(eqn, choice.operands):
            avals = [atom.aval for atom in atoms]
            template = trace_to_jaxpr(rows.local(eqn, params, choice.operands), avals)[0]
            return self._splice(template, atoms)
        if type(kind) in _SUMS and any(map(any, choice.results)):
            self.making.is_exact = False
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

    def _result(self, eqn: JaxprEqn, number: int, out: Atom, choice: Choice, wanted: Spec) -> Atom:
        """A result as it is wanted: parts combined, then moved."""
        steps = steps_of_result(choice.reduced, choice.results[number], wanted)
        if not steps:
            return out
        if any(combiner in ("sum", "again") for _, combiner in choice.reduced):
            self.making.is_exact = False

        def again(x: Any) -> Any:
            return eqn.primitive.bind(x, **{**eqn.params, "axes": (0,)})

        own = again if any(isinstance(step, moves.Sum) and step.combiner == "again" for step in steps) else None
        return self.move(out, steps, lambda: _reason_of_result(eqn, choice, wanted), own)

    # -- programs inside

    def _program(self, eqn: JaxprEqn) -> None:
        """A loop or branch, or a program of shards that the user wrote, which replaces the equation."""
        shards = shards_of(eqn, self.sizes)
        if shards is None:
            self._control(eqn)
            return
        atoms = [
            self.read(v, spec, f"operand {i} of {eqn.primitive.name} is to lie as its spec says")
            for i, (v, spec) in enumerate(zip(eqn.invars, shards.in_specs, strict=True))
        ]
        builder = self.builder
        captured = [Var(v.aval) for v in shards.program.constvars]
        self.constvars += captured
        self.consts += shards.consts
        builder.write(eqn.outvars, builder.inline(shards.program, [*captured, *atoms]))
        builder.source = eqn.source
        for variable, spec in zip(eqn.outvars, shards.out_specs, strict=True):
            self.lies[variable] = spec

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

    def _loop(
        self, parts: kinds.LoopParts, eqn: JaxprEqn, inner: dict[int, ClosedJaxpr]
    ) -> tuple[list[Spec], list[Spec]]:
        """The specs of operands and results; ``inner`` gets the programs."""
        known, body = self.known, parts.body.jaxpr
        moving = parts.n_consts + parts.n_carry
        inside = [known.of(v) for v in body.invars]
        state = inside[parts.n_consts : moving]
        self.making.loops.append(parts.trips)
        made = [known.of(v) for v in body.outvars[parts.n_carry :]]
        inner[id(parts.body)] = self._inner(parts.body, inside, [*state, *made])
        conditions: list[Spec] = []
        if parts.cond is not None:
            conditions = [known.of(v) for v in parts.cond.jaxpr.invars[: parts.n_cond_consts]]
            inner[id(parts.cond)] = self._inner(parts.cond, [*conditions, *state], [()])
        self.making.loops.pop()
        ins = [*conditions, *inside[:moving], *[((), *spec) for spec in inside[moving:]]]
        return ins, [*state, *[((), *spec) for spec in made]]

    def _inner(self, closed: ClosedJaxpr, in_specs: Sequence[Spec], out_specs: Sequence[Spec]) -> ClosedJaxpr:
        """A program inside, whose inputs and results lie so."""
        for variable, spec in zip(closed.jaxpr.invars, in_specs, strict=True):
            self.known.specs[variable] = spec
        made = Local(self.making)
        jaxpr = made.jaxpr(closed.jaxpr, out_specs)
        return ClosedJaxpr(jaxpr, [*closed.consts, *made.consts])


def _reason_of_operand(eqn: JaxprEqn, number: int, lies: Spec, wanted: Spec) -> str:
    return f"operand {number} of {eqn.primitive.name} lies as {specs.text(lies)}, it is read as {specs.text(wanted)}"


def _reason_of_result(eqn: JaxprEqn, choice: Choice, wanted: Spec) -> str:
    if choice.reduced:
        axes = ", ".join([repr(axis) for found, _ in choice.reduced for axis in found])
        return f"each device along {axes} has {eqn.primitive.name} of its part"
    made = choice.results[0]
    return f"{eqn.primitive.name} gives {specs.text(made)}, the value is kept as {specs.text(wanted)}"

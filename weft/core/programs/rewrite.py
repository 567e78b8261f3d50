"""Building jaxprs from jaxprs: the tools of every pass.

``Builder`` makes the new program: it types results by the primitive's own rule, and each new equation gets the source
line of the equation it comes from. ``rewrite`` applies a rule to every equation of a program:

    def rule(builder, eqn, operands):           # -> the new atoms of eqn.outvars, or None to keep the equation
        if eqn.primitive is neg_p and ...: return [x]

    shorter = rewrite(jaxpr, rule)

``dce`` removes equations that no result needs. ``index`` gives the def-use index: which equation makes and which read a
variable. A ``Splicer`` replaces equations by programs. Nothing here changes a jaxpr in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

from weft.core.effects import Effects, keeps
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.tracing import source_info

Fact = TypeVar("Fact")
Rule = Callable[["Builder", JaxprEqn, list[Atom]], "Sequence[Atom] | None"]


def typed(
    primitive: Any, operands: Sequence[Atom], params: dict[str, Any], source: source_info.Captured | None
) -> JaxprEqn:
    """A new equation, whose results the primitive types."""
    out, effects = primitive.typed(tuple([atom.aval for atom in operands]), params)
    outvars = [Var(aval) for aval in (out if primitive.multiple_results else (out,))]
    return JaxprEqn(list(operands), outvars, primitive, params, effects, source)


class Builder:
    """A program being built, and the atoms that stand for the old program's variables."""

    def __init__(self) -> None:
        self.eqns: list[JaxprEqn] = []
        self.env: dict[Var, Atom] = {}
        self.source: source_info.Captured | None = None

    def new_invars(self, variables: Sequence[Var]) -> list[Var]:
        """Fresh binders for the old program's inputs."""
        fresh = [Var(v.aval) for v in variables]
        self.env.update(zip(variables, fresh))
        return fresh

    def read(self, atom: Atom) -> Atom:
        """The new atom for an atom of the old program."""
        return atom if isinstance(atom, Literal) else self.env[atom]

    def write(self, variables: Sequence[Var], atoms: Sequence[Atom]) -> None:
        self.env.update(zip(variables, atoms))

    def bind(self, primitive: Any, *operands: Atom, **params: Any) -> list[Atom]:
        """Append an equation and return its results."""
        self.eqns.append(typed(primitive, operands, params, self.source))
        return list(self.eqns[-1].outvars)

    def keep(self, eqn: JaxprEqn, operands: Sequence[Atom] | None = None) -> list[Atom]:
        """Append a copy of an old equation on new operands and return its results."""
        atoms = [self.read(atom) for atom in eqn.invars] if operands is None else list(operands)
        outvars = [type(v)(v.aval) for v in eqn.outvars]
        self.eqns.append(eqn.replace(invars=atoms, outvars=outvars))
        return list(outvars)

    def inline(self, jaxpr: Jaxpr, operands: Sequence[Atom], rule: Rule | None = None) -> list[Atom]:
        """Append the equations of a program and return its results; ``operands`` starts with its constvars."""
        self.write([*jaxpr.constvars, *jaxpr.invars], operands)
        for eqn in jaxpr.eqns:
            self.source = eqn.source
            atoms = [self.read(atom) for atom in eqn.invars]
            made = rule(self, eqn, atoms) if rule is not None else None
            self.write(eqn.outvars, self.keep(eqn, atoms) if made is None else made)
        return [self.read(atom) for atom in jaxpr.outvars]


def rewrite(jaxpr: Jaxpr, rule: Rule) -> Jaxpr:
    """The program with each equation replaced as ``rule`` says."""
    builder = Builder()
    constvars = builder.new_invars(jaxpr.constvars)
    invars = builder.new_invars(jaxpr.invars)
    outvars = builder.inline(jaxpr, [*constvars, *invars], rule)
    return Jaxpr(constvars, invars, outvars, builder.eqns, joined_effects(builder.eqns), jaxpr.debug_info)


def dce(jaxpr: Jaxpr, used_outputs: Sequence[bool] | None = None) -> tuple[Jaxpr, list[bool]]:
    """(the program without dead equations, which of its invars it reads)."""
    used = [True] * len(jaxpr.outvars) if used_outputs is None else list(used_outputs)
    outvars = [atom for atom, keep in zip(jaxpr.outvars, used) if keep]
    live = {atom for atom in outvars if isinstance(atom, Var)}
    kept: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        if not keeps(eqn.effects) and not any(v in live for v in eqn.outvars):
            continue
        kept.append(eqn)
        live.update(atom for atom in eqn.invars if isinstance(atom, Var))
    kept.reverse()
    eqns = [with_drops(eqn, live) for eqn in kept]
    effects: Effects = joined_effects(eqns)
    return jaxpr.replace(outvars=outvars, eqns=eqns, effects=effects), [v in live for v in jaxpr.invars]


def with_drops(eqn: JaxprEqn, live: set[Var]) -> JaxprEqn:
    """The equation, whose results that nothing reads are dropped."""
    if all(v in live for v in eqn.outvars):
        return eqn
    return eqn.replace(outvars=[v if v in live else DropVar(v.aval) for v in eqn.outvars])


class Makers(dict[Var, JaxprEqn]):
    """The equation that makes each variable; inputs and constants are not among them."""

    def of(self, atom: Atom) -> JaxprEqn | None:
        return None if type(atom) is Literal else self.get(atom)


class _Part(Generic[Fact]):
    """A property that is computed at its first use and then is an attribute.

    Python's own one is not used: on CPython 3.11 it holds one lock for all objects, which a fork may leave locked in
    the child.
    """

    def __init__(self, compute: Callable[[Any], Fact]) -> None:
        self.compute, self.name = compute, compute.__name__

    def __get__(self, owner: Any, kind: type) -> Fact:
        fact = vars(owner)[self.name] = self.compute(owner)
        return fact


class Index:
    """The def-use index of a program; each part is computed at its first use."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.eqns, self._outvars = jaxpr.eqns, jaxpr.outvars

    @_Part
    def kinds(self) -> frozenset[type]:
        """The kinds of the program's operations."""
        return frozenset([type(eqn.primitive.kind) for eqn in self.eqns])

    @_Part
    def makers(self) -> Makers:
        return Makers([(out, eqn) for eqn in self.eqns for out in eqn.outvars])

    @_Part
    def outputs(self) -> frozenset[Var]:
        return frozenset(variables(self._outvars))

    @_Part
    def uses(self) -> Counter[Var]:
        """How often a variable is read, by equations and as a result."""
        return Counter(
            [v for eqn in self.eqns for v in eqn.invars if type(v) is not Literal] + variables(self._outvars)
        )


def index(jaxpr: Jaxpr) -> Index:
    """The def-use index of a program, memoised on it."""
    return jaxpr.memoize("index", Index)


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """The atoms that are no literals."""
    return [v for v in atoms if type(v) is not Literal]


def live(eqns: Sequence[JaxprEqn], outvars: Sequence[Atom]) -> list[JaxprEqn]:
    """The equations whose results reach an output, and those with effects."""
    needed: set[Atom] = {v for v in outvars if type(v) is not Literal}
    kept: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            kept.append(eqn)
            needed.update([v for v in eqn.invars if type(v) is not Literal])
    kept.reverse()
    return kept


def without_dead_code(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without equations that no result and no effect needs; the same object if all are needed."""
    kept = live(closed.jaxpr.eqns, closed.jaxpr.outvars)
    return closed if len(kept) == len(closed.jaxpr.eqns) else closed.replace(jaxpr=closed.jaxpr.replace(eqns=kept))


def with_equations(closed: ClosedJaxpr, eqns: Sequence[JaxprEqn], outvars: Sequence[Atom] | None = None) -> ClosedJaxpr:
    """The program with the live ones of these equations instead of its own, and with results ``outvars`` if given."""
    old = closed.jaxpr
    outvars = old.outvars if outvars is None else outvars
    jaxpr = Jaxpr(old.constvars, old.invars, outvars, live(eqns, outvars), old.effects, old.debug_info)
    return ClosedJaxpr(jaxpr, closed.consts)


class Splicer:
    """Replaces equations of a program as ``rule`` says, which is called on equations of ``kinds`` (None: all).

        def rule(eqn, splicer):                 # -> atoms that stand for eqn.outvars, or None to keep the equation
            return splicer.splice(program, eqn.invars)      # a program's results; its equations are asked about too

    ``makers`` maps variables to the new equations. Variables of the program are kept, those of spliced programs get new
    names.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        rule: Callable[[JaxprEqn, Splicer], Sequence[Atom] | None],
        kinds: Collection[type] | None = None,
    ) -> None:
        self.closed, self.rule, self.kinds = closed, rule, kinds
        self.constvars, self.consts = list(closed.jaxpr.constvars), list(closed.consts)
        self.eqns: list[JaxprEqn] = []
        self.source: source_info.Captured | None = None  # of the equation that is asked about, and of new ones
        self.makers = Makers()
        self._env: dict[Atom, Atom] = {}
        self._constants: dict[int, Var] = {}
        self._changed = False

    def run(self) -> ClosedJaxpr:
        """The rewritten program; the same object if nothing was replaced."""
        old, env = self.closed.jaxpr, self._env
        self._walk(old.eqns)
        if not self._changed:
            return self.closed
        outvars = [v if type(v) is Literal else env.get(v, v) for v in old.outvars]
        eqns = live(self.eqns, outvars)
        return ClosedJaxpr(Jaxpr(self.constvars, old.invars, outvars, eqns, old.effects, old.debug_info), self.consts)

    def emit(self, eqn: JaxprEqn) -> Sequence[Var]:
        """Append an equation and return its results."""
        self.eqns.append(eqn)
        for out in eqn.outvars:
            self.makers[out] = eqn
        return eqn.outvars

    def bind(self, primitive: Any, *operands: Atom, **params: Any) -> Sequence[Var]:
        """Append a new equation and return its results."""
        return self.emit(typed(primitive, operands, params, self.source))

    def splice(
        self, inner: ClosedJaxpr, operands: Sequence[Atom], source: source_info.Captured | None = None
    ) -> list[Atom]:
        """Append another program on these operands, its equations rewritten too, and return its results.

        ``source``, if given, becomes the position of all its equations: that of the equation it replaces.
        """
        jaxpr, env = inner.jaxpr, self._env
        env.update(zip(jaxpr.invars, operands, strict=True))
        for variable, value in zip(jaxpr.constvars, inner.consts, strict=True):
            env[variable] = self._constant(variable, value)
        self._walk(jaxpr.eqns, True, source)
        return [v if type(v) is Literal else env[v] for v in jaxpr.outvars]

    def _walk(self, eqns: Sequence[JaxprEqn], inner: bool = False, source: source_info.Captured | None = None) -> None:
        env, rule, kinds, made, makers = self._env, self.rule, self.kinds, self.eqns, self.makers
        for eqn in eqns:
            names = outvars = eqn.outvars
            # until the first replacement nothing has another name
            invars = [v if type(v) is Literal else env.get(v, v) for v in eqn.invars] if env else eqn.invars
            if inner:
                outvars = [Var(v.aval) for v in names]
            if inner or (invars is not eqn.invars and invars != eqn.invars):
                where = eqn.source if source is None else source
                eqn = JaxprEqn(invars, outvars, eqn.primitive, eqn.params, eqn.effects, where)
            self.source = eqn.source
            atoms = rule(eqn, self) if kinds is None or type(eqn.primitive.kind) in kinds else None
            if atoms is None:
                made.append(eqn)
                for out in outvars:
                    makers[out] = eqn
                atoms = outvars
            else:
                self._changed = True
            if atoms is not names:
                env.update(zip(names, atoms, strict=True))

    def _constant(self, variable: Var, value: Any) -> Var:
        """A captured array of an inner program, as a hidden parameter of this one."""
        found = self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = Var(variable.aval)
            self.constvars.append(found)
            self.consts.append(value)
        return found

"""Building jaxprs from jaxprs: the tools of every pass.

``Builder`` makes the new program: operands are atoms of it, results are typed by the primitive's own rule, and each
new equation takes over the source line of the equation it comes from. ``rewrite`` drives one over a program:

    def rule(builder, eqn, operands):           # -> the new atoms of eqn.outvars, or None to keep the equation
        if eqn.primitive is neg_p and ...: return [x]

    shorter = rewrite(jaxpr, rule)

``dce`` drops what no result needs. Nothing here changes a jaxpr in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core import source_info
from weft.core.effects import Effects, keeps
from weft.core.jaxpr import Atom, DropVar, Jaxpr, JaxprEqn, Literal, Var, joined_effects

Rule = Callable[["Builder", JaxprEqn, list[Atom]], "Sequence[Atom] | None"]


class Builder:
    """A program in the making, and the atoms that stand for the old program's variables."""

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
        """Append an equation; its results' atoms."""
        out, effects = primitive.typed(tuple(atom.aval for atom in operands), params)
        outvars = [Var(aval) for aval in (out if primitive.multiple_results else (out,))]
        self.eqns.append(JaxprEqn(list(operands), outvars, primitive, params, effects, self.source))
        return list(outvars)

    def keep(self, eqn: JaxprEqn, operands: Sequence[Atom] | None = None) -> list[Atom]:
        """Append a copy of an old equation on new operands; its results' atoms."""
        atoms = [self.read(atom) for atom in eqn.invars] if operands is None else list(operands)
        outvars = [type(v)(v.aval) for v in eqn.outvars]
        self.eqns.append(eqn.replace(invars=atoms, outvars=outvars))
        return list(outvars)

    def inline(self, jaxpr: Jaxpr, operands: Sequence[Atom], rule: Rule | None = None) -> list[Atom]:
        """Append the equations of a program (constvars first among ``operands``); its results' atoms."""
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
    """(the program without equations that neither a used result nor an effect needs, which invars it reads)."""
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
    eqns = [_with_drops(eqn, live) for eqn in kept]
    effects: Effects = joined_effects(eqns)
    return jaxpr.replace(outvars=outvars, eqns=eqns, effects=effects), [v in live for v in jaxpr.invars]


def _with_drops(eqn: JaxprEqn, live: set[Var]) -> JaxprEqn:
    if all(v in live for v in eqn.outvars):
        return eqn
    return eqn.replace(outvars=[v if v in live else DropVar(v.aval) for v in eqn.outvars])

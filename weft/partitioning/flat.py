"""Makes a program flat for propagation: calls are inlined, and each loop and branch has variables of its own.

Compound operations that have factors (a convolution) stay as they are, others become simple ones; keys become words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.compiler.passes import inline, lower_prng_keys
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.programs.rewrite import Splicer, without_dead_code

_ASKED = (*inline.INLINED, kinds.Branch)


def flat(closed: ClosedJaxpr, sizes: Mapping[Any, int] | None = None) -> ClosedJaxpr:
    """The same program, flat; no jaxpr inside it is shared by two equations.

    Programs of shards along all axes of a mesh, ``sizes`` its parts along each, which the user wrote, stay as they are.
    """
    return _flat(lower_prng_keys.lower_prng_keys(closed), set(), sizes or {})


def _flat(closed: ClosedJaxpr, seen: set[int], axes: Mapping[Any, int]) -> ClosedJaxpr:
    if id(closed.jaxpr) in seen:
        closed = ClosedJaxpr(rewrite.rewrite(closed.jaxpr, lambda builder, eqn, operands: None), closed.consts)
    seen.add(id(closed.jaxpr))

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        kind = eqn.primitive.kind
        if _stays(eqn, kind) or (isinstance(kind, kinds.Higher) and shards_of(eqn, axes) is not None):
            return None
        if isinstance(kind, kinds.Loop) and (made := inline.inlined_equation(eqn, splicer)) is not None:
            return made  # a loop without steps
        if isinstance(kind, (kinds.Loop, kinds.Branch)):
            return splicer.emit(eqn.replace(params=kind.mapped(eqn.params, lambda inner: _flat(inner, seen, axes))))
        return inline.inlined_equation(eqn, splicer)

    return without_dead_code(Splicer(closed, rule, _ASKED).run())


def shards_of(eqn: JaxprEqn, sizes: Mapping[Any, int]) -> kinds.Shards | None:
    """The program of shards that the user wrote for all axes of a mesh with these parts."""
    kind = eqn.primitive.kind
    if not isinstance(kind, kinds.Higher) or kind.shards is None:
        return None
    return kind.shards(eqn.params, sizes)


def _stays(eqn: JaxprEqn, kind: kinds.Kind) -> bool:
    """Whether an equation that compilation would inline has factors, or asks for a sharding."""
    if isinstance(kind, kinds.Identity):
        return kind.constraint is not None
    if not isinstance(kind, kinds.Resolve) or kind.factors is None:
        return False
    avals = [[atom.aval for atom in atoms] for atoms in (eqn.invars, eqn.outvars)]
    return kind.factors(avals[0], avals[1], eqn.params) is not None

"""Inlines calls and compound operations, and removes operations that compute nothing.

In: any program without keys. Out: a flat one, whose equations are of kinds that ``fuse`` knows.

    scan[length=0]   ->   the state as it begins, and arrays without elements
    b = jit[jaxpr={ lambda x. let y = sin x in y }] a; c = stop_gradient b; d = exp c   ->   y = sin a; d = exp y
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.passes.lower_prng_keys import lower_prng_keys
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, joined_effects
from weft.core.programs.rewrite import Splicer
from weft.effects import user_primitives

INLINED = (kinds.Higher, kinds.Opaque, kinds.Effect, kinds.Identity, kinds.Resolve, kinds.Reshape, kinds.Loop)


def inline(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, flat."""
    made = Splicer(closed, inlined_equation, INLINED).run()
    effects = closed.effects if made is closed else joined_effects(made.eqns)
    if effects <= made.effects:
        return made
    # the lowering of a user's primitive has effects that the primitive does not declare
    return ClosedJaxpr(made.jaxpr.replace(effects=made.effects | effects), made.consts)


def inlined_equation(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    """The values that replace the results of an equation that is inlined; None if it stays."""
    kind, params = eqn.primitive.kind, eqn.params
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(params)
        if inner is None:
            raise NotImplementedError(f"[compile] {eqn.primitive.name} cannot be compiled yet.")
        caller = inner.jaxpr.memoize("traced_at", _traced_at)
        # a function of weft's own is traced once for all its callers: its equations belong to the line of this call
        is_own = caller is not None and caller.co_name != params.get("name")
        if is_own and eqn.source is not None and check_scopes.is_used():
            return splicer.splice(check_scopes.relocated(inner, eqn.source), eqn.invars)
        return splicer.splice(inner, eqn.invars, eqn.source if is_own else None)
    if isinstance(kind, kinds.Opaque):
        return splicer.splice(_lowered(eqn), eqn.invars, eqn.source)
    if isinstance(kind, kinds.Identity):
        return _barrier(eqn, splicer) if kind.barrier else eqn.invars
    if isinstance(kind, kinds.Effect):
        return eqn.outvars if kind.admit is not None and not kind.admit(params) else None
    if isinstance(kind, kinds.Resolve):
        return splicer.splice(expansions.resolved(eqn), eqn.invars, check_scopes.inside(eqn.source))
    if isinstance(kind, kinds.Loop):
        parts = kind.parts(params)
        if parts.trips != 0:
            return None
        program = expansions.traced(_without_steps(parts), [v.aval for v in eqn.invars])
        return splicer.splice(program, eqn.invars, eqn.source)
    function = kind.rewrite(**params) if isinstance(kind, kinds.Reshape) and kind.rewrite is not None else None
    if function is None:
        return None
    return splicer.splice(expansions.of_equation(eqn, function), eqn.invars, eqn.source)


def _without_steps(parts: kinds.LoopParts) -> Callable[..., list[Any]]:
    """A function that computes the results of a loop without steps."""
    first, empty = parts.n_cond_consts + parts.n_consts, parts.body.out_avals[parts.n_carry :]

    def results(*operands: Any) -> list[Any]:
        outputs = [lax.full((0, *aval.shape), 0, aval.dtype) for aval in empty]
        return [*operands[first : first + parts.n_carry], *outputs]

    return results


def _traced_at(jaxpr: Jaxpr) -> CodeType | None:
    """The code in which all equations of a program were recorded, if they were at one instruction of it."""
    sources = {equation.source[:2] if equation.source is not None else None for equation in jaxpr.eqns}
    source = sources.pop() if len(sources) == 1 else None
    return None if source is None else source[0]


def _lowered(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program of a user's primitive, on words where it has keys inside."""
    return lower_prng_keys(user_primitives.lowered_equation(eqn))


def _barrier(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    """Remove literals from a barrier, which are known on both sides."""
    if not any(type(x) is Literal for x in eqn.invars):
        return None
    kept = [(x, out) for x, out in zip(eqn.invars, eqn.outvars, strict=True) if type(x) is not Literal]
    if kept:
        splicer.emit(eqn.replace(invars=[x for x, _ in kept], outvars=[out for _, out in kept]))
    return [x if type(x) is Literal else out for x, out in zip(eqn.invars, eqn.outvars, strict=True)]

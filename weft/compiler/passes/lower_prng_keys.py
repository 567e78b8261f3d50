"""Lowers extended dtypes: an array of PRNG keys becomes an array of the words of the keys.

float0, the dtype of tangents of integers, is treated as one: its elements have no words.

    k:key<fry>[3]                       ->   k:u32[3,2]
    a = slice[limit_indices=(2,)] k     ->   a = slice[limit_indices=(2, 2)] k
    b = random_bits a                   ->   b = its expansion on u32[2,2]

Operations that only move elements define in ``on_words`` how they work with trailing dimensions; all others on keys are
of kind Resolve, whose ``expand`` is written for the words, or, if they carry programs on keys, for the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, operations
from weft.compiler import expansions
from weft.core import avals, kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params
from weft.core.tracing import source_info
from weft.core.tracing.trace import trace_to_jaxpr
from weft.effects import user_primitives


def has_keys(jaxpr: Jaxpr) -> bool:
    """Whether any variable of a program, or of the programs it calls, is of an extended dtype."""
    return jaxpr.memoize("has_keys", _has_keys)


def _has_keys(jaxpr: Jaxpr) -> bool:
    atoms = [*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars]
    for eqn in jaxpr.eqns:
        atoms += eqn.outvars
    if any(map(dtypes.is_words, {atom.aval.dtype for atom in atoms})):
        return True
    return any(has_keys(inner) for eqn in jaxpr.eqns for inner in jaxprs_in_params(eqn.params))


def lower_prng_keys(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program on words."""
    jaxpr = closed.jaxpr
    if not has_keys(jaxpr):
        return closed
    n_consts = len(jaxpr.constvars)
    in_avals = [avals.physical_aval(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)]
    traced, _ = trace_to_jaxpr(lambda *args: _run(jaxpr, args), in_avals, jaxpr.debug_info, of_program=True)
    inner = traced.jaxpr
    words = Jaxpr(
        [*inner.invars[:n_consts], *inner.constvars], inner.invars[n_consts:], inner.outvars, inner.eqns, inner.effects,
        jaxpr.debug_info,
    )  # fmt: skip
    return ClosedJaxpr(words, [*closed.consts, *traced.consts])


def _run(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """Trace a program on words."""
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, Literal):
            return env[atom]
        return core.literal_value(atom) if atom.aval.dtype != dtypes.float0 else np.zeros((0,), np.bool_)

    for eqn in jaxpr.eqns:
        own = isinstance(eqn.primitive.kind, kinds.Resolve)  # its expansion is of weft's own operations
        with source_info.replayed(check_scopes.inside(eqn.source) if own else eqn.source):
            outs = _equation(eqn, [_typed(read(atom), atom) for atom in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [_typed(read(atom), atom) for atom in jaxpr.outvars]


def _called(eqn: JaxprEqn, operands: Sequence[Any]) -> Sequence[Any]:
    """A user's function: gets keys made from words, and its results that are keys become words."""
    types = [atom.aval.dtype if dtypes.is_extended(atom.aval.dtype) else None for atom in eqn.invars]
    params = {**eqn.params, "key_types": tuple(types)}
    if any(dtypes.is_extended(v.aval.dtype) for v in eqn.outvars):
        promised = params["result_avals"]
        params.update(promised=promised, result_avals=tuple(map(avals.physical_aval, promised)))
    return eqn.primitive.bind(*operands, **params)


def _typed(value: Any, atom: Any) -> Any:
    """A literal with its own type, for tracing it again."""
    if not isinstance(atom, Literal) or hasattr(value, "aval"):
        return value
    if not atom.aval.weak_type and not dtypes.is_words(atom.aval.dtype):
        return core.wide(atom.aval.dtype.type(value))
    return value


def _equation(eqn: JaxprEqn, operands: Sequence[Any]) -> Sequence[Any]:
    kind, params = eqn.primitive.kind, eqn.params
    keyed = [atom.aval for atom in (*eqn.invars, *eqn.outvars) if dtypes.is_words(atom.aval.dtype)]
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(params)
        if inner is not None and has_keys(inner.jaxpr):
            return _run(inner.jaxpr, [*inner.consts, *operands])
    if isinstance(kind, (kinds.Loop, kinds.Branch)) and any(map(has_keys, jaxprs_in_params(params))):
        return eqn.primitive.bind(*operands, **kind.mapped(params, lower_prng_keys))
    carries_keys = isinstance(kind, kinds.Resolve) and any(map(has_keys, jaxprs_in_params(params)))
    if keyed and (carries_keys or isinstance(kind, kinds.Opaque)):
        inner = expansions.resolved(eqn) if carries_keys else user_primitives.lowered_equation(eqn)
        return _run(inner.jaxpr, [*inner.consts, *operands])
    by_python = isinstance(kind, kinds.Effect) or (
        isinstance(kind, kinds.External) and kind.foreign and not kind.handler
    )
    if keyed and by_python:
        return _called(eqn, operands)
    if keyed and isinstance(kind, kinds.Resolve) and eqn.primitive.on_words is None:
        known = {"key_type": keyed[0].dtype} if kind.of_keys else {}
        out = kind.expand(*operands, **params, **known)
        return list(out) if isinstance(out, (tuple, list)) else [out]
    if keyed and not isinstance(kind, kinds.Identity):
        rule = eqn.primitive.on_words
        if rule is None:
            raise NotImplementedError(f"[compile] {eqn.primitive.name} of {keyed[0].str_short()} is not supported.")
        out = rule(operations, eqn.primitive, operands, params, dtypes.words_of(keyed[0].dtype)[0])
        return out if eqn.primitive.multiple_results else [out]
    out = eqn.primitive.bind(*operands, **params)
    return out if eqn.primitive.multiple_results else [out]

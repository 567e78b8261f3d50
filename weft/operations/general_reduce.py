"""``lax.reduce``: a reduction by a user-defined function.

A known function with its identity becomes a primitive reduction (lax.add from 0 is reduce_sum). Any other is traced to
a jaxpr of elementwise equations. ``reduce`` is then rewritten into ``fold``, a reduction whose accumulators have a flag
"holds a value" and so need no identity; its result is combined once with the initial values.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, runtime
from weft._base import forks
from weft.core import kinds
from weft.core.caches.fingerprint import fingerprint
from weft.operations import prefix
from weft.operations.data_movement import shape
from weft.operations.pointwise import arithmetic, convert, logic
from weft.operations.reductions import (
    all_ones,
    check_axes,
    highest,
    lowest,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    reduce_xor_p,
    reduced_shape,
)
from weft.operations.static import integers, placed
from weft.runtime import Array

__all__ = ["fold_p", "reduce", "reduce_p"]

Params = dict[str, Any]
FLAG = np.dtype(np.int32)
COMPUTATIONS_BOUND = 1024
_computations: OrderedDict[str, Any] = OrderedDict()  # by fingerprint
_lock = forks.held("computations")

# computation -> (primitive, identity of a dtype)
MONOIDS: dict[Any, tuple[core.Primitive, Callable[[np.dtype], Any]]] = {
    arithmetic.add: (reduce_sum_p, lambda dtype: 0),
    arithmetic.mul: (reduce_prod_p, lambda dtype: 1),
    arithmetic.max: (reduce_max_p, lowest),
    arithmetic.min: (reduce_min_p, highest),
    logic.bitwise_and: (reduce_and_p, all_ones),
    logic.bitwise_or: (reduce_or_p, lambda dtype: 0),
    logic.bitwise_xor: (reduce_xor_p, lambda dtype: 0),
}


# ---- evaluating the computation


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], apply: Callable[..., Any], literal: Any) -> list[Any]:
    """The computation's results; ``apply(eqn, operands)`` runs one equation, inner jaxprs are entered."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return literal(atom) if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        inner = _inner(eqn)
        outs = _run(inner.jaxpr, inner.consts, operands, apply, literal) if inner else [apply(eqn, operands)]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inner(eqn: Any) -> Any:
    """The program that an equation calls, if it is a call."""
    return eqn.primitive.kind.inline(eqn.params) if isinstance(eqn.primitive.kind, kinds.Higher) else None


def check_elementwise(jaxpr: Any, name: str = "reduce") -> None:
    """Raise NotImplementedError unless every equation is elementwise."""
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive.kind, kinds.Higher):
            inner = _inner(eqn)
            if inner is not None:
                check_elementwise(inner.jaxpr, name)
                continue
        if not isinstance(eqn.primitive.kind, (kinds.Elementwise, kinds.Identity)):
            raise NotImplementedError(
                f"[{name}] a computation of elementwise operations is supported, but it uses {eqn.primitive.name}"
            )


def _emit_run(emit: Any, closed: Any, args: Sequence[Any]) -> list[Any]:
    """The computation as a scalar expression; half precisions are rounded after every equation."""

    def apply(eqn: Any, operands: list[Any]) -> Any:
        kind = eqn.primitive.kind
        return operands[0] if isinstance(kind, kinds.Identity) else kind.scalar(emit, *operands, **eqn.params)

    return _run(closed.jaxpr, [], args, apply, lambda atom: emit.const(atom.val, atom.aval.dtype))


def run_with_numpy(jaxpr: Any, args: Sequence[Any]) -> list[Any]:
    """A jaxpr of elementwise equations on NumPy arrays, by the references of its operations."""

    def apply(eqn: Any, operands: list[Any]) -> Any:
        kind = eqn.primitive.kind
        return operands[0] if isinstance(kind, kinds.Identity) else kind.reference(*operands, **eqn.params)

    with np.errstate(all="ignore"):
        return _run(jaxpr, [], args, apply, lambda atom: np.asarray(atom.val, atom.aval.dtype))


# ---- fold: accumulators (flag, value, value, ...)


def _fold_typing(*avals: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    return [runtime.ShapedArray(reduced_shape(aval, dimensions), aval.dtype, aval.weak_type) for aval in avals]


def _fold_combine(emit: Any, left: Any, right: Any, *, jaxpr: Any, **_: Any) -> tuple[Any, ...]:
    zero = emit.const(0, FLAG)
    has_left, has_right = emit.compare("ne", left[0], zero), emit.compare("ne", right[0], zero)
    both = _emit_run(emit, jaxpr, [*left[1:], *right[1:]])
    values = [
        emit.select(has_left, r, emit.select(has_right, value, combined))
        for value, r, combined in zip(left[1:], right[1:], both, strict=True)
    ]
    return (emit.or_(left[0], right[0]), *values)


def _fold_reference(*arrays: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> tuple[Any, ...]:
    arrays = tuple(np.asarray(a) for a in arrays)
    kept = [axis for axis in range(arrays[0].ndim) if axis not in dimensions]
    rows = [np.transpose(a, [*dimensions, *kept]).reshape([-1] + [a.shape[axis] for axis in kept]) for a in arrays]
    acc = [row[0] for row in rows] if len(rows[0]) else [np.zeros(row.shape[1:], row.dtype) for row in rows]
    for i in range(1, len(rows[0])):
        acc = run_with_numpy(jaxpr.jaxpr, [*acc, *(row[i] for row in rows)])
    return tuple(np.asarray(a) for a in acc)


fold_p = core.Primitive(
    "fold",
    kind=kinds.Reduction(
        axes=lambda params: params["dimensions"],
        accumulators=lambda avals, params: ((FLAG, 0), *((aval.dtype, 0) for aval in avals)),
        prepare=lambda emit, values, index, **_: (emit.const(1, FLAG), *values),
        combine=_fold_combine,
        finish=lambda emit, accs, **_: tuple(accs[1:]),
        reference=_fold_reference,
    ),
    multiple_results=True,
    memoize=False,
)
fold_p.def_abstract_eval(_fold_typing)


def _fold_by_halves(*arrays: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    """The reduction as a tree of whole-array computations, which can be differentiated."""
    found = list(arrays)
    for axis in sorted(dimensions, reverse=True):
        found = prefix.halves(functools.partial(combined, jaxpr), found, axis, None)
    return found


def combined(jaxpr: Any, left: list[Any], right: list[Any]) -> list[Any]:
    """Two lists of values of one shape, combined."""

    def apply(eqn: Any, operands: list[Any]) -> Any:
        return eqn.primitive.bind(*operands, **eqn.params)

    return _run(jaxpr.jaxpr, [], [*left, *right], apply, lambda atom: atom.val)


fold_p.expansion, fold_p.transpose = _fold_by_halves, None


# ---- reduce


def _reduce_typing(*avals: Any, computation: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    arrays, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    check_axes("reduce", arrays[0], dimensions)
    if any(aval.shape for aval in inits):
        listed = ", ".join(aval.str_short() for aval in inits)
        raise ValueError(f"reduce found non-scalar initial value: {listed}")
    if any(x.dtype != init.dtype for x, init in zip(arrays, inits, strict=True)):
        listed = [", ".join(aval.str_short() for aval in side) for side in (arrays, inits)]
        raise TypeError(f"[reduce] operand dtypes {listed[0]} must match those of the initial values {listed[1]}")
    return [
        runtime.ShapedArray(reduced_shape(arrays[0], dimensions), x.dtype, x.weak_type and init.weak_type)
        for x, init in zip(arrays, inits, strict=True)
    ]


def _reduce_expand(*operands: Any, computation: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    full = shape.shape_of(arrays[0])
    kept = tuple(n for axis, n in enumerate(full) if axis not in dimensions)
    starts = [shape.broadcast_in_dim(init, kept, ()) for init in inits]
    if any(full[axis] == 0 for axis in dimensions):
        return starts
    if count == 1 and _is_monoid(computation):  # a traced start may be the identity: the same bits as where it is known
        folded = [_as_monoid(arrays[0], computation, dimensions)]
    else:
        folded = fold_p.bind(*arrays, jaxpr=jaxpr, dimensions=dimensions)
    outs = combined(jaxpr, starts, folded)
    return [out if shape.shape_of(out) == kept else shape.broadcast_in_dim(out, kept, ()) for out in outs]


def _reduce_by_halves(*operands: Any, computation: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> list[Any]:
    """The reduction as a tree, from the initial values."""
    count = len(operands) // 2
    if any(shape.shape_of(operands[0])[axis] == 0 for axis in dimensions):
        return _reduce_expand(*operands, computation=computation, jaxpr=jaxpr, dimensions=dimensions)
    found = _fold_by_halves(*operands[:count], jaxpr=jaxpr, dimensions=dimensions)
    kept = shape.shape_of(found[0])
    return combined(jaxpr, [shape.broadcast_in_dim(init, kept, ()) for init in operands[count:]], found)


def _reduce_params(params: Params) -> Params:
    return {**params, "jaxpr": params["jaxpr"].jaxpr}


reduce_p = core.Primitive("reduce", kinds.Resolve(expand=_reduce_expand), multiple_results=True, memoize=False)
reduce_p.def_abstract_eval(_reduce_typing)
reduce_p.print_params = _reduce_params
reduce_p.unnamed_params = frozenset(("computation",))  # what it computes is in its jaxpr
reduce_p.expansion, reduce_p.transpose = _reduce_by_halves, None


def identity_matches(init: Any, dtype: np.dtype, identity: Callable[[np.dtype], Any]) -> bool:
    """Whether an initial value that is known is the computation's identity, in its own dtype or in the operand's."""
    if not isinstance(init, (bool, int, float, complex, np.generic, np.ndarray, Array)) or np.shape(init):
        return False
    value = np.asarray(init)
    with np.errstate(all="ignore"):
        meant = value.astype(dtype)
        is_exact = bool(meant.astype(value.dtype) == value)
    same = is_exact and meant == np.asarray(identity(dtype)).astype(dtype)
    return bool(same or value == np.asarray(identity(value.dtype)).astype(value.dtype))


def _is_monoid(computation: Any) -> bool:
    return callable(computation) and computation in MONOIDS


def _as_monoid(x: Any, computation: Any, dimensions: tuple[int, ...]) -> Array:
    """The primitive reduction that is a computation of ``MONOIDS``, from its identity."""
    primitive, _ = MONOIDS[computation]
    if primitive is reduce_sum_p:
        return primitive.bind(x, axes=dimensions, out_sharding=None)
    return primitive.bind(x, axes=dimensions)


def traced_computation(computation: Any, init_avals: Sequence[Any], treedef: Any, name: str = "reduce") -> Any:
    """The computation on two tuples of scalars as a jaxpr without constants."""

    def flat(*scalars: Any) -> list[Any]:
        half = len(scalars) // 2
        left = runtime.tree_unflatten(treedef, list(scalars[:half]))
        right = runtime.tree_unflatten(treedef, list(scalars[half:]))
        leaves, out_tree = runtime.tree_flatten(computation(left, right))
        if out_tree != treedef:
            raise ValueError(
                f"[{name}] {name} output must have the same tree structure as the operands: {treedef} vs. {out_tree}"
            )
        return leaves

    scalars = [runtime.ShapedArray((), aval.dtype, False) for aval in init_avals] * 2
    closed, out_avals = core.trace_to_jaxpr(flat, scalars)
    if closed.consts:
        raise NotImplementedError(f"[{name}] a computation that closes over arrays is not supported; pass scalars")
    for init, out in zip(init_avals, out_avals, strict=True):
        if out.shape or out.dtype != init.dtype:
            raise TypeError(f"[{name}] the computation must return {init.str_short()}, got {out.str_short()}")
    check_elementwise(closed.jaxpr, name)
    return _canonical(closed)


def _canonical(closed: Any) -> Any:
    """The first jaxpr equal to this one. Kernels hold the computation, so that equal ones share machine code."""
    key = fingerprint(closed)
    with _lock:
        found = _computations.setdefault(key, closed)
        _computations.move_to_end(key)
        if len(_computations) > COMPUTATIONS_BOUND:
            _computations.popitem(last=False)
    return found


_IDENTITIES = (0, math.inf, -math.inf)


def of_operands_types(inits: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Initial values that are 0 or infinite as Python numbers, in the dtypes of the operands.

    As in JAX, which takes those that are the identity of a reduction, and of others only such of the operand's dtype.
    """
    if len(inits) != len(arrays):
        return list(inits)
    avals = [(core.get_aval(x), core.get_aval(array).dtype) for x, array in zip(inits, arrays, strict=True)]
    return [
        convert.convert(x, dtype) if type(x) in (int, float) and x in _IDENTITIES and aval.dtype != dtype else x
        for x, (aval, dtype) in zip(inits, avals, strict=True)
    ]


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Combine the elements of a tree of arrays over ``dimensions`` with an associative computation.

    ``init_values`` has the operands' structure, and is combined exactly once. The order of combination is unspecified.

    >>> lax.reduce(np.float32([1, 5, 3]), np.float32(0), lax.max, (0,)).item()
    5.0
    """
    if out_sharding is not None:
        return placed(
            lambda: reduce(operands, init_values, computation, dimensions), out_sharding, "reduce", "out_sharding"
        )
    arrays, treedef = runtime.tree_flatten(operands)
    inits, init_tree = runtime.tree_flatten(init_values)
    if treedef != init_tree:
        raise ValueError(
            f"[reduce] Operands must have the same tree structure as init_values: {treedef} vs. {init_tree}"
        )
    if not arrays:
        raise TypeError("[reduce] needs at least one operand")
    dims = integers(dimensions, "reduce", "dimensions")
    inits = of_operands_types(inits, arrays)
    is_monoid = len(arrays) == 1 and _is_monoid(computation)
    if is_monoid and identity_matches(inits[0], core.get_aval(arrays[0]).dtype, MONOIDS[computation][1]):
        return runtime.tree_unflatten(treedef, [_as_monoid(arrays[0], computation, dims)])
    init_avals = [core.get_aval(init) for init in inits]
    array_avals = [core.get_aval(x) for x in arrays]
    _reduce_typing(*array_avals, *init_avals, computation=None, jaxpr=None, dimensions=dims)
    closed = traced_computation(computation, init_avals, treedef)
    outs = reduce_p.bind(*arrays, *inits, computation=computation, jaxpr=closed, dimensions=dims)
    return runtime.tree_unflatten(treedef, outs)

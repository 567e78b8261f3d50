"""``einsum``: Einstein's sums as dot_general, reductions and transposes along a path from opt_einsum.

Each pairwise step squeezes extents of 1 that the other operand does not have, sums names that only one operand has,
and contracts the rest; a repeated name within one operand selects its diagonal::

    einsum("bij,bjk->bik", f32[2,3,4], f32[2,4,5])  ->  dot_general[dimension_numbers=(([2], [1]), ([0], [0]))]
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft import operations as lax
from weft._base import lazy
from weft._base.array import Array
from weft._base.record import Record
from weft.core.symbolic import sized_programs, sizes
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

inline = functools.partial(jit_module.jit, inline=True)


_BOUND = 1024
_steps: dict[Any, tuple[Step, ...]] = {}  # of calls with arrays, by ``_key``: to write a path out takes 3 us


class Step(Record):
    """One contraction of a path: which operands, and the names that are summed and kept."""

    positions: tuple[int, ...]
    summed: frozenset[str]
    text: str  # such as "jk,ij->ki"


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    _dot_general: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum of products that ``subscripts`` writes, such as ``ij,jk->ik``; or operands and lists in turn.

    ValueError if a name's extents differ or the output has a name that no operand has.

    >>> einsum("i,i", weft.numpy.ones(3), weft.numpy.ones(3)).item()
    3.0
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: einsum(
                subscripts,
                *operands,
                out=out,
                optimize=optimize,
                precision=precision,
                preferred_element_type=preferred_element_type,
                _dot_general=_dot_general,
            ),
            out_sharding=out_sharding,
        )
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.einsum is not supported.")
    key = _key(subscripts, operands, optimize)
    known = None if key is None else _steps.get(key)
    if known is not None:
        return _einsum(*operands, steps=known, precision=precision, preferred=preferred_element_type)
    inputs, steps = _path((subscripts, *operands), optimize)
    if key is not None:
        if len(_steps) >= _BOUND:
            _steps.clear()
        _steps[key] = steps
    return _einsum(*inputs, steps=steps, precision=precision, preferred=preferred_element_type)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[Any], Any]:
    """The order of contractions that ``einsum`` would take, and a printable report, as opt_einsum gives them."""
    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else lazy.opt_einsum.paths.greedy
    return lazy.opt_einsum.contract_path(subscripts, *operands, optimize=optimize)


def _path(arguments: tuple[Any, ...], optimize: Any) -> tuple[tuple[Any, ...], tuple[Step, ...]]:
    text, output, inputs = _parsed(arguments)
    promotion.check_arraylike("einsum", *inputs)
    shapes = tuple(promotion.shape_of(x) for x in inputs)
    if isinstance(optimize, list):  # unhashable: an explicit path is not cached
        return inputs, _cached_path.__wrapped__(f"{text}->{output}", shapes, optimize)
    if len(shapes) <= 2:  # one contraction, whatever the extents are
        try:
            return inputs, _cached_path(f"{text}->{output}", _numbered(shapes), optimize)
        except ValueError:  # it shall name the extents themselves
            pass
    return inputs, _cached_path(f"{text}->{output}", shapes, optimize)


def _numbered(shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Shapes with small numbers instead of extents, equal ones for equal extents; 0 and 1 stay."""
    numbers = {0: 0, 1: 1}
    return tuple([tuple([numbers.setdefault(extent, len(numbers)) for extent in shape]) for shape in shapes])


def _key(subscripts: Any, operands: tuple[Any, ...], optimize: Any) -> Any:
    """What the path for arrays depends on: one contraction is the same whatever the extents are. None: not known."""
    if type(subscripts) is not str or type(optimize) is not str:
        return None
    if any(type(x) is not runtime.Array for x in operands):
        return None
    found = sized_programs.size_class([x.aval for x in operands])
    return None if found is None else (subscripts, optimize, found[0] if len(operands) <= 2 else found)


def _parsed(arguments: tuple[Any, ...]) -> tuple[str, str, tuple[Any, ...]]:
    """Subscripts, output names, operands; ellipses are written out by opt_einsum from the shapes."""
    if isinstance(arguments[0], str):
        text, operands = arguments[0], arguments[1:]
        stand_ins = (text, *(_Shaped(promotion.shape_of(x)) for x in operands))
    else:
        operands = arguments[: len(arguments) // 2 * 2 : 2]
        stand_ins = tuple(
            _Shaped(promotion.shape_of(x)) if i % 2 == 0 and i < len(operands) * 2 else x
            for i, x in enumerate(arguments)
        )
    text, output, _ = lazy.opt_einsum.parser.parse_einsum_input(stand_ins)
    return text, output, operands


class _Shaped:
    """What opt_einsum looks at in an operand."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


@sizes.cached(1024)
def _cached_path(text: str, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> tuple[Step, ...]:
    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else "greedy"
    if isinstance(optimize, list) and optimize[:1] == ["einsum_path"]:  # as numpy.einsum_path gives it
        optimize = optimize[1:]
    operands = [_Shaped(s) for s in shapes]
    _, contractions = lazy.opt_einsum.contract_path(text, *operands, einsum_call=True, optimize=optimize)
    return tuple(Step(tuple(positions), frozenset(summed), line) for positions, summed, line, *_ in contractions)


@functools.partial(inline, static_argnames=("steps", "precision", "preferred"))
def _einsum(*operands: Any, steps: tuple[Step, ...], precision: Any, preferred: Any) -> Any:
    if preferred is None:
        preferred, weak_type = dtypes.result_type(*operands, return_weak_type_flag=True)
    else:
        preferred, weak_type = dtypes.check_user_dtype(preferred, "einsum"), False
    working = list(operands)
    for step in steps:
        taken = [working.pop(position) for position in step.positions]
        inputs, result = step.text.split("->")
        names = inputs.split(",")
        if len(taken) == 1:
            value, order = _single(taken[0], names[0], step.summed, result, preferred)
        else:
            value, order = _pair(taken, names, step, result, precision, preferred)
        if order != result:
            value = lax.transpose(value, tuple(order.index(name) for name in result))
        working.append(value)
    return promotion.convert(working[0], preferred, weak_type)


def _single(x: Any, names: str, summed: frozenset[str], result: str, preferred: Any) -> tuple[Any, str]:
    """Diagonals of repeated names, then the sum over names that vanish."""
    counts = collections.Counter(names)
    unique = [name for name in sorted(summed) if counts[name] == 1]
    if unique:
        x, names = _sum_names(x, names, unique, preferred)
    return _sum_repeats(x, names, counts, result, preferred)


def _sum(x: Any, reduced: Sequence[int], preferred: Any) -> Any:
    """The sum in the result's dtype, unless the operand's is as wide; for booleans, whether one is true."""
    if dtypes.result_type(x, preferred) != promotion.dtype_of(x):
        x = promotion.convert(x, preferred)
    return (lax.reduce_or if promotion.dtype_of(x) == np.bool_ else lax.reduce_sum)(x, tuple(reduced))


def _sum_names(x: Any, names: str, unwanted: Sequence[str], preferred: Any) -> tuple[Any, str]:
    reduced = [names.index(name) for name in unwanted]
    return _sum(x, reduced, preferred), "".join(name for name in names if name not in unwanted)


def _sum_repeats(x: Any, names: str, counts: collections.Counter[str], kept: str, preferred: Any) -> tuple[Any, str]:
    for name, count in counts.items():
        if count == 1:
            continue
        dims = [d for d, other in enumerate(names) if other == name]
        diagonal = _on_diagonal(promotion.shape_of(x), dims)
        x = lax.select(diagonal, x, lax.full_like(x, 0))
        if name in kept:
            x = _sum(x, dims[:-1], preferred)
            names = "".join(other for d, other in enumerate(names) if d not in dims[:-1])
        else:
            x = _sum(x, dims, preferred)
            names = names.replace(name, "")
    return x, names


def _on_diagonal(extents: tuple[int, ...], dims: list[int]) -> Any:
    """bool of shape ``extents``, true where the indices along all ``dims`` are equal."""
    inner = tuple(extents[d] for d in dims)
    iotas = [lax.broadcasted_iota(np.uint32, inner, d) for d in range(len(dims))]
    equal = [lax.eq(x, y) for x, y in itertools.pairwise(iotas)]
    diagonal = functools.reduce(lax.bitwise_and, equal)
    return diagonal if inner == extents else lax.broadcast_in_dim(diagonal, extents, tuple(dims))


def _squeezed(x: Any, names: str, shape_other: dict[str, int]) -> tuple[Any, str]:
    """Extents of 1 along names that the other operand has at full length are dropped."""
    drop = [d for d, name in enumerate(names) if promotion.shape_of(x)[d] == 1 and shape_other.get(name, 1) != 1]
    if not drop:
        return x, names
    return lax.squeeze(x, tuple(drop)), "".join(name for d, name in enumerate(names) if d not in drop)


def _pair(
    taken: list[Any], names: list[str], step: Step, result: str, precision: Any, preferred: Any
) -> tuple[Any, str]:
    """Two operands: private sums, diagonals, then one dot_general in the order that spares a transpose."""
    left, right = taken
    left_names, right_names = names
    extents = [dict(zip(n, promotion.shape_of(x), strict=True)) for n, x in zip(names, taken, strict=True)]
    left, left_names = _squeezed(left, left_names, extents[1])
    right, right_names = _squeezed(right, right_names, extents[0])
    counts = [collections.Counter(left_names), collections.Counter(right_names)]
    summed = sorted(step.summed)
    private = [n for n in summed if counts[0][n] == 1 and n not in counts[1]]
    if private:
        left, left_names = _sum_names(left, left_names, private, preferred)
    private = [n for n in summed if counts[1][n] == 1 and n not in counts[0]]
    if private:
        right, right_names = _sum_names(right, right_names, private, preferred)
    left, left_names = _sum_repeats(left, left_names, counts[0], result + right_names, preferred)
    right, right_names = _sum_repeats(right, right_names, counts[1], result + left_names, preferred)
    contracted = [n for n in summed if n in left_names and n in right_names]
    batch = [n for n in left_names if n in right_names and n not in contracted]
    return _multiply(left, right, left_names, right_names, contracted, batch, result, precision, preferred)


def _multiply(
    left: Any,
    right: Any,
    left_names: str,
    right_names: str,
    contracted: list[str],
    batch: list[str],
    result: str,
    precision: Any,
    preferred: Any,
) -> tuple[Any, str]:
    batch = [n for n in result if n in batch]
    used = {*batch, *contracted}
    left_free = "".join(n for n in left_names if n not in used)
    right_free = "".join(n for n in right_names if n not in used)
    if "".join(batch) + right_free + left_free == result:
        left, right, left_names, right_names = right, left, right_names, left_names
        left_free, right_free = right_free, left_free
    numbers = (
        (tuple(map(left_names.index, contracted)), tuple(map(right_names.index, contracted))),
        (tuple(map(left_names.index, batch)), tuple(map(right_names.index, batch))),
    )
    value = lax.dot_general(left, right, numbers, precision=precision, preferred_element_type=preferred)
    return value, "".join(batch) + left_free + right_free

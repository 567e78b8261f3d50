"""Factorizations without a program in StableHLO, as calls of LAPACK's routines: for the CPU alone, as JAX writes them.

    eig     "stablehlo.custom_call"(%a) <{call_target_name = "lapack_sgeev_ffi", ...}>

Matrices are in LAPACK's order, by columns. The last result of a routine, ``info``, is 0 for each matrix that it could
do; results for others are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.core.jaxpr import JaxprEqn
from weft.stablehlo import types
from weft.stablehlo.text import Tensor, Text, Type

_LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}  # of routines for a dtype


def find(eqn: JaxprEqn) -> Callable[[Text, JaxprEqn, Tensor], list[Tensor]] | None:
    """What writes an equation as a call of a routine, if there is one for it and its dtype."""
    dtype = eqn.invars[0].aval.dtype
    return ROUTINES.get(eqn.primitive.name) if f"{dtype.kind}{dtype.itemsize}" in _LETTERS else None


def eig(text: Text, eqn: JaxprEqn, a: Tensor) -> list[Tensor]:
    """geev, which has the parts of eigenvalues of real matrices apart."""
    wanted = [eqn.params[f"compute_{side}_eigenvectors"] for side in ("left", "right")]
    vector, made = (*a.shape[:-2], a.shape[-1]), eqn.outvars[0].aval.dtype
    values: list[Type] = [(vector, made)] if a.dtype.kind == "c" else [(vector, a.dtype)] * 2
    letters = {"compute_left": "NV"[wanted[0]], "compute_right": "NV"[wanted[1]]}
    *parts, left, right, info = _called(text, "geev", a, letters, [*values, *[(a.shape, made)] * 2])
    w = parts[0] if len(parts) == 1 else text.op("complex", parts, vector, made)
    sides = [side for side, is_wanted in zip((left, right), wanted, strict=True) if is_wanted]
    return _where_done(text, info, [w, *sides])


def schur(text: Text, eqn: JaxprEqn, a: Tensor) -> list[Tensor]:
    """gees without a choice of eigenvalues."""
    vectors = eqn.params["compute_schur_vectors"]
    vector = (*a.shape[:-2], a.shape[-1])
    values: list[Type] = [(vector, a.dtype)] * (1 if a.dtype.kind == "c" else 2)
    letters = {"mode": "NV"[vectors], "sort": "N"}
    results: list[Type] = [(a.shape, a.dtype), (a.shape, a.dtype), *values, (a.shape[:-2], types.INT32)]
    found = _called(text, "gees", a, letters, results, True)
    return _where_done(text, found[-1], found[: 1 + vectors])


def tridiagonal(text: Text, eqn: JaxprEqn, a: Tensor) -> list[Tensor]:
    """sytrd, hetrd for complex matrices."""
    results = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    letters = {"uplo": "L" if eqn.params["lower"] else "U"}
    *found, info = _called(text, "hetrd" if a.dtype.kind == "c" else "sytrd", a, letters, results, True)
    return _where_done(text, info, found)


ROUTINES = {"eig": eig, "schur": schur, "tridiagonal": tridiagonal}


def _called(
    text: Text, routine: str, a: Tensor, letters: dict[str, str], results: Sequence[Type], in_place: bool = False
) -> list[Tensor]:
    """The results of a routine, and ``info``. ``in_place``: the first is written over the operand."""
    every = [*results, (a.shape[:-2], types.INT32)]
    layouts = [_layouts([a.shape]), _layouts([shape for shape, _ in every], len(a.shape))]
    name = f"lapack_{_LETTERS[f'{a.dtype.kind}{a.dtype.itemsize}']}{routine}_ffi"
    given = f'call_target_name = "{name}", operand_layouts = {layouts[0]}, '
    if in_place:
        alias = "output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []"
        given += f"output_operand_aliases = [#stablehlo.output_operand_alias<{alias}>], "
    config = ", ".join([f"{key} = {ord(letter)} : ui8" for key, letter in letters.items()])
    more = f'mhlo.backend_config = {{{config}}}, mhlo.frontend_attributes = {{num_batch_dims = "{a.ndim - 2}"}}'
    return text.ops("custom_call", [a], every, f"{given}result_layouts = {layouts[1]}", discardable=more)


def _layouts(shapes: Sequence[Any], rank: int = 0) -> str:
    """Dimensions from the one whose elements are beside each other outwards; rows first for matrices."""
    listed = []
    for shape in shapes:
        order = list(range(len(shape)))[::-1]
        if len(shape) >= 2 and len(shape) >= rank:
            order[:2] = order[1::-1]
        listed.append(f"dense<{order if order else ''}> : tensor<{len(order)}xindex>")
    return f"[{', '.join(listed)}]"


def _where_done(text: Text, info: Tensor, results: Sequence[Tensor]) -> list[Tensor]:
    """The results, NaN where ``info`` is not 0."""
    done = text.compare("eq", info, text.constant(0, info.shape, types.INT32))
    found = []
    for x in results:
        nan: Any = complex(np.nan, np.nan) if dtypes.issubdtype(x.dtype, np.complexfloating) else np.nan
        which = text.broadcast(done, x.shape, range(info.ndim))
        found.append(text.select(which, x, text.constant(nan, x.shape, x.dtype)))
    return found

"""Linear algebra as calls of LAPACK's routines: for the CPU alone, as JAX writes them.

    eig     "stablehlo.custom_call"(%a) <{call_target_name = "lapack_sgeev_ffi", ...}>

Matrices are in LAPACK's order, by columns. The last result of a routine, ``info``, is 0 for each matrix that it could
do; results for others are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes
from weft.compiler import expansions
from weft.core.programs.jaxpr import JaxprEqn
from weft.runtime import ShapedArray
from weft.stablehlo import decompositions, products, types
from weft.stablehlo.text import Tensor, Text, Type

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter

_LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}  # of routines for a dtype


EquationWriter = Callable[["FunctionWriter", JaxprEqn, list[Tensor]], Sequence[Tensor]]


def find(eqn: JaxprEqn) -> EquationWriter | None:
    """The function that writes an equation as calls of routines; None if there are none for it and its dtype."""
    routine = ROUTINES.get(eqn.primitive.name)
    if routine is None:
        return None
    dtype = eqn.invars[0].aval.dtype
    if f"{dtype.kind}{dtype.itemsize}" not in _LETTERS or any(0 in v.aval.shape for v in (*eqn.invars, *eqn.outvars)):
        return None
    if eqn.params.get("pivoting") or (eqn.primitive.name == "svd" and eqn.params["subset_by_index"] is not None):
        return None
    return routine


def cholesky(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """potrf, which leaves what is above the diagonal."""
    text, (a,) = writer.text, operands
    factor, info = _called(text, "potrf", [a], {"uplo": "L"}, [(a.shape, a.dtype)], True)
    return _where_done(text, info, [_triangle(text, factor, "ge")])


def triangular_solve(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """trsm, which has no letter for a conjugate alone."""
    (a, b), params = operands, eqn.params
    if params["conjugate_a"] and not params["transpose_a"] and a.dtype.kind == "c":
        a = products.conjugate(writer.text, a)
    turned = params["transpose_a"] + (params["transpose_a"] and params["conjugate_a"])
    letters = {
        "diag": "NU"[params["unit_diagonal"]], "side": "RL"[params["left_side"]], "trans_x": "NTC"[turned],
        "uplo": "UL"[params["lower"]],
    }  # fmt: skip
    return _called(writer.text, "trsm", [a, b], letters, [(b.shape, b.dtype)], True, has_info=False)


def lu(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """getrf, whose pivots count from 1; what is exactly singular has factors too."""
    text, (a,) = writer.text, operands
    vector = (*a.shape[:-2], min(a.shape[-2:]))
    factors, pivots, _ = _called(text, "getrf", [a], {}, [(a.shape, a.dtype), (vector, types.INT32)], True)
    pivots = text.op("subtract", [pivots, text.constant(1, vector, types.INT32)], vector, types.INT32)
    name, params = "lu_pivots_to_permutation", {"permutation_size": a.shape[-2]}
    function = decompositions.program(name, params, len(vector))
    assert function is not None
    order = writer.program(expansions.traced(function, [ShapedArray(vector, types.INT32)]), [pivots])
    return [factors, pivots, *order]


def geqrf(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    (a,) = operands
    results: list[Type] = [(a.shape, a.dtype), ((*a.shape[:-2], min(a.shape[-2:])), a.dtype)]
    return _called(writer.text, "geqrf", [a], {}, results, True, has_info=False)


def householder_product(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """orgqr, ungqr for complex matrices."""
    a = operands[0]
    routine = "ungqr" if a.dtype.kind == "c" else "orgqr"
    return _called(writer.text, routine, operands, {}, [(a.shape, a.dtype)], True, has_info=False)


def qr(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """The two routines before: q is made of as many columns as it has."""
    text = writer.text
    made, taus = geqrf(writer, eqn, operands)
    columns, rows = eqn.outvars[0].aval.shape[-1], eqn.outvars[1].aval.shape[-2]
    more = max(0, columns - made.shape[-1])
    zero = text.constant(0, (), made.dtype)
    wide = text.pad(made, zero, [(0, more if d == made.ndim - 1 else 0, 0) for d in range(made.ndim)])
    (q,) = householder_product(writer, eqn, [text.cut(wide, made.ndim - 1, 0, columns), taus])
    return [q, _triangle(text, text.cut(made, made.ndim - 2, 0, rows), "le")]


def eigh(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """syevd, heevd for complex matrices."""
    text, (a,) = writer.text, operands
    vector: Type = ((*a.shape[:-2], a.shape[-1]), eqn.outvars[1].aval.dtype)
    letters = {"mode": "V", "uplo": "UL"[eqn.params["lower"]]}
    routine = "heevd" if a.dtype.kind == "c" else "syevd"
    *found, info = _called(text, routine, [a], letters, [(a.shape, a.dtype), vector], True)
    first, end = eqn.params["subset_by_index"] or (0, a.shape[-1])
    return [text.cut(x, x.ndim - 1, first, end) for x in _where_done(text, info, found)]


def svd(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """gesdd: all vectors (A), as many as there are values (S), or none (N)."""
    text, (a,) = writer.text, operands
    *batch, m, n = a.shape
    short, wanted, full = min(m, n), eqn.params["compute_uv"], eqn.params["full_matrices"]
    values: Type = ((*batch, short), eqn.outvars[0].aval.dtype)
    u, vt = [(*batch, m, m), (*batch, n, n)] if wanted and full else [(*batch, m, short), (*batch, short, n)]
    mode = ("A" if full else "S") if wanted else "N"
    results: list[Type] = [(a.shape, a.dtype), values, (u, a.dtype), (vt, a.dtype)]
    *found, info = _called(text, "gesdd", [a], {"mode": mode}, results, True)
    return _where_done(text, info, found[1 : 4 if wanted else 2])


def eig(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """geev, which has the parts of eigenvalues of real matrices apart."""
    text, (a,) = writer.text, operands
    wanted = [eqn.params[f"compute_{side}_eigenvectors"] for side in ("left", "right")]
    vector, made = (*a.shape[:-2], a.shape[-1]), eqn.outvars[0].aval.dtype
    values: list[Type] = [(vector, made)] if a.dtype.kind == "c" else [(vector, a.dtype)] * 2
    letters = {"compute_left": "NV"[wanted[0]], "compute_right": "NV"[wanted[1]]}
    *parts, left, right, info = _called(text, "geev", [a], letters, [*values, *[(a.shape, made)] * 2])
    w = parts[0] if len(parts) == 1 else text.op("complex", parts, vector, made)
    sides = [side for side, is_wanted in zip((left, right), wanted, strict=True) if is_wanted]
    return _where_done(text, info, [w, *sides])


def schur(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """gees without a choice of eigenvalues."""
    text, (a,) = writer.text, operands
    vectors = eqn.params["compute_schur_vectors"]
    vector = (*a.shape[:-2], a.shape[-1])
    values: list[Type] = [(vector, a.dtype)] * (1 if a.dtype.kind == "c" else 2)
    letters = {"mode": "NV"[vectors], "sort": "N"}
    results: list[Type] = [(a.shape, a.dtype), (a.shape, a.dtype), *values, (a.shape[:-2], types.INT32)]
    found = _called(text, "gees", [a], letters, results, True)
    return _where_done(text, found[-1], found[: 1 + vectors])


def tridiagonal(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> list[Tensor]:
    """sytrd, hetrd for complex matrices."""
    text, (a,) = writer.text, operands
    results = [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    letters = {"uplo": "L" if eqn.params["lower"] else "U"}
    *found, info = _called(text, "hetrd" if a.dtype.kind == "c" else "sytrd", [a], letters, results, True)
    return _where_done(text, info, found)


ROUTINES: dict[str, EquationWriter] = {
    "cholesky": cholesky, "triangular_solve": triangular_solve, "lu": lu, "geqrf": geqrf,
    "householder_product": householder_product, "qr": qr, "eigh": eigh, "svd": svd, "eig": eig, "schur": schur,
    "tridiagonal": tridiagonal,
}  # fmt: skip


def _called(
    text: Text, routine: str, operands: Sequence[Tensor], letters: dict[str, str], results: Sequence[Type],
    in_place: bool = False, has_info: bool = True,
) -> list[Tensor]:  # fmt: skip
    """The results of a routine, and ``info`` if it has that.

    ``in_place``: the first result is written over an operand, the last matrix of them.
    """
    a = operands[0]
    every = [*results, (a.shape[:-2], types.INT32)] if has_info else results
    layouts = [_layouts([shape for shape, *_ in listed], a.ndim) for listed in ([(x.shape,) for x in operands], every)]
    name = f"lapack_{_LETTERS[f'{a.dtype.kind}{a.dtype.itemsize}']}{routine}_ffi"
    given = f'call_target_name = "{name}", operand_layouts = {layouts[0]}, '
    if in_place:
        over = max(index for index, x in enumerate(operands) if x.ndim == a.ndim)
        indices = "[0]" if len(every) > 1 else "[]"
        alias = f"output_tuple_indices = {indices}, operand_index = {over}, operand_tuple_indices = []"
        given += f"output_operand_aliases = [#stablehlo.output_operand_alias<{alias}>], "
    config = ", ".join([f"{key} = {ord(letter)} : ui8" for key, letter in letters.items()])
    more = f'mhlo.backend_config = {{{config}}}, mhlo.frontend_attributes = {{num_batch_dims = "{a.ndim - 2}"}}'
    return text.ops("custom_call", operands, every, f"{given}result_layouts = {layouts[1]}", discardable=more)


def _triangle(text: Text, x: Tensor, direction: str) -> Tensor:
    """The part of matrices where the row compares so with the column; zero elsewhere."""
    rows, columns = [text.iota(x.shape, types.INT32, x.ndim - k) for k in (2, 1)]
    return text.select(text.compare(direction, rows, columns), x, text.constant(0, x.shape, x.dtype))


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

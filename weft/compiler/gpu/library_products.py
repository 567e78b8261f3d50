"""Matrix products by the library of a GPU's maker: which instructions are one, as matrices, and with which epilogue.

    gemm f f, rows (4096, 512, 1024), columns (1024, 1), terms (512, 1, 1024), on its points: kernel add_tanh
        ->   4096 x 1024 of 512 terms, steps (512, 1, 1024, 1, 1024), epilogue gelu_bias

Rows, columns, terms and products of a batch are one dimension each, and one of the two steps in every matrix is 1. What
is another product, or one that the library has no algorithm for, is a kernel of our own (``launches``). Which of those
that it has are worth it, is one rule of the target model (``GPU_LIBRARY_OPERATIONS``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.target_model import GPU_LIBRARY_OPERATIONS
from weft.compiler.matrix_products.contraction import dtype_of
from weft.compiler.plans import link
from weft.compiler.plans.instructions import Gemm, LibraryProduct
from weft.compiler.plans.steps import ByLibrary, FusedEpilogue, Run
from weft.loops import ir
from weft.loops.nests import Lowered
from weft.operations.pointwise import arithmetic, functions, powers

_RESULTS = {"f": "f", "d": "d", "e": "ef", "E": "Ef"}  # of each type of operands


def product(entry: Gemm | FusedEpilogue, library: Any) -> ByLibrary | None:
    """The product by the library; None if it is one of our own. ``library``: ``context.Context.library``."""
    gemm = entry.product if isinstance(entry, FusedEpilogue) else entry
    made = None if library is None else _matrices(gemm)
    if (
        library is None
        or made is None
        or not (library.everything or 2 * math.prod(made.extents) >= GPU_LIBRARY_OPERATIONS)
    ):
        return None
    if isinstance(entry, FusedEpilogue):
        made = _with_epilogue(made, gemm, entry.run)
    return ByLibrary(entry, made) if made is not None and library.has(made) else None


def _matrices(gemm: Gemm) -> LibraryProduct | None:
    """A product of matrices, without an epilogue."""
    exact = gemm.precision == "float32"
    if gemm.result not in _RESULTS.get(gemm.source, "") or (exact and gemm.source in "eE"):
        return None
    widths = ((gemm.rows, 3), (gemm.columns, 2), (gemm.summed, 3), (gemm.batch, 4))
    joined = [one for dims, width in widths if (one := _joined(dims, width)) is not None]
    if len(joined) < len(widths):
        return None
    (m, a_row, c_row), (n, b_column), (k, a_term, b_term), (batch, *apart) = joined
    if m == 1 or n == 1:
        return None
    if k == 1:  # then a step from term to term is none
        a_term, b_term = 1, n if b_column == 1 else 1
    lie = _lies(m, k, a_row, a_term) and _lies(k, n, b_term, b_column) and _lies(m, n, c_row, 1)
    sizes = [dtype_of(gemm.source).itemsize] * 2 + [dtype_of(gemm.result).itemsize]
    if not lie or any(nbytes % size or nbytes < 0 for nbytes, size in zip(apart, sizes, strict=True)):
        return None
    steps = (a_row, a_term, b_term, b_column, c_row)
    between = tuple([nbytes // size for nbytes, size in zip(apart, sizes, strict=True)])
    tf32 = gemm.source == "f" and not exact
    return LibraryProduct(gemm.source, gemm.result, tf32, gemm.a, gemm.b, gemm.c, (m, n, k, batch), steps, between)


def _joined(dims: Sequence[tuple[int, ...]], width: int) -> tuple[int, ...] | None:
    """Dimensions as one: (extent, steps); None if they do not follow each other."""
    found: tuple[int, ...] = (1,) + (0,) * (width - 1)
    for extent, *steps in reversed(dims):
        if extent == 1:
            continue
        if found[0] == 1:
            found = (extent, *steps)
        elif all(step == found[0] * inner for step, inner in zip(steps, found[1:], strict=True)):
            found = (extent * found[0], *found[1:])
        else:
            return None
    return found


def _lies(rows: int, columns: int, row_step: int, column_step: int) -> bool:
    """Whether the rows of a matrix, or its columns, lie side by side, and do not overlap."""
    return (column_step == 1 and row_step >= columns) or (row_step == 1 and column_step >= rows)


# -- epilogues --------------------------------------------------------------------------------------------------------


def _with_epilogue(made: LibraryProduct, gemm: Gemm, run: Run) -> LibraryProduct | None:
    """The product with what a kernel makes of its elements; None if the library has no such epilogue."""
    low, dtype = run.lowered, dtype_of(gemm.result)
    read = [k for k, b in enumerate(low.operands) if b.role == "in"]
    own = [k for k in read if run.operands[k] == gemm.c]
    written = [k for k, b in enumerate(low.operands) if b.role != "in"]
    if len(own) != 1 or len(written) != 1 or any(b.dtype != dtype for b in low.operands):
        return None
    bias = next((k for k in read if k not in own), None)
    if low.operands[written[0]].strides != low.operands[own[0]].strides or len(read) > 2:
        return None
    if bias is not None and not _is_row(low, bias, made.extents[1]):
        return None
    names = {own[0]: "product"} | ({} if bias is None else {bias: "bias"})
    epilogue = _EPILOGUES.get(_Reading(low, names).stored(), "")
    if not epilogue:
        return None
    location = None if bias is None else run.operands[bias]
    return made._replace(c=run.operands[written[0]], epilogue=epilogue, bias=location, where=link.lines(low.lines))


def _is_row(low: Lowered, operand: int, columns: int) -> bool:
    """Whether an operand is a number for each column of the product."""
    strides = low.operands[operand].strides
    return bool(strides) and strides[-1] == 1 and not any(strides[:-1]) and low.extents[-1] == columns


def _text(operation: str, arguments: Sequence[str]) -> str:
    return f"{operation}({' '.join(sorted(arguments))})"


class _Reading:
    """What a kernel computes, as texts in which sums and products have no order."""

    def __init__(self, low: Lowered, names: dict[int, str]) -> None:
        self.low, self.names = low, names  # names: the operands that it may load
        self.known: dict[int, tuple[str, list[str]]] = {}  # each value's operation and operands

    def stored(self) -> str:
        """What is stored; "" if it is not that simple."""
        for s in self.low.nest.statements():
            if isinstance(s, ir.Load) and s.operand in self.names:
                self.known[s.out] = "", [self.names[s.operand]]
            elif isinstance(s, ir.Param):
                self.known[s.out] = "", [self._number(s.index)]
            elif isinstance(s, ir.Apply) and s.name in _OPERATIONS:
                self.known[s.out] = _OPERATIONS[s.name], self._flat(_OPERATIONS[s.name], s.args)
            elif isinstance(s, ir.Apply) and s.name == powers.integer_pow_p.name and dict(s.params)["y"] == 3:
                self.known[s.out] = _TIMES, self._flat(_TIMES, s.args * 3)
            elif isinstance(s, ir.Store):
                return self._of(s.value)
            else:
                return ""
        return ""

    def _of(self, value: int) -> str:
        operation, arguments = self.known[value]
        return _text(operation, arguments) if operation else arguments[0]

    def _flat(self, operation: str, values: Sequence[int]) -> list[str]:
        """Operands of a sum or a product; those of the same operation inside of it are its own."""
        known = self.known
        return [t for v in values for t in (known[v][1] if known[v][0] == operation != _TANH else [self._of(v)])]

    def _number(self, index: int) -> str:
        """A number of ``nn.gelu`` by its name, as it is rounded, or the number."""
        dtype, number = self.low.params.scalars[index]
        value = np.asarray(number, dtype)[()]
        near = (name for name, number in _NUMBERS.items() if abs(value - dtype.type(number)) <= abs(number) * 2**-22)
        return next(near, repr(value))


_PLUS, _TIMES, _TANH = "+", "*", "th"
_OPERATIONS = {arithmetic.add_p.name: _PLUS, arithmetic.mul_p.name: _TIMES, functions.tanh_p.name: _TANH}
_NUMBERS = {"1": 1.0, "half": 0.5, "root": math.sqrt(2 / math.pi), "cubic": 0.044715}


def _gelu(terms: Sequence[str]) -> str:
    """``nn.gelu`` by tanh, of a sum of terms: the library's."""
    x = _text(_PLUS, terms) if len(terms) > 1 else terms[0]
    inside = _text(_PLUS, [*terms, _text(_TIMES, ["cubic", x, x, x])])
    return _text(_TIMES, ["half", x, _text(_PLUS, ["1", _text(_TANH, [_text(_TIMES, ["root", inside])])])])


_TERMS = ("product", "bias")
_EPILOGUES = {_text(_PLUS, _TERMS): "bias", _gelu(_TERMS[:1]): "gelu", _gelu(_TERMS): "gelu_bias"}

"""Products in the form for which there are kernels, with what lies beside them as a part of them.

    b = transpose[permutation=(1, 0)] a; c = dot_general[([1], [0])] b d   ->   c = dot_general[([0], [0])] a d
    b = transpose[permutation=(1, 0)] a; e = mul b s; c = dot_general e d  ->   e = mul a s; c = dot_general e d
    c = dot_general[([1], [0])] a b; d = transpose[permutation=(1, 0)] c   ->   d = dot_general[([0], [1])] b a
    c:f32[] = dot_general a:bf16[] b:bf16[]; d:bf16[] = c as bf16          ->   d:bf16[] = dot_general a b, on a GPU

Transposes of operands, and of a result that nothing else reads, become dimension numbers, if the order of the free
dimensions, and of the contracting ones, allows it. What is computed of transposed arrays for a product alone is
computed as they lie: nothing is read or written across rows. The gradient of a weight is a product whose result is
transposed. Then ``contraction`` says what is no product of matrices. Kernels for a GPU round sums as they store them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler import expansions
from weft.compiler.matrix_products import contraction
from weft.compiler.matrix_products.contraction import permutation
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.programs.rewrite import Splicer
from weft.operations.data_movement import views

LONGEST = 50  # elementwise equations between a transpose and a product; longer chains are left as they are
PRODUCTS = (kinds.Contraction, kinds.StridedContraction)

Whole = Callable[[JaxprEqn, JaxprEqn], "JaxprEqn | None"]  # (a product, what alone reads it) -> both as one product


def products(closed: ClosedJaxpr, threads: bool = False) -> ClosedJaxpr:
    """The program with its products in this form; ``threads``: for those of a GPU."""
    closed = expansions.expand(_with_readers(closed, _exchanged, True), PRODUCTS, _rewritten)
    return _with_readers(closed, _rounded, False) if threads else closed


def _rewritten(equation: JaxprEqn, _: Any) -> tuple[Any, Callable[..., Any]] | None:
    function = contraction.rewrite(equation)
    return None if function is None else ((), function)


def _with_readers(closed: ClosedJaxpr, whole: Whole, folds: bool) -> ClosedJaxpr:
    """The program whose products give what their only readers make of them; ``folds``: transposed operands too."""
    known = rewrite.index(closed.jaxpr)
    readers = {v: eqn for eqn in known.eqns for v in rewrite.variables(eqn.invars)}
    done = set[Var]()  # results of readers

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        kind, out = eqn.primitive.kind, eqn.outvars[0]
        if not isinstance(kind, PRODUCTS):
            return eqn.invars if out in done else None
        folded = _folded(eqn, splicer, known.uses) if folds and isinstance(kind, kinds.Contraction) else eqn
        reader = readers.get(out) if known.uses[out] == 1 else None
        made = None if reader is None else whole(folded, reader)
        if reader is None or made is None:
            return None if folded is eqn else splicer.emit(folded)
        done.add(reader.outvars[0])
        return splicer.emit(made)

    return Splicer(closed, rule, (*PRODUCTS, kinds.View, kinds.Elementwise)).run()


def _exchanged(product: JaxprEqn, eqn: JaxprEqn) -> JaxprEqn | None:
    """The product of exchanged operands, where ``eqn`` transposes (batch, left, right) to (batch, right, left)."""
    order = permutation(eqn) if len(eqn.invars) == 1 and isinstance(product.primitive.kind, kinds.Contraction) else None
    if order is None or not contraction.is_summed_alike(product) or contraction.rewrite(product) is not None:
        return None
    (left_sum, _), (left_batch, _) = product.params["dimension_numbers"]
    n_batch, rank = len(left_batch), len(order)
    middle = n_batch + len(contraction.free_dims(product.invars[0].aval.ndim, left_sum, left_batch))
    is_exchange = order == [*range(n_batch), *range(middle, rank), *range(n_batch, middle)]
    return contraction.exchanged(product, Var(eqn.outvars[0].aval)) if is_exchange else None


def _rounded(product: JaxprEqn, eqn: JaxprEqn) -> JaxprEqn | None:
    """The product that gives what ``eqn`` rounds it to, the dtype of its operands, of 16 bits."""
    kind, out = eqn.primitive.kind, eqn.outvars[0].aval
    if not isinstance(kind, kinds.Elementwise) or not kind.converts or out.dtype.itemsize != 2:
        return None
    if product.outvars[0].aval.dtype != np.float32 or product.invars[0].aval.dtype != out.dtype:
        return None
    params = {**product.params, "preferred_element_type": out.dtype}
    return None if contraction.kernels_of(product) is None else product.replace(outvars=[Var(out)], params=params)


def _folded(eqn: JaxprEqn, splicer: Splicer, uses: Counter[Var]) -> JaxprEqn:
    """The product of what its operands are transpositions of."""
    invars = list(eqn.invars)
    sums, batches = (list(pair) for pair in eqn.params["dimension_numbers"])
    for side in (0, 1):
        alone = _is_read_once(invars[side], uses)
        while (order := _order_of(invars[side], splicer, uses, alone)) is not None:
            free = [order[d] for d in range(len(order)) if d not in (*sums[side], *batches[side])]
            walked = [order[d] for d in sorted(sums[side])]
            if free != sorted(free) or (side == 0 and walked != sorted(walked)):  # sums keep their order
                break
            sums[side] = tuple(order[d] for d in sums[side])
            batches[side] = tuple(order[d] for d in batches[side])
            invars[side] = _as_it_lies(invars[side], order, invars[side].aval.size, splicer)
            alone = alone and _is_read_once(invars[side], uses)
    if all(new is old for new, old in zip(invars, eqn.invars, strict=True)):
        return eqn
    numbers = ((tuple(sums[0]), tuple(sums[1])), (tuple(batches[0]), tuple(batches[1])))
    return eqn.replace(invars=invars, params={**eqn.params, "dimension_numbers": numbers})


def _order_of(atom: Any, splicer: Splicer, uses: Counter[Var], alone: bool, most: int = LONGEST) -> list[int] | None:
    """The axes of the arrays that a value is a transposition of, or is computed of elementwise; None for others.

    ``alone``: nothing else reads the value, or what it is a view for. ``most``: equations that are looked at in a row.
    """
    maker = splicer.makers.of(atom)
    if maker is None:
        return None
    order = permutation(maker) if maker.invars else None
    if order is not None or not isinstance(maker.primitive.kind, kinds.Elementwise) or not alone or not most:
        return order
    arrays = [v for v in maker.invars if not _is_repeated(v, atom.aval.size, splicer)]
    orders = [_order_of(v, splicer, uses, _is_read_once(v, uses), most - 1) for v in arrays]
    return orders[0] if orders and all(found == orders[0] for found in orders) else None


def _is_read_once(atom: Atom, uses: Counter[Var]) -> bool:
    """Whether nothing else reads a value, so that it may be computed in another order; also of new ones."""
    return not isinstance(atom, Literal) and uses[atom] <= 1


def _is_repeated(atom: Any, size: int, splicer: Splicer) -> bool:
    """Whether fewer numbers than ``size`` are repeated along dimensions, so that to transpose them is less."""
    maker = splicer.makers.of(atom)
    if type(atom) is Literal or atom.aval.size < size:
        return True
    if maker is None or not isinstance(maker.primitive.kind, kinds.View):
        return False
    return maker.invars[0].aval.size < atom.aval.size


def _as_it_lies(atom: Any, order: Sequence[int], size: int, splicer: Splicer) -> Any:
    """The value with its dimensions as in the arrays that it is a transposition of, or is computed of.

    What has fewer elements than ``size`` is transposed.
    """
    maker = splicer.makers.of(atom)
    if not atom.aval.shape:
        return atom
    if maker is None or _is_repeated(atom, size, splicer):
        return views.transpose(splicer.bind, atom, [order.index(d) for d in range(len(order))])
    if not isinstance(maker.primitive.kind, kinds.Elementwise):
        return maker.invars[0]
    operands = [_as_it_lies(v, order, size, splicer) for v in maker.invars]
    shape = tuple([atom.aval.shape[order.index(d)] for d in range(len(order))])
    return splicer.emit(maker.replace(invars=operands, outvars=[Var(atom.aval.update(shape=shape))]))[0]

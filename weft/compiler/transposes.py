"""Transposes beside products become dimension numbers: of operands, and of a result that nothing else reads.

    b = transpose[permutation=(1, 0)] a; c = dot_general[([1], [0])] b d   ->   c = dot_general[([0], [0])] a d
    b = transpose[permutation=(1, 0)] a; e = mul b s; c = dot_general e d  ->   e = mul a s; c = dot_general e d
    c = dot_general[([1], [0])] a b; d = transpose[permutation=(1, 0)] c   ->   d = dot_general[([0], [1])] b a

This is done if the order of the free dimensions, and of the contracting ones, allows it. What is computed of transposed
arrays for a product alone is computed as they lie: nothing is read or written across rows. The gradient of a weight is
a product whose result is transposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft.compiler import contraction, views
from weft.compiler.contraction import permutation
from weft.core import kinds, rewrite
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Splicer

LONGEST = 50  # elementwise equations between a transpose and a product; longer chains are left as they are


def transposes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such products."""
    known = rewrite.index(closed.jaxpr)
    readers = {v: eqn for eqn in known.eqns for v in rewrite.variables(eqn.invars)}
    done = set[Var]()  # results that are made transposed

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        if isinstance(eqn.primitive.kind, kinds.View):
            return eqn.invars if eqn.outvars[0] in done else None
        folded = _folded(eqn, splicer, known.uses)
        out = eqn.outvars[0]
        reader = readers.get(out) if known.uses[out] == 1 else None
        if reader is not None and _exchanges(folded, reader):
            done.add(reader.outvars[0])
            return splicer.emit(contraction.exchanged(folded, Var(reader.outvars[0].aval)))
        return None if folded is eqn else splicer.emit(folded)

    return Splicer(closed, rule, (kinds.Contraction, kinds.View)).run()


def _exchanges(product: JaxprEqn, eqn: JaxprEqn) -> bool:
    """Whether an equation transposes a matrix product's (batch, left, right) to (batch, right, left)."""
    order = permutation(eqn) if len(eqn.invars) == 1 else None
    if order is None or not contraction.is_summed_alike(product) or contraction.rewrite(product) is not None:
        return False
    (left_sum, _), (left_batch, _) = product.params["dimension_numbers"]
    n_batch, rank = len(left_batch), len(order)
    middle = n_batch + len(contraction.free_dims(product.invars[0].aval.ndim, left_sum, left_batch))
    return order == [*range(n_batch), *range(middle, rank), *range(n_batch, middle)]


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

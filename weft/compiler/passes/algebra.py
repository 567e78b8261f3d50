"""Exact algebra from what kinds say of their operations, common subexpressions, and dead code.

    b = mul a 1.0; c = sin b; d = sin a; e = add c d; f = exp e   ->   c = sin a; e = add c c, which is the result

Every rule gives the bits that the operation itself would give, signed zeros and NaN included; rules that hold only for
real numbers are absent. A rule applies if its result has the type of the equation's output. None is for x / 1: the
divisor is mostly a size, and a size of 1 must give the kernel of all other sizes.

Operations on integer literals alone become literals, so that divisors of ``//`` and ``%`` are known here; so do
integers that follow from literals of floats, which are indices (of a quantile).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.passes import divisors
from weft.compiler.sizes import size_arithmetic
from weft.core import kinds
from weft.core.index_maps import compose, identity
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, JaxprEqn, Literal, Var
from weft.core.programs.rewrite import Makers, Splicer, without_dead_code
from weft.core.symbolic.sizes import Size
from weft.operations.pointwise.cheaper import Cheaper

_ONLY_LITERALS = frozenset((Literal,))


def algebra(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with fewer operations."""
    return Splicer(without_dead_code(closed), _Algebra().rule).run()


class _Algebra:
    """Applies the rules equation by equation; remembers equations for common subexpression elimination."""

    def __init__(self) -> None:
        self.known: dict[Any, JaxprEqn] = {}

    def rule(self, eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        if eqn.effects or not eqn.outvars:
            return None if eqn.effects else ()
        primitive, invars = eqn.primitive, eqn.invars
        kind = primitive.kind
        if type(kind) is kinds.Elementwise and (found := rewritten(eqn, splicer.makers)) is not None:
            function, operands = found
            program = expansions.expansion(function, function, tuple([v.aval for v in operands]))
            return splicer.splice(program, operands, eqn.source)
        if type(kind) in _BY_KIND or _ONLY_LITERALS.issuperset(map(type, invars)):
            atom = simplified(eqn, splicer.makers)
            if atom is not None:
                return (atom,)
        operands = tuple([_literal_key(v) if type(v) is Literal else v for v in invars])
        readable = eqn
        if DropVar in map(type, eqn.outvars):  # a later, equal equation may be replaced by this one
            readable = eqn.replace(outvars=[Var(v.aval) if type(v) is DropVar else v for v in eqn.outvars])
        try:
            twin = self.known.setdefault((primitive, operands, *eqn.params.items()), readable)
        except TypeError:  # an unhashable parameter
            return None
        if twin is not readable:
            return twin.outvars
        return None if readable is eqn else splicer.emit(readable)


def _literal_key(literal: Literal) -> Any:
    value = literal.val
    return (value.slot if type(value) is Size else np.asarray(value).tobytes(), literal.aval)


def is_literal(atom: Any) -> bool:
    return type(atom) is Literal


def changes_nothing(kind: kinds.Elementwise, atom: Any) -> bool:
    """Whether a literal is the identity of an operation, whose other operand then keeps its bits, -0.0 too."""
    dtype = atom.aval.dtype
    return is_identity(kind, atom) and (dtype.kind in "biu" or _keeps_negative_zero(kind, dtype))


def is_identity(kind: kinds.Elementwise, atom: Any) -> bool:
    """Whether a literal is the identity of an operation."""
    return is_literal(atom) and _has_bits(atom, _identity(kind, atom.aval.dtype))


def _leaves_the_first(kind: kinds.Elementwise, first: Any, second: Any) -> bool:
    """Whether a literal as second operand leaves every bit of the first."""
    value = None if kind.right_identity is None else kind.right_identity(first.aval.dtype)
    return _has_bits(second, _exact(value, second.aval.dtype))


def _has_bits(literal: Any, value: np.ndarray | None) -> bool:
    if value is None or type(literal.val) is Size:  # what follows from extents is no neutral element
        return value is not None and literal.val == value.item()
    return np.asarray(literal.val, value.dtype).tobytes() == value.tobytes()


@functools.cache
def _identity(kind: kinds.Elementwise, dtype: Any) -> np.ndarray | None:
    return _exact(None if kind.identity is None else kind.identity(dtype), dtype)


def _exact(value: Any, dtype: Any) -> np.ndarray | None:
    """A number of this dtype; some floats of a byte have no 0 or no infinity, but NaN for it."""
    found = None if value is None else np.asarray(value, dtype)
    return found if found == value else None


@functools.cache
def _keeps_negative_zero(kind: kinds.Elementwise, dtype: Any) -> bool:
    """Whether the identity beside -0.0 gives -0.0."""
    zero = np.asarray(-0.0, dtype)
    return kind.reference(_identity(kind, dtype), zero).tobytes() == zero.tobytes()


def is_negative(atom: Atom, value: Atom, makers: Makers) -> bool:
    """Whether ``atom`` is ``value < 0``."""
    maker = makers.of(atom)
    if maker is None or maker.primitive is not lax.lt_p or maker.invars[0] is not value:
        return False
    return isinstance(maker.invars[1], Literal) and not maker.invars[1].val


def simplified(equation: JaxprEqn, makers: Makers) -> Any:
    """The atom that an equation equals by some rule, or None."""
    out = equation.outvars[0].aval
    if all(type(v) is Literal for v in equation.invars):
        found = number(equation)
        if found is not None:
            return found
    result = _BY_KIND.get(type(equation.primitive.kind))
    atom = None if result is None else result(equation, makers)
    return atom if atom is not None and atom.aval.shape == out.shape and atom.aval.dtype == out.dtype else None


def _elementwise(equation: JaxprEqn, makers: Makers) -> Any:
    """What follows from facts that the kind states."""
    kind, operands = equation.primitive.kind, equation.invars
    first = operands[0]
    if len(operands) == 1:
        if kind.leaves is not None and kind.leaves(first.aval.dtype, equation.params):
            return first
        if kind.converts and (known := _known_integer(equation, makers)) is not None:
            return known
        inner = makers.of(first) if kind.undoes_itself else None
        return inner.invars[0] if inner is not None and inner.primitive is equation.primitive else None
    if kind.chooses:
        return operands[1] if all(x is operands[1] for x in operands[2:]) else None
    if len(operands) > 2:
        return None
    second = operands[1]
    if first is second and kind.keeps_equal:
        return first
    if type(second) is Literal and (changes_nothing(kind, second) or _leaves_the_first(kind, first, second)):
        return first
    return second if type(first) is Literal and changes_nothing(kind, first) else None


def _view(equation: JaxprEqn, makers: Makers) -> Any:
    """The operand of a view, or of a view of a view, that shows every element at its own index; None for others."""
    kind, operand, out = equation.primitive.kind, equation.invars[0], equation.outvars[0].aval
    inner = makers.of(operand)
    if operand.aval.shape == out.shape and kind.index_map(operand.aval, out, equation.params) == identity(out.ndim):
        return operand
    if inner is None or type(inner.primitive.kind) is not kinds.View or inner.invars[0].aval.shape != out.shape:
        return None
    uses = inner.primitive.kind.index_map(inner.invars[0].aval, operand.aval, inner.params)
    seen = compose(uses, kind.index_map(operand.aval, out, equation.params))
    return inner.invars[0] if seen == identity(out.ndim) else None


def _reshape(equation: JaxprEqn, makers: Makers) -> Any:
    """The operand of a reshape, or of a reshape of a reshape, that gives back the operand's shape; None for others."""
    operand, out = equation.invars[0], equation.outvars[0].aval
    inner = makers.of(operand)
    first = inner.invars[0] if inner is not None and type(inner.primitive.kind) is kinds.Reshape else operand
    return next((x for x in (operand, first) if x.aval.shape == out.shape and x.aval.dtype == out.dtype), None)


_BY_KIND = {kinds.Elementwise: _elementwise, kinds.View: _view, kinds.Reshape: _reshape}


def number(equation: JaxprEqn) -> Literal | None:
    """The result of an elementwise operation on integer literals, by its reference; None for any other equation."""
    kind, out = equation.primitive.kind, equation.outvars[0].aval
    if not isinstance(kind, kinds.Elementwise) or any(v.aval.dtype.kind not in "biu" for v in equation.invars):
        return None
    if out.shape or out.dtype.kind not in "biu":
        return None
    if any(isinstance(v, Literal) and type(v.val) is Size for v in equation.invars):
        return size_arithmetic.number(equation)
    values = [np.asarray(v.val, v.aval.dtype) for v in equation.invars if isinstance(v, Literal)]
    return Literal(kind.reference(*values, **equation.params)[()], out)


def _known_integer(equation: JaxprEqn, makers: Makers) -> Literal | None:
    """The integer that a float becomes which follows from literals."""
    operand, out = equation.invars[0], equation.outvars[0].aval
    if out.shape or out.dtype.kind not in "iu" or operand.aval.dtype not in _ROUNDED:
        return None
    value = _known_float(operand, makers, DEEPEST)
    return None if value is None else Literal(equation.primitive.kind.reference(value, **equation.params)[()], out)


def _known_float(atom: Atom, makers: Makers, depth: int) -> np.ndarray | None:
    """A float computed of literals by operations that are exact or rounded once, if it is finite."""
    if isinstance(atom, Literal):
        return None if type(atom.val) is Size else np.asarray(atom.val, atom.aval.dtype)
    maker = makers.of(atom)
    if maker is None or not depth or not _is_rounded_once(maker) or atom.aval.dtype not in _ROUNDED:
        return None
    values = [_known_float(operand, makers, depth - 1) for operand in maker.invars]
    if any(value is None or value.shape for value in values):
        return None
    with np.errstate(all="ignore"):
        found = np.asarray(maker.primitive.kind.reference(*values, **maker.params), atom.aval.dtype)
    return found if np.isfinite(found) else None


def rewritten(equation: JaxprEqn, makers: Makers) -> Cheaper:
    """A function that gives the same bits by other operations, and its operands; or None."""
    kind = equation.primitive.kind
    if kind.cheaper is not None:
        return kind.cheaper(equation.invars, functools.partial(_is_whole, makers=makers))
    return divisors.rewrite(equation, makers) if kind.chooses and len(equation.invars) == 3 else None


def _is_rounded_once(maker: JaxprEqn) -> bool:
    return isinstance(maker.primitive.kind, kinds.Elementwise) and maker.primitive.kind.rounds_once


def _keeps_whole(maker: JaxprEqn) -> bool:
    """Whether an operation gives whole numbers for whole numbers, even if they are rounded."""
    kind = maker.primitive.kind
    if isinstance(kind, kinds.View):
        return True
    return isinstance(kind, kinds.Elementwise) and (kind.converts or kind.rounds_once or kind.chooses)


def _is_whole(atom: Any, makers: Makers) -> bool:
    """Whether every finite element is a whole number."""
    seen, rest = set(), [atom]
    while rest:
        atom = rest.pop()
        if is_literal(atom):
            if atom.aval.dtype.kind == "c" or not float(atom.val).is_integer():
                return False
        elif atom.aval.dtype.kind not in "iub" and atom not in seen:
            seen.add(atom)
            maker = makers.of(atom)
            if maker is None or not _keeps_whole(maker):
                return False
            rest += maker.invars[1:] if getattr(maker.primitive.kind, "chooses", False) else maker.invars
    return True


# functions of literals of these dtypes are computed here
_ROUNDED = (np.dtype(np.float32), np.dtype(np.float64))
DEEPEST = 16

"""Symbolic sizes: symbols for extents, and strides as products of them.

Every dimension of every variable has a symbol; dimensions that the program makes equal share one. Only a dimension that
``broadcast_in_dim`` made with extent 1 is ``UNIT``; others of extent 1 have symbols. Buffers are dense, so that a
stride is a product of symbols. Two dimensions are collapsed only if these products allow it at every size: which
machine code a program gets never depends on extents that happen to be equal.

    f32[b,n] has strides (n, 1); f32[n] broadcast to it (0, 1); x[:, ::2] has (n, 2)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft._base.record import NamedTuple

UNIT = 0

Product = tuple[int, ...]  # a sorted multiset of symbols


class Stride(NamedTuple):
    """``elems`` elements at the present sizes, ``factor * product`` at all sizes; ``product`` is None if unknown."""

    elems: int
    factor: int
    product: Product | None


ZERO = Stride(0, 0, ())


def times(product: Product | None, symbol: int) -> Product | None:
    """The product with one more symbol."""
    if product is None or symbol == UNIT:
        return product
    return (symbol,) if not product else tuple(sorted((*product, symbol)))


def scaled(stride: Stride, step: int) -> Stride:
    """The stride of a dimension where every ``step``-th element is taken."""
    return stride if step == 1 else Stride(stride.elems * step, stride.factor * step, stride.product)


def added(left: Stride, right: Stride) -> Stride:
    """The stride of an axis that indexes two dimensions at once (a diagonal)."""
    if left is ZERO:
        return right
    return Stride(left.elems + right.elems, 1, None)


def follows(outer: Stride, inner: Stride, inner_symbol: int) -> bool:
    """Whether one step along ``outer`` equals the whole extent of ``inner``, at every size (they can be collapsed)."""
    if outer.factor == 0 or inner.factor == 0:
        return outer.factor == inner.factor and outer.product is not None and inner.product is not None
    if inner.product is None or outer.factor != inner.factor:
        return False
    return outer.product == times(inner.product, inner_symbol)


class Sizes:
    """The symbols of a program's variables: a union-find over dimensions."""

    def __init__(self) -> None:
        self._parent: list[int] = [UNIT]
        self._symbols: dict[Any, tuple[int, ...]] = {}
        self._strides: dict[Any, tuple[Stride, ...]] = {}
        self._settled = False

    def fresh(self) -> int:
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, symbol: int) -> int:
        parent = self._parent
        while parent[symbol] != symbol:
            parent[symbol] = parent[parent[symbol]]
            symbol = parent[symbol]
        return symbol

    def unite(self, left: int, right: int) -> int:
        """Declare two dimensions equal at every size."""
        left, right = self.find(left), self.find(right)
        if left == UNIT or right == UNIT:
            return left or right
        low, high = (left, right) if left < right else (right, left)
        self._parent[high] = low
        return low

    def make_unit(self, symbol: int) -> None:
        """Make a dimension a structural one of extent 1 (for index vectors of one component)."""
        self._parent[self.find(symbol)] = UNIT

    def assign(self, variable: Any, symbols: Iterable[int]) -> None:
        self._symbols[variable] = tuple(symbols)

    def known(self, variable: Any) -> bool:
        return variable in self._symbols

    def settle(self) -> None:
        """Resolve the symbols of all variables; called after the last equation."""
        find = self.find
        self._symbols = {variable: tuple([find(s) for s in found]) for variable, found in self._symbols.items()}
        self._settled = True

    def symbols(self, variable: Any) -> tuple[int, ...]:
        """The symbols of a variable, as united so far."""
        if self._settled:
            return self._symbols[variable]
        find = self.find
        return tuple([find(symbol) for symbol in self._symbols[variable]])

    def strides(self, variable: Any) -> tuple[Stride, ...]:
        """Dense row-major strides; only after ``settle``."""
        found = self._strides.get(variable)
        if found is None:
            found = self._strides[variable] = dense_strides(variable.aval.shape, self.symbols(variable))
        return found


def dense_strides(shape: Sequence[int], symbols: Sequence[int]) -> tuple[Stride, ...]:
    """Row-major strides of a dense array."""
    strides: list[Stride] = []
    elems, product = 1, ()
    for extent, symbol in zip(reversed(shape), reversed(symbols), strict=True):
        strides.append(Stride(elems, 1, product))
        elems *= extent
        product = times(product, symbol)
    return tuple(reversed(strides))

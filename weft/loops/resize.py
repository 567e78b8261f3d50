"""A call of a nest at other sizes: its extents, strides and parameters from those of the axes, without a compiler.

Extents and strides are products of symbols (``index_math``). ``schedule`` keeps these products with the nest; where
``thresholds`` answers for other sizes as it did before, the nest is the same, and only the numbers differ.

    exp of f32[n], n = 64: extents (64,)    ->    n = 100: extents (100,), the same nest
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.loops.index_math import UNIT, Product, Stride
from weft.loops.thresholds import NOTHING_ASKED, Thresholds, thresholds

Term = tuple[int, Product]  # a factor, and symbols it is multiplied with
Word = tuple[int, str, Term, int]  # of a scalar: where it begins, how it is packed, a term and what is added to it


_CODES = {4: "iI", 8: "qQ"}  # codes of the module struct, by bytes: signed and unsigned


class OfSizes(int):
    """An integer scalar of a nest that follows from sizes: the product of symbols, plus ``added``."""

    product: Product
    added: int

    @staticmethod
    def made(value: int, product: Product, added: int = 0) -> OfSizes:
        """``value``, at the present sizes."""
        found = OfSizes(value)
        found.product, found.added = product, added
        return found


class OfThisSize(int):
    """An integer literal that holds at the present sizes only: a kernel with it has no numbers for others."""


class Asked(NamedTuple):
    """The arguments of ``thresholds``, as products of symbols."""

    outer: tuple[Product, ...]
    parallel: tuple[Product, ...]
    rows: tuple[Product, ...]
    reduced: tuple[Product, ...]
    along: tuple[Term | None, ...]  # strides along the last parallel dimension, and along the one before
    above: tuple[Term | None, ...]
    lanes: int
    units: bool
    longest: int
    block: int


class Sizing(NamedTuple):
    """What gives the numbers of a call. None in place of a term: it is not known at other sizes."""

    extents: tuple[Product, ...]  # of the dimensions of the nest, and its digits
    outer: tuple[Product, ...]
    strides: tuple[Term | None, ...]  # those at run time, in the order of the parameters
    around: tuple[tuple[Term | None, ...], ...]  # in bytes: of each outer dimension, for each operand
    scalars: bytes
    words: tuple[Word, ...]  # those of the scalars that follow from sizes
    asked: Asked
    elements: tuple[tuple[Term | None, ...], ...]  # strides of each operand, those that are known in the nest too


class Numbers(NamedTuple):
    """The numbers of a call."""

    extents: tuple[int, ...]
    outer: tuple[tuple[int, tuple[int, ...]], ...]  # extent, and the stride in bytes of each operand
    params: bytes


def term(stride: Stride, factor: int = 1) -> Term | None:
    """A stride, in units of ``factor``."""
    return None if stride.product is None else (stride.factor * factor, stride.product)


def words_of(scalars: Sequence[tuple[Any, Any]]) -> tuple[Word, ...]:
    """The scalars that follow from sizes, in the block of all of them (each padded to whole words)."""
    found, at = [], 0
    for dtype, value in scalars:
        if type(value) is OfSizes:
            code = "<" + _CODES[dtype.itemsize][dtype.kind == "u"]
            found.append((at, code, (1, value.product), value.added))
        at += -(-dtype.itemsize // 8) * 8
    return tuple(found)


def placed(sizing: Sizing, places: Mapping[int, int | None]) -> Sizing | None:
    """The sizing with places in a list of sizes instead of symbols (None: extent 1); None if a symbol has no place."""

    def product(symbols: Product) -> Product:
        return _placed(symbols, places)

    def of(terms: Sequence[Any]) -> tuple[Term, ...]:
        return _placed_row(terms, places)

    try:
        asked = sizing.asked
        return Sizing(
            tuple(map(product, sizing.extents)),
            tuple(map(product, sizing.outer)),
            of(sizing.strides),
            tuple(map(of, sizing.around)),
            sizing.scalars,
            tuple([(at, code, of([term])[0], added) for at, code, term, added in sizing.words]),
            Asked(
                outer=tuple(map(product, asked.outer)),
                parallel=tuple(map(product, asked.parallel)),
                rows=tuple(map(product, asked.rows)),
                reduced=tuple(map(product, asked.reduced)),
                along=of(asked.along),
                above=of(asked.above),
                lanes=asked.lanes,
                units=asked.units,
                longest=asked.longest,
                block=asked.block,
            ),
            sizing.elements,
        )
    except (KeyError, TypeError):  # an extent that is none of the operands', a stride that is no product
        return None


def placed_terms(
    rows: Sequence[Sequence[Term | None]], places: Mapping[int, int | None]
) -> list[tuple[Term, ...]] | None:
    """Rows of terms with places instead of symbols; None if some have none."""
    try:
        return [_placed_row(row, places) for row in rows]
    except (KeyError, TypeError):
        return None


def _placed_row(terms: Sequence[Any], places: Mapping[int, int | None]) -> tuple[Term, ...]:
    return tuple([(factor, _placed(symbols, places)) for factor, symbols in terms])


def _placed(symbols: Product, places: Mapping[int, int | None]) -> Product:
    found = [places[symbol] for symbol in symbols if symbol != UNIT]
    return tuple([place for place in found if place is not None])


def answers(asked: Asked, sizes: Sequence[int]) -> Thresholds:
    """What ``thresholds`` says at these sizes."""
    n_parallel = len(asked.parallel)
    if n_parallel < 2 and not asked.units and not (asked.rows and n_parallel) and not asked.block:
        return NOTHING_ASKED
    outer, parallel, rows, reduced = [[_value(product, sizes) for product in products] for products in asked[:4]]

    def along() -> list[tuple[int, int]]:
        return list(zip(values(asked.above, sizes), values(asked.along, sizes), strict=True))

    return thresholds(outer, parallel, rows, reduced, along, asked.lanes, asked.units, asked.longest, asked.block)


def numbers(sizing: Sizing, sizes: Sequence[int]) -> Numbers:
    """The numbers of a call at these sizes; ``sizing`` is placed."""
    extents = [_value(product, sizes) for product in sizing.extents]
    words = extents
    if sizing.strides:
        words = [*extents, *values(sizing.strides, sizes)]
    outer: Any = ()
    if sizing.outer:
        rows = zip(sizing.outer, sizing.around, strict=True)
        outer = tuple([(_value(product, sizes), tuple(values(terms, sizes))) for product, terms in rows])
    scalars = sizing.scalars
    if sizing.words:
        block = bytearray(scalars)
        for at, code, (factor, product), added in sizing.words:
            struct.pack_into(code, block, at, factor * _value(product, sizes) + added)
        scalars = bytes(block)
    params = struct.pack(f"<{len(words)}q", *words) + scalars
    return tuple.__new__(Numbers, (tuple(extents), outer, params))  # a third of the time


def _value(product: Product, sizes: Sequence[int]) -> int:
    if len(product) == 1:
        return sizes[product[0]]
    return math.prod([sizes[place] for place in product])


def values(terms: Sequence[Any], sizes: Sequence[int]) -> list[int]:
    """Terms at these sizes."""
    return [factor * _value(product, sizes) for factor, product in terms]

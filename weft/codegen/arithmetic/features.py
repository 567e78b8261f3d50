"""What vector math asks of those who write its instructions: it knows no writer, emitter or processor.

``codegen.writer``, ``codegen.arithmetic.emitter`` and ``codegen.cpu`` answer, and ``stablehlo.lanes``, which writes
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")  # a vector


class Features(Protocol):
    """Facts of the function that is being written."""

    @property
    def keeps_sums(self) -> bool:
        """Whether (x + c) - c is x rounded, and not simplified."""
        ...

    @property
    def scalar(self) -> bool:
        """Whether the function has no vectors, so that a branch costs less than both sides."""
        ...


class Native(Generic[T]):
    """Single instructions where LLVM's text needs several. These are the answers of a processor that has none of them.

    An answer of None says that there is none for this vector, and the caller writes the general expression, which gives
    the same bits.
    """

    table_bytes = 0  # of the longest table that ``lookup`` takes
    count_bits = 64  # of the count of a shift
    full_nans = False  # whether a NaN that an instruction makes has all bits of the mantissa
    permuted = 0  # lanes of the vectors of 4-byte words from which ``picked`` picks

    def whole_registers(self, x: T) -> bool:
        """Whether ``scale`` takes any k for ``x``, and ``within`` and ``inverse_root`` have an answer."""
        return False

    def scale(self, x: T, k: T) -> T | None:
        """x * 2**k for whole k (a float), rounded once."""
        return None

    def within(self, x: T, bound: float) -> T | None:
        """x clamped to [-bound, bound]; NaN gives the bound."""
        return None

    def inverse_root(self, x: T) -> T:
        """1 / sqrt x of float32 to 14 bits."""
        raise NotImplementedError

    def mantissa_and_exponent(self, x: T) -> tuple[T, T] | None:
        """m in [1, 2) and a whole k with x = m * 2**k, for subnormal x too.

        Zeros give (1, -inf), infinity gives (1, inf), negative numbers give NaN.
        """
        return None

    def mantissa_and_power(self, x: T) -> tuple[T, T] | None:
        """``mantissa_and_exponent`` with m in [0.75, 1.5)."""
        return None

    def extremum(self, x: T, y: T, larger: bool, numbers: bool) -> T | None:
        """The larger (smaller) of x and y, +0 above -0; NaN if either is NaN, unless both are ``numbers``."""
        return None

    def with_sign_of(self, x: T, y: T) -> T | None:
        """x with the sign of y; the sign of x is clear."""
        return None

    def holds(self, table: Sequence[float], element: str) -> bool:
        """Whether ``lookup`` takes such a table."""
        return len(table) * (4 if element == "float" else 8) <= self.table_bytes

    def lookup(self, table: Sequence[float], index: T) -> T:
        """table[index], for entries as wide as the index; only the last bits of the index count."""
        raise NotImplementedError

    def lookups(self, tables: Sequence[Sequence[float]], index: T) -> list[T]:
        """``lookup`` in one table after another."""
        return [self.lookup(table, index) for table in tables]

    def picked(self, low: T, high: T, picks: T) -> T:
        """Lane ``picks`` of ``low`` and ``high``, one after the other: vectors of ``permuted`` float32."""
        raise NotImplementedError

    def fence(self, writer: Any) -> None:
        """Order stores past the caches, if there are any, before what follows."""


class Sharing(Protocol):
    """What the functions of one expression share."""

    memo: dict[Any, Any]  # values that several functions of one operand need: sin and cos reduce it once
    is_second: bool  # whether the unit for roots is busy with another vector

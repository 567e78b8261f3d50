"""What vector math asks of those who write its instructions, as protocols: it knows no writer, emitter or processor.

``codegen.writer`` and ``codegen.emitter`` fulfil them, and so does ``stablehlo.lanes``, which writes tensors.
"""

from __future__ import annotations

from typing import Any, Protocol


class Features(Protocol):
    """Facts of the target, and of the function that is being written."""

    @property
    def avx512(self) -> bool:
        """Whether there are its instructions for exponents, mantissas, bounds and tables of 16 to 32 lanes."""
        ...

    @property
    def short_tables(self) -> str:
        """The instruction that looks lanes up in tables of 8 float32 (``codegen.short_tables``), or nothing."""
        ...

    @property
    def keeps_sums(self) -> bool:
        """Whether (x + c) - c is x rounded, and not simplified."""
        ...

    @property
    def scalar(self) -> bool:
        """Whether the function has no vectors, so that a branch costs less than both sides."""
        ...


class Sharing(Protocol):
    """What the functions of one expression share."""

    memo: dict[Any, Any]  # values that several functions of one operand need: sin and cos reduce it once
    is_second: bool  # whether the unit for roots is busy with another vector

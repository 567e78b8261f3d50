"""Enumerations and records that are parameters of lax functions: precision, accuracy, modes, dimension numbers.

Names, members and string forms are JAX's, because jaxprs print them.
"""

from __future__ import annotations

import enum
from typing import Any

from weft._base.record import NamedTuple, Record

__all__ = [
    "AccuracyMode",
    "ConvDimensionNumbers",
    "ConvGeneralDilatedDimensionNumbers",
    "DotAlgorithm",
    "DotDimensionNumbers",
    "GatherDimensionNumbers",
    "GatherScatterMode",
    "Precision",
    "PrecisionLike",
    "RaggedDotDimensionNumbers",
    "RoundingMethod",
    "ScatterDimensionNumbers",
    "Tolerance",
]


class RoundingMethod(enum.IntEnum):
    """How ``lax.round`` treats halves."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Precision(enum.Enum):
    """How accurately matrix products are computed; on a CPU all choices compute in full precision.

    On a GPU ``HIGH`` multiplies ``float32`` by tensor cores in TF32, and ``HIGHEST`` half precisions without them.
    ``DEFAULT`` is TF32 for large matrices of ``float32`` where cuBLASLt is installed (option ``product_library``).
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        """The precision for a word: Precision("highest")."""
        return PRECISION_WORDS.get(value) if isinstance(value, str) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


PRECISION_WORDS = {
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}


class AccuracyMode(enum.Enum):
    """Accuracy of an elementary function: HIGHEST asks for the best, DEFAULT for the usual bound."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance(Record):
    """An accuracy request by error bounds: absolute, relative, in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        super().__init__(atol, rtol, ulps)
        if min(self.atol, self.rtol, self.ulps) < 0:
            raise ValueError(f"[Tolerance] tolerances must be non-negative, got {self}")
        if not (self.atol or self.rtol or self.ulps):
            raise ValueError("[Tolerance] at least one of atol, rtol and ulps must be set")


class DotAlgorithm(NamedTuple):
    """The arithmetic of a matrix product, described by its parts."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class GatherScatterMode(enum.Enum):
    """How an index outside the operand is treated."""

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(mode: Any) -> GatherScatterMode:
        """The mode for a word; None means FILL_OR_DROP."""
        if isinstance(mode, GatherScatterMode):
            return mode
        found = MODE_WORDS.get(mode) if mode is None or isinstance(mode, str) else None
        if found is None:
            words = sorted(word for word in MODE_WORDS if word)
            raise ValueError(f'Unknown gather mode "{mode}"; choose one of {words}')
        return found


MODE_WORDS = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


class GatherDimensionNumbers(NamedTuple):
    """Which dimensions a gather reads, collapses and batches."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which dimensions a scatter writes, inserts and batches."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class ConvDimensionNumbers(NamedTuple):
    """Batch, feature and spatial dimensions of a convolution's operands and result."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


ConvGeneralDilatedDimensionNumbers = Any
DotDimensionNumbers = tuple[tuple[Any, Any], tuple[Any, Any]]
DotTransposeDimensionNumbers = DotDimensionNumbers
PrecisionLike = Any


class RaggedDotDimensionNumbers(NamedTuple):
    """Dimensions of a ragged matrix product."""

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Any
    rhs_group_dimensions: Any

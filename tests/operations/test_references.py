"""The NumPy oracle of every operation against JAX's own results: both must agree within the operation's bound.

JAX flushes subnormals and has larger errors for some functions (docs/PROTOTYPES); such inputs are left out, and the
allowed distance is its error, not weft's. Special values must agree exactly.
"""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import weft.lax as weft_lax
from tests.operations import oracle, samples

from weft import core
from weft.compiler import interpret

# JAX's CPU functions are off by more than weft's bound allows
JAX_ULPS = 8.0
NOT_COMPARED = {
    ("atan2", "c"),  # JAX's branch choice follows rounding
}


def reference(operation: samples.Operation, *args: np.ndarray) -> np.ndarray:
    return core.primitive.registry[operation.primitive_name].kind.reference(*args)

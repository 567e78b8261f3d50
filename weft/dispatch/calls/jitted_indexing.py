"""Indexing operations that are jitted, as in JAX: ``dynamic_index_in_dim`` and ``dynamic_update_index_in_dim``.

A traced program shows each as one call, ``jit[name=dynamic_index_in_dim ...]``; eagerly it is one cached executable.
"""

from __future__ import annotations

from weft.dispatch.calls import jit as jit_module
from weft.operations.data_movement import index

dynamic_index_in_dim = jit_module.jit(
    index.dynamic_index_in_dim, static_argnames=("axis", "keepdims", "allow_negative_indices")
)
dynamic_update_index_in_dim = jit_module.jit(
    index.dynamic_update_index_in_dim, static_argnames=("axis", "allow_negative_indices")
)

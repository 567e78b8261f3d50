"""weft.experimental.multihost_utils: what several processes do together, for the one that there is."""

from __future__ import annotations

from typing import Any

from weft import runtime
from weft._base import unbuilt
from weft.dispatch import placement

__all__ = ["assert_equal", "broadcast_one_to_all", "process_allgather", "sync_global_devices"]
__getattr__ = unbuilt.fallback(__name__)


def sync_global_devices(name: str) -> None:
    """Wait for all processes: there is one."""


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree of the first process in all of them, as NumPy arrays."""
    return placement.device_get(placement.device_put(in_tree))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The trees of all processes joined along a new axis, or with ``tiled`` along the first one, as NumPy arrays."""
    values = placement.device_get(placement.device_put(in_tree))
    leaves, treedef = runtime.tree_flatten(values)
    return runtime.tree_unflatten(treedef, [leaf if tiled else leaf[None] for leaf in leaves])


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Check that all processes have the same tree: one has."""

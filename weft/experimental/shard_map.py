"""weft.experimental.shard_map: where JAX's users found ``shard_map`` before it was ``jax.shard_map``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.batching.shard_map import shard_map as over_mesh

__all__ = ["shard_map"]


def shard_map(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True, auto: Any = frozenset()
) -> Callable[..., Any]:
    """``weft.shard_map`` with the mesh and the specs by position; ``auto`` are axes that ``f`` does not see."""
    names = frozenset(mesh.axis_names) - frozenset(auto)
    return over_mesh(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=check_rep)

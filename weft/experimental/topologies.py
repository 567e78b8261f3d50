"""weft.experimental.topologies: machines to compile for that need not be there, under JAX's names."""

from __future__ import annotations

from weft.dispatch.programs.topologies import TopologyDescription, get_attached_topology, get_topology_desc, make_mesh

__all__ = ["TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]

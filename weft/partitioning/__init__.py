"""Partitioning: which part of every value each device of a mesh has, and the program that each of them runs.

``rules`` says of each equation which dimensions are the same and may be cut, ``propagate`` gives every value a sharding,
``partition`` makes the program of one device, with collectives over the axes of the mesh.
"""

from weft.partitioning.partition import Partitioned, local_program, partition, propagated

__all__ = ["Partitioned", "local_program", "partition", "propagated"]

"""Partitioning: which part of every value each device of a mesh has, and the program that each of them runs.

``rules`` says of each equation which dimensions are the same and may be cut, ``propagate`` gives every value a
sharding, ``local`` makes the program of one device, with collectives over the axes of the mesh.
"""

from __future__ import annotations

import typing

from weft._base import lazy

if typing.TYPE_CHECKING:
    from weft.partitioning.programs import (
        Partitioned as Partitioned,
    )
    from weft.partitioning.programs import (
        local_program as local_program,
    )
    from weft.partitioning.programs import (
        partition as partition,
    )
    from weft.partitioning.programs import (
        propagated as propagated,
    )

_NAMES = lazy.Names("weft.partitioning", {"partitioning.programs": "Partitioned local_program partition propagated"})
__getattr__ = _NAMES.find

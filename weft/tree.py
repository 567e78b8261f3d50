"""Pytree functions under short names, as in ``jax.tree``: ``weft.tree.map`` is ``weft.tree_util.tree_map``."""

from weft.tree_util import (
    equality_errors,
    keystr,
    static,
)
from weft.tree_util import (
    tree_all as all,
)
from weft.tree_util import (
    tree_broadcast as broadcast,
)
from weft.tree_util import (
    tree_flatten as flatten,
)
from weft.tree_util import (
    tree_flatten_with_path as flatten_with_path,
)
from weft.tree_util import (
    tree_leaves as leaves,
)
from weft.tree_util import (
    tree_leaves_with_path as leaves_with_path,
)
from weft.tree_util import (
    tree_map as map,
)
from weft.tree_util import (
    tree_map_with_path as map_with_path,
)
from weft.tree_util import (
    tree_reduce as reduce,
)
from weft.tree_util import (
    tree_reduce_associative as reduce_associative,
)
from weft.tree_util import (
    tree_structure as structure,
)
from weft.tree_util import (
    tree_transpose as transpose,
)
from weft.tree_util import (
    tree_unflatten as unflatten,
)

__all__ = [
    "all",
    "broadcast",
    "equality_errors",
    "flatten",
    "flatten_with_path",
    "keystr",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]

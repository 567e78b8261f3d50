"""References to the blocks of a kernel in the state of a loop: they are no state, every step is given the same ones.

fori_loop(0, n, body, (x, ref))    ->    the state is x; body(i, (x, ref)) returns a new x, and that reference
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import runtime
from weft.core.ref_types import is_block, same


class Held:
    """The references in a state, and the structure of the whole."""

    def __init__(self, values: Sequence[Any], tree: Any) -> None:
        self._tree, self._count = tree, len(values)
        self._refs = {index: value for index, value in enumerate(values) if is_block(value)}
        self.rest = [value for index, value in enumerate(values) if index not in self._refs]

    def whole(self, rest: Sequence[Any]) -> Any:
        """The state with its references."""
        others = iter(rest)
        leaves = [self._refs[index] if index in self._refs else next(others) for index in range(self._count)]
        return runtime.tree_unflatten(self._tree, leaves)

    def rest_of(self, state: Any, what: str) -> Any:
        """The state that a step returns, without its references. A wrong structure is left alone: others report it."""
        values, tree = runtime.tree_flatten(state)
        if tree != self._tree:
            return state
        for index, ref in self._refs.items():
            if not same(values[index], ref):
                raise TypeError(
                    f"{what} was given the reference {ref.aval} in its state, and must return it at the same place; "
                    f"it returned {values[index]}. Read and write the reference in place: it need not be in the state."
                )
        return [value for index, value in enumerate(values) if index not in self._refs]


def apart(values: Sequence[Any], tree: Any) -> Held | None:
    """The references in a state with these leaves; None if there are none."""
    return Held(values, tree) if any(map(is_block, values)) else None

"""Effects: what an equation does besides giving its outputs.

A jaxpr and each of its equations carry a frozenset of effects. An equation with an effect is not dropped as dead code,
not merged with an equal one and not fused. Equations with ordered effects keep their program order.
"""

from __future__ import annotations

from collections.abc import Iterable


class Effect:
    """Base class: instances are compared by value, so that equal effects of two equations are one effect."""

    ordered = False
    removable = False  # an equation with only such effects may be dropped if its results are unused

    def __repr__(self) -> str:
        return type(self).__name__


class NamedEffect(Effect):
    """An effect known by its name alone (callbacks, debug prints)."""

    def __init__(self, name: str, ordered: bool = False) -> None:
        self.name = name
        self.ordered = ordered

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedEffect) and (self.name, self.ordered) == (other.name, other.ordered)

    def __hash__(self) -> int:
        return hash((self.name, self.ordered))

    def __repr__(self) -> str:
        return self.name


Effects = frozenset[Effect]
no_effects: Effects = frozenset()
debug_effect = NamedEffect("Debug")
ordered_debug_effect = NamedEffect("OrderedDebug", ordered=True)
io_effect = NamedEffect("IO")
ordered_io_effect = NamedEffect("OrderedIO", ordered=True)


def join(*groups: Iterable[Effect]) -> Effects:
    return no_effects.union(*groups)


def keeps(effects: Effects) -> bool:
    """Whether an equation with these effects stays even if its results are unused."""
    return bool(effects) and not all(effect.removable for effect in effects)

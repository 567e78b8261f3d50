"""Tables of rules, primitive -> rule: what is put in becomes the rule that weft's transformations use.

A table reads weft's own rules too, as functions in JAX's form, so that a primitive can take over the rule of another:
``ad.primitive_jvps[mine_p] = ad.primitive_jvps[lax.sin_p]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from weft._base import lazy, unbuilt
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.dispatch.calls import jit as jit_module

Rule = Callable[..., Any]


class RuleTable(MutableMapping[Primitive, Rule]):
    """``install(primitive, rule)`` fills the slot (rule None: empties it); ``own(primitive)`` gives weft's rule."""

    def __init__(
        self, name: str, install: Callable[[Primitive, Rule | None], None], own: Callable[[Primitive], Rule | None]
    ) -> None:
        self._name = name
        self._install = install
        self._own = own
        self._given: dict[Primitive, Rule] = {}

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        if not isinstance(primitive, Primitive):
            raise TypeError(
                f"[{self._name}] the key of a rule is a primitive, such as weft.lax.sin_p or one made by "
                f"weft.extend.core.Primitive(name); got {primitive!r}"
            )
        self._given[primitive] = rule
        if type(primitive) is unbuilt.StubPrimitive:  # a rule of what weft does not have is never asked for
            return
        self._install(primitive, rule)
        if type(primitive.kind) is not kinds.Opaque:
            _changed()

    def __getitem__(self, primitive: Primitive) -> Rule:
        found = self._given.get(primitive)
        if found is None and _is_built(primitive):
            found = self._own(primitive)
        if found is None:
            raise KeyError(primitive)
        return found

    def __delitem__(self, primitive: Primitive) -> None:
        del self._given[primitive]
        if _is_built(primitive):
            self._install(primitive, None)

    def __iter__(self) -> Iterator[Primitive]:
        return iter(dict(self._given))

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, primitive: object) -> bool:
        return primitive in self._given or self.get(primitive) is not None  # type: ignore[call-overload] - any key

    def __repr__(self) -> str:
        return f"<{self._name}: rules of {len(self)} primitives besides weft's own>"


def _is_built(primitive: object) -> bool:
    return isinstance(primitive, Primitive) and type(primitive) is not unbuilt.StubPrimitive


def _changed() -> None:
    """A rule of an operation of weft's is another from now on: forget what was made by the old one."""
    lazy.submodule("weft.compiler.storage.stored").refuse()
    jit_module.clear_caches()

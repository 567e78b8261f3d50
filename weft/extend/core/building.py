"""Making programs by hand: new variables and new equations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.core.effects import Effect
from weft.core.programs.jaxpr import Atom, JaxprEqn, Var


def gensym() -> Callable[[Any], Var]:
    """A function that makes a new variable of a type.

    >>> weft.extend.core.gensym()(weft.core.ShapedArray((3,), "float32")).aval.shape
    (3,)
    """
    return Var


def new_jaxpr_eqn(
    invars: Sequence[Atom],
    outvars: Sequence[Var],
    primitive: Any,
    params: dict[str, Any],
    effects: Iterable[Effect],
    source_info: Any = None,
    ctx: Any = None,
) -> JaxprEqn:
    """An equation; ``source_info`` is that of another equation, and ``ctx``, a word of JAX's, is not needed."""
    source = None if source_info is None else source_info.captured
    return JaxprEqn(list(invars), list(outvars), primitive, params, frozenset(effects), source)

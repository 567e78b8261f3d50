"""Which values differ between the devices of a mesh: the axes in the types of programs of shards.

In the program of one shard, ``f32[2]{V:i}`` is the type of a value that differs along the mesh axis ``i``, and
``f32[2]`` that of one that is the same on all devices. Operands of an operation agree in these axes: ``Agreement`` lets
those that differ along fewer axes vary along all (``pvary``), before any transformation sees the operation, and the
result has the axes of the operands. Rules of typing know nothing of it. Collectives state their own
(``Primitive.varying``)::

    mul a:f32[2]{V:i} b:f32[]     ->     c:f32[]{V:i} = pvary[axes=('i',)] b; d:f32[2]{V:i} = mul a c
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from weft import config
from weft.core import axis_names, kinds
from weft.core.avals import get_aval
from weft.core.tracing import trace as tracing

# Operations whose types come from the programs that they carry.
PROGRAMS = (kinds.Loop, kinds.Branch, kinds.Routine, kinds.Higher)
state = tracing.state


class Agreement:
    """What makes operands agree, by ``vary(value, axes)``, which records the operation that lets a value vary."""

    __slots__ = ("vary",)

    def __init__(self, vary: Callable[[Any, tuple[Any, ...]], Any]) -> None:
        self.vary = vary

    def agreed(self, primitive: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands, made to vary along every axis that any of them varies along."""
        if primitive.varying is not None or type(primitive.kind) in PROGRAMS:
            return args
        found = [getattr(getattr(x, "aval", None), "varying", ()) for x in args]
        joined = union(found)
        if not joined:
            return args
        return tuple([x if names == joined else self.widened(x, joined) for x, names in zip(args, found, strict=True)])

    def widened(self, value: Any, names: Iterable[Any]) -> Any:
        """The value, which varies along these axes too."""
        aval = get_aval(value)
        if not hasattr(aval, "varying"):  # a reference
            return value
        missing = [name for name in names if name not in aval.varying]
        return self.vary(value, ordered(missing)) if missing else value


@contextmanager
def checked(agreement: Agreement | None) -> Any:
    """From here on types say along which axes values differ; with None they say nothing of it."""
    before, state.varying = state.varying, agreement
    try:
        yield
    finally:
        state.varying = before


def widened(value: Any, names: Iterable[Any]) -> Any:
    """The value with a type that says that it varies along these axes too; itself where types say nothing of it."""
    agreement = state.varying
    return value if agreement is None else agreement.widened(value, names)


def like(value: Any, example: Any) -> Any:
    """The value, which varies along the axes of ``example`` (a value, or something with a type) too."""
    if state.varying is None:
        return value
    return widened(value, getattr(getattr(example, "aval", example), "varying", ()))


def ordered(names: Iterable[Any]) -> tuple[Any, ...]:
    """Axes in the order in which they are bound."""
    given = dict.fromkeys(names)
    if len(given) < 2:
        return tuple(given)
    indices = {name: index for index, (name, _) in enumerate(config.bound_axes())}
    return tuple(sorted(given, key=lambda name: indices.get(name, -1)))


def union(groups: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The axes in any of these groups, in the order in which they are bound."""
    different = [group for group in dict.fromkeys(groups) if group]
    if len(different) < 2:
        return different[0] if different else ()
    return ordered([name for group in different for name in group])


def typed(primitive: Any, in_avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """(result types, effects) of an operation on operands that vary."""
    found = {aval.varying for aval in in_avals if hasattr(aval, "varying")}
    if primitive.varying is not None:
        names = primitive.varying(in_avals[0].varying, params)
    elif len(found) == 1:
        (names,) = found
    else:
        listed = ", ".join([aval.str_short() for aval in in_avals])
        raise ValueError(
            f"[{primitive.name}] operands must vary along the same mesh axes, got {listed}. Let them agree with "
            "weft.lax.pcast(x, axes, to='varying'), or give shard_map the argument check_vma=False"
        )
    plain = [aval.update(varying=()) if getattr(aval, "varying", ()) else aval for aval in in_avals]
    out, effects = primitive._type(plain, params)
    if not primitive.multiple_results:
        return out.update(varying=names), effects
    return tuple([aval.update(varying=names) for aval in out]), effects


def is_checked(name: Any) -> bool:
    """Whether a named axis is one of a mesh, along which types say whether values differ."""
    return state.varying is not None and axis_names.is_manual(name)

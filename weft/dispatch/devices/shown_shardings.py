"""Shardings shown: which device has which part, as a table; and the sharding of a value inside of a program.

┌─────────┬─────────┐
│ CPU 0,1 │ CPU 2,3 │
└─────────┴─────────┘
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft import runtime
from weft.core import effects, kinds
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import Jaxpr, subjaxprs
from weft.core.sharding.shardings import Sharding
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer

_WIDER = 2.5  # a character is so much higher than wide


def visualize_sharding(
    shape: Sequence[int],
    sharding: Sharding,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Print which device has which part of an array of ``shape``, which has 1 or 2 dimensions.

    ``scale`` is the size of the table, ``min_width`` the least width of a part. ``use_color`` and ``color_map`` are
    accepted: the table has lines and no colours.

    >>> weft.debug.visualize_sharding((4,), jnp.arange(4).sharding)
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    if not 1 <= len(shape) <= 2 or 0 in shape:
        raise ValueError(
            "`visualize_sharding` only works for shapes with 1 and 2 dimensions, all of them above 0; got "
            f"{tuple(shape)}."
        )
    print(table(tuple(shape), sharding, scale, min_width, max_width))


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print which device has which part of an array; options as those of ``visualize_sharding``.

    >>> weft.debug.visualize_array_sharding(jnp.ones(8))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs))


def table(shape: tuple[int, ...], sharding: Sharding, scale: float, min_width: int, max_width: int) -> str:
    """The table: a cell for each part, with the platform and the ids of the devices that have it."""
    held: dict[tuple[int, int], list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        starts = [part.start or 0 for part in index]
        held.setdefault((0, starts[0]) if len(shape) == 1 else (starts[0], starts[1]), []).append(device.id)
    platform = sharding.device_list[0].platform.upper()
    texts = {corner: f"{platform} {','.join(map(str, sorted(ids)))}" for corner, ids in held.items()}
    rows, columns = (sorted({corner[side] for corner in held}) for side in (0, 1))
    full = int(10 * scale)
    wide = int(full * (shape[1] if len(shape) == 2 else 1) / shape[0])
    width = min(max(int(wide / len(columns) * _WIDER), min_width), max_width)
    widths = [max(_padded(width, len(texts[row, column])) for row in rows) for column in columns]
    height = _padded(int(full / len(rows)), 1) if len(shape) == 2 else 1
    above = max((int(full / len(rows)) - 2) // 2, 0) if len(shape) == 2 else 0
    lines = [_line("┌┬┐", widths)]
    for row in rows:
        if row != rows[0]:
            lines.append(_line("├┼┤", widths))
        named = "│".join([_centred(texts[row, column], wide) for column, wide in zip(columns, widths, strict=True)])
        empty = "│".join([" " * wide for wide in widths])
        lines += [f"│{named if at == above else empty}│" for at in range(height)]
    return "\n".join([*lines, _line("└┴┘", widths)])


def _padded(size: int, content: int) -> int:
    """The size of a cell whose lines take two of ``size``, with its content in the middle."""
    before, rest = divmod(size - content - (2 if content > 1 else 1), 2)
    return max(before, 0) + content + max(before + rest, 0)


def _centred(text: str, width: int) -> str:
    return (" " * ((width - len(text)) // 2) + text).ljust(width)


def _line(ends: str, widths: Sequence[int]) -> str:
    return ends[0] + ends[1].join(["─" * width for width in widths]) + ends[2]


# -- inside of programs -----------------------------------------------------------------------------------------------


def _type_inspect(x: Any, **params: Any) -> tuple[list[Any], effects.Effects]:
    return [], frozenset({effects.debug_effect})


def _left_out(params: dict[str, Any]) -> bool:
    """It has done its work when the program is compiled, once it is known how values lie."""
    return getattr(_thread, "propagates", False)


_thread = threading.local()


@contextmanager
def kept() -> Iterator[None]:
    """A context in which programs that are simplified keep the questions for shardings."""
    _thread.propagates = True
    try:
        yield
    finally:
        _thread.propagates = False


def _call(x: Any, *, callback: Callable[[Sharding], None]) -> tuple[()]:
    callback(x.sharding)
    return ()


inspect_sharding_p = Primitive(
    "inspect_sharding", kind=kinds.Effect(_call, _left_out), multiple_results=True, memoize=False
)
inspect_sharding_p.def_effectful_abstract_eval(_type_inspect)
inspect_sharding_p.jvp = lambda primals, tangents, **params: (inspect_sharding_p.bind(*primals, **params), [])
inspect_sharding_p.transpose = lambda cts, *operands, **params: [None] * len(operands)
inspect_sharding_p.batch = lambda size, values, dims, **params: (inspect_sharding_p.bind(*values, **params), [])


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call ``callback`` with the sharding of each array in ``value``; inside of ``jit`` when the program is compiled.

    >>> weft.debug.inspect_array_sharding(jnp.arange(3), callback=lambda s: print(s.num_devices))
    1
    """
    for leaf in runtime.tree_flatten(value)[0]:
        if isinstance(leaf, Tracer) or tracing.is_tracing():
            inspect_sharding_p.bind(leaf, callback=callback)
        else:
            callback(leaf.sharding)


def inspects(jaxpr: Jaxpr) -> bool:
    """Whether a program asks for the sharding of a value."""
    return jaxpr.memoize("inspects", _find)


def _find(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive is inspect_sharding_p for eqn in jaxpr.eqns) or any(map(inspects, subjaxprs(jaxpr)))


def tell(jaxpr: Jaxpr, sharding_of: Callable[[Any], Sharding]) -> None:
    """Call the callbacks of a program, with what ``sharding_of`` says of a variable."""
    for eqn in jaxpr.eqns:
        if eqn.primitive is inspect_sharding_p:
            eqn.params["callback"](sharding_of(eqn.invars[0]))
    for inner in subjaxprs(jaxpr):
        tell(inner, sharding_of)

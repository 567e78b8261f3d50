"""Threefry-2x32: twenty rounds that turn a key and a counter into two random words.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. It is one element-wise primitive, so that a
program of random numbers stays small, and fuses; ``output`` chooses a word, or the exclusive or of both::

    threefry2x32[output=mixed] key0 key1 counter0 counter1     # u32 each, of broadcastable shapes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.operations.pointwise import elementwise

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = np.dtype(np.uint32)


class _Words(NamedTuple):
    """Arithmetic on 32-bit words, of an emitter or of NumPy."""

    add: Callable[[Any, Any], Any]
    xor: Callable[[Any, Any], Any]
    rotate: Callable[[Any, int], Any]
    const: Callable[[int], Any]


def _rounds(words: _Words, key: tuple[Any, Any], x: Any, y: Any, output: str) -> Any:
    schedule = (*key, words.xor(words.xor(*key), words.const(_PARITY)))
    x, y = words.add(x, schedule[0]), words.add(y, schedule[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = words.add(x, y)
            y = words.xor(x, words.rotate(y, distance))
        x = words.add(x, schedule[(group + 1) % 3])
        y = words.add(words.add(y, schedule[(group + 2) % 3]), words.const(group + 1))
    return {"first": lambda: x, "second": lambda: y, "mixed": lambda: words.xor(x, y)}[output]()


def _scalar(emit: Any, key0: Any, key1: Any, x: Any, y: Any, *, output: str) -> Any:
    def const(value: int) -> Any:
        return emit.const(value, _WORD)

    def rotate(value: Any, distance: int) -> Any:
        high = emit.shift_left(value, const(distance))
        return emit.or_(high, emit.shift_right_logical(value, const(32 - distance)))

    return _rounds(_Words(emit.add, emit.xor, rotate, const), (key0, key1), x, y, output)


def _reference(key0: Any, key1: Any, x: Any, y: Any, *, output: str) -> Any:
    def rotate(value: Any, distance: int) -> Any:
        return (value << np.uint32(distance)) | (value >> np.uint32(32 - distance))

    key0, key1, x, y = np.broadcast_arrays(*(np.asarray(v, _WORD) for v in (key0, key1, x, y)))
    words = _Words(np.add, np.bitwise_xor, rotate, np.uint32)
    return _rounds(words, (key0, key1), x, y, output)


threefry2x32_p = elementwise.elementwise(
    "threefry2x32",
    *(elementwise.UNSIGNED,) * 4,
    scalar=_scalar,
    partials=(None,) * 4,
    reference=_reference,
    cost=110.0,
)

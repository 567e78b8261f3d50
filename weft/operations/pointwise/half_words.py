"""Extrema of bfloat16 and float16 on their bits: as 16-bit words, a better value is a larger word.

    max:  -inf .. inf, then every NaN   ->  0 .. 2 inf + 1, then above      min:  inf .. -inf, then every NaN
    argmax: as max, but both zeros are one word, and so are all NaN

The reduction is then a maximum of unsigned integers, which fill whole registers, and needs no conversion to float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import dtypes
from weft.core import kinds
from weft.core.loop_forms import LoopForms

WORD = np.dtype(np.uint16)
HALVES = (np.dtype(dtypes.bfloat16), np.dtype(dtypes.float16))


def _words(emit: Any, bits: Any, infinity: int, larger: bool, first: bool) -> Any:
    """The words for given bits; with ``first`` equal values have equal words."""
    negative = emit.shift_right_arithmetic(bits, emit.const(15, WORD))  # all ones
    ordered = emit.xor(bits, emit.and_(negative, emit.const(0x7FFF, WORD)))
    if first:
        ordered = emit.sub(ordered, negative)  # two's complement, so that -0 equals 0
    if not larger:
        words = emit.sub(emit.const(infinity, WORD), ordered)
    else:
        words = emit.add(ordered, emit.const(infinity + (0 if first else 1), WORD))
    return emit.min(words, emit.const(2 * infinity + 1, WORD)) if first else words


def _bits(emit: Any, words: Any, infinity: int, larger: bool) -> Any:
    """The inverse of ``_words`` without ``first``."""
    if larger:
        ordered = emit.sub(words, emit.const(infinity + 1, WORD))
    else:
        ordered = emit.sub(emit.const(infinity, WORD), words)
    negative = emit.shift_right_arithmetic(ordered, emit.const(15, WORD))
    return emit.xor(ordered, emit.and_(negative, emit.const(0x7FFF, WORD)))


@functools.cache
def extremum(kind: kinds.Reduction, dtype: np.dtype, larger: bool, first: bool = False) -> kinds.Reduction | None:
    """``kind`` (reduce_max or reduce_min) as a reduction of bits; ``first`` is for use in argmax or argmin."""
    if dtype not in HALVES:
        return None
    infinity = int(np.array(np.inf, dtype).view(WORD))

    def prepare(emit: Any, values: Any, index: Any, **_: Any) -> Any:
        return (_words(emit, values[0], infinity, larger, first),)

    def finish(emit: Any, accs: Any, **_: Any) -> Any:
        return (emit.bitcast(_bits(emit, accs[0], infinity, larger), dtype),)

    return kind.replace(
        prepare=prepare,
        combine=lambda emit, left, right, **_: (emit.max(left[0], right[0]),),
        finish=finish,
        absorbing=lambda word: 2 * infinity + 1 if first else np.iinfo(word).max,
        forms=LoopForms(),
    )


@functools.cache
def position(kind: kinds.Reduction, words: kinds.Reduction | None) -> kinds.Reduction | None:
    """argmax or argmin of bits: ``kind`` (argmax of integers) of the words that ``words`` prepares."""
    if words is None:
        return None

    def prepare(emit: Any, values: Any, index: Any, **params: Any) -> Any:
        return (*words.prepare(emit, values, None), kind.prepare(emit, values, index, **params)[1])

    forms = kind.forms.replace(extremum=words, of_words=None)
    return kind.replace(prepare=prepare, absorbing=words.absorbing, forms=forms)

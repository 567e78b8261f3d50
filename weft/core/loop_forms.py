"""Other ways to compute the same outputs, which the loops of a reduction may choose: none changes a bit.

argmax of int8: the maximum of a block alone, then a position where a block has a better one    (``extremum``)
max of float16: the maximum of the operand's bits as integers                                   (``of_words``)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.record import Record


class LoopForms(Record):
    """What an operation knows of its reduction beside its meaning (``kinds.Reduction``); all of it may be None.

    ``append(emit, left, right, **params)`` is a cheaper ``combine`` for adding the next element, ``right``, to what
    came before it, ``left``; then ``left`` starts as ``seed(emit, identities, index, **params)`` at the first position.
    ``extremum``: for argmax and argmin, the reduction that finds the value alone, without its position.
    ``of_words(dtype)`` gives a reduction with the same outputs that works on the operand's bits as uint16, or None. Its
    first accumulator is a uint16 that starts at 0; the others are as the reduction has them.
    """

    append: Callable[..., tuple[Any, ...]] | None = None
    seed: Callable[..., tuple[Any, ...]] | None = None
    extremum: Any = None
    of_words: Callable[[np.dtype], Any] | None = None

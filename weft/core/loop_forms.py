"""Other ways to compute the outputs of a reduction, which its loops may use; the results have the same bits.

argmax of int8: the maximum of a block alone, then its position only if the block has a better one    (``extremum``)
max of float16: the maximum of the operand's bits as integers                                   (``of_words``)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.record import Record


class LoopForms(Record):
    """Optional facts about a reduction, beside its meaning (``kinds.Reduction``); each may be None.

    ``append(emit, left, right, **params)`` is a cheaper ``combine`` that adds the next element, ``right``, to the
    result so far, ``left``; ``left`` then starts as ``seed(emit, identities, index, **params)`` at the first position.
    ``extremum``: for argmax and argmin, the reduction that finds the value alone, without its position.
    ``of_words(dtype)`` gives a reduction with the same outputs that reads the operand's bits as uint16, or None. Its
    first accumulator is a uint16 that starts at 0; the others are those of this reduction.
    """

    append: Callable[..., tuple[Any, ...]] | None = None
    seed: Callable[..., tuple[Any, ...]] | None = None
    extremum: Any = None
    of_words: Callable[[np.dtype], Any] | None = None

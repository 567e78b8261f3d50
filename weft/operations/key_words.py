"""How operations that move elements work on arrays of PRNG keys: as operations on the words of the keys.

An array of keys is an array of words with the dimensions ``words`` added at the end. A rule in the slot
``Primitive.on_words`` gets ``weft.operations``, the primitive, operands in this form, and the parameters as given for
keys; it binds the operation on the arrays of words::

    transpose[permutation=(1, 0)] key<fry>[2,3]    ->    transpose[permutation=(1, 0, 2)] u32[2,3,2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import dtypes
from weft.core import kinds

Params = dict[str, Any]
Extents = tuple[int, ...]
Rule = Callable[[Any, Any, Sequence[Any], Params, Extents], Any]


def trailing(**changes: Callable[[Extents, Extents], tuple[int, ...]]) -> Callable[..., Any]:
    """A rule that only extends parameters; each change takes the old value and the shape of a key."""

    def rule(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
        given = {name: params[name] for name in changes if params[name] is not None}
        longer = {name: changes[name](tuple(old), words) for name, old in given.items()}
        return primitive.bind(*operands, **{**params, **longer})

    return rule


def broadcast(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    rank = len(params["shape"])
    dims = (*params["broadcast_dimensions"], *range(rank, rank + len(words)))
    longer = {"shape": (*params["shape"], *words), "broadcast_dimensions": dims}
    return primitive.bind(*operands, **{**params, **longer})


def with_starts(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    arrays = 2 if isinstance(primitive.kind, kinds.DynamicUpdateSlice) else 1
    starts = operands[arrays:]
    zeros = [lax.convert_element_type(0, starts[0].dtype) for _ in words] if starts else []
    longer = {"slice_sizes": (*params["slice_sizes"], *words)} if "slice_sizes" in params else {}
    return primitive.bind(*operands, *zeros, **{**params, **longer})


def gather(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    """The words of a key become window dimensions."""
    numbers = params["dimension_numbers"]
    rank = len(operands[1].shape) - 1 + len(numbers.offset_dims)
    offset_dims = following(numbers.offset_dims, words, rank)
    longer = {
        "dimension_numbers": numbers._replace(offset_dims=offset_dims),
        "slice_sizes": (*params["slice_sizes"], *words),
    }
    return primitive.bind(*operands, **{**params, **longer})


def scatter(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    numbers = params["dimension_numbers"]
    rank = len(operands[1].shape) - 1 + len(numbers.update_window_dims)
    longer = numbers._replace(update_window_dims=following(numbers.update_window_dims, words, rank))
    return primitive.bind(*operands, **{**params, "dimension_numbers": longer})


def select(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    which, *cases = operands
    if which.shape:
        which = lax.broadcast_in_dim(which, (*which.shape, *words), tuple(range(len(which.shape))))
    return primitive.bind(which, *cases, **params)


def converted(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    """Tangents of type float0 have no words; their conversion to another type gives zeros."""
    if words != (0,):
        raise NotImplementedError(
            f"[compile] {primitive} of keys is not supported: take their words (random.key_data)."
        )
    (x,) = operands
    to_none = params["new_dtype"] == dtypes.float0
    return lax.full((*x.shape, 0), False) if to_none else lax.full(x.shape[:-1], 0, params["new_dtype"])


def ones(old: Extents, words: Extents) -> Extents:
    return (*old, *[1] * len(words))


def zeros(old: Extents, words: Extents) -> Extents:
    return (*old, *[0] * len(words))


def appended(old: Extents, words: Extents) -> Extents:
    return (*old, *words)


def following(old: Extents, words: Extents, rank: int | None = None) -> Extents:
    first = len(old) if rank is None else rank
    return (*old, *range(first, first + len(words)))


def all_words(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    """Keys are equal if all their words are."""
    return lax.reduce_and(*_compared(lax, primitive, operands, params, words))


def some_word(lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents) -> Any:
    """Keys differ if some of their words do."""
    return lax.reduce_or(*_compared(lax, primitive, operands, params, words))


def _compared(
    lax: Any, primitive: Any, operands: Sequence[Any], params: Params, words: Extents
) -> tuple[Any, tuple[int, ...]]:
    rank = max(len(x.shape) for x in operands)
    full = next(x.shape for x in operands if len(x.shape) == rank)
    own = [range(rank - len(x.shape), rank) for x in operands]  # one key beside an array of keys has only its words
    same = primitive.bind(
        *[x if len(x.shape) == rank else lax.broadcast_in_dim(x, full, dims) for x, dims in zip(operands, own)],
        **params,
    )
    return same, tuple(range(len(same.shape) - len(words), len(same.shape)))

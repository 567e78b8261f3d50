"""ragged_all_to_all: elements along a named axis send each other slices of different sizes.

Made of other collectives: every element gets all operands (``all_gather``) and what the others send it where
(``all_to_all``); then each row of its result is read from where it comes. That takes memory for all operands on each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import runtime
from weft.core import axis_names
from weft.core.avals import get_aval
from weft.operations import reductions
from weft.operations.collectives import Groups, checked_groups, extent
from weft.operations.data_movement import assemble, shape
from weft.operations.exchanges import all_gather, all_to_all, rows
from weft.operations.pointwise import arithmetic, convert, logic

__all__ = ["ragged_all_to_all"]


def ragged_all_to_all(
    operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any, recv_sizes: Any, *,
    axis_name: Any, axis_index_groups: Groups = None,
) -> runtime.Array:  # fmt: skip
    """``output`` with slices of the other elements' ``operand`` written into it.

    The four arrays of whole numbers have one length K, a multiple of the extent n of the axis. Slice k of K goes to the
    element k // (K / n): ``operand[input_offsets[k]:][:send_sizes[k]]``, written there at ``output_offsets[k]``.
    ``recv_sizes`` has the sizes of the slices received, in the order of the senders. Rows that nothing is written to
    stay; where slices overlap, that of the last sender counts. ValueError for other shapes, TypeError for other dtypes.

    >>> send = lambda x, sizes: lax.ragged_all_to_all(x, x * 0, *sizes, axis_name="i")
    >>> sizes = [jnp.int32(rows) for rows in ([[0, 1], [0, 1]], [[1, 2], [1, 1]], [[0, 0], [1, 2]], [[1, 1], [2, 1]])]
    >>> weft.vmap(send, axis_name="i")(jnp.float32([[1, 2, 2, 0], [3, 4, 0, 0]]), sizes).tolist()
    [[1.0, 3.0, 0.0, 0.0], [2.0, 2.0, 4.0, 0.0]]
    """
    names, groups = axis_names.as_tuple(axis_name), checked_groups(axis_index_groups)
    count = extent(names, groups)
    regions = (input_offsets, send_sizes, output_offsets, recv_sizes)
    _check(get_aval(operand), get_aval(output), [get_aval(x) for x in regions], count)
    length, most = get_aval(operand).shape[0], get_aval(output).shape[0]
    slices = get_aval(recv_sizes).shape[0]
    whole = all_gather(operand, names, axis_index_groups=groups, tiled=True)

    def received(x: Any) -> Any:
        x = convert.convert(x, np.dtype(np.int32), False)
        found = all_to_all(x, names, 0, 0, axis_index_groups=groups, tiled=True)
        return assemble.broadcast_in_dim(found, (most, slices), (1,))

    start, target = received(input_offsets), received(output_offsets)
    sizes = assemble.broadcast_in_dim(convert.convert(recv_sizes, np.dtype(np.int32), False), (most, slices), (1,))
    row = assemble.broadcasted_iota(np.int32, (most, slices), 0)
    number = assemble.broadcasted_iota(np.int32, (most, slices), 1)
    written = logic.bitwise_and(logic.ge(row, target), logic.lt(row, arithmetic.add(target, sizes)))
    last = reductions.reduce_max(logic.select(written, number, assemble.full_like(number, -1)), (1,))
    chosen = logic.eq(number, assemble.broadcast_in_dim(last, (most, slices), (0,)))
    sender = arithmetic.div(number, np.int32(max(slices // count, 1)))
    source = arithmetic.add(
        arithmetic.mul(sender, np.int32(length)), arithmetic.sub(arithmetic.add(start, row), target)
    )
    source = reductions.reduce_sum(logic.select(chosen, source, assemble.full_like(source, 0)), (1,))
    from_others = logic.ge(last, np.int32(0))
    sizes_of_output = get_aval(output).shape
    return logic.select(
        assemble.broadcast_in_dim(from_others, sizes_of_output, (0,)),
        rows(whole, 0, shape.reshape(source, (most,))),
        output,
    )


def _check(operand: Any, output: Any, regions: list[Any], count: int) -> None:
    if not operand.ndim or operand.ndim != output.ndim or operand.shape[1:] != output.shape[1:]:
        raise ValueError(
            f"[ragged_all_to_all] operand and output have the same dimensions but the first, got {operand.str_short()} "
            f"and {output.str_short()}"
        )
    if operand.dtype != output.dtype:
        raise TypeError(f"[ragged_all_to_all] operand is {operand.str_short()}, output {output.str_short()}")
    for word, aval in zip(("input_offsets", "send_sizes", "output_offsets", "recv_sizes"), regions, strict=True):
        if aval.dtype.kind not in "iu":
            raise TypeError(f"[ragged_all_to_all] {word} has whole numbers, got {aval.str_short()}")
        if aval.shape != regions[0].shape or aval.ndim != 1 or aval.shape[0] % count or not aval.shape[0]:
            raise ValueError(
                f"[ragged_all_to_all] {word} has the length of the others, a multiple of the size {count} of the axis; "
                f"got {aval.str_short()} beside {regions[0].str_short()}"
            )

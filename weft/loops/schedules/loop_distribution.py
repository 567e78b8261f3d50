"""Loop distribution: each part of a long body goes over a block of elements in the first cache before the next one.

    y = exp(log(x / k) * tanh x)     ->     of 512 elements:  a = log(x / k);  b = a * tanh x;  y = exp b

A vector of a body of several functions waits for one chain of results that is longer than the processor looks ahead,
and 16 registers do not hold the constants of all functions. A part has the constants of one, and its vectors do not
wait for each other. What a later part needs lies in a buffer of the block; operands are loaded again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target_model import Model
from weft.loops import ir
from weft.loops.schedules import costs
from weft.loops.schedules.lane_loops import Loops, Part

CHEAP = 4.0  # up to this cost, statements go to the part that uses them
BLOCK_BYTES = 16 << 10  # bytes of the values of a block: half of a first cache
LARGEST, LEAST = 512, 64  # elements of a block


def distributed(loops: Loops, nest: ir.Nest, model: Model) -> Loops:
    """The loop over the lanes, divided into parts; unchanged if no function of the body waits for another."""
    (loop,) = loops
    statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
    applied = [s for s in statements if isinstance(s, ir.Apply)]
    number = _numbers(applied, model)
    last = max(number.values(), default=0)
    if not last or not costs.waits(statements, model.rounding):
        return loops
    stored = {s.value for s in statements if isinstance(s, ir.Store)}
    users: dict[int, set[int]] = {n: {last} for n in stored}
    for s in applied:
        for n in s.args:
            users.setdefault(n, set()).add(number[s.out])
    # the last part stores all results: the parts before it still load operands, which may share their memory
    parts = [_part(k, last, statements, number, users) for k in range(last + 1)]
    sizes = [np.dtype(s.dtype).itemsize for part in parts for s in part.kept]
    sizes += [operand.dtype.itemsize for operand in nest.operands]
    block = LARGEST
    while block > LEAST and block * sum(sizes) > BLOCK_BYTES:
        block //= 2
    return (loop.replace(parts=tuple(parts), block=block),)


def _numbers(applied: Sequence[ir.Apply], model: Model) -> dict[int, int]:
    """The part of each value: a part has one function, and what is cheap is computed where it is used.

    Functions of the same operands share a part: sine and cosine reduce their argument once.
    """
    number: dict[int, int] = {}
    of_operands: dict[tuple[int, ...], int] = {}
    part = 0
    for s in applied:
        number[s.out] = part
        if s.kind.cost >= model.function:
            if s.args not in of_operands:
                part = of_operands[s.args] = len(of_operands)
            number[s.out] = of_operands[s.args]
    users: dict[int, list[int]] = {}
    for s in reversed(applied):
        later = min([number[n] for n in users.get(s.out, ())], default=number[s.out])
        alone = not any(n in number for n in s.args)
        single = len(users.get(s.out, ())) == 1 and sum(n in number for n in s.args) == 1
        if s.kind.cost <= CHEAP and (alone or single):
            number[s.out] = max(number[s.out], later)
        for n in s.args:
            users.setdefault(n, []).append(s.out)
    return number


def _part(
    k: int, last: int, statements: Sequence[ir.Statement], number: dict[int, int], users: dict[int, set[int]]
) -> Part:
    own = [s for s in statements if isinstance(s, ir.Apply) and number[s.out] == k]
    used = {n for s in own for n in s.args}
    stores = [s for s in statements if isinstance(s, ir.Store)] if k == last else []
    used |= {s.value for s in stores}
    loads = [s for s in statements if isinstance(s, ir.Load | ir.IndexOf | ir.Param) and s.out in used]
    earlier = [s for s in statements if isinstance(s, ir.Apply) and number[s.out] < k]
    taken = tuple(s for s in earlier if s.out in used)
    kept = tuple(s for s in own if any(user > k for user in users.get(s.out, ())))
    return Part((*loads, *own, *stores), taken, kept)

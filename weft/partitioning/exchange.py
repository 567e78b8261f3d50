"""The primitive ``exchange``: values that processes send each other, as one step of a program.

``way`` says how, for a group of n processes that are numbered in the order of the group:

    gather    a value of each          x:f32[3]      ->  f32[n,3]   row i is that of process i
    to_all    a row for each           x:f32[n,3]    ->  f32[n,3]   row i is what process i has for this one
    permute   pairs (source, target)   x:f32[3]      ->  f32[3]     zeros where no pair names this process as target
    place     nothing                                ->  i32[]      the number of this process

Only bytes move: sums are operations of the program on what was gathered, in the order of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base import lazy
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.effects import NamedEffect
from weft.core.primitive import Primitive
from weft.operations import assemble, shape

EXCHANGE = NamedEffect("Exchange", ordered=True)  # all processes run the exchanges of a program in one order
Groups = tuple[tuple[int, ...], ...]


def _call(*operands: np.ndarray, way: str, groups: Groups, pairs: Any) -> tuple[np.ndarray]:
    transport = lazy.submodule("weft.distributed.transport").current()
    group = next(group for group in groups if transport.rank in group)
    me = group.index(transport.rank)
    if way == "place":
        return (np.int32(me),)
    return (_moved(transport, np.asarray(operands[0], order="C"), way, group, me, pairs),)


def _moved(transport: Any, x: np.ndarray, way: str, group: Sequence[int], me: int, pairs: Any) -> np.ndarray:
    requests = []
    if way == "permute":
        out = np.zeros_like(x)
        for source, target in pairs:
            if source == target == me:
                out[...] = x
            elif target == me:
                requests.append(transport.irecv(out, group[source], 0))
        for source, target in pairs:
            if source == me and target != me:
                requests.append(transport.isend(x, group[target], 0))
    else:
        out = np.empty((len(group), *(x.shape if way == "gather" else x.shape[1:])), x.dtype)
        out[me] = x if way == "gather" else x[me]
        for number, rank in enumerate(group):
            if number != me:
                requests.append(transport.irecv(out[number : number + 1], rank, 0))
        for number, rank in enumerate(group):
            if number != me:
                requests.append(transport.isend(x if way == "gather" else x[number : number + 1], rank, 0))
    for request in requests:
        request.wait("an exchange", None)
    return out


def _typed(*avals: Any, way: str, groups: Groups, pairs: Any) -> Any:
    if way == "place":
        return [runtime.ShapedArray((), np.dtype(np.int32))], frozenset([EXCHANGE])
    (x,) = avals
    shape = (len(groups[0]), *x.shape) if way == "gather" else x.shape
    return [runtime.ShapedArray(shape, x.dtype)], frozenset([EXCHANGE])


exchange_p = Primitive("exchange", kinds.External(_call, foreign=True), multiple_results=True, memoize=False)
exchange_p.def_effectful_abstract_eval(_typed)
exchange_p.jvp, exchange_p.transpose, exchange_p.batch = None, None, None


def exchange(x: Any, way: str, groups: Groups, pairs: Any = ()) -> Any:
    """``x`` after an exchange in each of these groups of processes."""
    if len(groups[0]) == 1:
        return _alone(x, way, pairs)
    operands = () if way == "place" else (x,)
    return exchange_p.bind(*operands, way=way, groups=groups, pairs=tuple(pairs))[0]


def _alone(x: Any, way: str, pairs: Any) -> Any:
    """What an exchange gives in groups of one process."""
    if way == "place":
        return np.int32(0)
    if way == "gather":
        return shape.expand_dims(x, (0,))
    return x if way == "to_all" or pairs else assemble.full(get_aval(x).shape, 0, get_aval(x).dtype)


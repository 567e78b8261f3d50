"""The primitive ``exchange``: values that processes send each other, as one step of a program.

``way`` says how, for a group of n processes that are numbered in the order of the group:

    gather    a value of each          x:f32[3]      ->  f32[n,3]   row i is that of process i
    to_all    a row for each           x:f32[n,3]    ->  f32[n,3]   row i is what process i has for this one
    permute   pairs (source, target)   x:f32[3]      ->  f32[3]     zeros where no pair names this process as target
    reduce    the sum, max or min      x:f32[3]      ->  f32[3]     as of gathered rows, in the order of the group
    scatter   a row of the sum         x:f32[n,3]    ->  f32[3]     row i is for process i
    rank      nothing                                ->  i32[]      the number of this process
    agree     nothing                                ->             an error unless all processes run the same program

Messages carry bytes; sums are added in the order of ``reduce_sum`` over the first dimension (NUMERICS.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import Record
from weft.core import kinds
from weft.core.avals import get_aval
from weft.core.effects import NamedEffect
from weft.core.primitive import Primitive
from weft.operations import reductions
from weft.operations.data_movement import assemble, shape

EXCHANGE = NamedEffect("Exchange", ordered=True)  # all processes run the exchanges of a program in one order
Groups = tuple[tuple[int, ...], ...]
_NAMES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
_REDUCED = frozenset(_NAMES.split())


def _typed(*avals: Any, way: str, groups: Groups, **params: Any) -> Any:
    if way == "agree":
        return [], frozenset([EXCHANGE])
    if way == "rank":
        return [runtime.ShapedArray((), np.dtype(np.int32))], frozenset([EXCHANGE])
    (x,) = avals
    shapes = {"gather": (len(groups[0]), *x.shape), "scatter": x.shape[1:]}
    return [runtime.ShapedArray(shapes.get(way, x.shape), x.dtype)], frozenset([EXCHANGE])


def _message(rank: int, *, way: str, groups: Groups, pairs: Any = (), combiner: str = "sum", **params: Any) -> Any:
    """What this process does: the fields of ``compiler.plans.instructions.Exchange``."""
    group = next(group for group in groups if rank in group)
    me = group.index(rank)
    source = next((group[source] for source, target in pairs if target == me), -1)
    targets = tuple([group[target] for source, target in pairs if source == me])
    names = ("tag", "fingerprint", "words")
    return {
        "way": way, "ranks": group, "me": me, "source": source, "destinations": targets, "combiner": combiner,
        **{name: params[name] for name in names if name in params},
    }  # fmt: skip


exchange_p = Primitive("exchange", kinds.Exchange(_message), multiple_results=True, memoize=False)
exchange_p.def_effectful_abstract_eval(_typed)
exchange_p.jvp, exchange_p.transpose, exchange_p.batch = None, None, None


class Exchanges(Record):
    """The exchanges of one collective in groups of processes. ``tag`` is this collective's alone in its program."""

    groups: Groups
    tag: int
    name: str  # of the collective

    def _bind(self, *operands: Any, way: str, **params: Any) -> Any:
        return exchange_p.bind(*operands, way=way, groups=self.groups, tag=self.tag, name=self.name, **params)[0]

    def _alone(self, x: Any) -> bool:
        return len(self.groups[0]) == 1 or get_aval(x).size == 0

    def gather(self, x: Any) -> Any:
        n = len(self.groups[0])
        if not self._alone(x):
            return self._bind(x, way="gather")
        return shape.expand_dims(x, (0,)) if n == 1 else assemble.full((n, *get_aval(x).shape), 0, get_aval(x).dtype)

    def to_all(self, x: Any) -> Any:
        return x if self._alone(x) else self._bind(x, way="to_all")

    def permute(self, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
        if not self._alone(x):
            return self._bind(x, way="permute", pairs=tuple(pairs))
        return x if pairs else assemble.full(get_aval(x).shape, 0, get_aval(x).dtype)

    def reduce(self, x: Any, combiner: str) -> Any:
        if self._alone(x):
            return x
        if not _is_reduced(get_aval(x).dtype, combiner):
            return _REDUCTIONS[combiner](self.gather(x), (0,))
        return self._bind(x, way="reduce", combiner=combiner)

    def scatter(self, x: Any) -> Any:
        """A row of the sum."""
        if self._alone(x) or not _is_reduced(get_aval(x).dtype, "sum"):
            return reductions.reduce_sum(self.to_all(x), (0,))
        return self._bind(x, way="scatter")

    def rank(self) -> Any:
        return np.int32(0) if len(self.groups[0]) == 1 else self._bind(way="rank")


_REDUCTIONS = {"sum": reductions.reduce_sum, "max": reductions.reduce_max, "min": reductions.reduce_min}


def _is_reduced(dtype: Any, combiner: str) -> bool:
    """Whether the runtime reduces such elements itself (``mpi::reducible``)."""
    return dtype.name in _REDUCED and not (dtype.kind == "c" and combiner != "sum")


def agree(ranks: Sequence[int], fingerprint: int, words: str) -> None:
    """All processes compare what they run."""
    exchange_p.bind(way="agree", groups=(tuple(ranks),), tag=0, name="agree", fingerprint=fingerprint, words=words)

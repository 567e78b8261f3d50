"""Sizes as symbols: numbers of a program that is compiled for more sizes than its own.

While such a program is compiled, its extents are instances of ``Size``: the number at the present sizes, and how it
follows from them. Arithmetic gives further ones. A comparison is answered for the present sizes, and the answer is
noted: it is a *guard*. Wherever all guards hold, the compiler would have answered alike, and made the same program but
for its numbers.

    n = 300:  n * 4 -> 1200, as n * 4;  n > 256 -> True, noted;  range(n) -> needs the number: n == 300, noted

The technique is that of torch.compile's dynamic shapes (Ansel et al., "PyTorch 2", ASPLOS 2024, section 4).
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple, Record
from weft.core import avals
from weft.core.symbolic.size_expressions import (
    POLYNOMIALS,
    REFLECTED,
    WORDS,
    Number,
    Terms,
    Values,
    round_down,
    round_up,
)
from weft.runtime import ShapedArray


class Guard(NamedTuple):
    """A comparison of two values, by their slots among all of them, and its answer."""

    compare: Callable[[Any, Any], Any]
    left: int
    right: int
    answer: bool


class _Opened(threading.local):
    """The compilations with symbols that are under way on a thread: most often none, and nothing is asked then."""

    def __init__(self) -> None:
        self.all: list[Guards] = []


opened = _Opened()


class Guards:
    """The sizes of one compilation, the values that were computed from them, and the guards.

    ``numbers``: the sizes; the first ``n_extents`` are 2 or more at all sizes.
    """

    def __init__(self, numbers: Sequence[Number], n_extents: int) -> None:
        self.is_open = True
        opened.all.append(self)
        self.numbers = list(numbers)
        self._made: list[Any] = []  # how each value is computed: (operation, left, right), terms, or None for a size
        self._slots: dict[Any, Any] = {}  # constants and polynomials met before -> their slots, their Sizes
        self._least: list[int | None] = []  # for each value its least one at any sizes, if that is known
        self.present: list[Number] = []  # the values now
        self._guards: list[Guard] = []
        self.asked: set[Any] = set()  # comparisons and results that were seen, by operation and operands
        self.results: dict[Any, Any] = {}
        self.avals: dict[Any, SizedAval] = {}
        self.memo: dict[Any, Any] = {}  # what was traced for these avals
        self.free = [self._new(number, None, 2 if k < n_extents else None, None) for k, number in enumerate(numbers)]

    def _new(self, value: Number, made: Any, least: int | None, terms: Terms | None) -> Size:
        slot = len(self._made)
        self._made.append(made)
        self.present.append(value)
        self._least.append(least)
        return Size(self, value, slot, least, {(slot,): 1} if terms is None and type(value) is int else terms)

    def close(self) -> None:
        """No more is noted: from now on a Size is a number like any other."""
        if self.is_open:
            self.is_open = False
            opened.all.remove(self)
        self.avals, self.memo, self._slots, self.results, self.asked, self.free = {}, {}, {}, {}, set(), []

    def __len__(self) -> int:
        return len(self._guards)

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """What was computed for a key with sizes in it, at its first use."""
        known = key_of(key)
        try:
            hash(known)
        except TypeError:  # an unhashable parameter
            return compute()
        if known not in self.memo:
            self.memo[known] = compute()
        return self.memo[known]

    # -- values -------------------------------------------------------------------------------------------------------

    def _slot(self, value: Any) -> int:
        """The slot of a value; that of a constant is given to it here."""
        if type(value) is Size:
            return value.slot
        key = (None, type(value), value)
        found = self._slots.get(key)
        if found is None:
            found = self._slots[key] = self._new(value, ("constant", value), None, None).slot
        return found

    def computed(self, operation: Callable[[Any, Any], Any], left: Any, right: Any, value: Number) -> Any:
        """The result of an operation on sizes and numbers: the one from before, if it is the same."""
        combine = POLYNOMIALS.get(operation)
        if combine is None or type(value) is not int:
            if operation is operator.floordiv and type(right) is int and right == 1 and type(left.value) is int:
                return left
            made = (operation, self._slot(left), self._slot(right))
            return self._new(value, made, _least_quotient(operation, left, right), None)
        terms = combine(
            left.terms if type(left) is Size else {(): left}, right.terms if type(right) is Size else {(): right}
        )
        key = tuple(sorted([term for term in terms.items() if term[1]]))
        if not key or (len(key) == 1 and not key[0][0]):
            return value
        found = self._slots.get(key)
        if found is None:
            found = self._slots[key] = self._polynomial(key, value)
        return found

    def _polynomial(self, key: tuple[tuple[tuple[int, ...], int], ...], value: Number) -> Size:
        """The size with these terms. The sum of one size times 1 keeps that size's slot."""
        terms = dict(key)
        if len(key) == 1 and len(key[0][0]) == 1 and key[0][1] == 1:
            slot = key[0][0][0]
            return Size(self, value, slot, self._least[slot], terms)
        least: int | None = 0
        for product, factor in key:
            part: int | None = factor if factor > 0 else None
            for known in [self._least[slot] for slot in product]:
                part = None if part is None or known is None or known < 0 else part * known
            least = None if part is None or least is None else least + part
        return self._new(value, terms, least, terms)

    # -- guards -------------------------------------------------------------------------------------------------------

    def note(self, compare: Callable[[Any, Any], Any], left: Size, right: Any, answer: bool) -> None:
        """Note a comparison and its answer, unless that follows from the least value."""
        least = left.least
        known = least is not None and type(right) is not Size
        if known and (right <= least if compare in (operator.ge, operator.lt) else right < least):
            return
        self._guards.append(Guard(compare, left.slot, self._slot(right), answer))

    def at(self, numbers: Sequence[Number]) -> Values | None:
        """The values at other sizes; None where a guard does not hold."""
        values = Values(self._made, numbers)
        try:
            for compare, left, right, answer in self._guards:
                if compare(values[left], values[right]) is not answer:
                    return None
        except (ZeroDivisionError, OverflowError, ValueError):
            return None
        return values

    def describe(self) -> list[str]:
        """The guards in words."""
        return [
            f"{'' if answer else 'not '}{self._text(left)} {WORDS[compare]} {self._text(right)}"
            for compare, left, right, answer in self._guards
        ]

    def _text(self, slot: int) -> str:
        made = self._made[slot]
        if made is None:
            return f"s{slot}"
        if type(made) is dict:
            terms = [("*".join([str(f)] * (f != 1 or not p) + [self._text(x) for x in p])) for p, f in made.items()]
            return f"({' + '.join(terms)})"
        if made[0] == "constant":
            return str(made[1])
        return f"({self._text(made[1])} {WORDS[made[0]]} {self._text(made[2])})"


def _least_quotient(operation: Any, left: Any, right: Any) -> int | None:
    """The least value of a quotient or rest that is not negative."""
    if operation is operator.floordiv and type(left) is Size and left.least is not None and type(right) is int:
        return left.least // right if right > 0 <= left.least else None
    return 0 if operation is operator.mod and type(right) is int and right > 0 else None


def _number(other: Any) -> Any:
    """The value of an operand; None if it is no number."""
    if type(other) is Size:
        return other.value
    if isinstance(other, np.integer | np.floating):
        return other.item()
    return other if isinstance(other, int | float) else None


def _of_array(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """An operation with an array of NumPy's, which takes the number."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return operation(*[side.known() if type(side) is Size else side for side in (left, right)])
    return NotImplemented


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        kind, guards = type(other), self.guards
        if kind is int:
            value, key = other, (compare, self.slot, None, other)
        else:
            value = _number(other)
            if value is None:
                return _of_array(compare, self, other)
            if kind is Size and other.guards.is_open and not guards.is_open:
                return REFLECTED[compare](other, self.value)
            ours = kind is Size and other.guards is guards
            key = (compare, self.slot, other.slot) if ours else (compare, self.slot, type(value), value)
            if ours and other.slot == self.slot:
                return compare(0, 0)
        answer = compare(self.value, value)
        if guards.is_open and key not in guards.asked:
            guards.asked.add(key)
            guards.note(compare, self, other if len(key) == 3 else value, answer)
        return answer

    return method


def _arithmetic(operation: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def method(self: Any, other: Any) -> Any:
        kind, guards = type(other), self.guards
        if not guards.is_open:
            value = other if kind is Size and other.guards.is_open else _number(other)
            return _of_array(operation, self, other) if value is None else operation(self.value, value)
        if kind is int:
            value, key = other, (operation, self.slot, None, other)
        else:
            value = _number(other)
            if value is None:
                return _of_array(operation, self, other)
            ours = kind is Size and other.guards is guards
            key = (operation, self.slot, other.slot) if ours else (operation, self.slot, type(value), value)
            other = other if ours else value
        found = guards.results.get(key)
        if found is None:
            found = guards.results[key] = guards.computed(operation, self, other, operation(self.value, value))
        return found

    def reflected(self: Any, other: Any) -> Any:
        value, guards = _number(other), self.guards
        if value is None:
            return _of_array(operation, other, self)
        if not guards.is_open:
            return operation(value, self.value)
        key = (operation, type(value), value, self.slot)
        found = guards.results.get(key)
        if found is None:
            found = guards.results[key] = guards.computed(operation, value, self, operation(value, self.value))
        return found

    return method, reflected


_rounded_up, _ = _arithmetic(round_up)
_rounded_down, _ = _arithmetic(round_down)


class Size:
    """A number that follows from sizes. It is no ``int``: whoever needs the number itself asks, and that is noted."""

    __slots__ = ("guards", "least", "slot", "terms", "value")

    def __init__(self, guards: Guards, value: Number, slot: int, least: int | None, terms: Terms | None) -> None:
        self.guards, self.value, self.slot = guards, value, slot
        self.least = least  # at any sizes, if that is known
        self.terms: Any = terms  # of a whole number

    @property
    def python_type(self) -> type:
        return type(self.value)

    def known(self) -> Any:
        """The number, for a decision that holds for no other one."""
        guards, key = self.guards, (operator.eq, self.slot, None, self.value)
        if guards.is_open and key not in guards.asked:
            guards.asked.add(key)
            guards.note(operator.eq, self, self.value, True)
        return self.value

    def __index__(self) -> int:
        return operator.index(self.known())

    def __int__(self) -> int:
        return int(self.known())

    def __float__(self) -> float:
        return float(self.known())

    __array_priority__ = 1001  # NumPy's numbers leave arithmetic to it

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.known(), dtype)

    def __hash__(self) -> int:
        return hash(self.value)  # as its number's, so that sets compare the two (``__eq__``), which notes a guard

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return repr(self.known())

    def __format__(self, spec: str) -> str:
        return format(self.known(), spec)

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __ceil__(self) -> Any:
        return self if isinstance(self.value, int) else _rounded_up(self, 1)

    def __floor__(self) -> Any:
        return self if isinstance(self.value, int) else _rounded_down(self, 1)

    def __trunc__(self) -> int:
        return int(self)

    def __round__(self, digits: int | None = None) -> Any:
        return self if isinstance(self.value, int) else round(self.known(), digits)

    def __and__(self, other: Any) -> Any:
        return operator.index(self) & other

    def __lshift__(self, other: Any) -> Any:
        return operator.index(self) << other

    def __rshift__(self, other: Any) -> Any:
        return operator.index(self) >> other

    __rand__ = __and__

    def __reduce__(self) -> Any:
        return (lambda value: value), (self.known(),)

    def bit_length(self) -> int:
        bits = abs(int(self.value)).bit_length()
        within = (1 << bits >> 1) <= abs(self) < 1 << bits  # noted: all such numbers have as many bits
        assert within
        return bits

    def item(self) -> Any:
        return self

    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __add__, __radd__ = _arithmetic(operator.add)
    __sub__, __rsub__ = _arithmetic(operator.sub)
    __mul__, __rmul__ = _arithmetic(operator.mul)
    __floordiv__, __rfloordiv__ = _arithmetic(operator.floordiv)
    __truediv__, __rtruediv__ = _arithmetic(operator.truediv)
    __mod__, __rmod__ = _arithmetic(operator.mod)
    __pow__, __rpow__ = _arithmetic(operator.pow)


class SizedAval:
    """The type of an array whose extents are sizes: what a ``ShapedArray`` with such a shape is.

    Native code must not read it: it would see the present sizes, and note no guard.
    """

    __slots__ = ("__weakref__", "_nbytes", "_size", "dtype", "hint", "shape")

    def __init__(self, hint: ShapedArray, shape: tuple[Any, ...]) -> None:
        self.hint = hint  # the type at the present sizes
        self.shape, self.dtype = shape, hint.dtype
        self._size: Any = None
        self._nbytes: Any = None

    @property
    def size(self) -> Any:
        if self._size is None:
            size: Any = 1
            for extent in self.shape:
                size = size * extent
            self._size = size
        return self._size

    @property
    def nbytes(self) -> Any:
        if self._nbytes is None:
            self._nbytes = self.size * self.itemsize
        return self._nbytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.hint.itemsize

    @property
    def weak_type(self) -> bool:
        return self.hint.weak_type

    @property
    def explicit_sharding(self) -> Any:
        return self.hint.explicit_sharding

    @property
    def sharding(self) -> Any:
        return self.hint.sharding

    @property
    def memory_space(self) -> Any:
        return self.hint.memory_space

    @property
    def varying(self) -> tuple[Any, ...]:
        return self.hint.varying

    def update(self, **fields: Any) -> Any:
        """This type with some fields replaced."""
        shape = fields.pop("shape", self.shape)
        if shape is not self.shape:
            fields.setdefault("sharding", None)
        hint = self.hint.update(shape=tuple(map(present, shape)), **fields)
        return _sized(hint, tuple(shape))

    def strip_weak_type(self) -> Any:
        return self.update(weak_type=False) if self.weak_type else self

    def str_short(self, short_dtypes: bool = True, mesh_axis_types: bool = False) -> str:
        return self.hint.str_short(short_dtypes, mesh_axis_types)

    def __repr__(self) -> str:
        return repr(self.hint)

    def __str__(self) -> str:
        return str(self.hint)


def present(number: Any) -> Any:
    """A number at the present sizes, without a note: for texts and for what is made anew at other sizes."""
    return number.value if type(number) is Size else number


def plain_aval(aval: Any) -> Any:
    """A type at the present sizes."""
    return aval.hint if type(aval) is SizedAval else aval


def whole(value: Any) -> Any:
    """A whole number: a Size as it is, others as a Python int. TypeError for what is none."""
    return value if type(value) is Size else operator.index(value)


def number(size: Any) -> Any:
    """The plain number, because machine code will contain it: noted as a decision for this number alone."""
    return size.known() if type(size) is Size else size


def fixed(value: Any) -> Any:
    """A tree of records and tuples with numbers instead of sizes, as machine code has them."""
    kind = type(value)
    if kind is Size:
        return value.known()
    if isinstance(value, Record):
        names = kind._fields
        made = {name: new for name in names if (new := fixed(old := getattr(value, name))) is not old}
        return value.replace(**made) if made else value
    if not isinstance(value, tuple):
        return value
    items = [fixed(item) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    return tuple(items) if kind is tuple else tuple.__new__(kind, items)


def _sized(hint: ShapedArray, shape: tuple[Any, ...]) -> Any:
    """The type with this shape: one object for each, as of a ShapedArray."""
    guards = next((n.guards for n in shape if type(n) is Size and n.guards.is_open), None)
    if guards is None:
        return hint
    key = (hint, tuple([(n.slot if n.guards is guards else -1) if type(n) is Size else -1 for n in shape]))
    found = guards.avals.get(key)
    if found is None:
        found = guards.avals[key] = SizedAval(hint, shape)
    return found


def _make(
    shape: Iterable[Any], dtype: Any, weak_type: bool = False, sharding: Any = None, memory_space: Any = None,
    varying: tuple[Any, ...] = (),
) -> Any:  # fmt: skip
    """What ``ShapedArray`` is where an extent is a Size."""
    extents = tuple(shape)
    hint = ShapedArray(tuple(map(present, extents)), dtype, weak_type, sharding, memory_space, varying)
    return _sized(hint, extents)


def _scalar_aval(size: Size) -> ShapedArray:
    """The type of a size among operands: that of such a number."""
    return avals.pytype_avals[type(size.value)](size)


runtime.install_sizes(Size, _make)
avals.pytype_avals[Size] = _scalar_aval


def keeper(key: Any) -> Guards | None:
    """The compilation under way that keeps what is computed for a key, if the key may have sizes in it.

    No cache of the process keeps that: another compilation would find it, whose sizes have the same numbers.
    """
    return opened.all[-1] if opened.all and _may_hold_sizes(key) else None


def _may_hold_sizes(value: Any) -> bool:
    kind = type(value)
    if kind is Size or kind is SizedAval:
        return True
    if isinstance(value, tuple):
        return any(map(_may_hold_sizes, value))
    if isinstance(value, Record):
        return any(_may_hold_sizes(getattr(value, name)) for name in kind._fields)
    return kind is runtime.PyTreeDef and has_own_nodes(value)


def has_own_nodes(tree: Any) -> bool:
    """Whether a structure has a node of a class of its own, such as a sparse matrix, which keeps its shape there."""
    node = tree.node_data()
    if node is None:
        return False
    return not issubclass(node[0], tuple | list | dict | type(None)) or any(map(has_own_nodes, tree.children()))


def key_of(value: Any) -> Any:
    """A tree of tuples as a key in which sizes count by what they are, not by their present number."""
    if type(value) is Size:
        return (Size, value.slot)
    return tuple(map(key_of, value)) if isinstance(value, tuple) else (type(value), value)


def is_sized(value: Any) -> bool:
    """Whether a number or a type, or one in a tuple, follows from sizes."""
    kind = type(value)
    return kind is Size or kind is SizedAval or (isinstance(value, tuple) and any(map(is_sized, value)))


def cached(maxsize: int) -> Callable[[Callable[..., Any]], Any]:
    """As ``functools.lru_cache``; what is asked with sizes is computed anew, as it belongs to one compilation."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        found = functools.lru_cache(maxsize)(function)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(*args) if any(map(is_sized, args)) else found(*args)

        return call

    return decorated

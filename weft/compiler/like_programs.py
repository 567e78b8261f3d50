"""Programs of user's functions that are like one compiled before but for their sizes: from numbers, without the passes.

A function is traced for every shape, since its Python may do anything with extents; what it records may still be what
it recorded before, at other sizes. Two programs are *like* each other if their equations, parameters and literals are
equal (and what uses one literal in one does in the other), and the same ones of their extents are equal or 1. Literals
that are extents, like the divisor of a mean, may differ too. The second is then a member of the first one's family
(``other_sizes``).

    { a:f32[300]. b:f32[300] = mul a 2.0 in (b,) }    is like    { a:f32[301]. b:f32[301] = mul a 2.0 in (b,) }
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple
from weft.compiler.context import Context
from weft.core import fingerprint, kinds
from weft.core.index_maps import CONSTANT
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from weft.core.store import PROGRAMS
from weft.dispatch.programs.executables import Runnable

# Counts are not among them: the compiler knows that a count is below an extent.
_ALLOWED = (
    kinds.Elementwise, kinds.Reduction, kinds.Identity, kinds.View, kinds.Contraction, kinds.Cumulative, kinds.Reshape,
    kinds.Gather, kinds.Scatter,
)  # fmt: skip
_TYPES_BYTES = 900  # measured: the types of a program, and what compiles the rest of it
_MOST_EQUATIONS = 200  # equations of a program: longer ones are hardly ever alike
_SMALL, _LARGE = 16, 1 << 40  # other numbers are not taken for extents
_EXTENTS = frozenset(("shape", "new_sizes", "slice_sizes", "limit_indices"))  # parameters that are extents

# what like programs have in common; their distinct extents, those of the operands first; literals that follow from them
Key = tuple[Any, tuple[int, ...], tuple[Any, ...]]


def key_of(closed: ClosedJaxpr, name: str, within: Context) -> Key | None:
    """The key of a program; None if it is like no other."""
    if closed.consts or len(closed.jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    found = runtime.size_class(tuple(closed.in_avals), True)
    if found is None:
        return None
    writer = _Writer({size: place for place, size in enumerate(found[1])})
    written = writer.program(closed.jaxpr)
    if written is None:
        return None
    key = (("like", name, found[0], written), (), within.key)  # with the fields of a ProgramKey
    return key, tuple(writer.places), tuple(writer.values)


class _Known(NamedTuple):
    """A number that the compiler knows, and whether it follows from extents."""

    value: Any
    of_extents: bool


def _folded(equation: JaxprEqn, known: Sequence[Any]) -> _Known | None:
    """The result of known numbers: it follows from extents as they do if the operation is linear, or is fixed."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Elementwise):
        return known[0]
    with np.errstate(all="ignore"):
        value = kind.reference(*[number.value for number in known], **equation.params)
    follows = any(number.of_extents for number in known) and equation.primitive.transpose is not None
    return _Known(np.asarray(value), follows)


class _Writer:
    """Writes programs as tuples that are equal for like ones."""

    def __init__(self, places: dict[int, int]) -> None:
        self.places = places
        self.params = fingerprint.params_text
        self.literals: dict[int, int] = {}  # those met, by identity: uses of one share a parameter of the kernel
        self.values: list[Any] = []  # those that follow from extents
        self.freed: set[int] = set()  # these, by identity
        self.folded: dict[Any, _Known | None] = {}  # of variables: see ``known``

    def program(self, jaxpr: Jaxpr) -> tuple[Any, ...] | None:
        if jaxpr.effects or jaxpr.constvars:
            return None
        numbers: dict[Any, int] = {}
        for variable in jaxpr.invars:
            numbers[variable] = len(numbers)
        lines = []
        for equation in jaxpr.eqns:
            operands = tuple([self.atom(x, numbers) for x in equation.invars])
            what = self.operation(equation)
            if what is None:
                return None
            for variable in equation.outvars:
                numbers[variable] = len(numbers)
            lines.append((what, operands, tuple([self.type(v.aval) for v in equation.outvars])))
        return (*lines, tuple([self.atom(x, numbers) for x in jaxpr.outvars]))

    def operation(self, equation: JaxprEqn) -> Any:
        """What an equation does, without its operands and types; None if the program is like no other."""
        kind, params = equation.primitive.kind, equation.params
        known = [self.known(atom) for atom in equation.invars]
        if isinstance(kind, kinds.Higher):
            return self.called(equation, kind.inline(params), known)
        is_sort = isinstance(kind, kinds.External) and kind.ordering is not None
        expands = isinstance(kind, kinds.Resolve) and kind.at_any_size is not None
        if not (is_sort or expands or isinstance(kind, _ALLOWED)):
            return None
        if isinstance(kind, (kinds.Gather, kinds.Scatter)) and known[1] is not None:
            return None  # places that are known to be below an extent
        follows = any(number is not None and number.of_extents for number in known)
        number = None
        if None not in known and isinstance(kind, (kinds.Elementwise, kinds.View, kinds.Reshape)):
            number = self.folded[equation.outvars[0]] = _folded(equation, known)
            if number is not None and number.of_extents and number.value.dtype.kind in "iuf":
                self.values.append(number.value.item())
        # if no linear operation, its result need not follow from another extent in the same way
        if follows and equation.primitive.transpose is None and number is None:
            return None
        result = () if number is None or number.of_extents else number.value.tobytes()
        extents = [(name, self.extents(params[name])) for name in _EXTENTS if type(params.get(name)) is tuple]
        others = {name: value for name, value in params.items() if name not in _EXTENTS} if extents else params
        return equation.primitive, self.params(equation.primitive, others) if others else "", result, *extents

    def called(self, equation: JaxprEqn, inner: ClosedJaxpr | None, known: Sequence[_Known | None]) -> Any:
        """The program that an equation calls."""
        if inner is None or inner.consts:
            return None
        for variable, found in zip(inner.jaxpr.invars, known, strict=True):
            self.folded[variable] = found  # also None: of an earlier call it may have been a number
        written = self.program(inner.jaxpr)
        for variable, atom in zip(equation.outvars, inner.jaxpr.outvars, strict=True):
            self.folded[variable] = self.known(atom)
        return written

    def known(self, atom: Any) -> _Known | None:
        """The number that an atom is, in all of its elements; None if the compiler does not know it."""
        if type(atom) is not Literal:
            return self.folded.get(atom)
        return _Known(np.asarray(atom.val, atom.aval.dtype), id(atom) in self.freed)

    def extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of every extent its place among the distinct ones; -1 and -2 for 0 and 1."""
        places = self.places
        return tuple([places.setdefault(n, len(places)) if n > 1 else n - 2 for n in shape])

    def type(self, aval: Any) -> tuple[Any, ...]:
        return aval.dtype, aval.weak_type, self.extents(aval.shape)

    def atom(self, atom: Any, numbers: dict[Any, int]) -> Any:
        if type(atom) is not Literal:
            return numbers[atom]
        number = self.literals.setdefault(id(atom), len(self.literals))
        value = atom.val.item() if isinstance(atom.val, (np.ndarray, np.generic)) else atom.val
        if self.is_of_extents(value):
            self.values.append(value)
            self.freed.add(id(atom))
            return "of extents", number, self.type(atom.aval)
        return fingerprint.literal_bits(atom), number, self.type(atom.aval)

    def is_of_extents(self, value: Any) -> bool:
        """Whether a large number may be an extent, about one, a product of two, or the inverse of one of these."""
        size = abs(value) if type(value) in (int, float) else 0
        if 0 < size <= 1 / _SMALL and size * _LARGE > 1:
            size = round(1 / size)
        if not _SMALL <= size < _LARGE or size != int(size):
            return False
        near = any(abs(size - n) <= 1 for n in self.places)  # one less: degrees of freedom
        return near or any(size % n == 0 and size // n in self.places for n in self.places)


def find(key: Key, closed: ClosedJaxpr, name: str, compile_new: Callable[[], Any]) -> Runnable | None:
    """The program from a like one; None: it has to be compiled."""
    start = time.perf_counter()
    family = PROGRAMS.entries.get(key[0])
    made = None if family is None else family.at(key[1], tuple(closed.in_avals), key[2])
    if family is None or made is None:
        return None
    executable, out_avals = made
    program = later(closed, name, executable, out_avals, compile_new)
    program.milliseconds = {"sizes": (time.perf_counter() - start) * 1e3}
    program.kernels_reused = 1
    family.joined(program)
    return program


def later(
    closed: ClosedJaxpr, name: str, executable: Any, out_avals: Sequence[Any], compile_new: Callable[[], Any],
    consts: tuple[Any, ...] = (), nbytes: int = 0,
) -> Runnable:  # fmt: skip
    """A program that runs at once, and is compiled when its forms are asked for. ``nbytes``: of consts and steps."""
    program = Runnable(executable, consts, _TYPES_BYTES + nbytes)
    program.source, program.name, program.compile_new = closed, name, compile_new
    program.in_avals, program.out_avals = tuple(closed.in_avals), tuple(out_avals)
    program.donated = (False,) * len(program.in_avals)
    return program


def learn(key: Key, program: Any) -> None:
    """Keep what a compiled program says of those that are like it."""
    family = PROGRAMS.entries.get(key[0])
    if family is None:
        family = program.family(program.out_avals)
        family.turns = not _are_aligned(program.source.jaxpr)
        PROGRAMS.add(key[0], family)
    family.joined(program)
    family.learn(program, key[1], key[2])


def _are_aligned(jaxpr: Jaxpr) -> bool:
    """Whether views keep the order of dimensions: how far elements of a transpose lie apart decides about fusion."""
    for equation in jaxpr.eqns:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Higher):
            inner = kind.inline(equation.params)
            if inner is not None and not _are_aligned(inner.jaxpr):
                return False
        elif isinstance(kind, kinds.View):
            uses = kind.index_map(equation.invars[0].aval, equation.outvars[0].aval, equation.params)
            axes = [use.axis for use in uses if use.axis != CONSTANT]
            if axes != sorted(axes):
                return False
    return True

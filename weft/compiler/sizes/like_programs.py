"""Programs that differ from one compiled before in their sizes alone.

A user's function is traced for every shape, since its Python may do anything with extents. It may still record what it
recorded before, at other sizes. Two programs are *like* each other if their equations, parameters and literals are
equal (literals that operations of one share are shared in the other), and if extents that are equal to each other, or
1, in one are so in the other. Literals that may be extents, like the divisor of a mean, may differ too. The second is
then a member of the first one's family (``other_sizes``).

    { a:f32[300]. b:f32[300] = mul a 2.0 in (b,) }    is like    { a:f32[301]. b:f32[301] = mul a 2.0 in (b,) }
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft._base.record import NamedTuple
from weft.compiler.context import Context
from weft.compiler.storage import stored_families
from weft.core import kinds
from weft.core.caches import fingerprint
from weft.core.caches.store import PROGRAMS
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from weft.core.symbolic import sized_programs, sizes
from weft.core.symbolic.sized_programs import Sized
from weft.dispatch.programs.executables import Runnable

_TYPES_BYTES = 900  # measured: the types of a program, and what compiles the rest of it
_MOST_EQUATIONS = 200  # equations of a program: longer ones are hardly ever alike
_SMALL, _LARGE = 16, 1 << 40  # other numbers are not taken for extents


class Like(NamedTuple):
    """``key``: what like programs have in common; ``extents`` (operands first), ``literals``: the sizes of this one."""

    key: Any
    extents: tuple[int, ...]
    literals: tuple[Any, ...]

    @property
    def text(self) -> str | None:
        """The program in words that mean the same in every process; None if there are none."""
        _, name, _, written = self.key[0]
        text = f"{name} {written}"
        return None if "#" in text else text


def key_of(closed: ClosedJaxpr, name: str, shared: Any, within: Context) -> Like | None:
    """The key of a program; None if it is like no other. ``shared``: which operands it may write to or return."""
    if closed.consts or len(closed.jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    found = sized_programs.size_class(tuple(closed.in_avals), True)
    if found is None:
        return None
    writer = _Writer({size: number for number, size in enumerate(found[1])})
    try:
        written = writer.program(closed.jaxpr)
    except _UnlikeAnyError:
        return None
    key = (("like", name, found[0], written), shared, within.key)  # with the fields of a ProgramKey
    return Like(key, tuple(writer.extent_numbers), tuple(writer.values))


class _UnlikeAnyError(Exception):
    """A program has something that is not compared."""


class _Writer:
    """Writes programs as tuples that are equal for like ones."""

    def __init__(self, extent_numbers: dict[int, int]) -> None:
        self.extent_numbers = extent_numbers
        self.params = fingerprint.params_text
        self.literals: dict[int, int] = {}  # those met, by identity: uses of one share a parameter of the kernel
        self.values: dict[Any, int] = {}  # those that may be extents, and their numbers

    def program(self, jaxpr: Jaxpr) -> tuple[Any, ...]:
        if jaxpr.effects or jaxpr.constvars:
            raise _UnlikeAnyError
        numbers: dict[Any, int] = {}
        for variable in jaxpr.invars:
            numbers[variable] = len(numbers)
        lines = []
        for equation in jaxpr.eqns:
            operands = tuple([self.atom(x, numbers) for x in equation.invars])
            what = self.operation(equation)
            for variable in equation.outvars:
                numbers[variable] = len(numbers)
            lines.append((what, operands, tuple([self.type(v.aval) for v in equation.outvars])))
        types = tuple([self.type(v.aval) for v in jaxpr.invars])
        return (types, *lines, tuple([self.atom(x, numbers) for x in jaxpr.outvars]))

    def operation(self, equation: JaxprEqn) -> Any:
        """What an equation does, without its operands and types."""
        if isinstance(equation.primitive.kind, kinds.Opaque | kinds.Effect | kinds.Exchange):
            raise _UnlikeAnyError
        found, others = [], {}
        for name, value in equation.params.items():
            written = self.param(name, value)
            if written is None:
                others[name] = value
            else:
                found.append((name, written))
        name = fingerprint.primitive_name(equation.primitive)
        return name, self.params(equation.primitive, others) if others else "", *found

    def param(self, name: str, value: Any) -> Any:
        """A parameter that has extents or programs in it; None for others."""
        if isinstance(value, ClosedJaxpr):
            if value.consts:
                raise _UnlikeAnyError
            return self.program(value.jaxpr)
        if isinstance(value, Jaxpr):
            return self.program(value)
        if name in sized_programs.EXTENTS:
            if type(value) is int:
                return self.extents((value,))
            return self.extents(value) if type(value) is tuple and all(type(n) is int for n in value) else None
        if type(value) is tuple and value and all(isinstance(part, ClosedJaxpr | Jaxpr) for part in value):
            return tuple([self.param("", part) for part in value])
        return None

    def extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The number of each extent among the distinct ones; -2 and -1 for 0 and 1."""
        known = self.extent_numbers
        return tuple([known.setdefault(n, len(known)) if n > 1 else n - 2 for n in shape])

    def type(self, aval: Any) -> tuple[Any, ...]:
        if type(aval) is not runtime.ShapedArray or aval.varying or aval.explicit_sharding or aval.memory_space:
            raise _UnlikeAnyError
        return fingerprint.DTYPE_NAMES[aval.dtype], aval.weak_type, self.extents(aval.shape)

    def atom(self, atom: Any, numbers: dict[Any, int]) -> Any:
        if type(atom) is not Literal:
            return numbers[atom]
        number = self.literals.setdefault(id(atom), len(self.literals))
        value = sized_programs.plain_value(atom)
        if is_of_extents(value, self.extent_numbers):
            which = self.values.setdefault((type(value), value), len(self.values))
            return "of extents", which, number, self.type(atom.aval)
        return fingerprint.literal_bits(atom), number, self.type(atom.aval)


def is_of_extents(value: Any, extents: dict[int, int]) -> bool:
    """Whether a large number may be an extent, about one, a product of two, or the inverse of one of these."""
    size = abs(value) if type(value) in (int, float) else 0
    if 0 < size <= 1 / _SMALL and size * _LARGE > 1:
        size = round(1 / size)
    if not _SMALL <= size < _LARGE or size != int(size):
        return False
    near = any(abs(size - n) <= 1 for n in extents)  # one less: degrees of freedom
    return near or any(size % n == 0 and size // n in extents for n in extents)


def with_symbols(closed: ClosedJaxpr, like: Like) -> Sized:
    """The program with symbols for its sizes; the guards are open."""
    guards = sizes.Guards(values_of(like), len(like.extents))
    symbols = dict(zip(like.extents, guards.free, strict=False))
    literals = dict(zip(like.literals, guards.free[len(like.extents) :], strict=True))
    try:
        return Sized(ClosedJaxpr(sized_programs.ToSymbols(symbols, literals).program(closed.jaxpr), ()), guards)
    except BaseException:
        guards.close()
        raise


def find(
    like: Like, closed: ClosedJaxpr, name: str, donated: tuple[bool, ...], compile_new: Callable[[], Any]
) -> Runnable | None:
    """The program from a like one; None: it has to be compiled."""
    start = time.perf_counter()
    family = PROGRAMS.entries.get(like.key)
    made = None if family is None else family.at(values_of(like), tuple(closed.in_avals))
    if family is None or made is None:
        return None
    executable, out_avals, member = made
    program = later(closed, name, executable, out_avals, compile_new)
    program.sized, program.donated = member, donated
    program.milliseconds = {"sizes": (time.perf_counter() - start) * 1e3}
    program.kernels_loaded, program.kernels_reused, member.n_loaded = member.n_loaded, int(not member.n_loaded), 0
    family.joined(program)
    return program


def values_of(like: Like) -> list[Any]:
    return [*like.extents, *[value for _, value in like.literals]]


def later(
    closed: ClosedJaxpr, name: str, executable: Any, out_avals: Sequence[Any], compile_new: Callable[[], Any],
    consts: tuple[Any, ...] = (), nbytes: int = 0,
) -> Runnable:  # fmt: skip
    """A program that runs the code of a like one, and is compiled only when its texts are asked for.

    ``nbytes``: those of consts and steps."""
    program = Runnable(executable, consts, _TYPES_BYTES + nbytes)
    program.source, program.name, program.compile_new = closed, name, compile_new
    program.in_avals, program.out_avals = tuple(closed.in_avals), tuple(out_avals)
    program.donated = (False,) * len(program.in_avals)
    return program


def load(like: Like, wanted: Any, name: str, within: Context) -> bool:
    """Read like programs of other processes from disk, if this one knows none; whether there are some."""
    family = None
    if wanted.family is not None and like.key not in PROGRAMS.entries:
        family = stored_families.find(wanted.family, name, within)
    if family is not None:
        PROGRAMS.add(like.key, family)
    return family is not None


def learn(like: Like, program: Any) -> bool:
    """Keep what a compiled program says of those that are like it; whether that is anything new."""
    family = PROGRAMS.entries.get(like.key)
    if family is None:
        family = program.family()
        PROGRAMS.add(like.key, family)
    family.joined(program)
    return family.learn(program)

"""Programs of user's functions that are like one compiled before but for their sizes: from numbers, without the passes.

A function is traced for every shape, since its Python may do anything with extents; what it records may still be what
it recorded before, at other sizes. Two programs are *like* each other if their equations, parameters and literals are
equal (and what uses one literal in one does in the other), and every extent in them is the same one among the distinct
extents of the operands, or the same number. The second is then a member of the first one's family (``other_sizes``),
if that is one kernel or product.

    { a:f32[300]. b:f32[300] = mul a 2.0 in (b,) }    is like    { a:f32[301]. b:f32[301] = mul a 2.0 in (b,) }
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from weft import config, runtime
from weft.core import fingerprint, kinds
from weft.core.index_maps import CONSTANT
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from weft.core.store import PROGRAMS

_ALLOWED = (kinds.Elementwise, kinds.Reduction, kinds.Identity, kinds.View, kinds.Contraction)
_MOST_EQUATIONS = 40  # of a program: longer ones are hardly ever one kernel

Key = tuple[Any, tuple[int, ...]]  # what like programs have in common; the distinct extents of the operands


def key_of(closed: ClosedJaxpr, name: str) -> Key | None:
    """The key of a program; None if it is like no other."""
    if closed.consts or len(closed.jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    found = runtime.size_class(tuple(closed.in_avals))
    if found is None:
        return None
    sizes = found[1]
    written = _Writer({size: place for place, size in enumerate(sizes)}).program(closed.jaxpr)
    if written is None:
        return None
    return (("like", name, found[0], written), (), config.token()), sizes  # with the fields of a ProgramKey


class _Writer:
    """Writes programs as tuples that are equal for like ones."""

    def __init__(self, places: dict[int, int]) -> None:
        self.places = places
        self.params = fingerprint.params_text
        self.literals: dict[int, int] = {}  # those met, by identity: uses of one share a parameter of the kernel

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
        if isinstance(kind, kinds.Higher):
            inner = kind.inline(params)
            return None if inner is None or inner.consts else self.program(inner.jaxpr)
        if not isinstance(kind, _ALLOWED):
            return None
        if not params:
            return equation.primitive
        if isinstance(kind, kinds.View):  # a parameter that is the shape of the result says nothing new
            shape = equation.outvars[0].aval.shape
            params = {name: "the shape" if value == shape else value for name, value in params.items()}
        return equation.primitive, self.params(equation.primitive, params)

    def type(self, aval: Any) -> tuple[Any, ...]:
        places = self.places
        return aval.dtype, aval.weak_type, tuple([places.get(n, ~n) for n in aval.shape])

    def atom(self, atom: Any, numbers: dict[Any, int]) -> Any:
        if type(atom) is not Literal:
            return numbers[atom]
        number = self.literals.setdefault(id(atom), len(self.literals))
        return fingerprint.literal_bits(atom), number, self.type(atom.aval)


def find(key: Key, closed: ClosedJaxpr, name: str, compile_new: Callable[[], Any]) -> LikeProgram | None:
    """The program from a like one; None: it has to be compiled."""
    start = time.perf_counter()
    family = PROGRAMS.entries.get(key[0])
    made = None if family is None else family.at(key[1], tuple(closed.in_avals))
    if made is None:
        return None
    return LikeProgram(closed, name, made, compile_new, (time.perf_counter() - start) * 1e3)


def learn(key: Key, program: Any) -> None:
    """Keep what a compiled program says of those that are like it."""
    family = PROGRAMS.entries.get(key[0])
    if family is None:
        family = program.family(program.out_avals)
        family.refuses = not _are_aligned(program.source.jaxpr)
        PROGRAMS.add(key[0], family)
    family.learn(program, key[1])


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


# attributes that a program made from a like one has when it is compiled
_OF_WHOLE = frozenset(
    ("compiled", "cost_analysis", "forms", "jaxpr", "kernels", "lowered", "memory_analysis", "nested", "nests", "plan",
     "stages", "text")
)  # fmt: skip


class LikeProgram:
    """A program made from a like one. What is not known of it (its forms, its plan) is compiled when asked for."""

    is_whole = False
    weight = 2000  # bytes, measured: an executable with its types

    def __init__(
        self, source: ClosedJaxpr, name: str, made: tuple[Any, Sequence[Any]], compile_new: Callable[[], Any],
        elapsed_ms: float,
    ) -> None:  # fmt: skip
        self.source, self.name, self._compile_new = source, name, compile_new
        self._whole: Any = None
        self.executable, self.out_avals = made
        self.in_avals = tuple(source.in_avals)
        self.consts: tuple[Any, ...] = ()
        self.donated = (False,) * len(self.in_avals)
        self.copied: frozenset[int] = frozenset()
        self.kernels_built = self.kernels_loaded = 0
        self.kernels_reused = 1
        self.counted = False
        self.keys: dict[Any, None] = {}
        self.stats = {
            "milliseconds": {"sizes": elapsed_ms}, "kernels_built": 0, "kernels_loaded": 0, "kernels_reused": 1,
        }  # fmt: skip

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in _OF_WHOLE:
            raise AttributeError(attribute)
        return getattr(self.whole(), attribute)

    def whole(self) -> Any:
        """The program with its plan, compiled now."""
        if self._whole is None:
            self._whole = self._compile_new()
        return self._whole

    def with_consts(self, closed: ClosedJaxpr) -> LikeProgram:
        """Itself: it has no constants."""
        del closed
        return self

    def uses(self) -> int:
        """The number of times it was started."""
        return self.executable.runs

    def retire(self) -> None:
        """Nothing to do: traces keep the programs that they run."""

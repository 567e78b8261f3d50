"""Programs at other sizes: from numbers, without passes, fusion and schedules.

A program is compiled with symbols for its sizes (``core.symbolic.sizes``); what the compiler asked about them are its
guards. At sizes where all of them hold, the plan is the same but for its numbers, which are computed (``templates``),
and the machine code has no sizes in it.

    add f32[300] f32[300], compiled    ->    the executable for f32[301] f32[301]: extents (301,), results of 1204 bytes

A *family* holds the programs of one structure: each serves the sizes of its guards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft import runtime
from weft._base import lazy
from weft.compiler import context
from weft.compiler.plans import link, steps
from weft.compiler.sizes import templates
from weft.core.caches.store import PROGRAMS, Entry
from weft.core.symbolic import sizes
from weft.core.symbolic.sized_programs import HiddenError
from weft.errors import InternalError

MOST_MEMBERS = 8  # programs of a family; where more were needed, guards fix single sizes, and a family has no use
_FAMILY_BYTES, _EQUATION_BYTES, _STEP_BYTES = 4000, 400, 3000  # measured: a family, and for each equation and each step


class Member:
    """A compiled program, and what makes executables of it for other sizes."""

    is_whole = True  # False: another process compiled it, and this one has outlines instead of nests
    n_loaded = 0  # kernels that came from disk with it, and that no program has counted

    def __init__(
        self, name: str, within: context.Context, plan: Any, guards: sizes.Guards, out_avals: Sequence[Any]
    ) -> None:
        self.name, self.within = name, within
        self.compiled: list[Any] = []  # the machine code, in the order of the plan
        self._by_nest: dict[Any, Any] = {}  # on a GPU, where launches may have others at other sizes
        self.plan, self.guards, self.out_avals = plan, guards, tuple(out_avals)
        self.serves = True  # other sizes too
        self._made: tuple[Any, Any] | None = None  # of plan and results, what gives them

    def keep(self, plan: steps.Plan, compiled: Sequence[Any]) -> None:
        """Take in the machine code of the plan at the sizes of the compilation."""
        self.compiled = list(compiled)
        if self.within.grid is not None:
            self._by_nest = dict(zip(_nests(plan), compiled, strict=True))

    def planned(self, numbers: Sequence[Any]) -> tuple[steps.Plan, tuple[Any, ...]] | None:
        """The plan and the types of results at these sizes; None where a guard does not hold."""
        values = self.guards.at(numbers) if self.serves else None
        if values is None:
            return None
        try:
            plan, out_avals = self.at(values)
            return self._launched(plan), out_avals
        except HiddenError:
            self.serves = False
        except steps.UnfitCellsError:
            pass
        return None

    def own(self, value: Any) -> Any:
        """A form of the program at the sizes of its compilation. Raises ``HiddenError``."""
        return templates.at(value, templates.template(value, self.guards), templates.At(self.guards.present))

    def at(self, values: sizes.Values) -> tuple[steps.Plan, tuple[Any, ...]]:
        """The plan and the types of results for these values, which hold the guards."""
        if self._made is None:
            plan, out_avals = [templates.template(v, self.guards, whole=False) for v in (self.plan, self.out_avals)]
            self._made = plan, out_avals
        known = templates.At(values)
        plan, out_avals = self._made
        return templates.at(self.plan, plan, known), templates.at(self.out_avals, out_avals, known)

    def _launched(self, plan: steps.Plan) -> steps.Plan:
        """The plan with launches, on a GPU."""
        within = self.within
        if within.grid is None:
            return plan
        plan_of = lazy.submodule("weft.compiler.pipeline").plan_of
        inner = functools.cache(functools.partial(plan_of, self.name, within._replace(in_blocks=False)))
        return lazy.submodule("weft.compiler.gpu.launches").launched(plan, inner, within.library)

    def executable(self, numbers: Sequence[Any], in_avals: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
        """(what runs the program at these sizes, the types of its results); None where the compiler has to make it."""
        found = self.planned(numbers)
        if found is None:
            return None
        plan, out_avals = found
        compiled: list[Any] = [self._by_nest.get(nest) for nest in _nests(plan)] if self._by_nest else self.compiled
        if None in compiled:
            return None
        made = link.instructions(plan, compiled, self._nested)
        executable = runtime.Executable(
            len(in_avals), plan.outputs, plan.temps, plan.arena_bytes, made, self.name, in_avals,
            self.within.device,
        )  # fmt: skip
        return executable, out_avals

    def _nested(self, inner: Any, donated: tuple[bool, ...]) -> Any:
        pipeline = lazy.submodule("weft.compiler.pipeline")
        compiled = pipeline.compile_jaxpr(inner, name=self.name, donated=donated, within=self.within)
        return compiled.executable, compiled.consts


class Family(Entry):
    """Programs that differ in their sizes only, each with its guards: an entry of a level of the cache."""

    __slots__ = ("found", "members", "users", "weight")

    def __init__(self, weight: int = _FAMILY_BYTES, members: Sequence[Member] = ()) -> None:
        self.weight = weight  # bytes
        self.members = list(members)
        self.keys = {}
        self.found = self.users = 0  # users: programs of functions

    def uses(self) -> int:
        return self.found

    def joined(self, program: Any) -> None:
        """A program of a function is a member."""
        program.kin = self
        self.users += 1

    def left(self, program: Any, release: Callable[[Any], None] = PROGRAMS.release) -> None:
        """It has gone; a family that had members and has none goes too. (At exit names of modules may be gone.)"""
        program.kin = None
        self.users -= 1
        if not self.users:
            release(self)

    def at(self, numbers: Sequence[Any], in_avals: Sequence[Any]) -> tuple[Any, tuple[Any, ...], Member] | None:
        """(the executable, the types of its results, the program) at these sizes; None: compile it."""
        if context.verifies():  # then ``learn`` compares
            return None
        for member in self.members:
            made = member.executable(numbers, in_avals)
            if made is not None:
                self.found += 1
                return *made, member
        return None

    def learn(self, program: Any, guards: sizes.Guards | None = None) -> bool:
        """Take in a program that was compiled with symbols, and whether it was.

        ``guards``: where others than these are its own, it is an equal program that was compiled before.
        """
        made: Member | None = program.sized
        if made is None or len(self.members) >= MOST_MEMBERS or (guards is not None and made.guards is not guards):
            return False
        if context.verifies() and self._is_known(program):
            return False
        self.members.append(made)
        return True

    def _is_known(self, program: Any) -> bool:
        """Whether a member serves its sizes. InternalError if it gives another plan than the compiler made."""
        numbers = program.sized.guards.numbers
        for member in self.members:
            found = member.planned(numbers) if member.is_whole else None
            if found is not None:
                if not are_equal(found[0], program.plan):
                    raise InternalError(
                        f"for extents {tuple(numbers)} a family gives {found[0].describe()}; the compiler made "
                        f"{program.plan.describe()}",
                        stage="other_sizes",
                        node=program.name,
                    )
                return True
        return False


def _nests(plan: steps.Plan) -> list[Any]:
    """What machine code is written for, and whether it is a GPU's."""
    nest_of = lazy.submodule("weft.compiler.pipeline").nest_of
    return [(nest, isinstance(e, steps.Launched)) for e in plan.instructions if (nest := nest_of(e)) is not None]


def weight_of(n_equations: int, n_steps: int) -> int:
    """The bytes of a family that learns a program."""
    return _FAMILY_BYTES + _EQUATION_BYTES * n_equations + (_STEP_BYTES * n_steps if n_steps > 1 else 0)


def are_equal(one: steps.Plan, other: steps.Plan) -> bool:
    """Whether two plans are the same but for their variables."""
    same = one.temps == other.temps and one.arena_bytes == other.arena_bytes and one.outputs == other.outputs
    same = same and len(one.instructions) == len(other.instructions)
    return same and all(map(_is_equal, one.instructions, other.instructions))


def _is_equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, steps.Run):
        return (one.operands, one.outer, *_call(one.lowered)) == (other.operands, other.outer, *_call(other.lowered))
    if isinstance(one, steps.Chain):
        same = (one.rows, one.block, one.nest) == (other.rows, other.block, other.nest)
        return same and all(map(_is_equal, one.runs, other.runs))
    if isinstance(one, steps.FusedEpilogue):
        return (one.product, one.form) == (other.product, other.form) and _is_equal(one.run, other.run)
    if isinstance(one, steps.Launched):
        return one.call == other.call
    if isinstance(one, steps.ByLibrary):
        return one.made == other.made
    if isinstance(one, steps.Control):
        return one.locations == other.locations
    if isinstance(one, steps.Native):
        return (one.locations, one.params()) == (other.locations, other.params())
    return one == other


def _call(low: Any) -> tuple[Any, ...]:
    return low.nest, low.extents, low.outer, low.params.block()

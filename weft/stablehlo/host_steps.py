"""Programs with host steps: what a plugin cannot run is cut out, and runs on the host between the compiled parts.

    a = sin(x)                    part 1, compiled by the plugin: x -> a
    b = pure_callback[f] a        host step: a is copied to the host, f called, b copied to the device
    c = b + a                     part 2: a, b -> c

Cut out are calls of Python functions (callbacks, ``debug.print``), and library calls that have no form in StableHLO or
only a slow one (eigenvalues, singular values). A
loop or branch that contains one is run by the host, step by step: its body is such a program itself. Effects happen in
the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.compiler import expansions
from weft.core import avals, kinds
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, joined_effects, subjaxprs
from weft.dispatch.calls import signature
from weft.dispatch.programs import device_programs
from weft.operations.data_movement import index
from weft.stablehlo import decompositions, module

# Their programs rotate one pair of columns after the other, 16 times all pairs: a device would need minutes where
# LAPACK needs a second.
_SLOW = ("eigh", "svd")
_HOST = 1  # the place of Arrays that are committed to the CPU: what is computed from them is computed there
Values = dict[Var, Any]


def is_needed(jaxpr: Jaxpr) -> bool:
    """Whether a program contains, at any depth, an equation that the host must run."""
    return jaxpr.memoize("needs_host_steps", _find_host_equation)


def _find_host_equation(jaxpr: Jaxpr) -> bool:
    return any(map(_is_for_host, jaxpr.eqns)) or any(map(is_needed, subjaxprs(jaxpr)))


def _is_for_host(eqn: JaxprEqn) -> bool:
    """Whether an equation calls Python, or a library of the host that has no form in StableHLO."""
    primitive = eqn.primitive
    kind = primitive.kind
    if isinstance(kind, kinds.Effect):
        return True
    if isinstance(kind, kinds.Opaque):
        return primitive.lowering is None
    if isinstance(kind, kinds.External) and kind.foreign:
        return True
    if not isinstance(kind, kinds.External) or kind.ordering is not None or primitive.name in module.NAMED:
        return False
    if kind.unrolled is not None and kind.unrolled([v.aval for v in eqn.invars], eqn.params) is not None:
        return False
    if primitive.name in _SLOW:
        return True
    return decompositions.program(eqn.primitive.name, eqn.params, len(eqn.invars[0].aval.shape)) is None


# -- steps ------------------------------------------------------------------------------------------------------------

Step = Callable[[Values], None]


class Steps:
    """A program without captured values, as steps for one device; called with Arrays there, it gives Arrays there."""

    def __init__(self, closed: ClosedJaxpr, device: Any, name: str) -> None:
        self.jaxpr = closed.jaxpr
        self.consts = [_on_device(signature.to_array(c, v.aval), device)
                       for c, v in zip(closed.consts, closed.jaxpr.constvars, strict=True)]  # fmt: skip
        self.device = device
        self.name = name
        self.parts: list[device_programs.DeviceProgram] = []
        self.inner: list[Steps] = []
        self.steps = self._cut()
        self.literals = {
            id(atom): _on_device(signature.to_array(atom.val, atom.aval), device)
            for atom in self._atoms()
            if isinstance(atom, Literal)
        }

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        values: Values = dict(zip((*self.jaxpr.constvars, *self.jaxpr.invars), (*self.consts, *operands), strict=True))
        for step in self.steps:
            step(values)
        return self.read(values, self.jaxpr.outvars)

    def read(self, values: Values, atoms: Sequence[Atom]) -> list[Any]:
        return [self.literals[id(atom)] if isinstance(atom, Literal) else values[atom] for atom in atoms]

    def all_parts(self) -> list[device_programs.DeviceProgram]:
        """The compiled parts of this program and of those inside it."""
        return [*self.parts, *[part for steps in self.inner for part in steps.all_parts()]]

    def _atoms(self) -> list[Atom]:
        return [*self.jaxpr.outvars, *[atom for eqn in self.jaxpr.eqns for atom in eqn.invars]]

    def _cut(self) -> list[Step]:
        """The steps: runs of equations for the device, and what is between them."""
        steps: list[Step] = []
        pending: list[JaxprEqn] = []
        needed = self._read_after()
        for position, eqn in enumerate(self.jaxpr.eqns):
            if not _is_for_host(eqn) and not any(map(is_needed, _programs_in(eqn))):
                pending.append(eqn)
                continue
            is_pure = isinstance(eqn.primitive.kind, kinds.External) and not eqn.effects
            if is_pure and needed[position].isdisjoint(eqn.outvars):
                continue  # nobody reads the result of a pure function
            steps += self._part(pending, needed[position])
            pending = []
            step = self._host_step(eqn)
            if step is not None:
                steps.append(step)
        returned = {v for v in self.jaxpr.outvars if isinstance(v, Var)}
        return [*steps, *self._part(pending, returned)]

    def _read_after(self) -> list[set[Any]]:
        """For each equation the variables that it, a later one or the result reads."""
        needed: list[set[Any]] = []
        found: set[Any] = {v for v in self.jaxpr.outvars if isinstance(v, Var)}
        for eqn in reversed(self.jaxpr.eqns):
            found = found | {v for v in eqn.invars if isinstance(v, Var)}
            needed.append(found)
        return needed[::-1]

    def _part(self, eqns: list[JaxprEqn], needed: set[Any]) -> list[Step]:
        """Equations for the device, as one compiled program."""
        made = {v for eqn in eqns for v in eqn.outvars}
        outs = [v for eqn in eqns for v in eqn.outvars if v in needed]
        if not outs:
            return []
        ins = list(dict.fromkeys([v for eqn in eqns for v in eqn.invars if isinstance(v, Var) and v not in made]))
        closed = ClosedJaxpr(Jaxpr((), ins, outs, eqns, joined_effects(eqns)), ())
        part = device_programs.compile_on(closed, self.device, name=self.name)
        self.parts.append(part)

        def run(values: Values) -> None:
            results = part.run([values[v] for v in ins])
            values.update(zip(outs, results, strict=True))

        return [run]

    def _steps_of(self, closed: ClosedJaxpr) -> Steps:
        made = Steps(closed, self.device, self.name)
        self.inner.append(made)
        return made

    def _host_step(self, eqn: JaxprEqn) -> Step | None:
        kind = eqn.primitive.kind
        if _is_for_host(eqn):
            admit = kind.admit if isinstance(kind, kinds.Effect) else None
            return None if admit is not None and not admit(eqn.params) else self._step(eqn, self._called(eqn))
        if isinstance(kind, kinds.Loop):
            return self._step(eqn, self._loop(eqn, kind.parts(eqn.params)))
        if isinstance(kind, kinds.Branch):
            return self._step(eqn, self._branch(kind.branches(eqn.params)))
        inner = kind.inline(eqn.params) if isinstance(kind, kinds.Higher) else None
        if inner is None and isinstance(kind, kinds.Resolve):
            inner = expansions.traced(lambda *xs: kind.expand(*xs, **eqn.params), [v.aval for v in eqn.invars])
        if inner is None:
            raise module.not_written(eqn, "a program inside of it calls Python, and it is neither a loop nor a branch")
        return self._step(eqn, self._steps_of(inner))

    def _step(self, eqn: JaxprEqn, run: Callable[[list[Any]], Sequence[Any]]) -> Step:
        """What computes the results of an equation from its operands, on the values of a run."""

        def step(values: Values) -> None:
            found = run(self.read(values, eqn.invars))
            values.update(zip(eqn.outvars, found, strict=True))

        return step

    def _called(self, eqn: JaxprEqn) -> Callable[[list[Any]], Sequence[Any]]:
        primitive, params = eqn.primitive, eqn.params

        def call(operands: list[Any]) -> Sequence[Any]:
            for x in operands:
                runtime.copy_to_host_async(x)
            found = primitive.bind(*[runtime.array_to_place(x, _HOST) for x in operands], **params)
            results = found if primitive.multiple_results else [found]
            return [_on_device(x, self.device) for x in results]

        return call

    def _branch(self, branches: Sequence[ClosedJaxpr]) -> Callable[[list[Any]], Sequence[Any]]:
        programs = [self._steps_of(branch) for branch in branches]

        def choose(operands: list[Any]) -> Sequence[Any]:
            chosen = min(max(int(np.asarray(operands[0])), 0), len(programs) - 1)
            return programs[chosen](operands[1:])

        return choose

    def _loop(self, eqn: JaxprEqn, parts: kinds.LoopParts) -> Callable[[list[Any]], Sequence[Any]]:
        first, second = parts.n_cond_consts, parts.n_cond_consts + parts.n_consts
        third = second + parts.n_carry
        if parts.cond is not None:
            going, body = self._steps_of(_closed(parts.cond)), self._steps_of(_closed(parts.body))

            def repeat(operands: list[Any]) -> Sequence[Any]:
                captured, held, state = operands[:first], operands[first:second], operands[second:]
                while bool(np.asarray(going([*captured, *state])[0])):
                    state = body([*held, *state])
                return state

            return repeat
        trips = int(parts.trips or 0)
        made = [v.aval for v in eqn.outvars[parts.n_carry :]]
        turn = self._steps_of(_turn(parts, [v.aval for v in eqn.invars], made)) if trips else list
        order = range(trips - 1, -1, -1) if parts.reverse else range(trips)

        def scan(operands: list[Any]) -> Sequence[Any]:
            held, state, inputs = operands[:second], operands[second:third], operands[third:]
            outputs = [_on_device(_empty(aval), self.device) for aval in made]
            for trip in order:
                count = runtime.array_from_numpy(np.asarray(trip, np.int32), _COUNT)
                found = turn([count, *held, *state, *inputs, *outputs])
                state, outputs = found[: len(state)], found[len(state) :]
            return [*state, *outputs]

        return scan


_COUNT = runtime.ShapedArray((), np.dtype(np.int32))


def _closed(program: Any) -> ClosedJaxpr:
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def _programs_in(eqn: JaxprEqn) -> list[Jaxpr]:
    return list(subjaxprs(Jaxpr((), (), (), [eqn], eqn.effects)))


def _turn(parts: kinds.LoopParts, operands: Sequence[Any], outputs: Sequence[Any]) -> ClosedJaxpr:
    """One iteration of a scan: (i, captured, state, inputs, outputs) -> (state, outputs with element i written)."""
    body = _closed(parts.body)
    start = parts.n_consts + parts.n_carry

    def turn(i: Any, *values: Any) -> list[Any]:
        end = len(values) - len(outputs)
        elements = [index.dynamic_index_in_dim(x, i, 0, False) for x in values[start:end]]
        found = eval_jaxpr(body.jaxpr, body.consts, *values[:start], *elements)
        written = [
            index.dynamic_update_index_in_dim(y, new, i, 0)
            for y, new in zip(values[end:], found[parts.n_carry :], strict=True)
        ]
        return [*found[: parts.n_carry], *written]

    return expansions.traced(turn, [_COUNT, *operands, *outputs])


def _empty(aval: Any) -> Any:
    """An Array of zeros, of any type."""
    if dtypes.is_extended(aval.dtype):
        words = np.zeros((*aval.shape, *aval.dtype.physical_shape), np.uint32)
        return avals.from_numpy(words, aval)
    return runtime.array_from_numpy(np.zeros(aval.shape, aval.dtype), aval)


def _on_device(x: Any, device: Any) -> Any:
    """An Array on a device, not committed; float0, which has no bytes, stays."""
    return runtime.array_to_place(x, device.number << 1) if isinstance(x, runtime.Array) else x


# -- the program ------------------------------------------------------------------------------------------------------


class HostedProgram(device_programs.DeviceProgram):
    """A program of parts for one device and of host steps."""

    def __init__(self, name: str, source: ClosedJaxpr, device: Any) -> None:
        super().__init__(name, source, "", device)
        self.steps = Steps(source, device, name)
        self.parts = self.steps.all_parts()
        self.stablehlo = "\n".join([part.stablehlo for part in self.parts])
        self.executable = HostedExecutable(self.steps, device)
        self.milliseconds = {}
        for part in self.parts:
            for stage, elapsed_ms in part.milliseconds.items():
                self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + elapsed_ms

    def text(self, form: str) -> str:
        """The program as ``jaxpr`` or ``stablehlo``, with a module for each part."""
        if form == "hlo":
            return "\n".join([part.text(form) for part in self.parts])
        return super().text(form)

    def cost_analysis(self) -> dict[str, float]:
        raise NotImplementedError(f"[cost_analysis] {self.name} has steps on the host, whose cost nobody knows")

    def memory_analysis(self) -> dict[str, int]:
        raise NotImplementedError(f"[memory_analysis] {self.name} has steps on the host, which have no plan of memory")


class HostedExecutable:
    """Runs the steps, as the native executables run: operands in, a list of Arrays out."""

    def __init__(self, steps: Steps, device: Any) -> None:
        self._steps = steps
        self._device = device
        self.runs = 0

    def run(self, operands: Sequence[Any], donated: Sequence[bool] | None = None, place: int = -1) -> list[Any]:
        """The results. Donated operands are deleted afterwards; ``place`` as in ``runtime.Executable.run``."""
        self.runs += 1
        number = self._device.number
        committed = place & 1 if place > 0 else any(x.place & 1 for x in operands)
        results = self._steps([_on_device(x, self._device) for x in operands])
        for x, given in zip(operands, donated or (), strict=False):
            if given:
                x.delete()
        where = number << 1 | committed
        return [runtime.array_to_place(x, where) if isinstance(x, runtime.Array) else x for x in results]

"""The pipeline: a jaxpr goes in, a program that the runtime can run comes out.

    jaxpr -> passes -> fuse -> viewed_operands -> lower -> schedule -> boundary_fusion -> plan -> chain
          -> codegen -> link

Compiled programs are cached by the fingerprint of their jaxpr, kernels by their nest.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import codegen, errors, runtime
from weft._base import collector, lazy
from weft._base.record import NamedTuple
from weft._base.target import Target
from weft.compiler import context, progress
from weft.compiler.checks import guards
from weft.compiler.fusion import boundary_fusion, chain, fuse
from weft.compiler.fusion.kernels import Kernels
from weft.compiler.matrix_products import viewed_operands
from weft.compiler.pass_manager import Stages
from weft.compiler.plans import buffers, copied_results, exchanges, instructions, link, plan, steps
from weft.compiler.plans.buffer_assignment import Assignment
from weft.compiler.sizes import like_programs, other_sizes
from weft.compiler.storage import cache, disk, stored
from weft.compiler.storage.cache import BUILDER
from weft.core import kinds
from weft.core.caches import store
from weft.core.caches.budget import BUDGET
from weft.core.caches.cache_keys import program_key
from weft.core.caches.fingerprint import fingerprint
from weft.core.caches.store import KERNELS, PROGRAMS
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.sharding import explicit
from weft.core.symbolic import sizes
from weft.core.symbolic.sized_programs import HiddenError, Sized
from weft.dispatch import devices
from weft.dispatch.programs.executables import Runnable
from weft.loops import ir, lower, nests, printer
from weft.loops.body import Body
from weft.loops.nests import Lowered
from weft.loops.routines import routine
from weft.loops.schedules import costs, schedule_printer

_PROGRAM_BYTES, _KERNEL_BYTES, _EQUATION_BYTES = 4500, 3600, 1250  # measured: a program, each kernel and equation
MAX_ELEMENTS = 1 << 56
_MOST_LINES = 3  # the user's lines of a kernel that an error on a GPU names


class Forms(NamedTuple):
    """The intermediate forms of a program: the input of ``plan``."""

    simplified: ClosedJaxpr
    kernels: Kernels
    lowered: list[Lowered | None]


class Program(Runnable):
    """A compiled jaxpr. ``executable`` takes ``consts`` and then the arguments."""

    def __init__(self, name: str, source: ClosedJaxpr, stages: Stages) -> None:
        super().__init__()
        self.name = name
        self.source = source
        self.forms: Forms
        self.plan: Any = None
        self.compiled: list[cache.Compiled] = []
        self.out_avals = tuple([v.aval for v in source.jaxpr.outvars])
        self.nested: list[Program] = []  # programs that control flow runs
        self.sized: other_sizes.Member | None = None  # what makes it at other sizes
        self.stages = stages
        self.milliseconds = stages.milliseconds

    def whole(self) -> Program:
        return self

    @property
    def jaxpr(self) -> Jaxpr:
        """The simplified program."""
        return self.forms.simplified.jaxpr

    @property
    def kernels(self) -> Kernels:
        return self.forms.kernels

    @property
    def lowered(self) -> list[Lowered | None]:
        return self.forms.lowered

    def family(self) -> other_sizes.Family:
        return other_sizes.Family(other_sizes.weight_of(len(self.source.jaxpr.eqns), len(self.kernels.steps)))

    @property
    def weight(self) -> int:
        """Bytes it takes in the process, without its kernels' machine code."""
        return (
            _PROGRAM_BYTES + _KERNEL_BYTES * len(self.plan.instructions) + _EQUATION_BYTES * len(self.jaxpr.eqns)
            + sum([const.nbytes for const in self.consts])
        )  # fmt: skip

    def nests(self) -> list[Any]:
        """The distinct nests of the program, in order."""
        routines = [entry.lowered.routine for entry in self.plan.instructions if isinstance(entry, steps.Native)]
        return list(dict.fromkeys([*(low.nest for low in self.lowered if low is not None), *routines]))

    def written(self) -> list[tuple[Any, Target]]:
        """The nests that machine code is written for, in order, each with its target."""
        context = self.stages.context
        if context.grid is None:
            return [(nest, context.target) for nest in self.nests()]
        entries = [(nest, e) for e in self.plan.instructions if (nest := nest_of(e)) is not None]
        on = {False: context.target, True: context.grid}
        return list(dict.fromkeys([(nest, on[isinstance(entry, steps.Launched)]) for nest, entry in entries]))

    def text(self, form: str) -> str:
        """The program in one of its forms: jaxpr, kernel, loops, llvm, asm or plan."""
        if form == "jaxpr":
            return str(self.jaxpr)
        if form == "kernel":
            return self.kernels.describe()
        if form == "plan":
            return self._plan_text()
        if form == "loops":
            return "\n\n".join(loops_text(nest, on) for nest, on in self.written())
        if form == "llvm":
            return "\n\n".join(codegen.text_of(nest, on) for nest, on in self.written())
        if form == "asm":
            objects = [(codegen.compile_nest(nest, on), on) for nest, on in self.written()]
            return "\n\n".join(codegen.assembly(compiled, on) for compiled, on in objects)
        raise ValueError(f"[as_text] unknown form {form!r}; known: jaxpr, kernel, loops, llvm, asm, plan.")

    def _plan_text(self) -> str:
        """The plan, and for every value where it is stored and why."""
        why = buffers.MemoryReport(self.assignment()).lines()
        return f"{self.plan.describe()}\n" + "\n".join(f"  {line}" for line in "\n".join(why).splitlines())

    def assignment(self) -> Assignment:
        """The buffers of the program, not yet assigned: the plan was made with them, and reports make it again."""
        return Assignment(self.kernels, self.lowered, self.donated, self.out_avals, self.copied)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates: operations, bytes moved by kernels and products, nanoseconds on one core."""
        moved, flops, nanoseconds = 0.0, 0.0, 0.0
        for run in self.plan.runs():
            moved += bytes_moved(run.lowered)
            nanoseconds += run.lowered.points * costs.nanoseconds(run.lowered.nest)
            flops += run.lowered.points * operations_per_point(run.lowered)
        for product in self.plan.products():
            dims = (*product.batch, *product.rows, *product.columns, *product.summed)
            flops += 2.0 * math.prod([extent for extent, *_ in dims])
        return {"flops": flops, "bytes accessed": moved, "optimal_seconds": nanoseconds * 1e-9}

    def memory_analysis(self) -> dict[str, int]:
        """Bytes of arguments, results, temporaries and machine code."""
        outputs = [entry.aval.nbytes for entry in self.plan.outputs if not isinstance(entry, instructions.InputOutput)]
        shared = (instructions.InputOutput, instructions.DonatedOutput)
        return {
            "argument_size_in_bytes": sum(aval.nbytes for aval in self.in_avals),
            "output_size_in_bytes": sum(outputs),
            "temp_size_in_bytes": self.plan.arena_bytes,
            "alias_size_in_bytes": sum(entry.aval.nbytes for entry in self.plan.outputs if isinstance(entry, shared)),
            "generated_code_size_in_bytes": sum({id(c): c.nbytes for c in self.compiled}.values()),
        }


def bytes_moved(low: Lowered) -> float:
    """Bytes a kernel reads and writes, each operand once."""
    total = 0
    for binding in low.operands:
        count = 1
        for extent, stride in zip((*low.extents, *low.outer), (*binding.strides, *binding.outer), strict=True):
            count *= extent if stride else 1
        total += count * binding.dtype.itemsize
    return float(total)


def operations_per_point(low: Lowered) -> float:
    return float(sum(hasattr(s, "kind") for phase in low.nest.phases for s in (*phase.body, *phase.reductions)))


def compile_jaxpr(
    closed: ClosedJaxpr,
    *,
    name: str = "program",
    donated: tuple[bool, ...] = (),
    shares: bool = False,
    anew: bool = False,
    sized: Sized | None = None,
    on_disk: bool = False,
    device: devices.Device = devices.CPU,
    within: context.Context | None = None,
) -> Any:
    """The compiled form of a program; equal programs are compiled once. Captured arrays are hidden parameters.

    ``shares``: results that are an input as it is share its memory, as in weft's own functions; otherwise they are
    copies. ``anew``: compile even what was compiled before, for a report that shows the lines of this program.
    ``sized``: with symbols, from a caller that keeps programs for other sizes. ``on_disk``: an earlier process may have
    left it on disk, and this one leaves it there. ``device`` runs it. ``within``: the context of the compilation that
    this one is a part of.
    """
    closed = explicit.erased(closed)
    if context.is_too_narrow(closed.jaxpr):
        with context.of_64_bits():
            return compile_jaxpr(
                closed, name=name, donated=donated, shares=shares, anew=anew, sized=sized, on_disk=on_disk,
                device=device,
            )  # fmt: skip
    within = within or context.current(device)
    if check_scopes.asked(closed):
        closed, anew = check_scopes.spread(closed), True  # a program found by its content may have other lines
    copied = copied_results.copied_results(closed.jaxpr, shares)
    if anew:
        return _capturing(compile_new(closed, name, donated, copied, within), closed, within)
    key = program_key((fingerprint(closed), copied) if copied else fingerprint(closed), donated, within.key)
    found = PROGRAMS.find(key)
    if found is not None:
        return _capturing(found, closed, within)
    like = None if within.watched or sized else like_programs.key_of(closed, name, (donated, copied), within)
    later = functools.partial(_compile_later, closed, name, donated, copied, within)
    made = None if like is None or within.log else like_programs.find(like, closed, name, donated, later)
    asks = on_disk and made is None
    wanted = stored.request(closed, donated, copied, within, like and like.text) if asks else None
    made = made or (wanted and _from_disk(wanted, like, closed, name, donated, within, later))
    if made is not None:
        PROGRAMS.add(key, made)
        return made
    if within.log:
        types = ", ".join(map(repr, closed.in_avals))
        lazy.logger().warning("Compiling jit(%s) with global shapes and types (%s).", name, types)
    compilation = progress.begin(name)
    try:
        from_like = like and functools.partial(like_programs.with_symbols, closed, like)
        program = compile_new(closed, name, donated, copied, within, from_like or (sized and sized.once))
    finally:
        progress.end(compilation)
    PROGRAMS.add(key, program)
    learned = like is not None and like_programs.learn(like, program)
    if wanted is not None:
        stored.keep(wanted if learned else wanted._replace(family=None), program)
    return _capturing(program, closed, within)


def _from_disk(
    wanted: disk.Request,
    joins: like_programs.Like | None,
    closed: ClosedJaxpr,
    name: str,
    donated: tuple[bool, ...],
    within: context.Context,
    later: Callable[[], Any],
) -> Runnable | None:
    """The program that an earlier process has compiled, or that one of a like program gives."""
    start, program = time.perf_counter(), None
    if joins is not None and like_programs.load(joins, wanted, name, within):
        program = like_programs.find(joins, closed, name, donated, later)
    found = stored.find(wanted, closed) if program is None else None
    if found is not None:
        loaded, out_avals = found
        program = like_programs.later(closed, name, loaded.executable, out_avals, later, loaded.consts, loaded.nbytes)
        program.kernels_loaded, program.kernels_reused = loaded.kernels_loaded, loaded.kernels_reused
    if program is not None:
        program.milliseconds = {"load": (time.perf_counter() - start) * 1e3}
    return program


def _capturing(program: Any, closed: ClosedJaxpr, within: context.Context) -> Any:
    """A program for what an equal jaxpr has captured."""
    return program.with_consts(as_arrays(closed.consts, closed.jaxpr.constvars, within)) if closed.consts else program


def _compile_later(
    closed: ClosedJaxpr, name: str, donated: tuple[bool, ...], copied: frozenset[int], within: context.Context
) -> Program:
    """The whole of a program that so far could only be run: under the options that held when it was asked for."""
    with within.options():
        return compile_new(closed, name, donated, copied, within)


def make_forms(closed: ClosedJaxpr, stages: Stages, of_block: bool = False) -> Forms:
    """All forms from the jaxpr to the input of ``plan``; ``of_block``: of what a block of a GPU does."""
    simplified = stages.passes(closed)  # passes.PASSES, in order
    kernels = stages.run("fuse", fuse.fuse, simplified.jaxpr, stages.target)
    simplified.jaxpr.forget("index")  # the program is cached, without facts that only its compilation needs
    moving = (of_block or stages.context.grid is None) and not check_scopes.asked(simplified)
    kernels = stages.run("viewed_operands", viewed_operands.viewed_operands, kernels, moving)
    if check_scopes.asked(simplified):
        guards.warn_of_unseen(simplified.jaxpr, stages.name)
        kernels = guards.attached(kernels, stages.name, stages.context.checks)
    bodies = stages.run("lower", lower_all, kernels)
    if stages.context.grid is not None:
        return Forms(simplified, kernels, stages.run("schedule", schedule_on_gpu, kernels, bodies, stages.target.lanes))
    lowered = stages.run("schedule", schedule_all, kernels, bodies, stages.target.lanes)
    return Forms(simplified, *stages.run("boundary_fusion", boundary_fusion.boundary_fusion, kernels, lowered))


def compile_new(
    closed: ClosedJaxpr,
    name: str,
    donated: tuple[bool, ...],
    copied: frozenset[int] = frozenset(),
    within: context.Context | None = None,
    symbols: Callable[[], Sized | None] | None = None,
) -> Program:
    """Run the pipeline; again, if cells of a grid that might have been blocks of one launch cannot be.

    ``symbols`` gives the program with symbols for sizes, so that it serves others, too.
    """
    check_sizes(closed)
    within = within or context.current()
    try:
        return _in_context(closed, name, donated, copied, within, symbols)
    except steps.UnfitCellsError:
        return _in_context(closed, name, donated, copied, within._replace(in_blocks=False), symbols)


def _in_context(
    closed: ClosedJaxpr,
    name: str,
    donated: tuple[bool, ...],
    copied: frozenset[int],
    within: context.Context,
    symbols: Callable[[], Sized | None] | None,
) -> Program:
    failed: Exception | None = None
    sized = None if symbols is None or within.watched else symbols()
    if sized is not None:
        program = Program(name, closed, Stages(name, within))
        program.stages.sizes = sized.guards
        try:
            return _compiled(program, sized.closed, donated, copied, sized.guards)
        except steps.UnfitCellsError:
            raise
        except HiddenError:  # what has captured sizes cannot be made again: this program serves its own alone
            pass
        except Exception as error:  # of a stage that takes no symbols: this program serves its own sizes alone
            if within.check:
                raise
            failed = error
        finally:
            sized.guards.close()
    program = _compiled(Program(name, closed, Stages(name, within)), closed, donated, copied)
    if failed is not None:  # while numbers serve
        errors.warn(
            f"[jit] {name} is compiled anew for each size (a bug in weft, please report it): {failed!r}", UserWarning
        )
    return program


def _compiled(
    program: Program,
    given: ClosedJaxpr,
    donated: tuple[bool, ...],
    copied: frozenset[int],
    known: sizes.Guards | None = None,
) -> Program:
    """The program, with all that is made of its jaxpr."""
    start, stages, closed, name = time.perf_counter(), program.stages, program.source, program.name
    with collector.resting():
        simplified, kernels, lowered = program.forms = make_forms(given, stages)
    constvars = simplified.jaxpr.constvars
    n_own = len(closed.consts)  # the program is cached for other constants of the same types
    program.consts = tuple(as_arrays(simplified.consts[n_own:], constvars[n_own:], stages.context))
    if any(isinstance(eqn.primitive.kind, kinds.Exchange) for eqn in simplified.jaxpr.eqns):
        kernels, lowered = stages.run("exchanges", exchanges.apart, kernels, lowered, stages.context.process)
    on_gpu = stages.context.grid is not None
    out_avals = tuple([v.aval for v in given.jaxpr.outvars])
    planned = stages.run("plan", plan.plan, kernels, lowered, donated, out_avals, copied, on_gpu)
    if not on_gpu:
        planned = stages.run("chain", chain.chain, planned)
    if known is not None:
        known.close()
        planned = _for_sizes(program, planned, known, out_avals)
    if on_gpu:
        inner = functools.cache(functools.partial(plan_of, name, stages.context._replace(in_blocks=False)))
        planned = stages.run(
            "launches", lazy.submodule("weft.compiler.gpu.launches").launched, planned, inner, stages.context.library
        )
    if any(isinstance(entry, instructions.Exchange) for entry in planned.instructions):
        planned = planned.replace(instructions=exchanges.with_overlap(planned.instructions))
    program.compiled = stages.run("codegen", _codegen, program, planned)
    if program.sized is not None:
        program.sized.keep(planned, program.compiled)
    program.plan, program.donated, program.copied = planned, donated, copied
    program.in_avals = tuple([v.aval for v in (*constvars, *closed.jaxpr.invars)])
    program.executable = stages.run("link", _executable, program)
    if stages.watched:
        stages.forms(program.text)
    if stages.context.log:
        spent = " ".join(f"{stage} {ms:.2f}" for stage, ms in stages.milliseconds.items())
        total = time.perf_counter() - start
        counts = (program.kernels_built, program.kernels_loaded, program.kernels_reused)
        # these words are JAX's, since tools look for them, although weft compiled the program
        message = (
            "Finished XLA compilation of jit(%s) in %.9f sec (weft, in ms: %s); %d kernels built, %d loaded, %d reused"
        )
        lazy.logger().warning(message, name, total, spent, *counts)
    return program


def _for_sizes(program: Program, planned: steps.Plan, known: sizes.Guards, out_avals: tuple[Any, ...]) -> steps.Plan:
    """The plan with numbers for sizes; the program keeps the other one. Raises ``HiddenError``."""
    made = other_sizes.Member(program.name, program.stages.context, planned, known, out_avals)
    simplified, kernels, lowered = program.forms
    planned, lowered = made.own((planned, lowered))
    program.forms = Forms(simplified, kernels, lowered)
    if not program.consts:
        program.sized = made
    return planned


def plan_of(
    name: str, within: context.Context, closed: ClosedJaxpr, donated: tuple[bool, ...], of_block: bool
) -> steps.Plan | None:
    """The plan of a program that control flow runs, if it has no constants; ``of_block``: for a cell of a grid."""
    if context.is_too_narrow(closed.jaxpr):
        return None
    stages = Stages(name, within)
    simplified, kernels, lowered = make_forms(explicit.erased(closed), stages, of_block)
    if simplified.consts or any(isinstance(eqn.primitive.kind, kinds.Exchange) for eqn in simplified.jaxpr.eqns):
        return None
    out_avals = tuple([v.aval for v in closed.jaxpr.outvars])
    copied = copied_results.copied_results(closed.jaxpr, False)
    planned = stages.run("plan", plan.plan, kernels, lowered, donated, out_avals, copied, True)
    return stages.run("launches", lazy.submodule("weft.compiler.gpu.launches").launched, planned, None, None, of_block)


def check_sizes(closed: ClosedJaxpr) -> None:
    """Raise OutOfMemoryError for arrays whose elements cannot be counted in 64 bits."""
    for equation in closed.jaxpr.eqns:
        for variable in equation.outvars:
            if variable.aval.size > MAX_ELEMENTS:
                raise errors.OutOfMemoryError(
                    "RESOURCE_EXHAUSTED: Out of memory: "
                    f"[{equation.primitive.name}] the result {variable.aval.str_short()} has {variable.aval.size} "
                    f"elements ({variable.aval.nbytes} bytes), more than any machine can address."
                )


def lower_all(kernels: Kernels) -> list[Body | None]:
    """Every kernel as statements over its own axes."""
    return [
        lower.lower(step.kernel, kernels.sizes, guards.guarded(kernels, number)) if step.kernel else None
        for number, step in enumerate(kernels.steps)
    ]


def schedule_all(kernels: Kernels, bodies: list[Body | None], lanes: int) -> list[Lowered | None]:
    """The nest of every kernel."""
    return [nests.lowered(body, lanes) if body else None for body in bodies]


def schedule_on_gpu(kernels: Kernels, bodies: list[Body | None], lanes: int) -> list[Lowered | None]:
    """The nest of every kernel: for the threads of a GPU, or for a step of the host where threads would wait."""
    found = list[Lowered | None]()
    for body, step in zip(bodies, kernels.steps, strict=True):
        low = None if body is None else lazy.submodule("weft.loops.gpu.grid").lowered(body)
        if low is not None and step.kernel is not None:
            lines = dict.fromkeys([equation.source for equation in step.kernel.equations if equation.source])
            low = low.replace(lines=tuple(lines)[:_MOST_LINES])
        found.append(nests.lowered(body, lanes) if low is None and body is not None else low)
    return found


def _codegen(program: Program, planned: steps.Plan) -> list[cache.Compiled]:
    context, built, loaded = program.stages.context, 0, 0
    nests = [(nest, isinstance(e, steps.Launched)) for e in planned.instructions if (nest := nest_of(e)) is not None]
    found: list[Iterator[cache.Compiled]] = []
    for on_gpu, target in enumerate((context.target, context.grid or context.target)):
        some, made, read = BUILDER.compile([nest for nest, launched in nests if launched == on_gpu], target)
        found.append(iter(some))
        built, loaded = built + made, loaded + read
    compiled = [next(found[launched]) for _, launched in nests]
    program.kernels_built, program.kernels_loaded = built, loaded
    program.kernels_reused = len(set(map(id, compiled))) - built - loaded
    return compiled


def loops_text(nest: Any, on: Target) -> str:
    """The loops of a nest, chain or routine, with what is decided for a target."""
    nest = (
        nest.nest if on.is_gpu and hasattr(nest, "moved") else nest
    )  # operands at run-time offsets: of the same loops
    if on.is_gpu and not isinstance(nest, ir.Nest | routine.Routine):
        return repr(nest)
    return printer.text(nest, "" if on.is_gpu else schedule_printer.text(nest, on))


def nest_of(entry: Any) -> Any:
    """The nest, chain or routine for which an instruction needs machine code."""
    if isinstance(entry, steps.Run):
        return entry.lowered.nest
    if isinstance(entry, steps.FusedEpilogue):
        return entry.run.lowered.nest
    if isinstance(entry, steps.Chain | steps.Launched):
        return entry.nest
    return entry.lowered.routine if isinstance(entry, steps.Native) else None


def _executable(program: Program) -> Any:
    planned = program.plan
    made = link.instructions(planned, program.compiled, functools.partial(_nested, program))
    return runtime.Executable(
        planned.n_inputs, planned.outputs, planned.temps, planned.arena_bytes, made, program.name, program.in_avals,
        program.stages.context.device,
    )  # fmt: skip


def _nested(program: Program, inner: ClosedJaxpr, donated: tuple[bool, ...]) -> instructions.Nested:
    """(executable, constants) of a program that control flow runs."""
    compiled = compile_jaxpr(inner, name=program.name, donated=donated, within=program.stages.context)
    program.nested.append(compiled)
    return compiled.executable, compiled.consts


def as_arrays(consts: Sequence[Any], variables: Sequence[Any], within: context.Context) -> list[Any]:
    """Captured constants as Arrays of the device that runs the program."""
    arrays = [
        const if isinstance(const, runtime.Array) else runtime.array_from_numpy(np.asarray(const, v.aval.dtype), v.aval)
        for const, v in zip(consts, variables, strict=True)
    ]
    backend = devices.BY_NUMBER[within.device].backend
    return [backend.place(array) for array in arrays]


def stats() -> dict[str, Any]:
    """Counters of the process: programs, kernels, milliseconds spent building kernels, and each level of the cache."""
    return {
        "programs_built": PROGRAMS.made,
        "programs_reused": PROGRAMS.found,
        "programs": len(PROGRAMS),
        "kernels": len(KERNELS),
        "kernels_built": BUILDER.built,
        "kernels_loaded": BUILDER.loaded,
        "kernels_reused": KERNELS.found,
        "kernels_evicted": KERNELS.dropped,
        "kernel_bytes": KERNELS.nbytes,
        "kernel_build_ms": BUILDER.build_ms,
        "kept_bytes": BUDGET.nbytes,
        "dropped": BUDGET.dropped,
        "levels": store.levels(),
    }


def clear() -> None:
    """Forget compiled programs and kernels."""
    PROGRAMS.clear()
    KERNELS.clear()

"""A module of StableHLO for a program: one function for the program, and one for each program it calls.

    jit(lambda x: x + 1)     func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>) { ... }

``function_writer`` goes through the equations of a program. How an equation is written depends on its kind
(``WRITERS``), or on its primitive where StableHLO has an operation that kinds do not know (``NAMED``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base import lazy
from weft.compiler import expansions
from weft.compiler.passes.lower_prng_keys import has_keys, lower_prng_keys
from weft.control.branches import platform_branch
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, jaxprs_in_params
from weft.core.ref_types import uses_refs
from weft.dispatch.programs.lowered_shardings import LoweredShardings
from weft.effects import user_primitives
from weft.stablehlo import (
    collectives,
    composites,
    control,
    decompositions,
    elementwise,
    foreign_calls,
    lapack,
    movement,
    portable,
    products,
    reductions,
    sorting,
    types,
)
from weft.stablehlo.function_writer import (
    EquationWriter,
    FunctionWriter,
    Interface,
    ModuleWriter,
    not_written,
    symbol,
    type_of,
)
from weft.stablehlo.text import Tensor
from weft.stablehlo.unknown_sizes import open_equations, open_grids, size_checks

WHICH_PLATFORM = '%platform: tensor<i32> {jax.global_constant = "_platform_index"}'


def module_text(
    closed: ClosedJaxpr,
    name: str = "main",
    *,
    module_name: str = "jit_main",
    debug_info: bool = False,
    argument_attributes: Sequence[str] = (),
    result_attributes: Sequence[str] = (),
    platforms: Sequence[str] = ("cpu",),
    interface: Interface | None = None,
    shardings: LoweredShardings | None = None,
) -> str:
    """The text of one module, whose public function ``name`` is the program.

    ``argument_attributes`` and ``result_attributes`` are added to arguments and results, as MLIR writes them. With
    ``debug_info`` operations carry the user's lines. A module for several ``platforms`` takes a number first, which of
    them it runs on. ``interface``: the types of arguments and results before ``on_words``, of a program that has been
    through it. ``shardings``: how arguments and results lie; without it the module is for one device, and says nothing
    of shardings. Raises NotImplementedError, with the user's line, where the program calls Python.

    >>> print(weft.stablehlo.module_text(weft.make_jaxpr(lambda x: x + 1)(np.float32(1))))
    module @jit_main attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
      func.func public @main(%arg0: tensor<f32>) -> (tensor<f32>) {
        %1 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
        %2 = "stablehlo.add"(%arg0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        func.return %2 : tensor<f32>
      }
    }
    """
    return text_and_count(
        closed, name, module_name=module_name, debug_info=debug_info, argument_attributes=argument_attributes,
        result_attributes=result_attributes, platforms=platforms, interface=interface, shardings=shardings,
    )[0]  # fmt: skip


def text_and_count(
    closed: ClosedJaxpr,
    name: str = "main",
    *,
    module_name: str = "jit_main",
    debug_info: bool = False,
    argument_attributes: Sequence[str] = (),
    result_attributes: Sequence[str] = (),
    platforms: Sequence[str] = ("cpu",),
    interface: Interface | None = None,
    shardings: LoweredShardings | None = None,
    plan: size_checks.SizePlan | None = None,
) -> tuple[str, int]:
    """``module_text``, and for how many devices it is; ``plan``: how sizes without a value follow from arguments."""
    module = ModuleWriter(rule, debug_info, tuple(platforms), shardings, plan)
    program = on_words(closed) if interface is None else closed
    shown = interface or (closed.in_avals, closed.out_avals)
    module.reserve(name)
    if module.meshes is not None and shardings is not None and any((*shardings.ins, *shardings.outs)):
        lies = shardings.ins, shardings.outs
        argument_attributes, result_attributes = [
            _joined(given, module.meshes.attributes(lie, [aval.ndim for aval in avals]))
            for given, lie, avals in zip(
                (argument_attributes, result_attributes), lies, (program.in_avals, program.out_avals), strict=True
            )
        ]
    text = module.function(program, name, "public", argument_attributes, result_attributes, shown)
    if len(module.platforms) > 1:
        text = text.replace("(", f"({WHICH_PLATFORM}{', ' if program.in_avals else ''}", 1)
    is_open = any(map(types.is_open, [n for aval in closed.in_avals for n in aval.shape]))
    meshes, count = (module.meshes.text(), module.meshes.count) if module.meshes is not None else ("", 1)
    count = count or 1
    counts = f"mhlo.num_partitions = {count} : i32, mhlo.num_replicas = 1 : i32"
    counts = f"jax.uses_shape_polymorphism = true, {counts}" if is_open else counts
    opening = f"module @{symbol(module_name)} attributes {{{counts}}} {{\n{meshes}"
    return "".join([opening, text, *module.functions, "}\n"]), count


def _joined(given: Sequence[str], more: Sequence[str]) -> list[str]:
    """The attributes of arguments (none are given, or one for each), and others of each."""
    return [", ".join(filter(None, pair)) for pair in zip(given or [""] * len(more), more, strict=True)]


def on_words(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program without references and random keys, which are their words."""
    program = lazy.discharge.pure(closed) if uses_refs(closed.jaxpr) else closed
    return lower_prng_keys(program) if has_keys(program.jaxpr) else program


class Module:
    """The StableHLO of a program: ``str`` gives its text, ``serialized`` the portable form, which jaxlib writes."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def serialized(self, version: str | None = None) -> bytes:
        """The portable artifact for readers of StableHLO of ``version`` ("1.0.0") and later.

        Raises ImportError, with the way out, where jaxlib is not installed.
        """
        return portable.serialized(self.text, version)


# -- kinds whose writing is writing another program --------------------------------------------------------------------


def resolve(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A compound operation: the program that it expands into."""
    if eqn.primitive.name == "select_and_scatter_add" and not any(types.is_empty(x.shape) for x in operands):
        return reductions.select_and_scatter_add(writer, eqn, operands)
    if eqn.primitive.name == "grid_loop" and isinstance(eqn, open_equations.OpenEqn):
        return writer.program(open_grids.cells(eqn), operands)

    def expanded(eqn: JaxprEqn) -> ClosedJaxpr:
        kind = eqn.primitive.kind
        if jaxprs_in_params(eqn.params):
            return expansions.traced(lambda *xs: kind.expand(*xs, **eqn.params), [v.aval for v in eqn.invars])
        return expansions.of_equation(eqn, lambda *xs: kind.expand(*xs, **eqn.params))

    return writer.expanded(eqn, expanded, operands)


def opaque(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A user's primitive: the program of its lowering."""
    if eqn.primitive.lowering is None:
        raise not_written(eqn, "it has no lowering, only a function of Python that computes it")
    return writer.program(lower_prng_keys(user_primitives.lowered_equation(eqn)), operands)


def effect(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    kind = eqn.primitive.kind
    if kind.admit is not None and not kind.admit(eqn.params):
        return []
    raise not_written(eqn, "it calls Python, which is not there where the program runs")


def identity(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    if not eqn.primitive.kind.barrier or not operands:
        return operands
    kinds_ = [(x.shape, x.dtype) for x in operands]
    return writer.text.ops("optimization_barrier", operands, kinds_)


def external(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    kind = eqn.primitive.kind
    if kind.foreign:
        raise not_written(eqn, "it calls Python, which is not there where the program runs")
    if kind.ordering is not None:
        return sorting.ordered(writer.text, kind.ordering(eqn.params), eqn, operands)

    def unrolled(eqn: JaxprEqn) -> ClosedJaxpr | None:
        function = kind.unrolled and kind.unrolled([v.aval for v in eqn.invars], eqn.params)
        return expansions.of_equation(eqn, function) if function is not None else None

    program = open_equations.program(eqn, unrolled)
    if program is not None:
        return writer.program(program, operands)
    return decomposition(writer, eqn, operands)


def decomposition(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A decomposition of matrices: a program of loops."""
    results = [type_of(v.aval) for v in eqn.outvars]
    if types.is_empty(operands[0].shape):
        return [writer.text.constant(np.zeros((), dtype), shape, dtype) for shape, dtype in results]
    if eqn.primitive.name == "cholesky" and (writer.module.platforms == ("tpu",) or writer.text.sizes):
        return products.cholesky(writer, eqn, operands)  # elsewhere XLA makes a program that grows with the matrix
    function = decompositions.program(eqn.primitive.name, eqn.params, operands[0].ndim)
    if function is None:
        raise not_written(eqn)
    found = writer.expanded(
        eqn, lambda eqn: on_words(expansions.traced(function, [v.aval for v in eqn.invars])), operands
    )
    return [writer.text.convert(x, dtype) for x, (_, dtype) in zip(found, results, strict=True)]


def platform_index(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The branch for the platform that is exported for."""
    text, one = writer.text, ((), types.INT32)
    numbers = [platform_branch(eqn.params["platforms"], name) for name in writer.module.platforms]
    if len(set(numbers)) == 1:
        return [text.constant(numbers[0], *one)]
    table = text.constant(np.asarray(numbers, np.int32), (len(numbers),), types.INT32)
    return [text.reshape(text.dynamic_slice(table, [Tensor("%platform", *one)], (1,)), ())]


def rng_uniform(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """Numbers without a key, of the generator that the program's compiler brings."""
    text, ((shape, dtype),) = writer.text, [type_of(v.aval) for v in eqn.outvars]
    drawn = types.INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype  # XLA has none of narrow integers
    bounds = [text.convert(x, drawn) for x in operands]
    extents = text.constant(np.asarray(shape, np.int64), (len(shape),), np.dtype(np.int64))
    given = "rng_distribution = #stablehlo<rng_distribution UNIFORM>"
    return [text.convert(text.op("rng", [*bounds, extents], shape, drawn, given), dtype)]


WRITERS: dict[type, EquationWriter] = {
    kinds.Elementwise: elementwise.write,
    kinds.View: movement.view,
    kinds.Reshape: movement.reshape,
    kinds.Assemble: movement.assemble,
    kinds.Generate: movement.generate,
    kinds.DynamicSlice: movement.dynamic_slice,
    kinds.DynamicUpdateSlice: movement.dynamic_update_slice,
    kinds.Gather: movement.gather,
    kinds.Scatter: movement.scatter,
    kinds.Reduction: reductions.reduction,
    kinds.Cumulative: reductions.cumulative,
    kinds.Window: reductions.window,
    kinds.Contraction: products.contraction,
    kinds.External: external,
    kinds.Identity: identity,
    kinds.Resolve: resolve,
    kinds.Effect: effect,
    kinds.Opaque: opaque,
    kinds.Loop: control.loop,
    kinds.Branch: control.branch,
    kinds.Higher: control.call,
}
NAMED: dict[str, EquationWriter] = {
    "conv_general_dilated": products.convolution,
    "fft": products.fourier,
    "triangular_solve": products.triangular_solve,
    "platform_index": platform_index,
    "rng_uniform": rng_uniform,
    "split": movement.split,
    "composite": composites.composite,
    "ffi_call": foreign_calls.write,
    **collectives.COLLECTIVES,
}


def rule(module: ModuleWriter, eqn: JaxprEqn) -> EquationWriter | None:
    """What writes an equation: a call of LAPACK where there is one, or by its name or its kind."""
    is_open = any(types.is_open(n) for v in eqn.invars for n in v.aval.shape)
    if module.calls_lapack and not is_open and (call := lapack.find(eqn)) is not None:
        return call
    return NAMED.get(eqn.primitive.name) or WRITERS.get(type(eqn.primitive.kind))

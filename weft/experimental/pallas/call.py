"""pallas_call: a kernel on references, run on every cell of a grid.

    kernel on Ref{f32[4]} --traced--> program with references --discharged--> program on blocks --> grid_loop

A trace is kept by the function that ``pallas_call`` gives, for the types of its arguments and the options of weft.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import config, runtime
from weft import numpy as jnp
from weft._base.record import NamedTuple
from weft.control import bodies, grid_loop
from weft.core import avals as avals_module
from weft.core.axis_names import NamedAxis
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo, Var
from weft.core.ref_types import BLOCK, AbstractRef, check_distinct, is_ref
from weft.core.tracing.trace import is_tracing, trace_to_jaxpr
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import flat_functions, function_names, signature
from weft.dispatch.calls import jit as jit_module
from weft.effects import callbacks
from weft.effects.discharge import discharged, store, value_of
from weft.experimental.pallas import cells, checked, pipeline, spaces, specs
from weft.experimental.pallas.blocks import BlockSpec, GridSpec, NoBlockSpec, no_block_spec
from weft.experimental.pallas.interpret import InterpretParams
from weft.experimental.pallas.specs import NUMBER, Scope, Way
from weft.operations import collectives
from weft.operations.pointwise import convert

_TRACES = 64  # traces that one function keeps
_SEMANTICS = {
    "parallel": grid_loop.PARALLEL,
    "core_parallel": grid_loop.ARBITRARY,  # of a TPU's cores; here their cells run in order
    "subcore_parallel": grid_loop.ARBITRARY,
    "arbitrary": grid_loop.ARBITRARY,
}


class Kernel(NamedTuple):
    """A kernel traced for given types, as ``grid_loop`` takes it.

    ``jaxpr`` is the program on references, for those who look. ``aliased``: for each output the input that it begins
    as, or None. The first ``kept`` outputs are the user's; inputs that the kernel writes to and semaphores follow.
    """

    jaxpr: ClosedJaxpr
    body: ClosedJaxpr
    inputs: tuple[Way, ...]
    outputs: tuple[Way, ...]
    aliased: tuple[int | None, ...]
    kept: int
    scratch: tuple[AbstractRef, ...]
    shared: tuple[AbstractRef, ...]  # scratch, and semaphores


class _Call(NamedTuple):
    """What a kernel is traced for: the structure of the arguments, and the types of their leaves."""

    in_tree: Any
    in_avals: tuple[Any, ...]


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] = {},
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: Any = None,
    backend: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """A function that runs ``kernel`` on every cell of a grid.

    The kernel takes a reference for each scalar operand that is fetched before, each input, each output and each
    scratch buffer: to the block that the ``BlockSpec`` of the array gives for the cell, or to the whole array. It
    returns None. References that it closes over are read and written too. ``out_shape`` is a tree of
    ``ShapeDtypeStruct`` (anything with shape and dtype); ``in_specs`` and ``out_specs`` are trees of the structure of
    the arguments and of ``out_shape``. ``grid_spec`` has grid, specs and scratch in one.

    Cells run in row-major order, or at the same time where they are seen not to depend on each other; what a cell
    leaves in outputs and scratch the next one finds. Elements that nobody has written, and those of a block outside of
    its array, are NaN or the least integer; what is written outside is dropped. ``input_output_aliases`` says by number
    (of the flattened arguments and results) which output begins as an input.

    ``interpret``: the cells run one after the other, as plain loops; ``InterpretParams`` checks bounds and reads of
    what nobody has written as well. ``debug`` prints the program of the kernel. ``compiler_params`` may say
    ``dimension_semantics``; ``cost_estimate``, ``backend`` and ``metadata`` change nothing. ValueError and TypeError
    for what does not fit, with the path of the array and the line of the function.

    >>> def add(x_ref, y_ref, out_ref):
    ...     out_ref[...] = x_ref[...] + y_ref[...]
    >>> spec = pallas.BlockSpec((2,), lambda i: i)
    >>> x = jnp.arange(6.0)
    >>> pallas.pallas_call(add, x, grid=3, in_specs=[spec, spec], out_specs=spec)(x, x)
    Array([ 0.,  2.,  4.,  6.,  8., 10.], dtype=float32)
    """
    jit_module.check_callable(kernel)
    if grid_spec is None:
        grid_spec = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    else:
        _check_unset(grid, in_specs, out_specs, scratch_shapes)
    return function_of(
        asked_for(kernel, out_shape, grid_spec, input_output_aliases, debug, interpret, name, compiler_params)
    )


class Asked(NamedTuple):
    """What ``pallas_call`` was asked for."""

    kernel: Callable[..., None]
    grid_spec: GridSpec
    out_shape: Any
    outs: list[Any]
    out_tree: Any
    aliases: dict[int, int]
    name: str
    semantics: tuple[str, ...]
    interpret: Any
    debug: bool
    takes_arrays: bool = False  # whether the kernel may close over arrays too, as that of core_map


def asked_for(
    kernel: Callable[..., None], out_shape: Any, grid_spec: GridSpec, aliases: Mapping[int, int], debug: bool,
    interpret: Any, name: str | None, compiler_params: Any,
) -> Asked:  # fmt: skip
    """The options of a call, checked."""
    outs, out_tree = _outputs(out_shape)
    interpret = config.read("pallas_tpu_interpret_mode") or interpret
    if isinstance(interpret, InterpretParams):
        interpret.check()
    named = name or function_names.function_name(kernel)
    semantics = _semantics(compiler_params)
    return Asked(kernel, grid_spec, out_shape, outs, out_tree, dict(aliases), named, semantics, interpret, debug)


def function_of(asked: Asked) -> Callable[..., Any]:
    """The function that runs a kernel; it keeps its traces."""
    traces: dict[Any, Kernel] = {}
    is_static = all(isinstance(extent, int) for extent in asked.grid_spec.grid)

    @functools.wraps(asked.kernel, assigned=("__module__", "__doc__", "__annotations__"))
    def call(*args: Any) -> Any:
        if not is_static:
            return _on_traced_grid(asked, args)
        values, in_tree = runtime.tree_flatten(args)
        found = _Call(in_tree, tuple(map(_type_of, values)))
        key = (found, runtime.get_config_token(), config.bound_axes())
        traced = traces.get(key)
        if traced is None:
            if len(traces) >= _TRACES:
                traces.clear()
            try:
                traced = traces[key] = _trace(asked, found)
            except _ClosesOver as found_more:
                return _closing_over(asked, found_more, len(args))(*args, *found_more.values)
        return flat_functions.rebuilt(asked.out_tree, _run(asked, traced, values))

    return call


class _ClosesOver(Exception):
    """A kernel uses what is no argument of it: its program has that among its constants."""

    def __init__(self, closed: ClosedJaxpr, shared: list[AbstractRef]) -> None:
        self.closed, self.shared = closed, shared
        self.values = [x for x in closed.consts if specs.is_array(x)]


def _taken(ref: Any, value: Any) -> Any:
    """What a kernel closes over, given as a reference: it, or the array that it holds."""
    return ref if is_ref(value) else ref[...]


def _closing_over(asked: Asked, found: _ClosesOver, count: int) -> Callable[..., Any]:
    """The function of a kernel that closes over values: they are its last arguments, behind the other ``count``."""

    def kernel(*given: Any, **named: Any) -> None:
        end = count + len(found.values)
        own = iter(given[count:end])
        consts = [_taken(next(own), x) if specs.is_array(x) else x for x in found.closed.consts]
        numbers = [cells.program_id(axis) for axis in range(len(asked.grid_spec.grid))]
        leaves = runtime.tree_flatten((given[:count], given[end:], named))[0]
        shared = [cells.get_global(kind) for kind in found.shared]
        eval_jaxpr(found.closed.jaxpr, consts, *numbers, *leaves, *shared)

    functools.update_wrapper(kernel, asked.kernel, updated=())
    spec = asked.grid_spec
    more = copy.copy(spec)
    if not isinstance(spec.in_specs, NoBlockSpec):
        more.in_specs = (*spec.in_specs, *[BlockSpec(memory_space=spaces.ANY) for _ in found.values])
    return function_of(asked._replace(kernel=kernel, grid_spec=more))


def _on_traced_grid(asked: Asked, args: tuple[Any, ...]) -> Any:
    """A call on a grid with traced extents: they are operands of a kernel on whole arrays."""
    whole, extents = pipeline.on_traced_grid(asked.kernel, asked.grid_spec, len(args), asked.out_tree)
    scratch = asked.grid_spec.scratch_shapes
    moved = {source + len(extents): target for source, target in asked.aliases.items()}
    outer = asked._replace(kernel=whole, grid_spec=GridSpec(scratch_shapes=scratch), aliases=moved, semantics=())
    return function_of(outer)(extents, *args)


def _check_unset(grid: Any, in_specs: Any, out_specs: Any, scratch_shapes: Any) -> None:
    given = [grid != (), not isinstance(in_specs, NoBlockSpec), not isinstance(out_specs, NoBlockSpec)]
    given.append(scratch_shapes not in ((), []))
    for name, is_set in zip(("grid", "in_specs", "out_specs", "scratch_shapes"), given, strict=True):
        if is_set:
            raise ValueError(f"If `grid_spec` is specified, then `{name}` must not be specified: grid_spec has it.")


def _outputs(out_shape: Any) -> tuple[list[Any], Any]:
    """(the types of the results, their tree); a list of results becomes a tuple."""
    if isinstance(out_shape, list):
        out_shape = tuple(out_shape)
    leaves, tree = runtime.tree_flatten(out_shape)
    for path, leaf in zip(_paths("out_shape", tree), leaves, strict=True):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(f"{path} has the shape and dtype of a result, as weft.ShapeDtypeStruct does; got {leaf!r}")
    return [spaces.memory_ref(leaf.shape, leaf.dtype, None).inner_aval for leaf in leaves], tree


def _paths(name: str, tree: Any) -> list[str]:
    """``args[0]['x']`` for every leaf."""
    return [name + path for path in signature.tree_paths(tree)]


def _semantics(compiler_params: Any) -> tuple[str, ...]:
    """What ``dimension_semantics`` of the parameters says of the axes of the grid."""
    given = getattr(compiler_params, "dimension_semantics", None)
    if given is None and isinstance(compiler_params, Mapping):
        given = compiler_params.get("dimension_semantics")
    words = [getattr(word, "value", word) for word in given or ()]
    for word in words:
        if word not in _SEMANTICS:
            raise ValueError(
                f"dimension_semantics has {word!r}: say one of {list(_SEMANTICS)} for each axis of the grid"
            )
    return tuple([_SEMANTICS[word] for word in words])


# -- the trace of a kernel --------------------------------------------------------------------------------------------


def _trace(asked: Asked, call: _Call) -> Kernel:
    grid_spec, outs, out_tree = asked.grid_spec, asked.outs, asked.out_tree
    n_ahead, args = grid_spec.num_scalar_prefetch, call.in_tree.children()
    if len(args) < n_ahead:
        raise TypeError(f"{n_ahead} arguments are fetched before the kernel runs, but the call has {len(args)}")
    paths = _paths("args", call.in_tree)
    first = sum([part.num_leaves for part in args[:n_ahead]])
    _check_aliases(asked.aliases, call.in_avals, outs, first)
    ahead = [AbstractRef(aval, spaces.MemorySpace.INDEX, BLOCK) for aval in call.in_avals[:first]]
    given = runtime.tree_unflatten(call.in_tree, list(range(call.in_tree.num_leaves)))
    scope = Scope(grid_spec.grid, runtime.tree_flatten(given[:n_ahead])[1], ahead)
    rest_tree = runtime.tree_flatten(given[n_ahead:])[1]
    in_specs = specs.leaves(grid_spec.in_specs, rest_tree, "in_specs", "`inputs`")
    inputs = [specs.way(*entry, scope) for entry in zip(in_specs, call.in_avals[first:], paths[first:], strict=True)]
    out_paths = _paths("outputs", out_tree)
    out_specs = specs.leaves(grid_spec.out_specs, out_tree, "out_specs", "`out_shape`")
    outputs = [specs.way(*entry, scope) for entry in zip(out_specs, outs, out_paths, strict=True)]
    wanted, scratch_tree = runtime.tree_flatten(grid_spec.scratch_shapes)
    scratch = [spaces.ref_type(entry, f"scratch_shapes[{number}]") for number, entry in enumerate(wanted)]
    as_args = out_tree if isinstance(_root(out_tree), tuple) else runtime.tree_flatten((_root(out_tree),))[1]
    trees = (call.in_tree, as_args, scratch_tree)
    blocks_of = [way.ref for way in (*inputs, *outputs)]
    closed, shared = _traced(asked, trees, [*ahead, *blocks_of, *scratch])
    scratch += shared
    if asked.debug:
        print(f"The program of {function_names.source_of(asked.kernel)}:\n{closed}")
    aliased: list[int | None] = [None] * len(outputs)
    for source, target in asked.aliases.items():
        aliased[target] = source - first
    counts = (len(grid_spec.grid), first, len(inputs), len(outputs))
    whole = [specs.whole(ref, scope) for ref in scratch]
    return _lowered(closed, counts, [*inputs, *outputs, *whole], aliased, scratch)


def _root(tree: Any) -> Any:
    return runtime.tree_unflatten(tree, list(range(tree.num_leaves)))


def _traced(asked: Asked, trees: tuple[Any, ...], refs: list[AbstractRef]) -> tuple[ClosedJaxpr, list[AbstractRef]]:
    """The program of the kernel on the numbers of the cell and its references, and those that it asked for itself."""
    kernel, extents = asked.kernel, asked.grid_spec.grid
    more_refs: list[AbstractRef] = []
    shared: list[AbstractRef] = []

    def flat(*leaves: Any) -> list[Any]:
        given = list(leaves[len(extents) :])
        parts = []
        for tree in trees:
            parts.append(runtime.tree_unflatten(tree, given[: tree.num_leaves]))
            del given[: tree.num_leaves]
        args, outs, scratch = parts
        named = scratch if isinstance(scratch, dict) else {}
        more = () if named else scratch if isinstance(scratch, tuple) else (scratch,)
        on_grid = cells.on(cells.Grid(extents, leaves[: len(extents)], asked.grid_spec.grid_names))
        with on_grid, cells.sharing(given) as wanted:
            out = kernel(*args, *outs, *more, **named)
        more_refs[:] = wanted
        if out is not None:
            raise ValueError(
                f"The kernel function in the pallas_call {function_names.source_of(kernel)} should return None. It "
                f"writes its results to the references of its outputs, as in out_ref[...] = x. It returned {out!r}"
            )
        return []

    info = DebugInfo("pallas_call", function_names.source_of(kernel))
    while True:
        closed, _ = trace_to_jaxpr(flat, [NUMBER] * len(extents) + refs + shared, info)
        if len(more_refs) == len(shared):
            break
        shared = list(more_refs)
    if not asked.takes_arrays:
        named_kernel = f"The kernel function in the pallas_call {function_names.source_of(kernel)} captures constants"
        specs.check_constants([x for x in closed.consts if not is_ref(x)], named_kernel, "pass them as inputs")
    if any(map(specs.is_array, closed.consts)):
        raise _ClosesOver(closed, shared)
    return closed, shared


def _lowered(
    closed: ClosedJaxpr, counts: tuple[int, int, int, int], ways: list[Way], aliased: list[int | None],
    scratch: list[AbstractRef],
) -> Kernel:  # fmt: skip
    """The program on blocks: (numbers, fetched before, blocks, scratch) -> (blocks of outputs, scratch).

    Inputs that are written to, and semaphores, which begin as zero, are outputs too.
    """
    n_axes, n_ahead, n_in, n_out = counts
    found = discharged(closed.jaxpr)
    n_lead, n_consts = len(found.captured) + len(closed.consts), len(closed.consts)
    last = dict(zip(found.written, found.jaxpr.outvars[len(closed.jaxpr.outvars) :], strict=True))
    own = found.jaxpr.invars[n_lead:]
    final = [last.get(n_consts + index, v) for index, v in enumerate(own)]
    first = n_axes + n_ahead
    end = first + n_in + n_out
    changed = [p for p in range(n_in) if n_consts + first + p in found.written]
    counted = [k for k, ref in enumerate(scratch) if spaces.is_semaphore(ref)]
    rest = [k for k in range(len(scratch)) if k not in counted]
    indices = [*range(first + n_in, end), *[first + p for p in changed], *[end + k for k in counted]]
    ins = [Var(own[first + p].aval) if p in changed else own[first + p] for p in range(n_in)]
    outputs = [ways[index - first] for index in indices]
    taken = [*zip(ins, ways, strict=False), *zip([own[index] for index in indices], outputs, strict=True)]
    empty = [v for v, way in taken if not way.aval.size]
    jaxpr = found.jaxpr.replace(
        constvars=[*found.jaxpr.invars[:n_lead], *empty],
        invars=[*own[:first], *[v for v, way in taken if way.aval.size], *[own[end + k] for k in rest]],
        outvars=[
            *[final[index] for index, way in zip(indices, outputs, strict=True) if way.aval.size],
            *[final[end + k] for k in rest],
        ],
        debug_info=None,
    )
    nothing = [np.zeros(v.aval.shape, v.aval.dtype) for v in empty]
    body = ClosedJaxpr(jaxpr, [*found.captured, *closed.consts, *nothing])
    begun = (*aliased, *changed, *[None] * len(counted))
    return Kernel(
        closed,
        body,
        tuple(ways[:n_in]),
        tuple(outputs),
        begun,
        n_out,
        tuple([scratch[k] for k in rest]),
        tuple(scratch),
    )


def _check_aliases(aliases: dict[Any, Any], in_avals: Sequence[Any], outs: Sequence[Any], first: int) -> None:
    for source, target in aliases.items():
        said = f"input_output_aliases contains the mapping '{source}:{target}'"
        if not 0 <= source < len(in_avals):
            raise ValueError(f"{said} with input index {source} outside the range [0, {len(in_avals)})")
        if source < first:
            raise ValueError(f"{said}, but input {source} is fetched before the kernel runs: it is no output")
        if not 0 <= target < len(outs):
            raise ValueError(f"{said} with output index {target} outside the range [0, {len(outs)})")
        given, made = in_avals[source], outs[target]
        if (given.shape, given.dtype) != (made.shape, made.dtype):
            raise ValueError(
                f"{said} referring to input[{source}] with abstract value {avals_module.long_text(given)} and to "
                f"output[{target}] with a different abstract value {avals_module.long_text(made)}."
            )
    targets = list(aliases.values())
    if len(set(targets)) < len(targets):
        raise ValueError(f"input_output_aliases gives an output two inputs: {aliases}")


# -- a call -----------------------------------------------------------------------------------------------------------


def _run(asked: Asked, traced: Kernel, values: Sequence[Any]) -> list[Any]:
    """The results of a call. What is written to an input that is a reference is written to that reference."""
    check_distinct(values, lambda: [f"operand {number}" for number in range(len(values))])
    operands = _agreeing([_plain(x) for x in values])
    first = len(operands) - len(traced.inputs)
    combines = any(isinstance(effect, NamedAxis) for effect in traced.jaxpr.effects)  # with other devices
    if isinstance(asked.interpret, InterpretParams) and not combines:
        results = _run_checked(asked, traced, operands)
    else:
        results = _run_grid(asked, traced, operands[:first], operands[first:])
    for index in range(traced.kept, len(results)):
        source = traced.aliased[index]
        if source is not None and is_ref(values[first + source]):
            store(values[first + source], results[index])
    return results[: traced.kept]


def _run_grid(asked: Asked, traced: Kernel, ahead: list[Any], inputs: list[Any]) -> list[Any]:
    """All outputs of the kernel, by ``grid_loop``."""
    begun = [
        spaces.first_value(way.ref.update(shape=way.aval.shape)) if source is None else inputs[source]
        for way, source in zip(traced.outputs, traced.aliased, strict=True)
    ]
    begun = _agreeing([*ahead, *inputs, *begun])[len(ahead) + len(inputs) :]
    ways = [way for way in (*traced.inputs, *traced.outputs) if way.aval.size]
    outs = grid_loop.grid_loop(
        ahead,
        [x for x, way in zip(inputs, traced.inputs, strict=True) if way.aval.size],
        [x for x, way in zip(begun, traced.outputs, strict=True) if way.aval.size],
        grid=asked.grid_spec.grid, body=traced.body, maps=[way.index_map for way in ways],
        blocks=[way.block for way in ways], scratch=[ref.inner_aval for ref in traced.scratch],
        semantics=asked.semantics, name=asked.name, in_order=bool(asked.interpret),
    )  # fmt: skip
    made = iter(outs)
    return [next(made) if way.aval.size else x for x, way in zip(begun, traced.outputs, strict=True)]


def _run_checked(asked: Asked, traced: Kernel, operands: list[Any]) -> list[Any]:
    """The outputs of the user and the inputs that are written to, by an interpreter on the host that checks."""

    def run(*arrays: Any) -> list[Any]:
        return checked.run(
            traced.jaxpr, traced.inputs, traced.outputs[: traced.kept], traced.aliased, traced.shared,
            asked.grid_spec.grid, asked.semantics, asked.interpret, arrays,
        )  # fmt: skip

    written = [source for source in traced.aliased[traced.kept :] if source is not None]
    types = [way.aval for way in (*traced.outputs[: traced.kept], *[traced.inputs[k] for k in written])]
    if not is_tracing() and not any(isinstance(x, Tracer) for x in operands):
        return [jnp.asarray(x) for x in run(*operands)]
    return callbacks.pure_callback(run, types, *operands, vmap_method="sequential")


def _agreeing(values: list[Any]) -> list[Any]:
    """The values, all varying along the mesh axes along which any does: within ``shard_map``."""
    own = [bodies.varying_axes(avals_module.get_aval(x)) for x in values]
    every = tuple(dict.fromkeys([axis for axes in own for axis in axes]))
    missing = [tuple([axis for axis in every if axis not in axes]) for axes in own]
    return [collectives.pcast(x, axes, to="varying") if axes else x for x, axes in zip(values, missing, strict=True)]


def _plain(value: Any) -> Any:
    """An argument without weak types, as kernels see it; if it is a reference, what it holds."""
    if is_ref(value):
        return value_of(value)
    aval = avals_module.get_aval(value)
    return convert.convert(value, aval.dtype, False) if aval.weak_type or not hasattr(value, "dtype") else value


def _type_of(value: Any) -> Any:
    aval = flat_functions.check_leaf(value, refs=True)
    return aval.inner_aval if type(aval) is AbstractRef else aval.strip_weak_type()

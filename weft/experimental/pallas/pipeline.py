"""emit_pipeline: a grid of its own inside of a kernel, over blocks of references.

Each cell copies its blocks into buffers, runs the body on them, and copies the blocks of outputs back. On the CPU
nothing is gained by fetching the next block before it is needed, so that cells just follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft._base.record import NamedTuple
from weft.core import avals as avals_module
from weft.effects import ref_indexing, refs
from weft.experimental.pallas import blocks, cells, cores, inside, masked, specs
from weft.operations.pointwise.convert import convert


def emit_pipeline(
    body: Callable[..., None],
    *,
    grid: Any,
    in_specs: Any = (),
    out_specs: Any = (),
    tiling: Any = None,
    core_axis: Any = None,
    core_axis_name: Any = None,
    dimension_semantics: Any = None,
    trace_scopes: bool = True,
    no_pipelining: bool = False,
    _explicit_indices: bool = False,
) -> Callable[..., None]:
    """A function of references (inputs, then outputs) that runs ``body`` on blocks of them, for every cell of ``grid``.

    It is called in a kernel, whose references may be whole arrays (``BlockSpec(memory_space=pallas.ANY)``). Extents of
    the grid may be traced. An output's buffer begins as what the output holds. A dimension ``BoundedSlice(n)`` takes
    ``ds(start, size)`` with a traced size, ``Indirect(n)`` an array of n indices. ``scratches=...`` of a call are
    passed on to the body. With ``core_axis``, the number of an axis of the kernel's grid (or ``core_axis_name``), each
    cell of the kernel along it runs a part of this grid, along an axis that ``dimension_semantics`` says is parallel.
    The other options are hints, which change no result.

    >>> def double(x_ref, out_ref):
    ...     out_ref[...] = 2 * x_ref[...]
    >>> spec = pallas.BlockSpec((2,), lambda i: i)
    >>> run = pallas.tpu.emit_pipeline(double, grid=(3,), in_specs=[spec], out_specs=[spec])
    >>> pallas.pallas_call(run, weft.ShapeDtypeStruct((6,), "float32"))(jnp.arange(6.0))
    Array([ 0.,  2.,  4.,  6.,  8., 10.], dtype=float32)
    """
    spec = blocks.GridSpec(grid, tuple(in_specs) if isinstance(in_specs, Sequence) else (in_specs,))
    sources = spec.in_specs
    targets = tuple(out_specs) if isinstance(out_specs, Sequence) else (out_specs,)

    def run(*given: Any, scratches: Any = (), **kwargs: Any) -> None:
        if kwargs:
            raise NotImplementedError(f"emit_pipeline: the options {sorted(kwargs)} of a call belong to a TPU")
        wanted = len(sources) + len(targets)
        if len(given) != wanted:
            raise ValueError(
                f"[emit_pipeline] there are {len(sources)} in_specs and {len(targets)} out_specs, so that the pipeline "
                f"takes {wanted} references; it got {len(given)}"
            )
        pairs = []
        for number, (own, args) in enumerate(zip((*sources, *targets), given, strict=True)):
            leaves, tree = runtime.tree_flatten(args)
            found = specs.leaves((own,), runtime.tree_flatten((args,))[1], "specs", "references")
            pairs.append((number >= len(sources), tree, list(zip(found, leaves, strict=True))))
        core = core_axis_name if core_axis is None else core_axis
        extents, firsts = cores.part(spec.grid, core, dimension_semantics)
        _loop(body, _OnGrid(extents, spec.grid_names, (), firsts), pairs, scratches, _explicit_indices)

    return run


def on_traced_grid(kernel: Callable[..., None], spec: blocks.GridSpec, n_args: int, out_tree: Any) -> Any:
    """(a kernel on whole arrays, which runs the given one for every cell of a grid of traced extents; those extents).

    The kernel takes the references to the extents first.
    """
    traced = [extent for extent in spec.grid if not isinstance(extent, int)]
    n_ahead = spec.num_scalar_prefetch

    def whole(extent_refs: Sequence[Any], *given: Any, **named: Any) -> None:
        known = iter([refs.get(ref) for ref in extent_refs])
        grid = [extent if isinstance(extent, int) else next(known) for extent in spec.grid]
        outs, scratch = given[n_args : n_args + _width(out_tree)], given[n_args + _width(out_tree) :]
        ahead, inputs = given[:n_ahead], given[n_ahead:n_args]
        pairs = []
        for args, own, what, of in ((inputs, spec.in_specs, "in_specs", "`inputs`"),
                                    (outs, spec.out_specs, "out_specs", "`out_shape`")):  # fmt: skip
            leaves, tree = runtime.tree_flatten(tuple(args))
            own = own if isinstance(own, (tuple, blocks.NoBlockSpec)) else (own,)
            found = specs.leaves(own, tree, what, of)
            pairs.append((of != "`inputs`", tree, list(zip(found, leaves, strict=True))))

        def body(ins: Any, results: Any) -> None:
            kernel(*ahead, *ins, *results, *scratch, **named)

        _loop(body, _OnGrid(tuple(grid), spec.grid_names, ahead), pairs, (), False)

    return whole, tuple(traced)


class _OnGrid(NamedTuple):
    """A grid with the names of its axes, what is fetched before, and the numbers at which cells begin (None: at 0)."""

    grid: tuple[Any, ...]
    grid_names: Any
    ahead: tuple[Any, ...] = ()
    firsts: tuple[Any, ...] | None = None


def _width(tree: Any) -> int:
    """How many arguments of a kernel a tree of results is."""
    root = runtime.tree_unflatten(tree, list(range(tree.num_leaves)))
    return len(root) if isinstance(root, tuple) else 1


def _loop(body: Callable[..., None], spec: _OnGrid, pairs: list[Any], scratches: Any, explicit: bool) -> None:
    def cell(numbers: list[Any]) -> None:
        if spec.firsts is not None:
            numbers = [lax.add(n, first) for n, first in zip(numbers, spec.firsts, strict=True)]
        args, back = [], []
        for is_output, tree, entries in pairs:
            buffers = []
            for own, ref in entries:
                part = _part(own, ref, [*numbers, *spec.ahead])
                buffer = refs.new_ref(_fetched(part))
                buffers.append(buffer)
                if is_output:
                    back.append((part, buffer))
            args.append(runtime.tree_unflatten(tree, buffers))
        with cells.on(cells.Grid(spec.grid, numbers, spec.grid_names)):
            body(*([tuple(numbers)] if explicit else []), *args, *scratches)
        for part, buffer in back:
            _put(part, refs.get(buffer))

    each_cell(spec.grid, cell)


def each_cell(extents: Sequence[Any], run: Callable[[list[Any]], None]) -> None:
    """Run a function on the numbers of every cell of a grid, in row-major order, as a loop."""
    inside.loop(0, math.prod(extents))(lambda k: run(_numbers(k, extents)))


def _numbers(k: Any, extents: Sequence[Any]) -> list[Any]:
    """The numbers of the cell ``k``, in row-major order."""
    numbers, rest = [], convert(k, np.dtype(np.int32), False)
    for extent in reversed(extents):
        n = convert(extent, np.dtype(np.int32), False)
        numbers.append(lax.rem(rest, n))
        rest = lax.div(rest, n)
    return numbers[::-1]


class _Part(NamedTuple):
    """A block of a reference: positions along each dimension, which of them count (None: all do), hidden dimensions."""

    ref: Any
    positions: list[Any]
    counts: list[Any]
    hidden: list[int]

    @property
    def is_whole(self) -> bool:
        return all(count is None for count in self.counts)

    def key(self) -> tuple[tuple[Any, ...], Any]:
        """(an index array for each dimension, in the shape of the block; the mask of the elements that count)."""
        shape = tuple([avals_module.get_aval(p).shape[0] for p in self.positions])
        mask = lax.full(shape, True, np.dtype(bool))
        for dim, count in enumerate(self.counts):
            if count is not None:
                mask = lax.bitwise_and(mask, lax.broadcast_in_dim(count, shape, (dim,)))
        return tuple([lax.broadcast_in_dim(p, shape, (d,)) for d, p in enumerate(self.positions)]), mask


def _part(spec: Any, ref: Any, numbers: Sequence[Any]) -> _Part:
    """The block of a reference that the cell of these numbers sees."""
    if isinstance(spec, blocks.NoBlockSpec) or spec.block_shape is None:
        spec = blocks.BlockSpec(ref.shape, None if isinstance(spec, blocks.NoBlockSpec) else spec.index_map)
    sizes = spec.block_shape
    index = (0,) * len(sizes)
    if spec.index_map is not None:
        with cells.on(None):
            found = spec.index_map(*numbers)
        index = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(sizes) != ref.ndim or len(index) != ref.ndim:
        raise ValueError(
            f"[emit_pipeline] a reference of shape {ref.shape} has a block of shape {sizes} and {len(index)} indices: "
            f"give one of each for its {ref.ndim} dimensions"
        )
    positions, counts, hidden = [], [], []
    for dim, (size, at, extent) in enumerate(zip(sizes, index, ref.shape, strict=True)):
        position, count = _along(size, at)
        positions.append(position)
        whole = isinstance(at, int) and at == 0 and getattr(size, "block_size", size) == extent
        counts.append(None if whole else lax.bitwise_and(count, _within(position, extent)))
        if size is None or isinstance(size, blocks.Squeezed):
            hidden.append(dim)
    return _Part(ref, positions, counts, hidden)


def _within(position: Any, extent: int) -> Any:
    return lax.bitwise_and(lax.ge(position, np.int32(0)), lax.lt(position, np.int32(extent)))


def _along(size: Any, at: Any) -> tuple[Any, Any]:
    """(the positions along one dimension, which of them are asked for)."""
    int32 = np.dtype(np.int32)
    if isinstance(size, blocks.Indirect):
        position = convert(at, int32, False)
        return position, lax.full_like(position, True, np.dtype(bool))
    n = 1 if size is None else getattr(size, "block_size", 1 if isinstance(size, blocks.Squeezed) else size)
    offsets = lax.iota(np.int32, n)
    count = lax.full((n,), True, np.dtype(bool))
    if isinstance(size, blocks.BoundedSlice):
        if not isinstance(at, ref_indexing.Slice):
            raise ValueError(f"[emit_pipeline] the index map of a dimension {size!r} gives ds(start, size), got {at!r}")
        length = convert(at.size, int32, False)
        return lax.add(offsets, lax.broadcast(convert(at.start, int32, False), (n,))), lax.lt(
            offsets, lax.broadcast(length, (n,))
        )
    start = convert(at, int32, False)
    if isinstance(size, blocks.Element):
        start = lax.sub(start, np.int32(size.padding[0]))
    elif not (size is None or isinstance(size, blocks.Squeezed)):
        start = lax.mul(start, np.int32(n))
    return lax.add(offsets, lax.broadcast(start, (n,))), count


def _fetched(part: _Part) -> Any:
    if part.is_whole:
        return lax.squeeze(refs.get(part.ref), part.hidden)
    key, mask = part.key()
    return lax.squeeze(masked.load(part.ref, key, mask=mask), part.hidden)


def _put(part: _Part, value: Any) -> None:
    value = lax.expand_dims(value, part.hidden)
    if part.is_whole:
        refs.set(part.ref, ..., value)
        return
    key, mask = part.key()
    masked.store(part.ref, key, value, mask=mask)

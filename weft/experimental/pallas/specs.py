"""From the specs of ``pallas_call`` to what ``grid_loop`` takes: for each array its block and its index map.

Trees of specs are brought to one list along the arrays; index maps are traced and checked. Error texts name the array
by its path (``args[0]['x']``, ``outputs[1]``) and the user's function by its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime, tree_util
from weft._base.record import NamedTuple
from weft.control import grid_blocks
from weft.core import avals as avals_module
from weft.core.programs.jaxpr import ClosedJaxpr, DebugInfo
from weft.core.ref_types import BLOCK, AbstractRef, is_ref
from weft.core.tracing.trace import trace_to_jaxpr
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import function_names
from weft.effects import ref_indexing
from weft.effects.discharge import discharged
from weft.experimental.pallas import blocks, cells
from weft.experimental.pallas.blocks import BlockSpec, NoBlockSpec
from weft.operations.pointwise import convert

NUMBER = runtime.ShapedArray((), np.dtype(np.int32))


class Way(NamedTuple):
    """How the cells see one array: its type, the type of the reference, its blocks and where they begin."""

    path: str
    aval: Any
    ref: AbstractRef
    block: grid_blocks.Blocking
    index_map: ClosedJaxpr


class Scope(NamedTuple):
    """What index maps take: the numbers along the axes of a grid, and the references to scalars fetched before."""

    extents: tuple[Any, ...]
    prefetched_tree: Any
    prefetched: Sequence[Any]


def leaves(specs: Any, tree: Any, what: str, of: str) -> list[Any]:
    """The specs in the order of the leaves of ``tree``; ValueError that names the leaves that do not fit."""
    if isinstance(specs, NoBlockSpec):
        return [specs] * tree.num_leaves
    given = runtime.tree_unflatten(tree, list(range(tree.num_leaves)))
    found, wrong = {}, []
    _match(specs, given, "", what, of, found, wrong)
    if wrong:
        listed = "".join([f"\n    * {text}" for text in wrong])
        raise ValueError(
            f"Pytree for `{what}` and {of} do not match. There are {len(wrong)} mismatches, including:{listed}"
        )
    return [found[number] for number in range(tree.num_leaves)]


def _match(specs: Any, given: Any, path: str, what: str, of: str, found: dict[int, Any], wrong: list[str]) -> None:
    """Go down both trees together."""
    at = f"at {path}, " if path else ""
    is_array = type(given) is int
    if isinstance(specs, (BlockSpec, NoBlockSpec)) or (specs is None and is_array):
        if is_array:
            found[given] = blocks.no_block_spec if specs is None else specs
        else:
            wrong.append(f"{at}`{what}` is a pytree leaf but {of} is a {type(given).__name__} of arrays")
        return
    if is_array:
        wrong.append(f"{at}{of} is an array but `{what}` is {specs!r}, which is no BlockSpec")
        return
    own, other = _children(specs), _children(given)
    if own is None or type(specs) is not type(given) or [key for key, _ in own] != [key for key, _ in other or ()]:
        wrong.append(f"{at}`{what}` is {_words(specs)} but {of} is {_words(given)}")
        return
    for (key, spec), (_, part) in zip(own, other or (), strict=True):
        _match(spec, part, path + str(key), what, of, found, wrong)


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    if tree is None:
        return []
    try:
        entries, _ = tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    except (TypeError, ValueError):
        return None
    return [(tree_util.keystr(path), child) for path, child in entries]


def _words(tree: Any) -> str:
    name = type(tree).__name__
    return f"a {name} of length {len(tree)}" if isinstance(tree, (tuple, list, dict)) else f"a {name}"


# -- one array --------------------------------------------------------------------------------------------------------


def way(spec: Any, aval: Any, path: str, scope: Scope) -> Way:
    """How the cells see an array of this type."""
    spec = BlockSpec() if isinstance(spec, NoBlockSpec) else spec
    aval = aval.strip_weak_type()
    if spec.block_shape is None:
        sizes: tuple[Any, ...] = aval.shape
        index_map = None if any(n == 0 for n in aval.shape) else spec.index_map
    else:
        sizes, index_map = spec.block_shape, spec.index_map
    if len(sizes) != aval.ndim:
        raise ValueError(
            f"Block shape for {path} (= {sizes}) must have the same number of dimensions as the array shape "
            f"{aval.shape}."
        )
    block = _block(sizes, path)
    if any(n == 0 for n in block.shape) and aval.size:
        raise ValueError(f"Block shape for {path} (= {sizes}) has an extent of 0: a block has elements.")
    ref = AbstractRef(aval.update(shape=block.seen), spec.memory_space, BLOCK)
    indices = _zeros(scope, aval.ndim) if index_map is None else _traced(index_map, sizes, aval, path, scope)
    return Way(path, aval, ref, block, indices)


def whole(ref: AbstractRef, scope: Scope) -> Way:
    """How the cells see what they share: all of it."""
    aval = ref.inner_aval
    return Way("scratch", aval, ref, grid_blocks.whole(aval.shape), _zeros(scope, aval.ndim))


def _block(sizes: Sequence[Any], path: str) -> grid_blocks.Blocking:
    shape, squeezed, elements = [], [], []
    for size in sizes:
        if isinstance(size, (blocks.Indirect, blocks.BoundedSlice)):
            raise ValueError(
                f"Unsupported block dimension of {path}: {size!r} is for emit_pipeline; pallas_call has Blocked, "
                "Element and Squeezed, as in JAX. Give the kernel the whole array (BlockSpec(memory_space=pallas.ANY)) "
                "and run pallas.tpu.emit_pipeline with this block in it"
            )
        is_squeezed = size is None or isinstance(size, blocks.Squeezed)
        shape.append(1 if is_squeezed else getattr(size, "block_size", size))
        squeezed.append(is_squeezed)
        elements.append(tuple(size.padding) if isinstance(size, blocks.Element) else None)
    return grid_blocks.Blocking(tuple(shape), tuple(squeezed), tuple(elements))


def _map_types(scope: Scope) -> list[Any]:
    return [NUMBER] * len(scope.extents) + [ref.inner_aval for ref in scope.prefetched]


def _zeros(scope: Scope, count: int) -> ClosedJaxpr:
    return trace_to_jaxpr(lambda *_: [np.int32(0)] * count, _map_types(scope))[0]


def _traced(index_map: Any, sizes: Sequence[Any], aval: Any, path: str, scope: Scope) -> ClosedJaxpr:
    """The program of an index map: (numbers of the cell, scalars fetched before) -> an int32 for each dimension."""
    named = f"Index map function {function_names.source_of(index_map)} for {path}"

    def flat(*args: Any) -> list[Any]:
        numbers, ahead = args[: len(scope.extents)], args[len(scope.extents) :]
        with cells.on(cells.Grid(scope.extents, numbers)):
            found = index_map(*numbers, *runtime.tree_unflatten(scope.prefetched_tree, list(ahead)))
        outs = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(outs) != len(sizes):
            raise ValueError(
                f"{named} must return {len(sizes)} values to match block_shape={tuple(sizes)}. Currently returning "
                f"{len(outs)} values: {outs}"
            )
        return [_index(out, number, named) for number, out in enumerate(outs)]

    info = DebugInfo("pallas_call index_map", function_names.source_of(index_map))
    closed, _ = trace_to_jaxpr(flat, [NUMBER] * len(scope.extents) + list(scope.prefetched), info)
    check_constants(
        closed.consts, f"{named} must not capture constants:", "pass them as operands that are fetched before"
    )
    found = discharged(closed.jaxpr)
    if found.written:
        raise ValueError(f"{named} writes to a reference: index maps only read them")
    count = len(found.captured) + len(closed.consts)
    return inlined(found.jaxpr, [*found.captured, *closed.consts], count)


def _index(out: Any, number: int, named: str) -> Any:
    if isinstance(out, ref_indexing.Slice):
        raise ValueError(f"{named} gives a slice as output[{number}]: only a BoundedSlice dimension takes one")
    try:
        known = avals_module.get_aval(out)
    except TypeError as error:
        raise ValueError(f"{named} must return integer scalars. Output[{number}] is {out!r}.") from error
    if known.shape or not dtypes.issubdtype(known.dtype, np.integer):
        raise ValueError(
            f"{named} must return integer scalars. Output[{number}] has type {avals_module.long_text(known)}."
        )
    return np.int32(out) if isinstance(out, (int, np.integer)) else convert.convert(out, NUMBER.dtype, False)


def is_array(const: Any) -> bool:
    """Whether what a program has captured is an array, a traced value or a reference: numbers are none of these."""
    return isinstance(const, Tracer) or is_ref(const) or bool(avals_module.get_aval(const).shape)


def check_constants(consts: Sequence[Any], what: str, cure: str) -> None:
    """ValueError if there are arrays among what a program has captured."""
    kept = [const for const in consts if is_array(const)]
    if kept:
        listed = ", ".join([avals_module.short_text(avals_module.get_aval(const)) for const in kept])
        raise ValueError(f"{what} [{listed}]. You should {cure}.")


def inlined(jaxpr: Any, consts: Sequence[Any], count: int) -> ClosedJaxpr:
    """The program whose first inputs are the numbers it captured."""
    if not count:
        return ClosedJaxpr(jaxpr)
    own = jaxpr.replace(constvars=jaxpr.invars[:count], invars=jaxpr.invars[count:], debug_info=None)
    return ClosedJaxpr(own, list(consts))

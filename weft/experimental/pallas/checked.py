"""A kernel run cell by cell on NumPy arrays, operation by operation, with checks: ``interpret=InterpretParams(...)``.

The program with references is interpreted as it was written. An access outside of its reference, an index map that
names a block which does not exist, a read of what nobody has written, and cells of parallel axes that write one element
are errors; each names the array, the index, the cell and the line of the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from weft.control import grid_blocks
from weft.core import avals as avals_module
from weft.core.programs.eval import jaxpr_as_fun
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal
from weft.core.ref_types import uses_refs
from weft.core.tracing import source_info
from weft.effects import ref_indexing
from weft.effects.ref_indexing import Index
from weft.experimental.pallas import masked, spaces
from weft.experimental.pallas.interpret import InterpretParams
from weft.experimental.pallas.specs import Way


class Memory:
    """What a reference holds: values, which of them are known, which were written by this cell."""

    def __init__(self, name: str, values: np.ndarray, known: np.ndarray | bool = True) -> None:
        self.name = name
        self.values = np.array(values, order="C")  # accesses write to it through reshape(-1)
        self.known = np.broadcast_to(known, self.values.shape).copy()
        self.written = np.zeros(self.values.shape, bool)
        self.is_semaphore = False  # a count that is never below zero


class Cell:
    """One cell of the grid: where it is, how strict it is, and the equation that runs."""

    def __init__(self, number: tuple[int, ...], params: InterpretParams) -> None:
        self.number = number
        self.params = params
        self.eqn: Any = None

    def fail(self, text: str) -> NoReturn:
        where = "" if self.eqn is None else f" at {source_info.summarize(self.eqn.source)}"
        raise IndexError(f"[pallas_call] cell {self.number}{where}: {text}")


# -- accesses ---------------------------------------------------------------------------------------------------------


def _selected(cell: Cell, memory: Memory, indices: Sequence[Index], operands: Sequence[Any]) -> tuple[Any, Any]:
    """(the number of each element that the indices select, which of them lie inside)."""
    flat = np.arange(memory.values.size).reshape(memory.values.shape)
    inside: Any = np.ones(flat.shape, bool)
    given = list(operands)
    for index in indices:
        count = sum(1 for region in index if region is None or region.start is None)
        own, given = given[:count], given[count:]
        found = ref_indexing.selected_shape(flat.shape, (index,), [avals_module.get_aval(x) for x in own])
        positions = [np.asarray(p) for p in masked.positions(index, own, found)]
        positions = [np.where(p < 0, p + n, p) for p, n in zip(positions, flat.shape, strict=True)]
        fits = np.ones(found, bool)
        for position, n in zip(positions, flat.shape, strict=True):
            fits &= (position >= 0) & (position < n)
        key = tuple([np.clip(p, 0, max(n - 1, 0)) for p, n in zip(positions, flat.shape, strict=True)])
        inside = fits & inside[key]
        flat = flat[key]
    return flat, inside


def _checked(cell: Cell, memory: Memory, indices: Any, operands: Any, mask: Any, verb: str) -> tuple[Any, Any]:
    """(the number of each element, which of them count); an error for one outside."""
    flat, inside = _selected(cell, memory, indices, operands)
    wanted = np.broadcast_to(True if mask is None else np.asarray(mask), flat.shape)
    if np.any(wanted & ~inside) and (verb == "writes" or cell.params.out_of_bounds_reads == "raise"):
        at = [np.asarray(x).tolist() for x in operands]
        cell.fail(
            f"the kernel {verb} outside of the reference {memory.name} of shape {memory.values.shape}: the index "
            f"{_shown(indices)} with {at}" + (", where the mask is True" if mask is not None else "")
        )
    return flat, wanted & inside


def _shown(indices: Sequence[Index]) -> str:
    def one(region: Any) -> str:
        if region is None:
            return "i"
        start = "i" if region.start is None else str(region.start)
        return f"ds({start}, {region.size}{f', {region.stride}' if region.stride != 1 else ''})"

    return "".join([f"[{', '.join(map(one, index))}]" for index in indices]) or "[...]"


def _read(cell: Cell, memory: Memory, indices: Any, operands: Any, mask: Any = None) -> np.ndarray:
    flat, counts = _checked(cell, memory, indices, operands, mask, "reads")
    if cell.params.uninitialized_reads == "raise" and np.any(counts & ~memory.known.reshape(-1)[flat]):
        cell.fail(f"the kernel reads from the reference {memory.name}{_shown(indices)} what nobody has written")
    values = memory.values.reshape(-1)[flat]
    unset = np.asarray(grid_blocks.unset(memory.values.dtype))
    return np.where(counts if mask is None else counts | ~np.asarray(mask), values, unset).astype(values.dtype)


def _write(cell: Cell, memory: Memory, new: Any, indices: Any, operands: Any, mask: Any = None) -> None:
    flat, counts = _checked(cell, memory, indices, operands, mask, "writes")
    chosen = flat[counts]
    memory.values.reshape(-1)[chosen] = np.asarray(new)[counts]  # where one is named twice, the last stays
    memory.known.reshape(-1)[chosen] = memory.written.reshape(-1)[chosen] = True


def _get(cell: Cell, params: Any, memory: Memory, *operands: Any) -> list[Any]:
    return [_read(cell, memory, params["indices"], operands)]


def _swap(cell: Cell, params: Any, memory: Memory, new: Any, *operands: Any) -> list[Any]:
    flat, _ = _checked(cell, memory, params["indices"], operands, None, "writes")
    before = memory.values.reshape(-1)[flat]
    _write(cell, memory, new, params["indices"], operands)
    return [before]


def _addupdate(cell: Cell, params: Any, memory: Memory, new: Any, *operands: Any) -> list[Any]:
    _one_by_one(cell, memory, new, None, params["indices"], operands, "add")
    if memory.is_semaphore and np.any(memory.values < 0):
        cell.fail(
            f"the kernel waits for the semaphore {memory.name}, which nobody before has signalled so often: cells, and "
            "bodies of pallas.kernel, run one after the other"
        )
    return []


def _masked_get(cell: Cell, params: Any, memory: Memory, mask: Any, other: Any, *operands: Any) -> list[Any]:
    indices = params["indices"] or (_whole(memory),)
    found = _read(cell, memory, indices, operands, np.asarray(mask))
    return [np.where(np.asarray(mask), found, np.asarray(other)).astype(found.dtype)]


def _masked_set(cell: Cell, params: Any, memory: Memory, new: Any, mask: Any, *operands: Any) -> list[Any]:
    _write(cell, memory, new, params["indices"], operands, np.asarray(mask))
    return []


def _atomic(cell: Cell, params: Any, memory: Memory, new: Any, mask: Any, *operands: Any) -> list[Any]:
    return [_one_by_one(cell, memory, new, np.asarray(mask), params["indices"], operands, params["kind"])]


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "xchg": lambda old, new: new,
}  # fmt: skip


def _one_by_one(cell: Cell, memory: Memory, new: Any, mask: Any, indices: Any, operands: Any, kind: str) -> Any:
    _read(cell, memory, indices, operands, mask)
    flat, counts = _checked(cell, memory, indices, operands, mask, "writes")
    values, seen = memory.values.reshape(-1), np.zeros(flat.shape, memory.values.dtype)
    for k, (index, value, flag) in enumerate(zip(flat.ravel(), np.asarray(new).ravel(), counts.ravel(), strict=True)):
        seen.reshape(-1)[k] = values[index]
        if flag:
            values[index] = _COMBINE[kind](values[index], value)
            memory.written.reshape(-1)[index] = True
    return seen


def _whole(memory: Memory) -> Index:
    return tuple([ref_indexing.Region(0, n) for n in memory.values.shape])


def _new(cell: Cell, params: Any, value: Any) -> list[Any]:
    return [Memory("made in the kernel", np.asarray(value))]


_ACCESSES: dict[str, Callable[..., list[Any]]] = {
    "get": _get, "swap": _swap, "addupdate": _addupdate, "masked_get": _masked_get, "masked_set": _masked_set,
    "atomic": _atomic, "new_ref": _new, "free_ref": lambda *_: [], "freeze": lambda cell, params, m: [m.values],
}  # fmt: skip


# -- programs ---------------------------------------------------------------------------------------------------------


def _run(cell: Cell, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        cell.eqn = eqn
        values = [read(atom) for atom in eqn.invars]
        access = _ACCESSES.get(eqn.primitive.name)
        if access is not None:
            outs = access(cell, eqn.params, *values)
        elif any(isinstance(x, Memory) for x in values) or _makes_refs(eqn):
            outs = _program(cell, eqn, values)
        else:
            found = eqn.primitive.bind(*values, **eqn.params)
            outs = found if eqn.primitive.multiple_results else [found]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _makes_refs(eqn: Any) -> bool:
    return any(isinstance(x, ClosedJaxpr) and uses_refs(x.jaxpr) for x in _programs(eqn.params))


def _programs(params: dict[str, Any]) -> list[Any]:
    return [x for value in params.values() for x in (value if isinstance(value, tuple) else (value,))]


def _program(cell: Cell, eqn: Any, values: list[Any]) -> list[Any]:
    """An operation whose programs use references."""
    name, params = eqn.primitive.name, eqn.params

    def call(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        outs = _run(cell, closed.jaxpr, closed.consts, args)
        cell.eqn = eqn
        return outs

    if name == "cond":
        branches = params["branches"]
        return call(branches[int(np.clip(int(values[0]), 0, len(branches) - 1))], values[1:])
    if name == "while":
        n_test, n_body = params["cond_nconsts"], params["body_nconsts"]
        tested, captured, state = values[:n_test], values[n_test : n_test + n_body], values[n_test + n_body :]
        while bool(call(params["cond_jaxpr"], [*tested, *state])[0]):
            state = call(params["body_jaxpr"], [*captured, *state])
        return state
    if name == "scan":
        return _scan(call, params, values)
    closed = params.get("jaxpr", params.get("call_jaxpr"))
    if not isinstance(closed, ClosedJaxpr):
        raise NotImplementedError(f"interpret=InterpretParams(): [{name}] with references; use interpret=True")
    return call(closed, values)


def _scan(call: Callable[..., list[Any]], params: dict[str, Any], values: list[Any]) -> list[Any]:
    n_consts, n_carry, length = params["num_consts"], params["num_carry"], params["length"]
    consts, state, inputs = values[:n_consts], values[n_consts : n_consts + n_carry], values[n_consts + n_carry :]
    rows: list[Any] = [None] * length
    for i in reversed(range(length)) if params["reverse"] else range(length):
        outs = call(params["jaxpr"], [*consts, *state, *[np.asarray(x)[i] for x in inputs]])
        state, rows[i] = outs[:n_carry], outs[n_carry:]
    types = params["jaxpr"].out_avals[n_carry:]
    stacked = [
        np.stack([np.asarray(row[k]) for row in rows]) if length else np.zeros((0, *aval.shape), aval.dtype)
        for k, aval in enumerate(types)
    ]
    return [*state, *stacked]


# -- the grid ---------------------------------------------------------------------------------------------------------


class _Array(Memory):
    """A whole array that lies in blocks: an input or an output."""

    def __init__(self, way: Way, values: Any, known: bool) -> None:
        super().__init__(way.path, np.asarray(values), known)
        self.way = way
        self.owners: dict[tuple[int, ...], int] = {}  # by the numbers along parallel axes of a cell that has written
        self.owner = np.full(self.values.shape, -1)  # which of them wrote an element last

    def window(self, cell: Cell, ahead: Sequence[Any]) -> tuple[Any, Any]:
        """(the elements of the array that the cell's block has, where they lie in the block)."""
        block, shape = self.way.block, self.values.shape
        index = [int(i) for i in jaxpr_as_fun(self.way.index_map)(*map(np.int32, cell.number), *ahead)]
        inner, outer = [], []
        for dim, (i, size, element, n) in enumerate(zip(index, block.shape, block.elements, shape, strict=True)):
            low, high = element or (0, 0)
            start = i if element is not None else i * size
            last = low + n + high - size if element is not None else n - 1
            if not 0 <= start <= max(last, 0):
                cell.fail(
                    f"the index map of {self.name} gives {tuple(index)}: along dimension {dim} a block of {size} would "
                    f"begin at element {start - low} of {n}"
                )
            first, end = max(start - low, 0), min(start - low + size, n)
            outer.append(slice(first, max(end, first)))
            inner.append(slice(first - start + low, max(end, first) - start + low))
        return tuple(outer), tuple(inner)

    def fetched(self, fresh: Callable[[Any], np.ndarray], outer: Any, inner: Any) -> Memory:
        """The reference to a block; what lies outside of the array counts as written."""
        block = self.way.block
        values, known = fresh(self.way.aval.update(shape=block.shape)), np.ones(block.shape, bool)
        values[inner], known[inner] = self.values[outer], self.known[outer]
        return Memory(self.name, values.reshape(block.seen), known.reshape(block.seen))

    def put_back(self, cell: Cell, memory: Memory, outer: Any, inner: Any, parallel: tuple[int, ...]) -> None:
        """Write a block back; an error where another cell along the parallel axes has written before."""
        shape = self.way.block.shape
        written = memory.written.reshape(shape)[inner]
        own, owner = self.owners.setdefault(parallel, len(self.owners)), self.owner[outer]
        if np.any(written & (owner >= 0) & (owner != own)):
            cell.fail(f"a race: {self.name} has elements that another cell along a parallel axis has written")
        self.owner[outer] = np.where(written, own, owner)
        self.values[outer] = memory.values.reshape(shape)[inner]
        self.known[outer] = memory.known.reshape(shape)[inner]


def run(
    closed: ClosedJaxpr, inputs: Sequence[Way], outputs: Sequence[Way], begun: Sequence[int | None],
    scratch: Sequence[Any], grid: tuple[int, ...], semantics: Sequence[str], params: InterpretParams,
    operands: Sequence[Any],
) -> list[np.ndarray]:  # fmt: skip
    """The outputs of a kernel, and the inputs that it writes to.

    ``begun`` has for each output the input that it begins as, or None; after those, the inputs that are written to.
    """
    ahead = [np.asarray(x) for x in operands[: len(operands) - len(inputs)]]
    given = [np.asarray(x) for x in operands[len(operands) - len(inputs) :]]
    n_in = len(inputs)

    def fresh(aval: Any) -> np.ndarray:
        unset = 0 if params.uninitialized_memory == "zero" else grid_blocks.unset(aval.dtype)
        return np.full(aval.shape, unset, aval.dtype)

    arrays = [_Array(way, x, True) for way, x in zip(inputs, given, strict=True)]
    for way, source in zip(outputs, begun, strict=False):
        arrays.append(_Array(way, fresh(way.aval) if source is None else given[source], source is not None))
    shared = [
        Memory(f"scratch {k}", np.zeros(ref.shape, ref.dtype) if spaces.is_semaphore(ref) else fresh(ref),
               spaces.is_semaphore(ref))
        for k, ref in enumerate(scratch)
    ]  # fmt: skip
    for memory, ref in zip(shared, scratch, strict=True):
        memory.is_semaphore = spaces.is_semaphore(ref)
    for number in itertools.product(*map(range, grid)):
        cell = Cell(number, params)
        if params.grid_point_recorder is not None:
            params.grid_point_recorder(tuple(map(np.int32, number)), np.int32(0))
        windows = [array.window(cell, ahead) for array in arrays]
        memories = [array.fetched(fresh, *window) for array, window in zip(arrays, windows, strict=True)]
        references = [*[Memory(f"fetched {k}", x) for k, x in enumerate(ahead)], *memories, *shared]
        _run(cell, closed.jaxpr, closed.consts, [*map(np.int32, number), *references])
        cell.eqn = None
        parallel = tuple([n for n, word in zip(number, semantics, strict=False) if word == "parallel"])
        for array, memory, window in zip(arrays, memories, windows, strict=True):
            array.put_back(cell, memory, *window, parallel)
    written = [source for source in begun[len(outputs) :] if source is not None]
    return [array.values for array in [*arrays[n_in:], *[arrays[k] for k in written]]]

"""Programs on the cells of a grid: run by weft, and cell by cell in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft.control.grid_blocks import Blocking, unset
from weft.control.grid_loop import grid_loop
from weft.core import avals
from weft.core.tracing.trace import trace_to_jaxpr

NUMBER = runtime.ShapedArray((), np.dtype(np.int32))


def block(*shape: int | None, elements: dict[int, tuple[int, int]] | None = None) -> Blocking:
    """A block; None: a squeezed dimension. ``elements``: dimensions whose index is that of an element."""
    given = elements or {}
    sizes = tuple([1 if n is None else n for n in shape])
    return Blocking(sizes, tuple([n is None for n in shape]), tuple([given.get(d) for d in range(len(shape))]))


class Kernel:
    """A body and index maps as Python functions of numbers and arrays, in operations that NumPy and weft share."""

    def __init__(
        self,
        grid: Sequence[int],
        body: Callable[..., Sequence[Any]],
        blocks: Sequence[Blocking],
        maps: Sequence[Callable[..., Sequence[Any]]],
        scratch: Sequence[tuple[tuple[int, ...], Any]] = (),
        semantics: Sequence[str] = (),
    ) -> None:
        self.grid, self.body, self.blocks, self.maps = tuple(grid), body, list(blocks), list(maps)
        self.scratch = [runtime.ShapedArray(shape, np.dtype(dtype)) for shape, dtype in scratch]
        self.semantics = tuple(semantics)

    def __call__(
        self, inputs: Sequence[Any], outputs: Sequence[Any], prefetched: Sequence[Any] = (), in_order: bool = False
    ) -> list[Any]:
        """The outputs by weft."""
        params = self.parameters(inputs, outputs, prefetched)
        del params["counts"]
        return grid_loop(prefetched, inputs, outputs, **{**params, "in_order": in_order})

    def parameters(self, inputs: Sequence[Any], outputs: Sequence[Any], prefetched: Sequence[Any]) -> dict[str, Any]:
        """The parameters of the primitive."""
        numbers = [NUMBER] * len(self.grid)
        ahead = [avals.get_aval(x) for x in prefetched]
        seen = [
            runtime.ShapedArray(b.seen, avals.get_aval(x).dtype)
            for x, b in zip([*inputs, *outputs], self.blocks, strict=True)
        ]

        def index_map(function: Callable[..., Sequence[Any]]) -> Any:
            return trace_to_jaxpr(lambda *a: [_as_number(i) for i in function(*a)], [*numbers, *ahead])[0]

        body = trace_to_jaxpr(lambda *a: list(self.body(*a)), [*numbers, *ahead, *seen, *self.scratch])[0]
        return {
            "grid": self.grid, "body": body, "maps": tuple(map(index_map, self.maps)), "blocks": tuple(self.blocks),
            "counts": (0, len(prefetched), len(inputs)), "scratch": tuple(self.scratch),
            "semantics": self.semantics or ("arbitrary",) * len(self.grid), "name": "kernel", "in_order": False,
        }  # fmt: skip

    def in_numpy(self, inputs: Sequence[Any], outputs: Sequence[Any], prefetched: Sequence[Any] = ()) -> list[Any]:
        """The outputs, cell by cell."""
        arrays = [_padded(x, b) for x, b in zip([*inputs, *outputs], self.blocks, strict=True)]
        scratch = [np.full(aval.shape, unset(aval.dtype)) for aval in self.scratch]
        first = len(inputs)
        for numbers in itertools.product(*map(range, self.grid)):
            ids = [np.int32(n) for n in numbers]
            regions = [
                _region(x, b, m(*ids, *prefetched)) for x, b, m in zip(arrays, self.blocks, self.maps, strict=True)
            ]
            seen = [x[region].reshape(b.seen) for x, b, region in zip(arrays, self.blocks, regions, strict=True)]
            made = [np.asarray(x) for x in self.body(*ids, *prefetched, *[x.copy() for x in seen], *scratch)]
            for x, b, region, value in zip(arrays[first:], self.blocks[first:], regions[first:], made, strict=False):
                x[region] = value.reshape(b.shape)
            scratch = made[len(outputs) :]
        return [
            x[
                tuple(
                    slice((e or (0, 0))[0], (e or (0, 0))[0] + n) for e, n in zip(b.elements, given.shape, strict=True)
                )
            ]
            for x, b, given in zip(arrays[first:], self.blocks[first:], outputs, strict=True)
        ]


def _inside(element: tuple[int, int] | None, extent: int) -> slice:
    low = element[0] if element is not None else 0
    return slice(low, low + extent)


def _as_number(index: Any) -> Any:
    return np.int32(index) if isinstance(index, (int, np.integer)) else index


def _padded(x: Any, b: Blocking) -> np.ndarray:
    widths = []
    for n, size, element in zip(x.shape, b.shape, b.elements, strict=True):
        low, high = element or (0, 0)
        widths.append((low, high + (-(low + n + high)) % size))
    return np.pad(np.asarray(x), widths, constant_values=unset(x.dtype)) if widths else np.array(x)


def _region(x: np.ndarray, b: Blocking, index: Sequence[Any]) -> tuple[slice, ...]:
    """Where a block lies: a negative index is counted from the end; one outside becomes the nearest that is inside."""
    found = []
    for n, size, element, i in zip(x.shape, b.shape, b.elements, index, strict=True):
        start = int(i) if element is not None else int(i) * size
        start = min(max(start + n if start < 0 else start, 0), n - size)
        found.append(slice(start, start + size))
    return tuple(found)

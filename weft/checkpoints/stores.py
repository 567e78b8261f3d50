"""The zarr arrays of a checkpoint, written and read by tensorstore: a shard is a chunk and a file of its own.

Chunks are kept without compression, with a checksum of every piece; a missing chunk is an error and never zeros. Each
error names the leaf and the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft._base import lazy
from weft.checkpoints.folders import CheckpointError
from weft.checkpoints.leaves import Source, Store

_BYTES = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


def spec(folder: Path, store: Store) -> dict[str, Any]:
    """The description of an array that tensorstore gets."""
    codecs: list[dict[str, Any]] = _BYTES
    if store.piece != store.chunk:
        parts = {"chunk_shape": list(store.piece), "codecs": _BYTES}
        codecs = [{"name": "sharding_indexed", "configuration": parts}]
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{folder / store.folder}/"},
        "metadata": {
            "shape": list(store.shape),
            "data_type": store.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(store.chunk)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "codecs": codecs,
        },
        "fill_missing_data_reads": False,
        "store_data_equal_to_fill_value": True,
    }


def check_installed() -> None:
    """ModuleNotFoundError that names the extra, before anything is done."""
    _ = lazy.tensorstore


def new_context() -> Any:
    """The settings of one save or restore: nothing is kept in a cache."""
    return lazy.tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})


def create(folder: Path, stores: Sequence[Store], context: Any) -> None:
    """Write what the arrays are; their elements come later, from this process or from others."""
    opened = [lazy.tensorstore.open(spec(folder, store), create=True, context=context) for store in stores]
    for store, future in zip(stores, opened, strict=True):
        _result(future, "save", store.folder, folder / store.folder)


def write(folder: Path, sources: Sequence[Source], context: Any) -> None:
    """Write elements, all at once, and return when they are on disk. The arrays have been created."""
    waiting = []
    opened: dict[str, Any] = {}
    for source in sources:
        store = source.store
        if store.folder not in opened:
            # the description is known already; another process may still have to write it
            opened[store.folder] = lazy.tensorstore.open(
                spec(folder, store), open=True, assume_metadata=True, context=context
            )
    for source in sources:
        array = _result(opened[source.store.folder], "save", source.store.folder, folder / source.store.folder)
        part = array[source.index] if source.store.shape else array
        waiting.append((source.store, part.write(source.values, can_reference_source_data_indefinitely=True)))
    for store, future in waiting:
        _result(future, "save", store.folder, folder / store.folder)


class Reading:
    """Parts of arrays that are being read; ``result`` of each waits for its elements."""

    def __init__(self, folder: Path, stores: dict[str, Store]) -> None:
        context = new_context()
        self._folder = folder
        self._stores = stores
        self._opened = {
            where: lazy.tensorstore.open(spec(folder, store), open=True, read=True, context=context)
            for where, store in stores.items()
        }

    def start(self, where: str, index: tuple[slice, ...]) -> Callable[[], np.ndarray]:
        """Begin to read elements of the array of a leaf; what is returned waits for them."""
        store = self._stores[where]
        file = self._folder / store.folder
        array = _result(self._opened[where], "restore", where, file)
        part = array[(*index, *[slice(None)] * (len(store.shape) - len(index)))] if store.shape else array
        future = part.read(order="C")
        return lambda: np.asarray(_result(future, "restore", where, file))


def _result(future: Any, name: str, where: str, file: Path) -> Any:
    """What tensorstore promised, or its error with the leaf and the file in it."""
    try:
        return future.result()
    except (ValueError, OSError) as error:
        if name == "save":
            raise OSError(f"[save] {where} could not be written to {file}: {error}") from error
        raise CheckpointError(f"[restore] {where} cannot be read: {file} is damaged or missing: {error}") from error

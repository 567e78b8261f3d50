"""Restores: a manifest, the leaves that are asked for, and of each the parts that this process needs.

In: a folder, maybe a template tree and shardings. Out: the tree, lying as asked, on any mesh and any number of
processes, whatever those of the save were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft import runtime
from weft.checkpoints import folders, leaves, manifest, stores
from weft.checkpoints.folders import CheckpointError
from weft.core import avals
from weft.core.sharding import process_grids
from weft.core.sharding.shardings import Sharding
from weft.dispatch import devices
from weft.dispatch.calls import struct
from weft.dispatch.calls.process_calls import of_block
from weft.dispatch.devices import placement
from weft.distributed import transport

_MOST_NAMED = 5  # leaves in one error


def steps(path: Any) -> list[int]:
    """The numbers of the steps that are whole in a folder, in ascending order; none for a folder without steps.

    >>> weft.checkpoint.steps("no such folder")
    []
    """
    return folders.steps_in(folders.checked_path(path, "steps"))


def latest_step(path: Any) -> int | None:
    """The highest number of a step that is whole; None if there is none.

    >>> weft.checkpoint.latest_step("no such folder") is None
    True
    """
    found = steps(path)
    return found[-1] if found else None


def restore(
    path: Any, like: Any = None, *, step: int | None = None, shardings: Any = None, partial: bool = False
) -> Any:
    """The tree that was saved to the folder ``path``; needs tensorstore (``weft[checkpoint]``).

    ``step`` is the number of a step, by default the highest. ``like`` is a template: a tree of the same containers,
    whose leaves are arrays, ``ShapeDtypeStruct`` (which may have shardings), NumPy arrays or numbers. Each leaf is
    restored as what the template has; shapes and dtypes must be equal. Without it, leaves are what was saved, and
    only dictionaries, lists and tuples are made. With ``partial`` the template may leave out entries of dictionaries.

    ``shardings`` says how arrays are to lie: a Sharding or device, or a tree of these that is a prefix of the result;
    it counts before the template's. The mesh and the number of processes may differ from those of the save; each
    process reads what its devices need.

    ValueError names the leaf where the template differs; ``CheckpointError`` (a ValueError) names the file and leaf
    that are damaged; FileNotFoundError if there is no checkpoint.

    >>> state = weft.checkpoint.restore(path, like=weft.eval_shape(init, key))     # doctest: +SKIP
    """
    folder = folders.checked_path(path, "restore")
    stores.check_installed()
    content, file = _manifest(folder, step)
    wanted, build = _chosen(content, like, shardings, partial)
    _check(wanted, file)
    values = _read(folder / content["arrays"], wanted)
    return build(values)


def shapes(path: Any, *, step: int | None = None) -> Any:
    """What a checkpoint holds, without reading it: the tree with ShapeDtypeStructs for arrays, and its numbers.

    >>> weft.checkpoint.shapes(path)                                               # doctest: +SKIP
    {'epoch': 7, 'w': ShapeDtypeStruct(shape=(3,), dtype=float32)}
    """
    content, _ = _manifest(folders.checked_path(path, "shapes"), step)
    return manifest.rebuilt(content["tree"], [_shape(leaf) for leaf in content["leaves"]])


def _shape(saved: dict[str, Any]) -> Any:
    if saved["kind"] == "python":
        return leaves.python_value(saved)
    dtype = leaves.dtype_of(saved, saved["path"])
    dtype = leaves.random_keys().key_dtype(dtype) if saved["kind"] == "key" else dtype
    return struct.ShapeDtypeStruct(saved["shape"], dtype, weak_type=saved.get("weak", False))


# -- the manifest -----------------------------------------------------------------------------------------------------


def _manifest(folder: Path, step: int | None) -> tuple[dict[str, Any], Path]:
    """The content of a manifest and its file: the first process finds it, and all have the same."""
    link = transport.current()
    if link is None:
        file, text = _find(folder, step)
        return manifest.read(text, file), file
    answer: dict[str, str] = {}
    if link.rank == 0:
        try:
            file, text = _find(folder, step)
            answer = {"file": str(file), "text": text}
        except (OSError, ValueError) as error:
            link.bcast(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            raise
    answer = json.loads(link.bcast(json.dumps(answer).encode()))
    if "error" in answer:
        raise CheckpointError(f"[restore] failed on rank 0: {answer['error']}")
    return manifest.read(answer["text"], Path(answer["file"])), Path(answer["file"])


def _find(folder: Path, step: int | None) -> tuple[Path, str]:
    there = folders.steps_in(folder)
    if step is None and there:
        step = there[-1]
    file = folder / folders.manifest_name(step)
    try:
        return file, file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except UnicodeDecodeError as error:
        raise CheckpointError(f"[restore] {file} is damaged: it is no text ({error})") from error
    if step is not None and there:
        raise FileNotFoundError(f"[restore] {folder} has no step {step}; it has {there}")
    if step is not None and (folder / folders.manifest_name(None)).is_file():
        raise FileNotFoundError(f"[restore] {folder} has no step {step}; its one checkpoint was saved without a step")
    why = "it has no checkpoint.json and no step_*.json" if folder.is_dir() else "there is no such folder"
    raise FileNotFoundError(f"[restore] {folder} is no checkpoint of weft: {why}")


# -- what is asked for ------------------------------------------------------------------------------------------------


def _chosen(
    content: dict[str, Any], like: Any, shardings: Any, partial: bool
) -> tuple[list[leaves.Wanted], Callable[[Sequence[Any]], Any]]:
    """The leaves to restore, and what makes the tree of their values."""
    saved = content["leaves"]
    if like is None:
        numbers: list[int] = list(range(len(saved)))
        template = manifest.rebuilt(content["tree"], numbers)
        given: list[Any] = [None] * len(saved)
        order, treedef = runtime.tree_flatten(template)
        numbers = order
    else:
        apart = manifest.taken_apart(like)
        numbers = manifest.matched(content["tree"], apart.form, partial)
        given, treedef = runtime.tree_flatten(like)
    targets = [_target(value) for value in _spread(shardings, treedef)]
    wanted = []
    for number, leaf, target in zip(numbers, given, targets, strict=True):
        each = leaves.Wanted(saved[number], f"leaf {saved[number]['path']}", leaf, None)
        if each.on_devices:
            each = each.replace(sharding=target if target is not None else _sharding_of(leaf))
        wanted.append(each)
    return wanted, lambda values: runtime.tree_unflatten(treedef, values)


def _spread(shardings: Any, treedef: Any) -> Sequence[Any]:
    try:
        return placement.spread(shardings, treedef, "shardings")
    except ValueError as error:
        raise ValueError(f"[restore] shardings is no prefix of the tree that is restored: {error}") from None


def _target(value: Any) -> Sharding | None:
    try:
        found = devices.as_target(value)
    except ValueError as error:
        raise ValueError(f"[restore] shardings are weft.sharding.Sharding or devices, got {value!r}") from error
    return found if found is None or isinstance(found, Sharding) else devices.SingleDeviceSharding(found)


def _sharding_of(leaf: Any) -> Sharding | None:
    """How a leaf of the template lies: an array only if it was put there by name."""
    if isinstance(leaf, runtime.Array):
        return leaf.sharding if leaf.committed else None
    return getattr(leaf, "sharding", None)


def _check(wanted: Sequence[leaves.Wanted], file: Path) -> None:
    wrong = []
    for each in wanted:
        problem = each.check()
        if problem is None and each.sharding is not None and "shape" in each.description:
            try:
                placement.check_fits("leaves", each.sharding, tuple(each.description["shape"]))
            except ValueError as error:
                problem = f"cannot lie as asked: {error}"
        if problem is not None:
            wrong.append(f"{each.where} {problem}")
    if wrong:
        more = f"\nand {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        raise ValueError(f"[restore] {file} does not fit:\n" + "\n".join(wrong[:_MOST_NAMED]) + more)


# -- values -----------------------------------------------------------------------------------------------------------


def _read(folder: Path, wanted: Sequence[leaves.Wanted]) -> list[Any]:
    """The values, all parts read at once; what goes wrong on one process is raised on all."""
    link = transport.current()
    if link is None:
        return _values(folder, wanted)
    values, error = [], None
    try:
        values = _values(folder, wanted)
    except Exception as raised:
        error = raised
    messages = link.allgather(b"" if error is None else f"{type(error).__name__}: {error}".encode())
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message:
            raise CheckpointError(f"[restore] failed on rank {rank}: {message.decode()}")
    return values


def _values(folder: Path, wanted: Sequence[leaves.Wanted]) -> list[Any]:
    stored = {each.where: leaves.Store.of_json(each.description["store"]) for each in wanted if _has_store(each)}
    if not stored:
        return [_value(each, None) for each in wanted]
    reading = stores.Reading(folder, stored)
    started = [reading.start(each.where, _part(each)) if _has_store(each) else None for each in wanted]
    return [_value(each, read) for each, read in zip(wanted, started, strict=True)]


def _has_store(each: leaves.Wanted) -> bool:
    return "store" in each.description


def _is_whole(each: leaves.Wanted) -> bool:
    return each.sharding is None or each.sharding.is_fully_addressable


def _part(each: leaves.Wanted) -> tuple[slice, ...]:
    """What this process reads: all of an array that is whole here, otherwise the rectangle of its devices."""
    if each.sharding is None or each.sharding.is_fully_addressable:
        return ()
    return process_grids.block_index(each.sharding, tuple(each.description["shape"]))


def _value(each: leaves.Wanted, read: Callable[[], np.ndarray] | None) -> Any:
    """A leaf, made of what is being read (None: it has no elements)."""
    saved, like = each.description, each.like
    if saved["kind"] == "python":
        return _of_python(each)
    dtype = leaves.dtype_of(saved, each.where)
    values = _without_elements(saved, dtype) if read is None else _in_dtype(read(), saved, dtype)
    if each.on_devices:
        return _placed(values, saved, dtype, each)
    if isinstance(like, np.ndarray) or (like is None and saved["kind"] == "numpy"):
        return values
    scalar = values[()]
    return scalar if like is None or isinstance(like, np.generic) else scalar.item()


def _without_elements(saved: dict[str, Any], dtype: Any) -> np.ndarray:
    if saved["kind"] != "key":
        return np.zeros(saved["shape"], dtype)
    keys = runtime.ShapedArray(tuple(saved["shape"]), leaves.random_keys().key_dtype(dtype))
    return np.zeros(avals.physical_aval(keys).shape, np.uint32)


def _in_dtype(values: np.ndarray, saved: dict[str, Any], dtype: Any) -> np.ndarray:
    return values if saved["kind"] == "key" or values.dtype == dtype else values.view(dtype)


def _weak(saved: dict[str, Any], like: Any) -> bool:
    return bool(saved.get("weak", False) if like is None else getattr(like, "weak_type", False))


def _placed(values: np.ndarray, saved: dict[str, Any], dtype: Any, each: leaves.Wanted) -> Any:
    """The Array of the values that this process has of it, on the memory that was read into if that is aligned."""
    shape = tuple(saved["shape"])
    if saved["kind"] == "key":
        aval = runtime.ShapedArray(shape, leaves.random_keys().key_dtype(dtype))
        held = avals.from_numpy(values, aval.update(shape=values.shape[: len(shape)]))
    else:
        aval = runtime.ShapedArray(shape, dtype, _weak(saved, each.like))
        held = _on_memory(values, aval.update(shape=values.shape))
    if each.sharding is None:
        return devices.at_default(held)
    return placement.device_put(held, each.sharding) if _is_whole(each) else of_block(held, aval, each.sharding)


def _on_memory(values: np.ndarray, aval: Any) -> Any:
    try:
        return runtime.array_from_numpy(values, aval, copy=False)
    except (ValueError, BufferError):  # not aligned
        return runtime.array_from_numpy(values, aval)


def _of_python(each: leaves.Wanted) -> Any:
    value, like = leaves.python_value(each.description), each.like
    if like is None or type(like) is type(value):
        return value
    array = np.asarray(value, like.dtype)
    if each.on_devices:
        return _placed(array, each.description | {"shape": ()}, array.dtype, each)
    return array if isinstance(like, np.ndarray) else array[()]

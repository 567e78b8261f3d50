"""Plain values as bytes that mean the same in every process: numbers, text, types of arrays, structures.

What has no such form raises ``NotPlainError``, with the reason.
"""

from __future__ import annotations

import functools
import marshal
from typing import Any

from weft import dtypes, runtime

_MARSHAL = 2  # the last version of the format in which equal values have equal bytes; later ones depend on refcounts


class NotPlainError(Exception):
    """A value that cannot be written; the text says which, as the end of a sentence: "it calls Python"."""


def text(value: Any) -> bytes:
    """Numbers, text, None, and tuples, lists and dicts of them, as bytes."""
    try:
        return marshal.dumps(value, _MARSHAL)
    except ValueError as error:
        raise NotPlainError("it is nested too deep, or holds values that have no portable form") from error


def tree(treedef: Any) -> bytes:
    """A structure of plain containers as bytes: the containers with 0 for every leaf. See ``read_tree``."""
    written = text(treedef.unflatten([0] * treedef.num_leaves))
    if read_tree(written) != treedef:  # it has nodes or keys that are not plain values
        raise NotPlainError("an argument or a result is a container whose structure has no form in plain values")
    return written


def read_tree(written: bytes) -> Any:
    return runtime.tree_structure(marshal.loads(written))


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """The name of a dtype that ``dtypes.as_dtype`` can read; extended dtypes have their own."""
    if not dtypes.is_extended(dtype) and (dtype.name == "void" or dtypes.as_dtype(dtype.name) != dtype):
        raise NotPlainError(f"the dtype {dtype} has no name of its own")
    return dtype.name


def aval(value: Any) -> tuple[Any, ...]:
    """The type of an array: shape, name of the dtype, whether it is weak."""
    return value.shape, dtype_name(value.dtype), value.weak_type

"""Files and text: save and load, array_repr.

save(file, f32[3]), load(file)  ->  NumPy's format; bfloat16, which it does not name, is known by its two bytes
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import numpy as np

from weft import dtypes
from weft.core.interruptible import interruptible
from weft.numpy.array_creation import creation

_BLOCK = 16 << 20  # bytes written at once, in some hundredths of a second


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write an array to a file in NumPy's format."""
    values = np.asarray(arr)
    with contextlib.ExitStack() as opened:
        if isinstance(file, str | os.PathLike):
            name = os.fspath(file)
            file = opened.enter_context(open(name if name.endswith(".npy") else f"{name}.npy", "wb"))
        whole = values.nbytes <= _BLOCK or values.dtype.hasobject or not values.flags.c_contiguous
        if whole or not isinstance(file, io.FileIO | io.BufferedWriter | io.BufferedRandom):
            np.save(file, values, allow_pickle=allow_pickle)  # to other files NumPy writes in blocks itself
            return
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        content = values.reshape(-1)
        step = _BLOCK // values.itemsize
        for begin in range(0, content.size, step):  # an interrupt comes between two blocks
            content[begin : begin + step].tofile(file)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write arrays to one file in NumPy's archive format."""
    named: dict[str, Any] = {name: np.asarray(a) for name, a in kwds.items()}
    np.savez(file, *(np.asarray(a) for a in args), allow_pickle=allow_pickle, **named)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """An array from a file that ``save`` wrote; an archive is handed back as NumPy gives it."""
    found = interruptible(_file_size(file), np.load, file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype.kind == "V" and found.dtype.names is None and found.dtype.itemsize == 2:
        found = found.view(dtypes.bfloat16)  # NumPy's format does not name it
    return creation.asarray(found)


def _file_size(file: Any) -> int:
    """Bytes of a file; 0 if it is not named by a path."""
    return os.path.getsize(file) if isinstance(file, str | os.PathLike) and os.path.exists(file) else 0


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The text of an array with its type, as NumPy writes it.

    >>> array_repr(np.arange(2))
    'array([0, 1])'
    """
    return np.array_repr(np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """The text of an array's values, as NumPy writes it.

    >>> array_str(np.arange(2))
    '[0 1]'
    """
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)

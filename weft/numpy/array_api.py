"""What weft.numpy says of itself under the Python array API standard, version 2024.12."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import config
from weft.dispatch import devices as known_devices

__all__ = ["ArrayNamespaceInfo", "__array_namespace_info__"]

_NARROW = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32"),
    "unsigned integer": ("uint8", "uint16", "uint32"),
    "real floating": ("float32",),
    "complex floating": ("complex64",),
}
_WIDE = {
    "signed integer": ("int64",),
    "unsigned integer": ("uint64",),
    "real floating": ("float64",),
    "complex floating": ("complex128",),
}
_TOGETHER = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


class ArrayNamespaceInfo:
    """Devices, dtypes and abilities of ``weft.numpy``; what ``__array_namespace_info__()`` gives.

    >>> info = weft.numpy.__array_namespace_info__()
    >>> info.default_dtypes()["real floating"]
    dtype('float32')
    """

    def capabilities(self) -> dict[str, Any]:
        """What programs may rely on: under ``jit`` shapes do not depend on values, nor masks as indices."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: arrays lie on the first device, and are not committed to it."""
        return None

    def devices(self) -> list[Any]:
        """The devices that ``device=`` accepts; None is the default."""
        return [None, *known_devices.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of results if none is asked for, by kind; they have 64 bits where these are enabled."""
        self._check(device)
        bits = (64, 128) if config.x64_enabled() else (32, 64)
        integer = np.dtype(f"int{bits[0]}")
        return {
            "real floating": np.dtype(f"float{bits[0]}"),
            "complex floating": np.dtype(f"complex{bits[1]}"),
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype]:
        """The dtypes of the standard, by name: all, or those of a kind or of several kinds.

        Raises:
            ValueError: a kind that the standard does not name.
        """
        self._check(device)
        kinds = tuple(_NARROW) if kind is None else kind if isinstance(kind, tuple) else (kind,)
        found: dict[str, np.dtype] = {}
        for one in kinds:
            parts = _TOGETHER.get(one, (one,)) if isinstance(one, str) else (one,)
            for part in parts:
                if part not in _NARROW:
                    known = ", ".join([*_NARROW, *_TOGETHER])
                    raise ValueError(f"[__array_namespace_info__] unknown kind of dtypes {part!r}; there are {known}")
                names = _NARROW[part] + (_WIDE.get(part, ()) if config.x64_enabled() else ())
                found.update({name: np.dtype(name) for name in names})
        return found

    def _check(self, device: Any) -> None:
        if device is not None and device not in self.devices():
            raise ValueError(f"[__array_namespace_info__] unknown device {device!r}; there are {self.devices()}")


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """What the namespace offers, for libraries written to the Python array API standard.

    >>> sorted(weft.numpy.__array_namespace_info__().dtypes(kind="real floating"))
    ['float32']
    """
    return ArrayNamespaceInfo()

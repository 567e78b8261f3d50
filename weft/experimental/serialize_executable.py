"""weft.experimental.serialize_executable: compiled programs as bytes, for a later process, under JAX's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base import lazy
from weft.dispatch import devices
from weft.dispatch.programs.ahead_of_time import Compiled

__all__ = ["deserialize_and_load", "serialize"]


def serialize(compiled: Compiled) -> tuple[bytes, Any, Any]:
    """A compiled program as bytes, and the structures of its arguments and of its result.

    NotImplementedError, with the reason, for what cannot be saved. See ``weft.load`` for where the bytes can be used.

    >>> compiled = weft.jit(lambda x: 2 * x).lower(np.float32(0)).compile()
    >>> weft.experimental.serialize_executable.deserialize_and_load(*serialize(compiled))(4.0)
    Array(8., dtype=float32)
    """
    if not isinstance(compiled, Compiled):
        raise TypeError(f"[serialize] takes what jit(f).lower(...).compile() gives, got {type(compiled)}")
    content = lazy.submodule("weft.compiler.storage.saving").to_bytes(compiled)
    return content, compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: Any,
    out_tree: Any,
    backend: Any = None,
    execution_devices: Sequence[Any] | None = None,
) -> Compiled:
    """The program that ``serialize`` gave, ready to be called.

    ``backend`` and ``execution_devices`` may name what it was compiled for; ValueError if they name another device. The
    bytes hold machine code: load none that somebody you do not trust could have written.
    """
    made = lazy.submodule("weft.compiler.storage.saved").from_bytes(serialized, "the program", in_tree, out_tree)
    own = devices.device_at(made.parts()[1].place)
    asked = execution_devices
    if asked is None and backend is not None:
        asked = devices.devices(backend) if isinstance(backend, str) else backend.devices()
    if asked is not None and own not in asked:
        raise ValueError(f"[deserialize_and_load] the program was compiled for {own!r}, not for {list(asked)}")
    return made

"""weft.ffi: foreign functions, compiled from C or C++, as operations of programs.

    library = ctypes.CDLL("./librms_norm.so")
    weft.ffi.register_ffi_target("rms_norm", weft.ffi.pycapsule(library.RmsNorm))
    y = weft.ffi.ffi_call("rms_norm", weft.ShapeDtypeStruct(x.shape, x.dtype))(x, eps=np.float32(1e-5))

A function is written against the headers of XLA's foreign function interface (``include_dir``), as for JAX, and runs
unchanged. docs/howto/c_functions.md has an example from source to call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import runtime
from weft._base import unbuilt
from weft.effects.foreign_calls import ffi_call

__all__ = [
    "build_ffi_lowering_function", "ffi_call", "ffi_lowering", "include_dir", "pycapsule", "register_ffi_target",
    "register_ffi_target_as_batch_partitionable", "register_ffi_type", "register_ffi_type_id",
]  # fmt: skip
__getattr__ = unbuilt.fallback("weft.ffi")

_STAGES = ("instantiate", "prepare", "initialize", "execute")
_PLATFORMS = {"cpu": "cpu", "host": "cpu", "cuda": "CUDA", "gpu": "CUDA", "rocm": "ROCM", "tpu": "TPU"}
_kept: list[Any] = []  # what the registered addresses belong to: a registration lasts until the process ends


def _platform(name: str) -> str:
    found = _PLATFORMS.get(str(name).lower())
    if found is None:
        raise ValueError(f"[ffi] platform={name!r} is none that weft knows: {', '.join(_PLATFORMS)}")
    return found


def _address(function: Any, what: str) -> Any:
    """A capsule, or an address as an int."""
    if function is None or type(function).__name__ == "PyCapsule":
        return function
    if isinstance(function, int) and not isinstance(function, bool) and function > 0:
        return function
    pointer: Any = function if callable(function) or isinstance(function, ctypes.c_void_p) else None
    try:
        address = ctypes.cast(pointer, ctypes.c_void_p).value
    except ctypes.ArgumentError:
        address = None
    if address:
        return address
    raise TypeError(
        f"[ffi] {what} is {function!r} of type {type(function).__name__}. Pass weft.ffi.pycapsule(library.function), "
        "the function of a library that ctypes loaded, or its address as an int"
    )


def pycapsule(funcptr: Any) -> Any:
    """A PyCapsule with the address of a function that ctypes loaded, as ``register_ffi_target`` takes it.

    >>> import ctypes
    >>> weft.ffi.pycapsule(ctypes.CDLL(None).abs)  # doctest: +ELLIPSIS
    <capsule object NULL at 0x...>
    """
    address = _address(funcptr, "the argument of pycapsule")
    if not isinstance(address, int):
        return address
    capsule = runtime.pointer_capsule(address)
    _kept.append(funcptr)
    return capsule


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Make a compiled function known under ``name``, for ``ffi_call``.

    ``fn``: a PyCapsule (``pycapsule``), a function that ctypes loaded or its address; or a dictionary of them by stage:
    "instantiate" (once for each call in a program), "prepare", "initialize", "execute" (at each call).
    ``platform``: "cpu" or "CUDA". ``api_version``: 1 for the typed interface, 0 for functions of bare pointers.
    A name keeps its function until the process ends: to register another one raises ValueError.
    """
    if set(kwargs) - {"traits"}:  # which the function itself tells
        raise TypeError(f"[register_ffi_target] unexpected arguments {sorted(set(kwargs) - {'traits'})}")
    if api_version not in (0, 1):
        raise ValueError(f"[register_ffi_target] api_version is 1 (typed) or 0 (bare pointers), got {api_version!r}")
    stages = fn if isinstance(fn, Mapping) else {"execute": fn}
    unknown = sorted(set(stages) - set(_STAGES))
    if unknown:
        raise ValueError(f"[register_ffi_target] {name}: {unknown} are no stages; there are {', '.join(_STAGES)}")
    if api_version == 0 and set(stages) != {"execute"}:
        raise ValueError(f"[register_ffi_target] {name}: a function of bare pointers (api_version=0) has no stages")
    addresses = [_address(stages.get(stage), f"the stage {stage!r} of {name!r}") for stage in _STAGES]
    runtime.register_foreign_target(str(name), _platform(platform), tuple(addresses), api_version == 1)
    _kept.append(fn)


def register_ffi_type(name: str, type_registration: Mapping[str, Any], platform: str = "cpu") -> None:
    """Make the type of a function's state known, before the function is registered.

    ``type_registration``: {"type_id": capsule of the ``XLA_FFI_TypeId``, "type_info": capsule of the
    ``XLA_FFI_TypeInfo``}; the second, which says how a state is destroyed, may be left out.
    """
    _platform(platform)
    if not isinstance(type_registration, Mapping) or "type_id" not in type_registration:
        raise ValueError(f"[register_ffi_type] {name}: pass a dictionary with 'type_id' and 'type_info'")
    unknown = sorted(set(type_registration) - {"type_id", "type_info"})
    if unknown:
        raise ValueError(f"[register_ffi_type] {name}: {unknown} are no parts of a type; 'type_id' and 'type_info' are")
    parts = [
        _address(type_registration.get(part), f"{part!r} of the type {name!r}") for part in ("type_id", "type_info")
    ]
    runtime.register_foreign_type(str(name), *parts)
    _kept.append(type_registration)


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """ValueError, as in JAX: types are registered by ``register_ffi_type``, with how they are destroyed."""
    raise ValueError(
        "register_ffi_type_id is not supported after jaxlib version 381. "
        f"Write weft.ffi.register_ffi_type({name!r}, {{'type_id': ..., 'type_info': ...}}, platform={platform!r})."
    )


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Say that a target computes each element of its leading axis by itself, so that devices may divide it.

    weft runs a foreign function on whole arrays wherever it is called, unless ``shard_map`` divides them, so that this
    changes nothing but where it runs.
    """
    if not isinstance(name, str):
        raise TypeError(f"[register_ffi_target_as_batch_partitionable] a target has a name, got {name!r}")


def include_dir() -> str:
    """The folder of the headers ``xla/ffi/api/ffi.h`` and ``c_api.h``, for the compiler's ``-I``.

    They come with the package jaxlib, which is looked for where packages are, and not imported.
    """
    packages = [os.path.join(folder, "jaxlib", "include") for folder in sys.path]
    for folder in [*packages, "/usr/local/include", "/usr/include"]:
        if os.path.isfile(os.path.join(folder, "xla", "ffi", "api", "c_api.h")):
            return folder
    raise FileNotFoundError(
        "[ffi] the headers xla/ffi/api/*.h are neither in the package jaxlib nor in /usr/local/include. Install jaxlib "
        "where you compile (pip install jaxlib==0.10.2; weft needs it for nothing else), or copy the folder "
        "xla/ffi/api of XLA's repository and pass the compiler the folder that contains xla/"
    )


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[Any] | None = None,
    result_layouts: Sequence[Any] | None = None,
    backend_config: Any = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> Callable[..., Any]:
    """A lowering for ``weft.interpreters.mlir.register_lowering``: a call of a foreign function.

    The types of the results are those of the primitive's abstract evaluation; parameters of the primitive become
    attributes, beside ``backend_config``. Layouts name the innermost dimension first, as XLA does (``ffi_call`` and
    ``Layout`` the outermost first). The known ``lowering_args`` are ``has_side_effect``, ``api_version`` and
    ``operand_output_aliases``.
    """
    known = {"has_side_effect", "api_version", "operand_output_aliases"}
    if set(lowering_args) - known:
        raise NotImplementedError(
            f"[ffi_lowering] {sorted(set(lowering_args) - known)} are not built; {', '.join(sorted(known))} are"
        )
    version = lowering_args.get("api_version", 4)

    def outermost_first(layouts: Sequence[Any] | None) -> Any:
        if layouts is None:
            return None
        return [x if x is None or hasattr(x, "major_to_minor") else tuple(x)[::-1] for x in layouts]

    def lower(ctx: Any, *operands: Any, **params: Any) -> list[Any]:
        if version >= 4 and backend_config is not None and not isinstance(backend_config, Mapping):
            raise ValueError(
                f"[ffi_lowering] backend_config={backend_config!r} of {call_target_name!r} must be a dictionary of "
                "attributes; a text is for functions whose api_version is below 4"
            )
        call = ffi_call(
            call_target_name,
            list(ctx.avals_out),
            has_side_effect=lowering_args.get("has_side_effect", False),
            input_layouts=outermost_first(operand_layouts),
            output_layouts=outermost_first(result_layouts),
            input_output_aliases=lowering_args.get("operand_output_aliases"),
            custom_call_api_version=version,
            legacy_backend_config=None if version >= 4 or backend_config is None else str(backend_config),
        )
        given = dict(backend_config or {}) if version >= 4 else {}
        return call(*operands, **{**given, **params})

    return lower


build_ffi_lowering_function = ffi_lowering  # JAX's gives an operation of MLIR, where weft has the results

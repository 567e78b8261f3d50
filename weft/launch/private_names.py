"""The few names of ``jax._src`` that libraries read, as far as weft can mean something by them.

``jax._src`` is the inside of JAX and no interface; what is here was found in the sources of published libraries. A name
is looked up among the functions of this file first, then in the modules that ``names.PRIVATE`` lists; one that is in
neither is missing, and reported as such.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any, NoReturn

import numpy as np

import weft
from weft import errors, tree_util
from weft._base import array
from weft.core.tracing import tracebacks
from weft.launch import names
from weft.runtime import Array


class LiteralArray(np.ndarray):
    """JAX's class of constants in programs. weft makes none: no value is an instance."""


class _WithDtype:
    """A Python number with a dtype; libraries register converters for JAX's classes, and weft makes none itself."""

    dtype: np.dtype

    def __new__(cls, value: Any, dtype: Any) -> Any:
        made: Any = super().__new__(cls, value)  # type: ignore[call-arg] - of the number's own class, which follows
        made.dtype = np.dtype(dtype)
        return made


class TypedInt(_WithDtype, int):
    """JAX's class of a Python integer with a dtype."""


class TypedFloat(_WithDtype, float):
    """JAX's class of a Python float with a dtype."""


class TypedComplex(_WithDtype, complex):
    """JAX's class of a Python complex number with a dtype."""


class AbstractRef:
    """The type that JAX gives a reference while it traces; weft's references have another, and none of this class."""


class ExtendedDType:
    """The base of dtypes that a library declares; arrays of such a dtype cannot be made in weft."""


def supports_inf(dtype: Any) -> bool:
    """Whether a floating-point dtype has infinities."""
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.array(np.inf, dtype).astype(float)))


def to_complex_dtype(dtype: Any) -> np.dtype:
    """The complex dtype that holds a real one: complex128 of 64-bit floats, otherwise complex64."""
    return np.dtype(np.complex128 if np.dtype(dtype) in (np.float64, np.complex128) else np.complex64)


class HashablePartial:
    """A function with its first arguments, equal to another of the same function and equal arguments."""

    def __init__(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.f, self.args, self.kwargs = f, args, kwargs

    def __eq__(self, other: object) -> bool:
        if type(other) is not HashablePartial:
            return False
        same_code = self.f.__code__ is other.f.__code__ if hasattr(self.f, "__code__") else self.f == other.f
        return same_code and self.args == other.args and self.kwargs == other.kwargs

    def __hash__(self) -> int:
        code = getattr(self.f, "__code__", self.f)
        return hash((code, self.args, tuple(sorted(self.kwargs.items(), key=lambda item: item[0]))))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*self.args, *args, **self.kwargs, **kwargs)


class _RegisteredClasses(Mapping[type, Any]):
    """The container classes of pytrees, as a table that can be asked: ``type(x) in _registry``."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and (kind is type(None) or tree_util.is_tree_node(kind))

    def __getitem__(self, kind: type) -> Any:
        if kind not in self:
            raise KeyError(kind)
        return tree_util.flatten_one_level

    def __iter__(self) -> Iterator[type]:
        raise NotImplementedError("weft's registry of pytree classes is native: ask whether a class is in it")

    def __len__(self) -> int:
        raise NotImplementedError("weft's registry of pytree classes is native: ask whether a class is in it")


def reconstruct_array(fun: Callable[..., Any], args: Any, array_state: Any, aval_state: Mapping[str, Any]) -> Any:
    """The Array of a pickle that JAX wrote: NumPy's parts of an ndarray, and whether its type is weak."""
    if fun is not np.empty(0).__reduce__()[0] or tuple(args[:1]) != (np.ndarray,):
        raise ValueError("[pickle] this is not the state of an array: its maker is not NumPy's")
    values = fun(*args)
    values.__setstate__(array_state)
    return array.rebuild(values.tobytes(), values.shape, values.dtype.name, aval_state.get("weak_type") is True)


def wait_for_tokens() -> None:
    """Wait until the effects of all programs that were started have happened."""
    weft.effects_barrier()


def backend_compile(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("jax._src.compiler compiles XLA's programs; weft has its own compiler: use jit(f).lower")


def safe_zip(*sequences: Iterable[Any]) -> list[tuple[Any, ...]]:
    """``zip`` as a list, of sequences that must be equally long."""
    return list(zip(*sequences, strict=True))


def safe_map(function: Callable[..., Any], *sequences: Iterable[Any]) -> list[Any]:
    """``map`` as a list, over sequences that must be equally long."""
    return [function(*items) for items in zip(*sequences, strict=True)]


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first items of pairs, and the second ones."""
    both = list(pairs)
    return tuple(first for first, _ in both), tuple(second for _, second in both)


def split_list(sequence: Iterable[Any], lengths: Iterable[int]) -> list[list[Any]]:
    """A sequence cut into pieces of the given lengths, and what remains."""
    rest, pieces = list(sequence), []
    for length in lengths:
        pieces.append(rest[:length])
        rest = rest[length:]
    return [*pieces, rest]


def infer_argnums_and_argnames(
    sig: inspect.Signature, argnums: int | Iterable[int] | None, argnames: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The positions and the names of the same arguments: what is None follows from the other, by the signature."""
    numbers = None if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names_ = None if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    if numbers is None and names_ is None:
        return (), ()
    both = [(index, p) for index, p in enumerate(sig.parameters.values()) if p.kind is p.POSITIONAL_OR_KEYWORD]
    if numbers is None:
        return tuple([index for index, p in both if p.name in (names_ or ())]), names_ or ()
    if names_ is None:
        wanted = {number % len(sig.parameters) for number in numbers} if sig.parameters else set()
        return numbers, tuple([p.name for index, p in both if index in wanted])
    return numbers, names_


def check_close(xs: Any, ys: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """AssertionError unless two trees are alike in structure and close in values, to 1e-6 for float32 unless given."""
    left, right = tree_util.tree_structure(xs), tree_util.tree_structure(ys)
    assert left == right, f"{left} is not {right}. {err_msg}"
    for x, y in zip(tree_util.tree_leaves(xs), tree_util.tree_leaves(ys), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape, f"{x.shape} is not {y.shape}. {err_msg}"
        coarse = min((np.real(a).dtype.itemsize for a in (x, y) if a.dtype.kind not in "biu"), default=8)
        near = {1: 1e-1, 2: 1e-2, 4: 1e-6}.get(coarse, 1e-15)
        x, y = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (x, y))
        absolute, relative = near if atol is None else atol, near if rtol is None else rtol
        np.testing.assert_allclose(x, y, atol=absolute, rtol=relative, err_msg=err_msg)


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is the user's: neither weft's nor that of a library which asked to be left out."""
    return not tracebacks.is_hidden(frame.f_code.co_filename)


_NAMES: dict[str, dict[str, Any]] = {
    "api_util": {"infer_argnums_and_argnames": infer_argnums_and_argnames},
    "array": {"_reconstruct_array": reconstruct_array, "ArrayImpl": Array},
    "compiler": {"backend_compile_and_load": backend_compile},
    "dispatch": {"wait_for_tokens": wait_for_tokens},
    "dtypes": {
        "DType": np.dtype,
        "ExtendedDType": ExtendedDType,
        "supports_inf": supports_inf,
        "to_complex_dtype": to_complex_dtype,
    },
    "errors": {name: getattr(errors, name) for name in ("UnexpectedTracerError", "ConcretizationTypeError")},
    "literals": {
        "LiteralArray": LiteralArray,
        "TypedComplex": TypedComplex,
        "TypedFloat": TypedFloat,
        "TypedInt": TypedInt,
        "TypedNdArray": LiteralArray,
    },
    "public_test_util": {"check_close": check_close},
    "state.types": {"AbstractRef": AbstractRef},
    "traceback_util": {
        "api_boundary": tracebacks.boundary,
        "include_frame": include_frame,
        "register_exclusion": tracebacks.exclude,
        "_exclude_paths": tracebacks.excluded,
    },
    "tree_util": {"_registry": _RegisteredClasses()},
    "util": {
        "HashablePartial": HashablePartial,
        "safe_map": safe_map,
        "safe_zip": safe_zip,
        "split_list": split_list,
        "unzip2": unzip2,
        "wraps": lambda wrapped, **_: functools.wraps(wrapped),
    },
    "xla_bridge": {"_backends": {}},
}


def module(name: str) -> ModuleType:
    """The module ``jax._src`` or ``jax._src.<name>``, whose names are looked up when they are read."""
    rest = name.removeprefix("jax._src").removeprefix(".")
    made = ModuleType(name, f"What weft has of {name}.")
    made.__file__ = __file__
    made.__path__ = []
    vars(made).update(_NAMES.get(rest, {}))
    made.__getattr__ = functools.partial(_find, made, rest)  # type: ignore[method-assign] - PEP 562
    return made


def _find(made: ModuleType, rest: str, name: str) -> Any:
    if not name.startswith("__"):
        inner = f"{rest}.{name}" if rest else name
        if names.is_private(inner):  # JAX has loaded all of its modules: they can be read without an import
            return importlib.import_module(f"jax._src.{inner}")
        for source in names.private_sources(rest) if rest else ():
            try:
                found = getattr(source, name)
            except AttributeError:
                continue
            setattr(made, name, found)
            return found
    raise AttributeError(f"module {made.__name__!r} has no attribute {name!r}")

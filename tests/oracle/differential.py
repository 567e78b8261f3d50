"""The same source function under weft and under JAX, and what both print.

A case is a function of a namespace ``J`` (``weft`` or ``jax``) and arrays, with the types of the arrays:

    @case("f32[3]", "~f32[]")
    def scaled_sum(J, x, a):
        return J.numpy.sum(x * a)

``assert_same_jaxpr`` traces it with both and compares the printed programs, character for character.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

import weft

_LONG = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}
_PYTHON = {"b": True, "i": 2, "f": 2.5, "c": 2.5j}
_ADDRESS = re.compile(r"0x[0-9a-fX]+")


@dataclass(frozen=True)
class Case:
    """A function of a namespace and arrays, and the arrays' types."""

    fun: Callable[..., Any]
    types: tuple[str, ...]
    x64: bool = False

    @property
    def name(self) -> str:
        return getattr(self.fun, "__name__", type(self.fun).__name__)

    def __repr__(self) -> str:
        return self.name


def case(*types: str, x64: bool = False, cases: list[Case] | None = None) -> Callable[[Callable[..., Any]], Case]:
    """Make a Case of a function; it is appended to ``cases`` if given."""

    def make(fun: Callable[..., Any]) -> Case:
        made = Case(fun, types, x64)
        if cases is not None:
            cases.append(made)
        return made

    return make


def dtype_of(short: str) -> np.dtype:
    """``f32`` -> float32, ``bf16`` -> bfloat16, ``bool`` -> bool."""
    if short == "bool":
        return np.dtype(bool)
    match = re.fullmatch(r"(bf|f|i|u|c)(\w+)", short)
    assert match is not None, short
    name = _LONG[match[1]] + match[2]
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def argument(text: str) -> Any:
    """An argument of a type: ``f32[2,3]`` an ndarray, ``~f32[]`` a Python scalar."""
    match = re.fullmatch(r"(~?)(\w+)\[([\d,]*)\]", text)
    assert match is not None, text
    shape = tuple(int(extent) for extent in match[3].split(",") if extent)
    if match[1]:
        return _PYTHON[match[2][0]]
    size = int(np.prod(shape))
    values = (np.arange(size) % 7).reshape(shape)
    return np.asarray(values).astype(dtype_of(match[2]))


def normalized(text: str) -> str:
    """A printed program without addresses of Python objects."""
    return _ADDRESS.sub("0x", text)


def namespace(name: str) -> Any:
    """``jax`` or ``weft`` with the submodules the cases use."""
    for submodule in ("numpy", "lax", "nn", "ops", "random", "scipy.special"):
        importlib.import_module(f"{name}.{submodule}")
    return {"jax": jax, "weft": weft}[name]


def printed(J: Any, one: Case) -> str:
    """The printed jaxpr of a case, as ``J.make_jaxpr`` gives it."""
    arguments = [argument(text) for text in one.types]
    with J.enable_x64(one.x64):
        return normalized(str(J.make_jaxpr(lambda *args: one.fun(J, *args))(*arguments)))


def assert_same_jaxpr(one: Case) -> None:
    """Raise AssertionError, showing both, unless weft and JAX print the same program."""
    expected = printed(namespace("jax"), one)
    found = printed(namespace("weft"), one)
    assert found == expected, f"\n--- jax\n{expected}\n--- weft\n{found}"


def error_of(J: Any, fun: Callable[..., Any], *arguments: Any) -> BaseException | None:
    """What a function of a namespace raises, or None."""
    try:
        fun(J, *arguments)
    except Exception as error:
        return error
    return None

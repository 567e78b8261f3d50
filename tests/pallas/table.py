"""The table of kernels: each is written once, and run by weft's compiler, by its interpreter, and by JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.experimental.pallas
import weft.experimental.pallas.tpu
import weft.experimental.pallas.triton
import weft.lax
import weft.nn
from weft.experimental.pallas.tpu import InterpretParams


class Modules(NamedTuple):
    """What a kernel is written with."""

    pl: Any
    tpu: Any
    triton: Any
    np: Any
    lax: Any
    nn: Any
    top: Any

    def out(self, shape: Any, dtype: Any = "float32") -> Any:
        return self.top.ShapeDtypeStruct(shape, self.np.dtype(dtype))

    def block(self, shape: Any = None, index_map: Any = None, **options: Any) -> Any:
        return self.pl.BlockSpec(shape, index_map, **options)


class Case(NamedTuple):
    """One kernel: ``build(modules, call)`` gives a function of ``args``; ``expect`` is the same in NumPy."""

    name: str
    build: Callable[..., Any]
    args: tuple[Any, ...]
    expect: Callable[..., Any]
    close: float
    in_jax: bool


CASES: list[Case] = []


def kernel(*args: Any, expect: Callable[..., Any], close: float = 0.0, in_jax: bool = True) -> Callable[..., Any]:
    """A decorator that puts a kernel into the table. ``close`` is the relative error allowed beside NumPy and JAX."""

    def add(build: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(build.__name__, build, args, expect, close, in_jax))
        return build

    return add


def of_weft() -> Modules:
    pallas = weft.experimental.pallas
    return Modules(pallas, pallas.tpu, pallas.triton, weft.numpy, weft.lax, weft.nn, weft)


def of_jax() -> Modules:
    import jax  # noqa: PLC0415 - only the tests marked ``oracle`` need it
    import jax.experimental.pallas as pl  # noqa: PLC0415 - as above
    import jax.experimental.pallas.tpu as tpu  # noqa: PLC0415 - as above
    import jax.experimental.pallas.triton as triton  # noqa: PLC0415 - as above

    return Modules(pl, tpu, triton, jax.numpy, jax.lax, jax.nn, jax)


def run(modules: Modules, case: Case, interpret: bool | InterpretParams) -> list[np.ndarray]:
    """The results of a kernel as a list of NumPy arrays."""
    function = case.build(modules, functools.partial(modules.pl.pallas_call, interpret=interpret))
    args = modules.top.tree.map(modules.np.asarray, case.args)
    return [np.asarray(leaf) for leaf in modules.top.tree.leaves(function(*args))]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Small whole numbers and quarters: their sums and products are exact."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = -50, high: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)

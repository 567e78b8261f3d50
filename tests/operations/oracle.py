"""Running a program written for ``lax`` under weft and under JAX, for comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import weft.lax as weft_lax
from weft import core, runtime


def weft_jaxpr(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The closed jaxpr of ``program(weft.lax, *args)``."""

    def flat(*tracers: Any) -> list[Any]:
        return runtime.tree_flatten(program(weft_lax, *tracers))[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        closed, _ = core.trace_to_jaxpr(flat, [core.get_aval(a) for a in args])
    return closed


def jax_jaxpr(program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax.make_jaxpr(lambda *xs: program(jax.lax, *xs))(*args)


def jax_values(program: Callable[..., Any], args: tuple[Any, ...]) -> list[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(lambda *xs: program(jax.lax, *xs))(*args))]

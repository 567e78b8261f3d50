"""JAX's values of many small programs by few compilations.

JAX takes some 20 ms of a processor to compile a program, however small, and an expression evaluated eagerly is several
programs. ``Together`` traces each program of a table by itself, so that its errors are its own, and compiles a dozen of
them as one, with nothing fused or rewritten: values are those of one operation after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.extend.core

# The passes left out take products with a mask for selections, and sums of products for one operation.
PLAIN = {"xla_backend_optimization_level": 0, "xla_disable_hlo_passes": "algsimp,fusion,cpu-instruction-fusion"}

Program = tuple[Callable[..., Any], tuple[Any, ...]]


class Together:
    """The leaves of each program's result, or what it raises, by the program's key.

    ``programs`` gives a function and its arguments, under a key. A function that can only be evaluated with values at
    hand (its shapes depend on them), or that does not compile, is evaluated eagerly.
    """

    def __init__(self, programs: Mapping[Any, Program], at_once: int = 12) -> None:
        self._programs = dict(programs)
        self._keys = list(self._programs)
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        self._at_once = at_once
        self._values: dict[Hashable, list[Any] | Exception] = {}

    def __getitem__(self, key: Any) -> list[Any] | Exception:
        if key not in self._values:
            start = self._numbers[key] // self._at_once * self._at_once
            chosen = {key: self._programs[key] for key in self._keys[start : start + self._at_once]}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._values.update(_evaluated(chosen))
        return self._values[key]


def _evaluated(programs: dict[Any, Program]) -> dict[Any, list[Any] | Exception]:
    traced, given = {}, {}
    for key, (function, args) in programs.items():
        try:
            traced[key] = jax.extend.core.jaxpr_as_fun(jax.jit(function).trace(*args).jaxpr)
            given[key] = jax.tree.leaves(args)
        except Exception:  # an error of its own, or values are needed: evaluated below
            continue
    try:
        every = jax.jit(lambda given: {key: run(*given[key]) for key, run in traced.items()})
        values = every.lower(given).compile(PLAIN)(given)
    except Exception:  # one of them does not compile
        values = {}
    return {key: values[key] if key in values else _eagerly(*program) for key, program in programs.items()}


def _eagerly(function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any] | Exception:
    try:
        return jax.tree.leaves(function(*args))
    except Exception as error:
        return error.with_traceback(None)

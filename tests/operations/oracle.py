"""Running a program written for ``lax`` under weft and under JAX, for comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

import weft.lax as weft_lax
from weft import core, runtime
from weft.core import kinds


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


def reference_values(program: Callable[..., Any], args: tuple[Any, ...]) -> list[np.ndarray]:
    """The program's results by the kinds' NumPy oracles, equation by equation."""
    closed = weft_jaxpr(program, args)
    arrays = [np.asarray(a, core.get_aval(a).dtype) for a in args]
    return run_references(closed, arrays)


def run_references(closed: Any, args: list[np.ndarray]) -> list[np.ndarray]:
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> np.ndarray:
        return np.asarray(atom.val if isinstance(atom, core.Literal) else env[atom], atom.aval.dtype)

    for eqn in jaxpr.eqns:
        outs = run_equation(eqn, [read(atom) for atom in eqn.invars])
        for var, out in zip(eqn.outvars, outs, strict=True):
            assert out.shape == var.aval.shape and out.dtype == var.aval.dtype, (eqn, out.shape, out.dtype)
            env[var] = out
    return [read(atom) for atom in jaxpr.outvars]


def run_equation(eqn: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
    kind = eqn.primitive.kind
    if isinstance(kind, kinds.Identity):
        return operands
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(eqn.params)
        return run_references(inner, operands)
    if isinstance(kind, kinds.Resolve):
        expanded, _ = core.trace_to_jaxpr(
            lambda *xs: _as_list(kind.expand(*xs, **eqn.params)), [atom.aval for atom in eqn.invars]
        )
        return run_references(expanded, operands)
    if isinstance(kind, kinds.External):
        return _as_list(kind.call(*operands, **eqn.params))
    return _as_list(kind.reference(*operands, **eqn.params))


def _as_list(outs: Any) -> list[Any]:
    return list(outs) if isinstance(outs, (list, tuple)) else [outs]


def ulps_between(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The distance of floats (complex: of values, in ulps of the modulus); 0 for equal and for two NaNs."""
    if left.dtype.kind == "c":
        return _complex_ulps(left, right)
    dtype = left.dtype
    if dtype.kind in "biu":
        return np.where(left == right, 0.0, np.inf)
    wide = np.float64 if dtype.itemsize < 8 else np.longdouble
    info = ml_dtypes.finfo(dtype)
    a, b = left.astype(wide), right.astype(wide)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(b), wide(info.smallest_normal))))
        spacing = np.exp2(exponent) * wide(info.eps)
        distance = np.abs(a - b) / spacing
    same = (left == right) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), distance, np.inf)).astype(np.float64)


def _complex_ulps(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    info = np.finfo(left.dtype)
    a, b = left.astype(np.complex256), right.astype(np.complex256)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(b), info.smallest_normal)
        distance = np.abs(a - b) / (size * info.eps)
    parts = [ulps_between(left.real, right.real), ulps_between(left.imag, right.imag)]
    finite = np.isfinite(a) & np.isfinite(b)
    return np.where(finite, distance, np.maximum(*parts)).astype(np.float64)

"""Derivatives beside finite differences: check_grads, check_jvp, check_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import tree_util
from weft._base import unbuilt
from weft.autodiff.derivatives import jvp, linearize, vjp
from weft.core import avals

_TOLERANCE = {2: 1e-1, 4: 1e-2, 8: 1e-5}  # bytes of a real number -> relative and absolute tolerance
__getattr__ = unbuilt.fallback("weft.test_util")


def _tolerance(tree: Any, given: float | None) -> float:
    if given is not None:
        return given
    parts = [np.real(np.asarray(leaf)).dtype.itemsize for leaf in tree_util.tree_leaves(tree)]
    return _TOLERANCE[min(parts, default=8)]


def _typed(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments as arrays of the dtypes they have in programs: a Python float is a float32."""
    return tree_util.tree_map(lambda x: np.asarray(x, avals.get_aval(x).dtype), tuple(args))


def _random_like(rng: np.random.Generator, leaf: Any) -> Any:
    leaf = np.asarray(leaf)
    values = rng.normal(size=leaf.shape)
    if leaf.dtype.kind == "c":
        values = values + 1j * rng.normal(size=leaf.shape)
    return values.astype(leaf.dtype)


def _close(left: Any, right: Any, atol: float, rtol: float, message: str) -> None:
    for a, b in zip(tree_util.tree_leaves(left), tree_util.tree_leaves(right), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=atol, rtol=rtol, err_msg=message)


def _difference(f: Callable[..., Any], args: Any, tangents: Any, eps: float) -> Any:
    """The central difference of ``f`` along ``tangents``."""

    def at(step: float) -> Any:
        return f(
            *tree_util.tree_map(lambda x, t: (np.asarray(x) + step * t).astype(np.asarray(x).dtype), args, tangents)
        )

    ahead, behind = at(eps / 2), at(-eps / 2)
    return tree_util.tree_map(lambda a, b: (np.asarray(a) - np.asarray(b)) / eps, ahead, behind)


def _inner(left: Any, right: Any) -> Any:
    pairs = zip(tree_util.tree_leaves(left), tree_util.tree_leaves(right), strict=True)
    return sum(np.real(np.vdot(np.conj(np.asarray(a)), np.asarray(b))) for a, b in pairs)


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float = 1e-4,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless ``f_jvp(args, tangents)`` agrees with ``f`` and its central difference.

    The tangents are random.
    """
    rng = np.random.default_rng(0)
    args = _typed(args)
    tangents = tree_util.tree_map(lambda x: _random_like(rng, x), args)
    value, out = f_jvp(args, tangents)
    near = _tolerance(args, atol), _tolerance(args, rtol)
    _close(value, f(*args), *near, f"{err_msg} JVP primal")
    _close(out, _difference(f, args, tangents, eps), *near, f"{err_msg} JVP tangent")


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float = 1e-4,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless ``f_vjp(*args)`` agrees with ``f`` and its central difference.

    The pullback is compared by random inner products.
    """
    rng = np.random.default_rng(1)
    args = _typed(args)
    out, pullback = f_vjp(*args)
    near = _tolerance(args, atol), _tolerance(args, rtol)
    _close(out, f(*args), *near, f"{err_msg} VJP primal")
    tangents = tree_util.tree_map(lambda x: _random_like(rng, x), args)
    ct = tree_util.tree_map(lambda x: _random_like(rng, x), out)
    left = _inner(tangents, pullback(ct))
    right = _inner(_difference(f, args, tangents, eps), ct)
    _close(left, right, *near, f"{err_msg} VJP cotangent")


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Check derivatives of ``f`` at ``args`` up to ``order`` against finite differences, in every mix of the modes.

    The modes are ``fwd`` (jvp), ``rev`` (vjp) and ``lin`` (linearize).

    >>> check_grads(jnp.tanh, (0.5,), order=2)
    """
    args = _typed(args)
    step = eps if eps is not None else 1e-3 if min(_sizes(args), default=8) < 8 else 1e-5
    for mode, push in (("fwd", jvp), ("lin", _jvp_by_linearize)):
        if mode not in modes:
            continue
        check_jvp(f, functools.partial(push, f), args, atol, rtol, step, mode)
        if order > 1:
            tangents = tree_util.tree_map(functools.partial(_random_like, np.random.default_rng(order)), args)
            check_grads(functools.partial(_tangent, push, f, tangents), args, order - 1, modes, atol, rtol, eps)
    if "rev" in modes:
        check_vjp(f, lambda *xs: vjp(f, *xs), args, atol, rtol, step, "rev")
        if order > 1:
            rng = np.random.default_rng(order)
            ct = tree_util.tree_map(lambda x: _random_like(rng, x), f(*args))
            check_grads(lambda *xs: vjp(f, *xs)[1](ct), args, order - 1, modes, atol, rtol, eps)


def _tangent(push: Callable[..., Any], f: Callable[..., Any], tangents: Any, *args: Any) -> Any:
    return push(f, args, tangents)[1]


def _jvp_by_linearize(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    out, push = linearize(f, *primals)
    return out, push(*tangents)


def _sizes(args: Any) -> list[int]:
    return [np.real(np.asarray(leaf)).dtype.itemsize for leaf in tree_util.tree_leaves(args)]

"""weft.scipy.optimize.minimize: quasi-Newton minimisation (BFGS, L-BFGS) in one loop that can be compiled.

A step goes along ``-H g`` to a length that satisfies Wolfe's conditions, found by doubling and halving; then H, the
approximate inverse of the Hessian, learns from the change of the gradient (Nocedal and Wright, "Numerical
optimization", 2006, chapter 6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base import unbuilt as _unbuilt
from weft._base.record import NamedTuple
from weft.autodiff import gradients
from weft.control import while_loop
from weft.numpy import linalg, promotion

__getattr__ = _unbuilt.fallback("weft.scipy.optimize")
_DECREASE, _CURVATURE = 1e-4, 0.9  # the two constants of Wolfe's conditions
_LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


class OptimizeResults(NamedTuple):
    """What a minimisation found: the point, whether it converged, a code (0: it did, 1: too many steps, 3: no step
    found, 5: not finite), value, gradient, approximate inverse Hessian, counts of evaluations, gradients and steps."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _Search(NamedTuple):
    """A search along a line: the interval that holds a good step, the step tried, value and gradient there."""

    low: Any
    high: Any
    step: Any
    value: Any
    gradient: Any
    good: Any
    tries: Any


class _State(NamedTuple):
    x: Any
    value: Any
    gradient: Any
    inverse: Any
    steps: Any
    calls: Any
    failed: Any


def _search_line(evaluate: Callable[[Any], tuple[Any, Any]], state: Any, direction: Any, most: int) -> _Search:
    slope = wnp.dot(state.gradient, direction)

    def attempt(low: Any, high: Any, step: Any, tries: Any) -> _Search:
        value, gradient = evaluate(state.x + step * direction)
        enough = value <= state.value + _DECREASE * step * slope
        flat = wnp.dot(gradient, direction) >= _CURVATURE * slope
        low, high = wnp.where(enough & ~flat, step, low), wnp.where(enough, high, step)
        return _Search(low, high, step, value, gradient, enough & flat, tries + 1)

    def next_attempt(search: _Search) -> _Search:
        bounded = wnp.isfinite(search.high)
        step = wnp.where(bounded, (search.low + wnp.where(bounded, search.high, 0)) / 2, 2 * search.step)
        return attempt(search.low, search.high, step, search.tries)

    zero = wnp.zeros_like(slope)
    first = attempt(zero, zero + np.inf, zero + 1, np.int32(0))
    return while_loop.while_loop(lambda s: ~s.good & (s.tries < most), next_attempt, first)


def _updated(inverse: Any, moved: Any, change: Any) -> Any:
    """The inverse Hessian after a step, unless the curvature along it is not positive."""
    curvature = wnp.dot(change, moved)
    useful = curvature > 0
    rho = wnp.where(useful, 1 / wnp.where(useful, curvature, 1), 0)
    left = wnp.eye(promotion.shape_of(moved)[0], dtype=promotion.dtype_of(moved)) - rho * wnp.outer(moved, change)
    around = wnp.matmul(wnp.matmul(left, inverse, precision="highest"), left.T, precision="highest")
    return wnp.where(useful, around + rho * wnp.outer(moved, moved), inverse)


def _bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = np.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 30,
) -> OptimizeResults:
    size = promotion.shape_of(x0)[0]
    most = size * 200 if maxiter is None else maxiter
    evaluate = gradients.value_and_grad(fun)

    def is_done(state: _State) -> Any:
        return linalg.norm(state.gradient, ord=norm) < gtol

    def goes_on(state: _State) -> Any:
        return ~is_done(state) & ~state.failed & (state.steps < most)

    def step(state: _State) -> _State:
        direction = -(state.inverse @ state.gradient)
        found = _search_line(evaluate, state, direction, line_search_maxiter)
        better = found.good | (found.value < state.value)
        moved = wnp.where(better, found.step, 0) * direction
        change = wnp.where(better, found.gradient - state.gradient, 0)
        return _State(
            state.x + moved,
            wnp.where(better, found.value, state.value),
            state.gradient + change,
            _updated(state.inverse, moved, change),
            state.steps + 1,
            state.calls + found.tries,
            ~better | ~wnp.isfinite(found.value),
        )

    value, gradient = evaluate(x0)
    inverse = wnp.eye(size, dtype=promotion.dtype_of(x0))
    start = _State(x0, value, gradient, inverse, np.int32(0), np.int32(1), ~wnp.isfinite(value))
    end = while_loop.while_loop(goes_on, step, start)
    success = is_done(end) & wnp.isfinite(end.value)
    status = wnp.where(success, 0, wnp.where(~wnp.isfinite(end.value), 5, wnp.where(end.failed, 3, 1)))
    return OptimizeResults(
        end.x, success, status.astype(np.int32), end.value, end.gradient, end.inverse, end.calls, end.calls, end.steps
    )


class _Limited(NamedTuple):
    """What the limited-memory method knows: a point, and the last steps and changes of the gradient, newest last."""

    x: Any
    value: Any
    gradient: Any
    moves: Any
    changes: Any
    steps: Any
    calls: Any
    status: Any


def _limited_direction(state: _Limited) -> Any:
    """``-H g`` for the H that the kept steps give (Nocedal and Wright, algorithm 7.4)."""
    moves, changes = state.moves, state.changes
    curvature = wnp.sum(moves * changes, axis=1)
    useful = curvature > 0
    rho = wnp.where(useful, 1 / wnp.where(useful, curvature, 1), 0)
    count = promotion.shape_of(moves)[0]

    def newest_first(i: Any, found: Any) -> Any:
        q, shares = found
        k = count - 1 - i
        share = rho[k] * wnp.dot(moves[k], q)
        return q - share * changes[k], shares.at[k].set(share)

    def oldest_first(k: Any, q: Any) -> Any:
        return q + (shares[k] - rho[k] * wnp.dot(changes[k], q)) * moves[k]

    q, shares = while_loop.fori_loop(0, count, newest_first, (state.gradient, wnp.zeros_like(rho)))
    size = wnp.dot(changes[-1], changes[-1])
    scale = wnp.where(useful[-1], curvature[-1] / wnp.where(useful[-1], size, 1), 1)
    return -while_loop.fori_loop(0, count, oldest_first, scale * q)


def _lbfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: float | None = None,
    norm: Any = np.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-5,
    maxfun: float | None = None,
    maxgrad: float | None = None,
    maxls: int = 20,
) -> OptimizeResults:
    evaluate = gradients.value_and_grad(fun)
    most = [np.inf if bound is None else bound for bound in (maxiter, maxfun, maxgrad)]

    def is_done(state: _Limited) -> Any:
        return linalg.norm(state.gradient, ord=norm) < gtol

    def step(state: _Limited) -> _Limited:
        direction = _limited_direction(state)
        found = _search_line(evaluate, state, direction, maxls)
        better = (found.good | (found.value < state.value)) & wnp.isfinite(found.value)
        moved = wnp.where(better, found.step, 0) * direction
        change = wnp.where(better, found.gradient - state.gradient, 0)
        value = wnp.where(better, found.value, state.value)
        steps, calls = state.steps + 1, state.calls + found.tries
        reasons = [(~better, 5), (state.value - value < ftol, 4)]
        reasons += [(calls >= most[2], 3), (calls >= most[1], 2), (steps >= most[0], 1)]
        status = wnp.select([reason for reason, _ in reasons], [np.int32(code) for _, code in reasons], np.int32(0))
        moves, changes = [wnp.concatenate([kept[1:], new[None]]) for kept, new in (
            (state.moves, moved), (state.changes, change))]  # fmt: skip
        return _Limited(state.x + moved, value, state.gradient + change, moves, changes, steps, calls, status)

    value, gradient = evaluate(x0)
    empty = wnp.zeros((maxcor, promotion.shape_of(x0)[0]), promotion.dtype_of(x0))
    status = wnp.where(wnp.isfinite(value), 0, 5).astype(np.int32)
    start = _Limited(x0, value, gradient, empty, empty, np.int32(0), np.int32(1), status)
    end = while_loop.while_loop(lambda state: ~is_done(state) & (state.status == 0), step, start)
    success = is_done(end) & wnp.isfinite(end.value)
    status = wnp.where(success, 0, end.status)
    return OptimizeResults(end.x, success, status, end.value, end.gradient, None, end.calls, end.calls, end.steps)


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: dict[str, Any] | None = None,
) -> OptimizeResults:
    """The point near ``x0`` where ``fun(x, *args)``, a real number, is least.

    ``x0`` is a vector of floats; ``fun`` is differentiated. ``method`` is "BFGS"; ``options`` are ``maxiter`` (200 for
    each element), ``gtol`` (1e-5, or ``tol``: the search ends where the norm of the gradient is below), ``norm`` (inf:
    the norm's order) and ``line_search_maxiter`` (30). Steps are chosen by a simpler search than JAX's, so counts
    differ.

    "l-bfgs-experimental-do-not-rely-on-this" keeps the last ``maxcor`` (10) steps instead of a matrix. Its options are
    ``maxiter``, ``maxfun`` and ``maxgrad`` (no bounds), ``norm``, ``gtol``, ``ftol`` (2.2e-9: it ends where the value
    falls by less, with status 4) and ``maxls`` (20); status 5 says that no step was found, 2 and 3 that too many values
    or gradients were asked for. TypeError for ``args`` that are no tuple and for unknown options, ValueError for other
    methods and ranks.

    >>> found = minimize(lambda x: ((x - 3) ** 2).sum(), np.zeros(2, np.float32), method="BFGS")
    >>> found.x.round(3).tolist(), found.success.item()
    ([3.0, 3.0], True)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    promotion.check_arraylike("minimize", x0)
    lowered = method.lower()
    if lowered not in ("bfgs", _LIMITED):
        raise ValueError(f"Method {method} not recognized: use 'BFGS' or {_LIMITED!r}")
    (x0,) = promotion.promote_dtypes_inexact(wnp.asarray(x0))
    if len(promotion.shape_of(x0)) != 1:
        raise ValueError(f"[minimize] x0 must be a vector, got shape {promotion.shape_of(x0)}")
    given = dict(options or {})
    if tol is not None:
        given["gtol"] = tol
    return (_bfgs if lowered == "bfgs" else _lbfgs)(lambda x: fun(x, *args), x0, **given)

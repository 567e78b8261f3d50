"""weft.experimental.ode.odeint: ordinary differential equations by Dormand and Prince's method with adaptive steps.

Steps are chosen by the error alone; values at the wanted times are read from a polynomial over the step. The gradient
solves the adjoint equation backwards, so that no step is kept::

    dy/dt = f(y, t)   ->   ys at t[0], t[1], ...        gradient: dy/dt = f, da/dt = -a df/dy, from t[-1] back to t[0]
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, flatten_util, tree_util
from weft import numpy as jnp
from weft._base import unbuilt
from weft.autodiff import custom_vjp as custom_vjp_module
from weft.autodiff import derivatives
from weft.batching.vmap import vmap
from weft.control import scan, while_loop

__getattr__ = unbuilt.fallback(__name__)

# J. Dormand, P. Prince, "A family of embedded Runge-Kutta formulae", J. Comput. Appl. Math. 6 (1980). The last row of A
# is the solution of order 5, so that the slope at its end is that of the next step's begin.
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# order 5 minus order 4
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# The interpolant of order 4: E. Hairer, S. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", II.6.
DENSE = (
    -12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072,
    701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423,
)  # fmt: skip
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # factors on the next step's length: always, the least, the largest

Slope = Callable[..., Any]


def odeint(
    func: Slope,
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = float("inf"),
    hmax: float = float("inf"),
) -> Any:
    """The solution of ``dy/dt = func(y, t, *args)`` with ``y = y0`` at ``t[0]``, at the increasing times ``t``.

    ``y0`` is an array or a tree of arrays, ``func`` gives the same structure, and the result has it, with a leading
    axis of ``len(t)``. ``args`` are trees of arrays. Each step keeps its error (root mean square) below
    ``atol + rtol |y|``, takes at most ``hmax``, and at most ``mxstep`` steps lead from one time to the next; what is
    not reached is extrapolated. Reverse derivatives by y0, t, args and what func closes over, through the adjoint
    equation. TypeError for times that are no floats or arguments that are no arrays.

    >>> from weft.experimental.ode import odeint
    >>> y = odeint(lambda y, t: -y, jnp.array(1.0), jnp.array([0.0, 1.0]), rtol=1e-5, atol=1e-6)
    >>> print(y.round(4))
    [1.     0.3679]
    """
    for leaf in tree_util.tree_leaves(args):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise TypeError(
                f"[odeint] the contents of odeint *args must be arrays or scalars, but got {leaf!r} of {type(leaf)}"
            )
    times = jnp.asarray(t)
    if not jnp.issubdtype(times.dtype, jnp.floating) or times.ndim != 1:
        raise TypeError(f"[odeint] t must be a vector of floats, but got {times}")
    y0 = tree_util.tree_map(jnp.asarray, y0)
    flat, unravel = flatten_util.ravel_pytree(y0)
    if not jnp.issubdtype(flat.dtype, jnp.inexact):
        raise TypeError(f"[odeint] y0 must be of floats, got {flat.dtype}")
    converted, captured = custom_vjp_module.closure_convert(func, y0, times[0], *args)
    leaves, tree = tree_util.tree_flatten((args, list(captured)))

    def slope(flat: Any, time: Any, *leaves: Any) -> Any:
        inner_args, inner_captured = tree_util.tree_unflatten(tree, leaves)
        out = flatten_util.ravel_pytree(converted(unravel(flat), time, *inner_args, *inner_captured))[0]
        return out.astype(flat.dtype)

    ys = _solve(slope, float(rtol), float(atol), float(mxstep), float(hmax), flat, times, *map(jnp.asarray, leaves))
    return vmap(unravel)(ys)


def _norm(x: Any) -> Any:
    """The root of the mean square."""
    return jnp.sqrt(jnp.mean(jnp.abs(x) ** 2))


def _first_step(slope: Slope, t0: Any, y0: Any, f0: Any, rtol: float, atol: float) -> Any:
    """A length to begin with, by Hairer, Norsett and Wanner, II.4."""
    scale = atol + jnp.abs(y0) * rtol
    d0, d1 = _norm(y0 / scale), _norm(f0 / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = jnp.where(small, 1e-6, 0.01 * d0 / jnp.where(small, 1.0, d1)).astype(t0.dtype)
    d2 = _norm((slope(y0 + h0.astype(y0.real.dtype) * f0, t0 + h0) - f0) / scale) / h0
    largest = jnp.maximum(d1, d2)
    flat = largest <= 1e-15
    h1 = jnp.where(flat, jnp.maximum(1e-6, h0 * 1e-3), (0.01 / jnp.where(flat, 1.0, largest)) ** 0.2)
    return jnp.minimum(100 * h0, h1).astype(t0.dtype)


def _combine(weights: tuple[float, ...], slopes: list[Any]) -> Any:
    terms = [k * jnp.asarray(w, k.dtype) for w, k in zip(weights, slopes, strict=False) if w]
    return functools.reduce(jnp.add, terms)


def _step(slope: Slope, y: Any, f: Any, t: Any, dt: Any) -> tuple[Any, Any, Any, Any]:
    """One step: the new value and slope, an estimate of the error, and the interpolant's coefficients."""
    h = dt.astype(y.real.dtype)
    slopes = [f]
    new = y
    for node, row in zip(NODES, A, strict=True):
        new = y + h * _combine(row, slopes)
        slopes.append(slope(new, t + dt * jnp.asarray(node, dt.dtype)))
    change = new - y
    bend = h * f - change
    curve = jnp.stack([y, change, bend, change - h * slopes[-1] - bend, h * _combine(DENSE, slopes)])
    return new, slopes[-1], h * _combine(ERROR, slopes), curve


def _value_at(curve: Any, theta: Any) -> Any:
    """The interpolant of a step, at the part ``theta`` of it."""
    theta = theta.astype(curve.real.dtype)
    rest = 1 - theta
    y, change, bend, third, fourth = curve
    return y + theta * (change + rest * (bend + theta * (third + rest * fourth)))


def _integrate(
    slope: Slope, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, times: Any, *args: Any
) -> Any:
    """The values at all times, f[len(times), size]."""

    def f(y: Any, t: Any) -> Any:
        return slope(y, t, *args)

    def to_time(state: Any, target: Any) -> tuple[Any, Any]:
        def goes_on(inner: Any) -> Any:
            count, (_, _, t, dt, _, _) = inner
            return (t < target) & (count.astype(np.float32) < mxstep) & (dt > 0)

        def advance(inner: Any) -> Any:
            count, (y, dy, t, dt, last, curve) = inner
            new, new_dy, error, new_curve = _step(f, y, dy, t, dt)
            ratio = _norm(error / (atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(new))))
            factor = SAFETY * jnp.maximum(ratio, 1e-10) ** -0.2
            factor = jnp.where(jnp.isfinite(ratio), jnp.clip(factor, SHRINK, GROW), SHRINK)
            good = ratio <= 1
            next_dt = jnp.minimum(dt * factor.astype(dt.dtype), hmax)
            taken = (new, new_dy, t + dt, next_dt, t, new_curve)
            kept = (y, dy, t, jnp.where(t + next_dt > t, next_dt, 0), last, curve)  # too short to move: give up
            return count + 1, tuple(jnp.where(good, a, b) for a, b in zip(taken, kept, strict=True))

        _, state = while_loop.while_loop(goes_on, advance, (jnp.int32(0), state))
        _, _, t, _, last, curve = state
        return state, _value_at(curve, (target - last) / jnp.where(t > last, t - last, 1))

    f0 = f(y0, times[0])
    dt = jnp.clip(_first_step(f, times[0], y0, f0, rtol, atol), 0, hmax)
    curve = jnp.stack([y0] + [jnp.zeros_like(y0)] * 4)
    start = (y0, f0, times[0], dt, times[0], curve)
    _, ys = scan.scan(to_time, start, times[1:])
    return jnp.concatenate([y0[None], ys])


def _forward(
    slope: Slope, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, times: Any, *args: Any
) -> Any:
    ys = _integrate(slope, rtol, atol, mxstep, hmax, y0, times, *args)
    return ys, (ys, times, args)


def _backward(slope: Slope, rtol: float, atol: float, mxstep: float, hmax: float, saved: Any, g: Any) -> Any:
    """The adjoint equation from the last time to the first: of y, its cotangent, that of t[0] and those of args."""
    ys, times, args = saved
    smooth = [k for k, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def with_smooth(values: Any) -> list[Any]:
        full = list(args)
        for k, value in zip(smooth, values, strict=True):
            full[k] = value
        return full

    def along(y: Any, t: Any, *values: Any) -> Any:
        return slope(y, t, *with_smooth(values))

    values = [args[k] for k in smooth]
    zeros = tuple(map(jnp.zeros_like, values))
    flat, unravel = flatten_util.ravel_pytree((ys[-1], g[-1], jnp.zeros((), times.dtype), zeros))

    def augmented(state: Any, minus_t: Any, *values: Any) -> Any:
        """Slopes in the time -t."""
        y, y_bar, _, _ = unravel(state)
        dy, pull = derivatives.vjp(along, y, -minus_t, *values)
        y_slope, t_slope, *rest = pull(y_bar)
        return flatten_util.ravel_pytree((-dy, y_slope, t_slope, tuple(rest)))[0].astype(state.dtype)

    def back(carry: Any, values_at: Any) -> tuple[Any, Any]:
        y_bar, t0_bar, bars = carry
        y, t, earlier, g_here, g_before = values_at
        t_bar = jnp.real(jnp.sum(along(y, t, *values) * g_here)).astype(times.dtype)  # a later reading of y
        state = flatten_util.ravel_pytree((y, y_bar, t0_bar - t_bar, bars))[0].astype(flat.dtype)
        span = jnp.stack([-t, -earlier])
        end = _integrate(augmented, rtol, atol, mxstep, hmax, state, span, *values)[1]
        _, y_bar, t0_bar, bars = unravel(end)
        return (y_bar + g_before, t0_bar, bars), t_bar

    start = (g[-1], jnp.zeros((), times.dtype), zeros)
    intervals = (ys[1:], times[1:], times[:-1], g[1:], g[:-1])
    (y_bar, t0_bar, bars), t_bars = scan.scan(back, start, intervals, reverse=True)
    out: list[Any] = [np.zeros(x.shape, dtypes.float0) for x in args]
    for k, bar in zip(smooth, bars, strict=True):
        out[k] = bar
    return (y_bar, jnp.concatenate([t0_bar[None], t_bars]), *out)


_solve = custom_vjp_module.custom_vjp(_integrate, nondiff_argnums=(0, 1, 2, 3, 4))
_solve.defvjp(_forward, _backward)

"""Random functions from f64[4] to f64[4], and transformations that take such a function to another.

A transformation says twice what it does: with the library's tools (``apply``), and with nothing but calls of the
function (``expect``): by central differences along a direction, by a Python loop, or by the function itself. What is
written once for a module (weft or JAX) runs under both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

SIZE = 4
MATRIX = np.random.default_rng(0).normal(size=(SIZE, SIZE)) / 2
DIRECTION = np.array([0.6, -0.3, 0.8, 0.5])
OTHER = np.array([-0.4, 0.9, 0.2, 0.7])

Function = Callable[[Any], Any]

# -- programs ---------------------------------------------------------------------------------------------------------

# v and w are vectors computed before; m the module, np its numpy, lax its lax.
STEPS = [
    "np.sin(v)", "np.cos(v) * w", "np.tanh(v + w)", "v * w", "v - 0.5 * w", "v + w.sum() / 4", "1 / (1 + v * v)",
    "np.exp(-v * v)", "np.log1p(v * v)", "np.sqrt(1 + v * v)", "np.arctan2(v, 1 + w * w)", "m.nn.sigmoid(v) - w",
    "np.where(v > 0.1, v * 2, w)", "np.where(v > 0, np.sqrt(np.where(v > 0, v, 1.0)), w)", "np.maximum(v, w)",
    "np.clip(v, -0.7, 0.9)", "v[::-1] * w", "np.roll(v, 1) - w", "np.cumsum(v) / 4", "np.sort(v) * w", "np.max(v) * w",
    "v[np.array([3, 0, 0, 1])]", "v.at[1].set(w[2])", "v.at[np.array([0, 2, 2])].add(w[1:])", "v.at[1:3].multiply(2.0)",
    "np.concatenate([v[2:], w[:2]])", "np.stack([v, w]).mean(0)", "(v @ w) * v / 4", "c @ v", "np.outer(v, w) @ v / 4",
    "np.einsum('i,ij->j', v, c)", "m.nn.softmax(v) * 2", "m.nn.logsumexp(v) * w / 4", "np.prod(v / 2) + w",
    "np.cumprod(np.tanh(v))", "v.reshape(2, 2).T.reshape(4)", "np.pad(v[1:3], 1)", "np.real(np.exp(1j * v) * w)",
    "np.abs(v + 1j + 1j * w * w)", "lax.dynamic_slice(np.concatenate([v, w]), (3,), (4,))", "np.take(v, 2) * w",
    "lax.cond(v[0] > 0, lambda a: np.sin(a), lambda a: a * w, v)", "lax.switch(1, [np.sin, np.cos, np.tanh], v)",
    "lax.fori_loop(0, 3, lambda i, s: np.sin(s) * v + s / (i + 1.0), w)", "lax.cumlogsumexp(v) / 2",
    "lax.scan(lambda s, a: (np.tanh(s * a) + a, s), v[0], w)[1]", "lax.map(lambda a: np.sin(a) * w[0], v)",
    "lax.associative_scan(np.multiply, np.cos(v))", "m.jit(lambda a: np.sin(a) * a)(v)", "lax.rsqrt(1 + v * v) * w",
    "m.vmap(lambda a, b: a * b + a)(v, w)", "m.checkpoint(lambda a: np.sin(np.cos(a)))(v) * w",
    "lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * 0.7), (0, np.ones(4)))[1] * w", "v ** 2 / 2",
    "lax.custom_linear_solve(lambda x: 2 * x, v, lambda f, b: b / 2, symmetric=True) * w", "abs(v + 3) ** 1.5 / 4",
]  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Steps: (which expression, which earlier value is v, which is w)."""

    steps: tuple[tuple[int, int, int], ...]

    def function(self, m: Any) -> Function:
        names = {"m": m, "np": m.numpy, "lax": m.lax, "c": MATRIX}
        made = [eval(f"lambda v, w: {STEPS[step]}", names) for step, _, _ in self.steps]

        def run(x: Any) -> Any:
            values = [x]
            for step, (_, v, w) in zip(made, self.steps, strict=True):
                values.append(step(values[v % len(values)], values[w % len(values)]))
            return values[-1]

        return run

    def __str__(self) -> str:
        return "; ".join(f"{STEPS[s]} of {v % (i + 1)}, {w % (i + 1)}" for i, (s, v, w) in enumerate(self.steps))


# -- transformations --------------------------------------------------------------------------------------------------


def along(f: Function, x: Any, direction: Any, step: float) -> Any:
    """The central difference of f along a direction."""
    return (np.asarray(f(x + step * direction)) - np.asarray(f(x - step * direction))) / (2 * step)


@dataclass(frozen=True)
class Transformation:
    """``apply(module, f)`` is the new function; ``expect(f, x, step)`` its value by calls of f alone.

    ``measured`` takes what ``apply`` gives to what ``expect`` gives: a vector, or its product with OTHER, which is all
    that one difference can know of a gradient. ``order`` counts derivatives; ``forward`` says that it needs jvp.
    """

    apply: Callable[[Any, Function], Function]
    expect: Callable[[Function, Any, float], Any]
    measured: Callable[[Any], Any] = lambda y: y
    order: int = 0
    forward: bool = False


def _dotted(y: Any) -> Any:
    return np.asarray(y) @ OTHER


def _grad(f: Function, x: Any, step: float) -> Any:
    return along(f, x, OTHER, step).sum()


def _pulled(f: Function, x: Any, step: float) -> Any:
    return along(f, x, OTHER, step) @ DIRECTION


def _second(f: Function, x: Any, step: float) -> Any:
    step = step**0.5 / 10
    slope = lambda y: along(f, y, DIRECTION, step).sum()
    return (slope(x + step * OTHER) - slope(x - step * OTHER)) / (2 * step)


def _value_and_grad(m: Any, f: Function) -> Function:
    def run(x: Any) -> Any:
        value, slope = m.value_and_grad(lambda y: f(y).sum())(x)
        return slope + value

    return run


def _custom_jvp(m: Any, f: Function) -> Function:
    g = m.custom_jvp(f)
    g.defjvp(lambda primals, tangents: m.jvp(f, primals, tangents))
    return g


def _custom_vjp(m: Any, f: Function) -> Function:
    g = m.custom_vjp(f)
    g.defvjp(lambda x: m.vjp(f, x), lambda pull, ct: pull(ct))
    return g


def _converted(m: Any, f: Function) -> Function:
    def run(x: Any) -> Any:
        g, captured = m.closure_convert(lambda y: f(y * x), x)
        return g(x / (1 + x * x), *captured)

    return run


def _loop(f: Function, x: Any, step: float) -> Any:
    for _ in range(2):
        x = np.tanh(np.asarray(f(x)))
    return x


def _rows(f: Function, x: Any, step: float) -> Any:
    return sum(np.asarray(f(x * scale)) for scale in (1.0, 0.5, -0.25))


def _same(f: Function, x: Any, step: float) -> Any:
    return f(x)


SCALES = np.array([1.0, 0.5, -0.25])
TRANSFORMATIONS: dict[str, Transformation] = {
    "jit": Transformation(lambda m, f: m.jit(f), _same),
    "grad": Transformation(lambda m, f: m.grad(lambda y: f(y).sum()), _grad, _dotted, 1),
    "value_and_grad": Transformation(
        _value_and_grad, lambda f, x, step: _grad(f, x, step) + np.asarray(f(x)).sum() * OTHER.sum(), _dotted, 1
    ),
    "jvp": Transformation(
        lambda m, f: lambda x: m.jvp(f, (x,), (m.numpy.asarray(DIRECTION),))[1],
        lambda f, x, step: along(f, x, DIRECTION, step), order=1, forward=True,
    ),
    "vjp": Transformation(
        lambda m, f: lambda x: m.vjp(f, x)[1](m.numpy.asarray(DIRECTION))[0], _pulled, _dotted, 1
    ),
    "linearize": Transformation(
        lambda m, f: lambda x: m.linearize(f, x)[1](m.numpy.asarray(DIRECTION)),
        lambda f, x, step: along(f, x, DIRECTION, step), order=1, forward=True,
    ),
    "vmap": Transformation(lambda m, f: lambda x: m.vmap(lambda s: f(x * s))(m.numpy.asarray(SCALES)).sum(0), _rows),
    "vmap out": Transformation(
        lambda m, f: lambda x: m.vmap(f, in_axes=1, out_axes=1)(m.numpy.outer(x, SCALES)).sum(1), _rows
    ),
    "jacfwd": Transformation(
        lambda m, f: lambda x: m.jacfwd(f)(x) @ DIRECTION, lambda f, x, step: along(f, x, DIRECTION, step), order=1,
        forward=True,
    ),
    "jacrev": Transformation(lambda m, f: lambda x: DIRECTION @ m.jacrev(f)(x), _pulled, _dotted, 1),
    "hessian": Transformation(
        lambda m, f: lambda x: m.hessian(lambda y: f(y).sum())(x) @ DIRECTION, _second, _dotted, 2, True
    ),
    "checkpoint": Transformation(lambda m, f: m.checkpoint(f), _same),
    "checkpoint dots": Transformation(
        lambda m, f: m.checkpoint(f, policy=m.checkpoint_policies.dots_saveable, prevent_cse=False), _same
    ),
    "custom_jvp": Transformation(_custom_jvp, _same),
    "custom_vjp": Transformation(_custom_vjp, _same),
    "closure_convert": Transformation(_converted, lambda f, x, step: f(x / (1 + x * x) * x)),
    "scan": Transformation(
        lambda m, f: lambda x: m.lax.scan(lambda c, _: (m.numpy.tanh(f(c)), None), x, None, length=2)[0], _loop
    ),
    "cond": Transformation(lambda m, f: lambda x: m.lax.cond(x[0] > -9, f, lambda y: y, x), _same),
}  # fmt: skip


@dataclass(frozen=True)
class Composition:
    """A program and the names of transformations, the first applied first."""

    program: Program
    names: tuple[str, ...]

    def functions(self, m: Any) -> tuple[Function, Function]:
        """(the function under all transformations but the last, under all)."""
        inner = outer = self.program.function(m)
        for name in self.names:
            inner, outer = outer, TRANSFORMATIONS[name].apply(m, outer)
        return inner, outer

    def __str__(self) -> str:
        return f"{' of '.join(reversed(self.names))} of [{self.program}]"


def _allowed(names: list[str]) -> bool:
    """At most four derivatives; nothing goes forward through custom_vjp."""
    made = [TRANSFORMATIONS[name] for name in names]
    first = names.index("custom_vjp") if "custom_vjp" in names else len(names)
    return sum(t.order for t in made) <= 4 and not any(t.forward for t in made[first:])


def compositions() -> st.SearchStrategy[Composition]:
    step = st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3), st.integers(0, 3))
    programs = st.lists(step, min_size=1, max_size=3).map(lambda steps: Program(tuple(steps)))
    names = st.lists(st.sampled_from(sorted(TRANSFORMATIONS)), min_size=1, max_size=4).filter(_allowed)
    return st.builds(Composition, programs, names.map(tuple))

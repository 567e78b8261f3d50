"""Values and programs of derivatives of single operations, beside JAX's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.lax
import numpy as np
import pytest

import weft
import weft.lax

pytestmark = pytest.mark.oracle

V = np.float32([0.3, -0.7, 1.2])
P = np.float32([0.3, 0.7, 1.2])
M = np.float32(np.random.default_rng(0).normal(size=(3, 4)))
T = np.float32(np.random.default_rng(1).normal(size=(2, 3, 4)))
S = np.float32(0.5)

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]

UNARY = [
    "neg",
    "sign",
    "floor",
    "ceil",
    "exp",
    "exp2",
    "expm1",
    "tanh",
    "logistic",
    "sin",
    "cos",
    "tan",
    "asin",
    "atan",
]
UNARY += ["sinh", "cosh", "asinh", "atanh", "abs", "square", "erf", "erfc", "cbrt"]
POSITIVE = ["log", "log1p", "sqrt", "rsqrt", "lgamma", "reciprocal"]

ROWS = np.int32([[1], [5], [1], [0]])  # one of them outside, one twice
ONCE = np.int32([[1], [5], [2]])
W = np.float32(np.random.default_rng(2).normal(size=(4, 4)))


def gathered(**options: Any) -> Callable[..., Any]:
    def run(lax: Any, x: Any) -> Any:
        return lax.gather(x, ROWS, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), **options)

    return run


def scattered(name: str, indices: np.ndarray = ROWS, **options: Any) -> Callable[..., Any]:
    def run(lax: Any, x: Any, u: Any) -> Any:
        return getattr(lax, name)(x, indices, u, lax.ScatterDimensionNumbers((1,), (0,), (0,)), **options)

    return run


def scattered_once(name: str) -> Callable[..., Any]:
    return scattered(name, ONCE, unique_indices=True)


def into_zeros(lax: Any, u: Any) -> Any:
    return scattered("scatter_add", mode="clip")(lax, lax.full((3, 4), np.float32(0)), u)


INDEXED: list[Case] = [
    ("gather", gathered(), (M,)),
    ("gather fill", gathered(mode="fill", fill_value=3.0), (M,)),
    ("gather clip", gathered(mode="clip", indices_are_sorted=True), (M,)),
    ("scatter_add", scattered("scatter_add"), (M, W)),
    ("scatter_add clip", scattered("scatter_add", mode="clip"), (M, W)),
    ("scatter_add to zeros", into_zeros, (W,)),
    ("scatter_sub", scattered("scatter_sub"), (M, W)),
    ("scatter_mul once", scattered_once("scatter_mul"), (M, W[:3])),
    ("scatter_mul of x", lambda lax, x: scattered("scatter_mul")(lax, x, W), (M,)),
    ("scatter", scattered("scatter"), (M, W)),
    ("scatter of x", lambda lax, x: scattered("scatter")(lax, x, W), (M,)),
    ("scatter of u", lambda lax, u: scattered("scatter")(lax, M, u), (W,)),
    ("scatter once", scattered_once("scatter"), (M, W[:3])),
    ("scatter_max", scattered("scatter_max"), (M, W)),
    ("scatter_min ties", scattered("scatter_min"), (np.round(M), np.round(W))),
]
CASES: list[Case] = [
    *INDEXED,
    *[(name, lambda lax, x, name=name: getattr(lax, name)(x * lax.full_like(x, 0.5)), (V,)) for name in UNARY],
    *[(name, lambda lax, x, name=name: getattr(lax, name)(x), (P,)) for name in POSITIVE],
    ("acosh", lambda lax, x: lax.acosh(x), (P + 1,)),
    ("erf_inv", lambda lax, x: lax.erf_inv(x), (P / 2,)),
    ("round", lambda lax, x: lax.round(x), (V,)),
    ("add", lambda lax, x, y: lax.add(x, y), (V, P)),
    ("add scalar", lambda lax, x, y: lax.add(x, y), (V, S)),
    ("sub scalar", lambda lax, x, y: lax.sub(x, y), (S, V)),
    ("mul scalar", lambda lax, x, y: lax.mul(x, y), (V, S)),
    ("div scalar", lambda lax, x, y: lax.div(x, y), (V, S)),
    ("div", lambda lax, x, y: lax.div(x, y), (V, P)),
    ("rem", lambda lax, x, y: lax.rem(x, y), (V, P / 2)),
    ("max", lambda lax, x, y: lax.max(x, y), (V, P)),
    ("min", lambda lax, x, y: lax.min(x, y), (V, P)),
    ("pow", lambda lax, x, y: lax.pow(x, y), (P, V)),
    ("atan2", lambda lax, x, y: lax.atan2(x, y), (P, V)),
    ("extent 1", lambda lax, x, y: lax.add(x, y), (M[:, :1], M[:1])),
    *[(f"integer_pow {n}", lambda lax, x, n=n: lax.integer_pow(x, n), (V,)) for n in (-2, -1, 0, 2, 3, 5)],
    ("clamp", lambda lax, x: lax.clamp(np.float32(0), x, np.float32(1)), (V,)),
    ("select", lambda lax, x, y: lax.select(lax.gt(x, y), x, y), (V, P)),
    ("convert", lambda lax, x: lax.convert_element_type(x, np.float16), (V,)),
    ("reduce_precision", lambda lax, x: lax.reduce_precision(x, 5, 3), (V,)),
    ("complex", lambda lax, x, y: lax.real(lax.mul(lax.complex(x, y), lax.conj(lax.complex(y, x)))), (V, P)),
    ("complex abs", lambda lax, x, y: lax.abs(lax.complex(x, y)), (V, P)),
    ("imag", lambda lax, x, y: lax.imag(lax.exp(lax.complex(x, y))), (V, P)),
    ("broadcast_in_dim", lambda lax, x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)), (V,)),
    ("broadcast extent 1", lambda lax, x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), (M[:, :1],)),
    ("reshape", lambda lax, x: lax.reshape(x, (12,)), (M,)),
    ("reshape permuted", lambda lax, x: lax.reshape(x, (12,), (1, 0)), (M,)),
    ("transpose", lambda lax, x: lax.transpose(x, (2, 0, 1)), (T,)),
    ("squeeze", lambda lax, x: lax.squeeze(x, (1,)), (M[:, :1],)),
    ("slice", lambda lax, x: lax.slice(x, (1, 0), (3, 4), (1, 3)), (M,)),
    ("rev", lambda lax, x: lax.rev(x, (0,)), (M,)),
    ("pad", lambda lax, x, y: lax.pad(x, y, ((1, 2, 1),)), (V, S)),
    ("pad negative", lambda lax, x: lax.pad(x, np.float32(0), ((-1, 2, 0),)), (V,)),
    ("concatenate", lambda lax, x, y: lax.concatenate([x, y, x], 0), (V, P)),
    ("split", lambda lax, x: lax.split(x, (1, 2))[1], (V,)),
    ("stack", lambda lax, x, y: lax.stack([x, y, x]), (V, P)),
    ("unstack", lambda lax, x: lax.unstack(x)[1], (M,)),
    ("tile", lambda lax, x: lax.tile(x, (2, 3)), (M,)),
    ("dynamic_slice", lambda lax, x: lax.dynamic_slice(x, (1,), (2,)), (V,)),
    ("dynamic_update_slice", lambda lax, x, y: lax.dynamic_update_slice(x, y, (1,)), (V, P[:2])),
    ("reduce_sum", lambda lax, x: lax.reduce_sum(x, (0,)), (M,)),
    ("reduce_max", lambda lax, x: lax.reduce_max(x, (1,)), (M,)),
    ("reduce_min", lambda lax, x: lax.reduce_min(x, (0, 1)), (M,)),
    ("argmax", lambda lax, x: x * lax.convert_element_type(lax.argmax(x, 0, np.int32), np.float32), (V,)),
    ("cumsum", lambda lax, x: lax.cumsum(x, 1, True), (M,)),
    ("dot", lambda lax, x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))), (M, M)),
    ("dot batch", lambda lax, x, y: lax.dot_general(x, y, (((2,), (2,)), ((0,), (0,)))), (T, T)),
    ("dot many", lambda lax, x, y: lax.dot_general(x, y, (((0, 2), (2, 1)), ((), ()))), (T, T.transpose(1, 2, 0))),
    ("conv", lambda lax, x, y: lax.conv_general_dilated(x, y, (2,), ((1, 2),), None, (2,)), (T, T[:2])),
    ("conv holes", lambda lax, x, y: lax.conv_general_dilated(x, y, (3,), ((0, 1),), (2,)), (T, T[:2])),
    (
        "conv features",
        lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", None, None, None, 3),
        (T, np.concatenate([T, T[:1]])[:, :1]),
    ),
    ("conv batch", lambda lax, x, y: lax.conv_general_dilated(x, y, (1,), "SAME", None, None, None, 1, 2), (T, T)),
    ("stop_gradient", lambda lax, x: lax.stop_gradient(x) * x, (V,)),
    ("barrier", lambda lax, x: lax.optimization_barrier(x), (V,)),
]
# The result is the operation's own beside a derivative by another way: programs differ from JAX's by that equation.
VALUES_ONLY: list[Case] = [
    ("reduce_prod", lambda lax, x: lax.reduce_prod(x, (1,)), (M,)),
    ("reduce_prod zero", lambda lax, x: lax.reduce_prod(x, (0,)), (np.float32([[2, 0], [0, 0], [3, 5]]),)),
    ("cumprod", lambda lax, x: lax.cumprod(x, 0), (T,)),
    ("cumprod zero", lambda lax, x: lax.cumprod(x, 0), (np.float32([2, 0, 3, 0, 5]),)),
    ("cummax", lambda lax, x: lax.cummax(x, 1), (M,)),
    ("cummin reverse", lambda lax, x: lax.cummin(x, 0, True), (np.float32([1, 3, 3, 0, 2, 7]),)),
    ("cumlogsumexp", lambda lax, x: lax.cumlogsumexp(x, 0), (M,)),
    ("reduce", lambda lax, x: lax.reduce(x, np.float32(1), lambda a, b: a * b, (0,)), (M,)),
    ("pow integer", lambda lax, x: lax.pow(x, np.int32(3)), (V,)),
    ("pow integer 0", lambda lax, x: lax.pow(x, np.int32(0)), (np.float32([0, 1, -2]),)),
]
EVERY = [*CASES, *VALUES_ONLY]


def pullback(module: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    def of(*args: Any) -> Any:
        out, vjp = module.vjp(lambda *args: run(module.lax, *args), *args)
        return vjp(out)

    return of


def pushforward(module: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: module.jvp(lambda *args: run(module.lax, *args), args, args)


def text(module: Any, function: Callable[..., Any], args: Any) -> str:
    """The program without equations nobody reads; NumPy integers among JAX's parameters are printed as integers."""
    found = module.make_jaxpr(function)(*args).pretty_print(width=10_000)
    return re.sub(r" _:[^;]*?;", "", re.sub(r"np\.int64\((-?\d+)\)", r"\1", found))


def arrays(module: Any, args: Any) -> list[Any]:
    return [module.numpy.asarray(x) for x in args]


@pytest.mark.parametrize("mode", [pushforward, pullback], ids=["jvp", "vjp"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_programs_are_jax_s(case: Case, mode: Any) -> None:
    _, run, args = case
    assert text(weft, mode(weft, run), args) == text(jax, mode(jax, run), args)


@pytest.mark.parametrize("mode", [pushforward, pullback], ids=["jvp", "vjp"])
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case[0])
def test_values_are_jax_s(case: Case, mode: Any) -> None:
    _, run, args = case
    expected = jax.tree.leaves(mode(jax, run)(*arrays(jax, args)))
    eager = weft.tree.leaves(mode(weft, run)(*arrays(weft, args)))
    jitted = weft.tree.leaves(weft.jit(mode(weft, run))(*arrays(weft, args)))
    assert len(eager) == len(jitted) == len(expected)
    for one, two, wanted in zip(eager, jitted, expected, strict=True):
        assert one.shape == two.shape == wanted.shape and one.dtype == two.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(wanted), rtol=3e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(two), np.asarray(wanted), rtol=3e-5, atol=1e-5)


INDEX = np.int32([0, 2, 2, -1])
INDEXING: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("take rows", lambda np, x: x[np.asarray(INDEX)], (M,)),
    ("take pairs", lambda np, x: x[np.asarray(INDEX), np.asarray(INDEX)], (M,)),
    ("add", lambda np, x: x.at[np.asarray(INDEX)].add(2 * x[np.asarray(INDEX)]), (M,)),
    ("set one", lambda np, x: x.at[0].set(2 * x[1]), (M,)),
    ("set repeated", lambda np, x: x.at[np.asarray(INDEX), 1].set(x[:, 0].sum() * np.asarray(INDEX)), (M,)),
    ("multiply", lambda np, x: x.at[1].multiply(x[2]), (M,)),
    ("sort", lambda np, x: np.sort(x, 0) * x, (M,)),
    ("take_along_axis", lambda np, x: np.take_along_axis(x, np.asarray(INDEX)[None] % 3, 0), (M,)),
]


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("case", INDEXING, ids=lambda case: case[0])
def test_derivatives_of_indexing_are_jax_s(case: Any, mode: str) -> None:
    _, run, args = case

    def derivative(module: Any) -> list[Any]:
        given = arrays(module, args)
        if mode == "jvp":
            return module.tree.leaves(module.jvp(lambda *xs: run(module.numpy, *xs), given, given))
        out, pull = module.vjp(lambda *xs: run(module.numpy, *xs), *given)
        return [out, *pull(out)]

    for one, wanted in zip(derivative(weft), derivative(jax), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(wanted), rtol=1e-5, atol=1e-6)

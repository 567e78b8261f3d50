"""Derivatives of every operation of the sample table: differences to second order, jit, vmap of grad, grad of vmap.

Elementwise operations are met at points inside of their domain, in float64 and complex128; programs with the operands
that the table gives them. What has no derivative gives symbolic zeros of type float0, as in JAX.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.lax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.operations import samples
from weft import config, dtypes, lax, test_util, tree_util

# Interiors of domains, where the operations are smooth and second derivatives are not huge.
SMOOTH: dict[str, tuple[float, float]] = {
    "log": (0.5, 3), "log1p": (-0.5, 3), "logistic": (-3, 3), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8),
    "acosh": (1.5, 4), "atanh": (-0.8, 0.8), "sqrt": (0.5, 4), "rsqrt": (0.5, 4), "cbrt": (0.5, 4),
    "erf_inv": (-0.8, 0.8), "lgamma": (0.6, 4), "digamma": (0.6, 4), "pow": (0.5, 2), "tan": (-1, 1), "div": (0.5, 3),
    "rem": (1.2, 1.8),
}  # fmt: skip
# Programs whose operands are no points of differentiability, or whose results differences cannot resolve: ties, bounds,
# cases out of range, roundings, NaN fills, NotImplementedError. Values, or the class of error, are JAX's.
# So are those in 16 bits.
AS_JAX = {
    "sign-complex128", "clamp-complex128", "nextafter-float64", "round-0", "nextafter-0", "igamma_grad_a-0", "zeta-0",
    "polygamma-0", "igamma-0", "igamma-1", "igammac-0", "regularized_incomplete_beta-0",
    "regularized_incomplete_beta-1", "clamp-1", "clamp-2", "bitcast_convert_type-1", "convert_element_type-4",
    "reduce_precision-0", "reduce_precision-1", "reduce_precision-2", "stop_gradient-0", "gather-0", "gather-4",
    "gather-12", "gather-13", "scatter-6", "scatter-7", "scatter-mul-0", "scatter-mul-1", "scatter-mul-3",
    "scatter-mul-4", "reduce_max-7", "reduce_min-7", "select_n-3", "reduce_window_max-2", "select_and_gather_add-1",
}  # fmt: skip
# Left out: promises that the program breaks (unique indices that are clipped together), whose result is anyone's.
UNDEFINED = {"scatter-min-1", "scatter-max-1"}


@dataclass(frozen=True)
class Case:
    """A function of inexact arrays that gives inexact arrays, and where it is differentiated."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def as_jax(self) -> bool:
        return self.name in AS_JAX or any(np.asarray(x).dtype.itemsize < 4 for x in self.args)

    def __repr__(self) -> str:
        return self.name


def is_inexact(value: Any) -> bool:
    return dtypes.issubdtype(np.asarray(value).dtype, np.inexact)


def elementwise_cases() -> list[Case]:
    made = []
    for operation in samples.ELEMENTWISE:
        low, high = SMOOTH.get(operation.name, (max(operation.low, -2.0), min(operation.high, 2.0)))
        for dtype in (samples.F64, samples.C128):
            if dtype not in operation.dtypes:
                continue
            rng = np.random.default_rng([*map(ord, operation.name)])
            args = tuple(samples.random_values(rng, dtype, low, high, 3) for _ in range(operation.operands))
            if operation.name == "clamp":
                args = (args[0].real - 3, args[1], args[2].real + 3)
                args = tuple(x.astype(dtype) for x in args)
            if operation.name == "rem":
                args = (args[0] * 2, args[1])
            run = lambda lax, *xs, name=operation.name: getattr(lax, name)(*xs)
            made.append(Case(f"{operation.name}-{dtype}", run, args))
    return made


def program_cases() -> list[Case]:
    made = []
    for name, listed in samples.PROGRAMS.items():
        for index, (program, args) in enumerate(listed):
            typed = [np.float32(x) if isinstance(x, float) else x for x in args]
            indices = [index for index, x in enumerate(typed) if is_inexact(x)]

            def run(lax: Any, *given: Any, program: Any = program, args: Any = args, indices: Any = indices) -> Any:
                whole = list(args)
                for index, value in zip(indices, given, strict=True):
                    whole[index] = value
                return program(lax, *whole)

            if indices and f"{name}-{index}" not in UNDEFINED:
                made.append(Case(f"{name}-{index}", run, tuple(typed[index] for index in indices)))
    return made


CASES = [*elementwise_cases(), *program_cases()]


def smooth(case: Case) -> Callable[..., Any]:
    """The results that have tangents, as a list."""

    def run(*args: Any) -> list[Any]:
        return [out for out in tree_util.tree_leaves(case.run(lax, *args)) if dtypes.issubdtype(out.dtype, np.inexact)]

    return run


def weighted(f: Callable[..., list[Any]]) -> Callable[..., Any]:
    """A real scalar of the results, different in each."""

    def total(*args: Any) -> Any:
        parts = []
        for out in f(*args):
            out = jnp.asarray(out)
            weights = jnp.linspace(0.5, 1.5, out.size).reshape(out.shape).astype(jnp.real(out).dtype)
            parts.append((weights * jnp.real(out)).sum() + (weights * jnp.imag(out)).sum() * 0.5)
        return sum(parts[1:], parts[0])

    return total


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in tree_util.tree_leaves(tree)]


def assert_near(found: Any, wanted: Any, tolerance: float) -> None:
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


def check(case: Case, tolerance: float) -> None:
    f = smooth(case)
    if not f(*case.args):
        _, tangents = weft.jvp(lambda *xs: case.run(lax, *xs), case.args, case.args)
        assert all(t.dtype == weft.float0 for t in tree_util.tree_leaves(tangents))
        return
    test_util.check_grads(f, case.args, 2, atol=tolerance, rtol=tolerance)
    indices = tuple(range(len(case.args)))
    grad = weft.grad(weighted(f), indices)
    slopes = grad(*case.args)
    for jitted, eager in zip(leaves(weft.jit(grad)(*case.args)), leaves(slopes), strict=True):
        assert jitted.dtype == eager.dtype and np.array_equal(jitted, eager, equal_nan=True)
    rows = [tuple(jnp.asarray(x * np.asarray(scale, x.dtype)) for x in case.args) for scale in (1, 0.96875)]
    looped = [grad(*row) for row in rows]
    batch = [jnp.stack(parts) for parts in zip(*rows, strict=True)]
    wanted = [jnp.stack(parts) for parts in zip(*looped, strict=True)]
    assert_near(weft.vmap(grad)(*batch), wanted, tolerance / 100)
    assert_near(weft.grad(lambda *xs: weft.vmap(weighted(f))(*xs).sum(), indices)(*batch), wanted, tolerance / 100)


@pytest.mark.parametrize("case", [case for case in CASES if not case.as_jax], ids=repr)
def test_derivatives_are_those_of_differences(case: Case) -> None:
    wide = case.args[0].dtype.itemsize > 4 and case.args[0].dtype != np.complex64
    with config.context("enable_x64", wide), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(case, 1e-5 if wide else 1e-2)


def derivatives(module: Any, case: Case) -> list[Any]:
    """Forward, backward, and forward of backward; a class of error where one raises."""
    args = [module.numpy.asarray(x) for x in case.args]
    rng = np.random.default_rng(0)

    def like(tree: Any) -> Any:
        def random(x: Any) -> Any:
            if not module.numpy.issubdtype(x.dtype, np.inexact):
                return np.zeros(x.shape, jax.dtypes.float0)
            part = rng.normal(size=x.shape) + (1j * rng.normal(size=x.shape) if np.dtype(x.dtype).kind == "c" else 0)
            return module.numpy.asarray(part.astype(x.dtype))

        return module.tree.map(random, tree)

    def function(*xs: Any) -> Any:
        return case.run(module.lax, *xs)

    def pulled(*xs: Any) -> Any:
        nonlocal ct
        out, pull = module.vjp(function, *xs)
        ct = like(out) if ct is None else ct
        return pull(ct)

    tangents, ct = like(args), None
    made = []
    for run in (
        lambda: module.jvp(function, args, tangents),
        lambda: pulled(*args),
        lambda: module.jvp(pulled, args, tangents)[1],
    ):
        try:
            made.append(jax.tree.map(np.asarray, run()))
        except (TypeError, ValueError, NotImplementedError) as error:
            made.append(type(error))
    return made


@pytest.mark.oracle
@pytest.mark.parametrize("case", [case for case in CASES if case.as_jax], ids=repr)
def test_derivatives_are_jax_s(case: Case) -> None:
    with warnings.catch_warnings(), config.context("enable_x64", "128" in case.name or "64" in case.name):
        warnings.simplefilter("ignore")
        with jax.enable_x64("128" in case.name or "64" in case.name):
            found, wanted = derivatives(weft, case), derivatives(jax, case)
    narrow = any(x.dtype.itemsize < 4 for x in case.args)
    for ours, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, type):
            # Windows with gaps have a gradient here that JAX has none of; the tests of windows say which.
            assert ours is theirs or (theirs is NotImplementedError and case.name == "reduce_window_max-2")
            continue
        assert not isinstance(ours, type), ours
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if a.dtype != jax.dtypes.float0:
                assert_near(a, b, 3e-2 if narrow else 1e-4)

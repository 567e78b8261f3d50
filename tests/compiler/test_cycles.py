"""What is traced, transformed, compiled and run leaves nothing that only Python's garbage collector would free."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.experimental import checkify

X = np.linspace(0.5, 2.0, 40, dtype=np.float32).reshape(8, 5)


def _custom_jvp(k: int) -> Any:
    f = weft.custom_jvp(lambda x: jnp.sin(x) * k)
    f.defjvp(lambda primals, tangents: (jnp.sin(*primals) * k, tangents[0] * k))
    return weft.jit(weft.grad(lambda x: f(x).sum()))(X)


def _custom_vjp(k: int) -> Any:
    f = weft.custom_vjp(lambda x: jnp.sin(x) * k)
    f.defvjp(lambda x: (jnp.sin(x) * k, x), lambda x, g: (g * jnp.cos(x) * k,))
    return weft.jit(weft.grad(lambda x: f(x).sum()))(X)


def _errors(k: int) -> None:
    with pytest.raises(TypeError):
        weft.jit(lambda x: x.reshape(3, k + 1))(X)
    with pytest.raises(weft.errors.TracerBoolConversionError):
        weft.jit(lambda x: 1 if x.sum() > k else 2)(X)
    with weft.debug_nans(True), pytest.raises(FloatingPointError):
        weft.jit(lambda x: jnp.log(x - k))(X)


def _sharded(k: int) -> Any:
    mesh = weft.make_mesh((1,), ("a",), axis_types=(weft.sharding.AxisType.Auto,))
    f = weft.shard_map(lambda x: lax.psum(x * k, "a"), mesh=mesh, in_specs=weft.P("a"), out_specs=weft.P())
    return weft.jit(f)(X)


def _texts(k: int) -> list[str]:
    lowered = weft.jit(lambda x: weft.nn.softmax(x * k)).lower(X)
    return [lowered.as_text(form) for form in ("jaxpr", "kernel", "loops", "llvm", "asm", "plan", "stablehlo")]


def _profiled(k: int) -> None:
    with weft.profile():
        weft.jit(lambda x: x * k)(X)


def _root(k: int) -> Any:
    return weft.grad(
        lambda a: lax.custom_root(lambda x: x**2 - a, a, lambda f, x: jnp.sqrt(a), lambda g, y: y / g(1.0))
    )(float(k))


PROGRAMS: dict[str, Callable[[int], Any]] = {
    "elements": lambda k: weft.jit(lambda x: jnp.sin(x) * k + x)(X),
    "reductions": lambda k: weft.jit(lambda x: (x * k).sum(1) / (x - k).max())(X),
    "rows": lambda k: weft.jit(lambda x: weft.nn.softmax(x * k, axis=-1))(X),
    "digits": lambda k: weft.jit(lambda x: (x[:, ::2] * k).sum())(X),
    "windows": lambda k: weft.jit(lambda x: lax.reduce_window(x * k, -np.inf, lax.max, (2, 2), (1, 1), "VALID"))(X),
    "gather": lambda k: weft.jit(lambda x: x[jnp.arange(3) + k, 1] * k)(X),
    "scatter": lambda k: weft.jit(lambda x: x.at[jnp.arange(3) + k].add(k))(X),
    "product": lambda k: weft.jit(lambda x: (x @ x.T) * k)(X),
    "sort": lambda k: weft.jit(lambda x: jnp.sort(x * k, axis=0))(X),
    "cumsum": lambda k: weft.jit(lambda x: jnp.cumsum(x * k, axis=0))(X),
    "convolution": lambda k: weft.jit(lambda x: jnp.convolve(x[:, 0] * k, x[0]))(X),
    "library": lambda k: weft.jit(lambda x: jnp.linalg.cholesky(x.T @ x + k * jnp.eye(5)))(X),
    "random": lambda k: weft.random.normal(weft.random.key(k), (3 + k,)),
    "scan": lambda k: weft.jit(lambda x: lax.scan(lambda c, r: (c + r * k, c.sum()), x[0], x))(X),
    "while": lambda k: weft.jit(lambda x: lax.while_loop(lambda c: c.sum() < 9 * k, lambda c: c * 1.5, x))(X),
    "branches": lambda k: weft.jit(lambda x: lax.cond(x.sum() > k, lambda x: x * k, lambda x: x - k, x))(X),
    "gradient": lambda k: weft.jit(weft.grad(lambda x: (jnp.tanh(x @ x.T) * k).sum()))(X),
    "gradient of scan": lambda k: weft.jit(
        weft.grad(lambda x: lax.scan(lambda c, r: (jnp.sin(c + r * k), c.sum()), x[0], x)[0].sum())
    )(X),
    "checkpoint": lambda k: weft.grad(weft.checkpoint(lambda x: weft.jit(lambda x: jnp.sin(x) * k)(x).sum()))(X),
    "hessian": lambda k: weft.hessian(lambda x: (jnp.sin(x) * k).sum())(X[0]),
    "vmap": lambda k: weft.jit(weft.vmap(lambda r: jnp.dot(r, r) * k))(X),
    "vjp": lambda k: weft.vjp(lambda x: jnp.sin(x) * k, X)[1](X),
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
    "custom_root": _root,
    "initializers": lambda k: weft.nn.initializers.he_normal()(weft.random.key(k), (k, 4)),
    "callbacks": lambda k: weft.jit(lambda x: weft.pure_callback(lambda x: np.asarray(x) * k, x, x))(X),
    "checkify": lambda k: weft.jit(checkify.checkify(lambda x: x[k] + jnp.log(x), errors=checkify.all_checks))(X),
    "shard_map": _sharded,
    "errors": _errors,
    "texts": _texts,
    "export": lambda k: weft.export.export(weft.jit(lambda x: x * k))(X).serialize(),
    "eager": lambda k: jnp.ones(3 + k) * k + jnp.sin(jnp.arange(3.0 + k)),
    "sizes": lambda k: [weft.jit(lambda x: jnp.tanh(x) @ x.T)(X[:n]) for n in range(1, 4)],
    "profile": _profiled,
}


def _left() -> list[str]:
    """What the collector finds that is weft's."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        of = [(thing, getattr(thing, "__module__", None)) for thing in gc.garbage]
        return [repr(type(thing)) for thing, module in of if isinstance(module, str) and module.startswith("weft")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.fixture(scope="module")
def left() -> dict[str, list[str]]:
    """For each program what is left of it."""
    with weft.config.context("check", False):
        for program in PROGRAMS.values():
            program(1)  # what is made once for the process
        weft.clear_caches()
        gc.collect()
        gc.freeze()  # only what comes now is looked at; what the tests' collection froze stays so
        gc.disable()
        found = {}
        try:
            for name, program in PROGRAMS.items():
                program(2)
                found[name] = _left()
            weft.clear_caches()
            found["caches"] = _left()
        finally:
            gc.enable()
    return found


@pytest.mark.parametrize("name", [*PROGRAMS, "caches"])
def test_reference_counts_free_what_a_program_leaves(name: str, left: dict[str, list[str]]) -> None:
    assert not left[name], f"{len(left[name])} objects: {sorted(set(left[name]))}"

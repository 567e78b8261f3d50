"""Programs with one thing wrong each, and what weft should call it; the guilty line carries the mark ``# <-``.

Three tables: causes of traces (``weft.inspect.explain``, the history and ``explain_cache_misses``), findings about
programs (``weft.inspect``), and findings about calls (``weft.profile``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.numpy as jnp
from weft import ShapeDtypeStruct as Struct
from weft import lax

CAUSES: dict[str, Callable[[], Any]] = {}
PROGRAMS: dict[str, Callable[[], tuple[Any, ...]]] = {}
CALLS: dict[str, Callable[[], Any]] = {}
ERRORS: dict[str, tuple[str, Callable[[], Any]]] = {}
CODES: dict[str, str] = {}
f32, i32, half = jnp.float32, jnp.int32, jnp.bfloat16
SQUARE, LONG = Struct((512, 512), f32), Struct((100_000,), f32)
SCALE = 3
MODES = ["fast"]


def seed(table: dict[str, Any], code: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a function into a table under its name, with the code that weft should give."""

    def enter(function: Callable[[], Any]) -> Callable[[], Any]:
        table[function.__name__] = function
        CODES[function.__name__] = code
        return function

    return enter


# ---- causes of traces: the last call of the function is traced for the reason named


@seed(CAUSES, "shape")
def a_shape_that_changes() -> None:
    f = weft.jit(lambda x: x * 2.25)
    f(jnp.ones(3))
    f(jnp.ones(4))  # <-


@seed(CAUSES, "rank")
def a_rank_that_changes() -> None:
    f = weft.jit(lambda x: x * 2.5)
    f(jnp.ones(3))
    f(jnp.ones((3, 1)))  # <-


@seed(CAUSES, "dtype")
def a_changed_dtype() -> None:
    f = weft.jit(lambda x: x * 2.75)
    f(jnp.ones(3))
    f(jnp.ones(3, i32))  # <-


@seed(CAUSES, "float64")
def a_float64_that_slipped_in() -> None:
    f = weft.jit(lambda x: x * 3.25)
    with weft.enable_x64(True):
        f(jnp.ones(3, f32))
        f(np.ones(3))  # <-


@seed(CAUSES, "weak type")
def a_weak_type() -> None:
    f = weft.jit(lambda x: x * 3.5)
    f(jnp.float32(1))
    f(jnp.asarray(1.0))  # <-


@seed(CAUSES, "weak type")
def a_python_scalar_beside_an_array() -> None:
    f = weft.jit(lambda x, rate: x * rate + 3.75)
    f(jnp.ones(3), jnp.float32(0.1))
    f(jnp.ones(3), 0.1)  # <-


@seed(CAUSES, "structure")
def a_changed_tree_structure() -> None:
    f = weft.jit(lambda p: sum(p.values()) + 4.25)
    f({"a": 1.0})
    f({"a": 1.0, "b": 2.0})  # <-


@seed(CAUSES, "structure")
def a_none_in_place_of_an_array() -> None:
    f = weft.jit(lambda x, mask: x if mask is None else x * mask + 4.5)
    f(1.0, 1.0)
    f(1.0, None)  # <-


@seed(CAUSES, "static")
def a_static_argument() -> None:
    f = weft.jit(lambda x, n: x * n + 4.75, static_argnums=1)
    f(1.0, 2)
    f(1.0, 3)  # <-


@seed(CAUSES, "static form")
def a_static_argument_given_otherwise() -> None:
    f = weft.jit(lambda x, n=1: x * n + 5.25, static_argnames="n")
    f(1.0, n=2)
    f(1.0, 2)  # <-


@seed(CAUSES, "options")
def new_options() -> None:
    f = weft.jit(lambda x: jnp.sum(x) + 5.5)
    f(jnp.ones(3))
    with weft.numpy_rank_promotion("raise"):
        f(jnp.ones(3))  # <-


@seed(CAUSES, "new function")
def a_changed_closure() -> None:
    def make(rate):
        return weft.jit(lambda x: x * rate + 5.75)

    make(0.1)(1.0)
    make(0.2)(1.0)  # <-


@seed(CAUSES, "new function")
def a_method_of_a_new_object() -> None:
    class Model:
        def apply(self, x):
            return x + 6.75

    weft.jit(Model().apply)(1.0)
    weft.jit(Model().apply)(1.0)  # <-


@seed(CAUSES, "new function")
def a_new_lambda_in_a_loop() -> None:
    for _ in range(2):
        weft.jit(lambda v: v * len(MODES) + 7.25)(1.0)  # <-


@seed(CAUSES, "new function")
def a_new_partial_function() -> None:
    def f(rate, x):
        return x * rate + 7.5

    for rate in (1.0, 2.0):
        weft.jit(functools.partial(f, rate))(1.0)  # <-


# ---- findings about programs: a function and the types of its arguments


@seed(PROGRAMS, "captured constant")
def a_captured_constant() -> tuple[Any, ...]:
    table = np.ones((200, 200), np.float32)
    return lambda x: x + table, Struct((200, 200), f32)  # <-


@seed(PROGRAMS, "captured constant")
def large_constants() -> tuple[Any, ...]:
    weights = jnp.ones((300, 300))
    return weft.jit(lambda x: x @ weights), Struct((8, 300), f32)  # <-


@seed(PROGRAMS, "gather in the way")
def a_gather_in_the_way() -> tuple[Any, ...]:
    def f(x, i):
        sums = jnp.cumsum(x, 0)
        return jnp.sum(sums[i])  # <-

    return f, SQUARE, Struct((1000,), i32)


@seed(PROGRAMS, "layout copy")
def a_transpose_that_copies() -> tuple[Any, ...]:
    return lambda x: x.T, SQUARE  # <-


@seed(PROGRAMS, "reshape of a transposed array")
def a_reshape_of_a_transposed_array() -> tuple[Any, ...]:
    def f(x):
        columns = x.T
        return columns.reshape(-1) * 2  # <-

    return f, SQUARE


@seed(PROGRAMS, "float64")
def a_numpy_array_of_float64() -> tuple[Any, ...]:
    weights = np.linspace(0, 1, 512)
    return lambda x: x * weights, SQUARE  # <-


@seed(PROGRAMS, "widened half")
def bfloat16_made_float32() -> tuple[Any, ...]:
    return lambda x: jnp.sin(x.astype(f32)), Struct((512, 512), half)  # <-


@seed(PROGRAMS, "complex upcast")
def a_complex_upcast() -> tuple[Any, ...]:
    return lambda x: jnp.abs(x * (1 + 2j)), SQUARE  # <-


@seed(PROGRAMS, "integer division")
def an_integer_division() -> tuple[Any, ...]:
    return lambda x, y: x // y, Struct((512, 512), i32), Struct((512, 512), i32)  # <-


@seed(PROGRAMS, "integers made floats")
def integers_divided_to_floats() -> tuple[Any, ...]:
    return lambda x: x / 3, Struct((512, 512), i32)  # <-


@seed(PROGRAMS, "stored concatenation")
def a_concatenation_that_is_stored() -> tuple[Any, ...]:
    def f(x, y):
        both = jnp.concatenate([jnp.sin(x), y])  # <-
        return both @ y

    return f, SQUARE, SQUARE


@seed(PROGRAMS, "several readers")
def two_consumers_that_force_a_store() -> tuple[Any, ...]:
    def f(x):
        h = jnp.tanh(x)  # <-
        return jnp.cumsum(h, 0), jnp.cumsum(h, 1)

    return f, SQUARE


@seed(PROGRAMS, "small products")
def a_batch_of_small_products() -> tuple[Any, ...]:
    return lambda a, b: a @ b, Struct((64, 8, 8), f32), Struct((64, 8, 8), f32)  # <-


@seed(PROGRAMS, "strided reduction")
def a_reduction_along_a_strided_axis() -> tuple[Any, ...]:
    return lambda x: jnp.sum(x, axis=0), Struct((1024, 1024), f32)  # <-


@seed(PROGRAMS, "ordered scatter")
def a_scatter_to_indices_that_may_repeat() -> tuple[Any, ...]:
    return lambda x, i, u: x.at[i].add(u), LONG, Struct((50_000,), i32), Struct((50_000,), f32)  # <-


@seed(PROGRAMS, "missing donation")
def a_missing_donation() -> tuple[Any, ...]:
    return lambda x: x + 1, Struct((1024, 1024), f32)  # <-


@seed(PROGRAMS, "donation unused")
def a_donation_without_use() -> tuple[Any, ...]:
    return weft.jit(lambda x: jnp.sum(x), donate_argnums=0), Struct((1024, 1024), f32)  # <-


@seed(PROGRAMS, "residuals")
def residuals_that_are_kept() -> tuple[Any, ...]:
    def f(w, x):
        for _ in range(3):
            x = jnp.tanh(x @ w)  # <-
        return jnp.sum(x**2)

    return weft.grad(f), SQUARE, Struct((1024, 512), f32)


@seed(PROGRAMS, "unneeded checkpoint")
def an_unneeded_checkpoint() -> tuple[Any, ...]:
    def f(x):
        inner = weft.checkpoint(lambda y: jnp.sin(jnp.cos(y)))  # <-
        return jnp.sum(inner(x))

    return weft.grad(f), Struct((100,), f32)


@seed(PROGRAMS, "loop of kernels")
def a_while_loop_without_fusion() -> tuple[Any, ...]:
    def f(x):
        return lax.while_loop(lambda c: jnp.sum(c) < 1e3, lambda c: jnp.tanh(c @ c) + 1, x)  # <-

    return f, Struct((64, 64), f32)


@seed(PROGRAMS, "loop of kernels")
def a_scan_of_short_steps() -> tuple[Any, ...]:
    def f(w, x):
        return lax.scan(lambda h, v: (jnp.tanh(h @ w + v), h), x[0], x)[0]  # <-

    return f, Struct((128, 128), f32), Struct((100, 8, 128), f32)


@seed(PROGRAMS, "callback in a loop")
def a_host_callback_inside_a_loop() -> tuple[Any, ...]:
    def body(i, c):
        weft.debug.print("{}", c)  # <-
        return c + 1

    return lambda x: lax.fori_loop(0, 10, body, x), Struct((), f32)


@seed(PROGRAMS, "callback")
def a_callback() -> tuple[Any, ...]:
    return lambda x: weft.pure_callback(np.sin, x, x) + 1, LONG  # <-


@seed(PROGRAMS, "copy before update")
def a_dynamic_update_that_copies() -> tuple[Any, ...]:
    return lambda x, i: (x.at[i].set(1.0), x * 2), LONG, Struct((), i32)  # <-


@seed(PROGRAMS, "copy before update")
def a_slice_update_of_an_argument() -> tuple[Any, ...]:
    return lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), LONG, Struct((8,), f32), Struct((), i32)  # <-


@seed(PROGRAMS, "sort")
def a_sort_in_the_middle() -> tuple[Any, ...]:
    return lambda x: jnp.sum(jnp.sort(x * 2)[:10]), LONG  # <-


@seed(PROGRAMS, "large intermediate")
def an_outer_product_that_is_stored() -> tuple[Any, ...]:
    def f(x, y):
        distances = (x[:, None] - y[None, :]) ** 2  # <-
        return jnp.sort(distances, axis=1)[:, 0]

    return f, Struct((1000,), f32), Struct((1000,), f32)


@seed(PROGRAMS, "scan in order")
def a_costly_value_under_a_cumulative_sum() -> tuple[Any, ...]:
    return lambda x: jnp.cumsum(jnp.exp(x), -1), SQUARE  # <-


@seed(PROGRAMS, "linear algebra")
def an_inverse() -> tuple[Any, ...]:
    return lambda x, y: jnp.linalg.inv(x) @ y, SQUARE, Struct((512,), f32)  # <-


@seed(PROGRAMS, "many phases")
def reductions_over_two_axes() -> tuple[Any, ...]:
    def f(x):
        rows = x / jnp.sum(jnp.exp(x), 1, keepdims=True)
        running = jnp.cumsum(rows, 1)  # <-
        return jnp.sum(running, 0)

    return f, SQUARE


# ---- findings about calls


@seed(CALLS, "waits in a loop")
def a_sync_in_a_loop() -> None:
    f, x, total = weft.jit(lambda x: jnp.tanh(x @ x)), jnp.ones((600, 600)), 0.0
    for _ in range(24):
        x = f(x)
        total += float(jnp.sum(x))  # <-


@seed(CALLS, "eager operations")
def eager_operations_between_jitted_ones() -> None:
    f, x = weft.jit(lambda x: jnp.sin(x) * 7.75), jnp.ones((300,))
    for _ in range(12):
        x = f(x)
        x = jnp.arctan2(x, x)  # <-


# ---- errors that name the cause and the cure


def a_donated_buffer_in_use() -> Any:
    x = jnp.ones(1000)
    weft.jit(lambda v: v * 8.25, donate_argnums=0)(x)
    return x + 1  # <-


def an_unhashable_static_argument() -> Any:
    return weft.jit(lambda x, sizes: x, static_argnums=1)(1.0, [1])  # <-


ERRORS["a_donated_buffer_in_use"] = ("donated to a jitted function.*donate a copy", a_donated_buffer_in_use)
ERRORS["an_unhashable_static_argument"] = ("Non-hashable static.*pass a tuple", an_unhashable_static_argument)

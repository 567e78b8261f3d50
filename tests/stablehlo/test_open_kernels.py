"""Kernels over arrays of unknown sizes, exported: called by weft and by JAX at several sizes, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.export
import numpy as np
import pytest

import weft
import weft.experimental.pallas as pl
import weft.lax as lax
import weft.numpy as jnp
from weft import export
from weft.experimental.pallas import tpu

pytestmark = pytest.mark.oracle

Expect = Callable[..., np.ndarray]
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str, Expect]] = {}


def exported(shapes: str, *dtypes: Any, expect: Expect) -> Callable[..., Any]:
    """A decorator that puts a function of a kernel into the table; ``dtypes`` are those of the arguments."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = function, dtypes, shapes, expect
        return function

    return add


def out(shape: Any, dtype: Any = np.float32) -> Any:
    return weft.ShapeDtypeStruct(shape, dtype)


def spec(shape: Any, index_map: Any = None) -> Any:
    return pl.BlockSpec(shape, index_map)


F32, I32 = np.float32, np.int32
WIDE = spec((128,), lambda i: i)


@exported("b", F32, expect=lambda x: 2 * x)
def points(x: Any) -> Any:
    def kernel(x: Any, o: Any) -> None:
        o[...] = 2 * x[...]

    return pl.pallas_call(kernel, out(x.shape), grid=(pl.cdiv(x.shape[0], 128),), in_specs=[WIDE], out_specs=WIDE)(x)


def sums_of_blocks(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.cumsum(x[k : k + 512]) for k in range(0, len(x), 512)])


@exported("b", F32, expect=sums_of_blocks)
def blocks_larger_than_small_sizes(x: Any) -> Any:
    def kernel(x: Any, o: Any) -> None:
        o[...] = jnp.cumsum(x[...])

    block = spec((512,), lambda i: i)
    return pl.pallas_call(kernel, out(x.shape), grid=pl.cdiv(x.shape[0], 512), in_specs=[block], out_specs=block)(x)


@exported("b, 3", F32, expect=lambda x: x.sum(0))
def a_sum_over_the_grid(x: Any) -> Any:
    rows = x.shape[0]

    def kernel(x: Any, o: Any, total: Any) -> None:
        i = pl.program_id(0)

        @pl.when(i == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        inside = (16 * i + lax.broadcasted_iota(jnp.int32, (16, 3), 0)) < rows
        total[...] += jnp.where(inside, x[...], 0).sum(0)
        o[...] = total[...]

    specs = {"in_specs": [spec((16, 3), lambda i: (i, 0))], "out_specs": spec((3,), lambda i: 0)}
    return pl.pallas_call(
        kernel, out((3,)), grid=pl.cdiv(rows, 16), scratch_shapes=[tpu.VMEM((3,), "float32")], **specs
    )(x)


@exported("b, c ; c, 8", F32, F32, expect=lambda x, y: x @ y)
def a_product_in_blocks(x: Any, y: Any) -> Any:
    (m, k), n = x.shape, y.shape[1]

    def kernel(x: Any, y: Any, o: Any) -> None:
        j = pl.program_id(2)

        @pl.when(j == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        left = jnp.where(8 * j + lax.broadcasted_iota(jnp.int32, (16, 8), 1) < k, x[...], 0)
        right = jnp.where(8 * j + lax.broadcasted_iota(jnp.int32, (8, 8), 0) < k, y[...], 0)
        o[...] += left @ right

    specs = [spec((16, 8), lambda i, j, k: (i, k)), spec((8, 8), lambda i, j, k: (k, j))]
    grid = (pl.cdiv(m, 16), 1, pl.cdiv(k, 8))
    return pl.pallas_call(
        kernel, out((m, n)), grid=grid, in_specs=specs, out_specs=spec((16, 8), lambda i, j, k: (i, j))
    )(x, y)


@exported("b ; 40, 4", I32, F32, expect=lambda rows, x: x[rows % 40] + len(rows))
def rows_by_numbers_fetched_before(rows: Any, x: Any) -> Any:
    def kernel(rows: Any, x: Any, o: Any) -> None:
        o[...] = x[...] + pl.num_programs(0)

    n = rows.shape[0]
    grid = tpu.PrefetchScalarGridSpec(
        1, (n,), [spec((None, 4), lambda i, rows: (rows[i], 0))], spec((None, 4), lambda i, rows: (i, 0))
    )
    return pl.pallas_call(kernel, out((n, 4)), grid_spec=grid)(rows % 40, x)


@exported("3, b", F32, expect=lambda x: x[:, ::-1] if x.shape[1] < 8 else np.concatenate([x[:, :-8], x[:, :-9:-1]], 1))
def an_output_that_begins_as_an_input(x: Any) -> Any:
    """Only the last eight elements, which an Element dimension finds, are written; of each row under vmap."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...][::-1]

    n = x.shape[1]
    block = spec((pl.Element(8),), lambda i: n - 8)
    return weft.vmap(
        pl.pallas_call(kernel, out((n,)), grid=1, in_specs=[block], out_specs=block, input_output_aliases={0: 0})
    )(x)


@exported("b, c", F32, expect=lambda x: x / x.max(1, keepdims=True))
def blocks_of_unknown_size(x: Any) -> Any:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...] / x[...].max(1, keepdims=True)

    block = spec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(kernel, out(x.shape), grid=pl.cdiv(x.shape[0], 8), in_specs=[block], out_specs=block)(x)


@exported("b, 8", F32, expect=lambda x: x[::-1].sum(1))
def a_pipeline_over_an_array(x: Any) -> Any:
    n = x.shape[0]

    def kernel(x: Any, o: Any) -> None:
        def body(x: Any, o: Any) -> None:
            o[...] = x[...].sum(1)

        sides = {"in_specs": [spec((1, 8), lambda i: (n - 1 - i, 0))], "out_specs": [spec((1,), lambda i: i)]}
        tpu.emit_pipeline(body, grid=(n,), **sides)(x, o)

    return pl.pallas_call(kernel, out((n,)))(x)


SIZES = ({"b": 700, "c": 11}, {"b": 128, "c": 8}, {"b": 11, "c": 1})


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_unknown_sizes(name: str) -> None:
    function, dtypes, shapes, expect = CASES[name]
    scope, parts = export.SymbolicScope(("b >= 10",) if "begins" in name else ()), shapes.split(" ; ")
    specs = [out(export.symbolic_shape(part, scope=scope), dtype) for part, dtype in zip(parts, dtypes, strict=True)]
    with pl.pallas_export_experimental(dynamic_shapes=True):
        blob = export.export(weft.jit(function))(*specs).serialize()
    calls = (export.deserialize(blob).call, jax.export.deserialize(blob).call)
    for sizes in SIZES:
        extents = [[eval(n, {}, sizes) for n in part.split(",")] for part in parts]
        args = [1 + (np.arange(np.prod(n)).reshape(n) * 7 % 23).astype(d) for n, d in zip(extents, dtypes, strict=True)]
        for call in calls:
            np.testing.assert_allclose(call(*args), expect(*args), rtol=2e-6)


def sines(x: Any) -> Any:
    def kernel(x: Any, o: Any) -> None:
        o[...] = jnp.sin(x[...])

    return pl.pallas_call(kernel, out(x.shape), grid=pl.cdiv(x.shape[0], 128), in_specs=[WIDE], out_specs=WIDE)(x)


def test_derivatives_of_kernels_of_unknown_sizes() -> None:
    (spec_,) = [out(export.symbolic_shape("b"))]
    read = jax.export.deserialize(export.export(weft.jit(sines))(spec_).serialize(vjp_order=1))
    inside = export.export(weft.jit(lambda x: weft.jvp(sines, (x,), (x,))[1]))(spec_)
    for size in (5, 128, 300):
        x = np.linspace(-2, 2, size, dtype=np.float32)
        np.testing.assert_allclose(jax.grad(lambda x: read.call(x).sum())(x), np.cos(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(inside.call(x), x * np.cos(x), rtol=1e-5, atol=1e-6)


def test_an_array_of_unknown_size_under_a_fixed_grid() -> None:
    """Blocks that are not there are the last one, as where the size is known."""
    block = spec((512,), lambda i: i)

    def function(x: Any) -> Any:
        def kernel(x: Any, o: Any) -> None:
            o[...] = x[...] + 1

        return pl.pallas_call(kernel, out((1024,)), grid=2, in_specs=[block], out_specs=block)(x)

    exported = export.export(weft.jit(function))(out(export.symbolic_shape("b")))
    for size in (1, 512, 600, 3000):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(exported.call(x), function(x))


def test_a_kernel_that_the_host_checks_is_not_exported() -> None:
    def function(x: Any) -> Any:
        return pl.pallas_call(lambda x, o: o.set(x[...]), out(x.shape), interpret=tpu.InterpretParams())(x)

    with pytest.raises(NotImplementedError, match=r"pure_callback .* calls Python"):
        export.export(weft.jit(function))(out(export.symbolic_shape("b")))

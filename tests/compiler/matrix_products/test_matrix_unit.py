"""Large products on a processor's matrix unit (AMX): the bits of docs/NUMERICS.md, and what the unit cannot do."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from weft import dtypes, lax, runtime
from weft.compiler.matrix_products import contraction

needs_unit = pytest.mark.skipif(not runtime.matrix_unit, reason="the processor has no matrix unit, or it is off")

PARTS = {"float32": 3, "float16": 2, "bfloat16": 1}
ORDERS = {1: [(0, 0)], 2: [(0, 1), (1, 1), (1, 0), (0, 0)], 3: [(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)]}
STEP = 32


def parts_of(x: np.ndarray, count: int) -> list[np.ndarray]:
    """The nearest bfloat16, halves away from zero, then that of what remains, and so on."""
    parts = []
    for _ in range(count - 1):
        near = ((x.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
        parts.append(near)
        x = x - near
    return [*parts, x]


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) * b + c.astype(np.float64)).astype(np.float32)


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Fused multiply-adds in index order."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        total = fma(a[:, i, None], b[None, i], total)
    return total


def in_tiles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rule of docs/NUMERICS.md, for operands whose terms are all normal."""
    parts = PARTS[a.dtype.name]
    span, total = 2048 >> (parts - 1), None
    a, b = a.astype(np.float32), b.astype(np.float32)
    for start in range(0, a.shape[1], span):
        stop = min(a.shape[1], start + span)
        block = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for step in range(start, stop, STEP):
            terms = slice(step, min(stop, step + STEP))
            left, right = parts_of(a[:, terms], parts), parts_of(b[terms], parts)
            for i, j in ORDERS[parts]:
                block = block + (chain(left[i][:, ::2], right[j][::2]) + chain(left[i][:, 1::2], right[j][1::2]))
        total = block if total is None else total + block
    assert total is not None
    return total


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def multiply(a: Any, b: Any) -> np.ndarray:
    return np.asarray(lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=np.float32))


def how(a: np.ndarray, b: np.ndarray) -> str:
    source, result = contraction.source_and_result(a.dtype, b.dtype, np.dtype(np.float32)) or ("", "")
    return runtime.how_added(source, result, a.shape[0], b.shape[1], a.shape[1])


SHAPES = [
    ("float32", 128, 520, 1030),
    ("float32", 64, 1100, 1000),
    ("float32", 1000, 1040, 65),
    ("float32", 331, 401, 520),
    ("float32", 600, 33, 3400),
    ("float16", 16, 1100, 17),
    ("float16", 70, 64, 65),
    ("float16", 300, 77, 40),
    ("bfloat16", 64, 64, 64),
    ("bfloat16", 33, 2100, 47),
    ("bfloat16", 500, 31, 18),
]


@needs_unit
@pytest.mark.parametrize(("dtype", "m", "k", "n"), SHAPES)
def test_the_bits_are_those_of_the_rule_for_any_layout_and_threads(dtype: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m + n)
    a, b = (values(rng, s, dtypes.canonicalize_dtype(dtype)) for s in ((m, k), (k, n)))
    assert how(a, b) == "tiles"
    expected = in_tiles(a, b)
    for left, right, threads in itertools.product(("rows", "columns"), ("rows", "columns"), (1, 2)):
        x, y = (v if order == "rows" else v.T.copy() for v, order in ((a, left), (b, right)))
        numbers = (((1 if left == "rows" else 0,), (0 if right == "rows" else 1,)), ((), ()))
        with weft.threads(threads):
            out = np.asarray(lax.dot_general(x, y, numbers, preferred_element_type=np.float32))
        np.testing.assert_array_equal(out, expected, err_msg=f"{left} {right} {threads}")


@needs_unit
@pytest.mark.parametrize("dtype", list(PARTS))
def test_views_batches_and_exchanged_operands_have_the_same_bits(dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (jnp.array(values(rng, s, dtypes.canonicalize_dtype(dtype))) for s in ((4, 96, 544), (544, 420)))
    ways: dict[str, Callable[[], Any]] = {
        "whole": lambda: a.reshape(384, 544) @ b,
        "rows that are no one dimension": lambda: jnp.swapaxes(jnp.swapaxes(a, 0, 1) @ b, 0, 1).reshape(384, 420),
        "exchanged by hand": lambda: weft.jit(lambda a, b: (a.reshape(384, 544) @ b).T)(a, b).T,
        "in a transposed order": lambda: (
            weft.jit(lambda a, b: jnp.moveaxis(a @ b, 2, 0))(a, b).transpose(1, 2, 0).reshape(384, 420)
        ),
        "strided": lambda: weft.jit(lambda a, b: a[:, :, ::-1][:, :, ::-1].reshape(384, 544) @ b)(a, b),
    }
    results = {name: np.asarray(way().astype(jnp.float32)) for name, way in ways.items()}
    for name, result in results.items():
        np.testing.assert_array_equal(result, results["whole"], err_msg=name)


@needs_unit
@pytest.mark.parametrize("dtype", list(PARTS))
def test_exchanged_operands_have_the_bits_of_the_rule(dtype: str) -> None:
    """In float32, which shows the last ones of half precisions' sums too."""
    rng = np.random.default_rng(11)
    a, b = (values(rng, s, dtypes.canonicalize_dtype(dtype)) for s in ((384, 544), (544, 420)))
    turned = weft.jit(lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=np.float32).T)
    assert "(420, 384, True)" in turned.lower(a, b).as_text("plan")
    np.testing.assert_array_equal(np.asarray(turned(a, b)).T, in_tiles(a, b))


@needs_unit
def test_a_sum_over_two_dimensions_is_that_over_one() -> None:
    rng = np.random.default_rng(4)
    a, b = (jnp.array(values(rng, s, np.float32)) for s in ((20, 300, 27), (20, 27, 500)))
    one = jnp.transpose(a, (1, 0, 2)).reshape(300, 540) @ b.reshape(540, 500)
    two = weft.jit(lambda a, b: lax.dot_general(a, b, (((0, 2), (0, 1)), ((), ()))))(a, b)
    assert runtime.how_added("f", "f", 300, 500, 540) == "tiles"
    np.testing.assert_array_equal(np.asarray(two), np.asarray(one))


@needs_unit
def test_batches_and_maps_are_products_one_by_one() -> None:
    rng = np.random.default_rng(5)
    a, b = (jnp.array(values(rng, s, np.float32)) for s in ((3, 256, 512), (3, 512, 520)))
    together = np.asarray(weft.vmap(jnp.matmul)(a, b))
    for i in range(3):
        np.testing.assert_array_equal(together[i], np.asarray(a[i] @ b[i]))


@needs_unit
@pytest.mark.parametrize("dtype", list(PARTS))
@pytest.mark.parametrize("kind", ["normal", "uniform", "wide"])
def test_errors_are_not_larger_than_those_of_a_chain(dtype: str, kind: str) -> None:
    """Beside the sum of sizes of the terms, as the bound of a chain is."""
    rng = np.random.default_rng(6)
    made = {
        "normal": lambda s: rng.standard_normal(s),
        "uniform": lambda s: rng.random(s),
        "wide": lambda s: rng.standard_normal(s) * np.exp(2 * rng.standard_normal(s)),
    }[kind]
    for m, k, n in ((128, 1024, 512), (512, 64, 2048)):
        a, b = (made(s).astype(np.float32).astype(dtypes.canonicalize_dtype(dtype)) for s in ((m, k), (k, n)))
        assert how(a, b) == "tiles"
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        sizes, exact = np.abs(wide_a) @ np.abs(wide_b), wide_a @ wide_b
        rows = slice(0, 64)
        plain = np.abs(chain(a[rows].astype(np.float32), b.astype(np.float32)) - exact[rows]) / sizes[rows]
        ours = np.abs(multiply(a, b) - exact) / sizes
        assert ours.mean() <= plain.mean() + 2.0**-27
        assert ours.max() <= max(1.5 * plain.max(), 2.0**-22)


@needs_unit
def test_products_of_integers_are_exact() -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-most, most + 1, s).astype(np.float32) for most, s in ((120, (256, 512)), (200, (512, 530))))
    assert how(a, b) == "tiles"
    np.testing.assert_array_equal(multiply(a, b), a.astype(np.int64) @ b.astype(np.int64))
    wide = rng.integers(-(2**19), 2**19, (256, 512)).astype(np.float32)  # 20 bits: a second part and a third
    unit = np.zeros((512, 530), np.float32)
    unit[np.arange(512), np.arange(512)] = 7
    np.testing.assert_array_equal(multiply(wide, unit)[:, :512], 7 * wide)


EXTREMES = {
    "infinity": np.inf,
    "minus infinity": -np.inf,
    "NaN": np.nan,
    "largest": 3.4028235e38,
    "subnormal": 1e-42,
    "least": 1e-45,
    "smallest normal": 1.1754944e-38,
    "tiny": 3e-31,
    "minus zero": -0.0,
}


@needs_unit
@pytest.mark.parametrize("name", list(EXTREMES))
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_the_unit_has_no_parts_for_is_a_chain(name: str, side: str, dtype: str) -> None:
    rng = np.random.default_rng(8)
    kind = dtypes.canonicalize_dtype(dtype)
    a, b = values(rng, (200, 640), kind), values(rng, (640, 530), kind)
    calm = multiply(a, b)
    with np.errstate(over="ignore"):
        extreme = np.float32(EXTREMES[name]).astype(kind)
    touched = np.zeros((200, 530), bool)
    for k, column in ((100, 70), (100, 199), (600, 150)):  # b's columns are packed in passing, a few terms at a time
        if side == "left":
            a[column, k] = extreme
            touched[column] = True
        else:
            b[k, 2 * column] = extreme
            touched[:, 2 * column] = True
    assert how(a, b) == "tiles"
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = 2.0**-20 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
        exact32 = exact.astype(np.float32)
    for threads in (1, 2):
        with weft.threads(threads):
            out = multiply(a, b)
        np.testing.assert_array_equal(out[~touched], calm[~touched])  # no other row or column
        strange = ~np.isfinite(exact32)
        np.testing.assert_array_equal(out[strange], exact32[strange])
        assert (np.abs(out[~strange] - exact[~strange]) <= bound[~strange]).all()


RANGES = [  # of exponents, of the left operand and of the right one
    ((-149, -127), (0, 20)),
    ((-126, -100), (-20, 0)),
    ((-70, -50), (-70, -50)),
    ((-60, -40), (-60, -40)),
    ((-66, -60), (-66, -60)),
    ((-50, -45), (-70, -66)),
    ((-149, 60), (-149, 60)),
    ((100, 127), (-127, 0)),
    ((-20, 20), (-20, 20)),
]


@needs_unit
@pytest.mark.parametrize(("left", "right"), RANGES)
def test_small_and_large_numbers_are_multiplied_to_the_last_bits(left: tuple[int, int], right: tuple[int, int]) -> None:
    """Relative to the terms' sizes, down to where float32 itself ends."""
    rng = np.random.default_rng(9)

    def of(shape: tuple[int, int], exponents: tuple[int, int]) -> np.ndarray:
        sizes = rng.uniform(1, 2, shape) * 2.0 ** rng.integers(*exponents, shape)
        return (sizes * rng.choice([-1, 1], shape)).astype(np.float32)

    a, b = of((96, 600), left), of((600, 1200), right)
    assert how(a, b) == "tiles"
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact, sizes = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    inside = sizes < 1e38
    out = multiply(a, b)
    error = np.abs(out.astype(np.float64)[inside] - exact[inside])
    assert (error <= 2.0**-20 * sizes[inside] + 600 * 2.0**-149).all()


@needs_unit
def test_products_near_the_largest_number_are_not_infinite() -> None:
    """Their first parts are rounded up, to what has an infinite product."""
    a, b = np.zeros((128, 1024), np.float32), np.zeros((1024, 640), np.float32)
    a[:, 5], b[5] = 1.999 * 2.0**63, 1.999 * 2.0**63
    assert how(a, b) == "tiles"
    np.testing.assert_array_equal(multiply(a, b), np.full((128, 640), a[0, 5] * b[5, 0]))


@needs_unit
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["float32", "float16", "bfloat16"]),
    st.integers(16, 260), st.integers(16, 260), st.integers(1, 1200), st.integers(1, 3), st.integers(0, 2**31),
)  # fmt: skip
def test_any_sizes(dtype: str, m: int, n: int, k: int, threads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (values(rng, s, dtypes.canonicalize_dtype(dtype)) for s in ((m, k), (k, n)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with weft.threads(threads):
        out = multiply(a, b)
    sizes = np.abs(wide_a) @ np.abs(wide_b)
    assert (np.abs(out - wide_a @ wide_b) <= 2.0**-24 * np.sqrt(k + 16) * 2 * sizes + 1e-30).all()
    if how(a, b) == "tiles":
        np.testing.assert_array_equal(out, in_tiles(a, b))


@needs_unit
def test_epilogues_and_gradients_ride_on_tiles() -> None:
    rng = np.random.default_rng(10)
    x, w, bias = (jnp.array(values(rng, s, np.float32)) for s in ((192, 640), (640, 600), (600,)))

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return jnp.maximum(x @ w + bias, 0)

    eager = np.maximum(np.asarray(x @ w) + np.asarray(bias), 0)
    for threads in (1, 2):
        with weft.threads(threads):
            np.testing.assert_array_equal(np.asarray(weft.jit(layer)(x, w, bias)), eager)
    left, right = weft.jit(weft.grad(lambda x, w: layer(x, w, bias).sum(), (0, 1)))(x, w)
    mask = (eager > 0).astype(np.float64)
    np.testing.assert_allclose(left, mask @ np.asarray(w).T.astype(np.float64), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(right, np.asarray(x).T.astype(np.float64) @ mask, rtol=1e-4, atol=1e-3)


OFF = """
import numpy as np, weft, weft.numpy as jnp
from weft import runtime
from tests.compiler.matrix_products.test_matrix_products import product
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(s).astype(np.float32) for s in ((300, 540), (540, 500)))
plan = weft.jit(lambda a, b: a @ b).lower(a, b).as_text("plan")
same = np.array_equal(np.asarray(jnp.array(a) @ jnp.array(b)), product(a, b, np.float32))
half = [x.astype(np.float16) for x in (a, b)]
half_same = np.array_equal(np.asarray(jnp.matmul(*half)), product(*half, np.float32).astype(np.float16))
print(runtime.matrix_unit, "added in" in plan, same, half_same)
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


LEAST = {"f": (64, 1 << 26), "e": (16, 1 << 18), "E": (16, 1 << 18)}  # rows and columns, products; docs/NUMERICS.md


@pytest.mark.parametrize("processor", ["tiles", "pairs", "float32"])
@pytest.mark.parametrize("source", list(LEAST))
def test_which_products_have_which_bits_on_which_processor(source: str, processor: str) -> None:
    """Asked of the choice itself, so that any processor shows those of the others."""
    side, products = LEAST[source]

    def asked(rows: int, columns: int, terms: int) -> str:
        return runtime.how_added(source, "f", rows, columns, terms, processor)

    terms = products // side**2
    small = "pairs" if source == "E" and processor == "pairs" else "chains"
    large = "tiles" if processor == "tiles" else small
    assert asked(side, side, terms) == large
    assert asked(products, side, 1) == asked(side, products, 1) == large
    assert asked(side, side, terms - 1) == asked(side - 1, side, 2 * terms) == asked(side, side - 1, 2 * terms) == small
    assert asked(1, side, products) == asked(side, 1, products) == "chains"  # vectors
    assert runtime.how_added("d", "d", 1000, 1000, 1000, processor) == "chains"
    assert runtime.how_added("e", "e", 1000, 1000, 1000, processor) == "chains"


def test_the_choice_for_this_processor() -> None:
    shapes = [(16, 16, 1024), (16, 16, 1023), (64, 64, 1 << 14), (1, 64, 1 << 20)]
    own = "tiles" if runtime.matrix_unit else runtime.bfloat16_products()
    for m, n, k in shapes:
        assert runtime.how_added("E", "f", m, n, k) == runtime.how_added("E", "f", m, n, k, runtime.bfloat16_products())
        assert runtime.how_added("e", "f", m, n, k) == runtime.how_added("e", "f", m, n, k, own)
        assert runtime.how_added("f", "f", m, n, k) == runtime.how_added("f", "f", m, n, k, own)
    with pytest.raises(ValueError, match="tiles, pairs or float32, got 'fast'"):
        runtime.how_added("e", "f", 2, 2, 2, "fast")


def test_the_unit_can_be_turned_off() -> None:
    done = run(OFF, WEFT_MATRIX_UNIT="0")
    assert done.stdout.split() == ["False", "False", "True", "True"], done.stderr
    wrong = run("import weft", WEFT_MATRIX_UNIT="yes")
    assert "ValueError: WEFT_MATRIX_UNIT is 0 or 1, got 'yes'" in wrong.stderr


@needs_unit
def test_the_plan_says_it() -> None:
    a, b = np.ones((300, 540), np.float32), np.ones((540, 500), np.float32)
    assert "added in tiles" in weft.jit(lambda a, b: a @ b).lower(a, b).as_text("plan")
    assert "added in" not in weft.jit(lambda a, b: a @ b).lower(a[:20], b).as_text("plan")

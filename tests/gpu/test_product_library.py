"""Matrix products by the library of a GPU's maker, on a library for tests: what it is asked, and what is our own."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import driver, native_build, product_library
from weft import config, lax
from weft.compiler import pipeline
from weft.compiler.gpu import library_products
from weft.dispatch.devices import product_library as finder

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
RANDOM = np.random.default_rng(4)


@pytest.fixture
def used(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The GPU, whose products are the library's, small ones too."""
    monkeypatch.setenv(finder.VARIABLE, str(product_library.path()))
    product_library.calls()
    with config.context("product_library", "on"), weft.default_device(device):
        yield device


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def multiplied() -> list[dict[str, list[int]]]:
    """What the library has multiplied: numbers by their names."""
    found = []
    for line in product_library.calls():
        words = line.split()
        if words[0] == "multiply":
            numbers: dict[str, list[int]] = {}
            for word in words[1:]:
                if word.isalpha():
                    numbers[word] = []
                else:
                    list(numbers.values())[-1].append(int(word))
            found.append(numbers)
    return found


def tf32(x: np.ndarray) -> np.ndarray:
    """Rounded to 11 bits of significand, halves away from zero."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2**11 + np.copysign(0.5, mantissa)) / 2**11, exponent)


# what is multiplied -> whether the library's operands (the right one first) are turned
LAYOUTS: dict[str, tuple[Callable[[Any, Any], Any], Any, Any, list[int]]] = {
    "as they lie": (lambda a, b: a @ b, (5, 7), (7, 3), [0]),
    "left turned": (lambda a, b: a.T @ b, (7, 5), (7, 3), [1]),
    "right turned": (lambda a, b: a @ b.T, (5, 7), (3, 7), [10]),
    "both turned": (lambda a, b: a.T @ b.T, (7, 5), (3, 7), [11]),
    "a batch": (lambda a, b: a @ b, (4, 5, 7), (4, 7, 3), [0]),
    "two dimensions of a batch": (lambda a, b: a @ b, (2, 3, 5, 7), (2, 3, 7, 3), [0]),
    "a batch with one matrix": (lambda a, b: jnp.einsum("bij,jk->bik", a, b), (4, 5, 7), (7, 3), [0]),
    "one term": (lambda a, b: a @ b, (5, 1), (1, 3), [0]),
    "a batch in the middle": (lambda a, b: jnp.einsum("ibj,jbk->bik", a, b), (5, 4, 7), (7, 4, 3), [0]),
    "two dimensions of rows and terms": (lambda a, b: jnp.einsum("ijkl,klm->ijm", a, b), (2, 3, 4, 5), (4, 5, 6), [0]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(used: Any, name: str) -> None:
    function, left, right, turned = LAYOUTS[name]
    a, b = values(*left), values(*right)
    compiled = weft.jit(function).lower(a, b).compile()
    got = np.asarray(compiled(weft.device_put(a), weft.device_put(b)))
    (call,) = multiplied()
    with weft.default_device(weft.devices("cpu")[0]), config.context("product_library", "off"):
        wanted = np.asarray(function(jnp.asarray(tf32(a), np.float32), jnp.asarray(tf32(b), np.float32)))
    assert np.allclose(got, wanted, rtol=1e-5, atol=1e-5) and call["turned"] == turned
    assert "product by the maker's library in TF32" in compiled.as_text("plan")


@pytest.mark.parametrize(
    ("dtype", "result", "precision", "compute"),
    [
        ("float32", None, None, 77), ("float32", None, "high", 77), ("float32", None, "highest", 68),
        ("bfloat16", None, None, 68), ("bfloat16", "float32", None, 68), ("float16", None, None, 68),
        ("float16", "float32", None, 68), ("float64", None, None, 70),
        *[("float32", None, precision, 68) for precision in (
            "F32_F32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X9",
            lax.DotAlgorithm(np.float32, np.float32, np.float32),
            lax.DotAlgorithm(ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, 3, 3, 6),
        )],
        *[("float32", None, precision, 77) for precision in (
            "TF32_TF32_F32", "BF16_BF16_F32", lax.DotAlgorithm(ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
        )],
    ],
)  # fmt: skip
def test_types_and_precisions(used: Any, dtype: str, result: str | None, precision: Any, compute: int) -> None:
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = values(9, 20, dtype=own), values(20, 6, dtype=own)
    with weft.enable_x64(True):
        got = lax.dot(a, b, precision=precision, preferred_element_type=result)
    (call,) = multiplied()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    if compute == 77:
        exact, plain = tf32(a) @ tf32(b), exact
        assert abs(np.asarray(got) - plain).max() > 1e-5  # it is not the product of all bits
    eps = 2**-24 if got.dtype == np.float32 else {"bfloat16": 2**-8, "float16": 2**-11, "float64": 2**-50}[dtype]
    assert got.dtype == np.dtype(result or own) and call["compute"] == [compute]
    assert abs(np.asarray(got).astype(np.float64) - exact).max() <= 2 * eps * abs(exact).max()


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a @ b[0], lambda a, b: lax.dot(a.astype(jnp.int32), b.astype(jnp.int32)),
     lambda a, b: (a + 1j) @ b,
     lambda a, b: lax.dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), precision="highest"),
     lambda a, b: lax.conv(a[None, None], b[None, None, :3, :3], (1, 1), "VALID")],
)  # fmt: skip
def test_what_stays_our_own(used: Any, function: Callable[..., Any]) -> None:
    a, b = values(6, 6), values(6, 6)
    got = weft.jit(function)(a, b)
    assert multiplied() == []
    with weft.default_device(weft.devices("cpu")[0]):
        wanted = np.asarray(weft.jit(function)(a, b))
    assert np.allclose(np.asarray(got).astype(wanted.dtype), wanted, rtol=1e-2)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


BIAS, GELU = 4, 32
EPILOGUES: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, int]] = {
    "a bias": (lambda a, b, c: a @ b + c, lambda p, c: p + c, BIAS),
    "gelu": (lambda a, b, c: weft.nn.gelu(a @ b), lambda p, c: gelu(p), GELU),
    "gelu of a bias": (lambda a, b, c: weft.nn.gelu(a @ b + c), lambda p, c: gelu(p + c), BIAS | GELU),
    "written out": (
        lambda a, b, c: 0.5 * (a @ b) * (1 + jnp.tanh(0.7978846 * ((a @ b) + 0.044715 * (a @ b) ** 3))),
        lambda p, c: gelu(p), GELU,
    ),
    "of a batch": (lambda a, b, c: jnp.stack([a, 2 * a]) @ b + c, lambda p, c: np.stack([p, 2 * p]) + c, BIAS),
    "a bias by rows": (lambda a, b, c: a @ b + c[: a.shape[0], None], lambda p, c: p + c[: len(p), None], 1),
    "another factor": (lambda a, b, c: weft.nn.gelu(a @ b, approximate=False), None, 1),
    "relu": (lambda a, b, c: weft.nn.relu(a @ b + c), lambda p, c: np.maximum(p + c, 0), 1),
    "another number": (
        lambda a, b, c: 0.5 * (a @ b) * (1 + jnp.tanh(0.7 * ((a @ b) + 0.044715 * (a @ b) ** 3))),
        lambda p, c: 0.5 * p * (1 + np.tanh(0.7 * (p + 0.044715 * p**3))), 1,
    ),
    "a number close by": (
        lambda a, b, c: 0.5 * (a @ b) * (1 + jnp.tanh(0.801 * ((a @ b) + 0.044715 * (a @ b) ** 3))),
        lambda p, c: 0.5 * p * (1 + np.tanh(0.801 * (p + 0.044715 * p**3))),
        1,
    ),
    "also without it": (lambda a, b, c: (a @ b + c, a @ b), lambda p, c: p + c, 1),
    "less a bias": (lambda a, b, c: c - a @ b, lambda p, c: c - p, 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(used: Any, name: str, dtype: str) -> None:
    function, reference, epilogue = EPILOGUES[name]
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b, c = values(6, 16, dtype=own), values(16, 8, dtype=own), values(8, dtype=own)
    with config.context("default_matmul_precision", "highest" if dtype == "float32" else None):
        got = weft.jit(function)(a, b, c)
    calls = multiplied()
    assert [call["epilogue"] for call in calls] == [[epilogue]] and calls[0]["compute"] == [68]
    if reference is not None:
        got = got[0] if isinstance(got, tuple) else got
        wanted = reference(a.astype(np.float64) @ b.astype(np.float64), c.astype(np.float64))
        assert np.allclose(
            np.asarray(got).astype(np.float64),
            wanted,
            rtol=2e-6 if dtype == "float32" else 3e-2,
            atol=1e-5 if dtype == "float32" else 0.05,
        )


def test_addresses_decide_what_is_asked(used: Any) -> None:
    """An algorithm is for operands that are aligned as it was told; the library for tests refuses others."""
    a, b = values(8, 8), values(8, 8)
    f = weft.jit(lambda a, b, i: lax.dynamic_slice(a.reshape(-1), (i,), (36,)).reshape(6, 6) @ b[:6, :6])
    for start in (0, 1, 2, 7):
        got = np.asarray(f(a, b, start))
        assert np.allclose(got, tf32(a.reshape(-1)[start : start + 36].reshape(6, 6)) @ tf32(b[:6, :6]), atol=1e-5)
    asked = {line for line in product_library.calls() if line.startswith("ask")}
    assert "ask 4 4 4" in asked and len(asked) > 1


def layers(p: Any, x: Any) -> Any:
    for k in range(3):
        x = jnp.tanh(jnp.cumsum(x @ p[0] + p[1], 1)) * k
    return [p[0] + 0.1 * x.T @ x, p[1] - x.sum(0)]


def test_products_are_nodes_of_graphs(used: Any) -> None:
    f, alone = weft.jit(layers), weft.jit(lambda p, x: (layers(p, x), x + 1))
    start, x = weft.device_put([values(8, 8), values(8)]), weft.device_put(values(8, 8))
    found, expected = start, start
    for number in range(24):
        product_library.calls()
        driver.calls()
        found = f(found, x)
        asked, products = driver.calls(), multiplied()
        if number > 20:  # for both sets of addresses there is a graph, with what was captured in it
            assert asked["cuGraphLaunch"] == 1 and "cuLaunchKernel" not in asked
            assert products == [] and "cuStreamBeginCapture_v2" not in asked
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_LAUNCH_BLOCKING", "1")  # then there are no graphs
        for _ in range(24):
            expected, _ = alone(expected, x)
    assert "cuGraphLaunch" not in driver.calls()
    for mine, other in zip(found, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_graphs_with_products_serve_the_addresses_that_they_have(used: Any) -> None:
    f = weft.jit(lambda p, x: [*layers(p, x), 2 * x])  # a program of its own, whose graphs no other test has made
    kept = []
    driver.calls()
    for _ in range(24):  # memory is not used again
        given = weft.device_put([values(8, 8), values(8)]), weft.device_put(values(8, 8))
        kept.append((given, f(*given)))
    graphs = driver.calls()
    assert 1 < graphs["cuGraphInstantiateWithFlags"] == graphs["cuGraphLaunch"] < 4 and graphs["cuLaunchKernel"] > 100
    with config.context("product_library", "off"), config.context("default_matmul_precision", "highest"):
        for given, found in kept:
            for mine, other in zip(found[:2], layers(*given), strict=True):
                assert np.allclose(np.asarray(mine), np.asarray(other), rtol=0.02, atol=0.02)


def test_what_cannot_be_captured_is_launched(used: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.jit(lambda p, x: [*layers(p, x), 3 * x])
    p, x = weft.device_put([values(8, 8), values(8)]), weft.device_put(values(8, 8))
    found = expected = f(p, x)
    monkeypatch.setenv("WEFT_TEST_PRODUCTS_CAPTURE", "0")
    driver.calls()
    for _ in range(8):
        found = f(p, x)
    asked = driver.calls()
    assert asked["cuStreamEndCapture"] == 1 and "cuGraphLaunch" not in asked and asked["cuLaunchKernel"] > 8
    for mine, other in zip(found, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_answers_are_kept(used: Any) -> None:
    f = weft.jit(lambda a, b: jnp.tanh(a @ b) @ b)
    a, b = weft.device_put(values(8, 8)), weft.device_put(values(8, 8))
    for _ in range(4):
        a = f(a, b)
    a.block_until_ready()
    lines = product_library.calls()
    assert len([line for line in lines if line.startswith("multiply")]) == 8
    assert len([line for line in lines if line.startswith("ask")]) <= 2  # at any addresses, and at aligned ones


def test_other_sizes_are_not_compiled(used: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names, own = list[str](), pipeline.compile_new
    monkeypatch.setattr(pipeline, "compile_new", lambda *given: (names.append(given[1]), own(*given))[1])
    f = weft.jit(lambda a, b: a @ b)
    with config.context("check", False):
        for rows, terms in ((5, 7), (11, 13), (6, 9), (40, 23), (33, 21)):
            a, b = values(rows, terms), values(terms, 4)
            assert np.allclose(np.asarray(f(a, b)), tf32(a) @ tf32(b), atol=1e-5)
    assert len(names) <= 1 and len(multiplied()) == 5


def test_loops_and_derivatives(used: Any) -> None:
    a = values(70, 70) / 16  # larger than what one block multiplies in a loop that is its own
    with config.context("default_matmul_precision", "highest"):
        got = lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ a), jnp.asarray(a))
        turned = weft.grad(lambda a: (jnp.tanh(a @ a) ** 2).sum())(jnp.asarray(a))
        until = lax.while_loop(lambda x: x.sum() < 1e7, lambda x: x @ jnp.abs(a) + 1, jnp.ones((70, 70)))
    x, until_, times = a.astype(np.float64), np.ones((70, 70)), 0
    for _ in range(5):
        x = np.tanh(x @ a)
    while until_.sum() < 1e7:
        until_, times = until_ @ np.abs(a) + 1, times + 1
    assert times > 2 and len(multiplied()) == 5 + 3 + times
    t = np.tanh(a.astype(np.float64) @ a)
    ct = 2 * t * (1 - t * t)
    assert np.allclose(np.asarray(got), x, atol=1e-5) and np.allclose(
        np.asarray(turned), ct @ a.T + a.T @ ct, atol=1e-4
    )
    assert np.allclose(np.asarray(until), until_, rtol=1e-5)


def test_donated_operands(used: Any) -> None:
    a, w = values(8, 8), values(8, 8)
    f = weft.jit(lambda a, w: weft.nn.gelu(a @ w), donate_argnums=0)
    for _ in range(3):
        given = weft.device_put(a)
        assert np.allclose(np.asarray(f(given, w)), gelu(tf32(a) @ tf32(w)), atol=1e-4)


def test_large_products_only(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of the target model, with a smaller number."""
    monkeypatch.setenv(finder.VARIABLE, str(product_library.path()))
    monkeypatch.setattr(library_products, "GPU_LIBRARY_OPERATIONS", 2 * 16 * 16 * 16)
    product_library.calls()
    with weft.default_device(device):
        for terms, count in ((15, 0), (16, 1)):
            weft.jit(lambda a, b: a @ b)(values(16, terms), values(terms, 16)).block_until_ready()
            assert len(multiplied()) == count
        with config.context("product_library", "off"):
            weft.jit(lambda a, b: a @ b)(values(16, 16), values(16, 16)).block_until_ready()
            assert multiplied() == []


def plan_of(function: Callable[..., Any], *args: Any) -> str:
    return weft.jit(function).lower(*args).compile().as_text("plan")


@pytest.mark.parametrize(
    ("number", "name", "value", "words"),
    [(0, "REFUSE", "15", ""), (1, "REFUSE", "14", "a question by the library of products: a status (14)"),
     (2, "ALIGNED", "16", ""), (3, "VERSION", "110401", "is of version 110401, and 120000 or later is needed"),
     (4, "", "/nowhere/libcublasLt.so.12", "/nowhere/libcublasLt.so.12")],
)  # fmt: skip
def test_without_an_algorithm_the_tiles_are_ours(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: Any, number: int, name: str, value: str,
    words: str,
) -> None:  # fmt: skip
    path = value
    if name:
        monkeypatch.setenv(f"WEFT_TEST_PRODUCTS_{name}", value)
        path = str(
            product_library.path() if name != "VERSION" else shutil.copy(product_library.path(), tmp_path / "other.so")
        )
    monkeypatch.setenv(finder.VARIABLE, path)
    monkeypatch.setattr(library_products, "GPU_LIBRARY_OPERATIONS", 1)
    monkeypatch.setattr(finder, "_refused", set[str]())
    weft.clear_caches()  # a process has one library, and what was made with it is used again
    a = values(5, 100 + number)  # what nobody has asked for so far
    with weft.default_device(device):
        for _ in range(2):
            text = plan_of(lambda a: a @ a.T + 1, a)
            assert "launch" in text and "library" not in text
        got = np.asarray(weft.jit(lambda a: a @ a.T + 1)(a))
    assert np.allclose(got, a.astype(np.float64) @ a.T + 1, rtol=1e-5, atol=1e-4)
    assert len(caplog.records) == bool(words) and words in caplog.text
    with config.context("product_library", "on"), weft.default_device(device):
        if words:
            with pytest.raises(RuntimeError) as raised:  # though it was refused before
                plan_of(lambda a: a @ a.T, a)
            assert words in str(raised.value)
        else:
            assert "library" not in plan_of(lambda a: a @ a.T, a)


def test_a_product_that_fails_names_its_library(used: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_PRODUCTS_FAIL", "13")
    with pytest.raises(
        weft.errors.JaxRuntimeError, match=r"GPU 0 .*CUBLAS_STATUS_EXECUTION_FAILED \(13\), at .*test_product"
    ):
        weft.jit(lambda a, b: weft.nn.gelu(a @ b))(values(5, 6), values(6, 5)).block_until_ready()
    assert (jnp.ones(3) + 1).sum() == 6  # the GPU still works


def test_the_command_line_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finder.VARIABLE, str(product_library.path()))
    assert "large matrix products by cuBLASLt 12.9.1" in finder.report(12080)
    monkeypatch.setenv(finder.VARIABLE, "/nowhere/libcublasLt.so.12")
    assert "weft's own: /nowhere" in finder.report(12080)
    with config.context("product_library", "off"):
        assert "weft's own: the option product_library" in finder.report(12080)


def test_where_it_is_looked_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(finder.VARIABLE, raising=False)
    monkeypatch.setattr(finder, "_paths", {})
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert finder.find(13000) == "" and finder.of_device(1, 12080, "auto") is None
    with pytest.raises(RuntimeError, match=r"pip install weft\[cuda13\]"):
        library = finder.of_device(1, 12080, "on")
        assert library is not None
        library.has(None)
    monkeypatch.setattr(finder, "_paths", {})
    for folder, major in (("cublas", 12), ("cu13", 13)):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True)
        (tmp_path / "nvidia" / folder / "lib" / f"libcublasLt.so.{major}").touch()
    assert finder.find(12080).endswith("so.12") and finder.find(13000).endswith("so.13")
    assert finder.find(11080) == ""  # which can run neither

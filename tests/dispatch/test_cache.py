"""The caches, as counts: what is traced, what is compiled, and what every miss says of itself."""

from __future__ import annotations

import gc
import logging
import weakref

import numpy as np
import pytest

import weft
import weft.numpy as wnp


def test_cache_info_counts() -> None:
    @weft.jit
    def f(x):
        return wnp.sum(x**2 + wnp.sin(x))

    for size in (10, 10, 20, 10):
        f(wnp.arange(float(size)))
    info = f.cache_info()
    assert (info.hits, info.traces, info.executables) == (2, 2, 2)
    assert info.kernels_built + info.kernels_reused >= 2
    assert {"trace", "fuse", "codegen"} <= set(info.milliseconds)
    assert f._cache_size() == 2


def test_a_new_shape_compiles_no_machine_code() -> None:
    f = weft.jit(lambda x: wnp.mean(x * 3.0 + 1.0, axis=-1))
    f(wnp.ones((5, 37)))
    built = f.cache_info().kernels_built
    for shape in ((6, 41), (1, 1000), (31, 129)):
        f(wnp.ones(shape))
    assert f.cache_info().traces == 4
    assert f.cache_info().kernels_built == built


def test_weak_types_alone_compile_no_machine_code() -> None:
    f = weft.jit(lambda x: x * 2.0 + 1.0)
    f(wnp.float32(3.0))
    built = f.cache_info().kernels_built
    assert f(3.0).weak_type
    assert f.cache_info().traces == 2
    assert f.cache_info().kernels_built == built


def test_equal_programs_of_different_functions_share_machine_code() -> None:
    f, g = weft.jit(lambda x: wnp.exp(x) - 3.25), weft.jit(lambda y: wnp.exp(y) - 3.25)
    f(wnp.ones(5))
    g(wnp.ones(5))
    assert g.cache_info().traces == 1
    assert g.cache_info().kernels_built == 0


def test_one_function_one_trace_whatever_jit_is_called_with() -> None:
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + 1

    weft.jit(f)(1.0)
    weft.jit(f)(1.0)
    weft.jit(f, donate_argnums=0)(1.0)
    weft.jit(f, keep_unused=True)(1.0)
    weft.jit(f).lower(1.0)
    weft.make_jaxpr(f)(1.0)
    weft.eval_shape(f, 1.0)
    weft.make_jaxpr(lambda x: weft.jit(f)(x))(1.0)
    assert count == 1


def test_call_forms_are_keys_of_their_own() -> None:
    f = weft.jit(lambda x, y=2: x + y)
    f(1.0)
    f(1.0, 2)
    f(1.0, y=2)
    f(x=1.0)
    assert f.cache_info().traces == 4
    g = weft.jit(lambda d: d)
    g({"a": 1.0, "b": 2.0})
    assert g({"b": 1.0, "a": 2.0}) == {"a": 2.0, "b": 1.0}
    assert g.cache_info().traces == 1


def test_configuration_is_part_of_the_key() -> None:
    f = weft.jit(lambda x: x * 2)
    f(1.0)
    with weft.enable_x64(True):
        assert f(1.0).dtype == np.float64
    assert f(1.0).dtype == np.float32
    assert f.cache_info().traces == 2
    with weft.default_matmul_precision("float32"):
        f(1.0)
    assert f.cache_info().traces == 3


def test_clearing() -> None:
    f = weft.jit(lambda x: x + 0.5)
    f(1.0)
    f(1.0)
    for clear in (f.clear_cache, weft.clear_caches):
        assert f.cache_info()[:2] == (1, 1)
        clear()
        assert f._cache_size() == 0
        assert f.cache_info() == (0, 0, 0, 0, 0, 0, {})
        assert f(1.0) == 1.5
        assert f(1.0) == 1.5
    assert f.cache_info()[:2] == (1, 1)


def test_nothing_outlives_its_function() -> None:
    w = wnp.ones(1000)
    f = weft.jit(lambda x, table=w: x + table.sum())
    function = weakref.ref(f.__wrapped__)
    array = weakref.ref(w)
    f(1.0)
    weft.make_jaxpr(f)(1.0)
    del f, w
    gc.collect()
    assert function() is None
    assert array() is None


def test_functions_that_may_not_share_are_not_kept() -> None:
    def f(x, table=[1.0]):  # noqa: B006 - a mutable default, which forbids sharing, is what is tested
        return x + table[0]

    weft.jit(f)(1.0)
    function = weakref.ref(f)
    del f
    gc.collect()
    assert function() is None


def test_arguments_are_not_kept() -> None:
    weft.jit(lambda x, t=[1]: wnp.sum(x) + t[0])(wnp.ones(7))
    gc.collect()
    before = weft.runtime.memory_stats()["live_bytes"]
    x = wnp.ones(1 << 16)
    weft.jit(lambda x, t=[1]: wnp.sum(x) + t[0])(x)
    wnp.sum(x)
    assert weft.runtime.memory_stats()["live_bytes"] > before
    del x
    gc.collect()
    assert weft.runtime.memory_stats()["live_bytes"] <= before + 4096


def test_many_constants_are_not_kept() -> None:
    references = []
    for _ in range(10):
        w = wnp.ones(100)
        references.append(weakref.ref(w))
        weft.jit(lambda x, w=w: x + w)(1.0)
    del w
    gc.collect()
    assert sum(reference() is not None for reference in references) == 0


@pytest.fixture
def explained(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="weft"), weft.explain_cache_misses(True):
        yield lambda: caplog.records.pop().getMessage()


def test_explanations_of_types_and_structure(explained) -> None:
    def f(x, n=1.0):
        return x

    jitted = weft.jit(f)
    jitted(wnp.ones(3))
    text = explained()
    assert text.startswith(f"TRACING CACHE MISS at {__file__}:")
    assert "never seen function: f defined at" in text
    jitted(wnp.ones(4))
    assert "different input shape at x, now f32[4] and before f32[3]" in explained()
    jitted(wnp.ones(4, wnp.int32))
    assert "different input type at x, now i32[4] and before f32[4]" in explained()
    jitted(wnp.float32(1.0))
    explained()
    jitted(1.0)
    assert "different weak type at x, now f32[] (weakly typed) and before f32[]" in explained()
    jitted({"a": wnp.ones(4)})
    assert "different input pytree" in explained()
    jitted({"a": wnp.ones(5)})
    assert "different input shape at x['a'], now f32[5] and before f32[4]" in explained()


def test_explanations_of_static_defaults(explained) -> None:
    def f(x, n=3, *, mode="fast"):
        return x * n

    jitted = weft.jit(f, static_argnames=("n", "mode"))
    expected = {
        (): None,
        (3,): "static argument n, now 3 and before left at its default 3",
        (5,): "static argument n, now 5 and before 3",
        (True,): "static argument n, now True and before 5",
    }
    for args, text in expected.items():
        jitted(1.0, *args)
        assert text is None or text in explained()
    jitted(1.0, n=5)
    assert "static argument n, now 5 of type int, given by keyword and before 5 of type int, given by" in explained()
    jitted(1.0, n=5, mode="exact")
    assert "static argument mode, now 'exact' and before left at its default 'fast'" in explained()
    jitted(1.0, mode="exact")
    assert "static argument n, now left at its default 3 and before 5" in explained()


def test_explanations_of_static_values_and_configuration(explained) -> None:
    jitted = weft.jit(lambda x, n: x, static_argnums=1)
    jitted(1.0, 3)
    explained()
    jitted(1.0, 4)
    assert "static argument n, now 4 and before 3" in explained()
    with weft.default_matmul_precision("float32"):
        jitted(1.0, 4)
    assert "default_matmul_precision now 'float32', before None" in explained()


def test_explanations_of_new_function_objects(explained) -> None:
    def make(c):
        return lambda x: x * c

    weft.jit(make(2.5))(1.0)
    assert "this function was not traced before" in explained()
    weft.jit(make(2.5))(1.0)
    assert "another function object of the same code was traced before, and this one is new" in explained()
    weft.jit(make(3.5))(1.0)
    text = explained()
    assert "2 other function objects of the same code were traced before, and this one is new" in text
    assert "jit the function once, outside of the loop" in text


def test_hits_are_silent(explained, caplog: pytest.LogCaptureFixture) -> None:
    f = weft.jit(lambda x: x)
    f(1.0)
    caplog.clear()
    f(2.0)
    weft.jit(f.__wrapped__)(2.0)
    assert not caplog.records


def test_log_compiles(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="weft"), weft.log_compiles(True):
        weft.jit(lambda x: wnp.tanh(x) * 1.75)(wnp.ones(3))
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "Finished tracing <lambda> for jit in" in text
    assert "f32[3]" in text
    assert "ompil" in text


def test_log_compiles_tells_of_functions_that_serve_other_sizes_too(caplog: pytest.LogCaptureFixture) -> None:
    for n in (300, 301, 302):
        wnp.mean(wnp.ones((n, 5)))
    with caplog.at_level(logging.WARNING, logger="weft"), weft.log_compiles(True):
        wnp.mean(wnp.ones((303, 5)))
    assert any("Finished tracing _mean" in record.getMessage() for record in caplog.records)

"""Foreign functions that take and give tokens, by which the order of calls is said: the values that JAX gives."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.lax as lax
from tests.ffi.library import loaded, loaded_in_jax
from weft import export

X = np.arange(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def library() -> None:
    loaded()


def call(module: Any, name: str, *types: Any, **options: Any) -> Any:
    token = module.typeof(module.lax.create_token())
    shapes = [token if n is None else module.ShapeDtypeStruct((n,), np.int32) for n in types]
    return module.ffi.ffi_call(name, shapes, **options)


def steps(module: Any, effect: bool) -> Any:
    """Counts of four calls, the second after the first, the last after all others."""
    step = call(module, "token_step", None, 1, has_side_effect=effect)
    create, join = module.lax.create_token, module.lax.after_all

    def run() -> list[Any]:
        first, a = step(create())
        second, b = step(first)
        third, c = step(second)
        return [a, b, c, step(join(first, third))[1]]

    return run


@pytest.mark.parametrize("effect", [False, True])
def test_calls_follow_their_tokens(effect: bool) -> None:
    run = steps(weft, effect)
    for function in (run, weft.jit(run)):
        counts = np.concatenate(function())
        np.testing.assert_array_equal(counts - counts[0], np.arange(4))


def test_a_token_alone_keeps_a_call() -> None:
    step = call(weft, "token_step", None, 1)
    last = weft.jit(lambda: step(lax.after_all(step(step(lax.create_token())[0])[0]))[1])
    before = int(last()[0])
    assert int(last()[0]) == before + 3


def test_a_function_sees_a_token_of_rank_0() -> None:
    kinds = call(weft, "kinds_of", 6)
    found = weft.jit(lambda x: kinds(lax.create_token(), x, x[0]))(X)[0]
    np.testing.assert_array_equal(found, [17, 0, 11, 1, 11, 0])


def test_tokens_in_loops_and_results() -> None:
    step = call(weft, "token_step", None, 1, has_side_effect=True)
    token, counts = weft.jit(lambda: lax.scan(lambda t, _: tuple(step(t)), lax.create_token(), None, length=4))()
    np.testing.assert_array_equal(np.diff(counts[:, 0]), [1, 1, 1])
    assert weft.typeof(token) == weft.typeof(lax.create_token()) == weft.typeof(step(token)[0])
    assert weft.eval_shape(step, token)[1].shape == (1,)
    same = weft.ffi.ffi_call("token_step", [weft.core.abstract_token, weft.ShapeDtypeStruct((1,), np.int32)])
    assert [str(x) for x in weft.eval_shape(same, token)] == [str(x) for x in weft.eval_shape(step, token)]


def test_vmap() -> None:
    kinds = call(weft, "kinds_of", 4, vmap_method="broadcast_all")
    found = weft.vmap(lambda x: kinds(lax.create_token(), x)[0])(X)
    np.testing.assert_array_equal(np.asarray(found)[0], [17, 0, 11, 1])
    step = call(weft, "token_step", None, 1, vmap_method="sequential")
    with pytest.raises(NotImplementedError, match=r"vmap of 'token_step'.*there are no arrays of tokens"):
        weft.vmap(lambda x: step(lax.create_token(), x)[1])(X)


@pytest.mark.oracle
def test_as_in_jax(tmp_path_factory: pytest.TempPathFactory) -> None:
    jax = loaded_in_jax(Path(tmp_path_factory.getbasetemp()))
    counts = np.concatenate(jax.jit(steps(jax, True))())
    np.testing.assert_array_equal(counts - counts[0], np.arange(4))
    found = jax.jit(lambda x: call(jax, "kinds_of", 6)(jax.lax.create_token(), x, x[0]))(X)[0]
    np.testing.assert_array_equal(found, [17, 0, 11, 1, 11, 0])
    written = [str(module.make_jaxpr(steps(module, True))()) for module in (weft, jax)]
    assert [text.count(":Tok") for text in written] == [6, 6]


@pytest.mark.oracle
def test_files_of_programs_with_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    jax = loaded_in_jax(Path(tmp_path_factory.getbasetemp()))

    def function(module: Any) -> Any:
        step = call(module, "token_step", None, 1, has_side_effect=True)

        def run(x: Any) -> Any:
            token, first = step(module.lax.create_token())
            return x + (step(token)[1] - first)

        return module.export.export(
            module.jit(run), disabled_checks=[module.export.DisabledSafetyCheck.custom_call("token_step")]
        )(module.ShapeDtypeStruct((3,), np.float32)).serialize()

    importlib.import_module("jax.export")
    for blob in (function(weft), function(jax)):
        for read in (export.deserialize(blob), jax.export.deserialize(blob)):
            np.testing.assert_array_equal(read.call(X), X + 1)
        assert [str(effect) for effect in export.deserialize(blob).unordered_effects] == ["FFI"]
        assert "!stablehlo.token" in str(export.deserialize(blob).mlir_module())


def test_a_token_whose_maker_is_not_seen_is_not_written() -> None:
    step = call(weft, "token_step", None, 1)
    merged = weft.jit(lambda: step(lax.after_all(step(lax.create_token())[0]))[1])
    assert merged.lower().as_text().count("!stablehlo.token,") == 2
    joined = weft.jit(steps(weft, True))
    with pytest.raises(NotImplementedError, match=r"its token is of a loop, a branch or after_all"):
        joined.lower().as_text()

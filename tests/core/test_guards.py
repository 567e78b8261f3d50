"""Options that forbid or report something: transfers, execution, sums of half precisions; and options of XLA."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import config, lax
from weft.dispatch.programs import executables

X = jnp.ones(2)
HOST = np.ones(2, np.float32)
# what JAX does with them under "disallow" and "disallow_explicit"
IMPLICIT: list[Callable[[], Any]] = [
    lambda: ADD(X, HOST), lambda: ADD(X, 2.0), lambda: X + 1, lambda: HOST - X, lambda: jnp.array(HOST),
    lambda: jnp.asarray([1, 2]),
]  # fmt: skip
EXPLICIT: list[Callable[[], Any]] = [lambda: weft.device_put(HOST), lambda: weft.device_put({"a": 1})]
NONE: list[Callable[[], Any]] = [
    lambda: ADD(X, X), lambda: X + X, lambda: np.asarray(X), lambda: jnp.arange(3), lambda: str(X),
    lambda: weft.grad(lambda y: (y * y).sum())(X), lambda: weft.make_jaxpr(lambda x: x + HOST)(X),
]  # fmt: skip


@weft.jit
def ADD(x: Any, y: Any) -> Any:
    return x + y


def test_guards_of_transfers(caplog: pytest.LogCaptureFixture) -> None:
    for call in (*IMPLICIT, *EXPLICIT, *NONE):  # an entry for these types stands in the tables
        call()
    for guard in (weft.transfer_guard, weft.transfer_guard_host_to_device):
        for level, forbidden in (("disallow", IMPLICIT), ("disallow_explicit", [*IMPLICIT, *EXPLICIT])):
            with guard(level):
                for call in (*forbidden, *forbidden):
                    with pytest.raises(weft.errors.JaxRuntimeError, match="Disallowed host-to-device transfer: aval="):
                        call()
                for call in (*NONE, *(EXPLICIT if level == "disallow" else ())):
                    call()
        for level, logged in (("log", IMPLICIT), ("log_explicit", [*IMPLICIT, *EXPLICIT])):
            with guard(level), caplog.at_level(logging.WARNING, "weft"):
                for call in logged:
                    caplog.clear()
                    call()
                    assert "host-to-device transfer: aval=" in caplog.text
                caplog.clear()
                for call in NONE:
                    call()
                assert not caplog.text
    for guard in (weft.transfer_guard_device_to_host, weft.transfer_guard_device_to_device):
        with guard("disallow_explicit"):
            for call in (*IMPLICIT, *EXPLICIT, *NONE):
                call()
    with weft.transfer_guard("disallow"), weft.transfer_guard_host_to_device("allow"):
        assert ADD(X, HOST).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="disallow_explicit"):
        config.update("jax_transfer_guard", "never")


def test_what_logs_say_is_what_tools_look_for(caplog: pytest.LogCaptureFixture) -> None:
    def scaled(x: Any) -> Any:
        return jnp.sin(x) * 71.5

    with weft.log_compiles(), weft.explain_cache_misses(), caplog.at_level(logging.WARNING, "weft"):
        f = weft.jit(scaled)
        f(X)
        f(jnp.ones((2, 2)))
    for pattern in (
        r"Finished tracing scaled for jit in \d+\.\d+ sec",
        r"Compiling jit\(scaled\) with global shapes and types \(ShapedArray\(float32\[2\]\)\)",
        r"Finished XLA compilation of jit\(scaled\) in \d+\.\d+ sec", r"TRACING CACHE MISS at \S+test_guards.py:\d+",
        r"never seen function: \S*scaled defined at ", "all previously seen cache keys differ. For the closest",
        r"at x, now f32\[2,2\] and before f32\[2\]",
    ):  # fmt: skip
        assert re.search(pattern, caplog.text), (pattern, caplog.text)


def test_nothing_is_executed() -> None:
    ADD(X, X)
    with config.context("jax_no_execution", True):
        for call in (lambda: ADD(X, X), lambda: X + X, lambda: lax.sin(X), lambda: jnp.sum(X)):
            for _ in range(2):
                with pytest.raises(RuntimeError, match=r"tried to execute .*no_execution"):
                    call()
        ADD.lower(X, X).compile()
        weft.make_jaxpr(ADD)(X, X)
        assert weft.eval_shape(ADD, X, X).shape == (2,)
    assert ADD(X, X).tolist() == [2.0, 2.0]


def test_sums_of_half_precisions() -> None:
    half = jnp.ones(3, jnp.float16)
    with weft.allow_f16_reductions(False):
        for call in (
            lambda: lax.reduce_sum(half, (0,)), lambda: jnp.sum(half, dtype=jnp.float16),
            lambda: lax.reduce_sum(half.astype(jnp.bfloat16), (0,)),
            lambda: weft.grad(lambda x: (x * half).sum())(np.float16(1)),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"reduce_sum on operand b?f16.3. is not allowed"):
                call()
        assert jnp.sum(half) == 3  # in float32
    assert lax.reduce_sum(half, (0,)) == 3


def test_options_of_another_compiler_have_no_effect() -> None:
    executables._said.clear()
    with pytest.warns(UserWarning, match=r"\['xla_cpu_enable_fast_math'\] have no effect"):
        f = weft.jit(lambda x: x + 1, compiler_options={"xla_cpu_enable_fast_math": True})
    assert f(1.0) == 2
    assert weft.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={"another": 1})(1.0) == 2  # said already


def test_offset_of_seeds() -> None:
    expected = weft.random.key_data(weft.random.key(12))
    with config.context("random_seed_offset", 5):
        assert (weft.random.key_data(weft.random.key(7)) == expected).all()


RANKS: list[Callable[[Any, Any], Any]] = [
    lambda x, v: jnp.packbits(x > 1, axis=0), lambda x, v: jnp.unpackbits(x.astype(jnp.uint8), axis=1),
    lambda x, v: jnp.array_equiv(x, v), lambda x, v: jnp.average(x, axis=1, weights=v),
    lambda x, v: jnp.quantile(x, v / 3, axis=0), lambda x, v: jnp.pad(x, 1, "median"), lambda x, v: jnp.trapezoid(x, v),
    lambda x, v: jnp.cov(x), lambda x, v: jnp.interp(x, v, v), lambda x, v: jnp.gradient(x), lambda x, v: jnp.var(x, 0),
    lambda x, v: weft.nn.one_hot(x, 4), lambda x, v: weft.nn.softmax(x), lambda x, v: weft.nn.standardize(x),
    lambda x, v: weft.random.categorical(weft.random.key(0), x), lambda x, v: jnp.cross(x, x),
    lambda x, v: weft.random.permutation(weft.random.key(0), x), lambda x, v: jnp.linspace(v, v + 1, 4),
]  # fmt: skip


def test_functions_of_weft_promote_no_ranks() -> None:
    """Under numpy_rank_promotion="raise" only operands of the user are refused."""
    x, v = jnp.arange(6.0).reshape(2, 3), jnp.arange(3.0)
    with weft.numpy_rank_promotion("raise"):
        for call in RANKS:
            call(x, v)
        with pytest.raises(ValueError, match="numpy_rank_promotion"):
            x + v

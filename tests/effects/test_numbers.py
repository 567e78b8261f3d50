"""debug_nans and debug_infs: FloatingPointError beside JAX's: operation, line, step, argument."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

# text over m (jax or weft), jnp, lax; the operation that JAX names, or None where nothing is raised
PROGRAMS: dict[str, tuple[str, str | None]] = {
    "log": ("jnp.log(-1.0)", "log"),
    "division": ("jnp.array(0.0) / 0.0", "div"),
    "jit": ("m.jit(lambda x: jnp.log(x) + 1)(-1.0)", "log"),
    "inner jit": ("m.jit(lambda x: m.jit(lambda y: jnp.sqrt(y))(x) * 2)(-1.0)", "sqrt"),
    "grad": ("m.grad(lambda x: jnp.sqrt(x) * 0.0)(0.0)", "mul"),
    "jit of grad": ("m.jit(m.grad(lambda x: jnp.sqrt(x) * 0.0))(0.0)", "mul"),
    "vmap": ("m.vmap(jnp.log)(jnp.array([1.0, -1.0]))", "log"),
    "bfloat16": ("jnp.log(jnp.array(-1.0, jnp.bfloat16))", "log"),
    "complex": ("jnp.array(1j) * jnp.inf", "mul"),
    "thrown away": ("m.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))(-1.0)", None),
    "fine": ("m.jit(lambda x: jnp.log(x))(1.0)", None),
    "integers": ("m.jit(lambda x: x // 0)(3)", None),
    "donated": ("m.jit(lambda x: jnp.log(x), donate_argnums=0)(jnp.array(-1.0))", "log"),
    "infinity is no nan": ("jnp.exp(1000.0)", None),
}
# JAX names the whole loop or branch, weft the operation inside
INSIDE = {
    "scan": ("lax.scan(lambda c, x: (jnp.log(c) - 1, None), 1.0, jnp.arange(4.0))", "log", "in step 1 of a scan"),
    "fori": ("lax.fori_loop(0, 9, lambda i, s: jnp.log(s), 2.0)", "log", "in step 2 of a scan"),
    "outputs": ("lax.scan(lambda c, x: (c + 1, jnp.sqrt(2 - c)), 0.0, jnp.arange(9.0))", "sqrt", "in step 3 of a scan"),
    "reverse": ("lax.scan(lambda c, x: (c, 1 / x - 1 / x), 0.0, jnp.arange(3.0), reverse=True)", "sub", "step 0 of"),
    "while": (
        "lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, jnp.sqrt(s[1]) - 0.9), (0, 4.0))", "sqrt",
        "in step 3 of a while",
    ),
    "cond": ("lax.cond(True, lambda x: jnp.log(x), lambda x: x, -1.0)", "log", "in branch 1 of a cond"),
    "nested": (
        "lax.scan(lambda c, x: (lax.fori_loop(0, 3, lambda i, s: jnp.sqrt(s), c) - 1, None), 4.0, jnp.arange(4.0))",
        "sqrt", "in step 0 of a scan, in step 2 of a scan",
    ),
    "backward": (
        "m.jit(m.grad(lambda x: lax.scan(lambda c, _: (jnp.sqrt(c) * 0, None), x, None, length=2)[0]))(0.0)", "mul",
        "of a scan, in jit",
    ),
    "custom": ("m.jit(m.nn.softmax)(jnp.array([jnp.inf, 1.0]))", "sub", ""),
}  # fmt: skip


def run(text: str, m: Any, **options: bool) -> Any:
    names = {"m": m, "jnp": jnp if m is weft else jax.numpy, "lax": lax if m is weft else jax.lax}
    with m.debug_nans(options.get("nans", True)), m.debug_infs(options.get("infs", False)):
        return jax.tree.map(np.asarray, eval(text, names))


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_line_is_jax_s(name: str) -> None:
    text, operation = PROGRAMS[name]
    if operation is None:
        np.testing.assert_array_equal(run(text, weft), run(text, jax))
        return
    messages = []
    for m in (weft, jax):
        with pytest.raises(FloatingPointError) as raised:
            run(text, m)
        messages.append(str(raised.value).split("\n")[0])
    assert messages[0] == messages[1] == f"invalid value (nan) encountered in {operation}"


@pytest.mark.oracle
@pytest.mark.parametrize("name", INSIDE)
def test_loops_and_branches_name_the_operation_and_the_step(name: str) -> None:
    text, operation, location = INSIDE[name]
    with pytest.raises(FloatingPointError):
        run(text, jax)
    with pytest.raises(FloatingPointError, match=rf"^invalid value \(nan\) encountered in {operation}\n") as raised:
        run(text, weft)
    assert location in str(raised.value)


@pytest.mark.oracle
def test_infinities() -> None:
    for text in ("jnp.exp(1000.0)", "m.jit(lambda x: jnp.exp(x) * 2)(1000.0)"):
        for m in (weft, jax):
            with pytest.raises(FloatingPointError, match=r"^invalid value \(inf\) encountered in exp"):
                run(text, m, nans=False, infs=True)
            assert np.isinf(run(text, m))
    assert np.isnan(run("jnp.log(-1.0)", weft, nans=False, infs=True))
    with pytest.raises(FloatingPointError, match=r"\(inf\) encountered in exp"):  # not the inf - inf after it
        run("m.jit(lambda x: jnp.exp(x) - jnp.exp(x))(1000.0)", weft, infs=True)


def _line_of(message: str) -> str:
    found = re.search(r"at (.*?):(\d+):", message)
    assert found is not None
    with open(found[1]) as file:
        return file.read().split("\n")[int(found[2]) - 1].strip()


def test_the_user_s_line_is_named_eagerly_in_jit_and_in_both_passes() -> None:
    def loss(x):
        good = jnp.sin(x)
        bad = jnp.sqrt(x)  # here
        return good.sum() + (bad * 0).sum()

    x = jnp.array([0.0, 1.0])
    for f, args in ((loss, (-x,)), (weft.grad(loss), (-x,)), (weft.grad(loss), (x,))):
        for g in (f, weft.jit(f)):
            for _ in range(2):  # also from the caches
                with weft.debug_nans(True), pytest.raises(FloatingPointError) as raised:
                    weft.block_until_ready(g(*args))
                assert _line_of(str(raised.value)).endswith("# here")
    for _ in range(2):
        with weft.debug_nans(True), pytest.raises(FloatingPointError) as raised:
            jnp.log(-x - 1)  # an operation that was compiled before
        assert _line_of(str(raised.value)).startswith("jnp.log(-x - 1)")


def test_a_nan_that_came_in_is_not_blamed_on_the_program() -> None:
    @weft.jit
    def f(weights, x):
        masked = jnp.where(x > 5, jnp.log(x - 5), 0.0)  # NaN that is thrown away
        return masked + x * weights["w"]

    given = {"w": jnp.array([1.0, np.nan])}
    with weft.debug_nans(True), pytest.raises(FloatingPointError) as raised:
        f(given, jnp.ones(2))
    text = str(raised.value)
    assert text.startswith("invalid value (nan) encountered in mul\n")
    assert "the value came with argument weights['w']" in text


def test_operands_of_the_operation_are_shown() -> None:
    with weft.debug_nans(True), pytest.raises(FloatingPointError) as raised:
        weft.jit(lambda x, y: jnp.arccos(x * y))(2.0, 3.0)
    assert "operands: Array(6., dtype=float32" in str(raised.value)


def test_donation_and_compiled_programs() -> None:
    with weft.debug_nans(True):
        x = jnp.ones(3)
        assert weft.jit(lambda x: x + 1, donate_argnums=0)(x).tolist() == [2, 2, 2]
        assert x.is_deleted()
        y = jnp.zeros(3)
        with pytest.raises(FloatingPointError):
            weft.jit(lambda x: x / x, donate_argnums=0)(y)
        compiled = weft.jit(jnp.log).lower(1.0).compile()
        with pytest.raises(FloatingPointError, match="encountered in log"):
            compiled(-1.0)


def test_callbacks_are_not_called_again() -> None:
    calls = []

    def nan(x):
        calls.append(float(x))
        return np.float32(np.nan)

    out = weft.ShapeDtypeStruct((), "float32")
    with weft.debug_nans(True):
        with pytest.raises(FloatingPointError, match="encountered in pure_callback"):
            weft.pure_callback(nan, out, 1.0)
        assert calls == [1.0]
        with pytest.raises(FloatingPointError, match="encountered in pure_callback"):
            weft.jit(lambda x: weft.pure_callback(nan, out, x))(2.0)


def test_the_option_holds_for_the_process_and_the_context() -> None:
    f = weft.jit(lambda x: jnp.log(x))
    assert np.isnan(f(-1.0))
    weft.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError):
            f(-1.0)
        with weft.debug_nans(False):
            assert np.isnan(f(-1.0))
    finally:
        weft.config.update("jax_debug_nans", False)
    assert np.isnan(f(-1.0))


NAN = np.array([1.0, np.nan], np.float32)
MADE = [
    "jnp.asarray(NAN)", "jnp.array(NAN)", "jnp.array([1.0, np.nan])", "jnp.asarray(np.nan)", "jnp.float32(np.nan)",
    "jnp.array(NAN, 'float16')", "jnp.array([jnp.zeros(()), np.nan])", "m.jit(lambda: jnp.asarray(NAN))()",
]  # fmt: skip
KEPT = [
    "m.device_put(NAN)", "m.device_put({'a': NAN})", "jnp.asarray(m.device_put(NAN))", "jnp.isnan(NAN)",
    "jnp.nan_to_num(NAN)", "m.jit(lambda x: jnp.where(x > 0, x, jnp.asarray(NAN)))(np.ones(2, 'f'))",
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("text", MADE + KEPT)
def test_arrays_made_of_the_user_s_nans_are_results_and_those_put_on_a_device_are_not(text: str) -> None:
    for m in (weft, jax):
        names = {"m": m, "jnp": jnp if m is weft else jax.numpy, "np": np, "NAN": NAN}
        with m.debug_nans(True):
            if text in KEPT:
                eval(text, names)
            else:
                with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in"):
                    eval(text, names)


def test_an_array_of_a_nan_names_the_line_that_makes_it() -> None:
    for option, value in ((weft.debug_nans, np.nan), (weft.debug_infs, np.inf)):
        with option(True), pytest.raises(FloatingPointError, match=rf"\({value}\) encountered in array\n") as raised:
            jnp.asarray(value)
        assert _line_of(str(raised.value)).startswith("jnp.asarray(value)")

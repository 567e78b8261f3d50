"""composite, stage and dlpack: printed programs, values and errors are JAX's."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.dlpack
import jax.numpy as jnp
import numpy as np
import pytest

import weft
import weft.numpy as wnp

LIBRARIES = ((weft, wnp), (jax, jnp))


def scaled_tangent(L: Any, J: Any) -> Any:
    return L.lax.composite(lambda x, scale=2.0, rows=None: J.tan(x) * scale, name="my.tan", version=1)


def test_a_composite_is_printed_as_jaxs() -> None:
    texts = [
        str(L.make_jaxpr(lambda x, L=L, J=J: scaled_tangent(L, J)(x, scale=3.0, rows=None) + 1.0)(1.0))
        for L, J in LIBRARIES
    ]
    assert texts[0] == texts[1]
    assert "composite[" in texts[0]


def test_a_composite_is_its_program() -> None:
    tangent = scaled_tangent(*LIBRARIES[0])
    xs = np.linspace(0, 1, 3, dtype=np.float32)
    np.testing.assert_allclose(tangent(xs, scale=3.0), 3 * np.tan(xs), rtol=1e-6)
    np.testing.assert_allclose(weft.jit(tangent)(xs), 2 * np.tan(xs), rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.vmap(tangent))(xs), 2 * np.tan(xs), rtol=1e-6)
    tree = weft.lax.composite(lambda d: {"b": d["a"] + wnp.arange(2)}, "tree")({"a": 1})
    np.testing.assert_array_equal(tree["b"], [1, 2])
    assert weft.jit(lambda x: weft.lax.composite(lambda x, *, k: x + k.sum(), "x")(x, k=np.ones(2)))(1.0) == 3.0


def test_a_composite_has_no_derivative_but_one_that_is_written_around_it() -> None:
    for L, n in LIBRARIES:
        tangent = scaled_tangent(L, n)
        with pytest.raises(ValueError, match="JVP rule for composite not implemented"):
            L.grad(tangent)(1.0)
        with pytest.raises(ValueError, match="JVP rule for composite not implemented"):
            L.jvp(tangent, (1.0,), (1.0,))
        with pytest.raises(ValueError, match="Transpose rule for composite not implemented"):
            L.linear_transpose(tangent, 1.0)(1.0)
        ruled = L.custom_jvp(tangent)
        ruled.defjvp(lambda xs, ts, n=n, tangent=tangent: (tangent(xs[0]), 2 / n.cos(xs[0]) ** 2 * ts[0]))
        np.testing.assert_allclose(L.grad(ruled)(1.0), 2 / np.cos(1.0) ** 2, rtol=1e-6)


def test_a_composite_is_one_in_stablehlo() -> None:
    wanted: dict[str, Any] = {"arr": np.arange(3), "b": True, "n": 5, "s": 'a"c', "scale": np.float32(3)}
    wanted |= {"w": {"k": -1e-30}, "t": (1, 2.5)}
    texts = []
    for L, n in LIBRARIES:
        scaled = L.lax.composite(lambda x, *, scale, **_: x * scale, "my.scale", version=3)
        texts.append(L.jit(lambda x, f=scaled: f(x, **wanted)).lower(n.ones(3)).as_text())
    attributes = [re.search(r"composite_attributes = (.*), decomposition = @my.scale", text) for text in texts]
    ours, theirs = [found[1] for found in attributes if found is not None]
    assert ours.replace(" : i64", "").replace(" : f64", "") == theirs.replace(" : i64", "").replace(" : f64", "")
    assert all('"my.scale"' in text and "version = 3 : i32" in text for text in texts)
    scaled = weft.lax.composite(lambda x, *, scale, **_: x * scale, "my.scale", version=3)
    exported = weft.export.export(weft.jit(lambda x: scaled(x, **wanted)))(np.ones(3, np.float32))
    for L in (weft, jax):
        found = L.export.deserialize(exported.serialize()).call(np.ones(3, np.float32))
        np.testing.assert_array_equal(found, [3.0, 3.0, 3.0])


def test_a_composite_closes_over_no_traced_value() -> None:
    for L, _ in LIBRARIES:
        with pytest.raises(Exception, match="decomposition for the composite op 'x'") as caught:
            L.jit(lambda y, L=L: L.lax.composite(lambda x: x + y, "x")(1.0))(2.0)
        assert caught.type.__name__ == "UnexpectedTracerError"


def test_stage() -> None:
    assert isinstance(weft.lax.stage(1.0), weft.Array)
    assert str(weft.make_jaxpr(weft.lax.stage)(1.0)) == str(jax.make_jaxpr(jax.lax.stage)(1.0))
    kinds = []
    weft.jit(lambda: kinds.append(isinstance(weft.lax.stage(2.0), weft.core.Tracer)))()
    assert kinds == [True]
    assert weft.grad(weft.lax.stage)(1.0) == 1.0
    with pytest.raises(TypeError, match="argument to stage"):
        weft.lax.stage([1.0])


def test_sending_and_receiving() -> None:
    swap = [(0, 1), (1, 0)]
    sent = weft.vmap(lambda x: weft.lax.psend(x, "i", swap), axis_name="i")(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(sent, [2.0, 1.0])
    for like in (weft.ShapeDtypeStruct((2,), np.float32), weft.ShapeDtypeStruct((), np.int32), [1.0]):
        with pytest.raises(ValueError, match="precv"):
            weft.vmap(lambda x, like=like: weft.lax.precv(x, like, "i", swap), axis_name="i")(
                np.array([1, 2], np.float32)
            )


def test_dlpack_names() -> None:
    for dtype in ("float32", "bfloat16", "bool", "int4", "float8_e4m3fn", "complex64", "uint8", "float64", np.int16):
        assert weft.dlpack.is_supported_dtype(dtype) == jax.dlpack.is_supported_dtype(dtype), dtype
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(weft.dlpack.from_dlpack(x), x)
    copied = weft.dlpack.from_dlpack(x, copy=True)
    x[0] = 5.0
    assert copied[0] == 0.0


def test_what_is_sunk_stays_in_the_program() -> None:
    def kept(L: Any, n: Any, x: Any) -> Any:
        L.lax.dce_sink({"a": n.sin(x)})
        return x * 2

    assert str(weft.make_jaxpr(lambda x: kept(weft, wnp, x))(1.0)) == str(
        jax.make_jaxpr(lambda x: kept(jax, jnp, x))(1.0)
    )
    function = weft.jit(lambda x: kept(weft, wnp, x))
    assert "sine" in function.lower(1.0).as_text()
    assert function(1.0) == weft.grad(function)(1.0) == 2.0
    assert weft.vmap(function)(np.ones(2)).tolist() == [2.0, 2.0]
    assert weft.lax.scan(lambda c, _: (function(c), None), 1.0, length=3)[0] == 8.0

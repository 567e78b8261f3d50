"""Modules that others wrote: constants, what is computed while reading, regions, and damaged text."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.extend.core as core
from weft import config
from weft.stablehlo import parser, reader


def results(text: str, *operands: Any) -> list[np.ndarray]:
    """What weft computes for a module."""
    with config.context("enable_x64", True):
        return [np.asarray(x) for x in core.jaxpr_as_fun(reader.program(text))(*operands)]


def test_integers_keep_all_bits() -> None:
    c, zeros = np.array([2**64 - 1, 1], np.uint64), np.zeros(2, np.uint64)
    with config.context("enable_x64", True):
        text = weft.jit(lambda x: x ^ c).lower(zeros).as_text("stablehlo")
    np.testing.assert_array_equal(results(text, zeros)[0], c)
    assert parser.constant("dense<[0xFF, 0x7F, -1]> : tensor<3xi8>").tolist() == [-1, 127, -1]
    ends = parser.constant("dense<[-9223372036854775808, 9223372036854775807]> : tensor<2xi64>")
    assert ends.tolist() == [-(2**63), 2**63 - 1]


def test_booleans_of_bytes() -> None:
    for count in (1, 3, 8, 16):
        for data in (0, 255):
            found = parser.constant(f'dense<"0x{data:02X}"> : tensor<{count}xi1>')
            assert found.dtype == bool and found.tolist() == [data > 0] * count
    assert parser.constant('dense<"0x05"> : tensor<3xi1>').tolist() == [True, False, True]
    bits = np.arange(16) % 3 == 0
    packed = np.packbits(bits, bitorder="little").tobytes().hex()
    for text in (packed, bits.tobytes().hex()):
        np.testing.assert_array_equal(parser.constant(f'dense<"0x{text}"> : tensor<2x8xi1>'), bits.reshape(2, 8))


def test_strings_end_at_their_quote() -> None:
    attributes = parser.Parser(r'a = "x\"},\\", b = 3 : i64}').attributes("}")
    assert attributes == {"a": r'"x\"},\\"', "b": "3 : i64"}
    with pytest.raises(ValueError, match="the end of a string"):
        parser.Parser('a = "x').attributes("}")
    values = np.arange(2**19, dtype=np.float32)  # four million characters
    found = parser.constant(f'dense<"0x{values.tobytes().hex()}"> : tensor<{values.size}xf32>')
    np.testing.assert_array_equal(found, values)


def folded(name: str, dtype: str, x: list[int], y: list[int]) -> np.ndarray:
    kind = f"tensor<{len(x)}x{dtype}>"
    values = "".join(
        f'%{n} = "stablehlo.constant"() <{{value = dense<{v}> : {kind}}}> : () -> {kind}\n'
        for n, v in enumerate((x, y))
    )
    operation = f'%2 = "stablehlo.{name}"(%0, %1) : ({kind}, {kind}) -> {kind}'
    body = f"{values} {operation}\n func.return %2 : {kind}\n"
    return results(f"module {{ func.func @main() -> {kind} {{ {body} }} }}")[0]


def test_division_while_reading_is_exact() -> None:
    x, y = [2**63 - 1, -(2**63) + 1, 7, -7, 7, -7, 6, -6], [2, 2, 2, 2, -2, -2, -2, 3]
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y, strict=True)]
    assert folded("divide", "i64", x, y).tolist() == quotients
    remainders = [a - b * q for a, b, q in zip(x, y, quotients, strict=True)]
    assert folded("remainder", "i64", x, y).tolist() == remainders
    assert folded("divide", "ui64", [2**64 - 1, 7], [3, 2]).tolist() == [(2**64 - 1) // 3, 3]
    assert folded("divide", "i32", [-(2**31), 6], [-1, 2]).tolist()[1] == 3
    assert folded("multiply", "i32", [2**31 - 1, 6], [2, 2]).tolist() == [-2, 12]
    a, b = np.array([7, 8], np.int32), np.array([2, 0], np.int32)
    for name, function in (("divide", weft.lax.div), ("remainder", weft.lax.rem)):  # as in a program
        np.testing.assert_array_equal(folded(name, "i32", a.tolist(), b.tolist()), weft.jit(function)(a, b))


def test_damaged_text_is_a_value_error() -> None:
    x = np.ones((2, 3), np.float32)
    function = weft.jit(lambda x: (weft.lax.fori_loop(0, 3, lambda i, c: c * 2, x).at[0].add(1.0), x @ x.T))
    text = function.lower(x).as_text("stablehlo")
    rng = np.random.default_rng(0)
    for n in range(60):
        place, more = rng.integers(len(text), size=2)
        damaged = (text[:place], text[:place] + text[place + 9 :], text[:place] + text[more : more + 9] + text[place:])
        with contextlib.suppress(ValueError, NotImplementedError):
            reader.program(damaged[n % 3])
    for damage in (text.replace("%arg0", "%arg1", 1), text.replace("scatter_dim", "dim"), text[: text.rindex('"') - 4]):
        with pytest.raises(ValueError, match=r"\[stablehlo\]"):
            reader.program(damage)


def test_a_scatter_subtracts_in_one_order_only() -> None:
    x, y = np.arange(4, dtype=np.float32), np.ones(1, np.float32)

    added = weft.jit(lambda x, y: x.at[np.array([1])].add(y)).lower(x, y).as_text("stablehlo")
    region = re.search(r'"stablehlo.add"\((%[\w.]+), (%[\w.]+)\)(?=[^)]*\) -> tensor<f32>)', added)
    assert region is not None
    swapped = f"({region[2]}, {region[1]})"
    for name, expected in (("add", 2), ("multiply", 1), ("maximum", 1)):
        changed = added.replace(region[0], f'"stablehlo.{name}"{swapped}')
        assert results(changed, x, y)[0].tolist() == [0, expected, 2, 3]
    subtracted = added.replace(region[0], f'"stablehlo.subtract"({region[1]}, {region[2]})')
    assert results(subtracted, x, y)[0].tolist() == [0, 0, 2, 3]
    for names, expected in ((f"({region[1]}, {region[2]})", -2), (swapped, 2)):
        changed = added.replace(region[0], f'"stablehlo.subtract"{names}')
        assert results(changed, x, 3 * y)[0].tolist() == [0, expected, 2, 3]


def test_scatters_by_functions_and_approximate_choices_of_jax() -> None:
    x, places = np.arange(6, dtype=np.float32), np.array([0, 2, 2])
    functions = [
        lambda x: x.at[places].apply(lambda v: jax.numpy.sin(v) + 1),
        lambda x: jax.vmap(lambda r: r.at[places[:2]].apply(jax.numpy.exp))(x.reshape(2, 3)),
        lambda x: jax.lax.approx_max_k(x, 3),
        lambda x: jax.lax.approx_min_k(x.reshape(3, 2), 2, reduction_dimension=0),
    ]
    for function in functions:
        exported = jax.export.export(jax.jit(function))(x)
        found = weft.export.deserialize(exported.serialize()).call(x)
        expected = jax.tree.leaves(jax.jit(function)(x))
        for one, other in zip(jax.tree.leaves(weft.device_get(found)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_a_sort_by_another_order_is_refused(keys: int) -> None:
    """Comparisons of the same operands, joined in ways that are no order of tuples."""
    rows = [np.array([2, 1, 2, 1], np.int32)] * 3
    text = weft.jit(lambda *xs: weft.lax.sort(xs, num_keys=keys)).lower(*rows).as_text("stablehlo")
    found = results(text, *rows)
    np.testing.assert_array_equal(found[0], [1, 1, 2, 2])
    changed = (
        text.replace("direction LT", "direction LE") if keys == 1 else text.replace("direction EQ", "direction NE")
    )
    with pytest.raises(NotImplementedError, match=r"\[stablehlo\] a sort by a comparison"):
        results(changed, *rows)

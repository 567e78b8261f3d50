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
from tests.stablehlo import running
from weft import config
from weft.stablehlo.reading import parser, reader


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
        position, more = rng.integers(len(text), size=2)
        damaged = (
            text[:position],
            text[:position] + text[position + 9 :],
            text[:position] + text[more : more + 9] + text[position:],
        )
        with contextlib.suppress(ValueError, NotImplementedError):
            reader.program(damaged[n % 3])
    for damage in (text.replace("%arg0", "%arg1", 1), text.replace("scatter_dim", "dim"), text[: text.rindex('"') - 4]):
        with pytest.raises(ValueError, match=r"\[stablehlo\]"):
            reader.program(damage)


def sharded_text() -> tuple[str, np.ndarray]:
    """A program of shards of eight devices, after a constraint, as text in short form."""
    mesh = weft.sharding.AbstractMesh((4, 2), ("x", 'y"z'))
    spec = weft.P("x", 'y"z')

    def messages(x: Any) -> Any:
        x = weft.lax.ppermute(weft.lax.psum_scatter(x, 'y"z', tiled=True), "x", [(0, 1), (1, 2), (2, 3), (3, 0)])
        return weft.lax.pmax(x, "x") + weft.lax.axis_index("x"), weft.lax.all_gather(x, ("x", 'y"z'), tiled=True)

    outs = weft.P("x", 'y"z'), weft.P(None, ("x", 'y"z'))
    mapped = weft.shard_map(messages, mesh=mesh, in_specs=spec, out_specs=outs, check_vma=False)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    sharded = weft.NamedSharding(weft.make_mesh((1,), ("d",)), weft.P("d"))
    assert "sdy.sharding =" in weft.jit(lambda x: x, in_shardings=sharded).lower(x).as_text()
    return weft.jit(lambda x: mapped(x * 2)).lower(x).as_text(), x


def test_programs_of_shards_are_read_from_text() -> None:
    text, x = sharded_text()
    assert "num_partitions = 8" in text and "sdy.manual_computation" in text
    closed = reader.program(text)
    assert closed.eqns[-1].primitive.name == "shard_map"
    assert reader.program(text.replace('"y\\"z"', '"other"')).eqns[-1].params["mesh"].axis_names == ("x", "other")
    whole = weft.jit(core.jaxpr_as_fun(closed))(x)
    for one, other in zip(results(text, x), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    for old, new, match in [
        ("replica_groups = dense<[[0, 1]", "replica_groups = dense<[[0, 3]", "along no axes of"),
        ('<[<@mesh, [{"x"}', '<[<@mesh, [{"x":(1)2}', "over parts of axes"),
        ("]>, sym_name", "], device_ids=[1, 0]>, sym_name", "devices in another order"),
    ]:
        with pytest.raises(NotImplementedError, match=match):
            reader.program(text.replace(old, new))
    alone = re.sub(r'"sdy.manual_computation".*?\^bb0\((%\d+): .*?:\n', "", text, flags=re.DOTALL)
    with pytest.raises(ValueError, match=r"\[stablehlo\]"):
        reader.program(alone)


def test_damaged_programs_of_shards_are_value_errors() -> None:
    text, _ = sharded_text()
    rng = np.random.default_rng(0)
    for _ in range(60):
        position = rng.integers(len(text))
        with contextlib.suppress(ValueError, NotImplementedError):
            reader.program(text[:position] + text[position + 5 :])


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


def test_scatters_of_several_arrays_at_once() -> None:
    """By jaxlib too: sums in one array, and the larger elements of the other."""

    def text(second: str) -> str:
        kinds = {"x": "tensor<4xf32>", "n": "tensor<4xi32>", "i": "tensor<2x1xi32>", "u": "tensor<2xf32>"}
        kinds["v"] = "tensor<2xi32>"
        numbers = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
        region = f"""^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
          %4 = "stablehlo.add"(%a, %c) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          %5 = {second}
          "stablehlo.return"(%4, %5) : (tensor<f32>, tensor<i32>) -> ()"""
        operands = "%x, %n, %i, %u, %v"
        given = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>"
        return f"""module {{ func.func public @main({", ".join(f"%{k}: {t}" for k, t in kinds.items())})
          -> ({kinds["x"]}, {kinds["n"]}) {{
          %3:2 = "stablehlo.scatter"({operands}) <{{{given}, indices_are_sorted = false, unique_indices = false}}> ({{
          {region}
          }}) : ({", ".join(kinds.values())}) -> ({kinds["x"]}, {kinds["n"]})
          func.return %3#0, %3#1 : {kinds["x"]}, {kinds["n"]}
          }} }}"""

    module = text('"stablehlo.maximum"(%b, %d) : (tensor<i32>, tensor<i32>) -> tensor<i32>')
    integers = [np.array(rows, np.int32) for rows in ([0, 1, 2, 3], [[1], [3]], [7, 2])]
    operands = (np.ones(4, np.float32), *integers[:2], np.array([5, 6], np.float32), integers[2])
    for found in (results(module, *operands), running.run(module, operands)):
        assert [x.tolist() for x in found] == [[1, 6, 1, 7], [0, 7, 2, 3]]
    mixed = text('"stablehlo.convert"(%4) : (tensor<f32>) -> tensor<i32>')
    with pytest.raises(NotImplementedError, match="several arrays whose elements are mixed"):
        results(mixed, *operands)


def test_scatters_by_functions_and_approximate_choices_of_jax() -> None:
    x, indices = np.arange(6, dtype=np.float32), np.array([0, 2, 2])
    functions = [
        lambda x: x.at[indices].apply(lambda v: jax.numpy.sin(v) + 1),
        lambda x: jax.vmap(lambda r: r.at[indices[:2]].apply(jax.numpy.exp))(x.reshape(2, 3)),
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

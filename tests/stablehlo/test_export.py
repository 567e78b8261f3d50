"""weft.export: files that JAX reads and that JAX wrote, calls, derivatives, trees, and what is refused."""

from __future__ import annotations

import collections
import struct
import warnings
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.export as export
import weft.extend.random
import weft.numpy as jnp
from tests.stablehlo import programs
from weft import runtime
from weft.stablehlo import flat_tables

jax_export = pytest.importorskip("jax.export")
pytest.importorskip("flatbuffers", reason="JAX reads its files by it")

X = programs.X
QUICK = {"xla_backend_optimization_level": 0}  # half of the time of XLA


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def near(found: Any, expected: Any) -> None:
    names = [name for name, outs in zip(programs.PROGRAMS, expected, strict=True) for _ in leaves(outs)]
    for name, x, y in zip(names, leaves(found), leaves(expected), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape, name
        wide = [v.astype(np.complex128) for v in (x, y)]
        np.testing.assert_allclose(*wide, rtol=3e-5, atol=3e-6, err_msg=name)


@pytest.fixture(scope="module")
def by_jax() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax.jit(programs.together(jax), compiler_options=QUICK)(*programs.OPERANDS)


def test_jax_runs_what_weft_exports(by_jax: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = export.export(weft.jit(programs.together(weft)))(*programs.OPERANDS)
        read = jax_export.deserialize(exported.serialize())
        found = jax.jit(read.call, compiler_options=QUICK)(*programs.OPERANDS)
    near(found, by_jax)


def test_weft_runs_what_jax_exports(by_jax: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blob = jax_export.export(jax.jit(programs.together(jax)))(*programs.OPERANDS).serialize()
        found = export.deserialize(blob).call(*programs.OPERANDS)
    near(found, by_jax)


def test_what_is_exported_and_read_gives_the_same_bits() -> None:
    function = weft.jit(programs.together(weft))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = export.deserialize(export.export(function)(*programs.OPERANDS).serialize()).call(*programs.OPERANDS)
        expected = function(*programs.OPERANDS)
    for name, x, y in zip(programs.PROGRAMS, found, expected, strict=True):
        bits = [[v.tobytes() for v in leaves(tree)] for tree in (x, y)]
        assert bits[0] == bits[1], name


Pair = collections.namedtuple("Pair", "first second")
export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
jax_export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")


def structured(d: Any, pair: Any, *, k: Any) -> Any:
    return {"s": jnp.sin(d["x"]) * k, "t": (pair.first * 2, None)}, collections.OrderedDict(q=[d["x"].sum()])


ARGS, KWARGS = ({"x": X}, Pair(np.int32(3), X[0])), {"k": np.float32(2)}


def test_trees_and_derivatives_go_both_ways() -> None:
    exported = export.export(weft.jit(structured))(*ARGS, **KWARGS)
    blob = exported.serialize(vjp_order=2)
    theirs, ours = jax_export.deserialize(blob), export.deserialize(blob)
    assert theirs.fun_name == ours.fun_name == "structured"
    assert str(theirs.in_avals) == str(ours.in_avals) == str(exported.in_avals)
    assert (ours.in_tree, ours.out_tree) == (exported.in_tree, exported.out_tree)
    assert str(theirs.out_tree) == str(ours.out_tree)

    def total(exported: Any) -> Any:
        return lambda x: exported.call({"x": x}, ARGS[1], **KWARGS)[0]["s"].sum()

    for x in (weft.grad(total(exported))(X), weft.grad(total(ours))(X), jax.grad(total(theirs))(X)):
        np.testing.assert_allclose(x, 2 * np.cos(X), rtol=1e-6)
    second = weft.grad(lambda x: weft.grad(total(ours))(x).sum())(X)
    np.testing.assert_allclose(second, -2 * np.sin(X), rtol=1e-6, atol=1e-6)
    back = export.deserialize(theirs.serialize(vjp_order=1))
    np.testing.assert_allclose(weft.grad(total(back))(X), 2 * np.cos(X), rtol=1e-6)
    alone = export.deserialize(exported.serialize())
    assert not alone.has_vjp()
    with pytest.raises(ValueError, match="No VJP"):
        weft.grad(total(alone))(X)
    batched = weft.vmap(lambda x: alone.call({"x": x}, ARGS[1], **KWARGS)[0]["s"])(np.stack([X, 2 * X]))
    np.testing.assert_allclose(batched, 2 * np.sin([X, 2 * X]), rtol=1e-5)


def test_random_keys_are_arguments_and_results() -> None:
    exported = export.export(weft.jit(lambda key: weft.random.split(key)))(weft.random.key(1))
    theirs = jax_export.deserialize(exported.serialize()).call(jax.random.key(1))
    ours = export.deserialize(exported.serialize()).call(weft.random.key(1))
    expected = jax.random.key_data(jax.random.split(jax.random.key(1)))
    for found in (jax.random.key_data(theirs), weft.random.key_data(ours)):
        np.testing.assert_array_equal(found, expected)


def test_several_platforms() -> None:
    exported = export.export(weft.jit(lambda x: x * 2), platforms=("cpu", "tpu"))(X)
    blob = exported.serialize()
    np.testing.assert_array_equal(jax_export.deserialize(blob).call(X), X * 2)
    np.testing.assert_array_equal(export.deserialize(blob).call(X), X * 2)

    def chosen(x: Any) -> Any:
        return weft.lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: x + 2)

    only = export.export(weft.jit(chosen), platforms=["tpu"])(X)
    with pytest.raises(ValueError, match="exported for platforms"):
        only.call(X)
    allowed = [export.DisabledSafetyCheck.platform()]
    checked = export.export(weft.jit(chosen), platforms=["tpu"], disabled_checks=allowed)(X)
    assert list(export.deserialize(checked.serialize()).disabled_safety_checks) == allowed
    np.testing.assert_array_equal(export.deserialize(checked.serialize()).call(X), X + 2)


def test_registered_nodes_say_how_they_are_written() -> None:
    class Box:
        def __init__(self, x: Any, label: str) -> None:
            self.x, self.label = x, label

    weft.tree_util.register_pytree_node(Box, lambda b: ((b.x,), b.label), lambda label, xs: Box(xs[0], label))
    exported = export.export(weft.jit(lambda b: b.x + 1))(Box(X, "a"))
    with pytest.raises(ValueError, match="unregistered type"):
        exported.serialize()
    export.register_pytree_node_serialization(
        Box, serialized_name="tests.Box", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
    )
    with pytest.raises(ValueError, match="Duplicate serialization"):
        export.register_namedtuple_serialization(Pair, serialized_name="tests.Box")
    read = export.deserialize(exported.serialize())
    assert read.in_tree == exported.in_tree
    np.testing.assert_array_equal(read.call(Box(X, "a")), X + 1)
    with pytest.raises(ValueError, match="same pytree structure"):
        read.call(Box(X, "b"))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda e: e.call(X, X), ValueError, "same pytree structure"),
        (lambda e: e.call(X[0]), ValueError, r"exported as f32\[3,4\], and is f32\[4\]"),
        (lambda e: e.call(X.astype(np.int32)), ValueError, r"is i32\[3,4\] in the call"),
        (lambda e: export.export(lambda x: x), ValueError, "takes a jitted function"),
        (lambda e: export.export(weft.jit(jnp.sin), platforms="cpu"), ValueError, "sequence of names"),
        (lambda e: export.deserialize(b"no file"), ValueError, "damaged"),
        (lambda e: export.deserialize(e.serialize()[:200]), ValueError, "damaged"),
        (lambda e: export.register_namedtuple_serialization(list, serialized_name="l"), ValueError, "register_pytree"),
    ],
)
def test_what_is_wrong_is_said(wrong: Any, error: type[Exception], words: str) -> None:
    exported = export.export(weft.jit(jnp.sin))(X)
    with pytest.raises(error, match=words):
        wrong(exported)


def test_all_names_of_jax_are_listed() -> None:
    names: dict[str, Any] = {}
    exec("from weft.export import *", names)
    public = {name for name in dir(jax_export) if not name.startswith("_")}
    missing = public - set(export.__all__)
    assert public and not missing and public <= set(dir(export)) & set(names), missing


def test_damaged_bytes_are_value_errors() -> None:
    nested: Any = None
    for _ in range(20):
        nested = (nested, None)
    trees = export.export(weft.jit(lambda d, pair, nothing, *, k: structured(d, pair, k=k)))(*ARGS, nested, **KWARGS)
    opened = export.export(weft.jit(jnp.sin))(*export.symbolic_args_specs((X,), "b, 4"))
    rng = np.random.default_rng(0)
    blobs, refused = [trees.serialize(vjp_order=1), opened.serialize()], 0
    for n in range(600):
        blob = bytearray(blobs[n % 2])
        for offset in rng.integers(len(blob), size=1 + n % 4):
            blob[offset] = (0, 1, 255, int(rng.integers(256)))[rng.integers(4)]
        try:
            read = export.deserialize(blob)
            if read.has_vjp():
                read.vjp()
        except ValueError:
            refused += 1
    assert 100 < refused < 600
    # nodes that share their children: each level, (level, None), becomes (level, level)
    node = flat_tables.View.root(bytes(blobs[0])).table(2)
    assert node is not None
    node = node.tables(1)[0].tables(1)[2]
    while offset := node._object(1):
        (first,) = struct.unpack_from("<I", blobs[0], offset + 4)
        node = node.tables(1)[0]
        struct.pack_into("<I", blobs[0], offset + 8, first - 4)
    with pytest.raises(ValueError, match="damaged"):
        export.deserialize(blobs[0])


def test_keys_of_a_generator_of_ones_own_are_refused() -> None:
    impl = weft.extend.random.define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.stack([seed, seed]).astype(np.uint32),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 2)),
        random_bits=lambda key, width, shape: jnp.zeros(shape, np.uint32),
        fold_in=lambda key, data: key,
        name="own",
        tag="fry",  # what keys of weft's first generator show
    )
    exported = export.export(weft.jit(lambda key: key))(weft.random.key(1, impl=impl))
    with pytest.raises(ValueError, match="generator of your own"):
        exported.serialize()


def test_fields_are_those_that_jax_documents() -> None:
    exported = export.export(weft.jit(jnp.sin))(weft.ShapeDtypeStruct((4,), jnp.float32))
    theirs = jax_export.deserialize(exported.serialize())
    for name in ("fun_name", "nr_devices", "platforms", "ordered_effects", "unordered_effects", "module_kept_var_idx",
                 "disabled_safety_checks", "calling_convention_version", "uses_global_constants",
                 "in_shardings_hlo", "out_shardings_hlo", "_has_named_shardings"):  # fmt: skip
        assert getattr(exported, name) == getattr(theirs, name), name
    assert exported.mlir_module_serialized == theirs.mlir_module_serialized
    assert "stablehlo.sine" in exported.mlir_module() and "stablehlo.sine" in str(exported.mlir_module(False))
    assert runtime.tree_flatten(exported.call(np.zeros(4, np.float32)))[0][0].tolist() == [0.0] * 4


def several(J: Any, x: Any, y: Any) -> Any:
    n = J.numpy
    parts = (n.concatenate([x, x * 2]).sum(0) / x.shape[0], n.reshape(x, (-1,)), x[1:], J.nn.softmax(x @ x.T))
    more = (x.mean(0), x[::-1], n.argmax(x, 0), J.jit(n.cos)(x), J.vmap(lambda r: n.sin(r) * r.sum())(x))
    loop = J.lax.scan(lambda c, r: (c + r, c.sum()), x[0], x)
    return (*parts, *more, *loop, n.cumsum(x, 0), n.arange(x.shape[0]), n.pad(x, ((1, 1), (0, 0))), y + 1, n.sort(x, 0))


def running(x: Any, y: Any) -> Any:
    return jnp.cumprod(y, 0), weft.lax.cummax(y, 1), weft.lax.cumlogsumexp(x, 0, reverse=True), jnp.cumsum(x > 0, 0)


SHAPES = ("b, 4", "2*b, c")
SIZES = ((2, 3), (3, 1))


def check_open(call: Any, read: Any, gradient: Any) -> None:
    for n, m in SIZES:
        x, y = X[:n], np.ones((2 * n, m), np.float32)
        for found, expected in zip(call(x, y), several(weft, jnp.asarray(x), y), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    y = np.ones((6, 2), np.float32)
    np.testing.assert_allclose(gradient(lambda x: call(x, y)[1].sum())(X), np.ones_like(X))
    assert str(read.in_avals[1].shape) == "(2*b, c)" and str(read.out_avals[2].shape) == "(b - 1, 4)"


def test_open_extents_of_files_of_jax() -> None:
    dims = jax_export.symbolic_shape("b, c")
    shapes = (dims[0], 4), (2 * dims[0], dims[1])
    specs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    function = jax.jit(lambda x, y: several(jax, x, y))
    read = export.deserialize(jax_export.export(function)(*specs).serialize(vjp_order=1))
    check_open(read.call, read, weft.grad)
    with pytest.raises(ValueError, match=r"args\[1\].shape\[0\] and the specification '2\*b'.*'b' = 3, 'c' = 1"):
        read.call(X, np.ones((5, 1), np.float32))


def test_open_extents_of_functions_of_weft() -> None:
    specs = export.symbolic_args_specs((X, X), SHAPES)
    exported = export.export(weft.jit(lambda x, y: several(weft, x, y)))(*specs)
    blob = exported.serialize(vjp_order=1)
    read, theirs = export.deserialize(blob), jax_export.deserialize(blob)
    check_open(exported.call, exported, weft.grad)
    check_open(read.call, read, weft.grad)
    check_open(jax.jit(theirs.call), theirs, jax.grad)
    exported = export.export(weft.jit(running))(*specs)
    blob = exported.serialize()
    for n, m in SIZES:
        x, y = X[:n], np.linspace(-1, 1, 2 * n * m, dtype=np.float32).reshape(2 * n, m)
        for call in (exported.call, export.deserialize(blob).call, jax_export.deserialize(blob).call):
            for found, expected in zip(call(x, y), running(x, y), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: jnp.fft.fft(x, axis=0), NotImplementedError),
        (lambda x: x.reshape(3, -1), weft.errors.InconclusiveDimensionOperation),
        (lambda x: x[: x.shape[0] // 3] + x[: (x.shape[0] + 1) // 3], weft.errors.InconclusiveDimensionOperation),
    ],
)
def test_what_is_not_written_for_open_extents_is_refused(function: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"extents without a value|unknown size|does not evenly divide"):
        export.export(weft.jit(function))(*export.symbolic_args_specs((X,), "b, 4"))


@pytest.mark.parametrize("x", [2.0, np.float32(2.0), 2])
def test_numbers_in_the_program_keep_their_types(x: Any) -> None:
    """A program is called with 64-bit types, and its Python numbers are of the types they had."""

    def function(x: Any) -> Any:
        return weft.lax.mul(x, x) * 1.5 + 3

    assert weft.export.export(weft.jit(function))(x).call(x) == 9.0


def test_text_is_no_exported_function() -> None:
    with pytest.raises(TypeError, match=r"\[deserialize\] takes the bytes of an exported function, got str"):
        weft.export.deserialize("function.bin")


def chosen(L: Any, x: Any) -> Any:
    J = L.numpy
    return L.jit(lambda y: L.lax.platform_dependent(y, cpu=J.sin, cuda=J.cos, default=J.tanh))(x)


@pytest.mark.oracle
def test_lowering_for_platforms_that_are_not_here() -> None:
    for platforms, word in ((("cuda",), "cosine"), (("tpu",), "tanh"), (("cpu",), "sine")):
        for L in (weft, jax):
            x = L.numpy.ones(3)
            text = L.jit(lambda x, L=L: chosen(L, x)).trace(x).lower(lowering_platforms=platforms).as_text()
            assert f"stablehlo.{word}" in text
    lowered = weft.jit(lambda x: chosen(weft, x)).trace(jnp.ones(3)).lower(lowering_platforms=("cuda", "tpu"))
    assert "_platform_index" in lowered.as_text()
    with pytest.raises(NotImplementedError, match=r"lowered for \('cuda', 'tpu'\)"):
        lowered.compile()
    exported = export.export(weft.jit(lambda x: chosen(weft, x)), platforms=("cuda", "cpu", "tpu"))(np.ones(3))
    blob = exported.serialize()
    for call in (exported.call, export.deserialize(blob).call, jax_export.deserialize(blob).call):
        np.testing.assert_allclose(call(np.ones(3, np.float32)), np.sin(np.ones(3)), rtol=1e-6)


@pytest.mark.oracle
def test_hlo_is_made_by_jaxlib() -> None:
    lowered = weft.jit(lambda x: jnp.sin(x) + 1).lower(np.ones(3, np.float32))
    assert lowered.as_text("hlo").startswith("HloModule jit__lambda") and "sine(" in lowered.as_text("hlo")
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo")
    assert "sin.1" in lowered.as_text("hlo", debug_info=True)  # named by its location
    for L in (weft, jax):
        lowered = L.jit(L.numpy.sin).lower(np.ones(3, np.float32))
        for asked in (lowered.as_text, lowered.compiler_ir):
            with pytest.raises(ValueError, match="unknown"):
                asked("nonsense")

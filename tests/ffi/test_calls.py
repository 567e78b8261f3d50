"""Foreign functions compiled against jaxlib's headers: values, states, errors, transformations, beside JAX's."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.ffi.library import loaded, loaded_in_jax
from weft import errors, lax
from weft.experimental.layout import Layout

ffi = weft.ffi
S = weft.ShapeDtypeStruct
X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def library() -> ctypes.CDLL:
    return loaded()


@pytest.fixture(scope="module")
def jax_(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded_in_jax(tmp_path_factory.getbasetemp())


def scaled(x: Any, scale: float = 2, shift: float = 1, **options: Any) -> Any:
    call = ffi.ffi_call("scale_shift", S(x.shape, x.dtype), **options)
    return call(x, scale=np.float32(scale), shift=np.float32(shift))


def normalized(x: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + eps)


def norm(x: Any, **options: Any) -> Any:
    return ffi.ffi_call("rms_norm", S(x.shape, x.dtype), **options)(x, eps=np.float32(1e-5))


def total(api: Any, *xs: Any, inner: bool = False, weights: Any = None, name: str = "a sum") -> Any:
    """The call of ``totals``, by weft or by JAX, whose dictionaries have no others inside."""
    struct = api.ShapeDtypeStruct
    types = [struct((len(xs),), np.float64), struct((len(xs),), np.int64), struct(np.shape(xs[0]), np.float32)]
    weights = np.arange(1, len(xs) + 1) if weights is None else weights
    options = {"power": 2.0, "unused": np.float32(1), **({"inner": {"flag": True}} if inner else {})}
    call = api.ffi.ffi_call("totals", [*types, struct((8,), np.uint8)])
    return call(*xs, name=name, weights=weights, options=options)


# -- values -----------------------------------------------------------------------------------------------------------


def test_an_elementwise_function_with_attributes() -> None:
    for call in (scaled, weft.jit(scaled)):
        np.testing.assert_array_equal(call(X), X * np.float32(2) + np.float32(1))


def test_between_kernels_of_a_program() -> None:
    made = weft.jit(lambda x: scaled(jnp.sin(x)) + jnp.cos(x))(X)
    np.testing.assert_allclose(made, 2 * np.sin(X) + 1 + np.cos(X), rtol=1e-6, atol=1e-6)


def test_several_results_ranks_and_attributes_of_every_kind() -> None:
    xs = [X, X[0], np.float32(3)]
    for run in (lambda *xs: total(weft, *xs, inner=True), weft.jit(lambda *xs: total(weft, *xs, inner=True))):
        sums, ranks, first, text = run(*xs)
        expected = [(x.astype(np.float64) ** 2).sum() * (i + 1) + 0.5 for i, x in enumerate(xs)]
        np.testing.assert_allclose(sums, expected, rtol=1e-12)
        assert sums.dtype == np.float64 and np.asarray(ranks).tolist() == [2, 1, 0]
        np.testing.assert_array_equal(first, X)
        assert bytes(np.asarray(text)).rstrip(b"\0") == b"a sum"


def test_attributes_in_another_byte_order_and_texts_of_numpy() -> None:
    sums, _, _, text = total(weft, X[0], X[1], weights=np.array([3, 5], ">i8"), name=np.str_("é"))
    np.testing.assert_allclose(sums, [3 * (X[0] ** 2).sum(), 5 * (X[1] ** 2).sum()], rtol=1e-6)
    assert bytes(np.asarray(text)).rstrip(b"\0") == "é".encode()


@pytest.mark.oracle
def test_the_same_values_as_in_jax(jax_: Any) -> None:
    call = jax_.ffi.ffi_call("scale_shift", jax_.ShapeDtypeStruct(X.shape, X.dtype))
    np.testing.assert_array_equal(scaled(X), call(X, scale=np.float32(2), shift=np.float32(1)))
    for ours, theirs in zip(total(weft, X, X[0]), total(jax_, X, X[0]), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = [
        [int(f()) for _ in range(3)]
        for f in (
            weft.jit(lambda: ffi.ffi_call("count", S((), np.int32), has_side_effect=True)(start=5)),
            jax_.jit(
                lambda: jax_.ffi.ffi_call("count", jax_.ShapeDtypeStruct((), np.int32), has_side_effect=True)(start=5)
            ),
        )
    ]
    assert ours == theirs == [6, 7, 8]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]
)
def test_vmap_as_in_jax(jax_: Any, method: str) -> None:
    def mapped(api: Any) -> Any:
        call = api.ffi.ffi_call("rms_norm", api.ShapeDtypeStruct((4,), np.float32), vmap_method=method)
        return api.vmap(lambda x: call(x, eps=np.float32(0.1)))(X)

    np.testing.assert_array_equal(mapped(weft), mapped(jax_))


@pytest.mark.parametrize("method, shapes", [("expand_dims", [2, 1]), ("broadcast_all", [2, 2]), ("sequential", [1, 1])])
def test_what_a_mapped_function_is_told(method: str, shapes: list[int]) -> None:
    """Of an operand that is mapped, and of one that is not: their elements, as ``totals`` counts them by power 0."""

    def call(x: Any, y: Any) -> Any:
        result = [S((2,), np.float64), S((2,), np.int64), S(x.shape, x.dtype), S((8,), np.uint8)]
        return ffi.ffi_call("totals", result, vmap_method=method)(
            x, y, name="", weights=np.ones(2, int), options={"power": 0.0}
        )

    sums = np.asarray(weft.vmap(call, (0, None))(X[:2], X[0])[0]).reshape(-1)[:2]
    assert sums.tolist() == [4 * n for n in shapes]


@pytest.mark.parametrize("dtype, number", [
    (np.bool_, 1), (np.int8, 2), (np.int16, 3), (np.int32, 4), (np.int64, 5), (np.uint8, 6), (np.uint16, 7),
    (np.uint32, 8), (np.uint64, 9), (np.float16, 10), (np.float32, 11), (np.float64, 12), (np.complex64, 15),
    (jnp.bfloat16, 16), (np.complex128, 18), (jnp.float8_e5m2, 19), (jnp.float8_e4m3fn, 20),
])  # fmt: skip
def test_dtypes_and_shapes_arrive(dtype: Any, number: int) -> None:
    with weft.enable_x64(True):
        x = (np.arange(6).reshape(1, 2, 3) % 2).astype(dtype)
        y, told = weft.jit(lambda x: ffi.ffi_call("raw", [S(x.shape, x.dtype), S((4,), np.int64)])(x))(x)
        assert np.asarray(told).tolist() == [number, 1, 2, 3] and np.asarray(y).tobytes() == x.tobytes()


def test_arrays_without_elements_and_scalars() -> None:
    assert scaled(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert float(scaled(np.float32(4))) == 9
    assert ffi.ffi_call("effect", ())(milliseconds=0) == () and ffi.ffi_call("effect", [])(milliseconds=0) == []


def test_random_keys_arrive_as_words() -> None:
    key = weft.random.key(7)
    words, told = weft.jit(lambda k: ffi.ffi_call("raw", [S((2,), np.uint32), S((2,), np.int64)])(k))(key)
    np.testing.assert_array_equal(words, weft.random.key_data(key))
    assert np.asarray(told).tolist() == [8, 2]


# -- memory -----------------------------------------------------------------------------------------------------------


def added(x: Any) -> Any:
    return ffi.ffi_call("in_place", S(x.shape, x.dtype), input_output_aliases={0: 0})(x)


def test_a_result_in_the_memory_of_an_operand() -> None:
    x = jnp.asarray(X)
    np.testing.assert_array_equal(added(x), X + 1)
    np.testing.assert_array_equal(x, X)  # not donated: copied
    y, kept = weft.jit(lambda x: (added(jnp.sin(x)), jnp.sin(x)))(X)
    np.testing.assert_allclose(y, np.sin(X) + 1, rtol=1e-6)
    np.testing.assert_allclose(kept, np.sin(X), rtol=1e-6)
    np.testing.assert_array_equal(weft.jit(lambda x: added(added(x)))(X), X + 2)


def test_a_donated_operand_is_updated_where_it_is() -> None:
    donating = weft.jit(added, donate_argnums=0)
    x = jnp.zeros(1 << 16, np.float32) + 1
    assert "output 0: donated 0" in donating.lower(x).compile().as_text("plan")
    np.testing.assert_array_equal(donating(x), np.full(1 << 16, 2, np.float32))
    assert x.is_deleted()


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized"])
def test_a_mapped_result_in_the_memory_of_an_operand_that_is_not_mapped(method: str) -> None:
    """``totals`` copies its first operand into its third result; both lie by columns."""
    x = X[:2, :3]
    types = [S((2,), np.float64), S((2,), np.int64), S(x.shape, x.dtype), S((8,), np.uint8)]
    columns: dict[str, Any] = {"input_layouts": [(1, 0), None], "output_layouts": [None, None, (1, 0), None]}
    call = ffi.ffi_call("totals", types, vmap_method=method, input_output_aliases={0: 2}, **columns)
    given = {"name": "", "weights": np.ones(2, int), "options": {"power": 0.0}}
    made = weft.vmap(lambda y: call(x, y, **given)[2])(X)
    np.testing.assert_array_equal(made, np.broadcast_to(x, (3, 2, 3)))


def test_layouts_are_made_before_and_after_the_call() -> None:
    """``raw`` copies bytes: of a column-major operand a row-major result has the transposed order."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    types = [S((2, 3), np.float32), S((3,), np.int64)]
    y, told = weft.jit(lambda x: ffi.ffi_call("raw", types, input_layouts=[(1, 0)])(x))(x)
    np.testing.assert_array_equal(np.asarray(y).ravel(), x.T.ravel())
    assert np.asarray(told).tolist() == [11, 2, 3]
    y, _ = ffi.ffi_call("raw", types, output_layouts=[(1, 0), None])(x)
    np.testing.assert_array_equal(np.asarray(y), x.ravel().reshape(3, 2).T)
    layout = Layout((1, 0))
    y, _ = ffi.ffi_call("raw", types, input_layouts=[layout], output_layouts=[layout, (0,)])(x)
    np.testing.assert_array_equal(y, x)
    batched, _ = weft.vmap(ffi.ffi_call("raw", types, input_layouts=[(1, 0)], vmap_method="sequential"))(
        np.stack([x, x + 6])
    )
    np.testing.assert_array_equal(np.asarray(batched)[1].ravel(), (x + 6).T.ravel())


# -- control flow and devices -----------------------------------------------------------------------------------------


def test_in_loops_and_branches() -> None:
    def step(i: Any, x: Any) -> Any:
        return lax.cond(i % 2 == 0, scaled, lambda x: x - 1, x)

    expected = X.copy()
    for i in range(5):
        expected = expected * 2 + 1 if i % 2 == 0 else expected - 1
    np.testing.assert_array_equal(weft.jit(lambda x: lax.fori_loop(0, 5, step, x))(X), expected)
    _, rows = weft.jit(lambda x: lax.scan(lambda c, row: (added(c), scaled(row)), jnp.zeros(3), x))(X)
    np.testing.assert_array_equal(rows, X * 2 + 1)


def test_a_call_for_its_effect_happens_once_each_time(library: ctypes.CDLL) -> None:
    def run(effect: bool) -> int:
        before = library.calls_made()
        call = ffi.ffi_call("effect", (), has_side_effect=effect)
        weft.jit(
            lambda x: (call(milliseconds=0), lax.fori_loop(0, 3, lambda i, s: (call(milliseconds=0), s)[1], x + 1))[1]
        )(X)
        weft.effects_barrier()
        return library.calls_made() - before

    assert run(True) == 4
    assert run(False) == 0


def test_the_gil_is_free_while_a_function_runs(library: ctypes.CDLL) -> None:
    library.set_word(0)
    setter = threading.Timer(0.02, library.set_word, [3])
    setter.start()
    assert int(ffi.ffi_call("slow", S((), np.int32))()) == 3
    setter.join()


@pytest.mark.parametrize("method", [None, "broadcast_all", "sequential"])
def test_under_shard_map(method: str | None) -> None:
    mesh = weft.sharding.AbstractMesh((3,), ("i",))
    cut = weft.shard_map(lambda x: norm(x, vmap_method=method), mesh=mesh, in_specs=weft.P("i"), out_specs=weft.P("i"))
    for call in (cut, weft.jit(cut)):
        np.testing.assert_allclose(call(X), normalized(X), rtol=1e-5)


def test_a_derivative_of_the_users() -> None:
    @weft.custom_vjp
    def f(x: Any) -> Any:
        return scaled(x, 3, 0)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (scaled(ct, 3, 0),))
    np.testing.assert_array_equal(weft.grad(lambda x: f(x).sum())(X), np.full_like(X, 3))
    for transform in (weft.grad(lambda x: scaled(x).sum()), lambda x: weft.jvp(scaled, (x,), (x,))):
        with pytest.raises(
            ValueError, match=r"FFI call to `scale_shift` cannot be differentiated.*custom_jvp.*custom_vjp"
        ):
            transform(X)


# -- what a call may ask ----------------------------------------------------------------------------------------------


def test_a_state_belongs_to_the_call_site(library: ctypes.CDLL) -> None:
    count = ffi.ffi_call("count", S((), np.int32), has_side_effect=True)
    before = library.counts_living()
    f = weft.jit(lambda: (count(start=10), count(start=100)))
    assert [tuple(int(x) for x in f()) for _ in range(2)] == [(11, 101), (12, 102)]
    assert library.counts_living() == before + 2
    f()
    with pytest.raises(errors.JaxRuntimeError, match=r"RESOURCE_EXHAUSTED: it has counted three times"):
        weft.block_until_ready(f())
    with pytest.raises(
        errors.JaxRuntimeError, match=r"(?s)INVALID_ARGUMENT: a count begins at 0.*'count'.*test_calls.py"
    ):
        weft.jit(lambda: count(start=-1))()


def test_stages_run_in_order(library: ctypes.CDLL) -> None:
    f = weft.jit(lambda: ffi.ffi_call("note", (), has_side_effect=True)())
    before = library.stages_seen()
    for _ in range(2):
        f()
    weft.effects_barrier()
    assert library.stages_seen()[len(before) :] == b"ipnepne"


def test_working_memory_threads_run_and_device() -> None:
    def ask() -> Any:
        return ffi.ffi_call("context", S((5,), np.int64), has_side_effect=True)()

    first, second = np.asarray(weft.jit(lambda: (ask(), ask()))())
    again = np.asarray(ask())
    assert first[0] == second[0] != again[0]  # two calls of one run, another run
    for found in (first, second, again):
        assert found[1:].tolist()[0] == 0 and found[2] >= 1 and found[3] == sum(range(8)) and found[4] == 0


def test_the_cpu_has_no_stream() -> None:
    with pytest.raises(errors.JaxRuntimeError, match=r"(?s)stream.*CPU"):
        ffi.ffi_call("needs_stream", (), has_side_effect=True)()


def test_a_result_that_is_there_later() -> None:
    later = ffi.ffi_call("later", S((), np.float32))
    assert float(weft.jit(lambda: later(fails=False) + 1)()) == 8
    with pytest.raises(errors.JaxRuntimeError, match="INTERNAL: it failed later"):
        later(fails=True).block_until_ready()


def test_functions_of_bare_pointers() -> None:
    a = np.arange(4, dtype=np.float32)
    for version in (1, 2):
        call = ffi.ffi_call("add_pointers", S((4,), np.float32), custom_call_api_version=version)
        np.testing.assert_array_equal(weft.jit(call)(a, a), 2 * a)
    types = [S((), np.int32)] * 2
    call = ffi.ffi_call("text_pointers", types, custom_call_api_version=3, legacy_backend_config="Abc")
    assert [int(x) for x in call(np.int32(10))] == [13, ord("A")]
    with pytest.raises(ValueError, match="attributes requires a custom call API version of at least 4"):
        call(np.int32(1), a=1)
    with pytest.raises(ValueError, match=r"requires custom_call_api_version < 4; got 4"):
        ffi.ffi_call("text_pointers", types, legacy_backend_config="Abc")
    with pytest.raises(ValueError, match=r"custom_call_api_version=4.*api_version=0"):
        ffi.ffi_call("add_pointers", S((4,), np.float32))(a, a)
    with pytest.raises(NotImplementedError, match="custom_call_api_version=0"):
        ffi.ffi_call("add_pointers", S((4,), np.float32), custom_call_api_version=0)


def test_plain_c_by_ctypes() -> None:
    """A function of the C library, on each element by ``pure_callback``."""
    hypot = ctypes.CDLL("libm.so.6").hypot
    hypot.restype, hypot.argtypes = ctypes.c_double, [ctypes.c_double] * 2
    each = np.vectorize(hypot, otypes=[np.float32])
    made = weft.jit(lambda x, y: weft.pure_callback(each, S(x.shape, x.dtype), x, y, vmap_method="expand_dims"))(X, X)
    np.testing.assert_allclose(made, np.abs(X) * math.sqrt(2), rtol=1e-6)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_wrong_operands_are_told_by_the_function() -> None:
    def error(call: Any, match: str) -> None:
        with pytest.raises(errors.JaxRuntimeError, match=match):
            weft.block_until_ready(weft.jit(call)())

    def call(*xs: Any, **attributes: Any) -> Any:
        return ffi.ffi_call("scale_shift", S(X.shape, np.float32))(*xs, **attributes)

    right = {"scale": np.float32(1), "shift": np.float32(1)}
    error(lambda: call(X, X, **right), r"INVALID_ARGUMENT: .*Wrong number of arguments: expected 1 but got 2")
    error(lambda: call(X.astype(np.int32), **right), r"(?s)Wrong buffer dtype: expected F32 but got S32.*'scale_shift'")
    error(lambda: call(X, scale=1.0, shift=np.float32(1)), r"(?s)expected F32 but got F64")
    error(lambda: call(X, scale=np.float32(1)), r"Wrong number of attributes: expected 2 but got 1")
    error(lambda: norm(np.float32(1)), r"(?s)^INVALID_ARGUMENT: rms_norm takes an array of rows.*test_calls\.py")
    error(lambda: ffi.ffi_call("throws", (), has_side_effect=True)(), r"INTERNAL: .*C\+\+ exception: thrown in C\+\+")
    error(lambda: ffi.ffi_call("throws_number", (), has_side_effect=True)(), r"INTERNAL: .*C\+\+ exception")
    error(lambda: ffi.ffi_call("in_place", S(X.shape, X.dtype))(X), r"FAILED_PRECONDITION: they do not share memory")


def test_a_target_that_nobody_registered() -> None:
    with pytest.raises(
        errors.JaxRuntimeError, match=r"(?s)'none_such'.*registered are:.*'rms_norm' \(cpu\).*register_ffi_target"
    ):
        weft.jit(lambda: ffi.ffi_call("none_such", S((), np.float32))())()


def test_a_name_keeps_its_function(library: ctypes.CDLL) -> None:
    ffi.register_ffi_target("rms_norm", ffi.pycapsule(library.rms_norm))  # the same again
    with pytest.raises(ValueError, match="'rms_norm' is registered for cpu with another function"):
        ffi.register_ffi_target("rms_norm", library.scale_shift)


@pytest.mark.parametrize("given, match", [
    ({"name": "a", "fn": None}, "no function for its stage 'execute'"),
    ({"name": "a", "fn": {"run": 1}}, "are no stages"),
    ({"name": "a", "fn": "text"}, "of type str"),
    ({"name": "a", "fn": 1, "platform": "abacus"}, "platform='abacus'"),
    ({"name": "a", "fn": 1, "api_version": 4}, "api_version is 1"),
])  # fmt: skip
def test_wrong_registrations(given: dict[str, Any], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        ffi.register_ffi_target(**given)


def test_wrong_calls() -> None:
    f32 = S((2, 3), np.float32)
    x = np.zeros((2, 3), np.float32)
    for make, match in [
        (lambda: ffi.ffi_call("a", f32, vmap_method="all"), "vmap_method must be on of the allowed methods"),
        (lambda: ffi.ffi_call("a", None), "position 0"),
        (lambda: ffi.ffi_call("a", (f32, ())), "position 1"),
        (lambda: ffi.ffi_call("a", f32, input_layouts=[None, None])(x), "number of input arguments"),
        (lambda: ffi.ffi_call("a", f32, input_layouts=[(0, 0)])(x), r"layout \(0, 0\) of input 0"),
        (lambda: ffi.ffi_call("a", f32, input_output_aliases={1: 0})(x), "input index 1 outside"),
        (lambda: ffi.ffi_call("a", f32, input_output_aliases={0: 1})(x), "output index 1 outside"),
        (lambda: ffi.ffi_call("a", f32, input_output_aliases={0: 0})(x[0]), "different abstract value"),
        (lambda: ffi.ffi_call("a", f32, input_layouts=[(1, 0)], input_output_aliases={0: 0})(x), "different layout"),
        (lambda: ffi.ffi_call("a", f32)(x, a=[1, 2]), "the attribute a is"),
        (lambda: ffi.ffi_call("a", f32)(x, a={"b": {1: 2}}), "keys of the attribute"),
        (lambda: weft.jit(lambda y: ffi.ffi_call("a", f32)(x, a=y))(1), "traced value"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=match):
            make()
    with pytest.raises(OverflowError, match="int64"):
        ffi.ffi_call("a", f32)(x, a=1 << 70)
    with pytest.raises(NotImplementedError, match="Got vmap_method=None"):
        weft.vmap(lambda x: scaled(x))(X)


# -- programs on disk and exported ------------------------------------------------------------------------------------


def test_values_of_attributes_make_different_programs() -> None:
    f = weft.jit(scaled, static_argnums=(1, 2))
    assert [float(f(np.float32(1), *given)) for given in ((2, 0), (3, 0), (True, 0))] == [2, 3, 1]
    calls = [total(weft, X[0], weights=np.array([w]), name=name)[0] for w, name in ((1, "a"), (2, "b"))]
    assert float(calls[1][0]) == 2 * float(calls[0][0])


def test_an_exported_function_names_its_targets(tmp_path: Path) -> None:
    f = weft.jit(
        lambda x: total(weft, added(x), name='a "quote"', inner=True)[0] + norm(x, input_layouts=[(0, 1)]).sum()
    )
    with pytest.raises(ValueError, match=r"(?s)no compatibility guarantees.*in_place"):
        weft.export.export(f)(S(X.shape, X.dtype))
    checks = [weft.export.DisabledSafetyCheck.custom_call(name) for name in ("totals", "in_place", "rms_norm")]
    exported = weft.export.export(f, disabled_checks=checks)(S(X.shape, X.dtype))
    assert "rms_norm" in exported.mlir_module()
    with pytest.raises(NotImplementedError, match="unknown sizes"):
        weft.export.export(weft.jit(norm), disabled_checks=checks)(S(weft.export.symbolic_shape("a, 4"), X.dtype))
    read = weft.export.deserialize(exported.serialize())
    np.testing.assert_allclose(read.call(X), f(X), rtol=1e-12)


@pytest.mark.oracle
def test_texts_in_files_are_those_of_jax(jax_: Any) -> None:
    name = 'a\\ab"\n\\'  # whose backslashes MLIR doubles
    for writer, reader in ((jax_, weft), (weft, jax_), (weft, weft)):
        f = writer.jit(lambda x, writer=writer: total(writer, x, name=name)[3])
        checks = [writer.export.DisabledSafetyCheck.custom_call("totals")]
        file = writer.export.export(f, disabled_checks=checks)(writer.ShapeDtypeStruct((4,), np.float32)).serialize()
        text = reader.export.deserialize(file).call(X[0])
        assert bytes(np.asarray(text)).rstrip(b"\0") == name.encode()


def test_names_of_attributes_in_a_file() -> None:
    f = weft.jit(lambda x: ffi.ffi_call("raw", S(x.shape, x.dtype))(x, **{"é": 1, 'a "b"': {"c.d": 2}}))
    checks = [weft.export.DisabledSafetyCheck.custom_call("raw")]
    file = weft.export.export(f, disabled_checks=checks)(S((4,), np.float32)).serialize()
    program = str(weft.make_jaxpr(weft.export.deserialize(file).call)(X[0]))
    assert "(a \"b\"={'c.d': np.int64(2)}, é=np.int64(1))" in program, program


def test_lowered_text_says_what_is_called() -> None:
    text = weft.jit(lambda x: scaled(x, has_side_effect=True, input_layouts=[(1, 0)])).lower(X).as_text()
    for part in (
        '"scale_shift"',
        "has_side_effect = true",
        "scale = 2.000000e+00 : f32",
        "dense<[0, 1]> : tensor<2xindex>",
    ):
        assert part in text, text


def test_a_lowering_of_a_primitive_of_the_users() -> None:
    scale_p = weft.extend.core.Primitive("scale_by_function")
    scale_p.def_abstract_eval(lambda x, **_: x)
    weft.interpreters.mlir.register_lowering(
        scale_p, ffi.ffi_lowering("scale_shift", backend_config={"shift": np.float32(1)}, operand_layouts=[(1, 0)])
    )
    np.testing.assert_array_equal(weft.jit(lambda x: scale_p.bind(x, scale=np.float32(3)))(X), X * 3 + 1)
    turned_p = weft.extend.core.Primitive("turned_by_function")
    turned_p.multiple_results = True
    turned_p.def_abstract_eval(lambda x: [x, weft.core.ShapedArray((3,), np.dtype("int64"))])
    weft.interpreters.mlir.register_lowering(turned_p, ffi.build_ffi_lowering_function("raw", operand_layouts=[(0, 1)]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)  # of which the innermost dimension is named first
    np.testing.assert_array_equal(np.asarray(weft.jit(turned_p.bind)(x)[0]).ravel(), x.T.ravel())
    wrong = weft.extend.core.Primitive("lowered_with_a_text")
    wrong.def_abstract_eval(lambda x: x)
    weft.interpreters.mlir.register_lowering(wrong, ffi.ffi_lowering("scale_shift", backend_config="text"))
    with pytest.raises(ValueError, match=r"backend_config='text' .*api_version is below 4"):
        weft.jit(wrong.bind)(X)
    with pytest.raises(NotImplementedError, match="called_computations"):
        ffi.ffi_lowering("raw", called_computations=["f"])


def test_headers_are_found_where_weft_stands_in_for_jax() -> None:
    code = "import weft; weft.install_as_jax(); import jax.ffi; print(jax.ffi.include_dir())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == ffi.include_dir()


def test_headers_and_names_that_only_say_something() -> None:
    assert all(
        (Path(ffi.include_dir()) / "xla" / "ffi" / "api" / f"{name}.h").exists() for name in ("ffi", "api", "c_api")
    )
    ffi.register_ffi_target_as_batch_partitionable("rms_norm")
    with pytest.raises(ValueError, match="register_ffi_type_id is not supported"):
        ffi.register_ffi_type_id("T", ffi.pycapsule(1))
    with pytest.raises(ValueError, match="pass a dictionary with 'type_id'"):
        ffi.register_ffi_type("T", {"id": 1})

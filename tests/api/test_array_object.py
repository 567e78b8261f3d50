"""Array as an object: text, scalars, copies, pickles, devices, and the errors NumPy gives."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: wnp.arange(3.0), "Array([0., 1., 2.], dtype=float32)"),
        (lambda: wnp.float32(2.5), "Array(2.5, dtype=float32)"),
        (lambda: wnp.asarray(1.0), "Array(1., dtype=float32, weak_type=True)"),
        (lambda: wnp.zeros((0, 3)), "Array([], shape=(0, 3), dtype=float32)"),
        (lambda: wnp.array([True, False]), "Array([ True, False], dtype=bool)"),
        (lambda: wnp.array([1, 2], wnp.bfloat16), "Array([1, 2], dtype=bfloat16)"),
        (lambda: wnp.array([1 + 2j]), "Array([1.+2.j], dtype=complex64)"),
        (lambda: wnp.ones((2, 2), wnp.int8), "Array([[1, 1],\n       [1, 1]], dtype=int8)"),
        (
            lambda: wnp.arange(2000.0),
            "Array([0.000e+00, 1.000e+00, 2.000e+00, ..., 1.997e+03, 1.998e+03,\n       1.999e+03], dtype=float32)",
        ),
    ],
)
def test_repr(value, text: str) -> None:
    assert repr(value()) == text


@pytest.mark.oracle
def test_repr_is_that_of_jax() -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    generator = np.random.default_rng(0)
    dtypes = ["float32", "int32", "int8", "uint8", "bool", "complex64", "float16", ml_dtypes.bfloat16]
    for number in range(300):
        shape = tuple(generator.integers(0, 9, size=generator.integers(0, 4)))
        values = (generator.normal(size=shape) * 10 ** generator.integers(0, 5)).astype(dtypes[number % len(dtypes)])
        ours, theirs = wnp.asarray(values), jax_numpy.asarray(values)
        assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))


def test_formatting() -> None:
    assert f"{wnp.float32(2.5):.2f} {wnp.int32(3):5d} {wnp.arange(3.0)}" == "2.50     3 [0. 1. 2.]"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{wnp.arange(3.0):.2f}"


def test_python_scalars() -> None:
    x, i = wnp.float32(2.5), wnp.int32(3)
    assert (int(x), float(i), complex(x), operator.index(i), bool(i), hex(i)) == (2, 3.0, 2.5 + 0j, 3, True, "0x3")
    assert (x.item(), wnp.arange(3.0).item(1), wnp.ones((2, 2)).item(1, 1)) == (2.5, 1.0, 1.0)
    assert wnp.ones((2, 2), int).tolist() == [[1, 1], [1, 1]]
    assert wnp.array([1, 2], wnp.bfloat16).tolist() == [1.0, 2.0]
    assert wnp.arange(2, dtype=wnp.int8).tobytes() == b"\x00\x01"
    assert [1, 2, 3][wnp.int32(1)] == 2


@pytest.mark.parametrize("order", ["C", "F", "f", "A", "K", None])
def test_tobytes_takes_the_orders_of_numpy(order: str | None) -> None:
    x = wnp.arange(6).reshape(2, 3)
    assert x.tobytes(order) == np.asarray(x).tobytes(order)  # type: ignore[arg-type]  # NumPy's stubs know capitals


def test_tobytes_refuses_other_orders() -> None:
    with pytest.raises(ValueError, match="order must be one of"):
        wnp.ones(2).tobytes("X")


@pytest.mark.parametrize(
    ("attempt", "error", "text"),
    [
        (lambda: hash(wnp.ones(2)), TypeError, "unhashable type"),
        (lambda: {wnp.ones(2): 1}, TypeError, "unhashable type"),
        (lambda: bool(wnp.ones(2)), ValueError, "more than one element is ambiguous"),
        (lambda: bool(wnp.ones(0)), ValueError, "truth value of an empty array is ambiguous"),
        (lambda: int(wnp.ones(1)), TypeError, r"Only scalar arrays can be converted to Python scalars; got arr.ndim=1"),
        (lambda: float(wnp.ones((1, 1))), TypeError, "got arr.ndim=2"),
        (lambda: float(wnp.array(1j)), TypeError, "not 'complex'"),
        (lambda: operator.index(wnp.float32(1)), TypeError, "Only integer scalar arrays"),
        (lambda: operator.index(wnp.ones(1, int)), TypeError, "Only integer scalar arrays"),
        (lambda: len(wnp.float32(1)), TypeError, r"len\(\) of unsized object"),
        (lambda: iter(wnp.float32(1)), TypeError, "iteration over a 0-d array"),
        (lambda: wnp.arange(3.0).item(), ValueError, "can only convert an array of size 1"),
        (lambda: wnp.arange(3.0).item(5), IndexError, "out of bounds"),
        (lambda: operator.setitem(wnp.ones(2), 0, 1), TypeError, r"arrays are immutable.*x.at\[idx\].set\(y\)"),
        (lambda: wnp.ones(2).nonsense, AttributeError, "nonsense"),
        (lambda: weft.Array(), TypeError, "weft.numpy.array"),
    ],
)
def test_errors(attempt, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        attempt()


def test_iteration_and_length() -> None:
    x = wnp.arange(6.0).reshape(3, 2)
    assert len(x) == 3
    assert [row.tolist() for row in x] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert all(isinstance(value, weft.Array) for value in wnp.arange(3))
    assert 1.0 in wnp.arange(3.0)
    assert next(iter(wnp.asarray([1.5]))).dtype == np.float32


def test_isinstance_holds_for_traced_values() -> None:
    seen: list[bool] = []
    weft.jit(lambda x: (seen.append(isinstance(x, weft.Array)), x)[1])(1.0)
    assert seen == [True]
    assert isinstance(wnp.ones(1), weft.Array)
    assert isinstance(wnp.ones(1), wnp.ndarray)
    assert not isinstance(np.ones(1), weft.Array)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "complex64", ml_dtypes.bfloat16], ids=str)
def test_pickles_and_copies(dtype) -> None:
    x = wnp.asarray(np.arange(6).reshape(2, 3).astype(dtype))
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert repr(y) == repr(x)
    assert pickle.loads(pickle.dumps(wnp.asarray(1.5))).weak_type
    y = copy.copy(x)
    y.delete()
    assert not x.is_deleted()
    assert x.tolist()


@pytest.mark.parametrize(
    "shape", [(3, 50), (50, 3), (50, 50), (40, 1, 41), (7, 5, 11), (33,), (50, 0), (0, 50), (2, 0, 3)], ids=str
)
def test_lists_made_in_blocks_are_numpys(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr("weft._base.array._LONG_LIST", 32)
    values = np.arange(math.prod(shape), dtype=np.int16).reshape(shape)
    assert wnp.asarray(values).tolist() == values.tolist()


def test_numpy_meets_weft() -> None:
    x = wnp.arange(3.0)
    view = np.asarray(x)
    assert not view.flags.writeable
    assert view.__array_interface__["data"][0] == x.unsafe_buffer_pointer()
    assert isinstance(np.ones(3) + x, weft.Array)
    assert isinstance(np.float32(2) * x, weft.Array)
    assert isinstance(np.sin(x), np.ndarray)
    assert memoryview(x).readonly
    assert np.asarray(x, dtype=int).dtype == int
    assert x.__array_priority__ == 100
    assert x.__array_namespace__() is wnp
    del x
    assert view.tolist() == [0.0, 1.0, 2.0]


def test_devices() -> None:
    x = wnp.ones((2, 3))
    (device,) = weft.devices()
    assert (repr(device), str(device), device.platform, device.id) == ("CpuDevice(id=0)", "cpu:0", "cpu", 0)
    assert x.device is device
    assert x.devices() == {device}
    assert repr(x.sharding) == "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)"
    assert x.sharding == weft.sharding.SingleDeviceSharding(device)
    assert x.addressable_shards[0].data is x
    assert x.addressable_data(0) is x
    assert (x.is_fully_addressable, x.is_fully_replicated, x.platform()) == (True, True, "cpu")
    assert x.to_device(device).shape == (2, 3)
    assert (x.nbytes, x.itemsize, x.on_device_size_in_bytes()) == (24, 4, 24)
    assert pickle.loads(pickle.dumps(device)) is device
    assert (weft.device_count(), weft.local_device_count(), weft.process_count(), weft.process_index()) == (1, 1, 1, 0)
    assert weft.default_backend() == "cpu"
    with pytest.raises(RuntimeError, match="Platforms present are: cpu"):
        weft.devices("gpu")
    with pytest.raises(RuntimeError, match="Unknown backend nowhere"):
        weft.devices("nowhere")


def test_device_put_of_what_lies_there_is_the_same_array() -> None:
    """As in JAX, unless a copy is asked for or the operand is given up."""
    device = weft.devices()[0]
    free, held = wnp.arange(4.0), weft.device_put(wnp.arange(4.0), device)
    assert weft.device_put(free) is free and weft.device_put(held) is held
    assert weft.device_put(held, weft.sharding.SingleDeviceSharding(device)) is held
    assert weft.device_put(held, held.sharding) is held
    assert not free.committed and weft.device_put(free, device).committed
    copy = weft.device_put(held, may_alias=False)
    assert copy is not held and copy.unsafe_buffer_pointer() != held.unsafe_buffer_pointer()
    gone = wnp.arange(3.0)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        weft.device_put(gone)


def test_device_get_of_keys_and_of_what_has_array() -> None:
    keys = weft.random.split(weft.random.key(3), 4)
    got = weft.device_get({"keys": keys, "n": None, "text": "x"})
    assert got["keys"].dtype == keys.dtype and got["keys"].shape == (4,) and got["text"] == "x"
    np.testing.assert_array_equal(weft.random.key_data(got["keys"]), weft.random.key_data(keys))

    class Table:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3)

    np.testing.assert_array_equal(weft.device_get(Table()), np.arange(3))
    assert type(weft.device_get(2.5)) is float


def test_arrays_from_the_data_of_one_process() -> None:
    device, make = weft.devices()[0], weft.make_array_from_process_local_data
    sharding = weft.sharding.SingleDeviceSharding(device)
    for target in (device, sharding):
        made = make(target, np.arange(4.0), (4,))
        assert made.committed and made.devices() == {device} and made.dtype == np.float32
    tree = make({"a": device, "b": sharding}, {"a": np.arange(3), "b": [np.ones((2, 2)), 1.0]})
    assert tree["a"].tolist() == [0, 1, 2] and tree["b"][0].shape == (2, 2) and tree["b"][1].shape == ()
    shapes = make(sharding, [np.ones(2), np.ones((1, 3))], [(2,), (1, 3)])
    assert [x.shape for x in shapes] == [(2,), (1, 3)]
    with pytest.raises(ValueError, match=r"equal to local_data\.shape"):
        make(sharding, np.ones(2), (3,))
    with pytest.raises(TypeError, match="got 'cpu'"):
        make("cpu", np.ones(2))


def test_device_put_and_get() -> None:
    tree = weft.device_put({"a": 1, "b": [np.ones(2), None]})
    assert repr(tree) == ("{'a': Array(1, dtype=int32, weak_type=True), 'b': [Array([1., 1.], dtype=float32), None]}")
    x = wnp.ones(3)
    same = weft.device_put(x, weft.devices()[0])
    assert same.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert weft.device_put(x, may_alias=False).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert weft.device_put((1.0, 2.0), (weft.devices()[0], None))[1] == 2.0
    weft.device_put(x, donate=True)
    assert x.is_deleted()
    got = weft.device_get({"a": wnp.ones(2), "b": 2, "c": "x"})
    assert isinstance(got["a"], np.ndarray)
    assert (got["b"], got["c"]) == (2, "x")
    assert weft.block_until_ready(tree) is tree
    with pytest.raises(TypeError, match="is not a valid JAX type"):
        weft.device_put("x")
    with pytest.raises(ValueError, match="Received invalid value: x"):
        weft.device_put(1.0, "x")
    text = str(weft.make_jaxpr(lambda x: weft.device_put(x))(1.0))
    assert "device_put[\n      copy_semantics=(ArrayCopySemantics.REUSE_INPUT,)\n      devices=(None,)" in text
    assert weft.jit(weft.device_put)(1.5) == 1.5


def test_deleted_arrays() -> None:
    x = wnp.arange(3.0)
    x.delete()
    assert x.is_deleted()
    assert x.shape == (3,)
    for use in (repr, np.asarray, lambda v: v.tolist(), lambda v: v + 1, lambda v: weft.jit(lambda y: y * 2)(v)):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
            use(x)


def test_shape_dtype_struct() -> None:
    s = weft.ShapeDtypeStruct((2, 3), wnp.float32, weak_type=True)
    assert repr(s) == "ShapeDtypeStruct(shape=(2, 3), dtype=float32, weak_type=True)"
    assert (s.ndim, s.size, len(s)) == (2, 6, 2)
    assert s.update(shape=(1,)) == weft.ShapeDtypeStruct((1,), wnp.float32, weak_type=True)
    assert hash(s) == hash(s.update())
    assert pickle.loads(pickle.dumps(s)) == s
    assert weft.ShapeDtypeStruct.like(wnp.ones(3)).shape == (3,)
    with pytest.raises(ValueError, match="dtype must be specified"):
        weft.ShapeDtypeStruct((3,), None)
    with pytest.raises(TypeError, match="not iterable"):
        weft.ShapeDtypeStruct(3, wnp.float32)
    with pytest.raises(AttributeError, match="immutable"):
        s.shape = (1,)


def test_types_for_annotations() -> None:
    assert isinstance(wnp.ones(1), weft.typing.ArrayLike)
    assert isinstance(2.5, weft.typing.ArrayLike)
    assert not isinstance("text", weft.typing.ArrayLike)


ON_DEVICE = {
    "zeros": lambda **where: wnp.zeros(3, **where),
    "asarray": lambda **where: wnp.asarray([1], **where),
    "arange": lambda **where: wnp.arange(3, **where),
    "full_like": lambda **where: wnp.full_like(wnp.ones(3), 2, **where),
    "linspace": lambda **where: wnp.linspace(0, 1, 3, **where),
    "astype": lambda **where: wnp.ones(3).astype(int, **where),
    "from_dlpack": lambda **where: wnp.from_dlpack(np.ones(3), **where),
    "einsum": lambda **where: wnp.einsum("i->i", wnp.ones(3), **where),
    "reshape": lambda **where: wnp.ones(3).reshape(3, 1, **where),
    "matmul": lambda **where: wnp.matmul(wnp.ones(3), wnp.ones(3), **where),
    "uniform": lambda **where: weft.random.uniform(weft.random.key(0), (3,), **where),
    "constant": lambda **where: weft.nn.initializers.constant(1)(weft.random.key(0), (3,), **where),
}
ONLY_DEVICE = ("linspace", "astype", "from_dlpack")
ONLY_SHARDING = ("einsum", "reshape", "matmul", "uniform", "constant")


class Elsewhere(weft.sharding.Sharding):
    """A sharding over devices that do not exist."""

    @property
    def device_set(self) -> set[weft.Device]:
        return set()


@pytest.mark.parametrize("name", ON_DEVICE)
def test_placement_elsewhere_is_refused(name: str) -> None:
    one = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    if name not in ONLY_SHARDING:
        for where in (None, weft.devices()[0], one):
            ON_DEVICE[name](device=where)
        for where in ("tpu", "cpu", 3):
            with pytest.raises(ValueError, match="device is None, a device"):
                ON_DEVICE[name](device=where)
    if name not in ONLY_DEVICE:
        for where in (None, one):
            ON_DEVICE[name](out_sharding=where)
        for where in ("tpu", 3, weft.devices()[0]):
            with pytest.raises(TypeError, match="only supports instances of `NamedSharding`"):
                ON_DEVICE[name](out_sharding=where)
    with pytest.raises(NotImplementedError, match="concrete sharding"):
        ON_DEVICE[name](**{"out_sharding" if name in ONLY_SHARDING else "device": Elsewhere()})


def test_live_arrays() -> None:
    def live() -> set[int]:
        return {id(array) for array in weft.live_arrays()}

    kept = [wnp.full((2,), float(n)) for n in range(2000)]  # more than the free list holds
    assert {id(x) for x in kept} <= live()
    numbers = [id(x) for x in kept[::2]]
    kept = kept[1::2]
    found = live()
    assert {id(x) for x in kept} <= found
    assert not found & (set(numbers) - {id(x) for x in kept})
    kept[0].delete()
    assert id(kept[0]) not in live()
    again = wnp.ones(3)
    assert sum(x is again for x in weft.live_arrays("cpu")) == 1
    with pytest.raises(RuntimeError, match="Unknown backend"):
        weft.live_arrays("gpu")


def test_live_arrays_are_not_kept_alive() -> None:
    x = wnp.ones(5)
    reference = weakref.ref(x)
    assert any(y is x for y in weft.live_arrays())
    del x
    assert reference() is None

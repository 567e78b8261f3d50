"""Arrays and programs on GPUs through the native client, on the driver for tests: the bits are the CPU's."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import driver, native_build
from tests.gpu.client_programs import PTX, launching
from weft import lax, runtime
from weft.compiler.plans.instructions import Launch, NewOutput

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
X = np.random.default_rng(0).standard_normal((17, 33)).astype(np.float32)


@pytest.fixture
def default(device: Any) -> Iterator[Any]:
    with weft.default_device(device):
        yield device


def test_a_gpu_says_what_it_is(device: Any) -> None:
    assert (device.platform, str(device), repr(device)) == ("gpu", "cuda:0", "CudaDevice(id=0)")
    assert (
        device.compute_capability == "9.0" and device.device_vendor.startswith("NVIDIA") and device.coords == (0, 0, 0)
    )
    assert weft.devices("gpu") == weft.devices("cuda") and pickle.loads(pickle.dumps(device)) is device
    assert device.client.platform == "gpu" and device.client.device_count() == len(weft.devices("gpu"))
    assert weft.default_backend() == "cpu"  # of this run, which asks for the CPU (JAX_PLATFORMS)
    with weft.default_device(device):
        assert jnp.arange(3).device is device and (jnp.arange(3) + 1).device is device


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64",
     "float8_e4m3fn", "float8_e5m2", "int4"],
)  # fmt: skip
def test_arrays_go_there_and_back(device: Any, dtype: str) -> None:
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for shape in ((), (0,), (1,), (3, 5), (2, 0, 3), (1000, 77)):
        values = (np.arange(np.prod(shape, dtype=int)) % 7).reshape(shape).astype(own)
        there = weft.device_put(values, device)
        assert there.device is device and there.committed and there.dtype == own
        back = np.asarray(there)
        assert back.dtype == own and np.array_equal(back, values)
        again = weft.device_put(there, weft.devices("cpu")[0])
        assert again.device is weft.devices("cpu")[0] and np.array_equal(np.asarray(again), values)


def test_arrays_larger_than_a_piece_of_pinned_memory(device: Any) -> None:
    values = np.random.default_rng(1).integers(0, 255, 11_000_001, np.uint8)  # pieces have 4 MiB
    there = weft.device_put(values, device)
    assert np.array_equal(np.asarray(there), values)
    later = there + np.uint8(1)
    later.copy_to_host_async()
    del there
    assert np.array_equal(np.asarray(later), values + 1)


@pytest.fixture
def pinned(device: Any) -> Iterator[np.ndarray]:
    """Memory of the host that the driver knows, as other libraries give it to their arrays."""
    real = os.environ.get("WEFT_TEST_GPU") == "real"
    library = ctypes.CDLL("libcuda.so.1" if real else str(driver.path()))
    context, address = ctypes.c_void_p(), ctypes.c_void_p()
    for code in (
        library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        library.cuCtxPushCurrent_v2(context),
        library.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(200_000), 0),
    ):
        assert code == 0
    yield np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (50_000,))
    library.cuMemFreeHost(address)
    library.cuCtxPopCurrent_v2(ctypes.byref(context))
    library.cuDevicePrimaryCtxRelease_v2(0)


@pytest.mark.parametrize("count", [1, 1000, 50_000])
def test_memory_that_the_driver_reads_later_may_be_changed_at_once(device: Any, pinned: np.ndarray, count: int) -> None:
    work = weft.jit(lambda x: functools.reduce(lambda y, _: jnp.sin(y), range(20), x))
    busy = weft.device_put(np.ones(100_000, np.float32), device)
    work(busy)
    for value in (1.0, 2.0):
        pinned[:count] = value
        work(busy)  # the copy waits behind it
        shared = jnp.from_dlpack(pinned[:count])  # the CPU's array is this memory
        there = weft.device_put(shared, device)
        pinned[:count] = -1
        assert np.all(np.asarray(there) == value)


def test_64_bits(device: Any) -> None:
    with weft.enable_x64(True):
        for values in (np.arange(5, dtype=np.int64) << 40, np.linspace(0, 1, 7), np.ones(3, np.complex128) * 1j):
            there = weft.device_put(values, device)
            assert np.array_equal(np.asarray(there), values) and np.array_equal(np.asarray(there + there), values * 2)


def _loss(w: Any, x: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ w) - 0.5) ** 2)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x: jnp.exp(jnp.sin(x)) * x.sum(),
    "grad": lambda x: weft.grad(_loss)(x.T, x[:3]),
    "vmap": lambda x: weft.vmap(lambda row: jnp.cumsum(row)[::2])(x),
    "sort": lambda x: (jnp.sort(x, axis=0), jnp.argsort(x[0]), jnp.unique(x[0].round(), size=5)),
    "linalg": lambda x: jnp.linalg.solve(x @ x.T + 20 * jnp.eye(17), x),
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)),
    "random": lambda x: weft.random.normal(weft.random.key(3), (5, 7)) + x[:5, :7],
    "scan": lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c.sum()), x[0], x),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 900, lambda c: c + jnp.abs(x), x),
    "cond": lambda x: [lax.cond(x[i, 0] > 0, jnp.sin, jnp.cos, x[i]) for i in range(3)],
    "windows": lambda x: lax.dynamic_update_slice(x, x[:2, :3] * 2, (jnp.argmax(x[:, 0]) % 9, 4)),
    "joins": lambda x: (jnp.concatenate([x, x * 2], 1).T, jnp.pad(x, 2), jnp.zeros((4, 3)), jnp.tile(x, (2, 3))),
    "scatter": lambda x: x.at[jnp.array([1, 1, 5])].add(1.5).at[:, 3].set(0),
    "convolution": lambda x: lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME"),
    "indices": lambda x: (x.argmax(1), (x > 0).astype(jnp.int32).sum(), jnp.nonzero(x[0] > 0, size=9)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_bits_of_the_cpu(device: Any, name: str) -> None:
    jitted = weft.jit(PROGRAMS[name])
    expected = weft.tree.leaves(jitted(X))
    found = weft.tree.leaves(jitted(weft.device_put(X, device)))
    for mine, other in zip(found, expected, strict=True):
        assert mine.device is device and mine.dtype == other.dtype
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_eager_operations_and_what_they_are_given(default: Any) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    y = (x * 2 + np.float32(1))[1] @ jnp.ones((3,))
    assert y.device is default and float(y) == 27.0 and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert bool((x == np.arange(6).reshape(2, 3)).all()) and int(x.sum()) == 15
    y = weft.jit(lambda x, n: x + n)(x, 3)
    assert y.device is default and not y.committed
    assert [a for a in weft.live_arrays() if a is y]


def test_branches_of_platforms(device: Any) -> None:
    def f(x: Any) -> Any:
        def inner(v: Any) -> Any:
            return lax.platform_dependent(v, cpu=lambda a: a + 1, cuda=lambda a: a + 2, tpu=lambda a: a + 3)

        looped = lax.fori_loop(0, 3, lambda i, c: inner(c), x)
        return looped, lax.platform_dependent(x, cpu=lambda a: a * 0, default=lambda a: a * 4), weft.jit(inner)(x)

    there = weft.jit(f)(weft.device_put(np.float32(1), device))
    assert [float(v) for v in there] == [7, 4, 3]
    assert [float(v) for v in weft.jit(f)(np.float32(1))] == [4, 0, 2]
    with weft.default_device(device):
        assert [float(v) for v in f(jnp.float32(1))] == [7, 4, 3]


def test_callbacks_and_prints_are_steps_of_the_host(device: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        weft.debug.print("sum {}", x.sum())
        y = weft.pure_callback(lambda a: a[::-1], weft.ShapeDtypeStruct((33,), np.float32), x[0])
        return y + 1

    found = weft.jit(f)(weft.device_put(X, device))
    assert np.array_equal(np.asarray(found), X[0][::-1] + 1)
    weft.effects_barrier()
    assert capfd.readouterr().out.startswith("sum ")


def test_donated_memory_is_used_again(device: Any) -> None:
    step = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = weft.device_put(np.zeros(1000, np.float32), device)
    address = x.unsafe_buffer_pointer()
    y = step(x)
    assert x.is_deleted() and y.unsafe_buffer_pointer() == address and np.asarray(y).sum() == 1000
    shared = y.__dlpack__()  # whoever holds it may still read
    z = step(y)
    assert z.unsafe_buffer_pointer() != address and np.asarray(z).sum() == 2000
    del shared


def test_counts_of_memory(device: Any) -> None:
    gc.collect()
    before = device.memory_stats()
    x = weft.device_put(np.zeros(1 << 20, np.float32), device)
    x.block_until_ready()
    held = device.memory_stats()
    assert held["bytes_in_use"] - before["bytes_in_use"] == 4 << 20 and held["num_allocs"] == before["num_allocs"] + 1
    assert held["peak_bytes_in_use"] >= held["bytes_in_use"] <= held["pool_bytes"] <= held["bytes_limit"]
    assert held["largest_alloc_size"] >= 4 << 20
    del x
    assert device.memory_stats()["bytes_in_use"] == before["bytes_in_use"]
    for _ in range(50):  # the same block again and again
        weft.device_put(np.zeros(1 << 20, np.float32), device)
    assert device.memory_stats()["pool_bytes"] == held["pool_bytes"]


# -- launches ---------------------------------------------------------------------------------------------------------


def test_launches(device: Any) -> None:
    x = weft.device_put(np.arange(1000, dtype=np.float32), device)
    found = launching(device).run((x,))[0]
    assert found.device is device and np.array_equal(np.asarray(found), np.arange(1000) + 1)
    assert np.asarray(launching(device, scratch=5000).run((x,))[0])[9] == 10
    untouched = launching(device, blocks=0).run((x,))[0]  # no block: not launched
    assert untouched.shape == (1000,)
    with weft.default_device(device):
        assert float((found + 1)[3]) == 5.0  # beside steps of the host, in order


def test_the_second_entry_is_for_aligned_addresses(device: Any) -> None:
    x = weft.device_put(np.arange(1000, dtype=np.float32), device)
    assert np.asarray(launching(device, entries=("plus", "plus2")).run((x,))[0])[5] == 7  # 5 + 2
    assert np.asarray(launching(device, entries=("plus", "plus2"), offset=4).run((x,))[0])[5] == 7  # 6 + 1


def test_a_launch_is_checked(device: Any) -> None:
    aval = runtime.ShapedArray((4,), np.dtype("float32"))
    module = runtime.DeviceModule(PTX, ["plus"])
    locations = ((0, 0, -1), (1, 0, -1))

    def made(number: int = device.number, **changes: Any) -> Any:
        launch = Launch(module, locations, b"", (("plus", "", 1, 1, 32, 0),), (), 0, 1.0)._replace(**changes)
        return runtime.Executable(1, [NewOutput(16, aval)], [], 0, [launch], "checked", (aval,), number)

    made()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"number": 0}, "on one, not on cpu"),
        ({"grids": (("other", "", 1, 1, 32, 0),)}, "'other'"),
        ({"grids": (("plus", "", 1, 1, 2048, 0),)}, "impossible size"),
        ({"grids": (("plus", "", 1, 1),)}, "a launch is"),
        ({"wide": (2,)}, "no operand"),
        ({"operands": ((0, 20, -1),)}, "smaller"),
        ({"params": b"8" * 4096}, "more parameters"),
        ({"scratch_bytes": -1}, "negative"),
        ({"module": None}, "no DeviceModule"),
    ]
    for changes, words in wrong:
        with pytest.raises(ValueError, match=words):
            made(**changes)


def test_assembled_code_and_what_cannot_be(device: Any) -> None:
    code = runtime.assemble(device.number, PTX)
    x = weft.device_put(np.zeros(1000, np.float32), device)
    assert np.asarray(launching(device, image=code).run((x,))[0]).sum() == 1000
    with pytest.raises(weft.errors.JaxRuntimeError, match="assemble"):
        runtime.assemble(device.number, PTX.replace(b"add.f32", b"add.f33"))
    with pytest.raises(weft.errors.JaxRuntimeError, match="wrong"):
        launching(device, image=PTX.replace(b"add.f32", b"add.f33"), name="wrong").run((x,))
    assert np.asarray(launching(device).run((x,))[0]).sum() == 1000  # the device still works
    with pytest.raises(ValueError, match="no GPU"):
        runtime.assemble(0, PTX)


# -- memory of others -------------------------------------------------------------------------------------------------


class Foreign:
    """An array of another library, with the memory of one of weft's."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self.array, self.changes = array, changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, **self.changes}


class Dlpack:
    """The same by DLPack; it notes the stream it is told of."""

    def __init__(self, array: Any) -> None:
        self.array, self.streams = array, list[Any]()

    def __dlpack__(self, *, stream: Any = None, **how: Any) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=1, **how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_shares_memory(device: Any) -> None:
    x = weft.device_put(X, device)
    producer = Dlpack(x)
    y = jnp.from_dlpack(producer)
    assert x.__dlpack_device__() == (2, 0) and producer.streams[0] > 2  # the stream on which weft reads
    assert y.device is device and y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert np.array_equal(np.asarray(y + 1), X + 1)
    z = jnp.from_dlpack(producer, copy=True)
    assert z.unsafe_buffer_pointer() != x.unsafe_buffer_pointer() and np.array_equal(np.asarray(z), X)
    taken = weft.jit(lambda a: a * 2, donate_argnums=0)(y)  # memory of others is never written to
    assert np.array_equal(np.asarray(x), X) and np.array_equal(np.asarray(taken), X * 2)
    host = np.from_dlpack(weft.device_put(x, weft.devices("cpu")[0]))
    assert np.array_equal(host, X)
    for stream in (0, -2):
        with pytest.raises(ValueError, match="has no meaning"):
            x.__dlpack__(stream=stream)


def test_the_interface_of_cuda_arrays(device: Any) -> None:
    x = weft.device_put(X, device)
    facts = x.__cuda_array_interface__
    assert facts["shape"] == X.shape and facts["typestr"] == "<f4" and facts["version"] == 3
    assert facts["data"][0] == x.unsafe_buffer_pointer()
    y = jnp.asarray(Foreign(x))
    assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer() and y.device is device
    assert jnp.array(Foreign(x)).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    turned = jnp.asarray(Foreign(x, shape=(33, 17), strides=(4, 132)))
    assert np.array_equal(np.asarray(turned), X.T)
    backwards = Foreign(x, shape=(17,), strides=(-132,), data=(facts["data"][0] + 16 * 132, False))
    assert np.array_equal(np.asarray(jnp.asarray(backwards)), X[::-1, 0])
    assert jnp.asarray(Foreign(x), dtype=jnp.int32).dtype == jnp.int32
    with pytest.raises(TypeError, match="mask"):
        jnp.asarray(Foreign(x, mask=x))
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        x.astype(jnp.bfloat16).__cuda_array_interface__
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        weft.device_put(X, weft.devices("cpu")[0]).__cuda_array_interface__


def test_shared_memory_lives_as_long_as_its_holders(device: Any) -> None:
    gc.collect()
    before = device.memory_stats()["bytes_in_use"]
    x = weft.device_put(np.ones(100_000, np.float32), device)
    y = jnp.asarray(Foreign(x))
    del x
    assert float(y.sum()) == 100_000
    assert device.memory_stats()["bytes_in_use"] > before + 400_000 - 1
    del y
    gc.collect()
    assert device.memory_stats()["bytes_in_use"] == before

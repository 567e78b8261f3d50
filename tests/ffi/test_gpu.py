"""Foreign functions on a GPU, on the driver for tests: those of the CPU get copies, those for CUDA the stream."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.ffi.library import built, loaded
from tests.gpu import driver
from weft import errors, lax

X = np.linspace(-2, 3, 12, dtype=np.float32)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    loaded()
    weft.ffi.register_ffi_target("on_gpu", ctypes.CDLL(str(built())).on_gpu, platform="CUDA")
    with driver.gpus() as devices, weft.default_device(devices[0]):
        yield devices[0]


def scaled(x: Any, **attributes: Any) -> Any:
    return weft.ffi.ffi_call("scale_shift", weft.ShapeDtypeStruct(x.shape, x.dtype))(x, **attributes)


def copied(x: Any, path: str = "") -> Any:
    call = weft.ffi.ffi_call("on_gpu", weft.ShapeDtypeStruct(x.shape, x.dtype))
    return call(x, driver=path or str(driver.path()))


def test_a_function_of_the_cpu_gets_copies(device: Any) -> None:
    two = np.float32(2)

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: added(c) * 2, scaled(jnp.abs(x), scale=two, shift=two))

    def added(x: Any) -> Any:
        return weft.ffi.ffi_call("in_place", x, input_output_aliases={0: 0})(x)

    x = weft.device_put(X, device)
    made = weft.jit(f)(x)
    assert made.device is device
    np.testing.assert_array_equal(made, ((np.abs(X) * 2 + 2 + 1) * 2 + 1) * 2)
    with pytest.raises(errors.JaxRuntimeError, match="Wrong number of attributes"):
        weft.block_until_ready(weft.jit(lambda x: scaled(x, scale=two))(x))


def test_a_function_for_cuda_gets_addresses_and_the_stream(device: Any) -> None:
    x = weft.device_put(X, device)
    for call in (
        copied,
        weft.jit(lambda x: copied(x * 2) / 2),
        weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: copied(c), x)),
    ):
        made = call(x)
        assert made.device is device
        np.testing.assert_array_equal(made, X)
    with pytest.raises(errors.JaxRuntimeError, match=r"INTERNAL: no GPU"):
        weft.block_until_ready(weft.jit(lambda x: copied(x, "/no/such/library"))(x))
    with pytest.raises(errors.JaxRuntimeError, match=r"no target 'on_gpu' is registered for cpu.*'on_gpu' \(CUDA\)"):
        copied(weft.device_put(X, weft.devices("cpu")[0]))

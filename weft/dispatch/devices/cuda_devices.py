"""NVIDIA's GPUs, by weft's own programs and the driver alone: found as JAX finds them, the default where one is usable.

The driver (``libcuda.so.1``, or what ``WEFT_CUDA_LIBRARY`` names) is opened when somebody asks for a GPU, or for the
default device where no option says ``cpu``. A GPU that cannot be used is left out, and ``weft devices`` says why.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from weft import dtypes, errors, runtime
from weft._base import forks, lazy
from weft._base import target as targets
from weft.dispatch import devices
from weft.dispatch.devices.native_devices import NativeDevice, Platform

NAMES = ("cuda", "gpu")
_PRODUCTS = "weft.dispatch.devices.product_library"
_lock = forks.held("cuda")
_made: list[CudaDevice] = []
_reasons: dict[str | None, str] = {}  # by the variable's value why there are none, once they were looked for


class CudaDevice(NativeDevice):
    """A GPU."""

    platform = "gpu"
    raw_platform = "cuda"
    device_vendor = "NVIDIA Corporation"
    slice_index = 0
    core_on_chip = 0

    def __init__(self, number: int, facts: tuple[Any, ...], client: list[Platform], driver: int) -> None:
        ordinal, self.device_kind, (major, minor), _, self.core_count, _ = facts
        super().__init__(ordinal, number)
        self.compute_capability = f"{major}.{minor}"
        self.coords = (ordinal, 0, 0)
        found = targets.gpu(10 * major + minor)
        self.grid = found and found.replace(made_by=f":{major}.{minor} by driver {driver}")
        self._client, self._driver = client, driver

    @property
    def client(self) -> Platform:
        return self._client[0]

    def product_library(self, asked: str) -> Any:
        return lazy.submodule(_PRODUCTS).of_device(self.number, self._driver, asked)

    def memory_stats(self) -> dict[str, int]:
        return runtime.cuda_memory_stats(self.number)

    def __repr__(self) -> str:
        return f"CudaDevice(id={self.id})"

    def __str__(self) -> str:
        return f"cuda:{self.id}"

    def __reduce__(self) -> Any:
        return _device, (self.id,)


def _device(index: int) -> CudaDevice:
    """The device that was pickled."""
    found = next((device for device in devices.devices("cuda") if device.id == index), None)
    if not isinstance(found, CudaDevice):
        raise ValueError(f"[devices] GPU {index} was pickled, and this process has no such GPU")
    return found


_client: list[Platform] = []


def find() -> Platform | None:
    """The GPUs that can be used; None if there are none (``why_not``)."""
    with _lock:
        asked = os.environ.get("WEFT_CUDA_LIBRARY")
        if not _made and asked not in _reasons:
            runtime.set_pjrt_error_types(errors.JaxRuntimeError, errors.OutOfMemoryError)
            try:
                made = runtime.make_cuda_devices(_fraction())
            except errors.JaxRuntimeError as error:
                _reasons[asked] = str(error)
                return None
            driver = runtime.cuda_facts()["driver"]
            for number, facts in made:
                _made.append(CudaDevice(number, facts, _client, driver))
                devices.register(_made[-1])
            _client.append(Platform("cuda", "gpu", f"CUDA {_version(driver)}, weft", _made))
    return _client[0] if _made else None


def _fraction() -> float:
    """The share of a GPU's memory that arrays may take, by JAX's variable; 0: it is not set."""
    text = os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    try:
        found = float(text or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError(f"XLA_PYTHON_CLIENT_MEM_FRACTION is a share of a GPU's memory, 0 to 1; got {text!r}")
    return found


def is_default() -> bool:
    """Whether computations run on a GPU where no option of weft's says otherwise: as in JAX, where one is usable.

    A GPU with a driver that cannot be used is told of once.
    """
    known = len(_reasons)
    found = find() is not None
    if len(_reasons) > known and not why_not().startswith("there is no NVIDIA driver"):
        lazy.logging.getLogger("weft").warning("no GPU is used, and computations run on the CPU: %s", why_not())
    return found


def why_not() -> str:
    """Why there is no GPU to be used."""
    return "" if find() is not None else _reasons[os.environ.get("WEFT_CUDA_LIBRARY")]


def assembled(text: bytes, grid: targets.Target) -> bytes:
    """Machine code for the devices of a target, by the driver's own assembler."""
    *others, last = [device.number for device in _made if device.grid == grid]
    for number in others:
        with contextlib.suppress(errors.JaxRuntimeError):  # that device has stopped, and the next one may not have
            return runtime.assemble(number, text)
    return runtime.assemble(last, text)


def taken(value: Any, copy: bool | None) -> runtime.Array:
    """The Array of what has ``__cuda_array_interface__``: on its memory if it is row-major and no copy is asked."""
    described = value.__cuda_array_interface__
    if described.get("mask") is not None:
        raise TypeError("[array] an array of a GPU with a mask has no counterpart: fill its masked elements first")
    if find() is None:
        raise RuntimeError(f"[array] the array is on a GPU, and there is none to be used: {why_not()}")
    dtype = dtypes.as_dtype(described["typestr"])
    aval = runtime.ShapedArray(described["shape"], dtype)
    strides = described.get("strides")
    steps = None if strides is None else tuple([stride // dtype.itemsize for stride in strides])
    address, _ = described["data"]
    return runtime.from_cuda_array(aval, address, steps, described.get("stream"), value, copy)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def report() -> list[str]:
    """A line for each GPU of the driver, or why there are none; for the command line."""
    facts = runtime.cuda_facts()
    if not facts["devices"]:
        return [f"gpu  not used: {facts['reason']}"]
    return [
        f"cuda:{ordinal}  kind={name}  platform=gpu  process=0  {nbytes / 2**30:.1f} GiB, compute capability "
        f"{major}.{minor}, {multiprocessors} multiprocessors, driver for CUDA {_version(facts['driver'])}"
        f"{f'  not used: {refused}' if refused else ''}"
        for ordinal, name, (major, minor), nbytes, multiprocessors, refused in facts["devices"]
    ] + [lazy.submodule(_PRODUCTS).report(facts["driver"])]

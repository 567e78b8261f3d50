"""DLPack tensors and pickles that lie about themselves: they raise, no memory outside is read, no code is run."""

from __future__ import annotations

import ctypes
import pickle
import pickletools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import runtime
from weft._base.array import rebuild

LARGEST = 2**63 - 1


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.PyDLL(None))
)


class Producer:
    """A tensor f32[2,3] of ones in memory of its own, of which some fields are others."""

    def __init__(self, versioned: bool, shape: Any = (2, 3), strides: Any = None, name: bytes = b"", **fields: Any):
        self.memory = np.ones(4096, np.float32)
        self.managed = ManagedVersioned(major=fields.pop("major", 1)) if versioned else Managed()
        whole = {"device_type": 1, "ndim": len(shape), "code": 2, "bits": 32, "lanes": 1}
        tensor = {"data": self.memory.ctypes.data + -self.memory.ctypes.data % 64, **whole, **fields}
        for field, value in tensor.items():
            setattr(self.managed.tensor, field, value)
        self.extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.managed.tensor.shape = self.extents
        if strides is not None:
            self.strides = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            self.managed.tensor.strides = self.strides
        self.name = name or (b"dltensor_versioned" if versioned else b"dltensor")

    def __dlpack__(self, **_: Any) -> Any:
        return new_capsule(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


BAD_TENSORS: list[tuple[dict[str, Any], str]] = [
    ({"shape": (LARGEST, LARGEST)}, "without memory"), ({"shape": (2**32, 2**32)}, "without memory"),
    ({"shape": (2, -1)}, "negative extent"), ({"ndim": 1_000_000}, "rank"), ({"ndim": -3}, "rank"),
    ({"data": None}, "without memory"), ({"lanes": 4}, "lanes"), ({"lanes": 0}, "lanes"), ({"bits": 17}, "17 bits"),
    ({"code": 3}, "type code 3"), ({"device_type": 9}, "host memory"), ({"name": b"other"}, "unused DLPack capsule"),
    ({"byte_offset": 2**64 - 1}, "outside of memory"), ({"byte_offset": 2**63}, "outside of memory"),
    ({"strides": (2**62, 1)}, "outside of memory"), ({"strides": (LARGEST, LARGEST)}, "outside of memory"),
    ({"strides": (-(2**62), 1)}, "outside of memory"), ({"strides": (-(2**50), 1)}, "outside of memory"),
    ({"shape": (2**40, 2**15), "strides": (2**40, 0)}, "outside of memory"),
]  # fmt: skip


def test_tensors_that_are_none_raise() -> None:
    producers = []  # own the memory of what is aliased
    for versioned in (True, False):
        for take in (runtime.from_dlpack, jnp.from_dlpack):
            for shape, strides in (((2, 3), None), ((2, 3), (0, 0)), ((), None), ((0, 5), (LARGEST, LARGEST))):
                producers.append(Producer(versioned, shape, strides))
                good = np.asarray(take(producers[-1]))
                assert good.shape == shape and (good == 1).all()
            for fields, words in BAD_TENSORS:
                with pytest.raises(BufferError, match=words):
                    take(Producer(versioned, **fields))
    with pytest.raises(BufferError, match="version 9"):
        runtime.from_dlpack(Producer(True, major=9))
    del good


def test_pickles_hold_plain_values_alone() -> None:
    arrays = [
        jnp.ones((2, 3)), jnp.zeros((0, 3)), jnp.asarray(2.5), jnp.ones(3, jnp.bfloat16), jnp.arange(3, dtype=jnp.int4),
        jnp.array([True, False]), jnp.ones(2, complex), weft.random.split(weft.random.key(7), 3),
    ]  # fmt: skip
    for array in arrays:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(array, protocol))
            assert again.aval is array.aval and str(again) == str(array)
        beside: list[pickle.PickleBuffer] = []
        data = pickle.dumps(array, 5, buffer_callback=beside.append)
        assert len(beside) == 1 and str(pickle.loads(data, buffers=beside)) == str(array)
        names = [text for code, text, _ in pickletools.genops(pickle.dumps(array, 4)) if isinstance(text, str)]
        key = ["weft.random.prng", "_dtype_of", "impl_named", "threefry2x32"]
        assert names == ["weft._base.array", "rebuild", *(key if array is arrays[-1] else [array.dtype.name])]


class Trap:
    """Raises where anything is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the value in a pickle was asked for")

    __index__ = __len__ = __iter__ = __eq__ = __bool__ = lambda self, *_: self.unasked  # type: ignore[assignment] - hostile


def test_states_of_no_array_raise() -> None:
    key = weft.random.key(0).dtype
    good = (bytes(8), (2,), "float32", False)
    assert rebuild(*good).tolist() == [0.0, 0.0]
    bad: list[list[Any]] = [
        [Trap(), None, 3, "text", bytes(7), bytes(9), np.array([object()])],
        [Trap(), None, [2], 2, (-1,), (3,), (2.0,), (True, 2), (2**62, 2**62), (Trap(),), (2,) * 99],
        [Trap(), None, 3, np.dtype(object), "object", "S4", "nothing", "float64", ">f4", key, "datetime64[s]"],
        [Trap(), None, 1, "yes"],
    ]
    for index, values in enumerate(bad):
        for value in values:
            state = [*good[:index], value, *good[index + 1 :]]
            with pytest.raises((TypeError, ValueError)):
                rebuild(*state)
    with pytest.raises(ValueError, match="other than 0 and 1"):
        rebuild(b"\1\2", (2,), "bool", False)

"""Memories of devices: what they are called, and arrays that are said to lie in them, beside JAX's."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import weft

pytestmark = pytest.mark.oracle


def test_a_device_lists_its_memories() -> None:
    found = []
    for module in (weft, jax):
        device = module.devices("cpu")[0]
        kinds = [memory.kind for memory in device.addressable_memories()]
        own = device.default_memory()
        assert own == device.memory("device") and own.addressable_by_devices() == [device]
        with pytest.raises((ValueError, RuntimeError), match="Got memory kind: no"):
            device.memory("no")
        found.append((kinds, own.kind, own.platform, own.process_index, device.memory("pinned_host").kind))
    assert found[0] == found[1]


def test_arrays_go_to_a_space_and_back() -> None:
    found = []
    for module in (weft, jax):
        space, device = module.memory.Space, module.devices("cpu")[0]
        there = module.device_put(module.device_put(np.arange(3), device), space.Host)
        back = module.device_put(there, space.Device)
        inside = module.jit(lambda x, m=module: m.device_put(x, m.memory.Space.Host) + 1)(back)
        found.append(([x.sharding.memory_kind for x in (there, back)], inside.tolist(), list(map(repr, space))))
    assert found[0] == found[1]


def test_a_sharding_names_a_memory_that_exists() -> None:
    for module in (weft, jax):
        device, named = module.devices("cpu")[0], module.sharding.NamedSharding
        mesh = module.sharding.Mesh(np.array([device]), ("i",))
        for make in (
            lambda m=module, d=device: m.sharding.SingleDeviceSharding(d, memory_kind="no"),
            lambda m=module, named=named, mesh=mesh: named(mesh, m.P(), memory_kind="no"),
            lambda m=module, named=named, mesh=mesh: named(mesh, m.P()).with_memory_kind("no"),
        ):
            with pytest.raises(ValueError, match="following memory kinds: device, pinned_host, unpinned_host"):
                make()

"""Machines that are described, and programs compiled for them ahead of time; for TPUs where libtpu is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import weft
from weft.dispatch.programs import topologies as described
from weft.experimental import topologies

X = np.arange(3, dtype=np.float32)
ROOT = Path(__file__).resolve().parents[2]


def test_the_attached_machine_is_compiled_for_as_ever(backend: Any) -> None:
    machine = topologies.get_attached_topology(backend.platform)
    assert machine.devices == backend.devices() and machine.platform == backend.platform
    compiled = weft.jit(lambda x: x * 2).lower(X).compile(topology=machine)
    result = compiled(X)
    assert result.devices() == {backend.devices()[0]} and result.tolist() == [0.0, 2.0, 4.0]
    here = weft.jit(lambda x: x * 2).lower(X).compile(topology=topologies.get_attached_topology("cpu"))
    assert here(X).devices() == set(weft.devices("cpu"))


def test_what_a_plugin_says_of_its_programs(device: Any) -> None:
    compiled = weft.jit(lambda x: x @ x.T, device=device).lower(np.ones((8, 8), np.float32)).compile()
    for answer in (compiled.cost_analysis, compiled.memory_analysis):
        try:
            found = answer()
        except NotImplementedError as error:
            assert "does not" in str(error)
        else:
            assert found.get("flops", 1024.0) == 1024.0 and found.get("argument_size_in_bytes", 256) == 256
    try:
        text = compiled.as_text("hlo")
    except NotImplementedError as error:
        assert "HLO" in str(error) or "does not" in str(error)
    else:
        assert "f32[8,8]" in text
    with pytest.raises(ValueError, match="jaxpr, stablehlo and hlo"):
        compiled.as_text("llvm")


def test_machines_that_cannot_be_described(backend: Any) -> None:
    with pytest.raises(NotImplementedError, match="does not compile for topologies"):
        topologies.get_topology_desc("anything", backend.platform)
    with pytest.raises(RuntimeError, match="no platforms that are instances of xpu"):
        topologies.get_topology_desc("anything", "xpu")
    with pytest.raises(NotImplementedError, match="describes no others"):
        topologies.get_topology_desc(platform="cpu")
    with pytest.raises(TypeError, match="is a str"):
        topologies.get_topology_desc(3)  # pyright: ignore[reportArgumentType] - that is what is tested
    with pytest.raises(TypeError, match=r"a name such as 'v5e:2x2'.*got 3"):
        weft.jit(lambda x: x).lower(X).compile(topology=3)


class _Native:
    """A described machine whose compiler gives the text back."""

    platform_version = "version 1"
    attributes: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.compiled: list[bytes] = []

    def devices(self) -> list[tuple[int, int, str, str]]:
        return [(7, 0, "kind", "Device(id=7)")]

    def compile(self, text: bytes, options: bytes) -> Any:
        self.compiled.append(text)
        return self

    def serialize(self) -> bytes:
        return b"bytes"

    def cost(self) -> dict[str, float]:
        return {"flops": 3.0}

    def memory(self) -> dict[str, int]:
        return {"temp_size_in_bytes": 5}


@pytest.fixture
def machine() -> Any:
    native = _Native()
    made = topologies.TopologyDescription([], "imagined", native)
    made.devices = [described.TopologyDevice(made, "imagined", facts) for facts in native.devices()]
    return made


def test_a_compiled_program_for_elsewhere(machine: Any, tmp_path: Path) -> None:
    captured = weft.numpy.asarray(np.arange(3, dtype=np.float32))
    f = weft.jit(lambda x, unused: x + captured, donate_argnums=0)
    compiled = f.lower(X, 1.0).compile(topology=machine)
    assert b"jax.buffer_donor" in machine.native.compiled[0] and compiled.serialize() == b"bytes"
    assert compiled.cost_analysis()["flops"] == 3.0 and compiled.memory_analysis().temp_size_in_bytes == 5
    assert compiled.as_text() == machine.native.compiled[0].decode() and "add" in compiled.as_text("jaxpr")
    with pytest.raises(RuntimeError, match="compiled for imagined:7, which is not here"):
        compiled(X, 1.0)
    compiled.save(tmp_path / "f.weft")
    with pytest.raises(ValueError, match="cannot be run: Unknown backend imagined"):
        weft.load(tmp_path / "f.weft")
    struct = weft.ShapeDtypeStruct((3,), "float32", sharding=weft.sharding.SingleDeviceSharding(machine.devices[0]))
    weft.jit(weft.numpy.sin).lower(struct).compile()
    assert b"sine" in machine.native.compiled[1]


def test_nothing_lies_on_a_described_device(machine: Any) -> None:
    (device,) = machine.devices
    for use in (lambda: weft.device_put(X, device), lambda: weft.jit(lambda x: x, device=device)):
        with pytest.raises(RuntimeError, match="imagined:7 is the description of a device"):
            use()
    with pytest.raises(NotImplementedError, match="names cpu:0"):
        put = weft.jit(lambda x: weft.device_put(x, weft.devices("cpu")[0]))
        put.lower(X).compile(topology=machine)
    with pytest.raises(NotImplementedError, match=r"imagined:7.*debug_print at"):
        weft.jit(lambda x: weft.debug.print("{}", x)).lower(X).compile(topology=machine)


def test_programs_for_a_tpu() -> None:
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip(
            "libtpu is not installed, and its licence keeps it out of the tests' requirements: pip install libtpu"
        )
    words = [sys.executable, str(ROOT / "tests" / "devices" / "compile_for_tpu.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("v5e:2x2: 4 x TPU v5") and "refused" not in done.stdout

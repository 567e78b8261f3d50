"""Shardings over one device of a plugin, and programs compiled for several devices of a described machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import weft
from weft import lax
from weft.dispatch.programs import device_programs
from weft.dispatch.programs import topologies as described
from weft.experimental import topologies
from weft.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
X = np.arange(64, dtype=np.float32).reshape(8, 8)
TYPE = weft.ShapeDtypeStruct((8, 8), "float32")


def summed(mesh: Any) -> Any:
    return weft.shard_map(lambda x: lax.psum(x * 2, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})


def test_shardings_over_one_device_of_a_plugin(device: Any) -> None:
    mesh = Mesh(np.array([device], object), ("x",))
    own = NamedSharding(mesh, P("x"))
    functions = [
        weft.jit(lambda x: x * 2),
        weft.jit(lambda x: x * 2, in_shardings=own, out_shardings=own),
        weft.jit(lambda x: lax.with_sharding_constraint(x * 2, own)),
        weft.jit(summed(mesh)),
        summed(mesh),
    ]
    for function in functions:
        given = [weft.device_put(X, own)] + [X] * (function not in (functions[0], functions[-1]))
        for x in (*given, *given):
            result = function(x)
            assert result.devices() == {device}
            np.testing.assert_array_equal(result, X * 2)
    assert "sdy" not in functions[0].lower(weft.device_put(X, own)).compile().as_text()


def test_virtual_devices_are_not_those_of_a_plugin(device: Any) -> None:
    mesh = weft.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    own = NamedSharding(mesh, P("x"))
    for function in (lambda x: lax.with_sharding_constraint(x, own), summed(mesh)):
        with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
            weft.jit(function, device=device)(X)
    mixed = Mesh(np.array([device, weft.devices("cpu")[0]], object), ("x",))
    with pytest.raises(NotImplementedError, match="over several devices of the CPU, or GPUs"):
        weft.device_put(X, NamedSharding(mixed, P("x")))
    mapped = summed(AbstractMesh((4,), ("x",)))
    exported = weft.export.export(weft.jit(mapped))(X)
    with pytest.raises(ValueError, match="exported for 4 devices and is called in a context with 1 devices"):
        exported.call(weft.device_put(X, device))


# -- several devices of a described machine ----------------------------------------------------------------------------


class _Native:
    """A described machine of four devices whose compiler keeps what it is given."""

    platform_version = "version 1"
    attributes: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.compiled: list[tuple[str, bytes]] = []

    def devices(self) -> list[tuple[int, int, str, str]]:
        return [(number, 0, "kind", f"Device(id={number})") for number in (3, 5, 7, 200)]

    def compile(self, text: bytes, options: bytes) -> Any:
        self.compiled.append((text.decode(), options))
        return self

    def serialize(self) -> bytes:
        return b"bytes"


@pytest.fixture
def machine() -> Any:
    native = _Native()
    made = topologies.TopologyDescription([], "imagined", native)
    made.devices = [described.TopologyDevice(made, "imagined", facts) for facts in native.devices()]
    return made


@pytest.fixture
def mesh(machine: Any) -> Any:
    return topologies.make_mesh(machine, (2, 2), ("x", "y")).update(axis_types=(AxisType.Auto,) * 2)


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: numbers and bytes."""
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            value, shift, position = value | (byte & 0x7F) << shift, shift + 7, position + 1
            if byte < 0x80:
                return value

    while position < len(data):
        field, kind = divmod(number(), 8)
        value: Any = number()
        if kind == 2:
            value, position = data[position : position + value], position + value
        yield field, value


def partitions(options: bytes) -> tuple[dict[int, Any], list[int]]:
    """The options of the build, and the device of each partition."""
    build = dict(fields(dict(fields(options))[3]))
    assigned = list(fields(build.pop(9)))
    assert assigned[:2] == [(1, 1), (2, build[5])]  # one replica; the computations
    packed = [dict(fields(computation))[1] for field, computation in assigned[2:] if field == 3]
    return build, [sum((byte & 0x7F) << 7 * k for k, byte in enumerate(ids)) for ids in packed]


def test_compile_options_of_several_devices(machine: Any) -> None:
    build, listed = partitions(device_programs.compile_options(*machine.devices))
    assert build == {4: 1, 5: 4, 6: 1, 19: 1} and listed == [3, 5, 7, 200]
    build, listed = partitions(device_programs.compile_options(machine.devices[1]))
    assert build == {4: 1, 5: 1} and listed == [5]


def test_compile_options_are_those_of_xla(machine: Any) -> None:
    xla_client = pytest.importorskip("jaxlib.xla_client", reason="its options are compared with ours")
    options = xla_client.CompileOptions()
    options.executable_build_options.num_partitions = 4
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    ids = np.array([[each.id for each in machine.devices]])
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(ids)
    found, _ = partitions(device_programs.compile_options(*machine.devices))
    expected, listed = partitions(options.SerializeAsString())
    assert found.items() <= expected.items() and listed == ids[0].tolist()


def test_arguments_over_several_devices(machine: Any, mesh: Any) -> None:
    struct = weft.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("x", "y")))
    captured = weft.numpy.asarray(X)
    compiled = weft.jit(lambda x, unused, y: (x @ y, y + captured)).lower(struct, 1.0, X).compile()
    ((text, options),) = machine.native.compiled
    build, listed = partitions(options)
    assert build[5] == 4 and listed == [3, 5, 7, 200] and "num_partitions = 4" in text
    header = text[text.index("@main") : text.index("{\n", text.index("@main"))]
    assert header.count("sdy.sharding =") == 5  # captured values, two arguments that are read, two results
    shardings = weft.tree.leaves(compiled.input_shardings)
    assert [sharding.spec for sharding in shardings] == [P("x", "y"), P(), P()]
    assert all(sharding.mesh == mesh for sharding in (*shardings, *weft.tree.leaves(compiled.output_shardings)))
    assert compiled.output_shardings[0].spec == P("x")
    assert compiled.serialize() == b"bytes"


def test_meshes_of_jit_of_constraints_and_of_shards(machine: Any, mesh: Any, tmp_path: Path) -> None:
    own = NamedSharding(mesh, P("x"))
    functions = [
        weft.jit(lambda x: x * 2, in_shardings=own),
        weft.jit(lambda x: x * 2, out_shardings=own),
        weft.jit(lambda x: lax.with_sharding_constraint(x * 2, own)),
        weft.jit(summed(mesh)),
    ]
    compiled = [function.lower(TYPE).compile() for function in functions]
    specs = [(c.input_shardings[0][0].spec, c.output_shardings.spec) for c in compiled]
    assert specs == [(P("x"), P("x")), (P(), P("x")), (P(), P("x")), (P(), P())]
    for text, options in machine.native.compiled:
        assert partitions(options)[0][5] == 4 and "sdy.mesh" in text
    assert "all_reduce" in machine.native.compiled[-1][0]
    with pytest.raises(RuntimeError, match=r"compiled for 4 devices of .*, which are not here"):
        compiled[0](X)
    with pytest.raises(NotImplementedError, match=r"one device of a plugin; serialize\(\) gives"):
        compiled[0].save(tmp_path / "f.weft")
    for use in (*functions[:3], lambda x: weft.device_put(x, own)):
        with pytest.raises(RuntimeError, match="imagined:3 is the description of a device"):
            use(X)


def test_meshes_of_no_devices_and_of_the_host(machine: Any) -> None:
    """Their devices are the first of the machine."""
    compiled = weft.jit(summed(AbstractMesh((2,), ("x",)))).lower(TYPE).compile(topology=machine)
    text, options = machine.native.compiled[-1]
    assert partitions(options)[1] == [3, 5] and "all_reduce" in text
    assert compiled.input_shardings[0][0].device_list == tuple(machine.devices[:2])
    with pytest.raises(ValueError, match=r"is for 8 devices, and TopologyDescription.*has 4: choose a larger one"):
        weft.jit(summed(AbstractMesh((8,), ("x",)))).lower(TYPE).compile(topology=machine)
    here = weft.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    weft.jit(lambda x: x * 2, in_shardings=NamedSharding(here, P("x"))).lower(TYPE).compile(topology=machine)
    assert partitions(machine.native.compiled[-1][1])[1] == [3]

"""Meshes, specs, shardings, pmap and shard_map on the one device, beside JAX's on its one CPU device."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import mesh_utils as jax_mesh_utils

import weft
from weft.experimental import mesh_utils, multihost_utils, pjit
from weft.experimental.shard_map import shard_map as older_shard_map


def described(module: ModuleType) -> dict[str, Any]:
    """What one of the two libraries says of meshes, specs and shardings, as text and plain values."""
    s, P = module.sharding, module.sharding.PartitionSpec
    mesh = s.Mesh(np.array(module.devices()).reshape(1, 1), ("x", "y"))
    made = module.make_mesh((1,), ("i",))
    sharding = s.NamedSharding(mesh, P("x", None))
    abstract = s.AbstractMesh((2, 3), ("a", "b"))
    specs = [P(), P("a"), P("a", None, ("b", "c")), P(("a",)), P("a") + P("b"), P(P.UNCONSTRAINED)]
    with module.set_mesh(made):
        chosen = repr(s.get_mesh()), s.get_abstract_mesh().axis_names
    return {
        "specs": [(repr(spec), len(spec), tuple(map(repr, spec))) for spec in specs],
        "equal": [P("a") == P("a"), P("a") == P("a", None), P("a") == ("a",), hash(P("a")) == hash(P("a"))],
        "mesh": (repr(mesh), mesh.shape_tuple, mesh.axis_names, mesh.size, mesh.empty, mesh.devices.shape),
        "made": (repr(made), str(made), [str(kind) for kind in made.axis_types], made.are_all_axes_explicit),
        "chosen": chosen,
        "none chosen": (repr(s.get_mesh()), s.get_mesh().empty, s.get_abstract_mesh().axis_names),
        "abstract": (abstract.axis_sizes, abstract.size, str(abstract), abstract.auto_axes),
        "sharding": (repr(sharding), sharding.shard_shape((4, 2)), sharding.is_fully_replicated, sharding.num_devices),
        "same": [sharding == s.NamedSharding(mesh, P("x", None)), sharding == s.NamedSharding(mesh, P("y"))],
        "equivalent": sharding.is_equivalent_to(s.SingleDeviceSharding(module.devices()[0]), 2),
        "with memory": sharding.with_memory_kind("device") == sharding,
        "pickled": pickle.loads(pickle.dumps(specs[2])) == specs[2],
    }


@pytest.mark.oracle
def test_meshes_specs_and_shardings_say_what_jax_says() -> None:
    found, expected = described(weft), described(jax)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name


def refusals(module: ModuleType) -> list[Any]:
    s, P = module.sharding, module.sharding.PartitionSpec
    mesh = module.make_mesh((1,), ("x",))
    return [
        lambda: s.Mesh(np.array(module.devices()), ("a", "b")),
        lambda: module.make_mesh((2,), ("a",)),
        lambda: s.NamedSharding(mesh, P("q")),
        lambda: s.NamedSharding(mesh, P("x", "x")),
        lambda: module.lax.with_sharding_constraint(np.ones(4), P("x")),
    ]


@pytest.mark.oracle
def test_names_that_do_not_fit_are_refused_in_jax_words() -> None:
    for mine, theirs in zip(refusals(weft), refusals(jax), strict=True):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises((ValueError, RuntimeError)) as found:
            mine()
        assert str(found.value).replace("weft.", "jax.") == str(expected.value)


def run_on_one_device(module: ModuleType) -> list[Any]:
    lax, P = module.lax, module.sharding.PartitionSpec
    mesh = module.sharding.Mesh(np.array(module.devices()).reshape(1, 1), ("i", "j"))
    x = np.arange(6.0, dtype=np.float32).reshape(1, 6)

    def body(v: Any, w: Any) -> Any:
        return {"sum": lax.psum(v * w, "i"), "all": lax.all_gather(v, "i"), "at": v + lax.axis_index("j")}

    def step(v: Any) -> Any:
        return v - lax.pmean(v, "n") + lax.axis_index("n")

    specs = {"sum": P(), "all": P(None, "i"), "at": P("i")}
    shard = module.shard_map(body, mesh=mesh, in_specs=(P("i"), P()), out_specs=specs, check_vma=False)
    spec = module.sharding.NamedSharding(mesh, P("i"))
    constrained = module.jit(lambda v: lax.with_sharding_constraint(v * 2, spec), in_shardings=spec, out_shardings=spec)
    single = module.sharding.SingleDeviceSharding(module.devices()[0])
    return [
        module.pmap(step, axis_name="n")(x),
        module.pmap(lambda v, w, n: v * w + n, in_axes=(0, None, 0), static_broadcasted_argnums=2)(x, 2.0, 3),
        module.grad(lambda v: module.pmap(lambda u: (u * u).sum())(v).sum())(x),
        shard(x, 3.0),
        module.jit(shard)(x, 3.0),
        constrained(x),
        module.device_put(x, spec),
        module.make_array_from_callback((6,), single, lambda index: np.arange(6)[index]),
        module.make_array_from_process_local_data(single, x),
        module.make_array_from_single_device_arrays((1, 6), single, [module.device_put(x)]),
    ]


@pytest.mark.oracle
def test_programs_for_many_devices_run_on_one() -> None:
    for number, (mine, theirs) in enumerate(zip(run_on_one_device(weft), run_on_one_device(jax), strict=True)):
        assert weft.tree.structure(mine) == weft.tree.structure(weft.tree.map(np.asarray, theirs))
        for a, b in zip(weft.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, err_msg=str(number))


def test_what_needs_more_devices_raises() -> None:
    with pytest.raises(ValueError, match="the mapped axis has size 2"):
        weft.pmap(lambda x: x)(np.ones((2, 3)))
    P = weft.sharding.PartitionSpec
    with pytest.raises(TypeError, match="PartitionSpec"):
        weft.shard_map(lambda x: x, mesh=weft.make_mesh((1,), ("i",)), in_specs="i", out_specs=P())(1.0)
    with pytest.raises(ValueError, match="a mesh consists of devices"):
        weft.sharding.Mesh(np.array([1]), ("i",))


def test_the_older_modules_of_these_functions() -> None:
    assert pjit.pjit is weft.jit
    assert mesh_utils.create_device_mesh((1, 1)).shape == jax_mesh_utils.create_device_mesh((1, 1)).shape
    mesh = weft.make_mesh((1,), ("i",), axis_types=(weft.sharding.AxisType.Auto,))
    spec = weft.sharding.PartitionSpec("i")
    assert older_shard_map(lambda x: weft.lax.psum(x, "i"), mesh, (spec,), spec)(np.ones(2)).tolist() == [1.0, 1.0]
    multihost_utils.sync_global_devices("here")
    assert multihost_utils.process_allgather(np.arange(2)).tolist() == [[0, 1]]
    assert multihost_utils.process_allgather(np.arange(2), tiled=True).tolist() == [0, 1]

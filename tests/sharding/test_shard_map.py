"""shard_map, smap and pmap on 8 virtual devices beside JAX: values, types, texts of jaxprs, classes of errors."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.sharding import shard_map_cases
from weft import lax
from weft.sharding import PartitionSpec as P
from weft.test_util import check_grads

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(weft's, JAX's) results of the cases that run, each from one process."""
    names = {params["name"] for test in (test_as_in_jax, test_text_as_in_jax) for params in chosen(test)}
    folder = tmp_path_factory.mktemp("shard_map")
    program = ROOT / "tests" / "sharding" / "shard_map_cases.py"
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **devices, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, str(program), name, str(folder / name), *sorted(names)], env=environment)
        for name in ("weft", "jax")
    ]
    try:
        assert [process.wait(timeout=240) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    own, theirs = [pickle.loads((folder / name).read_bytes()) for name in ("weft", "jax")]
    return own, theirs


@pytest.mark.parametrize("name", shard_map_cases.CASES)
def test_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    mine, expected = (found[name] for found in results)
    if isinstance(expected, tuple):
        assert isinstance(mine, tuple), f"JAX raises {expected}"
        assert mine[0] == expected[0], (mine, expected)
        return
    assert not isinstance(mine, tuple), mine
    for leaves in mine:
        assert len(leaves) == len(expected[0])
        for value, wanted in zip(leaves, expected[0], strict=True):
            assert value.shape == wanted.shape
            np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(shard_map_cases.TEXT))
def test_text_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    mine, expected = (found[f"{name}: text"] for found in results)
    assert mine == expected


def test_types_as_in_jax(results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    mine, expected = (found["types"] for found in results)
    assert mine == expected


# -- what JAX does not do, and what is weft's own ---------------------------------------------------------------------

MESH = weft.sharding.AbstractMesh((4, 2), ("i", "j"))
X = jnp.arange(8.0)


def sharded(f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
    return weft.shard_map(f, mesh=MESH, in_specs=in_specs, out_specs=out_specs, **options)


def test_collectives_over_a_mesh_axis_and_a_vmap_inside() -> None:
    x = jnp.sin(jnp.arange(16.0)).reshape(8, 2)

    def f(rows: Any) -> Any:
        return weft.vmap(lambda row: lax.psum(row, "i") + lax.psum(row, "v"), axis_name="v")(rows)

    parts = np.asarray(x).reshape(4, 2, 2)
    wanted = parts.sum(0) + parts.sum(1, keepdims=True)
    np.testing.assert_allclose(sharded(f, P("i"), P("i"))(x), wanted.reshape(8, 2), rtol=1e-5, atol=1e-6)


def test_gradient_of_nested_shard_maps() -> None:
    def outer(x: Any) -> Any:
        inner = weft.shard_map(lambda y: lax.psum(jnp.sin(y), "j"), in_specs=P("j"), out_specs=P(), axis_names={"j"})
        return inner(x) * 2

    f = sharded(outer, P("i"), P("i"), axis_names={"i"})
    for gradient in (weft.grad(lambda x: f(x).sum()), weft.jit(weft.grad(lambda x: f(x).sum()))):
        np.testing.assert_allclose(gradient(X), 2 * np.cos(X), rtol=1e-5)


def test_gradients_are_those_of_the_function_that_is_not_cut() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    def local(w: Any, x: Any) -> Any:
        return lax.psum(jnp.sum(jnp.tanh(lax.psum(x @ w, "j")) ** 2), "i")

    cut = sharded(local, (P("j"), P("i", "j")), P())
    w, x = jnp.cos(jnp.arange(12.0)).reshape(4, 3), jnp.sin(jnp.arange(32.0)).reshape(8, 4)
    for mine, whole in zip(weft.grad(cut, (0, 1))(w, x), weft.grad(loss, (0, 1))(w, x), strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-4, atol=1e-5)
    check_grads(cut, (w, x), order=2, atol=1e-2, rtol=1e-2)


def test_one_equation_holds_the_program_of_a_shard() -> None:
    (eqn,) = weft.make_jaxpr(sharded(lambda x: lax.psum(jnp.sin(x), "i"), P("i"), P()))(X).eqns
    assert eqn.primitive.name == "shard_map"
    assert eqn.params["in_specs"] == (P("i"),) and eqn.params["out_specs"] == (P(),)
    assert [v.aval.shape for v in eqn.params["jaxpr"].invars] == [(2,)]
    assert not eqn.effects


def test_a_sum_over_devices_is_one_kernel_without_copies() -> None:
    plan = weft.jit(sharded(lambda x: lax.psum(x * 2, "i"), P("i"), P())).lower(X).compile().as_text("plan")
    assert "1 outputs, 0 temporaries" in plan
    kernels = weft.jit(sharded(lambda x: lax.psum(x * 2, "i"), P("i"), P())).lower(X).compile().as_text("kernel")
    assert kernels.count("kernel ") == 1


def test_results_lie_as_out_specs_say() -> None:
    """On the one device: the sharding is a named one of the mesh."""
    mesh = weft.make_mesh((1,), ("i",), axis_types=(weft.sharding.AxisType.Auto,))
    f = weft.shard_map(lambda x: x + 1, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    assert f(X).tolist() == (X + 1).tolist() == weft.jit(f)(X).tolist()


def test_errors_name_the_argument_the_spec_the_dimension_and_the_sizes() -> None:
    with pytest.raises(ValueError, match=r"dimension 1 of the argument tree\['a'\] .*f32\[4,6\].* size 6.* 4 .*'i' of"):
        sharded(lambda tree: tree["a"], P(None, "i"), P())({"a": jnp.ones((4, 6))})
    with pytest.raises(ValueError, match=r"argument x of type f32\[8\] has 1 dimensions.*P\('i', 'j'\)"):
        sharded(lambda x: x, P("i", "j"), P())(X)
    with pytest.raises(ValueError, match=r"result\['r'\].*f32\[2\]\{V:i\}.*differ along the mesh axes \['i'\]"):
        sharded(lambda x: {"r": x}, P("i"), P())(X)
    with pytest.raises(TypeError, match=r"in_specs\[0\] is 'i', of type str"):
        sharded(lambda x: x, ("i",), P())(X)
    with pytest.raises(ValueError, match=r"out_specs is P\('k',\), which names the axis 'k'"):
        sharded(lambda x: x, P("i"), P("k"))(X)
    with pytest.raises(NameError, match=r"unbound axis name: k.*Bound here: 'i', 'j'"):
        sharded(lambda x: lax.psum(x, "k"), P("i"), P())(X)
    with pytest.raises(NotImplementedError, match="partial sums"):
        sharded(lambda x: lax.pcast(x, "i", to="unreduced"), P("i"), P())(X)


def test_python_sees_new_values_in_each_call() -> None:
    """Outside of jit the function runs in every call."""
    scale = [1.0]
    f = sharded(lambda x: x * scale[0], P("i"), P("i"))
    assert f(X)[1] == 1
    scale[0] = 3.0
    assert f(X)[1] == 3

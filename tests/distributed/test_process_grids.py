"""How meshes are divided among processes, and where the halves of exchanges stand in a plan; in one process."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.compiler import pipeline
from weft.compiler.plans.instructions import Exchange, ExchangeDone
from weft.core.sharding import process_grids
from weft.core.tracing.trace import trace_to_jaxpr
from weft.partitioning.exchange import Exchanges, agree
from weft.sharding import Mesh, NamedSharding
from weft.sharding import PartitionSpec as P


def mesh_of(owners: Any, names: Sequence[str], rank: int = 1) -> Mesh:
    """A mesh of which the process with the number in ``owners`` has the device."""
    made = np.empty(np.shape(owners), object)
    for coordinates, owner in np.ndenumerate(np.asarray(owners)):
        made[coordinates] = SimpleNamespace(
            platform="cpu", device_kind="cpu", process_index=int(owner), is_local=owner == rank, id=len(coordinates)
        )
    return Mesh(made, tuple(names))


def test_an_axis_between_processes_and_within_them() -> None:
    mesh = mesh_of([0, 0, 1, 1], "x")
    grid = process_grids.grid_of(mesh)
    assert (grid.outer, grid.inner, grid.coordinates) == ({"x": 2}, {"x": 2}, (1,))
    cut = NamedSharding(mesh, P(None, "x"))
    assert process_grids.block_shape(cut, (3, 8)) == (3, 4)
    assert process_grids.block_index(cut, (3, 8)) == (slice(0, 3), slice(4, 8))
    assert process_grids.groups_along(grid, ["x"]) == ((0, 1),)


def test_axes_of_which_one_is_between_processes() -> None:
    mesh = mesh_of([[0, 1], [0, 1]], "ab")
    grid = process_grids.grid_of(mesh)
    assert (grid.outer, grid.inner) == ({"a": 1, "b": 2}, {"a": 2, "b": 1})
    assert process_grids.block_spec(NamedSharding(mesh, P(("b", "a"))), 1) == (("b",),)
    assert process_grids.block_shape(NamedSharding(mesh, P("a")), (8,)) == (8,)
    with pytest.raises(NotImplementedError, match=r"not next to each other.*'a'.*before 'b'"):
        process_grids.block_spec(NamedSharding(mesh, P(("a", "b"))), 1)


def test_groups_of_a_grid_of_processes() -> None:
    grid = process_grids.grid_of(mesh_of([[0, 1], [2, 3]], "ab"))
    assert process_grids.groups_along(grid, ["a"]) == ((0, 2), (1, 3))
    assert process_grids.groups_along(grid, ["b"]) == ((0, 1), (2, 3))
    assert process_grids.groups_along(grid, ["b", "a"]) == ((0, 2, 1, 3),)
    assert process_grids.number_along(grid, ["b", "a"]) == 2  # process 1 is at a=0, b=1


@pytest.mark.parametrize("owners", [[0, 1, 0, 1], [0, 0, 0, 1], [[0, 0], [0, 1]]])
def test_processes_without_a_box_of_devices(owners: Any) -> None:
    with pytest.raises(NotImplementedError, match="have to be a box"):
        process_grids.grid_of(mesh_of(owners, "ab"[: np.ndim(owners)]))


def test_a_mesh_without_devices_of_this_process() -> None:
    with pytest.raises(NotImplementedError, match="has none of the devices"):
        process_grids.grid_of(mesh_of([0, 2], "x"))


def instructions(function: Any, *shapes: tuple[int, ...]) -> list[Any]:
    avals = [weft.core.ShapedArray(shape, np.dtype(np.float32)) for shape in shapes]
    return pipeline.compile_jaxpr(trace_to_jaxpr(function, avals)[0]).plan.instructions


def test_what_is_independent_is_computed_between_start_and_wait() -> None:
    both = Exchanges(((0, 1),), 1, "psum")

    def program(x: Any, y: Any) -> list[Any]:
        agree((0, 1), 7, "program")
        total = both.reduce(x * 2, "sum")
        return [jnp.sin(total), jnp.linalg.norm(jnp.cos(y) @ y, axis=0)]

    made = instructions(program, (64,), (32, 32))
    start = next(i for i, each in enumerate(made) if isinstance(each, Exchange) and each.way == "reduce")
    wait = next(
        i for i, each in enumerate(made) if isinstance(each, ExchangeDone) and each.number == made[start].number
    )
    assert made[0].way == "agree" and made[start].meanwhile
    assert wait - start > 2  # the products and what belongs to them
    assert sum(isinstance(each, ExchangeDone) for each in made) == 2
    assert wait < len(made) - 1  # what reads it


def test_an_exchange_starts_before_one_that_has_to_wait() -> None:
    first, second, third = (Exchanges(((0, 1),), tag, "psum") for tag in (1, 2, 3))

    def program(x: Any) -> list[Any]:
        return [second.gather(first.reduce(x, "sum") + 1), third.reduce(x * 3, "max")]

    made = instructions(program, (8,))
    assert [each.tag for each in made if isinstance(each, Exchange)] == [1, 3, 2]
    for each in made:
        if isinstance(each, Exchange):
            assert sum(isinstance(other, ExchangeDone) and other.number == each.number for other in made) == 1


def test_a_program_of_this_process_alone_has_no_exchanges() -> None:
    mesh = weft.make_mesh((1,), ("x",), axis_types=(weft.sharding.AxisType.Auto,))
    function = weft.shard_map(lambda x: weft.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    text = weft.jit(function).lower(jnp.ones(4)).compile().as_text("plan")
    assert "exchange" not in text

"""core_map and kernel: a function that every core of a mesh runs, on references to whole arrays.

A mesh is anything whose ``shape`` maps names of axes to extents. Its cores run one after the other here, in row-major
order; ``lax.axis_index(name)`` and ``program_id`` say which one it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft._base.record import Record
from weft.dispatch.calls import function_names
from weft.experimental.pallas import call, cells, pipeline
from weft.experimental.pallas.blocks import GridSpec


class TensorCoreMesh(Record):
    """A row of cores, by the name of its axis."""

    axis_names: tuple[str, ...]
    extents: tuple[int, ...]

    @property
    def shape(self) -> dict[str, int]:
        return dict(zip(self.axis_names, self.extents, strict=True))


def create_tensorcore_mesh(axis_name: str, devices: Any = None, num_cores: int | None = None) -> TensorCoreMesh:
    """A mesh of ``num_cores`` cores (one if not given) along an axis."""
    if devices is not None and num_cores is not None:
        raise ValueError("[create_tensorcore_mesh] give `devices` or `num_cores`, not both")
    if num_cores is None:
        num_cores = 1 if devices is None else len(devices)
    return TensorCoreMesh((axis_name,), (num_cores,))


def _grid(name: str, mesh: Any) -> tuple[tuple[Any, int], ...]:
    shape = getattr(mesh, "shape", None)
    if not isinstance(shape, Mapping):
        raise TypeError(f"[{name}] a mesh has a `shape` that maps names of axes to extents, got {mesh!r}")
    return tuple([(axis, int(extent)) for axis, extent in shape.items()])


def kernel(
    body: Any = None, out_type: Any = (), *, mesh: Any, scratch_types: Any = (), compiler_params: Any = None,
    interpret: Any = False, cost_estimate: Any = None, debug: bool = False, name: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Any:  # fmt: skip
    """A function that runs ``body`` on every core of a mesh.

    The body takes a reference to each argument, each result and each scratch buffer, all to whole arrays, and returns
    None. A reference among the arguments (``weft.new_ref``) is written to by what the body writes. Without ``body`` it
    is a decorator.

    Several bodies, each with a mesh of its own (two sequences), share all references. They run one after the other, so
    that what a body waits for is to be done by one before it. ValueError for sequences of different lengths, or one
    sequence alone, and for meshes that do not agree about the extent of an axis.

    >>> mesh = pallas.tpu.create_tensorcore_mesh("core", num_cores=2)
    >>> @pallas.kernel(out_type=weft.ShapeDtypeStruct((2,), "int32"), mesh=mesh)
    ... def numbers(out_ref):
    ...     i = lax.axis_index("core")
    ...     out_ref[i] = 10 * i
    >>> numbers()
    Array([ 0, 10], dtype=int32)
    """
    options = {
        "scratch_types": scratch_types, "compiler_params": compiler_params, "interpret": interpret,
        "cost_estimate": cost_estimate, "debug": debug, "name": name, "metadata": metadata,
    }  # fmt: skip
    if isinstance(mesh, Sequence) and not isinstance(body, Sequence):
        raise ValueError("[kernel] mesh is a sequence, but there is one body: give a sequence of bodies, one for each")
    if body is None:
        return lambda function: kernel(function, out_type, mesh=mesh, **options)
    grid = ()
    if isinstance(body, Sequence):
        body, name = _in_turn(body, mesh), name or "_".join([function_names.function_name(each) for each in body])
    else:
        grid = _grid("kernel", mesh)
    run = call.pallas_call(
        body, out_type, grid=grid, scratch_shapes=scratch_types, compiler_params=compiler_params,
        interpret=interpret, cost_estimate=cost_estimate, debug=debug, name=name, metadata=metadata,
    )  # fmt: skip
    return functools.wraps(run)(lambda *args: list(run(*args))) if isinstance(out_type, list) else run


def _in_turn(bodies: Sequence[Callable[..., None]], meshes: Any) -> Callable[..., None]:
    """A kernel on one cell that runs each body on every core of its mesh."""
    if not isinstance(meshes, Sequence) or len(meshes) != len(bodies) or not bodies:
        raise ValueError(
            f"[kernel] several bodies take a sequence of as many meshes: there are {len(bodies)} bodies, and mesh is "
            f"{meshes!r}"
        )
    grids = [_grid("kernel", mesh) for mesh in meshes]
    extents: dict[Any, int] = {}
    for axis, extent in [pair for grid in grids for pair in grid]:
        if extents.setdefault(axis, extent) != extent:
            raise ValueError(f"[kernel] the axis {axis!r} has extent {extents[axis]} in one mesh, {extent} in another")

    def whole(*given: Any, **named: Any) -> None:
        for body, grid in zip(bodies, grids, strict=True):
            pipeline.each_cell([extent for _, extent in grid], functools.partial(_on_core, body, grid, given, named))

    return whole


def _on_core(
    body: Callable[..., None], grid: Sequence[tuple[Any, int]], given: Any, named: dict[str, Any], numbers: Any
) -> None:
    names, extents = zip(*grid, strict=True) if grid else ((), ())
    with cells.on(cells.Grid(extents, numbers, names)):
        out = body(*given, **named)
    if out is not None:
        raise ValueError(
            f"The kernel function {function_names.source_of(body)} should return None. It returned {out!r}"
        )


def core_map(
    mesh: Any, *, compiler_params: Any = None, interpret: Any = False, debug: bool = False, cost_estimate: Any = None,
    name: str | None = None, metadata: dict[str, str] | None = None, scratch_shapes: Any = (),
) -> Callable[[Callable[..., None]], None]:  # fmt: skip
    """A decorator: every core of the mesh runs the function at once, on the references that it closes over.

    The function takes references to the scratch buffers, if there are any, and returns None.

    >>> ref = weft.new_ref(jnp.zeros(4))
    >>> @pallas.core_map(pallas.tpu.create_tensorcore_mesh("core", num_cores=2))
    ... def _():
    ...     ref[pallas.ds(2 * lax.axis_index("core"), 2)] += 1.0
    >>> ref[...]
    Array([1., 1., 1., 1.], dtype=float32)
    """
    spec = GridSpec(_grid("core_map", mesh), scratch_shapes=scratch_shapes)

    def run(function: Callable[..., None]) -> None:
        asked = call.asked_for(function, (), spec, {}, debug, interpret, name, compiler_params)
        call.function_of(asked._replace(takes_arrays=True))()

    return run

"""Derivatives of ``shard_map`` and its rule for ``vmap``: a shard's program is transformed and bound again with specs.

Residuals lie along the mesh axes along which their types say that they vary, joined along dimension 0 (a scalar gets
one). Where types do not say it, they lie along all axes; a cotangent is then divided among the devices that hold equal
shards of a result, and the cotangents of an operand that is not cut are added up::

    in_specs P('i'), out_specs P()     transposed:   in_specs P(), out_specs P('i')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff import jvp, linearize, transpose
from weft.batching.batch_trace import map_flat
from weft.batching.shards import axes_of_spec, bind, in_mesh_order, inside, parts, shard_map_p, shard_type
from weft.core.avals import get_aval
from weft.core.axis_names import Axis
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.tangents import Zero, is_differentiable, is_undefined
from weft.core.tracing import trace as tracing
from weft.operations import collectives
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim
from weft.operations.pointwise import arithmetic

Specs = Sequence[PartitionSpec]


def _only(items: Sequence[Any], marked: Sequence[bool]) -> list[Any]:
    return [item for item, mark in zip(items, marked, strict=True) if mark]


def _jvp(primals: Any, tangents: Any, *, jaxpr: Jaxpr, in_specs: Specs, out_specs: Specs, **params: Any) -> Any:
    live = tuple([type(t) is not Zero for t in tangents])
    with inside(params):
        program, out_live = jvp.jvp_jaxpr(ClosedJaxpr(jaxpr), live)
    specs = {
        "in_specs": (*in_specs, *_only(in_specs, live)),
        "out_specs": (*out_specs, *_only(out_specs, out_live)),
    }
    outs = bind(program, [*primals, *[t for t in tangents if type(t) is not Zero]], {**params, **specs})
    made = iter(outs[len(out_specs) :])
    pairs = zip(outs, out_live, strict=False)
    return outs[: len(out_specs)], [next(made) if has else Zero.from_primal_value(x) for x, has in pairs]


# -- reverse mode -----------------------------------------------------------------------------------------------------


def _linearize(
    live: tuple[bool, ...], *primals: Any, jaxpr: Jaxpr, in_specs: Specs, out_specs: Specs, **params: Any
) -> Any:
    """Two equations: the first computes the results and the residuals, the second the tangents."""
    live = tuple([has and is_differentiable(get_aval(x).dtype) for has, x in zip(live, primals, strict=True)])
    with inside(params):
        split = linearize.linearize_jaxpr(ClosedJaxpr(jaxpr), live)
        known, linear = _with_vectors(split, len(out_specs))
    kept = [_spec_of_residual(aval, params) for aval in split.known.out_avals[len(out_specs) :]]
    known_specs = [*out_specs, *kept]
    results = bind(known, primals, {**params, "in_specs": in_specs, "out_specs": known_specs})
    residuals = split.find_residuals(primals, results)
    specs = {"input": in_specs, "result": known_specs}
    residual_specs = [specs[word][at] if word in specs else PartitionSpec() for word, at in split.residuals]
    tangent_specs = {
        "in_specs": (*residual_specs, *_only(in_specs, live)),
        "out_specs": _only(out_specs, split.out_live),
    }

    def record(*tangents: Any) -> list[Any]:
        return bind(linear, [*residuals, *tangents], {**params, **tangent_specs}) if any(split.out_live) else []

    return results[: len(out_specs)], split.out_live, record


def _spec_of_residual(aval: Any, params: dict[str, Any]) -> PartitionSpec:
    names = aval.varying if params["check_vma"] else params["newly_manual_axes"]
    mine = in_mesh_order(params["mesh"], [name for name in names if name in params["newly_manual_axes"]])
    return PartitionSpec(mine) if mine else PartitionSpec()


def _with_vectors(split: linearize.Split, count: int) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """The programs of values and of tangents, between which scalar residuals go as vectors of one element."""
    known, linear = split.known, split.linear
    scalars = [number for number, aval in enumerate(known.out_avals) if number >= count and not aval.shape]
    if not scalars:
        return known, linear

    def with_vectors(*values: Any) -> list[Any]:
        outs = eval_jaxpr(known.jaxpr, known.consts, *values)
        return [shape.reshape(x, (1,)) if number in scalars else x for number, x in enumerate(outs)]

    def of_vectors(*values: Any) -> list[Any]:
        given = list(values)
        for index, (word, number) in enumerate(split.residuals):
            if word == "result" and number in scalars:
                given[index] = shape.reshape(given[index], ())
        return eval_jaxpr(linear.jaxpr, linear.consts, *given)

    in_avals = linear.in_avals
    for index, (word, number) in enumerate(split.residuals):
        if word == "result" and number in scalars:
            in_avals[index] = in_avals[index].update(shape=(1,))
    info = known.jaxpr.debug_info
    return (
        tracing.trace_to_jaxpr(with_vectors, known.in_avals, info, of_program=True)[0],
        tracing.trace_to_jaxpr(of_vectors, in_avals, info, of_program=True)[0],
    )


def _transpose(cts: Any, *operands: Any, jaxpr: Jaxpr, in_specs: Specs, out_specs: Specs, **params: Any) -> list[Any]:
    linear = tuple([is_undefined(x) for x in operands])
    live = tuple([type(ct) is not Zero for ct in cts])
    mesh, check = params["mesh"], params["check_vma"]
    manual = in_mesh_order(mesh, params["newly_manual_axes"])
    with inside(params):
        program, in_live = transpose.transpose_jaxpr(ClosedJaxpr(jaxpr), linear, live)
        found = _only(_only(in_specs, linear), in_live)
        if not check:
            program = _summed(program, [_not_named(spec, manual) for spec in found])
    given = _only(cts, live)
    if not check:
        given = [
            _divided(ct, parts(mesh, _not_named(spec, manual)))
            for ct, spec in zip(given, _only(out_specs, live), strict=True)
        ]
    known = [not is_linear for is_linear in linear]
    specs = {"in_specs": (*_only(in_specs, known), *_only(out_specs, live)), "out_specs": found}
    made = iter(bind(program, [*_only(operands, known), *given], {**params, **specs}))
    has_ct = iter(in_live)
    return [next(made) if is_linear and next(has_ct) else None for is_linear in linear]


def _not_named(spec: PartitionSpec, manual: tuple[Any, ...]) -> tuple[Any, ...]:
    named = axes_of_spec(spec)
    return tuple([name for name in manual if name not in named])


def _divided(ct: Any, count: int) -> Any:
    return ct if count == 1 else arithmetic.div(ct, get_aval(ct).dtype.type(count))


def _summed(program: ClosedJaxpr, names: list[tuple[Any, ...]]) -> ClosedJaxpr:
    """The program with each of its results summed over axes."""
    if not any(names):
        return program

    def flat(*values: Any) -> list[Any]:
        outs = eval_jaxpr(program.jaxpr, program.consts, *values)
        return [collectives.psum(x, over) if over else x for x, over in zip(outs, names, strict=True)]

    return tracing.trace_to_jaxpr(flat, program.in_avals, program.jaxpr.debug_info, of_program=True)[0]


shard_map_p.jvp, shard_map_p.linearize, shard_map_p.transpose = _jvp, _linearize, _transpose


# -- vmap -------------------------------------------------------------------------------------------------------------


def _batched_spec(spec: PartitionSpec, dim: Dim, axis: Axis) -> PartitionSpec:
    """The spec of a value with one more dimension, which lies along the mesh axes of ``vmap``'s ``spmd_axis_name``."""
    if dim is None:
        return spec
    entries = [*spec, *[None] * (dim - len(spec))]
    names: Any = axis.spmd_name
    entries.insert(dim, None if names is None else names if len(names) > 1 else names[0])
    return PartitionSpec(*entries)


def _batch(
    axis: Axis, values: list[Any], dims: list[Dim], *, jaxpr: Jaxpr, in_specs: Specs, out_specs: Specs, **params: Any
) -> Any:
    names = axis.spmd_name or ()
    for word, specs in (("in_specs", in_specs), ("out_specs", out_specs)):
        if any(set(names) & set(axes_of_spec(spec)) for spec in specs):
            raise ValueError(f"[vmap] spmd_axis_name {names} is used in the {word} of a shard_map inside: {specs}")
    local = axis._replace(size=axis.size // parts(params["mesh"], names))
    given = [_batched_spec(spec, dim, axis) for spec, dim in zip(in_specs, dims, strict=True)]
    in_avals = [shard_type(get_aval(value), spec, params) for value, spec in zip(values, given, strict=True)]
    found: list[Dim] = []

    def flat(*shards: Any) -> list[Any]:
        outs, found[:] = map_flat(lambda *args: eval_jaxpr(jaxpr, (), *args), local, shards, dims)
        return outs

    with inside(params):
        program, _ = tracing.trace_to_jaxpr(flat, in_avals, jaxpr.debug_info, of_program=True)
    wanted = [_batched_spec(spec, dim, axis) for spec, dim in zip(out_specs, found, strict=True)]
    return bind(program, values, {**params, "in_specs": given, "out_specs": wanted}), found


shard_map_p.batch_axis = _batch

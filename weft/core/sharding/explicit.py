"""Explicit mode: types that say how values lie along mesh axes of type Explicit, and what operations make of them.

    add          f32[8@x,4]  f32[8,4]        f32[8@x,4]
    dot_general  f32[8@x,16] f32[16,4@y]     f32[8@x,4@y]
    reduce_sum   f32[8@x,4@y] over 0         f32[4@y]

A type has a sharding only if a dimension is cut; its mesh is abstract. Shardings of results follow from the factors of
the equation (``weft.partitioning.rules``): dimensions that are one factor lie alike. What could lie in several ways, or
would have to be moved, raises ``ShardingTypeError``. Compiled programs have no shardings in their types (``erased``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft import config, errors, runtime
from weft._base import lazy
from weft.core import avals, kinds
from weft.core.effects import no_effects
from weft.core.primitive import ALL, PROGRAMS, Primitive
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.core.sharding.meshes import AxisType, get_abstract_mesh
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import trace_to_jaxpr

# Kinds whose results have the dimensions of their operand, shorter or longer: such a dimension lies as before.
_SAME_DIMENSIONS = (
    kinds.View, kinds.Assemble, kinds.DynamicSlice, kinds.DynamicUpdateSlice,
)  # fmt: skip
_used = tracing.explicit_types  # has an element once a type with a sharding was made


def is_used() -> bool:
    """Whether there ever was a type with a sharding in this process."""
    return bool(_used)


# A value without its sharding in the type: what is computed from it is typed as on one device.
mesh_cast_p = Primitive("mesh_cast", kind=kinds.Identity(eager=lambda params: None))
mesh_cast_p.def_abstract_eval(lambda x: plain(x))
mesh_cast_p.types_shardings = True
mesh_cast_p.linear = ALL
mesh_cast_p.transpose = lambda ct, x: (ct,)


def _batch_cast(size: int, args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    """The type goes on to say how the mapped dimension lies."""
    (x,), (dim,) = args, dims
    own = avals.get_aval(x).explicit_sharding
    if own is None or own.spec.partitions[dim] is None:
        return mesh_cast_p.bind(x), dim
    entries = [entry if at == dim else None for at, entry in enumerate(own.spec.partitions)]
    target = NamedSharding(own.mesh, PartitionSpec(*entries))
    resharding = lazy.submodule("weft.dispatch.devices.resharding")
    return resharding.reshard_p.bind(x, dst_sharding=target, concrete_mesh=None), dim


mesh_cast_p.batch = _batch_cast


def _cast_operands(trace: Any, primitive: Any, atoms: Sequence[Any], avals: Sequence[Any]) -> Any:
    """Operands of an operation in a relaxed context: those with a sharding in their type are cast."""
    if primitive is mesh_cast_p or primitive.types_shardings or type(primitive.kind) in PROGRAMS:
        return atoms, avals
    if not any(map(_has_sharding, atoms)):
        return atoms, avals
    cast = [atom if not _has_sharding(atom) else _cast(trace, atom) for atom in atoms]
    return cast, tuple([atom.aval for atom in cast])


def _cast(trace: Any, atom: Any) -> Any:
    if isinstance(atom, Literal):
        return Literal(atom.val, plain(atom.aval))
    out = Var(plain(atom.aval))
    trace.eqns.append(JaxprEqn([atom], [out], mesh_cast_p, {}, no_effects, source_info.capture(2)))
    return out


@contextmanager
def relaxed() -> Iterator[None]:
    """A context in which results have no shardings in their types, since they will be given one afterwards."""
    if not _used:
        yield
        return
    before = config.mesh_state()
    config.choose_mesh(before.replace(relaxed=True))
    try:
        yield
    finally:
        config.choose_mesh(before)


def sharded(aval: Any, sharding: Any) -> Any:
    """A type that says how values lie: along the explicit axes of a sharding, if there are any."""
    explicit = part(sharding, aval.ndim)
    if aval.explicit_sharding is explicit:
        return aval
    if explicit is not None and not _used:
        _used.append(_cast_operands)
    return aval.update(sharding=explicit)


def part(sharding: Any, ndim: int) -> NamedSharding | None:
    """What a type says of a sharding; None if no dimension lies along an explicit axis."""
    if not isinstance(sharding, NamedSharding) or AxisType.Explicit not in sharding.mesh.axis_types:
        return None
    mesh = sharding.mesh.abstract_mesh
    entries = []
    for entry in sharding.spec.padded(ndim).partitions:
        named = () if entry is UNCONSTRAINED else names_of(entry)
        entries.append(tuple([axis for axis in named if mesh.type_of(axis) is AxisType.Explicit]))
    return NamedSharding(mesh, PartitionSpec(*entries)) if any(entries) else None


def without_dimension(aval: Any, dim: int) -> Any:
    """The type of a part along a dimension, which it does not have."""
    made = aval.update(shape=(*aval.shape[:dim], *aval.shape[dim + 1 :]))
    own = getattr(aval, "explicit_sharding", None)
    if own is None:
        return made
    entries = own.spec.partitions
    return sharded(made, NamedSharding(own.mesh, PartitionSpec(*entries[:dim], *entries[dim + 1 :])))


def with_dimension(aval: Any, dim: int, extent: int) -> Any:
    """The type of ``extent`` values beside each other along a new dimension, which is not cut."""
    made = aval.update(shape=(*aval.shape[:dim], extent, *aval.shape[dim:]))
    own = getattr(aval, "explicit_sharding", None)
    if own is None:
        return made
    entries = own.spec.partitions
    return sharded(made, NamedSharding(own.mesh, PartitionSpec(*entries[:dim], None, *entries[dim:])))


def plain(aval: Any) -> Any:
    """A type without its sharding."""
    return aval if getattr(aval, "explicit_sharding", None) is None else aval.update(sharding=None)


# -- results of operations --------------------------------------------------------------------------------------------


def typed(primitive: Any, in_avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """What ``Primitive.typed`` gives if some operands have a sharding in their type."""
    out, effects = primitive.typed(tuple(map(plain, in_avals)), params)
    if config.mesh_state().relaxed:
        return out, effects
    outs = tuple(out) if primitive.multiple_results else (out,)
    kind = primitive.kind
    if isinstance(kind, kinds.Resolve) and kind.factors is None:
        found = _of_expansion(kind, in_avals, outs, params)
        return (found if primitive.multiple_results else found[0]), effects
    equation = JaxprEqn([Var(plain(a)) for a in in_avals], [Var(a) for a in outs], primitive, params, no_effects)
    found = _Rule(equation, in_avals).results()
    made = tuple([aval if s is None else aval.update(sharding=s) for aval, s in zip(outs, found, strict=True)])
    return (made if primitive.multiple_results else made[0]), effects


def _of_expansion(kind: Any, in_avals: Sequence[Any], outs: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
    """The types of a compound operation's results, by those of what it expands to."""
    if kind.of_keys:
        return tuple(outs)

    def flat(*operands: Any) -> list[Any]:
        made = kind.expand(*operands, **params)
        return list(made) if isinstance(made, tuple | list) else [made]

    _, types = trace_to_jaxpr(flat, in_avals)
    found = [getattr(aval, "explicit_sharding", None) for aval in types]
    return tuple([aval if s is None else aval.update(sharding=s) for aval, s in zip(outs, found, strict=True)])


class _Rule:
    """One equation whose operands lie along axes of a mesh."""

    def __init__(self, equation: JaxprEqn, avals: Sequence[Any]) -> None:
        self.equation, self.avals = equation, avals
        self.kind = equation.primitive.kind
        self.mesh = self._one_mesh()
        self.sizes = dict(self.mesh.shape_tuple)
        self.factors = lazy.submodule("weft.partitioning.rules").factors(equation)
        self.asked: dict[int, list[tuple[int, tuple[Any, ...]]]] = {}  # factor -> (operand, axes)
        self.kept: dict[int, tuple[Any, ...]] = {}  # dimension of the results -> axes

    def _one_mesh(self) -> Any:
        meshes = [a.explicit_sharding.mesh for a in self.avals if getattr(a, "explicit_sharding", None) is not None]
        if any(mesh != meshes[0] for mesh in meshes):
            self.refuse(f"the operands lie on several meshes: {', '.join(map(str, dict.fromkeys(meshes)))}")
        return meshes[0]

    def results(self) -> list[NamedSharding | None]:
        """The sharding of each result; None if it is not cut."""
        for number, (dims, aval) in enumerate(zip(self.factors.operands, self.avals, strict=True)):
            sharding = getattr(aval, "explicit_sharding", None)
            if sharding is not None:
                for at, (dim, entry) in enumerate(zip(dims, sharding.spec.partitions, strict=True)):
                    if names := names_of(entry):
                        self._ask(number, at, dim, names)
        assigned = self._agreed()
        return [self._result(number, dims, assigned) for number, dims in enumerate(self.factors.results)]

    def _ask(self, number: int, at: int, dim: Any, names: tuple[Any, ...]) -> None:
        specs = lazy.submodule("weft.partitioning.specs")
        found = specs.of_factors(dim, names, self.factors.extents, self.sizes)
        if sum(len(axes) for _, axes in found) == len(names):
            for factor, axes in found:
                self.asked.setdefault(factor, []).append((number, axes))
        elif isinstance(self.kind, kinds.Reduction) and at in self.kind.axes(self.equation.params):
            pass  # every device gets the result of all
        elif self._stays(number, at):
            self.kept[at] = names
        else:
            self.refuse(
                f"dimension {at} of operand {number} lies along {_names(names)}, and the operation "
                + ("cannot keep that" if isinstance(dim, tuple) else "needs all of it on one device")
            )

    def _stays(self, number: int, at: int) -> bool:
        """Whether the results have this dimension too, of an extent that can be cut."""
        if not isinstance(self.kind, _SAME_DIMENSIONS):
            return False
        operand = self.avals[number]
        names = names_of(operand.explicit_sharding.spec.partitions[at])
        for out in self.equation.outvars:
            if out.aval.ndim != operand.ndim:
                return False
            if out.aval.shape[at] % _parts(names, self.sizes):
                self.refuse(
                    f"dimension {at} of the result, of extent {out.aval.shape[at]}, cannot be cut along "
                    f"{_names(names)} into {_parts(names, self.sizes)} equal parts"
                )
        return self.kept.get(at, names) == names

    def _agreed(self) -> dict[int, tuple[Any, ...]]:
        """The axes of each factor, if all operands that are cut along it agree."""
        assigned = {}
        for factor, asks in self.asked.items():
            first, axes = asks[0]
            for other, different in asks[1:]:
                if different != axes:
                    self.refuse(
                        f"operand {first} lies along {_names(axes)} where operand {other} lies along "
                        f"{_names(different)}"
                    )
            if factor not in self.factors.reduced:
                assigned[factor] = axes
            elif isinstance(self.kind, kinds.Contraction) and len(asks) > 1:
                self.refuse(
                    "Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please "
                    f"specify the output sharding via the `out_sharding` parameter: both lie along {_names(axes)}"
                )
        return assigned

    def _result(self, number: int, dims: Sequence[Any], assigned: dict[int, tuple[Any, ...]]) -> NamedSharding | None:
        specs = lazy.submodule("weft.partitioning.specs")
        entries = list(specs.of_dims(dims, assigned, self.factors.extents, self.sizes))
        for at, dim in enumerate(dims):
            if isinstance(dim, tuple):  # joined dimensions lie along the axes of all, of the outer one first
                axes = tuple([axis for factor in dim for axis in assigned.get(factor, ())])
                entries[at] = axes if entries[at] else entries[at]
        for at, names in self.kept.items():
            entries[at] = names
        named = [axis for entry in entries for axis in entry]
        for axis in named:
            if named.count(axis) > 1:
                self.refuse(f"two dimensions of the result would lie along {axis!r}")
        mentioned = {factor for dim in dims for factor in (dim if isinstance(dim, tuple) else (dim,))}
        lost = [axis for factor in mentioned for axis in assigned.get(factor, ()) if axis not in named]
        if lost:
            self.refuse(f"the result cannot keep {_names(tuple(lost))}: no dimension of it has the same parts")
        aval = self.equation.outvars[number].aval
        return NamedSharding(self.mesh, PartitionSpec(*entries)) if named and aval.ndim else None

    def refuse(self, why: str) -> Any:
        """Raise ShardingTypeError: the operation, the operands' types, and the ways out."""
        operands = ", ".join([aval.str_short() for aval in self.avals])
        raise errors.ShardingTypeError(
            f"[{self.equation.primitive.name}] {why}. The operands are {operands}. Ways out: move an operand first, "
            "with weft.sharding.reshard(x, weft.P(...)); give `out_sharding=` to the function if it has that argument; "
            "or let the compiler choose inside a function, with weft.sharding.auto_axes"
        )


def _names(axes: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, axes))


def _parts(axes: Sequence[Any], sizes: dict[Any, int]) -> int:
    count = 1
    for axis in axes:
        count *= sizes[axis]
    return count


# -- programs without shardings in their types ------------------------------------------------------------------------


def erased(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, whose types have no shardings: what is compiled."""
    if not _used:
        return closed
    jaxpr = closed.jaxpr.memoize("without_shardings", _erase)
    if jaxpr is None:
        return closed
    consts = [
        runtime.array_alias(c, plain(c.aval)) if isinstance(c, runtime.Array) and plain(c.aval) is not c.aval else c
        for c in closed.consts
    ]
    return ClosedJaxpr(jaxpr, consts)


def _erase(jaxpr: Jaxpr) -> Jaxpr | None:
    """The program without shardings; None if it has none."""
    inner = [(eqn, _erased_params(eqn.params)) for eqn in jaxpr.eqns]
    variables = [*jaxpr.constvars, *jaxpr.invars, *[v for eqn in jaxpr.eqns for v in eqn.outvars]]
    atoms = [atom for eqn in jaxpr.eqns for atom in eqn.invars]
    if all(params is eqn.params for eqn, params in inner) and not any(_has_sharding(v) for v in (*variables, *atoms)):
        return None
    made: dict[Any, Any] = {}

    def variable(old: Any) -> Any:
        if isinstance(old, Literal):
            return Literal(old.val, plain(old.aval)) if _has_sharding(old) else old
        found = made.get(old)
        if found is None and not _has_sharding(old):
            return old
        if found is None:
            found = made[old] = Var(plain(old.aval))
        return found

    equations = []
    for eqn, params in inner:
        if eqn.primitive.types_shardings and isinstance(eqn.primitive.kind, kinds.Identity):
            made.update(zip(eqn.outvars, map(variable, eqn.invars), strict=True))  # nothing but its type is left of it
            continue
        operands, results = list(map(variable, eqn.invars)), list(map(variable, eqn.outvars))
        equations.append(eqn.replace(invars=operands, outvars=results, params=params))
    return jaxpr.replace(
        constvars=list(map(variable, jaxpr.constvars)),
        invars=list(map(variable, jaxpr.invars)),
        outvars=list(map(variable, jaxpr.outvars)),
        eqns=equations,
    )


def _has_sharding(atom: Any) -> bool:
    return getattr(atom.aval, "explicit_sharding", None) is not None


def _erased_params(params: dict[str, Any]) -> dict[str, Any]:
    changed = {name: new for name, value in params.items() if (new := _erased_value(value)) is not value}
    return {**params, **changed} if changed else params


def _erased_value(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return erased(value)
    if isinstance(value, Jaxpr):
        return value.memoize("without_shardings", _erase) or value
    if type(value) in (tuple, list) and any(isinstance(item, ClosedJaxpr | Jaxpr) for item in value):
        new = type(value)([_erased_value(item) for item in value])
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    return value


def of_type(aval: Any) -> NamedSharding:
    """What the type of a value answers as its sharding: its own, or that nothing is cut."""
    found = aval.explicit_sharding
    return NamedSharding(get_abstract_mesh(), PartitionSpec(*[None] * aval.ndim)) if found is None else found

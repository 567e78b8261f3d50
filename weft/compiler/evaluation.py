"""Eager evaluation: an operation on concrete operands is a program of one equation, compiled once per types.

Kernels contain no sizes, so that a new shape needs no new machine code, and for operations of elements and reductions
only new numbers (``other_sizes``). Installed as ``core.evaluate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import config, core, runtime
from weft._base import lazy
from weft.compiler import pipeline
from weft.core import avals, kinds
from weft.core.caches.store import PROGRAMS
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxprs_in_params
from weft.core.sharding import explicit
from weft.core.symbolic import sized_programs, sizes
from weft.core.symbolic.sized_programs import Sized
from weft.core.tracing import source_info
from weft.dispatch import devices
from weft.dispatch.devices import Backend, placement
from weft.dispatch.programs.executables import Runnable
from weft.effects import key_reuse, number_checks, user_primitives

# their parameters name no extents: see ``other_sizes``
_SIZED = (kinds.Elementwise, kinds.Reduction, kinds.Cumulative, kinds.Contraction)


def evaluate(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an operation: an Array, or a list of them for several results."""
    kind = primitive.kind
    if isinstance(kind, kinds.Identity) and kind.eager is not None:
        call = kind.eager(params)
        if call is not None:
            return call(*args)
    if isinstance(kind, kinds.Effect) or (isinstance(kind, kinds.External) and kind.foreign and kind.handler is None):
        return _call(primitive, kind, args, params)
    if isinstance(kind, kinds.Opaque) and (primitive.has_impl or primitive.lowering is None):
        return user_primitives.run(primitive, args, params)
    return evaluate_compiled(primitive, args, params)


def evaluate_compiled(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an operation by its compiled program."""
    avals = tuple([arg.aval if type(arg) is runtime.Array else core.host_aval(arg, args) for arg in args])
    if config.execution_watched and config.read("no_execution"):
        raise RuntimeError(f"tried to execute {primitive.name}, but the no_execution config option is set")
    use = None
    if config.keys_watched and key_reuse.enabled():
        use = key_reuse.use_operation(primitive, params, args)
    place = devices.place_of_call(args)
    if devices.many_processes() and (primitive.result_shardings is not None or lazy.process_calls.is_across(args)):
        found = _across_processes(primitive, args, avals, params)
        if found is not None:
            return found if primitive.multiple_results else found[0]
    spread = _spread(place, args)
    backend = devices.backend_at(place if place >= 0 else spread)
    program = _program(primitive, avals, params, place, backend)
    arrays = [arg if type(arg) is runtime.Array else as_array(arg, aval) for arg, aval in zip(args, avals, strict=True)]
    if not (backend.shards or spread) or (0 <= place <= 1 and primitive.result_shardings is None):
        results = program.run(arrays)
    else:
        out, _ = primitive.typed(avals, params) if explicit.is_used() else (None, None)
        places = lazy.sharded_calls.places_of_operation(
            primitive.name, _source(program, primitive, avals, params), args, place, out
        )
        results = program.run(arrays, None, places)
    if explicit.is_used() and any(aval.explicit_sharding is not None for aval in avals):
        results = _retyped(results, primitive, avals, params)
    if number_checks.enabled():
        number_checks.check_operation(primitive, params, arrays, results)
    if use is not None:
        use.done(results)
    return results if primitive.multiple_results else results[0]


def _spread(place: int, args: Sequence[Any]) -> int:
    """The place of an operation on what lies over several GPUs, or of an operand of it; 0: nothing does."""
    places = (place,) if place >= 0 else [x.place for x in args if type(x) is runtime.Array]
    return next(filter(devices.is_spread, places), 0)


def _across_processes(primitive: Any, args: Sequence[Any], avals: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The results of an operation on arrays that lie across processes; None if none of them does."""
    arrays = [arg if type(arg) is runtime.Array else as_array(arg, aval) for arg, aval in zip(args, avals, strict=True)]
    out = primitive.typed(avals, params)[0] if explicit.is_used() else None

    def make() -> tuple[ClosedJaxpr, str]:
        return _as_program(primitive, avals, params)

    return lazy.process_calls.evaluate(primitive, arrays, avals, params, make, out)


def _retyped(results: Sequence[Any], primitive: Any, avals: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
    """The results with types that say how they lie; compiled programs give results without."""
    out, _ = primitive.typed(avals, params)
    types = out if primitive.multiple_results else (out,)
    return [
        x if x.aval is aval or not isinstance(x, runtime.Array) else runtime.array_alias(x, aval)
        for x, aval in zip(results, types, strict=True)
    ]


def _call(primitive: Any, kind: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Call a user's function, after the effects of programs launched earlier."""
    arrays = [as_array(arg, core.get_aval(arg)) for arg in args]
    out_avals, _ = primitive.typed(tuple([array.aval for array in arrays]), params)
    runtime.stream_drain()
    results = kind.call(*arrays, **params)
    outs = [avals.from_numpy(value, aval) for value, aval in zip(results, out_avals, strict=True)]
    if number_checks.enabled():
        number_checks.check_results(primitive.name, arrays, outs)
    return outs


def _program(primitive: Any, avals: tuple[Any, ...], params: dict[str, Any], place: int, backend: Backend) -> Any:
    """The program of an operation, found by primitive, types, parameters and backend.

    If parameters contain jaxprs it is found only by the fingerprint of its program, in ``compile_jaxpr``: such jaxprs
    are often new objects in each evaluation, so that a key with them would not be found again. With guards it is found
    by the scopes that ask for them, too.
    """
    key: Any = ((primitive, avals, *params.items()), backend.key, config.x64_enabled())  # a ProgramKey, in less time
    is_guarded = config.checks_watched and check_scopes.apply_now()
    if is_guarded:
        marks = check_scopes.marks(source_info.capture())
        key = (key[0], ("checked", *backend.key), (key[2], config.read("checks"), marks))
    try:
        found = PROGRAMS.find(key)
    except TypeError:  # an unhashable parameter
        return _compile(primitive, avals, params, place, backend)
    if found is None:
        kind = primitive.kind
        if not is_guarded and (
            isinstance(kind, _SIZED) or (isinstance(kind, kinds.External) and kind.ordering is not None)
        ):
            found = _resized(primitive, avals, params, place, backend)
        else:
            found = _compile(primitive, avals, params, place, backend)
        if not jaxprs_in_params(params):
            PROGRAMS.add(key, found)
    return found


def _resized(primitive: Any, avals: tuple[Any, ...], params: dict[str, Any], place: int, backend: Backend) -> Any:
    """The program of an operation, from that of operands of other sizes if there is one."""
    found = sized_programs.size_class(avals)
    if found is None:
        return _compile(primitive, avals, params, place, backend)
    key = ((primitive, found[0], *params.items()), ("sizes", *backend.key), config.x64_enabled())
    family = PROGRAMS.entries.get(key)
    made = None if family is None else family.at(found[1], avals)
    if made is not None:
        return Runnable(made[0])
    guards = sizes.Guards(found[1], len(found[1]))
    try:
        symbols = dict(zip(found[1], guards.free, strict=True))
        sized = [sized_programs.sized_aval(aval, symbols) for aval in avals]
        closed, _ = _as_program(primitive, sized, params)
        program = _compile(primitive, avals, params, place, backend, Sized(closed, guards))
    finally:
        guards.close()
    if family is None:
        family = program.family()
        if family is None:  # the compiler of another device
            return program
        PROGRAMS.add(key, family)
    family.learn(program, guards)
    return program


def _source(program: Any, primitive: Any, avals: tuple[Any, ...], params: dict[str, Any]) -> ClosedJaxpr:
    """A program as equations; those of one that came from other sizes are made when they are first asked for."""
    if program.source is None:
        program.source = _as_program(primitive, avals, params)[0]
    return program.source


def as_array(value: Any, aval: Any) -> Any:
    """A scalar or a NumPy array as an Array of the given type."""
    if isinstance(value, runtime.Array):
        return value
    return runtime.array_from_numpy(np.asarray(value, aval.dtype), aval)


def clear_caches() -> None:
    """Forget every compiled program and kernel of the process."""
    pipeline.clear()


def _compile(
    primitive: Any, avals: Sequence[Any], params: dict[str, Any], place: int, backend: Backend,
    sized: Sized | None = None,
) -> Any:  # fmt: skip
    closed, name = _as_program(primitive, avals, params)
    placement.check_program(closed.jaxpr, place, name)
    return backend.compile(closed, name=name, shares=True, sized=sized)


def _as_program(primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> tuple[ClosedJaxpr, str]:
    """The program of one equation (or that which the equation calls), and its name."""
    kind = primitive.kind
    if isinstance(kind, kinds.Higher) and primitive.result_shardings is None:
        inner = kind.inline(params)
        if inner is not None:
            return inner, params.get("name", primitive.name)
    out, effects = primitive.typed(tuple(avals), params)
    invars = [Var(aval) for aval in avals]
    outvars = [Var(aval) for aval in (out if primitive.multiple_results else (out,))]
    source = (check_scopes.EAGER, 0, check_scopes.marks(source_info.capture())) if check_scopes.apply_now() else None
    equation = JaxprEqn(invars, outvars, primitive, params, effects, source)
    closed = ClosedJaxpr(Jaxpr((), invars, outvars, [equation], effects), ())
    return closed, primitive.name

"""Eager evaluation: one operation on concrete operands is a program of one equation, compiled once per types.

Sizes are not in kernels, so that a fresh shape costs a plan and no machine code. Installed as ``core.evaluate``.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import config, core, runtime
from weft.compiler import expansions, pipeline
from weft.core import avals, kinds
from weft.core.budget import BUDGET
from weft.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxprs_in_params
from weft.higher import number_checks

_ENTRY_BYTES = 600
_found: dict[Any, Any] = {}  # programs; weak references to those of operations that carry jaxprs


class _Carried(weakref.ref[Any]):
    """A jaxpr or function among the parameters of a key, and equal to it: the key goes when it dies."""

    __slots__ = ("key",)
    __hash__ = weakref.ref.__hash__

    key: Any

    def __eq__(self, other: object) -> bool:
        return self is other or (other is not None and self() is other)


def evaluate(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an operation: an Array, or a list of them for several results."""
    kind = primitive.kind
    if isinstance(kind, kinds.Effect) or (isinstance(kind, kinds.External) and kind.foreign):
        return _call(primitive, kind, args, params)
    avals = tuple([arg.aval if type(arg) is runtime.Array else core.get_aval(arg) for arg in args])
    key = (primitive, avals, config.x64_enabled(), *params.items())
    try:
        program = _found.get(key)
    except TypeError:  # an unhashable parameter
        program, key = None, None
    if type(program) is weakref.ref:
        program = program()
    if program is None:
        program = _compile(primitive, avals, params)
        if key is not None:
            _keep(key, program, params)
    arrays = [arg if type(arg) is runtime.Array else as_array(arg, aval) for arg, aval in zip(args, avals, strict=True)]
    results = program.executable.run([*program.consts, *arrays])
    if number_checks.enabled():
        number_checks.check_operation(primitive, params, arrays, results)
    return results if primitive.multiple_results else results[0]


def _call(primitive: Any, kind: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """A function of the user's, after the effects of the programs launched before."""
    arrays = [as_array(arg, core.get_aval(arg)) for arg in args]
    out_avals, _ = primitive.typed(tuple([array.aval for array in arrays]), params)
    runtime.stream_drain()
    results = kind.call(*arrays, **params)
    outs = [avals.from_numpy(value, aval) for value, aval in zip(results, out_avals, strict=True)]
    if number_checks.enabled():
        number_checks.check_results(primitive.name, arrays, outs)
    return outs


def _keep(key: Any, program: pipeline.Program, params: dict[str, Any]) -> None:
    """Let later evaluations find a program.

    Jaxprs are often made anew for every evaluation, and a program holds those it was made of: neither is kept by what
    is found for them, but by those who made them (the caches of traces, the pipeline).
    """
    if not jaxprs_in_params(params):
        _found[key] = program
        BUDGET.keep(program, _ENTRY_BYTES, functools.partial(_drop, key), pipeline.Program.runs)
        return
    carried: list[_Carried] = []
    key = _with_carried(key, carried)
    for reference in carried:
        reference.key = key
    _found[key] = weakref.ref(program)


def _with_carried(value: Any, carried: list[_Carried]) -> Any:
    if isinstance(value, tuple):
        return tuple([_with_carried(item, carried) for item in value])
    if isinstance(value, Jaxpr | ClosedJaxpr | types.FunctionType):
        carried.append(_Carried(value, _forget))
        return carried[-1]
    return value


def _forget(carried: _Carried, forget: Any = _found.pop) -> None:
    forget(carried.key, None)


def _drop(key: Any, program: pipeline.Program) -> None:
    if _found.get(key) is program:
        del _found[key]


def as_array(value: Any, aval: Any) -> Any:
    """A scalar or a NumPy array as an Array of the given type."""
    if isinstance(value, runtime.Array):
        return value
    return runtime.array_from_numpy(np.asarray(value, aval.dtype), aval)


def clear_caches() -> None:
    """Forget every compiled program, kernel and expansion of the process."""
    _found.clear()
    expansions.clear()
    pipeline.clear()


def _compile(primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    kind = primitive.kind
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(params)
        if inner is not None:
            return pipeline.compile_jaxpr(inner, name=params.get("name", primitive.name))
    out, effects = primitive.typed(tuple(avals), params)
    invars = [Var(aval) for aval in avals]
    outvars = [Var(aval) for aval in (out if primitive.multiple_results else (out,))]
    equation = JaxprEqn(invars, outvars, primitive, params, effects)
    closed = ClosedJaxpr(Jaxpr((), invars, outvars, [equation], effects), ())
    return pipeline.compile_jaxpr(closed, name=primitive.name)

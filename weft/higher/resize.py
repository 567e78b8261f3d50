"""Resizing: what a function of weft's recorded at some sizes, written for other sizes without running it.

    mean(f32[64,100])  ->  reduce_sum[axes=(1,)], div 100.0        at f32[80,120]:  reduce_sum[axes=(1,)], div 120.0

For functions marked ``uniform`` alone. Whatever the promise leaves open is refused, and then the function runs as ever.
With ``WEFT_CHECK=1`` it runs all the same, and both programs must agree.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeVar

import numpy as np

from weft import config, runtime
from weft.core import kinds, source_info
from weft.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from weft.core.source_info import Captured
from weft.core.trace import DynamicJaxprTracer, trace_to_jaxpr
from weft.errors import InternalError
from weft.higher import calls, replay
from weft.higher.trace_cache import FunctionRecord, Trace
from weft.operations import broadcast_in_dim_p
from weft.runtime import ShapedArray

_KEYS, _RECIPES = 64, 2  # kinds of calls that one function remembers, and recipes for each
# Arguments that are no arrays. A number stays Python's where it is an operand of one call, but what a function that is
# inlined makes of it may be a NumPy array, as counts are.
NO_SCALARS, LITERAL_SCALARS = frozenset([type(None)]), frozenset([type(None), bool, int, float])
_Function = TypeVar("_Function", bound=FunctionType)
_uniform: set[CodeType] = set()

Key = tuple[Any, ...]  # as ``trace_cache`` has it: (in_tree, avals, static_key, config token)


def uniform(function: _Function) -> _Function:
    """Promise that what ``function`` records for operands of other sizes differs in these sizes alone.

    Different extents (0 and 1 aside) are never compared, shapes are made of the operands' extents, and the only numbers
    among its literals are 0, those that are not finite, and counts of reduced elements, as NumPy arrays.
    """
    _uniform.add(function.__code__)
    return function


def is_uniform(function: Any) -> bool:
    """Whether a function of weft's was marked."""
    return getattr(function, "__code__", None) in _uniform


class _Refused(Exception):
    """The program at the new sizes cannot be told from the one known."""


class _Sizes(dict[int, int]):
    """What the extents of a program are at other sizes."""

    def __missing__(self, extent: int) -> int:
        raise _Refused

    def learn(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        for before, now in zip(old, new, strict=True):
            if self.setdefault(before, now) != now:
                raise _Refused

    def shape(self, extents: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(self.__getitem__, extents))

    def count(self, extents: Sequence[int]) -> int:
        return math.prod(map(self.__getitem__, extents))


class Recipe:
    """A program without its sizes. Operands are numbers: inputs, literals, then what the equations give."""

    __slots__ = ("debug_info", "fixed", "inputs", "literals", "out_tree", "results", "steps", "types")

    def __init__(self, jaxpr: Jaxpr, out_tree: Any) -> None:
        self.out_tree, self.debug_info = out_tree, jaxpr.debug_info
        self.inputs = [v.aval.shape for v in jaxpr.invars]
        reduced = [_reduced(eqn) for eqn in jaxpr.eqns if type(eqn.primitive.kind) is kinds.Reduction]
        self.fixed = [extents for extents in reduced if math.prod(extents) < 2]  # no literal tells these counts
        atoms = [*jaxpr.invars, *[x for eqn in jaxpr.eqns for x in eqn.invars if type(x) is Literal]]
        numbers = {id(atom): number for number, atom in enumerate(atoms)}
        self.literals = [  # and what they may be the number of
            (atom, [extents for extents in reduced if _is_count(atom.val, math.prod(extents))])
            for atom in atoms[len(self.inputs) :]
        ]
        count = len(atoms)
        self.types: list[Any] = []
        self.steps = []
        for eqn in jaxpr.eqns:
            reads = [numbers.get(id(atom)) for atom in eqn.invars]
            for v in eqn.outvars:
                numbers[id(v)] = count
                count += 1
            self.steps.append((eqn, _change(eqn), reads, [self._type(v.aval) for v in eqn.outvars]))
        self.results: list[Any] = [numbers.get(id(atom)) for atom in jaxpr.outvars]
        unknown = None in self.results or any(None in reads for _, _, reads, _ in self.steps)
        if jaxpr.constvars or jaxpr.effects or unknown or any(replay.is_new_each_time(eqn) for eqn in jaxpr.eqns):
            raise _Refused

    def _type(self, aval: Any) -> int:
        if aval not in self.types:
            self.types.append(aval)
        return self.types.index(aval)

    def write(self, invars: Sequence[Var], source: Captured | None) -> tuple[list[JaxprEqn], list[Atom]]:
        """The equations over variables of other sizes, and the results."""
        sizes = _Sizes({0: 0, 1: 1})
        for old, variable in zip(self.inputs, invars, strict=True):
            sizes.learn(old, variable.aval.shape)
        for extents in self.fixed:
            if sizes.count(extents) != math.prod(extents):
                raise _Refused
        atoms: list[Any] = list(invars)
        for literal, counted in self.literals:
            atoms.append(_counted(literal, counted, sizes) if counted else literal)
        avals: list[Any] = [None] * len(self.types)
        eqns = []
        for eqn, change, reads, types in self.steps:
            operands = list(map(atoms.__getitem__, reads))
            params = eqn.params if change is None else change(eqn, operands, sizes)
            made = []
            for number in types:
                aval = avals[number]
                if aval is None:
                    old = self.types[number]
                    aval = ShapedArray(sizes.shape(old.shape), old.dtype, old.weak_type)
                    avals[number] = aval
                made.append(aval)
            resized = runtime.equation(operands, tuple(made), eqn.primitive, params, eqn.effects, source)
            atoms += resized.outvars
            eqns.append(resized)
        return eqns, list(map(atoms.__getitem__, self.results))


def _reduced(eqn: JaxprEqn) -> tuple[int, ...]:
    """The extents of the dimensions that a reduction takes together."""
    shape = eqn.invars[0].aval.shape
    return tuple([shape[axis] for axis in eqn.primitive.kind.axes(eqn.params)])


def _is_count(value: Any, count: int) -> bool:
    if type(value) is not np.ndarray:
        return False
    with np.errstate(over="ignore"):
        found = bool(np.asarray(count).astype(value.dtype) == value)
    if found and not np.isfinite(value):  # the count, or a number that is none
        raise _Refused
    return found


def _counted(literal: Literal, counted: list[tuple[int, ...]], sizes: _Sizes) -> Literal:
    """A literal that may have been the number of some elements, as it is now."""
    count, *others = map(sizes.count, counted)
    for other in others:
        if other != count:
            raise _Refused
    dtype = literal.val.dtype
    exact = dtype.kind == "f" and count < 1 << 11  # in half precision too; then one conversion is as good as two
    return Literal(np.array(count, dtype) if exact else np.asarray(count).astype(dtype), literal.aval)


# -- what of an equation's parameters changes with its sizes ----------------------------------------------------------


def _change(eqn: JaxprEqn) -> Callable[[JaxprEqn, list[Any], _Sizes], dict[str, Any]] | None:
    kind = type(eqn.primitive.kind)
    if eqn.primitive is broadcast_in_dim_p:
        return _broadcast
    if eqn.primitive is calls.jit_p:
        return _call
    if kind is kinds.Assemble:
        return _assembled
    if kind not in (kinds.Elementwise, kinds.Reduction, kinds.Identity):
        raise _Refused
    return None


def _broadcast(eqn: JaxprEqn, operands: list[Any], sizes: _Sizes) -> dict[str, Any]:
    shape = sizes.shape(eqn.params["shape"])
    if operands[0].aval.shape == shape:  # it would not have been recorded
        raise _Refused
    return {**eqn.params, "shape": shape}


def _assembled(eqn: JaxprEqn, operands: list[Any], sizes: _Sizes) -> dict[str, Any]:
    made = eqn.primitive.typed(tuple([atom.aval for atom in operands]), eqn.params)[0]
    sizes.learn(eqn.outvars[0].aval.shape, made.shape)
    return eqn.params


def _call(eqn: JaxprEqn, operands: list[Any], sizes: _Sizes) -> dict[str, Any]:
    at = eqn.params["jaxpr"].jaxpr.memoize("at", _nowhere)
    trace = at and at(tuple([atom.aval for atom in operands]))
    if trace is None:
        raise _Refused
    for v, aval in zip(eqn.outvars, trace.out_avals, strict=True):
        sizes.learn(v.aval.shape, aval.shape)
    return {**eqn.params, "jaxpr": trace.closed}


def _nowhere(_: Jaxpr) -> None:
    """A program that is no uniform function's is not written at other sizes."""


# -- one function -----------------------------------------------------------------------------------------------------


class Recipes:
    """The recipes of one function, by what calls have in common that differ in sizes alone."""

    __slots__ = ("__weakref__", "_known", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[Any, list[Recipe]] = {}

    def _keep(self, alike: Any, jaxpr: Jaxpr, out_tree: Any) -> None:
        try:
            recipe = Recipe(jaxpr, out_tree)
        except _Refused:
            return
        if len(self._known) >= _KEYS:
            self._known.clear()
        known = self._known.setdefault(alike, [])
        known.append(recipe)
        del known[:-_RECIPES]

    def _write(self, alike: Any, invars: list[Var], source: Captured | None) -> Any:
        """(equations, results, recipe) of a call over ``invars``; None if no recipe tells them."""
        for recipe in self._known.get(alike, ()):
            try:
                return (*recipe.write(invars, source), recipe)
            except _Refused:
                continue
        return None

    def keep(self, record: FunctionRecord, key: Key, trace: Trace) -> None:
        """Make a recipe of a trace, which an equation may call."""
        jaxpr = trace.closed.jaxpr
        self._keep(_alike(key), jaxpr, trace.out_tree)
        jaxpr.memoize("at", lambda _: _At(self, record, key))

    def trace(self, record: FunctionRecord, key: Key) -> Trace | None:
        """The trace of a call, written after one of other sizes; it is found from now on."""
        invars, user = [Var(aval) for aval in key[1]], source_info.capture(2)
        written = self._write(_alike(key), invars, user and (*user[:2], ()))
        if written is None:
            return None
        eqns, outvars, recipe = written
        jaxpr = Jaxpr([], invars, outvars, eqns, debug_info=recipe.debug_info)
        jaxpr.memoize("at", lambda _: _At(self, record, key))
        made = Trace(ClosedJaxpr(jaxpr), recipe.out_tree, jaxpr.out_avals, self._name)
        record.store(key, made)
        return made

    def record(
        self,
        call: replay.Call,
        run: replay.Run,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scalars: frozenset[type],
    ) -> Any:
        """The result of ``run(args, kwargs)``, whose equations are written after those of a call of other sizes.

        ``scalars`` are the types of which literals may be that are no counts; on any others the function runs.
        """
        for x in (*args, *call.operands):
            if type(x) is not DynamicJaxprTracer and type(x) not in scalars:
                return run(args, kwargs)
        alike = tuple([(x.dtype, x.weak_type, len(x.shape)) if type(x) is ShapedArray else x for x in call.key])
        invars, source, own = [x.val for x in call.operands], source_info.capture(2), None
        if config.read("check"):  # first, or the function would be found written already
            own = trace_to_jaxpr(_flat(call, run, args, kwargs), [v.aval for v in invars])[0].jaxpr
        written = self._write(alike, invars, source)
        if written is None:
            return self._learn(alike, call, run, args, kwargs)
        eqns, outvars, recipe = written
        if own is not None:
            agree(Jaxpr([], invars, outvars, eqns), own, self._name)
        trace = call.trace
        trace.eqns += eqns
        tracers = [DynamicJaxprTracer(trace, atom.aval, atom, source) for atom in outvars]
        return runtime.tree_unflatten(recipe.out_tree, tracers)

    def _learn(
        self, alike: Any, call: replay.Call, run: replay.Run, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``run(args, kwargs)``, and a recipe of what it records."""
        trace, invars = call.trace, [x.val for x in call.operands]
        before = len(trace.eqns)
        result = run(args, kwargs)
        leaves, out_tree = runtime.tree_flatten(result)
        eqns = trace.eqns[before:]
        made = {id(v) for eqn in eqns for v in eqn.outvars}
        if made.issuperset([id(getattr(leaf, "val", None)) for leaf in leaves]):
            self._keep(alike, Jaxpr([], invars, [leaf.val for leaf in leaves], eqns), out_tree)
        return result


class _At:
    """The trace of a call like that of ``key`` for operands of other types, or None.

    What a program remembers of the function that made it: weakly, for recipes hold programs.
    """

    __slots__ = ("_key", "_recipes", "_record")

    def __init__(self, recipes: Recipes, record: FunctionRecord, key: Key) -> None:
        self._recipes, self._record = weakref.ref(recipes), weakref.ref(record)
        self._key = key

    def __call__(self, avals: tuple[Any, ...]) -> Trace | None:
        recipes, record = self._recipes(), self._record()
        if recipes is None or record is None:
            return None
        key = (self._key[0], avals, *self._key[2:])
        return record.traces.get(key) or recipes.trace(record, key)


def _flat(
    call: replay.Call, run: replay.Run, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., list[Any]]:
    """``run(args, kwargs)`` as a function of the traced operands."""

    def flat(*operands: Any) -> list[Any]:
        given = {id(x): operand for x, operand in zip(call.operands, operands, strict=True)}
        named = {name: given.get(id(x), x) for name, x in kwargs.items()}
        return runtime.tree_flatten(run(tuple([given.get(id(x), x) for x in args]), named))[0]

    return flat


def agree(jaxpr: Jaxpr, recorded: Jaxpr, name: str) -> None:
    """Raise InternalError unless a program that was written is what the function records."""
    texts = [f"{program}\n{[v.aval for v in (*program.invars, *program.outvars)]}" for program in (jaxpr, recorded)]
    if texts[0] != texts[1]:
        raise InternalError("a function is not uniform: {}\nbut {}".format(*texts), stage="trace", node=name)


def _alike(key: Key) -> Any:
    in_tree, avals, statics, token = key
    return in_tree, tuple([(aval.dtype, aval.weak_type, len(aval.shape)) for aval in avals]), statics, token

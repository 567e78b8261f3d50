"""Jacobians: jacfwd (by columns) and jacrev (by rows), each in one pass under vmap; hessian.

For ``f: f32[3] -> f32[2]`` both give f32[2,3]: the result's dimensions, then the argument's. Trees of results hold
trees of arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from weft import dtypes, runtime
from weft.autodiff import derivatives, gradients
from weft.autodiff.gradients import Argnums, Named, canonical_argnums, check_input, check_output, split_arguments
from weft.batching.batch_trace import map_flat
from weft.core import avals
from weft.core.axis_names import Axis
from weft.core.tangents import FLOAT0
from weft.core.tracing import tracebacks
from weft.dispatch.calls import flat_functions
from weft.dispatch.calls import jit as jit_module
from weft.operations.data_movement import assemble, shape
from weft.operations.mapped import at, in_front
from weft.operations.pointwise import convert

P = ParamSpec("P")


def _basis(types: Sequence[Any]) -> tuple[int, list[Any]]:
    """n, the number of elements of all arrays; and for each array its part of the n unit vectors, [n, *shape]."""
    total = sum(aval.size for aval in types)
    parts, start = [], 0
    for aval in types:
        row = assemble.broadcasted_iota(np.int32, (total, aval.size), 0)
        column = assemble.broadcasted_iota(np.int32, (total, aval.size), 1)
        unit = convert.convert(row == column + np.int32(start), aval.dtype, aval.weak_type)
        parts.append(shape.reshape(unit, (total, *aval.shape)))
        start += aval.size
    return total, parts


def _split(whole: Any, types: Sequence[Any], axis: int) -> list[Any]:
    """The parts of a Jacobian along the axis of unit vectors, each with the shape of its array there."""
    parts, start = [], 0
    extents = avals.get_aval(whole).shape
    for aval in types:
        part = shape.slice_in_dim(whole, start, start + aval.size, 1, axis)
        parts.append(shape.reshape(part, (*extents[:axis], *aval.shape, *extents[axis + 1 :])))
        start += aval.size
    return parts


def _typed(whole: Any, like: Any) -> Any:
    """A Jacobian with the weak type of ``like``; integer zeros if the result or the argument is integer."""
    aval = avals.get_aval(whole)
    if aval.dtype == FLOAT0:
        return assemble.full(aval.shape, 0, like.dtype)
    return convert.convert(whole, aval.dtype, like.weak_type)


class _Call:
    """One call to differentiate: the chosen arguments, and the function of these alone."""

    def __init__(self, fun: Callable[..., Any], numbers: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self.positions = split_arguments(fun, numbers, args)
        except TypeError as error:  # the type that jacobians raise
            raise ValueError(str(error)) from None
        self.selected = [args[position] for position in self.positions]
        self.single = isinstance(numbers, int)
        self.leaves, self.tree = runtime.tree_flatten(self.selected[0] if self.single else tuple(self.selected))
        self.types = [flat_functions.check_leaf(leaf) for leaf in self.leaves]
        self._fun, self._args, self._kwargs = fun, args, kwargs
        self._names = Named(fun, args, self.positions)

    def __call__(self, *given: Any) -> Any:
        whole = list(self._args)
        for position, value in zip(self.positions, given, strict=True):
            whole[position] = value
        return self._fun(*whole, **self._kwargs)

    def check(self, word: str, holomorphic: bool, allow_int: bool) -> None:
        for index, leaf in enumerate(self.leaves):
            check_input(word, holomorphic, allow_int, leaf, functools.partial(self._names.__getitem__, index))

    def check_real(self) -> None:
        for index, aval in enumerate(self.types):
            if not dtypes.issubdtype(aval.dtype, np.floating):
                raise TypeError(
                    "jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
                    f"{aval.dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation "
                    "of functions of complex numbers that are not holomorphic, or of integers, use weft.jvp directly. "
                    f"The argument is {self._names[index]}."
                )


def jacfwd(
    fun: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, Any]:
    """A function that gives the Jacobian of ``fun`` by forward mode: one tangent for each element of the arguments.

    For a result of shape R and an argument of shape A it has shape R + A. Its tree is that of the result, with the
    arguments' tree at each leaf. ``argnums``, ``has_aux`` and ``holomorphic`` as in ``grad``.

    >>> weft.jacfwd(lambda x: x**2)(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    jit_module.check_callable(fun)
    numbers = canonical_argnums(argnums)

    @functools.wraps(fun, assigned=gradients.COPIED)
    @tracebacks.boundary
    def jacobian_of(*args: P.args, **kwargs: P.kwargs) -> Any:
        call = _Call(fun, numbers, args, kwargs)
        if holomorphic:
            call.check("jacfwd", holomorphic=True, allow_int=False)
        else:
            call.check_real()
        size, basis = _basis(call.types)
        trees: list[Any] = [None, None, None]  # tree of the results, tree of the auxiliary value, types of the results
        in_tree = runtime.tree_flatten(tuple(call.selected))[1]

        def push(*tangents: Any) -> list[Any]:
            given = runtime.tree_unflatten(in_tree, list(tangents))
            made = derivatives.jvp(call, tuple(call.selected), given, has_aux)
            outs, trees[0] = runtime.tree_flatten(made[1])
            trees[2] = [avals.get_aval(value) for value in runtime.tree_flatten(made[0])[0]]
            rest, trees[1] = runtime.tree_flatten(made[2] if has_aux else None)
            return [*outs, *rest]

        outs, dims = map_flat(push, Axis(size), basis, [0] * len(basis))
        count = trees[0].num_leaves
        columns = []
        for out, dim in zip(outs[:count], dims[:count], strict=True):
            if holomorphic:  # real arguments may have complex results
                check_output("jacfwd", True, avals.get_aval(out).dtype)
            last = avals.get_aval(out).ndim - (dim is not None)
            whole = at(out, dim, last) if dim is not None else at(in_front(size, out, None), 0, last)
            whole = _typed(whole, trees[2][len(columns)])
            columns.append(runtime.tree_unflatten(call.tree, _split(whole, call.types, last)))
        jacobian = runtime.tree_unflatten(trees[0], columns)
        return (jacobian, runtime.tree_unflatten(trees[1], outs[count:])) if has_aux else jacobian

    return jacobian_of


def jacrev(
    fun: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """A function that gives the Jacobian of ``fun`` by reverse mode: one cotangent for each element of the result.

    Shapes, trees and parameters are those of ``jacfwd``; ``allow_int`` as in ``grad``.

    >>> weft.jacrev(lambda x: x**2)(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    jit_module.check_callable(fun)
    numbers = canonical_argnums(argnums)

    @functools.wraps(fun, assigned=gradients.COPIED)
    @tracebacks.boundary
    def jacobian_of(*args: P.args, **kwargs: P.kwargs) -> Any:
        call = _Call(fun, numbers, args, kwargs)
        call.check("jacrev", holomorphic, allow_int)
        (outs, pullback), function = derivatives.vjp_flat(call, call.selected, has_aux)
        types = [avals.get_aval(out) for out in outs]
        for aval in types:
            check_output("jacrev", holomorphic, aval.dtype)
        size, basis = _basis(types)
        rows, dims = map_flat(lambda *cts: pullback.pull(list(cts)), Axis(size), basis, [0] * len(basis))
        rows = [in_front(size, row, dim) for row, dim in zip(rows, dims, strict=True)]
        rows = [_typed(row, aval) for row, aval in zip(rows, call.types, strict=True)]
        parts = [_split(row, types, 0) for row in rows]
        blocks = []
        for number in range(len(types)):
            blocks.append(runtime.tree_unflatten(call.tree, [part[number] for part in parts]))
        jacobian = runtime.tree_unflatten(function.out_tree, blocks)
        return (jacobian, function.aux) if has_aux else jacobian

    return jacobian_of


jacobian = jacrev


def hessian(
    fun: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, Any]:
    """A function that gives the Hessian of ``fun``: ``jacfwd`` of ``jacrev``.

    >>> weft.hessian(lambda x: (x**3).sum())(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 6.0]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)

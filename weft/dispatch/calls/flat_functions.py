"""Adapts functions of trees to flat lists, as transformations need, and converts their results back for the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.autodiff.jvp import JVPTrace
from weft.core import avals
from weft.core.ref_types import AbstractRef
from weft.core.tracing import trace as tracing
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import signature


class FlatFunction:
    """``function`` on flat lists. After a call ``out_tree`` is the structure of its result, and ``aux`` its auxiliary
    output.

    With ``has_aux`` the function returns a pair, whose second part is not in the flat result.
    """

    def __init__(self, function: Callable[..., Any], in_tree: Any, has_aux: bool = False) -> None:
        self.function = function
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.out_tree: Any = None
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        result = self.function(*runtime.tree_unflatten(self.in_tree, list(leaves)))
        if self.has_aux:
            result, aux = checked_pair(result)
            self.aux = without_tangents(aux)
        flat, self.out_tree = runtime.tree_flatten(result)
        return flat


def checked_pair(result: Any) -> tuple[Any, Any]:
    """The two parts of the result of a function with ``has_aux``."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(
            "expected function with aux output to return a two-element tuple, but got "
            f"type {type(result)} with value {result}"
        )
    return result[0], result[1]


def without_tangents(tree: Any) -> Any:
    """The values of a tree as the enclosing trace sees them."""
    trace = tracing.state.trace
    if not isinstance(trace, JVPTrace):
        return tree
    leaves, treedef = runtime.tree_flatten(tree)
    return runtime.tree_unflatten(treedef, [trace.primal(leaf) for leaf in leaves])


def finished(value: Any) -> Any:
    """A result for the user: outside traces, scalars and NumPy arrays become Arrays, save those of float0."""
    if type(value) is runtime.Array or isinstance(value, Tracer) or tracing.is_tracing():
        return value
    if avals.find_rule(value) is None:
        return value
    aval = avals.get_aval(value)
    is_kept = aval.dtype == dtypes.float0 or not isinstance(aval.dtype, np.dtype)
    return value if is_kept else signature.to_array(value, aval)


def rebuilt(treedef: Any, leaves: Sequence[Any]) -> Any:
    """The user's tree of ``finished`` leaves."""
    return runtime.tree_unflatten(treedef, [finished(leaf) for leaf in leaves])


def finished_tree(result: Any) -> Any:
    """A tree of results for the user."""
    leaves, treedef = runtime.tree_flatten(result)
    return rebuilt(treedef, leaves)


def kept(leaves: Sequence[Any], in_avals: Sequence[Any]) -> Sequence[Any]:
    """The leaves, with NumPy arrays copied outside traces: residuals outlive the call, and users may write to them."""
    if tracing.is_tracing():
        return leaves
    pairs = zip(leaves, in_avals, strict=True)
    return [signature.to_array(leaf, aval) if isinstance(leaf, np.ndarray) else leaf for leaf, aval in pairs]


def check_leaf(leaf: Any, refs: bool = False) -> Any:
    """The aval of a leaf; TypeError if it is no array (or, with ``refs``, mutable reference)."""
    try:
        aval = avals.get_aval(leaf)
    except TypeError:
        raise TypeError(f"Argument '{leaf}' of type {type(leaf)} is not a valid JAX type") from None
    if not refs and type(aval) is AbstractRef:
        raise TypeError(
            f"there is no derivative with respect to a mutable array reference, {aval}: differentiate with respect to "
            "its value ref[...], and make the reference inside the function"
        )
    return aval

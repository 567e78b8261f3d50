"""Gradients of scalar functions: grad and value_and_grad.

``grad(f)(x)`` is the pullback of f at x, applied to 1; it has the structure of the arguments named by ``argnums``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from weft import dtypes, runtime, tree_util
from weft.autodiff import derivatives
from weft.core import avals
from weft.core.tangents import is_differentiable
from weft.core.tracing import tracebacks
from weft.dispatch.calls import flat_functions, signature
from weft.dispatch.calls import jit as jit_module
from weft.operations import linear as linear_operations

P = ParamSpec("P")
R = TypeVar("R")

Argnums = int | Sequence[int]


def canonical_argnums(argnums: Any) -> int | tuple[int, ...]:
    """An index or a tuple of them; TypeError for anything else."""
    if isinstance(argnums, (list, tuple)):
        return tuple([operator.index(number) for number in argnums])
    return operator.index(argnums)


def split_arguments(fun: Callable[..., Any], argnums: int | tuple[int, ...], args: tuple[Any, ...]) -> list[int]:
    """The positions of the differentiated arguments.

    TypeError if the call has too few arguments or ``argnums`` names one twice; ValueError for a negative number that
    reaches before the first argument.
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    needed = max([number + 1 if number >= 0 else -number for number in numbers], default=0)
    if needed > len(args):
        before_the_first = min(numbers) < -len(args)
        raise (ValueError if before_the_first else TypeError)(
            f"differentiating with respect to argnums={argnums} requires at least {needed} positional arguments to be "
            f"passed by the caller, but got only {len(args)} positional arguments."
        )
    positions = [number % len(args) for number in numbers]
    if len({*positions}) < len(positions):
        raise TypeError(f"argnums={argnums} names an argument twice; name each argument to differentiate by once.")
    return positions


class Named:
    """The user's names of the differentiated leaves, computed only when an error needs them."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], positions: Sequence[int]) -> None:
        self.fun, self.args, self.positions = fun, args, positions

    def __getitem__(self, index: int) -> str:
        names = signature.argument_names(self.fun, len(self.args), ())
        paths = []
        for position in self.positions:
            paths += [
                names[position] + tree_util.keystr(path)
                for path, _ in tree_util.tree_flatten_with_path(self.args[position])[0]
            ]
        return paths[index]


def check_input(word: str, holomorphic: bool, allow_int: bool, leaf: Any, name: Callable[[], str]) -> None:
    """TypeError unless a leaf may be differentiated."""
    dtype = flat_functions.check_leaf(leaf).dtype
    if holomorphic:
        if not dtypes.issubdtype(dtype, dtypes.np.complexfloating):
            raise TypeError(
                f"{word} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}. "
                f"The argument is {name()}."
            )
        return
    if dtypes.is_extended(dtype) and not allow_int:
        raise TypeError(f"{word} requires real- or complex-valued inputs, but got {dtype}. The argument is {name()}.")
    if not is_differentiable(dtype) and not allow_int:
        raise TypeError(
            f"{word} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got "
            f"{dtype.name}. If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True. "
            f"The argument is {name()}."
        )


def check_output(word: str, holomorphic: bool, dtype: Any) -> None:
    """TypeError unless a result of this dtype may be differentiated."""
    if holomorphic:
        if not dtypes.issubdtype(dtype, dtypes.np.complexfloating):
            raise TypeError(f"{word} with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")
        return
    if dtypes.issubdtype(dtype, dtypes.np.complexfloating):
        raise TypeError(
            f"{word} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{dtype.name}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
            "non-holomorphic functions involving complex outputs, use jax.vjp directly."
        )
    if not is_differentiable(dtype):
        raise TypeError(
            f"{word} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{dtype}. For differentiation of functions with integer outputs, use jax.vjp directly."
        )


def _check_scalar(outs: Sequence[Any], out_tree: Any) -> Any:
    """The aval of the one scalar result."""
    if len(outs) != 1 or out_tree.num_nodes != 1:
        result = runtime.tree_unflatten(out_tree, list(outs))
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {result}.")
    aval = avals.get_aval(outs[0])
    if aval.shape:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}.")
    return aval


def value_and_grad(
    fun: Callable[P, R],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[P, tuple[R, Any]]:
    """A function that gives ``(fun(...), gradient)``; the parameters are those of ``grad``.

    With ``has_aux`` the first is ``(value, aux)``.

    >>> value, slope = weft.value_and_grad(jnp.sin)(0.0)
    >>> print(value, slope)
    0.0 1.0
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to grad is deprecated")
    jit_module.check_callable(fun)
    numbers = canonical_argnums(argnums)
    inner: Callable[..., Any] = fun

    @functools.wraps(fun, assigned=COPIED)
    @tracebacks.boundary
    def value_and_grad_f(*args: P.args, **kwargs: P.kwargs) -> Any:
        positions = split_arguments(fun, numbers, args)
        selected = [args[position] for position in positions]
        names = Named(fun, args, positions)
        for index, leaf in enumerate(runtime.tree_flatten(selected)[0]):
            check_input("grad", holomorphic, allow_int, leaf, functools.partial(names.__getitem__, index))

        def of_selected(*given: Any) -> Any:
            whole = list(args)
            for position, value in zip(positions, given, strict=True):
                whole[position] = value
            return inner(*whole, **kwargs)

        (outs, pullback), function = derivatives.vjp_flat(of_selected, selected, has_aux)
        aval = _check_scalar(outs, function.out_tree)
        check_output("grad", holomorphic, aval.dtype)
        leaves = pullback.pull([linear_operations.ones(aval)])
        slopes = flat_functions.rebuilt(pullback.in_tree, leaves)
        slope = slopes[0] if isinstance(numbers, int) else tuple(slopes)
        value = flat_functions.finished(outs[0])
        return ((value, function.aux), slope) if has_aux else (value, slope)

    what = f"{_name(fun)} with respect to positional argument(s) {argnums}"
    value_and_grad_f.__doc__ = (
        f"Value and gradient of {what}. Takes the same arguments as {_name(fun)} but returns a two-element tuple where "
        f"the first element is the value of {_name(fun)} and the second element is the gradient, which has the same "
        f"shape as the arguments at positions {argnums}."
    )
    return value_and_grad_f


COPIED = ("__module__", "__name__", "__qualname__", "__annotations__")


def _name(fun: Any) -> str:
    return getattr(fun, "__name__", repr(fun))


def grad(
    fun: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[P, Any]:
    """A function that gives the gradient of a scalar function.

    ``argnums`` are the positions of the arguments to differentiate by (one, or several for a tuple of gradients).
    ``has_aux`` is for functions that return ``(value, aux)``, and adds ``aux`` to the result. ``holomorphic`` promises
    a holomorphic function of complex numbers. ``allow_int`` accepts integers, whose gradient is of type float0.
    TypeError for results that are not a real scalar, and for arguments that are not floats.

    >>> print(weft.grad(jnp.tanh)(0.0))
    1.0
    """
    value_and_grad_f = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun, assigned=COPIED)
    @tracebacks.boundary
    def grad_f(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, slope = value_and_grad_f(*args, **kwargs)
        return (slope, value[1]) if has_aux else slope

    grad_f.__doc__ = (
        f"Gradient of {_name(fun)} with respect to positional argument(s) {argnums}. Takes the same arguments as "
        f"{_name(fun)} but returns the gradient, which has the same shape as the arguments at positions {argnums}."
    )
    return grad_f

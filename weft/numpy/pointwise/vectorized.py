"""Functions of small arrays on large ones: vectorize, apply_along_axis, apply_over_axes, fromfunction, piecewise.

vectorize(f, signature="(n,m),(m)->(n)")(f32[5,2,3], f32[3])    vmap(f, in_axes=(0, None)) gives f32[5,2]
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft import config, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.batching.vmap import vmap
from weft.control import branches
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes as axes_module
from weft.numpy import joining, promotion, rearrange, reductions
from weft.numpy.array_creation import creation

CoreDims = tuple[str, ...]
_NAMES = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(rf"{_NAMES}(?:,{_NAMES})*->{_NAMES}(?:,{_NAMES})*")


# -- vectorize --------------------------------------------------------------------------------------------------------


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(), signature: str | None = None
) -> Callable[..., Any]:
    """``pyfunc`` with its arguments broadcast together, one ``vmap`` for each dimension that they broadcast to.

    ``signature`` such as ``"(n,m),(m)->(n)"`` names the trailing dimensions that ``pyfunc`` itself works on; without it
    these are scalars. Arguments in ``excluded`` (positions or keywords) and those that are None are passed as they are.
    ValueError for a signature that cannot be read and for dimensions that do not fit it or each other, TypeError for
    another number of arguments or results.

    >>> last = vectorize(lambda row, k: row[-1] * k, signature="(n),()->()")
    >>> last(np.ones((3, 2), np.float32), np.float32(1)).tolist()
    [1.0, 1.0, 1.0]
    """
    if any(not isinstance(name, (str, int)) for name in excluded):
        raise TypeError(f"jax.numpy.vectorize can only exclude integer or string arguments, but excluded={excluded!r}")
    if any(isinstance(name, int) and name < 0 for name in excluded):
        raise ValueError(f"excluded={excluded!r} contains negative numbers")

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        context = f"on vectorized function with excluded={excluded!r} and signature={signature!r}"
        ins, outs = ([()] * (len(args) - sum(_left_out(excluded, args))), None) if signature is None else (
            _parsed(signature)
        )  # fmt: skip
        function, moving, named = _without(pyfunc, args, kwargs, excluded)
        if named:
            raise TypeError(
                f"keyword arguments {sorted(named)} cannot be vectorized over {context}: pass them by position, or "
                "name them in `excluded`"
            )
        empty = [index for index, arg in enumerate(moving) if arg is None]
        if empty:
            if any(index < len(ins) and ins[index] != () for index in empty):
                raise ValueError(f"Cannot pass None at locations {set(empty)} with signature={signature!r}")
            function, moving, _ = _without(function, moving, {}, empty)
            ins = [dims for index, dims in enumerate(ins) if index not in empty]
        arrays = [creation.asarray(arg) for arg in moving]
        shape, sizes = _dimensions(arrays, ins, context)
        _check_ranks(arrays, ins, signature)
        return _mapped(function if outs is None else _checked(function, sizes, outs, context), arrays, ins, shape)

    return vectorized


def _left_out(excluded: Collection[int | str], args: Sequence[Any]) -> list[bool]:
    return [index in excluded for index in range(len(args))]


def _without(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], excluded: Collection[Any]
) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """(the function with the excluded arguments filled in, the other arguments by position, those by name)."""
    fixed = {index: arg for index, arg in enumerate(args) if index in excluded}
    fixed_named = {name: value for name, value in kwargs.items() if name in excluded}

    def rest(*moving: Any, **named: Any) -> Any:
        given = list(moving)
        for index, arg in fixed.items():
            given.insert(index, arg)
        return function(*given, **named, **fixed_named)

    moving = [arg for index, arg in enumerate(args) if index not in fixed]
    return rest, moving, {name: value for name, value in kwargs.items() if name not in fixed_named}


def _parsed(signature: str) -> tuple[list[CoreDims], list[CoreDims]]:
    """The names of the dimensions of every argument and every result."""
    if not _SIGNATURE.fullmatch(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    sides = [[tuple(re.findall(r"\w+", part)) for part in re.findall(_NAMES, side)] for side in signature.split("->")]
    return sides[0], sides[1]


def _note_sizes(sizes: dict[str, int], shape: tuple[int, ...], dims: CoreDims, context: str) -> None:
    """Fit the trailing extents of a shape to the names of dimensions."""
    for name, size in zip(dims, shape[len(shape) - len(dims) :], strict=True):
        if sizes.setdefault(name, size) != size:
            raise ValueError(f"inconsistent size for core dimension {name!r}: {size!r} vs {sizes[name]!r} {context}")


def _dimensions(arrays: Sequence[Any], ins: Sequence[CoreDims], context: str) -> tuple[tuple[int, ...], dict[str, int]]:
    """(the shape that arguments broadcast to, the sizes of named dimensions)."""
    if len(arrays) != len(ins):
        raise TypeError(f"wrong number of positional arguments: expected {len(ins)!r}, got {len(arrays)!r} {context}")
    sizes: dict[str, int] = {}
    outer = []
    for array, dims in zip(arrays, ins, strict=True):
        shape = promotion.shape_of(array)
        if len(shape) < len(dims):
            raise ValueError(
                f"input with shape {shape!r} does not have enough dimensions for all core dimensions {dims!r} {context}"
            )
        _note_sizes(sizes, shape, dims, context)
        outer.append(shape[: len(shape) - len(dims)])
    return lax.broadcast_shapes(*outer), sizes


def _checked(
    function: Callable[..., Any], sizes: dict[str, int], outs: Sequence[CoreDims], context: str
) -> Callable[..., Any]:
    """The function, whose results must be as the signature says."""

    def checked(*args: Any) -> Any:
        made = function(*args)
        if len(outs) > 1 and not isinstance(made, tuple):
            raise TypeError(f"output must be a tuple when multiple outputs are expected, got: {made!r}\n{context}")
        shapes = [promotion.shape_of(out) for out in (made if isinstance(made, tuple) else [made])]
        if len(shapes) != len(outs):
            raise TypeError(f"wrong number of output arguments: expected {len(outs)!r}, got {len(shapes)!r} {context}")
        found = dict(sizes)
        for shape, dims in zip(shapes, outs, strict=True):
            if len(shape) != len(dims):
                raise ValueError(f"output shape {shape!r} does not match core dimensions {dims!r} {context}")
            _note_sizes(found, shape, dims, context)
        return made

    return checked


def _check_ranks(arrays: Sequence[Any], ins: Sequence[CoreDims], signature: str | None) -> None:
    """What the option ``numpy_rank_promotion`` asks for when arguments differ in rank."""
    mode = config.read("numpy_rank_promotion")
    shapes = [promotion.shape_of(array) for array in arrays]
    ranks = {len(shape) - len(dims) for shape, dims in zip(shapes, ins, strict=True) if shape}
    if mode == "allow" or len(ranks) <= 1:
        return
    text = (
        f"operands with shapes {shapes} require rank promotion for jnp.vectorize function with signature {signature}. "
        "Set the numpy_rank_promotion config option to 'allow' to disable this message."
    )
    if mode == "raise":
        raise ValueError(text)
    errors.warn(text)


def _mapped(
    function: Callable[..., Any], arrays: Sequence[Any], ins: Sequence[CoreDims], shape: tuple[int, ...]
) -> Any:
    """One vmap for each dimension along which some argument has more than one element, the innermost first."""
    outer = [
        promotion.shape_of(x)[: len(promotion.shape_of(x)) - len(dims)] for x, dims in zip(arrays, ins, strict=True)
    ]
    padded = [(*(1,) * (len(shape) - len(sizes)), *sizes) for sizes in outer]
    operands = [
        lax.squeeze(x, [d for d, n in enumerate(sizes) if n == 1]) for x, sizes in zip(arrays, outer, strict=True)
    ]
    single: list[int] = []
    for dim in reversed(range(len(shape))):
        in_axes = tuple([None if sizes[dim] == 1 else 0 for sizes in padded])
        if all(axis is None for axis in in_axes):
            single.append(dim)
        else:
            function = vmap(function, in_axes)
    result = function(*operands)
    if not single:
        return result
    if isinstance(result, tuple):
        return tuple([rearrange.expand_dims(part, single) for part in result])
    return rearrange.expand_dims(result, single)


# -- along axes -------------------------------------------------------------------------------------------------------


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Array:
    """``func1d(slice, *args, **kwargs)`` of every one-dimensional slice of ``arr`` along ``axis``.

    What it gives replaces the axis. ``func1d`` is mapped, so that it runs once, on a traced slice.

    >>> apply_along_axis(reductions.sum, 0, np.ones((2, 3), np.float32)).tolist()
    [2.0, 2.0, 2.0]
    """
    promotion.check_arraylike("apply_along_axis", arr)
    rank = len(promotion.shape_of(arr))
    along = operator.index(axis)
    if not -rank <= along < rank:
        raise errors.AxisError(f"axis {along} is out of bounds for array of dimension {rank}")
    along %= rank

    def function(piece: Any) -> Any:
        return func1d(piece, *args, **kwargs)

    for dim in range(1, rank - along):
        function = vmap(function, in_axes=dim, out_axes=-1)
    for _ in range(along):
        function = vmap(function)
    return function(promotion.as_array(arr))


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Array:
    """``func(a, axis)`` for each axis in turn; axes that it drops are put back with extent 1.

    >>> apply_over_axes(reductions.sum, np.ones((2, 3), np.float32), (0, 1)).shape
    (1, 1)
    """
    promotion.check_arraylike("apply_over_axes", a)
    a = promotion.as_array(a)
    rank = len(promotion.shape_of(a))
    for axis in (axes,) if axes_module.is_one(axes) else axes:
        result = func(a, axis)
        if len(promotion.shape_of(result)) == rank - 1:
            result = rearrange.expand_dims(result, operator.index(axis) % rank)
        if len(promotion.shape_of(result)) != rank:
            raise ValueError("function is not returning an array of the correct shape")
        a = result
    return a


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """``function(*index, **kwargs)`` for every index of ``shape``; it is mapped, so that it sees scalars.

    >>> fromfunction(lambda i, j: i + j, (2, 2)).tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    shape = axes_module.canonical_shape(shape)
    dtype = dtypes.check_user_dtype(dtype, "fromfunction")
    mapped: Callable[..., Any] = functools.partial(function, **kwargs)
    for dim in reversed(range(len(shape))):
        mapped = vmap(mapped, tuple([0 if other == dim else None for other in range(len(shape))]))
    return mapped(*[lax.iota(dtype, size) for size in shape])


# -- piecewise --------------------------------------------------------------------------------------------------------


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """For each element the function (or number) of the first true condition; one without a condition is the default.

    Functions are mapped over the elements, as ``func(element, *args, **kw)``. Without a default it is 0. ValueError
    unless there are as many functions as conditions, or one more.

    >>> piecewise(np.float32(2), [True], [lambda v: v * 3]).item()
    6.0
    """
    promotion.check_arraylike("piecewise", x)
    count, functions = len(condlist), list(funclist)
    if len(functions) == count + 1:
        functions = [functions[-1], *functions[:-1]]
    elif len(functions) == count:
        functions = [0, *functions]
    else:
        raise ValueError(
            f"with {count} condition(s), either {count} or {count + 1} functions are expected; got {len(functions)}"
        )
    numbers = {number: f for number, f in enumerate(functions) if not callable(f)}
    called = tuple([(number, f) for number, f in enumerate(functions) if callable(f)])
    conditions = creation.asarray(condlist, dtype=bool)
    return _piecewise(promotion.as_array(x), conditions, numbers, called, args, kw)


@jit_module.jit(static_argnums=3)
def _piecewise(x: Any, conditions: Any, numbers: dict[int, Any], called: Any, args: Any, kw: Any) -> Any:
    dtype = promotion.dtype_of(x)
    functions = dict(called)

    def case(number: int) -> Callable[[Any], Any]:
        if number in functions:
            return lambda v: creation.asarray(functions[number](v, *args, **kw), dtype=dtype)
        return lambda v: creation.asarray(numbers[number], dtype=dtype)

    count = promotion.shape_of(conditions)[0]
    none = creation.zeros_like(conditions[:1])
    running = reductions.cumsum(joining.concatenate([none, conditions], 0), axis=0)
    first = reductions.argmax(running, axis=0)
    cases = [case(number) for number in range(count + 1)]
    return vectorize(lambda index, v: branches.switch(index, cases, v))(first, x)

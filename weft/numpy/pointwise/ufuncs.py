"""ufunc and frompyfunc: a function of scalars as one of arrays, with NumPy's methods reduce, accumulate, at and others.

frompyfunc(f, 2, 1).reduce(f32[3,4])    a scan of 2 steps over f32[4], each one vmap of f
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft.batching.vmap import vmap
from weft.control import scan, while_loop
from weft.core.avals import get_aval
from weft.core.tracing import trace as tracing
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import selection
from weft.numpy.pointwise.vectorized import vectorize
from weft.numpy.subscripts import taking

jit = jit_module.jit

Special = Callable[..., Any] | None

_SHARED = ("nin", "nout", "nargs", "identity", "reduce", "accumulate", "reduceat", "outer", "at")


class _UfuncType(type):
    """Jitted functions that carry the methods of a ufunc (``give_methods``) are its instances too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or id(instance) in _with_methods


_with_methods: dict[int, Any] = {}  # by id; functions of weft.numpy, which stay alive


class ufunc(metaclass=_UfuncType):
    """A function of ``nin`` scalars that gives ``nout``, applied to arrays that are broadcast together.

    ``call``, ``reduce``, ``accumulate``, ``at`` and ``reduceat`` replace the general methods. Arguments ``out`` and
    ``where`` of calls raise NotImplementedError; methods of functions that are not binary, ValueError.

    >>> hypot = frompyfunc(lambda x, y: (x * x + y * y) ** 0.5, 2, 1)
    >>> hypot(np.float32([3, 6]), np.float32(4)).tolist()
    [5.0, 7.211102485656738]
    """

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Special = None,
        reduce: Special = None,
        accumulate: Special = None,
        at: Special = None,
        reduceat: Special = None,
    ) -> None:
        self.__doc__ = func.__doc__
        self.__name__ = name or func.__name__
        self._func = func
        self._counts = operator.index(nin), operator.index(nout), operator.index(nargs or nin)
        self._identity = identity
        self._special = {"call": call, "reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}

    def _key(self) -> tuple[Any, ...]:
        return self._func, self.__name__, self._identity, *self._counts

    nin = property(lambda self: self._counts[0], doc="The number of operands.")
    nout = property(lambda self: self._counts[1], doc="The number of results.")
    nargs = property(lambda self: self._counts[2], doc="The number of operands, unless another was given.")
    identity = property(lambda self: self._identity, doc="What a reduction without elements gives, or None.")

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        promotion.check_arraylike(self.__name__, *args)
        promotion.check_options(self.__name__, out, where)
        return (self._special["call"] or self._call_vectorized)(*args)

    @functools.partial(jit, static_argnames=("self",))
    def _call_vectorized(self, *args: Any) -> Any:
        return vectorize(self._func)(*args)

    def _check_binary(self, method: str, out: Any = None) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.{method}()")

    def _dtype(self, *operands: Any) -> Any:
        """The dtype of a result."""
        avals = [get_aval(x).update(shape=()) for x in operands]
        return tracing.trace_to_jaxpr(lambda *xs: [self._func(*xs)], avals)[1][0].dtype

    # -- reductions -----------------------------------------------------------------------------------------------

    @functools.partial(jit, static_argnames=("self", "axis", "dtype", "out", "keepdims"))
    def reduce(
        self,
        a: Any,
        axis: int | None = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        """The function applied between the elements along ``axis`` (None: all), from the first to the last.

        >>> int(frompyfunc(lambda x, y: x * y, 2, 1).reduce(np.int32([2, 3, 4])))
        24
        """
        promotion.check_arraylike(f"{self.__name__}.reduce", a)
        self._check_binary("reduce", out)
        if where is not None:
            if self.identity is None and initial is None:
                raise ValueError(
                    f"reduction operation {self.__name__!r} does not have an identity, so to use a where mask one has "
                    "to specify 'initial'."
                )
            if get_aval(where).dtype != np.bool_:
                raise ValueError(f"where argument must have dtype=bool; got dtype={get_aval(where).dtype}")
        special = self._special["reduce"]
        if special is not None:
            return special(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        if isinstance(axis, tuple):
            raise NotImplementedError(f"[{self.__name__}.reduce] a tuple of axes; reduce them one after the other")
        array = creation.asarray(a)
        shape = promotion.shape_of(array)
        initial = self.identity if initial is None else initial
        dtype = self._dtype(array, array) if dtype is None else dtypes.check_user_dtype(dtype, "reduce")
        dim = 0 if axis is None else axes.canonical_axis(axis, len(shape))
        kept = (1,) * len(shape) if axis is None else (*shape[:dim], 1, *shape[dim + 1 :])
        rows = self._rows(array, axis, dim)
        masks = None if where is None else self._rows(rearrange.broadcast_to(where, shape), axis, dim)
        count, rest = promotion.shape_of(rows)[0], promotion.shape_of(rows)[1:]
        if count == 0 and initial is None:
            raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        start = rows[0] if initial is None else creation.asarray(initial)
        start = rearrange.broadcast_to(promotion.convert(start, np.dtype(dtype)), rest)
        first = 1 if initial is None else 0
        elements = (rows[first:], None if masks is None else masks[first:])

        def step(value: Any, element: Any) -> tuple[Any, None]:
            row, mask = element
            new = promotion.convert(self(value, promotion.convert(row, np.dtype(dtype))), np.dtype(dtype))
            return (new if mask is None else selection.where(mask, new, value)), None

        result = scan.scan(step, start, elements)[0] if count > first else start
        return rearrange.reshape(result, kept) if keepdims else result

    def _rows(self, array: Any, axis: int | None, dim: int) -> Any:
        return rearrange.ravel(array) if axis is None else rearrange.moveaxis(array, dim, 0)

    @functools.partial(jit, static_argnames=("self", "axis", "dtype"))
    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The results of ``reduce`` along the way.

        >>> frompyfunc(lambda x, y: x * y, 2, 1).accumulate(np.int32([2, 3, 4])).tolist()
        [2, 6, 24]
        """
        promotion.check_arraylike(f"{self.__name__}.accumulate", a)
        self._check_binary("accumulate", out)
        special = self._special["accumulate"]
        if special is not None:
            return special(a, axis=axis, dtype=dtype)
        if axis is None or isinstance(axis, tuple):
            raise ValueError("accumulate does not allow multiple axes")
        array = creation.asarray(a)
        shape = promotion.shape_of(array)
        dtype = np.dtype(self._dtype(array, array) if dtype is None else dtypes.check_user_dtype(dtype, "accumulate"))
        dim = axes.canonical_axis(axis, len(shape))
        if math.prod(shape) == 0:
            return lax.full(shape, 0, dtype)
        rows = promotion.convert(rearrange.moveaxis(array, dim, 0), dtype)

        def step(value: Any, row: Any) -> tuple[Any, Any]:
            new = promotion.convert(self(value, row), dtype)
            return new, new

        later = scan.scan(step, rows[0], rows[1:])[1]
        return rearrange.moveaxis(lax.concatenate([rows[:1], later], 0), 0, dim)

    @functools.partial(jit, static_argnames=("self", "axis", "dtype"))
    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """``reduce`` of the slices of ``a`` along ``axis`` that begin at ``indices`` and end at the next one.

        >>> frompyfunc(lambda x, y: x + y, 2, 1).reduceat(np.int32([1, 2, 3, 4]), np.int32([0, 2])).tolist()
        [3, 7]
        """
        self._check_binary("reduceat", out)
        promotion.check_arraylike(f"{self.__name__}.reduceat", a, indices)
        special = self._special["reduceat"]
        if special is not None:
            return special(a, indices, axis=axis, dtype=dtype)
        dtype = self._dtype(a, a) if dtype is None else dtypes.check_user_dtype(dtype, "reduceat")
        array, starts = promotion.convert(creation.asarray(a), np.dtype(dtype)), creation.asarray(indices)
        shape = promotion.shape_of(array)
        if not shape:
            raise ValueError(f"reduceat: a must have 1 or more dimension, got a.shape={shape!r}")
        if starts.ndim != 1:
            raise ValueError(f"reduceat: indices must be one-dimensional, got indices.shape={starts.shape!r}")
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError("reduceat requires a single integer axis.")
        dim = axes.canonical_axis(axis, len(shape))
        others = [d for d in range(len(shape)) if d != dim]
        end = creation.asarray([shape[dim]], dtype=starts.dtype)
        first = rearrange.expand_dims(starts, others)
        last = rearrange.expand_dims(lax.concatenate([starts[1:], end], 0), others)

        def step(i: Any, value: Any) -> Any:
            row = rearrange.expand_dims(taking.take(array, i, axis=dim), dim)
            inside = (i > first) & (i < last)
            return selection.where(inside, promotion.convert(self(value, row), value.dtype), value)

        return while_loop.fori_loop(0, shape[dim], step, taking.take(array, starts, axis=dim))

    # -- the others -----------------------------------------------------------------------------------------------

    @functools.partial(jit, static_argnums=(0,))
    def outer(self, A: Any, B: Any, /) -> Any:
        """The function of every element of ``A`` with every element of ``B``.

        >>> frompyfunc(lambda x, y: x - y, 2, 1).outer(np.int32([1, 2]), np.int32([0, 1, 2])).tolist()
        [[1, 0, -1], [2, 1, 0]]
        """
        self._check_binary("outer")
        promotion.check_arraylike(f"{self.__name__}.outer", A, B)
        left, right = creation.asarray(A), creation.asarray(B)
        result = vmap(vmap(self, (None, 0)), (0, None))(rearrange.ravel(left), rearrange.ravel(right))
        return rearrange.reshape(result, (*left.shape, *right.shape))

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """A copy of ``a`` with the function applied at ``indices``, once for each time an index occurs.

        ``b`` is broadcast to the shape of ``a[indices]``; indices out of bounds are left out. Arrays cannot be
        changed, so that ``inplace=False`` must be given; otherwise NotImplementedError.

        >>> add = frompyfunc(lambda x, y: x + y, 2, 1)
        >>> add.at(np.int32([0, 0, 0]), np.int32([1, 1, 2]), 5, inplace=False).tolist()
        [0, 10, 5]
        """
        if inplace:
            raise NotImplementedError(
                f"[{self.__name__}.at] arrays are immutable, so that jnp.ufunc.at() cannot operate inplace: pass "
                "inplace=False, and use the array that is returned"
            )
        special = self._special["at"]
        operands = () if b is None else (b,)
        if special is not None:
            return special(a, indices, *operands)
        promotion.check_arraylike(f"{self.__name__}.at", a, *operands)
        dtype = np.dtype(self._dtype(a, *operands))
        array = promotion.convert(creation.asarray(a), dtype)
        values = [promotion.convert(creation.asarray(value), dtype) for value in operands]
        items = indices if isinstance(indices, tuple) else (indices,)
        if all(isinstance(item, (slice, int, type(None), type(Ellipsis))) for item in items):  # none occurs twice
            return array.at[items].set(self(array[items], *values))
        size = math.prod(array.shape)
        targets = creation.arange(size).reshape(array.shape).at[items].get(mode="fill", fill_value=size)
        spread = [rearrange.ravel(rearrange.broadcast_to(value, targets.shape)) for value in values]
        return self._one_by_one(array, rearrange.ravel(targets), *spread)

    @functools.partial(jit, static_argnums=(0,))
    def _one_by_one(self, array: Any, targets: Any, *operands: Any) -> Any:
        """The function applied at targets in the flattened array; those past its end are left out."""

        def step(k: Any, flat: Any) -> Any:
            return flat.at[targets[k]].set(self(flat[targets[k]], *[operand[k] for operand in operands]))

        return while_loop.fori_loop(0, targets.size, step, rearrange.ravel(array)).reshape(array.shape)


def give_methods(jitted: Callable[..., Any], nin: int, identity: Any, **special: Any) -> None:
    """Make a jitted function of weft.numpy a ufunc: calls stay its own, attributes lead to the methods."""
    methods = ufunc(jitted, nin, 1, identity=identity, call=jitted, **special)
    for name in _SHARED:
        setattr(jitted, name, getattr(methods, name))
    _with_methods[id(jitted)] = jitted


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A ``ufunc`` of a function of ``nin`` scalars that gives ``nout``; ``identity`` is where reductions begin.

    >>> frompyfunc(lambda x, y: x + 2 * y, 2, 1)(np.int32([1, 2]), 10).tolist()
    [21, 22]
    """
    return ufunc(func, nin, nout, identity=identity)

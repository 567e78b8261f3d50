"""What every sparse format has: a shape, a dtype, buffers as a pytree, and arithmetic that says where it ends.

A format is a subclass of ``JAXSparse``. Its buffers (values and indices) are the leaves of a pytree, so that ``jit``,
``grad`` and ``vmap`` take sparse arrays as they are. Operators that a format has no rule for raise
NotImplementedError::

    BCOO (data f32[3], indices i32[3,2]), shape (2, 3)   BCSR, CSR, CSC (data, indices, indptr)   COO (data, row, col)
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from weft import numpy as jnp
from weft import operations as lax
from weft import tree_util
from weft.batching import vmap as vmap_module
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls import jit as jit_module

Matrix = TypeVar("Matrix", bound="JAXSparse")
Function = TypeVar("Function", bound=Callable[..., Any])


class SparseEfficiencyError(ValueError):
    """A sparse result would take far more memory than its operand."""


class SparseEfficiencyWarning(UserWarning):
    """A sparse result takes far more memory than its operand."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """Known for the sake of programs that filter it: a library of GPUs is not used. Never given on CPUs."""


class JAXSparse:
    """The base of all sparse formats. ``shape`` is that of the dense array that is meant."""

    data: Any
    shape: tuple[int, ...]
    _leaves: ClassVar[tuple[str, ...]] = ()  # attributes that are buffers
    _static: ClassVar[tuple[str, ...]] = ("shape",)  # attributes that the structure of the pytree keeps
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as of arrays, whose == is by element
    __array_priority__ = 100  # arrays leave the operators to sparse operands
    __array_ufunc__ = None
    if TYPE_CHECKING:  # a format has these, or they raise

        def sum(self, *args: Any, **kwargs: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __pos__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __getitem__(self, item: Any) -> Any: ...
        def __iter__(self) -> Any: ...

    def __init__(self, args: tuple[Any, ...], *, shape: Sequence[int]) -> None:
        if self._leaves and len(args) != len(self._leaves):
            raise ValueError(f"[{type(self).__name__}] takes ({', '.join(self._leaves)}), got {len(args)} buffers")
        for name, buffer in zip(self._leaves, args, strict=False):
            setattr(self, name, jnp.asarray(buffer))
        self.shape = tuple(int(extent) for extent in shape)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        tree_util.register_pytree_node_class(cls)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The buffers, and what is static."""
        if not self._leaves:
            raise NotImplementedError(f"{type(self).__name__}.tree_flatten")
        return tuple([getattr(self, name) for name in self._leaves]), tuple([getattr(self, x) for x in self._static])

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Any:
        """The sparse array of these buffers, which are not looked at."""
        made = object.__new__(cls)
        for name, value in zip((*cls._leaves, *cls._static), (*children, *aux_data), strict=True):
            setattr(made, name, value)
        return made

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.data.dtype

    @property
    def nse(self) -> int:
        """The number of specified elements (of each batch): those that are stored, zeros and padding included."""
        return self.data.shape[0]

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of a {type(self).__name__} without dimensions")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            return f"{name}({np.dtype(self.dtype).name}{list(self.shape)}, nse={self.nse})"
        except (AttributeError, IndexError, TypeError):  # leaves that are no arrays
            return f"{name}(<invalid>)"

    def todense(self) -> Any:
        """The dense array."""
        raise NotImplementedError(f"{type(self).__name__}.todense")

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The array with its dimensions in another order, reversed by default."""
        raise NotImplementedError(f"{type(self).__name__}.transpose")

    @property
    def T(self) -> Any:
        """The array with its dimensions reversed."""
        return self.transpose()

    def block_until_ready(self: Matrix) -> Matrix:
        """Wait until all buffers are computed."""
        for leaf in tree_util.tree_leaves(self):
            leaf.block_until_ready()
        return self


def _without_rule(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{name} is not implemented: use BCOO, or `todense()` if a dense result is meant"
        )

    method.__name__ = name
    method.__doc__ = f"``{name}`` of a format that has no rule for it: raises NotImplementedError."
    return method


for _name in ("sum", "__neg__", "__pos__", "__abs__", "__matmul__", "__rmatmul__", "__mul__", "__rmul__", "__add__",
              "__radd__", "__sub__", "__rsub__", "__truediv__", "__rtruediv__", "__pow__", "__getitem__"):  # fmt: skip
    setattr(JAXSparse, _name, _without_rule(_name))


def _identity(arr: Any) -> Any:
    return arr


_identity.__name__ = "todense"
_marked = jit_module.jit(_identity)  # an equation by which `sparsify` knows what is to become dense


def todense(arr: Any) -> Any:
    """A sparse array as a dense one; arrays pass through.

    >>> from weft.experimental import sparse
    >>> sparse.todense(sparse.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if isinstance(arr, JAXSparse):
        return arr.todense()
    return _marked(arr) if isinstance(arr, Tracer) else arr


def _static(value: Any) -> Any:
    """A static argument that can be hashed: lists and arrays of ints as tuples."""
    if type(value) in (list, tuple, np.ndarray):
        return tuple(_static(x) for x in value)
    return int(value) if isinstance(value, np.integer) else value


def compiled(*static: str) -> Callable[[Function], Function]:
    """Make a function one compiled program, which also fuses outside of ``jit``; ``static`` names what is no array.

    Lists and arrays of ints among the static arguments are taken as tuples.
    """

    def decorate(function: Function) -> Function:
        program = jit_module.jit(function, static_argnames=static)
        positions = {k for k, name in enumerate(inspect.signature(function).parameters) if name in static}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(_static(x) if k in positions else x for k, x in enumerate(args))
            return program(*args, **{name: _static(x) if name in static else x for name, x in kwargs.items()})

        return call  # type: ignore[return-value]  # it has the signature of ``function``

    return decorate


def over_batches(function: Callable[..., Any], batch: tuple[int, ...], *operands: Any) -> Any:
    """``function`` of every element of the leading dimensions ``batch``, in which operands may have extent 1.

    An extent of 1 is not repeated: the operand is shared by all elements.
    """
    if not batch:
        return function(*operands)
    mapped = [operand.shape[0] == batch[0] for operand in operands]
    shared = [x if own else lax.squeeze(x, (0,)) for x, own in zip(operands, mapped, strict=True)]

    def inner(*rest: Any) -> Any:
        return over_batches(function, batch[1:], *rest)

    axes = tuple(0 if own else None for own in mapped)
    return vmap_module.vmap(inner, in_axes=axes, axis_size=batch[0])(*shared)


def gather_rows(values: Any, indices: Any, fill: Any = 0) -> Any:
    """``values[indices[i]]`` for every row i of ``indices`` i32[n,k], which index the first k dimensions of values.

    A row that is out of bounds gives ``fill``.
    """
    count = indices.shape[-1]
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, 1 + values.ndim - count)),
        collapsed_slice_dims=tuple(range(count)),
        start_index_map=tuple(range(count)),
    )
    sizes = (1,) * count + values.shape[count:]
    if 0 in values.shape[:count]:
        return jnp.full((indices.shape[0], *values.shape[count:]), fill, values.dtype)
    return lax.gather(values, indices, numbers, sizes, mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=fill)


def add_rows(shape: tuple[int, ...], indices: Any, rows: Any, *, is_sorted: bool = False) -> Any:
    """Zeros of ``shape`` to which row i of ``rows`` is added at ``indices[i]``; what is out of bounds is dropped."""
    count = indices.shape[-1]
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, rows.ndim)),
        inserted_window_dims=tuple(range(count)),
        scatter_dims_to_operand_dims=tuple(range(count)),
    )
    return lax.scatter_add(
        jnp.zeros(shape, rows.dtype), indices, rows, numbers,
        indices_are_sorted=is_sorted, mode=lax.GatherScatterMode.FILL_OR_DROP,
    )  # fmt: skip


def refuse_dimensions_of_scipy(kind: str, n_dense: int, n_batch: int) -> None:
    """NotImplementedError where a matrix of SciPy's is to have batch or dense dimensions."""
    if n_dense or n_batch:
        raise NotImplementedError(f"[{kind}.from_scipy_sparse] SciPy's matrices have no batch or dense dimensions")


def buffers_of_scipy(mat: Any, names: Sequence[str], index_dtype: Any) -> tuple[Any, ...]:
    """The buffers of a matrix of SciPy's, which has them under these names."""
    data, *indices = [getattr(mat, name) for name in names]
    return data, *[buffer.astype(index_dtype) for buffer in indices]


def rows_of(indptr: Any, nse: int) -> Any:
    """The row of every element, from row pointers i32[rows+1]; ``rows`` for elements past the last one.

    A row starts where a one is counted, so that empty rows count several at one position.
    """
    starts = jnp.zeros(nse, indptr.dtype).at[indptr[1:]].add(1, mode="drop")
    return jnp.cumsum(starts, dtype=indptr.dtype)


def pointers_of(rows: Any, count: int) -> Any:
    """Row pointers i32[count+1] of sorted rows: ``out[r]`` elements lie in rows before r."""
    counted = jnp.zeros(count + 1, rows.dtype).at[rows + 1].add(1, mode="drop")
    return jnp.cumsum(counted, dtype=rows.dtype)

"""Derivatives with respect to sparse arrays: of their values, at the positions they have.

grad(f)(M: BCOO) -> BCOO of M's indices, whose data are the derivatives by M.data
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft import tree_util
from weft.autodiff import gradients, jacobians
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.bcoo_layout import with_buffers
from weft.experimental.sparse.matrix import JAXSparse


def _is_sparse(value: Any) -> bool:
    return isinstance(value, JAXSparse)


def _values(tree: Any) -> Any:
    """A tree with the data of sparse arrays in their position."""
    return tree_util.tree_map(lambda x: x.data if _is_sparse(x) else x, tree, is_leaf=_is_sparse)


def _with_values(x: Any, data: Any) -> Any:
    """A sparse array with other data, or the data of what is no sparse array."""
    if not _is_sparse(x):
        return data
    (_, *indices), static = x.tree_flatten()
    return type(x).tree_unflatten(static, (data, *indices))


def _on_values(
    transform: Callable[..., Any], fun: Callable[..., Any], argnums: Any, rebuild: Any
) -> Callable[..., Any]:
    """``transform`` of ``fun`` as a function of the values of its sparse arguments; ``rebuild`` makes the results."""

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        def of_values(*values: Any) -> Any:
            full = [
                tree_util.tree_map(_with_values, x, value, is_leaf=_is_sparse)
                if _is_among(number, numbers, args)
                else x
                for number, (x, value) in enumerate(zip(args, values, strict=True))
            ]
            return fun(*full, **kwargs)

        flat = [_values(x) if _is_among(n, numbers, args) else x for n, x in enumerate(args)]
        out = transform(of_values)(*flat)
        wanted = args[argnums] if isinstance(argnums, int) else tuple(args[number] for number in numbers)
        return rebuild(out, wanted)

    return wrapped


def _is_among(number: int, numbers: tuple[int, ...], args: Sequence[Any]) -> bool:
    return number in numbers or number - len(args) in numbers


def _sparse_tree(wanted: Any, values: Any) -> Any:
    return tree_util.tree_map(_with_values, wanted, values, is_leaf=_is_sparse)


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., tuple[Any, Any]]:
    """As ``weft.value_and_grad``; the gradient by a sparse array is sparse, at the positions of the array.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 3.0, 5.0]))
    >>> sparse.value_and_grad(lambda m, y: m @ y)(m, jnp.arange(3.0))
    (Array(13., dtype=float32), BCOO(float32[3], nse=2))
    """

    def transform(f: Callable[..., Any]) -> Callable[..., Any]:
        return gradients.value_and_grad(f, argnums=argnums, has_aux=has_aux, **kwargs)

    return _on_values(transform, fun, argnums, lambda out, wanted: (out[0], _sparse_tree(wanted, out[1])))


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As ``weft.grad``; the gradient by a sparse array is sparse, at the positions of the array.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 3.0, 5.0]))
    >>> sparse.grad(lambda m, y: m @ y)(m, jnp.arange(3.0)).todense().tolist()
    [0.0, 1.0, 2.0]
    """

    def transform(f: Callable[..., Any]) -> Callable[..., Any]:
        return gradients.grad(f, argnums=argnums, has_aux=has_aux, **kwargs)

    def rebuild(out: Any, wanted: Any) -> Any:
        return (_sparse_tree(wanted, out[0]), out[1]) if has_aux else _sparse_tree(wanted, out)

    return _on_values(transform, fun, argnums, rebuild)


def _jacobian(transform: Callable[..., Any]) -> Callable[..., Any]:
    def jacobian(
        fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
    ) -> Callable[..., Any]:
        def by_values(f: Callable[..., Any]) -> Callable[..., Any]:
            return transform(f, argnums=argnums, has_aux=has_aux, **kwargs)

        def rebuild(out: Any, wanted: Any) -> Any:
            if has_aux:
                return rows(out[0], wanted), out[1]
            return rows(out, wanted)

        def rows(out: Any, wanted: Any) -> Any:
            structure = tree_util.tree_structure(wanted, is_leaf=_is_sparse)
            leaves = tree_util.tree_leaves(wanted, is_leaf=_is_sparse)
            if tree_util.tree_structure(out) != structure and any(map(_is_sparse, leaves)):
                raise NotImplementedError("[jacobian] by sparse arrays: of functions with one array as result")
            pairs = zip(leaves, tree_util.tree_leaves(out), strict=True)
            return out if not any(map(_is_sparse, leaves)) else structure.unflatten([_rows(x, j) for x, j in pairs])

        return _on_values(by_values, fun, argnums, rebuild)

    return jacobian


def _rows(x: Any, jacobian: Any) -> Any:
    """The derivatives of an array by the values of a sparse one: a batch for every element of the result."""
    if not _is_sparse(x):
        return jacobian
    if not isinstance(x, BCOO) or x.n_batch:
        raise NotImplementedError(f"[jacobian] by {x!r}: only by BCOO arrays without batch dimensions")
    outer = jacobian.shape[: jacobian.ndim - x.data.ndim]
    indices = x.indices.reshape(*[1] * len(outer), *x.indices.shape)
    return with_buffers(x, jacobian, indices, (*outer, *x.shape))


jacfwd = _jacobian(jacobians.jacfwd)
jacrev = _jacobian(jacobians.jacrev)
jacfwd.__name__, jacrev.__name__ = "jacfwd", "jacrev"
jacfwd.__doc__ = (
    """As ``weft.jacfwd``; the Jacobian by a BCOO array is BCOO, a batch for every element of the result."""
)
jacrev.__doc__ = (
    """As ``weft.jacrev``; the Jacobian by a BCOO array is BCOO, a batch for every element of the result."""
)
jacobian = jacrev

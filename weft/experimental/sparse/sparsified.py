"""sparsify: a function of dense arrays runs on sparse ones.

The function is traced on dense types into a jaxpr, whose equations then run on the sparse arrays by a table of rules::

    sparsify(lambda m, v: 2 * m.T @ v)(BCOO, array)    transpose -> bcoo_transpose, mul -> data * 2, dot_general -> ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft import core, tree_util
from weft._base import api
from weft.control import branches as control_branches
from weft.control import scan as control_scan
from weft.control import while_loop as control_while
from weft.core.programs.jaxpr import Jaxpr, Literal
from weft.dispatch.calls import struct
from weft.experimental.sparse import bcoo_products, bcoo_shapes, operators
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.matrix import JAXSparse

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def _is_sparse(value: Any) -> bool:
    return isinstance(value, JAXSparse)


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """``f`` on arguments that may be sparse: BCOO arrays in its arguments are handled by rules for sparse arrays.

    An operation whose result would silently be dense raises NotImplementedError; ``sparse.todense`` inside of ``f``
    makes an array dense. ``use_tracer`` makes no difference: control flow in Python sees types either way.

    >>> from weft.experimental import sparse
    >>> f = sparse.sparsify(lambda m, v: 2 * m.T @ v)
    >>> f(sparse.BCOO.fromdense(jnp.arange(12).reshape(3, 4)), jnp.array([3, 4, 2])).tolist()
    [64, 82, 100, 118]
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_util.tree_flatten((args, kwargs), is_leaf=_is_sparse)
        types = [struct.ShapeDtypeStruct(x.shape, x.dtype) if _is_sparse(x) else x for x in leaves]
        out_tree: list[Any] = []

        def flat(*values: Any) -> list[Any]:
            inner_args, inner_kwargs = tree_util.tree_unflatten(tree, values)
            outs, structure = tree_util.tree_flatten(f(*inner_args, **inner_kwargs), is_leaf=_is_sparse)
            out_tree.append(structure)
            return outs

        closed = api.make_jaxpr(flat)(*types)
        outs = run(closed.jaxpr, closed.consts, leaves)
        return tree_util.tree_unflatten(out_tree[-1], outs)

    return wrapped


def run(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr on values that may be sparse."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return core.literal_value(atom) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        if not any(map(_is_sparse, operands)):
            out = eqn.primitive.bind(*operands, **eqn.params)
        else:
            out = _rule(eqn.primitive.name, operands)(*operands, **eqn.params)
        env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else (out,), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _rule(name: str, operands: Sequence[Any]) -> Rule:
    other = next((x for x in operands if _is_sparse(x) and not isinstance(x, BCOO)), None)
    if other is not None:
        raise NotImplementedError(f"[sparsify] {name} of {other!r}: there are rules for BCOO arrays only")
    if name in RULES:
        return RULES[name]
    if name in ("eq", "ne", "lt", "le", "gt", "ge", "exp", "cos", "log", "cosh", "logistic", "is_finite", "not"):
        reason = "is not there, because its result would be dense: use sparse.todense() if that is meant"
    else:
        reason = "is not implemented"
    raise NotImplementedError(f"[sparsify] a sparse rule for {name} {reason}")


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the primitives of these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _of_values(name: str, linear: bool) -> Rule:
    """The rule of a function that keeps zeros: of the values alone."""
    primitive = core.registry[name]

    def apply(mat: BCOO, **params: Any) -> BCOO:
        mat = mat if linear else operators.unique(mat)
        return operators.with_data(mat, primitive.bind(mat.data, **params))

    return apply


for _name in ("neg", "real", "imag", "copy"):
    RULES[_name] = _of_values(_name, linear=True)
for _name in ("abs", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "convert_element_type", "erf", "erf_inv",
              "expm1", "floor", "log1p", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
              "reduce_precision", "conj"):  # fmt: skip
    RULES[_name] = _of_values(_name, linear=False)


@rule("integer_pow")
def _integer_pow(mat: BCOO, *, y: int, **params: Any) -> BCOO:
    return operators.power(mat, y)


@rule("pow")
def _pow(mat: Any, exponent: Any, **params: Any) -> BCOO:
    if not isinstance(mat, BCOO):
        raise NotImplementedError("[sparsify] a sparse rule for pow with a sparse exponent is not implemented")
    return operators.power(mat, exponent)


def _of_pairs(function: Callable[[Any, Any], Any]) -> Rule:
    def apply(a: Any, b: Any, *, out_dtype: Any = None, **params: Any) -> Any:
        out = function(a, b)
        return out if out_dtype is None else out.astype(out_dtype)

    return apply


for _name, _function in (("add", operators.add), ("add_any", operators.add), ("sub", operators.subtract),
                         ("mul", operators.multiply), ("div", operators.divide)):  # fmt: skip
    RULES[_name] = _of_pairs(_function)


@rule("dot_general")
def _dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, **params: Any) -> Any:
    preferred = params.get("preferred_element_type")
    return bcoo_products.bcoo_dot_general(
        lhs, rhs, dimension_numbers=dimension_numbers, preferred_element_type=preferred
    )


@rule("reduce_sum")
def _reduce_sum(mat: BCOO, *, axes: Sequence[int], **params: Any) -> Any:
    out = bcoo_shapes.bcoo_reduce_sum(mat, axes=axes)
    return out if out.ndim else out.todense()


@rule("transpose")
def _transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    return bcoo_shapes.bcoo_transpose(mat, permutation=permutation)


@rule("reshape")
def _reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Any = None, **params: Any) -> BCOO:
    return bcoo_shapes.bcoo_reshape(mat, new_sizes=new_sizes, dimensions=dimensions)


@rule("squeeze")
def _squeeze(mat: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    return bcoo_shapes.bcoo_squeeze(mat, dimensions=dimensions)


@rule("broadcast_in_dim")
def _broadcast_in_dim(mat: BCOO, *, shape: Any, broadcast_dimensions: Any, **params: Any) -> BCOO:
    return bcoo_shapes.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=broadcast_dimensions)


@rule("concatenate")
def _concatenate(*operands: Any, dimension: int) -> BCOO:
    if not all(map(_is_sparse, operands)):
        raise NotImplementedError("[sparsify] concatenate of sparse and dense arrays: make all of them BCOO")
    return bcoo_shapes.bcoo_concatenate(operands, dimension=dimension)


@rule("slice")
def _slice(mat: BCOO, *, start_indices: Any, limit_indices: Any, strides: Any) -> BCOO:
    return bcoo_shapes.bcoo_slice(mat, start_indices=start_indices, limit_indices=limit_indices, strides=strides)


@rule("dynamic_slice")
def _dynamic_slice(mat: BCOO, *starts: Any, slice_sizes: Sequence[int]) -> BCOO:
    return bcoo_shapes.bcoo_dynamic_slice(mat, starts, slice_sizes)


@rule("rev")
def _rev(mat: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    return bcoo_shapes.bcoo_rev(mat, dimensions)


@rule("gather")
def _gather(mat: BCOO, starts: Any, *, dimension_numbers: Any, slice_sizes: Any, **params: Any) -> BCOO:
    return bcoo_shapes.bcoo_gather(mat, starts, dimension_numbers, slice_sizes)


# -- programs in programs ---------------------------------------------------------------------------------------------


def densified(value: Any) -> Any:
    """A sparse array dense, under a name by which a trace shows it."""
    return value.todense() if _is_sparse(value) else value


@rule("jit")
def _jit(*values: Any, jaxpr: Any, name: str = "", **params: Any) -> list[Any]:
    return [densified(x) for x in values] if name == "todense" else run(jaxpr.jaxpr, jaxpr.consts, values)


@rule("custom_jvp_call", "custom_vjp_call", "closed_call", "checkpoint", "remat")
def _call(*values: Any, **params: Any) -> list[Any]:
    program = next(params[key] for key in ("call_jaxpr", "jaxpr", "fun_jaxpr") if key in params)
    return run(getattr(program, "jaxpr", program), getattr(program, "consts", ()), values)


@rule("while")
def _while(*values: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int) -> list[Any]:
    cond_consts, rest = values[:cond_nconsts], values[cond_nconsts:]
    body_consts, carry = rest[:body_nconsts], rest[body_nconsts:]

    def goes_on(carry: Any) -> Any:
        return run(cond_jaxpr.jaxpr, cond_jaxpr.consts, (*cond_consts, *carry))[0]

    def body(carry: Any) -> Any:
        return tuple(run(body_jaxpr.jaxpr, body_jaxpr.consts, (*body_consts, *carry)))

    return list(control_while.while_loop(goes_on, body, tuple(carry)))


@rule("scan")
def _scan(
    *values: Any, jaxpr: Any, length: int, num_consts: int, num_carry: int, reverse: bool, unroll: Any, **params: Any
) -> list[Any]:
    consts, carry = values[:num_consts], values[num_consts : num_consts + num_carry]
    xs = values[num_consts + num_carry :]
    if any(map(_is_sparse, xs)):
        raise NotImplementedError("[sparsify] scan over the elements of a sparse array: carry it, or make it dense")

    def body(carry: Any, x: Any) -> Any:
        outs = run(jaxpr.jaxpr, jaxpr.consts, (*consts, *carry, *x))
        return tuple(outs[:num_carry]), tuple(outs[num_carry:])

    final, ys = control_scan.scan(body, tuple(carry), tuple(xs), length=length, reverse=reverse, unroll=unroll)
    return [*final, *ys]


@rule("cond")
def _cond(index: Any, *values: Any, branches: Any, **params: Any) -> list[Any]:
    def branch(closed: Any) -> Callable[..., Any]:
        return lambda *operands: tuple(run(closed.jaxpr, closed.consts, operands))

    return list(control_branches.switch(index, [branch(closed) for closed in branches], *values))

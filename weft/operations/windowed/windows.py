"""Reductions of windows: ``reduce_window``, and the primitives for sums, maxima and minima.

An operand is padded, its elements are set apart by ``base_dilation``, and windows of every ``window_dilation``-th
element are moved over it by ``window_strides``. Padding and gaps have no elements: a window at the edge has fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core import kinds
from weft.core.primitive import ALL
from weft.core.tangents import along
from weft.core.window_maps import WindowMap, dilated
from weft.operations import general_reduce, mapped, reductions, references
from weft.operations.later import ops
from weft.operations.pointwise import arithmetic, convert
from weft.operations.pointwise.elementwise import ANY, FLOAT, NUMBER, Accepts, category, check_dtype, widened
from weft.operations.static import integers
from weft.operations.windowed import window_folds
from weft.operations.windowed.window_padding import padtype_to_pads

__all__ = [
    "reduce_window",
    "reduce_window_max_p",
    "reduce_window_min_p",
    "reduce_window_p",
    "reduce_window_shape_tuple",
    "reduce_window_sum_p",
]

Params = dict[str, Any]
Padding = tuple[tuple[int, int], ...]
SHAPES = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")


def window_map(params: Params) -> WindowMap:
    """Where the windows lie that an equation's parameters describe."""
    return WindowMap.of(
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params.get("base_dilation"),
        params.get("window_dilation"),
    )


# ---- checks and typing


def check_windows(name: str, aval: Any, params: Params) -> tuple[int, ...]:
    """The shape of the result; TypeError or ValueError for windows that do not go with the operand."""
    for what in SHAPES:
        sizes = params.get(what)
        if sizes is None:
            continue
        if len(sizes) != aval.ndim:
            raise TypeError(
                f"[{name}] {what} must have one entry for each dimension of {aval.str_short()}, got {what} {sizes}"
                + (f" and window_dimensions {params['window_dimensions']}" if what != "window_dimensions" else "")
            )
        if any(n < 1 for n in sizes):
            raise TypeError(f"[{name}] {what} must have every element be strictly positive, got {sizes}")
    padding = params["padding"]
    if len(padding) != aval.ndim or any(len(pair) != 2 for pair in padding):
        raise ValueError(
            f"[{name}] padding must be a pair (low, high) for each dimension of {aval.str_short()}, got {padding}"
        )
    return window_map(params).shape(aval.shape)


def _typing(name: str, accepts: Accepts) -> Callable[..., Any]:
    def typing(x: Any, **params: Any) -> Any:
        check_dtype(name, 0, x, accepts)
        return runtime.ShapedArray(check_windows(name, x, params), x.dtype, x.weak_type)

    return typing


def in_front(params: Params) -> Params:
    """The parameters for operands with one more dimension in front, which windows do not extend along."""
    return inserted(params, 0)


def inserted(params: Params, dim: int) -> Params:
    """The parameters for operands with one more dimension, which windows do not extend along."""
    new = dict(params)
    for what in (*SHAPES, "padding"):
        if what in params:
            more = (0, 0) if what == "padding" else 1
            new[what] = (*params[what][:dim], more, *params[what][dim:])
    return new


# ---- the NumPy oracle


def reference(
    params: Params, arrays: Sequence[Any], combine: Callable[..., Sequence[Any]], start: Sequence[Any]
) -> Any:
    """The windows' taps, one after the other, combined with what there is so far where they exist."""
    windows = window_map(params)
    shape = windows.shape(arrays[0].shape)
    out = [np.full(shape, value, x.dtype) for x, value in zip(arrays, start, strict=True)]
    for taps in itertools.product(*[range(one.window) for one in windows.along]):
        indices, exists = [], np.ones(shape, bool)
        for dim, (tap, one, count) in enumerate(zip(taps, windows.along, shape, strict=True)):
            position = np.arange(count) * one.stride - one.low + tap * one.dilation
            index = position // one.spacing
            inside = (position % one.spacing == 0) & (index >= 0) & (index < arrays[0].shape[dim])
            indices.append(np.where(inside, index, 0))
            exists &= inside.reshape([-1 if d == dim else 1 for d in range(len(shape))])
        if exists.any():
            values = combine(out, [x[np.ix_(*indices)] for x in arrays])
            out = [np.where(exists, new, old).astype(old.dtype) for new, old in zip(values, out, strict=True)]
    return out


# ---- sums, maxima, minima


def _window_reduction(
    name: str,
    accepts: Accepts,
    *,
    combine: Callable[[Any, Any], Any],
    identity: Callable[[np.dtype], Any],
    numpy: Callable[[Any, Any], Any],
    begins: bool,
    reduce: Callable[..., Any],
) -> core.Primitive:
    def run(x: Any, **params: Any) -> Any:
        x = np.asarray(x)
        wide = x.astype(widened(x.dtype))
        with np.errstate(all="ignore"):
            (out,) = reference(params, [wide], lambda a, b: [numpy(a[0], b[0])], [identity(wide.dtype)])
        return out.astype(x.dtype)

    def accumulators(avals: Any, params: Params) -> Any:
        dtype = widened(avals[0].dtype)
        return ((dtype, identity(dtype)),)

    primitive = core.Primitive(
        name,
        kind=kinds.Window(
            windows=window_map,
            combine=lambda left, right, **_: [combine(left[0], right[0])],
            accumulators=accumulators,
            reference=run,
            begins=begins,
            reduce=reduce,
        ),
    )

    def batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
        (dim,) = dims
        assert dim is not None
        return primitive.bind(values[0], **inserted(params, dim)), dim

    primitive.def_abstract_eval(_typing(name, accepts))
    primitive.batch = batch
    return primitive


reduce_window_sum_p = _window_reduction(
    "reduce_window_sum",
    NUMBER,
    combine=arithmetic.add,
    identity=lambda dtype: 0,
    numpy=np.add,
    begins=True,
    reduce=reductions.reduce_sum,
)


def _sum_transpose(ct: Any, x: Any, **params: Any) -> tuple[Any]:
    """The sum of the outputs that see an element: windows over the cotangent, set apart by the strides."""
    back = window_map(params).transposed(x.aval.shape)
    config = [(one.low, one.high, one.spacing - 1) for one in back.along]
    ones = (1,) * len(config)
    spread = ops.pad(ct, np.zeros((), ct.dtype)[()], config)
    return (
        reduce_window_sum_p.bind(
            spread,
            window_dimensions=params["window_dimensions"],
            window_strides=params["base_dilation"],
            padding=((0, 0),) * len(config),
            base_dilation=ones,
            window_dilation=params["window_dilation"],
        ),
    )


reduce_window_sum_p.linear, reduce_window_sum_p.transpose = ALL, _sum_transpose


def _extreme_push(select: Any) -> Any:
    """The tangent of the element that is selected; windows with gaps use operations that have a transpose."""

    def push(t: Any, out: Any, x: Any, **params: Any) -> Any:
        gather = ops.select_and_gather_add_p
        has_gaps = any(d != 1 for d in params["window_dilation"])
        return (gather.kind.expand if has_gaps else gather.bind)(t, x, select_prim=select, **params)

    return along(push)


reduce_window_max_p = _window_reduction(
    "reduce_window_max",
    ANY,
    combine=arithmetic.max,
    identity=reductions.lowest,
    numpy=references.maximum,
    begins=False,
    reduce=reductions.reduce_max,
)
reduce_window_min_p = _window_reduction(
    "reduce_window_min",
    ANY,
    combine=arithmetic.min,
    identity=reductions.highest,
    numpy=references.minimum,
    begins=False,
    reduce=reductions.reduce_min,
)
for _primitive, _select in ((reduce_window_max_p, ops.ge_p), (reduce_window_min_p, ops.le_p)):
    _primitive.partials, _primitive.transpose = (_extreme_push(_select),), None

MONOIDS: dict[Any, tuple[core.Primitive, Callable[[np.dtype], Any]]] = {
    arithmetic.add: (reduce_window_sum_p, lambda dtype: 0),
    arithmetic.max: (reduce_window_max_p, reductions.lowest),
    arithmetic.min: (reduce_window_min_p, reductions.highest),
}

# ---- any computation


def _general_typing(*avals: Any, jaxpr: Any, consts: tuple[Any, ...], **params: Any) -> list[Any]:
    arrays, inits = avals[: len(avals) // 2], avals[len(avals) // 2 :]
    if any(x.dtype != init.dtype for x, init in zip(arrays, inits, strict=True)):
        listed = [", ".join(aval.str_short() for aval in side) for side in (arrays, inits)]
        raise TypeError(
            f"[reduce_window] inconsistent dtypes for operands and init_values: operands {listed[0]}, init_values "
            f"{listed[1]}"
        )
    if any(init.shape for init in inits):
        raise TypeError(
            f"[reduce_window] expected init_values to be scalars but init_values have shapes "
            f"{[init.shape for init in inits]}"
        )
    if len({x.shape for x in arrays}) > 1:
        listed = ", ".join(x.str_short() for x in arrays)
        raise ValueError(f"[reduce_window] operands must have one shape, got {listed}")
    shape = check_windows("reduce_window", arrays[0], params)
    return [runtime.ShapedArray(shape, x.dtype, False) for x in arrays]


def _general_combine(left: list[Any], right: list[Any], *, jaxpr: Any, **_: Any) -> list[Any]:
    shape = left[0].shape
    out = general_reduce.combined(jaxpr, left, right)
    return [x if core.get_aval(x).shape == shape else ops.broadcast_in_dim(x, shape, ()) for x in out]


def _general_reference(*operands: Any, jaxpr: Any, consts: tuple[Any, ...], **params: Any) -> tuple[Any, ...]:
    count = len(operands) // 2
    arrays = [np.asarray(x) for x in operands[:count]]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return general_reduce.run_with_numpy(jaxpr.jaxpr, [*left, *right])

    return tuple(reference(params, arrays, combine, operands[count:]))


def _extreme(closed: Any) -> core.Primitive | None:
    """The reduction of windows that a computation is, if it is the maximum or minimum of two values."""
    eqn = closed.jaxpr.eqns[0] if len(closed.jaxpr.eqns) == 1 else None
    if eqn is None or set(eqn.invars) != set(closed.jaxpr.invars) or eqn.outvars != closed.jaxpr.outvars:
        return None
    if isinstance(eqn.primitive.kind, kinds.Higher):
        inner = eqn.primitive.kind.inline(eqn.params)
        return None if inner is None else _extreme(inner)
    return {arithmetic.max_p: reduce_window_max_p, arithmetic.min_p: reduce_window_min_p}.get(eqn.primitive)


def _extreme_expansion(primitive: core.Primitive, x: Any, init: Any, **params: Any) -> list[Any]:
    """As from an infinite initial value the first of equal elements counts; ``init`` only where it lies beyond all."""
    found = primitive.bind(x, **params)
    start = ops.broadcast_in_dim(init, found.shape, ())
    kept = (ops.ge if primitive is reduce_window_max_p else ops.le)(found, start)
    return [ops.select(ops.bitwise_or(kept, ops.ne(found, found)), found, start)]


def _general_expansion(*operands: Any, **params: Any) -> list[Any]:
    """The combination written in elementwise operations, which can be differentiated."""
    count = len(operands) // 2
    extreme = _extreme(params["jaxpr"]) if count == 1 else None
    if extreme is not None and category(core.get_aval(operands[0]).dtype) in FLOAT:
        return _extreme_expansion(extreme, *operands, **{what: params[what] for what in (*SHAPES, "padding")})
    how = window_folds.Fold(
        lambda left, right: _general_combine(left, right, **params), operands[count:], starts=True, neutral=False
    )
    return window_folds.fold(window_map(params), operands[:count], how)


def _general_batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    count = len(values) // 2
    if any(dim is not None for dim in dims[count:]):
        raise NotImplementedError("[reduce_window] vmap over initial values is not supported; combine them afterwards")
    arrays = mapped.all_in_front(size, values[:count], dims[:count])
    return reduce_window_p.bind(*arrays, *values[count:], **in_front(params)), [0] * count


reduce_window_p = core.Primitive(
    "reduce_window",
    kind=kinds.Window(
        windows=window_map,
        combine=_general_combine,
        accumulators=lambda avals, params: None,
        reference=_general_reference,
        begins=True,
    ),
    multiple_results=True,
    memoize=False,
    print_params=lambda params: {**params, "jaxpr": params["jaxpr"].jaxpr},
)
reduce_window_p.def_abstract_eval(_general_typing)
reduce_window_p.expansion, reduce_window_p.transpose = _general_expansion, None
reduce_window_p.batch = _general_batch

# ---- the public functions


def _sizes(values: Any, what: str, rank: int) -> tuple[int, ...]:
    return (1,) * rank if values is None else integers(values, "reduce_window", what)


def _pads(shape: Sequence[int], window: Sequence[int], dilation: Any, strides: Any, padding: Any) -> Padding:
    """Amounts of padding, of a name or as given."""
    if not isinstance(padding, str):
        pairs = [integers(pair, "reduce_window", "padding") for pair in padding]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError(f"[reduce_window] padding must be pairs (low, high), got {padding}")
        return tuple([(pair[0], pair[1]) for pair in pairs])
    if len(window) != len(shape) or len(strides) != len(shape) or len(dilation) != len(shape):
        raise TypeError(
            f"[reduce_window] windows must have one entry for each dimension of an operand of shape {tuple(shape)}, "
            f"got window_dimensions {window}, window_strides {strides} and window_dilation {dilation}"
        )
    spans = [dilated(n, d) for n, d in zip(window, dilation, strict=True)]
    if any(n < 1 for n in (*window, *strides, *dilation)):
        return ((0, 0),) * len(shape)  # typing says what is wrong
    return tuple(padtype_to_pads(shape, spans, strides, padding))


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Combine the elements of every window of an array, or of a tree of arrays of one shape.

    ``computation`` takes two values (two trees) and gives one; with ``init_value`` every window begins. Strides and
    dilations are 1 where they are not given. ``padding`` is "VALID", "SAME", "SAME_LOWER" or pairs (low, high), which
    may be negative. Elements are combined in row-major order; a computation of windows of more than 64 elements must
    be associative. TypeError for sizes that are not positive or not one for each dimension.

    >>> x = np.float32([1, 5, 3, 2])
    >>> lax.reduce_window(x, -np.inf, lax.max, (2,), (2,)).tolist()
    [5.0, 3.0]
    >>> lax.reduce_window(x, 0.0, lax.add, (3,), padding="SAME").tolist()
    [6.0, 9.0, 10.0, 5.0]
    """
    arrays, treedef = runtime.tree_flatten(operand)
    inits, init_tree = runtime.tree_flatten(init_value)
    if treedef != init_tree:
        raise ValueError(
            f"[reduce_window] Operands must have the same tree structure as init_values: {treedef} vs. {init_tree}"
        )
    if not arrays:
        raise ValueError("[reduce_window] needs at least one operand")
    inits = general_reduce.of_operands_types(inits, arrays)
    window = integers(window_dimensions, "reduce_window", "window_dimensions")
    rank = len(window)
    strides = _sizes(window_strides, "window_strides", rank)
    dilation = _sizes(window_dilation, "window_dilation", rank)
    params = {
        "window_dimensions": window,
        "window_strides": strides,
        "padding": _pads(core.get_aval(arrays[0]).shape, window, dilation, strides, padding),
        "base_dilation": _sizes(base_dilation, "base_dilation", rank),
        "window_dilation": dilation,
    }
    found = MONOIDS.get(computation) if len(arrays) == 1 and callable(computation) else None
    init_avals = [core.get_aval(init) for init in inits]
    if found is not None and general_reduce.identity_matches(inits[0], init_avals[0].dtype, found[1]):
        return runtime.tree_unflatten(treedef, [found[0].bind(arrays[0], **params)])
    _general_typing(*[core.get_aval(x) for x in arrays], *init_avals, jaxpr=None, consts=(), **params)
    wide = widened(init_avals[0].dtype)
    if found is not None and wide != init_avals[0].dtype:  # rounded once, as where the initial value is known
        widely = [convert.convert(x, wide) for x in (*arrays, *inits)]
        made = reduce_window(
            widely[0], widely[1], computation, window, strides, params["padding"], params["base_dilation"], dilation
        )
        return runtime.tree_unflatten(treedef, [convert.convert(made, init_avals[0].dtype)])
    jaxpr = general_reduce.traced_computation(computation, init_avals, treedef, "reduce_window")
    outs = reduce_window_p.bind(*arrays, *inits, jaxpr=jaxpr, consts=(), **params)
    return runtime.tree_unflatten(treedef, outs)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of a reduction of windows of an array of a shape. TypeError for a dilation that is not positive.

    >>> lax.reduce_window_shape_tuple((5, 8), (2, 3), (2, 1), ((0, 0), (1, 1)))
    (2, 8)
    """
    for what, sizes in (("base_dilation", base_dilation), ("window_dilation", window_dilation)):
        if sizes is not None and any(n < 1 for n in sizes):
            raise TypeError(f"[reduce_window_shape_tuple] {what} must be positive, got {tuple(sizes)}")
    return WindowMap.of(window_dimensions, window_strides, padding, base_dilation, window_dilation).shape(operand_shape)

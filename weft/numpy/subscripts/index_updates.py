"""``x.at[idx]``: copies of an array with the elements at an index changed.

Each method is one scatter of the values, broadcast to the shape of ``x[idx]``, at the same index vectors that
``x[idx]`` gathers (``gather_indexing``). Values are brought to the array's dtype; updates out of bounds are left out::

    x.at[i].set(v)       ->  scatter[mode=FILL_OR_DROP] x starts (v as x's dtype, broadcast)
    x.at[i].divide(v)    ->  x / ones.at[i].multiply(v)
    x.at[i].get(...)     ->  x[i], with a choice of what is out of bounds
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import config, core, dtypes, errors, runtime
from weft import operations as lax
from weft._base import lazy
from weft._base.array import Array
from weft.core.programs import check_scopes
from weft.dispatch import devices
from weft.numpy import promotion, small_copies
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, selection
from weft.numpy.subscripts import basic_indexing, gather_indexing, index_items, indexing

# method -> the scatter that it is; those left out are made of others
_SCATTERS: dict[str, Callable[..., Any]] = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "subtract": lax.scatter_sub,
    "multiply": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}


class IndexUpdates:
    """``x.at``: an index gives updates that return a changed copy of ``x``."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, idx: Any) -> IndexUpdate:
        return IndexUpdate(self.array, idx)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


class IndexUpdate:
    """``x.at[idx]``: methods that return ``x`` with the elements at ``idx`` changed, and ``get``.

    Every method takes ``indices_are_sorted`` and ``unique_indices`` (promises), ``mode`` ("drop": updates out of
    bounds are left out, the default; "clip": they are moved inside; "promise_in_bounds"), and
    ``wrap_negative_indices`` (whether they count from the end). ``inplace="require"``: ValueError where the function is
    compiled if the update would copy the array, with the reason. An element that is met several times is updated in
    the order of the indices.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[idx]``; with ``mode="fill"`` what is out of bounds is ``fill_value`` (else NaN, or the least integer).

        >>> weft.numpy.arange(3).at[5].get(mode="fill", fill_value=-1).item()
        -1
        """
        if out_sharding is not None:
            return devices.placed(
                lambda: self.get(
                    indices_are_sorted=indices_are_sorted,
                    unique_indices=unique_indices,
                    mode=mode,
                    fill_value=fill_value,
                    wrap_negative_indices=wrap_negative_indices,
                ),
                out_sharding=out_sharding,
            )
        return indexing.get(
            self.array,
            self.index,
            mode=mode,
            fill_value=fill_value,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            wrap_negative_indices=wrap_negative_indices,
        )

    def set(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[idx] = values``.

        >>> weft.numpy.zeros(3).at[1].set(5).tolist()
        [0.0, 5.0, 0.0]
        """
        return _update("set", self, values, options)

    def add(self, values: Any, **options: Any) -> Array:
        """``x`` with ``values`` added at ``idx``, as often as an element is met.

        >>> weft.numpy.zeros(3).at[np.array([1, 1])].add(5).tolist()
        [0.0, 10.0, 0.0]
        """
        return _update("add", self, values, options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """``x`` with ``values`` subtracted at ``idx``."""
        return _update("subtract", self, values, options)

    def multiply(self, values: Any, **options: Any) -> Array:
        """``x`` with the elements at ``idx`` multiplied by ``values``."""
        return _update("multiply", self, values, options)

    mul = multiply

    def divide(self, values: Any, **options: Any) -> Array:
        """``x`` with the elements at ``idx`` divided by ``values``, one true division by the product of them."""
        _not_in_place("divide", options)
        factors = IndexUpdate(creation.ones_like(self.array), self.index).multiply(values, **options)
        return arithmetic.divide(self.array, factors)

    def power(self, values: Any, **options: Any) -> Array:
        """``x`` with the elements at ``idx`` raised to ``values``."""
        _not_in_place("power", options)
        exponents = IndexUpdate(creation.ones_like(self.array), self.index).multiply(values, **options)
        return arithmetic.power(self.array, exponents)

    def min(self, values: Any, **options: Any) -> Array:
        """``x`` with the minimum of ``values`` and the elements at ``idx``."""
        return _update("min", self, values, options)

    def max(self, values: Any, **options: Any) -> Array:
        """``x`` with the maximum of ``values`` and the elements at ``idx``."""
        return _update("max", self, values, options)

    def apply(self, func: Callable[[Any], Any], **options: Any) -> Array:
        """``x`` with an elementwise function applied to the elements at ``idx``, as often as one is met.

        >>> weft.numpy.arange(3.0).at[2].apply(lambda v: v * v).tolist()
        [0.0, 1.0, 4.0]
        """
        zero = np.zeros((), promotion.dtype_of(self.array))
        return _update("apply", self, zero, {**options, "func": func})


def _update(op: str, ref: IndexUpdate, values: Any, options: dict[str, Any]) -> Any:
    """The array of ``ref`` with ``values`` combined into it by ``op``."""
    if "inplace" in options:
        return _update_in_place(op, ref, values, dict(options))
    if options.get("mode") is not None and check_scopes.is_used():
        with check_scopes.as_given(options["mode"]):
            return _combined(op, ref, values, options)
    return _combined(op, ref, values, options)


def _combined(op: str, ref: IndexUpdate, values: Any, options: dict[str, Any]) -> Any:
    """``_update``, where its equations are marked."""
    x, idx = ref.array, ref.index
    values = promotion.unwrapped(values)
    whole: tuple[Any, ...] = ()
    key: tuple[Any, ...] = (False,)
    tracing = core.is_tracing()
    if not tracing and not options:
        if type(idx) in (runtime.Array, int) and _is_of_rows(x, idx, values):
            layout = gather_indexing.of_rows(x.ndim)
            return _apply(x, values, idx, op=op, layout=layout)
        whole = idx if type(idx) is tuple else (idx,)
        kinds = map(indexing.kind_of, whole) if len(whole) != 1 else (indexing.kind_of(whole[0]),)
        key = (op, x.aval, _kind_of_value(values), *kinds)
        route = _routes.get(key)
        if route is not None:
            return _by_route(op, x, values, whole, route)
    if options.get("out_sharding") is not None:
        others = {name: value for name, value in options.items() if name != "out_sharding"}
        return devices.placed(lambda: _update(op, ref, values, others), out_sharding=options["out_sharding"])
    scatter_options, wrap = _checked(**options)
    func = options.get("func")
    values = values if promotion.is_arraylike(values) else creation.asarray(values)
    _check_types(x, values)
    if not tracing and op != "apply":
        done = _set_masked(op, x, idx, values)
        if done is not None:
            return done
    if not tracing and not options and False not in key and _fits(x, values):
        return _on_new_route(op, x, values, whole, key)
    items = index_items.items_of(idx, promotion.shape_of(x))
    layout, operands = gather_indexing.layout_of(items, promotion.shape_of(x), not tracing, wrap)
    on_host = any(isinstance(operand, np.ndarray) for operand in (*operands, values))
    if func is not None or (tracing and on_host):
        return scatter(x, values, *operands, op=op, layout=layout, func=func, **scatter_options)
    return _apply(x, values, *operands, op=op, layout=layout, **scatter_options)


def _is_of_rows(x: Any, indices: Any, values: Any) -> bool:
    """Whether rows of ``x`` are updated, at positions that are operands."""
    array, kind = x.aval, type(values)
    if type(indices) is int:
        fits = abs(indices) < 2**31
    else:
        fits = indices.ndim > 0 and indices.aval.dtype in indexing.LONG_INTEGERS
    if not fits or not array.ndim or array.size >= 2**31:
        return False
    if not (values.aval.dtype is array.dtype if kind is runtime.Array else kind in _HELD.get(array.dtype, ())):
        return False
    return small_copies.may_copy()


_HELD = {
    **dict.fromkeys((dtypes.float32, dtypes.float64), (int, float)),
    **dict.fromkeys((dtypes.int32, dtypes.int64), (int,)),
}  # Python numbers whose type an array holds


def _update_in_place(op: str, ref: IndexUpdate, values: Any, options: dict[str, Any]) -> Any:
    """An update that must not copy: the compiler raises if it would."""
    in_place = lazy.submodule("weft.dispatch.programs.in_place")
    in_place.check_word(options.pop("inplace"))
    if not core.is_tracing():
        raise ValueError(
            f"[at] inplace='require': outside of jit x.at[...].{op} makes a new array, since x stays valid; call it in "
            "a jitted function that x is donated to"
        )
    with in_place.required():
        return _update(op, ref, values, options)


def _not_in_place(op: str, options: dict[str, Any]) -> None:
    if "inplace" in options:
        raise NotImplementedError(f"[at] inplace: {op} computes the whole array, and is no update of some elements")


def _on_new_route(op: str, x: Any, values: Any, whole: tuple[Any, ...], key: tuple[Any, ...]) -> Any:
    """An update outside a trace whose reading of the index is remembered."""
    marked = tuple([indexing.Slot(k) if type(item) is int else item for k, item in enumerate(whole)])
    items = index_items.items_of(marked, x.shape)
    layout, operands = gather_indexing.layout_of(items, x.shape, eager=True)
    sources = tuple([indexing.source_of(operand, whole) for operand in operands])
    if len(_routes) >= _BOUND:
        _routes.clear()
    is_whole = len(sources) == len(whole) and all(type(source) is indexing.Slot for source in sources)
    _routes[key] = layout, sources, is_whole and sources == tuple(range(len(whole)))
    return _by_route(op, x, values, whole, _routes[key])


def _by_route(op: str, x: Any, values: Any, whole: tuple[Any, ...], route: _Route) -> Any:
    layout, sources, is_whole = route
    if is_whole:
        return _apply(x, values, *whole, op=op, layout=layout)
    operands = [whole[source] if type(source) is indexing.Slot else source for source in sources]
    return _apply(x, values, *operands, op=op, layout=layout)


_BOUND = 4096
_Route = tuple[gather_indexing.Layout, tuple[Any, ...], bool]  # the bool: all items of the index, as they are
_routes: dict[tuple[Any, ...], _Route] = {}


def _kind_of_value(values: Any) -> Any:
    """The part of the key of a remembered update for its values; False if such an update is not remembered."""
    kind = type(values)
    if kind is runtime.Array:
        return values.aval
    if kind is np.ndarray:
        return values.shape, values.dtype
    return kind if kind in promotion.PYTHON_SCALARS else False


def _fits(x: Any, values: Any) -> bool:
    """Whether the values' dtype fits into the array's."""
    own = promotion.dtype_of(x)
    return own == promotion.dtype_of(values) or promotion.common_type(x, values).dtype == own


def _checked(
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    out_sharding: None = None,
    wrap_negative_indices: bool = True,
    func: Any = None,
) -> tuple[dict[str, Any], bool]:
    """The options of an update as ``lax.scatter`` takes them, and whether negative indices wrap."""
    parsed = lax.GatherScatterMode.FILL_OR_DROP if mode is None else lax.GatherScatterMode.from_any(mode)
    options = {
        "indices_are_sorted": bool(indices_are_sorted),
        "unique_indices": bool(unique_indices),
        "mode": parsed,
    }
    return options, bool(wrap_negative_indices)


def _check_types(x: Any, values: Any) -> None:
    """Warn if the values' dtype does not fit into the array's."""
    if _fits(x, values):
        return
    own, given = promotion.dtype_of(x), promotion.dtype_of(values)
    errors.warn(
        f"scatter inputs have incompatible types: cannot safely cast value from dtype={given} to dtype={own} with "
        f"jax_numpy_dtype_promotion={config.read('numpy_dtype_promotion')}. In future JAX releases this will result in "
        "an error.",
        FutureWarning,
    )


def _set_masked(op: str, x: Any, idx: Any, values: Any) -> Any:
    """Outside a trace, a mask over the leading axes and one value for all its elements are a ``where``; or None."""
    if op != "set" or not isinstance(idx, runtime.Array | np.ndarray) or idx.dtype != np.bool_ or not idx.ndim:
        return None
    shape, rank = promotion.shape_of(values), idx.ndim
    if tuple(idx.shape) != x.shape[:rank] or len(shape) > x.ndim - rank or isinstance(x.dtype, dtypes.ExtendedDType):
        return None
    return _where_masked(x, idx, values)


@basic_indexing.inline
def _where_masked(x: Any, mask: Any, values: Any) -> Any:
    dtype, weak_type, shape = promotion.dtype_of(x), promotion.is_weak(x), promotion.shape_of(x)
    rank = len(promotion.shape_of(mask))
    values = promotion.broadcast_to(values, shape[rank:])
    mask = lax.broadcast_in_dim(mask, shape, tuple(range(rank)))
    return promotion.convert(selection.where(mask, values, x), dtype, weak_type)


def scatter(x: Any, values: Any, *operands: Any, op: str, layout: Any, func: Any = None, **options: Any) -> Array:
    """``x`` with ``values`` combined by ``op`` into the elements at a layout's index."""
    dtype, weak_type = promotion.dtype_of(x), promotion.is_weak(x)
    chosen = gather_indexing.select(layout, promotion.shape_of(x), operands)
    if 0 in chosen.shape:
        return promotion.as_array(x)
    x, values = promotion.promote_dtypes(x, values)
    values = promotion.broadcast_to(values, _with_new_axes(chosen))
    if chosen.new_axes:
        values = lax.squeeze(values, chosen.new_axes)
    if chosen.reversed:
        values = lax.rev(values, chosen.reversed)
    if chosen.truths:
        x = lax.expand_dims(x, chosen.truths)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=chosen.offset_dims,
        inserted_window_dims=chosen.collapsed,
        scatter_dims_to_operand_dims=chosen.components,
    )
    for promise in ("indices_are_sorted", "unique_indices"):
        options[promise] = options.get(promise, False) or chosen.ascending
    options.setdefault("mode", lax.GatherScatterMode.FILL_OR_DROP)
    if func is not None:
        out = lax.scatter_apply(x, chosen.indices, func, numbers, update_shape=promotion.shape_of(values), **options)
    else:
        out = _SCATTERS[op](x, chosen.indices, values, numbers, **options)
    if chosen.truths:
        out = lax.squeeze(out, chosen.truths)
    return promotion.convert(out, dtype, weak_type)


_apply = basic_indexing.inline(
    scatter, static_argnames=("op", "layout", "func", "mode", "indices_are_sorted", "unique_indices")
)


def _with_new_axes(chosen: gather_indexing.Selection) -> tuple[int, ...]:
    """The shape of ``x[idx]``."""
    own = iter(chosen.shape)
    rank = len(chosen.shape) + len(chosen.new_axes)
    return tuple([1 if axis in chosen.new_axes else next(own) for axis in range(rank)])

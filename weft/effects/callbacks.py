"""Callbacks with results: Python functions that compiled programs call at run time.

    b:f32[3] = pure_callback[callback=f result_avals=(f32[3],) sharding=None vmap_method=None] a

``pure_callback`` depends on its operands alone: it is dropped if its result is unused, and may run more than once.
``io_callback`` has an effect: it runs exactly once at each execution, in program order. Each is one instruction of a
plan, also inside loops and branches, and takes the GIL for the call. Shapes and dtypes of the results are checked
against the declared ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from weft import dtypes, errors, runtime
from weft._base.record import Record
from weft.control import scan
from weft.core import avals, effects, kinds
from weft.core.caches import fingerprint
from weft.core.primitive import Primitive
from weft.dispatch import devices
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim, at, repeated

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


class FlatCallback(Record):
    """A function of trees as a function of leaves; equal if function and argument structure are equal."""

    callback_func: Callable[..., Any]
    in_tree: Any

    def __call__(self, *values: Any) -> list[Any]:
        args, kwargs = runtime.tree_unflatten(self.in_tree, list(values))
        return runtime.tree_flatten(self.callback_func(*args, **kwargs))[0]

    @property
    def name(self) -> str:
        return getattr(self.callback_func, "__name__", None) or repr(self.callback_func)

    def __repr__(self) -> str:
        return f"_FlatCallback(callback_func={self.callback_func!r}, in_tree={self.in_tree!r})"

    def __fingerprint__(self) -> str:
        return f"{fingerprint.serial(self.callback_func)} {self.in_tree}"


def as_arrays(values: Sequence[Any], key_types: Sequence[Any] | None = None) -> list[Any]:
    """The values that the runtime passes to a callback, as Arrays that outlive the call.

    ``key_types`` has the dtype of each value that is an array of keys; the runtime passes those as words.
    """
    if key_types is None:
        return [_as_array(value, None) for value in values]
    return [_as_array(value, dtype) for value, dtype in zip(values, key_types, strict=True)]


def _as_array(value: Any, key_type: Any) -> Any:
    if isinstance(value, runtime.Array):
        return value
    value = np.asarray(value)
    shape = value.shape if key_type is None else value.shape[: value.ndim - len(key_type.physical_shape)]
    return avals.from_numpy(value, runtime.ShapedArray(shape, value.dtype if key_type is None else key_type))


def _call(
    values: Sequence[Any], callback: FlatCallback, result_avals: Sequence[Any], key_types: Any
) -> tuple[np.ndarray, ...]:
    """Run a callback; JaxRuntimeError if the results differ from the declared ones. Keys are returned as words."""
    results = callback(*[_strong(value) for value in as_arrays(values, key_types)])
    name = callback.name
    if len(results) != len(result_avals):
        raise errors.JaxRuntimeError(
            f"[callback] {name}: Mismatched number of outputs from callback. Expected: {len(result_avals)}, "
            f"Actual: {len(results)}"
        )
    return tuple([_checked(r, aval, i, name) for i, (r, aval) in enumerate(zip(results, result_avals, strict=True))])


def _strong(value: Any) -> Any:
    return runtime.array_alias(value, value.aval.strip_weak_type()) if value.weak_type else value


def _checked(result: Any, aval: Any, index: int, name: str) -> np.ndarray:
    keys = dtypes.is_extended(aval.dtype) or dtypes.is_extended(getattr(result, "dtype", None))
    value: Any = result if keys and hasattr(result, "aval") else np.asarray(result)
    if value.dtype == aval.dtype and value.shape == aval.shape:
        return avals.key_words(value) if keys else value
    for what, promised, actual in (
        ("shape", aval.shape, value.shape),
        ("dtype", aval.dtype, value.dtype),
    ):
        if actual != promised and (keys or what == "shape" or dtypes.canonicalize_dtype(actual) != promised):
            raise errors.JaxRuntimeError(
                f"[callback] {name}: Incorrect output {what} for return value #{index}: Expected: {promised}, "
                f"Actual: {actual}"
            )
    return value.astype(aval.dtype, copy=False)


def _result_avals(result_shape_dtypes: Any) -> tuple[tuple[Any, ...], Any]:
    """(types of the results, their tree)."""
    leaves, tree = runtime.tree_flatten(result_shape_dtypes)
    found = []
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(
                f"[callback] result_shape_dtypes is a tree of objects with shape and dtype such as "
                f"weft.ShapeDtypeStruct((), 'float32'), got {leaf!r} of type {type(leaf).__name__}"
            )
        dtype = dtypes.as_dtype(leaf.dtype)
        if dtypes.narrows(dtype):
            raise ValueError("result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled")
        found.append(runtime.ShapedArray(tuple(leaf.shape), dtype))
    return tuple(found), tree


def _recorded(primitive: Primitive, callback: Any, result_shape_dtypes: Any, arguments: Any, params: Any) -> Any:
    """The results of a call of ``callback``, in their tree, once its equation is recorded."""
    if not callable(callback):
        raise TypeError(f"[{primitive.name}] the first argument must be callable, got {callback!r}")
    devices.as_device(params["sharding"])
    values, in_tree = runtime.tree_flatten(arguments)
    result_avals, out_tree = _result_avals(result_shape_dtypes)
    outs = primitive.bind(*values, callback=FlatCallback(callback, in_tree), result_avals=result_avals, **params)
    return runtime.tree_unflatten(out_tree, outs)


def with_axis(types: Sequence[Any], size: int) -> tuple[Any, ...]:
    return tuple([aval.update(shape=(size, *aval.shape)) for aval in types])


def one_by_one(
    primitive: Primitive, size: int, values: list[Any], dims: list[Dim], params: Any, unroll: bool = False
) -> Any:
    """The callback for each element in turn."""
    whole = [value if dim is None else at(value, dim, 0) for value, dim in zip(values, dims, strict=True)]
    mapped = [value for value, dim in zip(whole, dims, strict=True) if dim is not None]

    def step(state: Any, elements: Any) -> Any:
        given = iter(elements)
        operands = [value if dim is None else next(given) for value, dim in zip(whole, dims, strict=True)]
        return state, primitive.bind(*operands, **params)

    _, outs = scan.scan(step, (), mapped, length=size, unroll=unroll)
    return outs, [0] * len(outs)


# -- pure_callback ----------------------------------------------------------------------------------------------------


def _run(
    *values: Any, callback: FlatCallback, result_avals: Any, key_types: Any = None, promised: Any = None, **_: Any
) -> tuple[np.ndarray, ...]:
    return _call(values, callback, promised or result_avals, key_types)


pure_callback_p = Primitive("pure_callback", kinds.External(_run, foreign=True), multiple_results=True, memoize=False)
pure_callback_p.def_abstract_eval(lambda *avals, result_avals, **_: result_avals)


def _jvp_pure(*args: Any, **params: Any) -> NoReturn:
    raise ValueError(
        "Pure callbacks do not support JVP. Please use `weft.custom_jvp` to use callbacks while taking gradients."
    )


def _transpose_pure(*args: Any, **params: Any) -> NoReturn:
    raise ValueError(
        "Pure callbacks do not support transpose. Please use `weft.custom_vjp` to use callbacks while taking gradients."
    )


def _batch_pure(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    method = params["vmap_method"]
    if method in ("sequential", "sequential_unrolled"):
        return one_by_one(pure_callback_p, size, values, dims, params, unroll=method == "sequential_unrolled")
    if method not in VMAP_METHODS or method is None:
        raise NotImplementedError(
            "vmap is only supported for the pure_callback primitive when vmap_method is one of 'sequential', "
            "'sequential_unrolled', 'expand_dims', 'broadcast_all', or 'legacy_vectorized'. "
            f"Got vmap_method={method}."
        )
    whole = []
    for value, dim in zip(values, dims, strict=True):
        if dim is not None:
            value = at(value, dim, 0)
        elif method == "broadcast_all":
            value = repeated(size, value, 0)
        elif method == "expand_dims":
            value = repeated(1, value, 0)
        whole.append(value)
    outs = pure_callback_p.bind(*whole, **{**params, "result_avals": with_axis(params["result_avals"], size)})
    return outs, [0] * len(outs)


pure_callback_p.jvp, pure_callback_p.transpose, pure_callback_p.batch = _jvp_pure, _transpose_pure, _batch_pure


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """The result of the Python function ``callback(*args, **kwargs)``, computed when the program runs.

    ``callback`` gets Arrays in the structure of the arguments, and gives a tree whose leaves have the shapes and dtypes
    of ``result_shape_dtypes`` (a tree of ``weft.ShapeDtypeStruct`` or of anything with ``shape`` and ``dtype``);
    JaxRuntimeError otherwise. It must depend on its arguments alone: a call with an unused result is dropped, and a
    call may happen more than once. An exception in it is raised, with its traceback, where the result is used.

    Under ``vmap``: ``vmap_method="sequential"`` calls it element by element (``"sequential_unrolled"`` without a loop).
    The others call it once, on arguments with a leading axis: ``"expand_dims"`` gives unmapped arguments the extent 1,
    ``"broadcast_all"`` repeats them, ``"legacy_vectorized"`` passes them unchanged. None raises NotImplementedError. A
    callback has no derivative: wrap it in ``weft.custom_jvp`` or ``weft.custom_vjp``.

    >>> import math
    >>> f = weft.jit(lambda x: weft.pure_callback(math.sin, weft.ShapeDtypeStruct((), "float32"), x) + 1)
    >>> print(f(0.0))
    1.0
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    params = {"sharding": sharding, "vmap_method": vmap_method}
    return _recorded(pure_callback_p, callback, result_shape_dtypes, (args, kwargs), params)


# -- io_callback ------------------------------------------------------------------------------------------------------


io_callback_p = Primitive("io_callback", kinds.Effect(_run), multiple_results=True, memoize=False)


def _type_io(*avals: Any, result_avals: Any, ordered: bool, **_: Any) -> tuple[Any, effects.Effects]:
    return result_avals, frozenset({effects.ordered_io_effect if ordered else effects.io_effect})


io_callback_p.def_effectful_abstract_eval(_type_io)


def _jvp_io(*args: Any, **params: Any) -> NoReturn:
    raise ValueError("IO callbacks do not support JVP.")


def _transpose_io(*args: Any, **params: Any) -> NoReturn:
    raise ValueError("IO callbacks do not support transpose.")


def _batch_io(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    if params["ordered"]:
        raise ValueError("Cannot `vmap` ordered IO callback.")
    return one_by_one(io_callback_p, size, values, dims, params)


io_callback_p.jvp, io_callback_p.transpose, io_callback_p.batch = _jvp_io, _transpose_io, _batch_io


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call the Python function ``callback(*args, **kwargs)`` for its effect and its result when the program runs.

    As ``weft.pure_callback``, but the call happens exactly once at each execution, whether or not the result is used.
    ``result_shape_dtypes`` may be None for a callback that returns None. ``ordered`` calls keep their order among the
    program's ordered effects, and ``vmap`` of them raises ValueError; ``vmap`` of others calls element by element. It
    has no derivative.

    >>> from weft.experimental import io_callback
    >>> seen = []
    >>> f = weft.jit(lambda x: io_callback(lambda v: seen.append(int(v)), None, x, ordered=True))
    >>> f(1); f(2)
    >>> weft.effects_barrier()
    >>> seen
    [1, 2]
    """
    params = {"sharding": sharding, "ordered": bool(ordered)}
    return _recorded(io_callback_p, callback, result_shape_dtypes, (args, kwargs), params)


# -- callbacks without results ----------------------------------------------------------------------------------------


def unrolled(primitive: Primitive) -> Callable[..., tuple[Any, Any]]:
    """The batching rule of an effect without results: once for each element, in order."""

    def rule(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
        for i in range(size):
            elements = [
                value if dim is None else shape.index_in_dim(value, i, dim, keepdims=False)
                for value, dim in zip(values, dims, strict=True)
            ]
            primitive.bind(*elements, **params)
        return [], []

    return rule


def is_io(found: effects.Effects) -> bool:
    """Whether a program does input or output that must happen exactly once."""
    return effects.io_effect in found or effects.ordered_io_effect in found

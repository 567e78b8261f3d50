"""weft.extend.linear_util: functions with a stack of transformations around them, under JAX's names.

A ``WrappedFun`` is a function and the transformations that are applied around it, the outermost first. It is hashable,
so that what was computed for one can be remembered (``cache``). A transformation is a generator, that is given the
arguments, yields those for the function, is sent the result, and yields its own::

    @lu.transformation
    def doubled(factor, x):
        y = yield (factor * x,), {}
        yield 2 * y

    doubled(lu.wrap_init(f), 3.0).call_wrapped(x)        # 2 * f(3 * x)

In the newer form (``transformation2``) it is a function ``gen(f, *static, *args)`` that calls ``f`` itself. Those
``with_aux`` give a second value, which is found in a ``Store`` after the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from weft import config
from weft.core.caches.weak_table import WeakTable
from weft.core.programs.jaxpr import DebugInfo
from weft.dispatch.calls.function_names import source_of


class StoreException(Exception):
    """A Store was filled twice, or read while it is empty."""


_EMPTY: Any = object()


class Store:
    """A cell for one value: filled once, and then read."""

    __slots__ = ("_val",)

    def __init__(self) -> None:
        self._val = _EMPTY

    def store(self, val: Any) -> None:
        if self._val is not _EMPTY:
            raise StoreException("Store occupied")
        self._val = val

    def reset(self) -> None:
        self._val = _EMPTY

    @property
    def val(self) -> Any:
        if self._val is _EMPTY:
            raise StoreException("Store empty")
        return self._val

    def __bool__(self) -> bool:
        return self._val is not _EMPTY


class EqualStore(Store):
    """A Store that may be filled again with an equal value."""

    __slots__ = ()

    def store(self, val: Any) -> None:
        if self._val is _EMPTY:
            self._val = val
        elif not bool(self._val == val):
            raise StoreException("Store occupied with not-equal value")


class WrappedFun:
    """A function ``f`` with transformations around it. Equal if function, transformations and parameters are equal."""

    __slots__ = ("debug_info", "f", "f_transformed", "in_type", "params", "stores", "transforms")

    def __init__(
        self,
        f: Callable[..., Any],
        f_transformed: Callable[..., Any],
        transforms: tuple[tuple[Callable[..., Any], tuple[Hashable, ...]], ...],
        stores: tuple[Store | None, ...],
        params: tuple[tuple[str, Any], ...],
        in_type: Any,
        debug_info: Any,
    ) -> None:
        self.f = f
        self.f_transformed = f_transformed
        self.transforms = transforms
        self.stores = stores
        self.params = params
        self.in_type = in_type
        self.debug_info = debug_info

    @property
    def __name__(self) -> str:
        return _name(self.f)

    def wrap(self, gen: Callable[..., Any], gen_static_args: tuple[Any, ...], out_store: Store | None) -> WrappedFun:
        """The function with one more transformation around it, and its store if it has one."""
        given = gen_static_args if out_store is None else (out_store, *gen_static_args)
        return WrappedFun(
            self.f, functools.partial(gen, self.f_transformed, *given), ((gen, gen_static_args), *self.transforms),
            (out_store, *self.stores), self.params, None, self.debug_info,
        )  # fmt: skip

    def populate_stores(self, stores: Sequence[Store | None]) -> None:
        """Fill the stores with the values of others."""
        for own, other in zip(self.stores, stores, strict=True):
            if own is not None and other is not None:
                own.store(other.val)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call the transformed function."""
        return self.f_transformed(*args, **kwargs)

    def _key(self) -> tuple[Any, ...]:
        return self.f, self.transforms, self.params, self.in_type

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._key() == other._key()

    def __repr__(self) -> str:
        around = [f"{index}: {_name(gen)} {args}" for index, (gen, args) in enumerate(self.transforms)]
        return "\n".join(["Wrapped function:", *around, f"Core: {_name(self.f)}"])

    def replace_debug_info(self, dbg: Any) -> WrappedFun:
        return WrappedFun(
            self.f, self.f_transformed, self.transforms, self.stores, self.params, self.in_type, dbg
        )  # fmt: skip

    def with_unknown_names(self) -> WrappedFun:
        return self.replace_debug_info(self.debug_info and self.debug_info.with_unknown_names())


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or "<unnamed wrapped function>"


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """``f``, called with the keyword arguments ``params``, without transformations.

    >>> from weft.extend import linear_util as lu
    >>> lu.wrap_init(lambda x, factor: factor * x, {"factor": 3}).call_wrapped(2)
    6
    """
    given = params or {}
    if debug_info is None:
        debug_info = DebugInfo("linear_util.wrap_init", source_of(f))
    return WrappedFun(f, functools.partial(f, **given), (), (), tuple(sorted(given.items())), None, debug_info)


def _curried(function: Callable[..., Any]) -> Callable[..., Any]:
    """``_curried(f)(x)(y)`` is ``f(x, y)``."""
    return functools.wraps(function)(functools.partial(functools.partial, function))


@_curried
def transformation2(gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """``fun`` with the transformation ``gen(f, *static, *args, **kwargs)`` around it."""
    return fun.wrap(gen, gen_static_args, None)


@_curried
def transformation_with_aux2(
    gen: Callable[..., Any],
    fun: WrappedFun,
    *gen_static_args: Any,
    use_eq_store: bool = False,
    unk_names: bool = False,
) -> tuple[WrappedFun, Callable[[], Any]]:
    """(``fun`` with ``gen(f, store, *static, *args, **kwargs)`` around it, a function that reads the store)."""
    store = EqualStore() if use_eq_store else Store()
    wrapped = fun.wrap(gen, gen_static_args, store)
    return (wrapped.with_unknown_names() if unk_names else wrapped), lambda: store.val


class _Steps:
    """A generator as a function that calls ``f``; equal if the generators are, so that caches find it."""

    __slots__ = ("gen", "stores")

    def __init__(self, gen: Callable[..., Any], stores: bool) -> None:
        self.gen = gen
        self.stores = stores

    @property
    def __name__(self) -> str:
        return _name(self.gen)

    def __call__(self, f: Callable[..., Any], *given: Any, **kwargs: Any) -> Any:
        store, args = (given[0], given[1:]) if self.stores else (None, given)
        steps = self.gen(*args, **kwargs)
        inner_args, inner_kwargs = next(steps)
        try:
            inner = f(*inner_args, **inner_kwargs)
        except BaseException:
            steps.close()  # now, so that the contexts it is in end in their order
            raise
        made = steps.send(inner)
        if store is None:
            return made
        result, aux = made
        store.store(aux)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Steps) and (self.gen, self.stores) == (other.gen, other.stores)

    def __hash__(self) -> int:
        return hash((self.gen, self.stores))


@_curried
def transformation(gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """``fun`` with a generator around it, which yields (args, kwargs) and then the result."""
    return fun.wrap(_Steps(gen, False), gen_static_args, None)


@_curried
def transformation_with_aux(
    gen: Callable[..., Any], fun: WrappedFun, *gen_static_args: Any
) -> tuple[WrappedFun, Callable[[], Any]]:
    """As ``transformation``, for a generator that at last yields (result, second value)."""
    store = Store()
    return fun.wrap(_Steps(gen, True), gen_static_args, store), lambda: store.val


def merge_linear_aux(aux1: Callable[[], Any], aux2: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, the first second value) or (False, the other one): of two functions, one was called."""
    try:
        first = aux1()
    except StoreException:
        try:
            return False, aux2()
        except StoreException:
            raise StoreException("neither store occupied") from None
    try:
        aux2()
    except StoreException:
        return True, first
    raise StoreException("both stores occupied")


def cache(call: Callable[..., Any], *, explain: Any = None) -> Callable[..., Any]:
    """``call(fun, *args)``, remembered by the function, its transformations, the arguments and weft's options."""
    caches: WeakTable[dict[Any, Any]] = WeakTable()

    @functools.wraps(call)
    def remembered(fun: WrappedFun, *args: Any) -> Any:
        known = caches.get(fun.f)
        if known is None:
            known = {}
            caches.set(fun.f, known)
        key = (fun.transforms, fun.params, fun.in_type, args, config.token())
        found = known.get(key)
        if found is not None:
            result, stores = found
            fun.populate_stores(stores)
            return result
        result = call(fun, *args)
        known[key] = (result, fun.stores)
        return result

    remembered.cache_clear = caches.clear  # type: ignore[attr-defined] - as functools.cache does
    remembered.evict_function = caches.pop  # type: ignore[attr-defined]
    return remembered


def annotate(f: WrappedFun, in_type: Any) -> WrappedFun:
    """The function with the types of its arguments."""
    return WrappedFun(f.f, f.f_transformed, f.transforms, f.stores, f.params, in_type, f.debug_info)


def hashable_partial(f: WrappedFun, *args: Any) -> WrappedFun:
    """``f`` with first arguments given; equal for equal arguments."""
    return f.wrap(_given_first, args, None)


def _given_first(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return f(*args, **kwargs)

"""``jit``: makes a native callable from a Python function; its methods, and ``clear_caches``.

``jit_calls`` handles a call with new arguments.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from weft import config, runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.dispatch import devices
from weft.dispatch.calls import signature
from weft.dispatch.calls.jit_calls import INLINED, PLAIN, SOUGHT, UNSPECIFIED, JitState, Options
from weft.dispatch.programs import executables, trace_cache

if TYPE_CHECKING:
    from typing import Unpack

    from weft.dispatch.calls.jit_options import Decorator, JitOptions

P = ParamSpec("P")
R = TypeVar("R")


class CacheInfo(NamedTuple):
    """Counts for one jitted function, level by level, since it was made or last cleared."""

    hits: int  # dispatch: calls that ran no Python
    traces: int
    executables: int  # programs, those from disk included
    kernels_built: int  # by LLVM
    kernels_loaded: int  # from disk
    kernels_reused: int
    milliseconds: dict[str, float]  # in each stage

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.notebook").cache_info(self)


_UNSPECIFIED = UNSPECIFIED


@overload
def jit(fun: Callable[P, R], /, **options: Unpack[JitOptions]) -> runtime.JitFunction[P, R]: ...


@overload
def jit(**options: Unpack[JitOptions]) -> Decorator: ...


def jit(
    fun: Callable[..., Any] = _UNSPECIFIED,
    /,
    *,
    in_shardings: Any = _UNSPECIFIED,
    out_shardings: Any = _UNSPECIFIED,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
    donate: str | None = None,
    checks: Any = None,
) -> Any:
    """Compile ``fun`` at its first call for each structure, shape and dtype of its arguments.

    ``static_argnums`` / ``static_argnames`` are part of the cache key by value and must be hashable; each is inferred
    from the other. Donated arguments may not be used after the call. ``donate="require"``: ValueError when it is
    compiled if their memory cannot be reused. ``checks``: any of "index", "nan" and "overflow", guards that raise a
    ``CheckError`` with the operation, the element, its operands and the line; None: as the option ``checks`` says.
    Without ``fun``, gives a decorator.

    >>> @weft.jit
    ... def norm(x):
    ...     return jnp.sqrt(jnp.sum(x * x))
    >>> norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    >>> norm.cache_info().traces
    1
    """
    if fun is _UNSPECIFIED:
        return functools.partial(
            jit, in_shardings=in_shardings, out_shardings=out_shardings, static_argnums=static_argnums, donate=donate,
            static_argnames=static_argnames, donate_argnums=donate_argnums, donate_argnames=donate_argnames,
            keep_unused=keep_unused, inline=inline, device=device, backend=backend, compiler_options=compiler_options,
            checks=checks,
        )  # fmt: skip
    flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if flags & _NO_FUNCTION or type(fun) is staticmethod or not callable(fun):
        check_callable(fun)
    placed = device is not None or backend is not None or compiler_options is not None
    lies = in_shardings is not _UNSPECIFIED or out_shardings is not _UNSPECIFIED
    lying = _given(device, backend, in_shardings, out_shardings) if lies else None
    place = _place(device, backend, compiler_options) if placed else 0
    roles = signature.NO_ROLES
    if not (static_argnums is static_argnames is donate_argnums is donate_argnames is None):
        roles = signature.resolve_roles(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    required = donate is not None and _is_required(donate, roles)
    words = None if checks is None else config.check_words(checks)
    is_plain = roles is signature.NO_ROLES and not keep_unused and not place and lying is None and words is None
    plain = INLINED if inline else PLAIN
    options = plain if is_plain else Options(roles, bool(keep_unused), bool(inline), place, lying, required, words)
    return _jitted(fun, options)


def _jitted(fun: Callable[..., Any], options: Options) -> Any:
    """The native callable with the attributes of its function."""
    state = JitState(fun, options)
    numbers, names = options.roles.static_argnums, options.roles.static_argnames
    if numbers and numbers[0] < 0:  # they count from the end of ``*args``: every call goes to Python
        jitted = runtime.JitFunction(state.always_slow, (), ())
    else:
        jitted = runtime.JitFunction(state.slow, numbers, names)
    own = getattr(fun, "__dict__", None)
    if type(fun) is FunctionType and not own and fun.__doc__ is None is not fun.__module__:  # in half the time
        attributes: dict[str, Any] = {
            "__module__": fun.__module__, "__name__": fun.__name__, "__qualname__": fun.__qualname__,
        }  # fmt: skip
    else:
        attributes = dict(own or ())
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            value = getattr(fun, name, None)
            if value is not None:
                attributes[name] = value
    attributes["__wrapped__"], attributes["_state"] = fun, state
    jitted.__dict__ = attributes
    return jitted


def _is_required(donate: str, roles: signature.Roles) -> bool:
    if donate != "require":
        raise ValueError(f"[jit] donate is 'require' or left out, not {donate!r}")
    if not roles.donates:
        raise ValueError("[jit] donate='require' needs donate_argnums or donate_argnames")
    return True


_NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE


def check_callable(fun: Any) -> None:
    """Raise TypeError for what cannot be transformed: what is not callable, staticmethod, generators, coroutines."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"staticmethod arguments are not supported, got {fun}: write @staticmethod above the other decorator, "
            "or pass the function without it (method.__func__)"
        )
    flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
    if flags & inspect.CO_COROUTINE:
        raise TypeError(f"Expected a function, got a coroutine function: {fun}")


def _given(device: Any, backend: Any, ins: Any, outs: Any) -> Any:
    """What the user gave as in_shardings and out_shardings, checked; None if that says nothing."""
    for name, value in (("in_shardings", ins), ("out_shardings", outs)):
        if value is not _UNSPECIFIED and (device is not None or backend is not None):
            raise ValueError(f"If backend or device is specified on jit, then {name} should not be specified.")
    given = lazy.sharded_calls.Given(ins, outs)
    return given if given.says_something else None


def _check_placement(device: Any, backend: Any, compiler_options: Any) -> None:
    if device is not None and backend is not None:
        raise ValueError(f"can't specify both a device and a backend for jit, got {device=} and {backend=}")
    devices.check_backend(backend)
    devices.as_device(device)
    executables.ignore_compiler_options(compiler_options)


def _place(device: Any, backend: str | None, compiler_options: Any) -> int:
    """Where the user wants the function to run, committed; 0 if they did not say."""
    _check_placement(device, backend, compiler_options)
    if backend is not None:
        return devices.local_devices(backend=backend)[0].number << 1 | 1
    target = devices.as_target(device)
    return 0 if target is None else devices.place_on(target)


# -- methods of jitted functions --------------------------------------------------------------------------------------

_clear_native = runtime.JitFunction.clear_cache


def _clear_cache(jitted: Any) -> None:
    """Drop what was traced and compiled for this function; ``cache_info()`` counts from 0 again."""
    _clear_native(jitted)
    state = vars(jitted).get("_state")
    if state is not None:
        state.record().clear()
        state.forget(jitted.hits)


def _cache_info(jitted: Any) -> CacheInfo:
    """Counts of cache hits, traces, executables and kernels of this function, and milliseconds per stage.

    A program that an earlier process left on disk counts as an executable, and its kernels as loaded; its stages are
    ``trace`` and ``load``. As with ``functools.lru_cache``, ``clear_cache`` (and ``weft.clear_caches``)
    sets all of them back to 0.
    """
    state = jitted._state
    built, loaded, reused = state.kernels
    return CacheInfo(
        jitted.hits - state.hits_before,
        state.traces,
        state.executables,
        built,
        loaded,
        reused,
        dict(state.milliseconds or {}),
    )


def _signature(jitted: Any) -> inspect.Signature:
    """The function's, also for ``inspect.signature(jitted, follow_wrapped=False)``."""
    own = vars(jitted)
    found = own["__signature__"] if "__signature__" in own else signature.signature_of(own.get("__wrapped__"))
    if found is None:
        raise AttributeError(f"{jitted!r} wraps a callable without a signature")
    return found


def _sign(jitted: Any, given: inspect.Signature) -> None:
    vars(jitted)["__signature__"] = given


def _repr(jitted: Any) -> str:
    return f"<PjitFunction of {vars(jitted).get('__wrapped__')!r}>"


def _rebuild(function: Any, options: Options) -> Any:
    roles = options.roles
    return jit(
        function, static_argnums=roles.static_argnums or None, static_argnames=roles.static_argnames or None,
        donate_argnums=roles.donate_argnums or None, donate_argnames=roles.donate_argnames or None,
        keep_unused=options.keep_unused, inline=options.inline, checks=options.checks,
        donate="require" if options.required else None,
        device=devices.device_at(options.place) if options.place else None,
        in_shardings=options.shardings.ins if options.shardings else _UNSPECIFIED,
        out_shardings=options.shardings.outs if options.shardings else _UNSPECIFIED,
    )  # fmt: skip


def _reduce(jitted: Any) -> str | tuple[Any, ...]:
    """Pickled by name if the module has this object under it, otherwise by function and options."""
    function = jitted.__wrapped__
    name = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is jitted else (_rebuild, (function, jitted._state.options))


def install_methods(**methods: Callable[..., Any] | property) -> None:
    """Give the native type its Python methods (``programs.ahead_of_time`` adds trace, lower and eval_shape)."""
    for name, method in methods.items():
        setattr(runtime.JitFunction, name, method)


install_methods(
    clear_cache=_clear_cache,
    cache_info=_cache_info,
    _cache_size=runtime.JitFunction.cache_size,
    __repr__=_repr,
    __signature__=property(_signature, _sign),
    __reduce__=_reduce,
)
# Libraries look for the name of JAX's type to find jitted functions.
runtime.JitFunction.__name__ = runtime.JitFunction.__qualname__ = "PjitFunction"


def clear_caches() -> None:
    """Drop every trace and executable of every jitted function; their ``cache_info()`` counts from 0 again."""
    for jitted in runtime.jit_functions():
        _clear_native(jitted)
        state = vars(jitted).get("_state")
        if state is not None:
            state.forget(jitted.hits)
    trace_cache.forget()
    SOUGHT.clear()
    for hook in _clear_hooks:
        hook()


_clear_hooks: list[Callable[[], None]] = []


def on_clear_caches(hook: Callable[[], None]) -> None:
    """Let ``clear_caches`` call ``hook`` too; for the compiler, and for modules loaded later."""
    _clear_hooks.append(hook)

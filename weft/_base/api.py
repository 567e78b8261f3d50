"""Functions on functions that are public as ``weft.<name>`` and need no compiler: make_jaxpr, eval_shape and more.

``jit`` itself lives in ``dispatch.calls.jit``, so that ``weft.numpy`` may use it; here it is put beside its relatives.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from weft import runtime, tree_util
from weft._base import lazy
from weft.core import avals, axis_names, primitive
from weft.core.programs.jaxpr import name_unused_outputs
from weft.core.symbolic import open_sizes
from weft.core.tracing import trace as tracing
from weft.core.tracing import tracebacks
from weft.dispatch import devices
from weft.dispatch.calls import function_names, jit_calls, signature
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.dispatch.programs import ahead_of_time

VERSION = "0.1.0"
_MOST_THREADS = 256  # threads of the native pool


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: Any = (),
    axis_env: Any = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that gives the jaxpr of ``fun`` for its arguments, without compiling or running anything.

    ``axis_env`` lists (name, size) of axes that ``fun`` may name in collectives.

    >>> print(weft.make_jaxpr(lambda x: x * 2)(3.0))
    { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    if not callable(fun):
        raise TypeError("the first argument must be callable")
    jit_module.check_callable(fun)
    axes = [(name, int(size)) for name, size in axis_env or ()]
    roles = signature.resolve_roles(fun, static_argnums if static_argnums != () else None, None, None, None)
    state = jit_calls.JitState(fun, jit_calls.Options(roles))

    @tracebacks.boundary
    def jaxpr_of(*args: Any, **kwargs: Any) -> Any:
        with axis_names.bound(axes):
            prepared = state.prepare(args, kwargs, accept_structs=True)
            trace = state.trace(prepared)
        closed = trace.closed.replace(jaxpr=name_unused_outputs(trace.closed.jaxpr))
        return (closed, ahead_of_time.out_structs(trace)) if return_shape else closed

    name = function_names.function_name(fun)
    jaxpr_of.__module__ = "weft"
    jaxpr_of.__name__ = f"make_jaxpr({name})"
    jaxpr_of.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', name)})"
    jaxpr_of.__wrapped__ = fun  # type: ignore[attr-defined]
    return jaxpr_of


@tracebacks.boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of ``fun(*args, **kwargs)`` as ShapeDtypeStructs, without computing it.

    >>> weft.eval_shape(lambda x: x @ x.T, weft.ShapeDtypeStruct((3, 4), jnp.float32))
    ShapeDtypeStruct(shape=(3, 3), dtype=float32)
    """
    jit_module.check_callable(fun)
    leaves, treedef = runtime.tree_flatten((args, kwargs))
    if any(type(dim) is not int for leaf in leaves if isinstance(leaf, ShapeDtypeStruct) for dim in leaf.shape):
        structs = functools.partial(_traced_structs, fun)
        return lazy.submodule("weft.stablehlo.unknown_sizes.open_traces").eval_shape(structs, leaves, treedef)
    found = _traced_structs(fun, *args, **kwargs)
    if open_sizes.thread.session is None or open_sizes.asked_by_weft(2):
        return found
    see = open_sizes.thread.session.seen
    return tree_util.tree_map(lambda struct: struct.update(shape=see(struct.shape)) if struct.shape else struct, found)


def _traced_structs(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    state = jit_calls.JitState(fun, jit_calls.PLAIN)
    return ahead_of_time.out_structs(state.trace(state.prepare(args, kwargs, accept_structs=True)))


@tracebacks.boundary
def typeof(x: Any) -> Any:
    """The type of ``x`` inside programs: shape, dtype and weakness.

    >>> weft.typeof(1.5)
    ShapedArray(float32[], weak_type=True)
    """
    try:
        found = avals.typeof(x) if type(x) in avals.structs else ahead_of_time.get_aval(x)
        return open_sizes.type_for(found, 2)
    except TypeError as error:
        raise TypeError(f"Argument {x!r} of type {type(x)} is not a valid JAX type") from error


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside, operations on concrete values run at once although a function is being traced.

    >>> @weft.jit
    ... def f(x):
    ...     with weft.ensure_compile_time_eval():
    ...         n = int(jnp.arange(4).sum())  # known while tracing
    ...     return x * n
    >>> f(2.0)
    Array(12., dtype=float32, weak_type=True)
    """
    with tracing.eval_context():
        yield


def clear_caches() -> None:
    """Forget all traces, executables and machine code of this process."""
    jit_module.clear_caches()
    primitive.clear_memos()


def environment() -> dict[str, str]:
    """What a report of a problem should say about this machine, by name."""
    return {
        "weft": VERSION,
        "numpy": np.__version__,
        "python": sys.version.replace("\n", " "),
        "device info": f"{devices.CPU.device_kind}-1, {devices.local_device_count()} local devices",
        "process_count": str(devices.process_count()),
        "platform": str(lazy.platform.uname()),
        "target": devices.CPU.target.name,
        "bfloat16 products": f"added in {runtime.bfloat16_products()}",
        "threads": str(runtime.Pool.get_threads()),
    }


def print_environment_info(return_string: bool = False) -> str | None:
    """Print versions, machine and threads, for reports of problems; or give them as a string."""
    facts = environment()
    width = max(map(len, facts)) + 1
    text = "\n".join(f"{name + ':':{width}} {value}" for name, value in facts.items())
    if return_string:
        return text
    print(text)
    return None


def threads(n: int) -> AbstractContextManager[None]:
    """Within the block, computations of this process use at most ``n`` threads; results are the same bits.

    The number before returns at the end of the block. It holds for all Python threads of the process.

    >>> with weft.threads(1):
    ...     total = jnp.ones(3).sum()
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"[threads] the number of threads is an int, got {n!r}")
    if not 1 <= n <= _MOST_THREADS:
        raise ValueError(f"[threads] the number of threads must be between 1 and {_MOST_THREADS}, not {n}")
    return _with_threads(n)


@contextmanager
def _with_threads(n: int) -> Iterator[None]:
    before = runtime.Pool.get_threads()
    runtime.Pool.set_threads(n)
    try:
        yield
    finally:
        runtime.Pool.set_threads(before)

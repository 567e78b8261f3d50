"""What kernels are written with besides references: branches, loops, checks, prints, and small sums on extents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from weft import config, debug
from weft import operations as lax
from weft.control import branches, while_loop
from weft.core import avals as avals_module
from weft.core.tracing.tracer import Tracer
from weft.experimental import checkify
from weft.operations.pointwise.convert import convert


def when(condition: Any, /) -> Callable[[Callable[[], Any]], None]:
    """A decorator: the function runs at once, where ``condition`` holds.

    With a Python boolean that is decided while tracing; with an array it is a branch of the program.

    >>> def kernel(out_ref):
    ...     out_ref[...] = 0
    ...     @pallas.when(pallas.program_id(0) == 1)
    ...     def _():
    ...         out_ref[...] = 7
    >>> spec = pallas.BlockSpec((None,), lambda i: i)
    >>> pallas.pallas_call(kernel, weft.ShapeDtypeStruct((3,), "int32"), grid=3, out_specs=spec)()
    Array([0, 7, 0], dtype=int32)
    """

    def run(function: Callable[[], Any]) -> None:
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                function()
            return

        def taken() -> None:
            function()

        branches.cond(condition, taken, lambda: None)

    return run


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: int | bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function runs for ``i`` from ``lower`` to ``upper`` (exclusive), ``step`` apart.

    With ``init_carry`` the function takes ``(i, carry)`` and gives the next carry, and the name of the function is the
    last one.

    >>> def kernel(x_ref, out_ref):
    ...     @pallas.loop(0, 4, init_carry=jnp.float32(0))
    ...     def total(i, carry):
    ...         return carry + x_ref[i]
    ...     out_ref[...] = total
    >>> pallas.pallas_call(kernel, weft.ShapeDtypeStruct((), "float32"))(jnp.arange(4.0))
    Array(6., dtype=float32)
    """
    known = all(isinstance(x, (int, np.integer)) for x in (lower, upper, step))
    if known and step <= 0:
        raise ValueError(f"[loop] `step` must be above 0, got {step}")

    def run(function: Callable[..., Any]) -> Any:
        count = cdiv(upper - lower, step)

        def body(k: Any, carry: Any) -> Any:
            i = lax.add(lower, lax.mul(k, step)) if known else lower + k * step
            if init_carry is None:
                function(i)
                return None
            return function(i, carry)

        first, last = (0, max(int(count), 0)) if known else (_zero(count), count)
        return while_loop.fori_loop(first, last, body, init_carry, unroll=unroll)

    return run


def _zero(count: Any) -> Any:
    return convert(0, avals_module.get_aval(count).dtype, False)


def cdiv(a: Any, b: Any) -> Any:
    """The quotient of integers, rounded up: how many blocks of ``b`` cover ``a``.

    >>> pallas.cdiv(7, 2)
    4
    """
    if isinstance(a, (int, np.integer)) and isinstance(b, (int, np.integer)):
        return -(-int(a) // int(b))
    return (a + (b - 1)) // b


def align_to(a: int, alignment: int) -> int:
    """The least multiple of ``alignment`` from ``a`` on."""
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of two from ``x`` on; ValueError for negative numbers."""
    if x < 0:
        raise ValueError(f"[next_power_of_2] takes an integer of at least 0, got {x}")
    return 1 if x == 0 else 2 ** (x - 1).bit_length()


def strides_from_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """How many elements apart neighbours along each dimension lie, in row-major order."""
    return tuple([math.prod(shape[d + 1 :]) for d in range(len(shape))])


def multiple_of(x: Any, values: Sequence[int] | int) -> Any:
    """``x``. The user says that it is a multiple of ``values``: a hint, which changes no result."""
    del values
    return x


def broadcast_to(a: Any, shape: Sequence[int]) -> Any:
    """``a``, repeated along new and unit dimensions."""
    own = avals_module.get_aval(a).shape
    lead = len(shape) - len(own)
    if lead < 0 or any(n not in (1, m) for n, m in zip(own, tuple(shape)[lead:], strict=True)):
        raise ValueError(f"[broadcast_to] an array of shape {own} does not broadcast to {tuple(shape)}")
    return lax.broadcast_in_dim(a, tuple(shape), tuple(range(lead, len(shape))))


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None, precision: Any = None
) -> Any:
    """The product of two matrices, either of them transposed first; sums are in float32 (int32 for integers).

    ``allow_tf32`` and ``precision`` exclude each other; weft multiplies with all bits of the operands either way.
    """
    left, right = [avals_module.get_aval(x) for x in (a, b)]
    if left.ndim != 2 or right.ndim != 2:
        raise ValueError(f"[dot] takes two matrices, got {left.str_short()} and {right.str_short()}")
    if allow_tf32 is not None and precision is not None:
        raise ValueError("[dot] give `allow_tf32` or `precision`, not both")
    dims = (((0 if trans_a else 1,), (1 if trans_b else 0,)), ((), ()))
    wide = np.dtype(np.int32) if left.dtype.kind in "iu" else np.dtype(np.float32)
    if left.dtype.itemsize >= 4 or left.dtype.kind == "c":
        wide = left.dtype
    return lax.dot_general(a, b, dimension_numbers=dims, precision=precision, preferred_element_type=wide)


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """1 / x. ``approx`` and ``full_range`` allow less, and get the exact quotient."""
    del approx, full_range
    return lax.reciprocal(x)


def delay(nanos: Any) -> None:
    """Wait on a device. Without effect here: cells of a grid do not wait for time to pass."""
    del nanos


def debug_print(fmt: str, *args: Any) -> None:
    """Print values from inside a kernel, once for every cell: ``{}`` stands for a value.

    Without a ``{}`` for them, the values follow the text.
    """
    if args and "{" not in fmt:
        fmt = " ".join([fmt, *["{}"] * len(args)])
    debug.print(fmt, *args)


def debug_checks_enabled() -> bool:
    """Whether ``debug_check`` checks: the option ``pallas_enable_debug_checks``."""
    return config.read("pallas_enable_debug_checks")


def enable_debug_checks(new_val: bool = True) -> AbstractContextManager[None]:
    """Let ``debug_check`` check within a ``with`` statement, on this thread; the option does it from then on."""
    return config.context("pallas_enable_debug_checks", new_val)


def pallas_export_experimental(dynamic_shapes: bool) -> AbstractContextManager[None]:
    """For JAX's programs, without effect: blocks of unknown sizes are exported anywhere."""
    del dynamic_shapes
    return nullcontext()


def debug_check(condition: Any, message: str) -> None:
    """Where ``enable_debug_checks`` is on, a check of ``checkify`` that fails where the condition does not hold."""
    if not debug_checks_enabled():
        return
    if not isinstance(condition, Tracer):
        if not condition:
            raise ValueError(message)
        return
    checkify.check(condition, message)

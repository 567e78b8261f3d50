"""Looking at values while a compiled program runs: ``debug.print``, ``debug.callback``, ``debug.breakpoint``.

All are effects: they happen once per execution, in program order, and are never dropped, merged or reordered with each
other. What they get are the values at run time, where a plain ``print`` shows a tracer. Under ``grad`` and ``jvp`` they
see the values of the function, not its tangents; under ``vmap`` they happen once for each element.
"""

from __future__ import annotations

import copy
import inspect
import logging
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base import debugger, unbuilt
from weft.core import avals, effects, kinds
from weft.core.primitive import Primitive
from weft.core.ref_types import is_ref
from weft.core.tracing import source_info
from weft.core.tracing.tracer import Tracer
from weft.dispatch.devices.shown_shardings import inspect_array_sharding, visualize_array_sharding, visualize_sharding
from weft.effects import callbacks

_log = logging.getLogger("weft.debug")


def _split(args: Any, kwargs: Any) -> tuple[list[Any], Any, tuple[tuple[int, Any], ...]]:
    """The array leaves of a call, the structure of all leaves, and the other leaves with their indices.

    What a reference holds now stands instead of it.
    """
    given, in_tree = runtime.tree_flatten((args, kwargs))
    leaves = [leaf[...] if is_ref(leaf) else leaf for leaf in given]
    fixed = tuple([(i, leaf) for i, leaf in enumerate(leaves) if not (_is_traced(leaf) or avals.is_valid(leaf))])
    indices = {index for index, _ in fixed}
    return [leaf for i, leaf in enumerate(leaves) if i not in indices], in_tree, fixed


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, Tracer)


def _joined(values: Sequence[Any], in_tree: Any, fixed: tuple[tuple[int, Any], ...]) -> Any:
    """The inverse of ``_split``."""
    leaves = list(values)
    for index, value in fixed:
        leaves.insert(index, value)
    return runtime.tree_unflatten(in_tree, leaves)


def _effect(ordered: bool) -> effects.Effect:
    return effects.ordered_debug_effect if ordered else effects.debug_effect


def _without_results(primitive: Primitive) -> None:
    """The rules of an effect that has no results: it sees the values, tangents and cotangents pass by."""
    primitive.jvp = lambda primals, tangents, **params: (primitive.bind(*primals, **params), [])
    primitive.transpose = lambda cts, *operands, **params: [None] * len(operands)
    primitive.batch = callbacks.unrolled(primitive)


# -- callback ---------------------------------------------------------------------------------------------------------


def _run_callback(*values: Any, callback: Callable[..., Any], key_types: Any = None, **_: Any) -> tuple[()]:
    callback(*callbacks.as_arrays(values, key_types))
    return ()


def _type_callback(*in_avals: Any, effect: Any, **params: Any) -> tuple[list[Any], effects.Effects]:
    return [], frozenset({effect})


debug_callback_p = Primitive("debug_callback", kind=kinds.Effect(_run_callback), multiple_results=True, memoize=False)
debug_callback_p.def_effectful_abstract_eval(_type_callback)
_without_results(debug_callback_p)


def callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """Call ``callback(*args, **kwargs)`` with the values that the arguments have when the program runs.

    Leaves of the arguments that are no arrays are passed as they are; what the callback returns is dropped. Without
    ``callback``, gives a function of callback and arguments: ``debug.callback(ordered=True)(f, x)``. ``partitioned``
    is accepted: there is one device. An exception in the callback reaches whoever uses a result of the program, or
    calls ``weft.effects_barrier``.

    >>> seen = []
    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.callback(lambda v: seen.append(float(v)), x * 2)
    ...     return x
    >>> y = f(3.0).block_until_ready()
    >>> seen
    [6.0]
    """
    if callback is None:
        if args or kwargs:
            raise TypeError(f"debug_callback received unexpected arguments in the two-call form: {args=} {kwargs=}")

        def with_options(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
            _callback(callback, args, kwargs, ordered, partitioned)

        return with_options
    _callback(callback, args, kwargs, ordered, partitioned)
    return None


def _callback(callback: Callable[..., Any], args: Any, kwargs: Any, ordered: bool, partitioned: bool) -> None:
    if not callable(callback):
        raise TypeError(
            f"first argument to weft.debug.callback must be callable, but got an object of type {type(callback)}"
        )
    values, in_tree, fixed = _split(args, kwargs)

    def flat_callback(*arrays: Any) -> None:
        positional, named = _joined(arrays, in_tree, fixed)
        callback(*positional, **named)

    debug_callback_p.bind(*values, callback=flat_callback, effect=_effect(ordered), partitioned=partitioned)


# -- print ------------------------------------------------------------------------------------------------------------


def _run_print(
    *values: Any, fmt: str, has_placeholders: bool, in_tree: Any, np_printoptions: Any, static_args: Any,
    logging_record: Any, key_types: Any = None, **_: Any,
) -> tuple[()]:  # fmt: skip
    positional, named = _joined(callbacks.as_arrays(values, key_types), in_tree, static_args)
    if has_placeholders:
        with np.printoptions(**_settable(np_printoptions)):
            text = fmt.format(*positional, **named)
    else:
        text = " ".join([fmt, *[str(value) for value in positional]])
    if logging_record is None:
        sys.stdout.write(f"{text}\n")
    else:
        record = copy.copy(logging_record)
        record.msg = text
        _log.handle(record)
    return ()


def _settable(options: Any) -> dict[str, Any]:
    return {name: value for name, value in options if name != "override_repr"}


def _type_print(*in_avals: Any, ordered: bool, **params: Any) -> tuple[list[Any], effects.Effects]:
    return [], frozenset({_effect(ordered)})


debug_print_p = Primitive("debug_print", kind=kinds.Effect(_run_print), multiple_results=True)
debug_print_p.def_effectful_abstract_eval(_type_print)
_without_results(debug_print_p)


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """Print ``fmt.format(*args, **kwargs)`` with the values that the arguments have when the program runs.

    Fields and arguments must match, which is checked at once (KeyError, IndexError, or ValueError for an argument that
    no field names) unless ``skip_format_check``; a text without fields is then followed by the positional arguments.
    Without ``fmt``, gives a function of format and arguments: ``debug.print(ordered=True)("{}", x)``. ``partitioned``
    is accepted: there is one device. An f-string would show tracers: pass the values as arguments.

    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.print("x is {x:.2f}", x=x)
    ...     return x * 2
    >>> y = f(3.0).block_until_ready()
    x is 3.00
    """
    options = ordered, partitioned, skip_format_check, _use_logging
    if fmt is None:
        if args or kwargs:
            raise TypeError(f"debug_print received unexpected arguments in the two-call form: {args=} {kwargs=}")

        def with_options(fmt: str, *args: Any, **kwargs: Any) -> None:
            _print(fmt, args, kwargs, *options)

        return with_options
    _print(fmt, args, kwargs, *options)
    return None


def log(
    fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: Any,
) -> Callable[..., None] | None:  # fmt: skip
    """As ``debug.print``, through the logger ``weft.debug`` at level INFO, with the user's file and line.

    >>> weft.debug.log("x is {}", 3)
    """
    return print(
        fmt, *args, ordered=ordered, partitioned=partitioned, skip_format_check=skip_format_check, _use_logging=True,
        **kwargs,
    )  # fmt: skip


def _print(
    fmt: str, args: Any, kwargs: Any, ordered: bool, partitioned: bool, skip_format_check: bool, use_logging: bool
) -> None:
    if not isinstance(fmt, str):
        raise TypeError(f"expected str, got {type(fmt).__name__}")
    if not skip_format_check:
        _CHECKER.format(fmt, *args, **kwargs)
    has_placeholders = any(field is not None for _, field, _, _ in _CHECKER.parse(fmt))
    if kwargs and not has_placeholders:
        raise ValueError(f"[debug.print] {fmt!r} has no fields, so that nothing names the arguments {sorted(kwargs)}")
    values, in_tree, fixed = _split(args, kwargs)
    debug_print_p.bind(
        *values,
        fmt=fmt,
        ordered=ordered,
        partitioned=partitioned,
        in_tree=in_tree,
        static_args=fixed,
        np_printoptions=tuple(np.get_printoptions().items()),
        has_placeholders=has_placeholders,
        logging_record=_logging_record() if use_logging else None,
    )


class _Checker(string.Formatter):
    """Formats nothing; raises KeyError, IndexError or ValueError where fields and arguments do not match."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion not in (None, "s", "r", "a"):
            raise ValueError(f"Unknown conversion specifier {conversion!s}")
        return value

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [value for index, value in enumerate(args) if index not in used_args]
        if unused:
            raise ValueError(f"Unused positional arguments to `weft.debug.print`: {unused}")
        names = [name for name in kwargs if name not in used_args]
        if names:
            raise ValueError(
                f"Unused keyword arguments to `weft.debug.print`: {names}. The format has no field of that name; if it "
                'is an f-string (f"{x}"), write a plain string instead, whose fields are filled when the program runs.'
            )


_CHECKER = _Checker()


def _logging_record() -> logging.LogRecord:
    captured = source_info.capture(3)
    frame = None if captured is None else source_info.resolve(captured[0], captured[1])
    file, line = (frame.file_name, frame.line) if frame else ("(unknown file)", 0)
    return _log.makeRecord(_log.name, logging.INFO, file, line, "", (), None)


# -- breakpoint -------------------------------------------------------------------------------------------------------


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> Any:
    """Stop the program here when it runs, and let the user look at the values of the functions that called.

    A prompt (``help`` lists its commands) evaluates expressions over the variables of the user's frame, traced ones
    with their values of the moment. ``filter_frames`` leaves out weft's own frames, ``num_frames`` bounds their number.
    With ``token``, a tree of arrays, the program stops once these are computed, and the tree is given back. ``stdin``
    and ``stdout`` in ``kwargs`` replace the terminal; without them and without a terminal the program fails with
    RuntimeError as soon as it gets here.

    >>> @weft.jit
    ... def f(x):
    ...     y = x * 2
    ...     weft.debug.breakpoint()
    ...     return y
    """
    if backend not in (None, "cli"):
        raise ValueError(f"[debug.breakpoint] the debugger is 'cli', got backend={backend!r}")
    unknown = sorted(set(kwargs) - {"stdin", "stdout", "completekey"})
    if unknown:
        raise TypeError(
            f"[debug.breakpoint] unknown arguments {unknown}; the debugger takes stdin, stdout, completekey"
        )
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    frames = debugger.frames_from(inspect.currentframe(), filter_frames, num_frames)
    variables = [{name: _told(value) for name, value in frame.variables.items()} for frame in frames]

    def stop(variables: Any) -> None:
        shown = [{n: v.value if type(v) is _Kept else v for n, v in each.items()} for each in variables]
        debugger.run([f.replace(variables=v) for f, v in zip(frames, shown, strict=True)], **kwargs)

    if token is None:
        return callback(stop, variables, ordered=ordered)
    return _stop_at(token, stop, variables)


class _Kept:
    """A variable that holds no traced value: no operand of the callback, but shown as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _told(value: Any) -> Any:
    """The form in which a callback gets a variable: traced values become operands, anything else is passed as it is."""
    try:
        leaves, tree = runtime.tree_flatten(value)
    except (RecursionError, ValueError, TypeError):  # containers that hold themselves, keys that have no order
        return _Kept(value)
    traced = [isinstance(leaf, Tracer) and leaf._trace.valid for leaf in leaves]
    if not any(traced):
        return _Kept(value)
    live = zip(leaves, traced, strict=True)
    return runtime.tree_unflatten(tree, [x if has else repr(x) if isinstance(x, Tracer) else x for x, has in live])


def _stop_at(token: Any, stop: Callable[[Any], None], variables: Any) -> Any:
    """``token`` as it is, once it is computed and the prompt was left."""
    values, in_tree, fixed = _split((variables,), {})

    def pass_on(token: Any, arrays: Any) -> Any:
        stop(_joined(arrays, in_tree, fixed)[0][0])
        return token

    def described(leaf: Any) -> Any:
        aval = avals.get_aval(leaf)
        return runtime.ShapedArray(aval.shape, aval.dtype)

    leaves, tree = runtime.tree_flatten(token)
    kinds_of = runtime.tree_unflatten(tree, [described(leaf) for leaf in leaves])
    return callbacks.pure_callback(pass_on, kinds_of, token, values)


__all__ = [
    "breakpoint", "callback", "inspect_array_sharding", "log", "print", "visualize_array_sharding",
    "visualize_sharding",
]  # fmt: skip
__getattr__ = unbuilt.fallback(__name__)

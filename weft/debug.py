"""Looking at values while a compiled program runs: ``debug.print`` and ``debug.callback``.

Both are effects: they happen once per execution, in program order when ``ordered``, and are never dropped, merged or
reordered with each other. What they get are the values at run time, where a plain ``print`` shows a tracer.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import runtime, unbuilt
from weft.core import avals, effects, kinds
from weft.core.primitive import Primitive
from weft.core.tracer import Tracer

_FORMATTER = string.Formatter()


def _split(args: Any, kwargs: Any) -> tuple[list[Any], Any, tuple[tuple[int, Any], ...]]:
    """The array leaves of a call, the structure of all leaves, and the other leaves with their places."""
    leaves, in_tree = runtime.tree_flatten((args, kwargs))
    fixed = tuple([(i, leaf) for i, leaf in enumerate(leaves) if not (_is_traced(leaf) or avals.is_valid(leaf))])
    places = {place for place, _ in fixed}
    return [leaf for i, leaf in enumerate(leaves) if i not in places], in_tree, fixed


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, Tracer)


def _joined(values: Sequence[Any], in_tree: Any, fixed: tuple[tuple[int, Any], ...]) -> Any:
    """The inverse of ``_split``."""
    leaves = list(values)
    for place, value in fixed:
        leaves.insert(place, value)
    return runtime.tree_unflatten(in_tree, leaves)


def _as_array(value: np.ndarray) -> Any:
    return runtime.array_from_numpy(value, runtime.ShapedArray(value.shape, value.dtype))


# -- callback ---------------------------------------------------------------------------------------------------------


def _run_callback(*values: Any, callback: Callable[..., Any], effect: Any, partitioned: bool) -> tuple[()]:
    callback(*[_as_array(np.asarray(value)) for value in values])
    return ()


def _type_callback(*in_avals: Any, callback: Any, effect: Any, partitioned: bool) -> tuple[list[Any], effects.Effects]:
    return [], frozenset({effect})


debug_callback_p = Primitive("debug_callback", kind=kinds.Effect(_run_callback), multiple_results=True)
debug_callback_p.def_effectful_abstract_eval(_type_callback)
debug_callback_p.jvp = lambda primals, tangents, **params: (debug_callback_p.bind(*primals, **params), [])
debug_callback_p.transpose = None


def callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> None:
    """Call ``callback(*args, **kwargs)`` with the values that the arguments have when the program runs.

    >>> seen = []
    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.callback(lambda v: seen.append(float(v)), x * 2)
    ...     return x
    >>> y = f(3.0).block_until_ready()
    >>> seen
    [6.0]
    """
    if not callable(callback):
        raise TypeError(f"[debug.callback] the first argument must be callable, got {callback!r}")
    values, in_tree, fixed = _split(args, kwargs)

    def flat_callback(*arrays: Any) -> None:
        positional, named = _joined(arrays, in_tree, fixed)
        callback(*positional, **named)

    effect = effects.ordered_debug_effect if ordered else effects.debug_effect
    debug_callback_p.bind(*values, callback=flat_callback, effect=effect, partitioned=partitioned)


# -- print ------------------------------------------------------------------------------------------------------------


def _run_print(
    *values: Any, fmt: str, has_placeholders: bool, in_tree: Any, np_printoptions: Any, static_args: Any, **_: Any
) -> tuple[()]:
    text = fmt
    if has_placeholders:
        positional, named = _joined([_as_array(np.asarray(value)) for value in values], in_tree, static_args)
        with np.printoptions(**_settable(np_printoptions)):
            text = fmt.format(*positional, **named)
    sys.stdout.write(f"{text}\n")
    return ()


def _settable(options: Any) -> dict[str, Any]:
    return {name: value for name, value in options if name != "override_repr"}


def _type_print(*in_avals: Any, ordered: bool, **params: Any) -> tuple[list[Any], effects.Effects]:
    return [], frozenset({effects.ordered_debug_effect if ordered else effects.debug_effect})


debug_print_p = Primitive("debug_print", kind=kinds.Effect(_run_print), multiple_results=True)
debug_print_p.def_effectful_abstract_eval(_type_print)
debug_print_p.jvp = lambda primals, tangents, **params: (debug_print_p.bind(*primals, **params), [])
debug_print_p.transpose = None


def print(fmt: str, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> None:
    """Print ``fmt.format(*args, **kwargs)`` with the values that the arguments have when the program runs.

    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.print("x is {x}", x=x)
    ...     return x * 2
    >>> y = f(3.0).block_until_ready()
    x is 3.0
    """
    if not isinstance(fmt, str):
        raise TypeError(f"[debug.print] expected str, got {type(fmt).__name__}")
    _check_format(fmt, args, kwargs)
    values, in_tree, fixed = _split(args, kwargs)
    debug_print_p.bind(
        *values,
        fmt=fmt,
        ordered=ordered,
        partitioned=partitioned,
        in_tree=in_tree,
        static_args=fixed,
        np_printoptions=tuple(np.get_printoptions().items()),
        has_placeholders=bool(args or kwargs),
        logging_record=None,
    )


def _check_format(fmt: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise KeyError, IndexError or ValueError where fields and arguments do not match, before anything is traced."""
    if not args and not kwargs:
        return
    used: set[Any] = set()
    automatic = 0
    for _, field, _, _ in _FORMATTER.parse(fmt):
        if field is None:
            continue
        name: Any = field.split(".")[0].split("[")[0]
        if name == "":
            name, automatic = automatic, automatic + 1
        elif name.isdigit():
            name = int(name)
        _FORMATTER.get_value(name, args, kwargs)
        used.add(name)
    unused_args = [value for place, value in enumerate(args) if place not in used]
    unused_kwargs = {name: value for name, value in kwargs.items() if name not in used}
    if unused_args:
        raise ValueError(f"Unused positional arguments to `weft.debug.print`: {unused_args}")
    if unused_kwargs:
        raise ValueError(f"Unused keyword arguments to `weft.debug.print`: {unused_kwargs}")


__all__ = ["callback", "print"]
__getattr__ = unbuilt.fallback(__name__)

"""Explains cache misses: why a jitted call had to be traced again, as text in the logger ``weft``.

``report`` compares the key of a call with the nearest earlier key of the same function: argument structure, types by
path, static values, configuration. A trace belongs to a function object: of one made anew it says that others of the
same code were traced before. It also writes the log lines of ``log_compiles``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from weft import config, runtime
from weft._base import lazy
from weft.core.caches.cache_keys import TraceKey
from weft.core.caches.weak_table import WeakTable
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tracing import source_info
from weft.dispatch.calls import signature
from weft.dispatch.calls.miss_causes import Cause
from weft.dispatch.programs import trace_cache

_traced: WeakTable[int] = WeakTable()  # code object -> how many function objects of it were traced


def _logger() -> Any:
    return lazy.logging.getLogger("weft")


def _line() -> str:
    captured = source_info.capture(1)
    if captured is None:
        return "<unknown>"
    frame = source_info.resolve(captured[0], captured[1])
    return f"{frame.file_name}:{frame.line} ({frame.function_name})"


def _defined(function: Any) -> str:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return f"{name} defined at {code.co_filename}:{code.co_firstlineno}" if code is not None else name


def report(
    function: Callable[..., Any],
    record: trace_cache.FunctionRecord,
    key: TraceKey,
    call: signature.Call,
) -> None:
    """Log why the call with ``key`` is traced."""
    lines = [f"TRACING CACHE MISS at {_line()}:"]  # as JAX begins, since tools look for it
    if record.latest_keys():
        lines.append(f"  for {_defined(function)}")
        lines.append("  all previously seen cache keys differ. For the closest previous key:")
    else:
        lines.append(f"  never seen function: {_defined(function)} (id={id(function)})")
    for cause in reasons(function, record, key, call):
        lines += [f"  * {cause.text}", f"    cure: {cause.cure}"]
    _logger().warning("\n".join(lines))


def count_traced(code: Any) -> int:
    """How many function objects of this code were traced before; from now on it is one more."""
    count = 0 if code is None else _traced.get(code) or 0
    if code is not None:
        _traced.set(code, count + 1)
    return count


def late_causes(kept: Any) -> list[Cause]:
    """The causes of a ``history.LateCauses``."""
    function = kept.function()
    if not kept.latest:
        return _of_new(kept.earlier)
    key = TraceKey(None, *kept.call)
    args, kwargs = runtime.tree_unflatten(key.in_tree, list(range(key.in_tree.num_leaves)))
    statics = tuple([(argument, value) for argument, _, value in key.statics])
    call = signature.Call(args, kwargs, statics, kept.count)
    function = function if callable(function) else _stand_in(kept.code)
    latest = [TraceKey(None, *known) for known in kept.latest]
    return min((_differences(function, old, key, call) for old in latest), key=_distance)


def _stand_in(code: Any) -> Any:
    """A function of this code, which gives names to arguments after the function itself is gone."""
    if code is None:
        return None
    return FunctionType(code, {}, closure=tuple([CellType() for _ in code.co_freevars]))


def reasons(
    function: Callable[..., Any],
    record: trace_cache.FunctionRecord,
    key: TraceKey,
    call: signature.Call,
) -> list[Cause]:
    """What differs from the nearest earlier call, or that the function object is new."""
    latest = record.latest_keys()
    if not latest:
        code = code_of(function)
        return _of_new(0 if code is None else _traced.get(code) or 0)
    return min((_differences(function, old, key, call) for old in latest), key=_distance)


def code_of(function: Any) -> Any:
    """The code object of a function, a method or a partial function; None if it has none."""
    function = getattr(function, "__func__", None) or getattr(function, "func", None) or function
    return getattr(function, "__code__", None)


def _of_new(earlier: int) -> list[Cause]:
    """The cause for a function object that was never traced, while ``earlier`` others with the same code were."""
    if not earlier:
        return [Cause("first", "this function was not traced before")]
    others = "another function object" if earlier == 1 else f"{earlier} other function objects"
    were = "was" if earlier == 1 else "were"
    return [Cause("new function", f"{others} of the same code {were} traced before, and this one is new")]


def _distance(differences: list[Cause]) -> tuple[int, int, int]:
    """A distance for sorting: by the number of differences, then extents before ranks or dtypes, then how an argument
    is given before its value."""
    types = sum("different input type" in cause.text for cause in differences)
    return len(differences), types, sum(", given by " not in cause.text for cause in differences)


def _differences(function: Any, old: TraceKey, new: TraceKey, call: signature.Call) -> list[Cause]:
    found: list[Cause] = []
    if old.in_tree != new.in_tree:
        found.append(Cause("structure", f"different input pytree: now {new.in_tree} and before {old.in_tree}"))
    else:
        found += _type_differences(function, old.types, new.types, call)
    found += _static_differences(function, old.statics, new.statics, call)
    if old.token != new.token:
        text = f"different configuration: {config.describe_difference(old.token, new.token)}"
        found.append(Cause("options", text))
    return found


def _type_differences(function: Any, old: Any, new: Any, call: signature.Call) -> list[Cause]:
    if old == new:
        return []
    paths = signature.leaf_paths(function, call)
    return [
        Cause(
            _cause_kind(before, now),
            f"different {_kind(before, now)} at {path}, now {_aval_text(now)} and before {_aval_text(before)}",
        )
        for path, before, now in zip(paths, old, new, strict=True)
        if before is not now
    ]


def _cause_kind(before: Any, now: Any) -> str:
    if before.dtype != now.dtype:
        return "float64" if now.dtype.name in ("float64", "complex128") else "dtype"
    if before.ndim != now.ndim:
        return "rank"
    return "weak type" if before.shape == now.shape else "shape"


def _kind(before: Any, now: Any) -> str:
    if before.dtype != now.dtype or before.ndim != now.ndim:
        return "input type"
    return "weak type" if before.shape == now.shape else "input shape"


def _aval_text(aval: Any) -> str:
    return aval.str_short() + (" (weakly typed)" if aval.weak_type else "")


def _static_differences(function: Any, old: Any, new: Any, call: signature.Call) -> list[Cause]:
    """What differs between the static arguments of two calls, by the user's names, with both values."""
    if old == new:
        return []
    arguments = [argument for argument, _, _ in (*new, *old)]
    count = max([call.count, *(argument + 1 for argument in arguments if isinstance(argument, int))])
    names = signature.argument_names(function, count, [argument for argument in arguments if isinstance(argument, str)])
    before, now = ({names[argument]: (argument, value) for argument, _, value in statics} for statics in (old, new))
    found = []
    for name in dict.fromkeys([*now, *before]):
        kind, sides = "static", (before.get(name), now.get(name))
        was, value = (_static_text(function, name, side) for side in sides)
        if was == value:
            kind, (was, value) = "static form", [_static_text(function, name, side, form=True) for side in sides]
        if was != value:
            found.append(Cause(kind, f"static argument {name}, now {value} and before {was}"))
    return found or [Cause("static", "a static argument whose text is the same as before")]


def _static_text(function: Any, name: str, given: tuple[Any, Any] | None, form: bool = False) -> str:
    """A static argument as text: its value, or that it was left at its default; with ``form`` also how it was given."""
    if given is None:
        return f"left at its default{signature.default_text(function, name)}"
    argument, value = given
    if not form:
        return repr(value)
    how = "by position" if isinstance(argument, int) else "by keyword"
    return f"{value!r} of type {type(value).__name__}, given {how}"


def log_traced(name: str, closed: ClosedJaxpr, elapsed_ms: float) -> None:
    types = ", ".join(aval.str_short() for aval in closed.in_avals)
    _logger().warning(
        "Finished tracing %s for jit in %.9f sec: (%s), %d equations, at %s",
        name, elapsed_ms / 1e3, types, len(closed.eqns), _line(),
    )  # fmt: skip


def log_loaded(name: str, program: Any) -> None:
    types = ", ".join(aval.str_short() for aval in program.in_avals)
    _logger().warning(
        "Finished loading %s from disk in %.3f ms, not compiled: (%s), %d kernels loaded, at %s",
        name, program.stats["milliseconds"]["load"], types, program.kernels_loaded, _line(),
    )  # fmt: skip


def log_reused(name: str, program: Any) -> None:
    _logger().warning("Compiling jit(%s): an equal program was compiled before, as %s", name, program.name)

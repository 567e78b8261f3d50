"""Explains cache misses: why a jitted call had to be traced again, as text in the logger ``weft``.

``report`` compares the key of a call with the nearest earlier key of the same function (argument structure, types
by path, static values, configuration) or, for a new function object, names the value that kept it from sharing an
earlier trace. It also writes the log lines of ``log_compiles``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from weft import config, runtime
from weft._base import lazy
from weft.core import source_info
from weft.core.cache_keys import TraceKey
from weft.core.jaxpr import ClosedJaxpr
from weft.dispatch import code_facts, identity, signature, trace_cache
from weft.dispatch.miss_causes import Cause

_latest: dict[int, tuple[Any, ...]] = {}  # id of a code object -> identity key of its latest trace
_LATEST_LIMIT = 4096


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
    who: identity.Identity | None,
) -> None:
    """Log why the call with ``key`` is traced."""
    lines = [f"TRACING CACHE MISS at {_line()}:"]  # as JAX begins, since tools look for it
    if record.latest_keys():
        lines.append(f"  for {_defined(function)}")
        lines.append("  all previously seen cache keys differ. For the closest previous key:")
    else:
        lines.append(f"  never seen function: {_defined(function)} (id={id(function)})")
    for cause in reasons(function, record, key, call, who):
        lines += [f"  * {cause.text}", f"    cure: {cause.cure}"]
    _logger().warning("\n".join(lines))


def earlier_identity(function: Any, who: identity.Identity | None) -> Any:
    """The identity of the function of the same code that was traced last; from now on it is this one."""
    number = _code_id(function)
    earlier = _latest.get(number)
    if who is not None:
        if len(_latest) >= _LATEST_LIMIT:
            _latest.clear()
        _latest[number] = who.key
    return earlier


def late_causes(kept: Any) -> list[Cause]:
    """The causes of a ``history.LateCauses``."""
    function = kept.function()
    if kept.from_disk:
        return [_FROM_DISK]
    if not kept.latest:
        return _unshared(kept.code, kept.refusal, kept.who, kept.earlier, kept.shares)
    key = TraceKey(None, *kept.call)
    args, kwargs = runtime.tree_unflatten(key.in_tree, list(range(key.in_tree.num_leaves)))
    statics = tuple([(place, value) for place, _, value in key.statics])
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
    who: identity.Identity | None,
) -> list[Cause]:
    """What differs from the nearest earlier call, or why a new function object could not share a trace."""
    latest = record.latest_keys()
    if key in latest:
        return [_FROM_DISK]
    if not latest:
        code = getattr(function, "__code__", None)
        shares = config.read("share_equal_functions")
        identified = None if who is None else who.key
        return _unshared(code, record.refusal, identified, _latest.get(_code_id(function)), shares)
    return min((_differences(function, old, key, call) for old in latest), key=_distance)


def _code_id(function: Any) -> int:
    return id(getattr(function, "__code__", None) or getattr(getattr(function, "func", None), "__code__", None))


_FROM_DISK = Cause("from disk", "its program came from disk, and now its jaxpr is asked for")


def _unshared(code: Any, refusal: Any, who: Any, earlier: Any, shares: bool) -> list[Cause]:
    """Why a new function object of this identity did not share the trace of an earlier one."""
    if not shares:
        return [Cause("sharing off", "sharing between equal functions is off (config.share_equal_functions)")]
    if who is None:
        return [Cause("unshared" if refusal is not None else "first", f"it may not share a trace: {refusal}")]
    if earlier is None:
        return [Cause("first", "no equal function was traced before")]
    found = _identity_differences(code, earlier, who)
    before = "a function of the same code was traced before, but "
    return [Cause(cause.kind, before + cause.text) for cause in found] or [
        Cause("other types", "an equal function was traced before, but not for these argument types")
    ]


def _identity_differences(code: Any, old: Any, new: Any) -> list[Cause]:
    """The values read by the code that differ between two identity keys."""
    if old == new:
        return []
    if code is None or len(old[0]) < 3 or len(new[0]) < 3:
        return [Cause("static", "its arguments differ")]
    found = []
    for read, before, now in zip(code_facts.facts_of(code).reads, old[0][2], new[0][2], strict=False):
        if before != now:
            kind, word = ("closure", "closure variable") if read.is_cell else ("global", "global")
            found.append(Cause(kind, f"the {word} '{read}' is now {_shown(now)} and was {_shown(before)}"))
    return found or [Cause("default", "a default or a static argument differs")]


def _shown(key: Any) -> str:
    """A value's key as text."""
    if isinstance(key, tuple) and len(key) == 2 and key[0] in (bool, int, str, bytes, type(None)):
        return f"{key[1]!r}"
    if isinstance(key, tuple) and len(key) == 2 and key[0] in (float, complex):
        return f"{identity.number_of(key)!r}"
    if isinstance(key, tuple) and key and key[0] == "array":
        return f"the Array at {key[1]:#x}"
    return "another value" if not isinstance(key, tuple) else f"another {getattr(key[0], '__name__', 'function')}"


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
    places = [place for place, _, _ in (*new, *old)]
    count = max([call.count, *(place + 1 for place in places if isinstance(place, int))])
    names = signature.argument_names(function, count, [place for place in places if isinstance(place, str)])
    before, now = ({names[place]: (place, value) for place, _, value in statics} for statics in (old, new))
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
    place, value = given
    if not form:
        return repr(value)
    how = "by position" if isinstance(place, int) else "by keyword"
    return f"{value!r} of type {type(value).__name__}, given {how}"


def log_traced(name: str, closed: ClosedJaxpr, elapsed_ms: float) -> None:
    types = ", ".join(aval.str_short() for aval in closed.in_avals)
    _logger().warning(
        "Finished tracing %s for jit in %.9f sec: (%s), %d equations, at %s",
        name, elapsed_ms / 1e3, types, len(closed.eqns), _line(),
    )  # fmt: skip


def log_loaded(name: str, avals: tuple[Any, ...], n_kernels: int, elapsed_ms: float) -> None:
    types = ", ".join(aval.str_short() for aval in avals)
    _logger().warning(
        "Finished loading %s from disk in %.3f ms, neither traced nor compiled: (%s), %d kernels loaded, at %s",
        name, elapsed_ms, types, n_kernels, _line(),
    )  # fmt: skip


def log_reused(name: str, program: Any) -> None:
    _logger().warning("Compiling jit(%s): an equal program was compiled before, as %s", name, program.name)

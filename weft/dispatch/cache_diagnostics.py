"""Explains cache misses: why a jitted call had to be traced again, as text in the logger ``weft``.

``report`` compares the key of a call with the nearest earlier key of the same function (argument structure, types
by path, static values, configuration) or, for a new function object, names the value that kept it from sharing an
earlier trace. It also writes the log lines of ``log_compiles``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import config
from weft._base import lazy
from weft.core import source_info
from weft.core.cache_keys import TraceKey
from weft.core.jaxpr import ClosedJaxpr
from weft.dispatch import code_facts, identity, signature, trace_cache

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
    lines += [f"  * {reason}" for reason in reasons(function, record, key, call, who)]
    if who is not None:
        if len(_latest) >= _LATEST_LIMIT:
            _latest.clear()
        _latest[_code_id(function)] = who.key
    _logger().warning("\n".join(lines))


def reasons(
    function: Callable[..., Any],
    record: trace_cache.FunctionRecord,
    key: TraceKey,
    call: signature.Call,
    who: identity.Identity | None,
) -> list[str]:
    """What differs from the nearest earlier call, or why a new function object could not share a trace."""
    latest = record.latest_keys()
    if key in latest:
        return ["its program came from disk, and now its jaxpr is asked for"]
    if not latest:
        return _unshared(function, record, who)
    return min((_differences(function, old, key, call) for old in latest), key=_distance)


def _code_id(function: Any) -> int:
    return id(getattr(function, "__code__", None) or getattr(getattr(function, "func", None), "__code__", None))


def _unshared(function: Any, record: trace_cache.FunctionRecord, who: identity.Identity | None) -> list[str]:
    """Why a new function object did not share the trace of an earlier one."""
    if not config.read("share_equal_functions"):
        return ["sharing between equal functions is off (config.share_equal_functions)"]
    if who is None:
        return [f"it may not share a trace: {record.refusal}"]
    earlier = _latest.get(_code_id(function))
    if earlier is None:
        return ["no equal function was traced before"]
    found = _identity_differences(function, earlier, who.key)
    return [f"a function of the same code was traced before, but {text}" for text in found] or [
        "an equal function was traced before, but not for these argument types"
    ]


def _identity_differences(function: Any, old: Any, new: Any) -> list[str]:
    """The values read by the code that differ between two identity keys."""
    if old == new:
        return []
    code = getattr(function, "__code__", None)
    if code is None or len(old[0]) < 3 or len(new[0]) < 3:
        return ["its arguments differ"]
    found = []
    for read, before, now in zip(code_facts.facts_of(code).reads, old[0][2], new[0][2], strict=False):
        if before != now:
            kind = "closure variable" if read.is_cell else "global"
            found.append(f"the {kind} '{read}' is now {_shown(now)} and was {_shown(before)}")
    return found or ["a default or a static argument differs"]


def _shown(key: Any) -> str:
    """A value's key as text."""
    if isinstance(key, tuple) and len(key) == 2 and key[0] in (bool, int, str, bytes, type(None)):
        return f"{key[1]!r}"
    if isinstance(key, tuple) and len(key) == 2 and key[0] in (float, complex):
        return f"{identity.number_of(key)!r}"
    if isinstance(key, tuple) and key and key[0] == "array":
        return f"the Array at {key[1]:#x}"
    return "another value" if not isinstance(key, tuple) else f"another {getattr(key[0], '__name__', 'function')}"


def _distance(differences: list[str]) -> tuple[int, int, int]:
    """A distance for sorting: by the number of differences, then extents before ranks or dtypes, then how an argument
    is given before its value."""
    types = sum("different input type" in text for text in differences)
    return len(differences), types, sum(", given by " not in text for text in differences)


def _differences(function: Any, old: TraceKey, new: TraceKey, call: signature.Call) -> list[str]:
    found: list[str] = []
    if old.in_tree != new.in_tree:
        found.append(f"different input pytree: now {new.in_tree} and before {old.in_tree}")
    else:
        found += _type_differences(function, old.types, new.types, call)
    found += _static_differences(function, old.statics, new.statics, call)
    if old.token != new.token:
        found.append(f"different configuration: {config.describe_difference(old.token, new.token)}")
    return found


def _type_differences(function: Any, old: Any, new: Any, call: signature.Call) -> list[str]:
    if old == new:
        return []
    paths = signature.leaf_paths(function, call)
    return [
        f"different {_kind(before, now)} at {path}, now {_aval_text(now)} and before {_aval_text(before)}"
        for path, before, now in zip(paths, old, new, strict=True)
        if before is not now
    ]


def _kind(before: Any, now: Any) -> str:
    if before.dtype != now.dtype or before.ndim != now.ndim:
        return "input type"
    return "weak type" if before.shape == now.shape else "input shape"


def _aval_text(aval: Any) -> str:
    return aval.str_short() + (" (weakly typed)" if aval.weak_type else "")


def _static_differences(function: Any, old: Any, new: Any, call: signature.Call) -> list[str]:
    """What differs between the static arguments of two calls, by the user's names, with both values."""
    if old == new:
        return []
    places = [place for place, _, _ in (*new, *old)]
    count = max([call.count, *(place + 1 for place in places if isinstance(place, int))])
    names = signature.argument_names(function, count, [place for place in places if isinstance(place, str)])
    before, now = ({names[place]: (place, value) for place, _, value in statics} for statics in (old, new))
    found = []
    for name in dict.fromkeys([*now, *before]):
        was, value = _static_text(function, name, before.get(name)), _static_text(function, name, now.get(name))
        if was == value:
            was, value = (_static_text(function, name, side.get(name), form=True) for side in (before, now))
        if was != value:
            found.append(f"static argument {name}, now {value} and before {was}")
    return found or ["a static argument whose text is the same as before"]


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

"""``weft inspect script.py:function``: runs a script and writes the page of one of its functions.

weft inspect train.py:update                            the script is run as usual; times are those of its calls
weft inspect model.py:loss --types f32[64,10] i32[64]   the script is loaded, the function compiled for these types
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft import runtime
from weft.core.caches.cache_keys import TraceKey
from weft.dispatch.calls import signature
from weft.dispatch.calls.jit import jit
from weft.dispatch.calls.struct import ShapeDtypeStruct
from weft.inspect.profiling import Profile, profile
from weft.inspect.report import Report, of_compiled

_TYPE = re.compile(r"(f|i|u|c|bf)(\d+)\[([\d,]*)\]|(bool)\[([\d,]*)\]")
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}


def run(target: str, types: Sequence[str] | None, arguments: Sequence[str], output: Path | None) -> int:
    """Write the page of ``script.py:function``; gives the exit status."""
    script, _, name = target.rpartition(":")
    if not script or not name or not Path(script).is_file():
        print(f"weft inspect: {target!r} is not SCRIPT.py:FUNCTION with a script that exists", file=sys.stderr)
        return 2
    try:
        report = _loaded(script, name, types) if types is not None else _watched(script, name, arguments)
    except LookupError as error:
        print(f"weft inspect: {error.args[0]}", file=sys.stderr)
        return 1
    target_file = report.save(output)
    for finding in report.findings:
        print(finding)
    print(f"the page of {report.name} is at {target_file.resolve()}")
    return 0


def struct_of(text: str) -> ShapeDtypeStruct:
    """``f32[64,10]`` as a type; LookupError for other text."""
    found = _TYPE.fullmatch(text)
    if found is None:
        raise LookupError(f"{text!r} is no type such as f32[64,10], i32[] or bool[3]")
    kind, bits, shape, is_bool, bool_shape = found.groups()
    dims = tuple([int(n) for n in (bool_shape if is_bool else shape).split(",") if n])
    try:
        return ShapeDtypeStruct(dims, "bool" if is_bool else f"{_NAMES[kind]}{bits}")
    except TypeError as error:
        raise LookupError(f"{text!r}: {error}") from None


def _find(names: dict[str, Any], name: str, script: str) -> Any:
    first, *rest = name.split(".")
    found = names.get(first)
    for part in rest:
        found = getattr(found, part, None)
    if not callable(found):
        known = ", ".join(sorted([n for n, v in names.items() if callable(v) and not n.startswith("_")])[:20])
        raise LookupError(f"{script} has no function {name}; it has {known}")
    return found


def _loaded(script: str, name: str, types: Sequence[str]) -> Report:
    function = _find(_run(script, "__weft__", []), name, script)
    jitted: Any = function if hasattr(function, "cache_info") else jit(function)
    return of_compiled(jitted.lower(*[struct_of(text) for text in types]).compile(), jitted.cache_info())


def _watched(script: str, name: str, arguments: Sequence[str]) -> Report:
    """Run the script under a profile; the function is reported for the types of its latest new call."""
    with profile(every_call=True) as block:
        names = _run(script, "__main__", arguments)
    function = _find(names, name, script)
    if not hasattr(function, "cache_info"):
        raise LookupError(f"{name} is not jitted, so that its calls were not seen: jit it, or give --types f32[3] ...")
    keys = [key for key in function._state.record().latest_keys() if isinstance(key, TraceKey)]
    if not keys:
        raise LookupError(f"{script} does not call {name}: give the types of its arguments, --types f32[3] ...")
    return _of_key(function, keys[0], block.result)


def _of_key(function: Any, key: TraceKey, found: Profile) -> Report:
    structs = [ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in key.types]
    args, kwargs = runtime.tree_unflatten(key.in_tree, structs)
    statics = tuple([(argument, value) for argument, _, value in key.statics])
    count = len(args) + len([argument for argument, _ in statics if isinstance(argument, int)])
    args, kwargs = signature.join_call(statics, count, args, kwargs)
    report = of_compiled(function.lower(*args, **kwargs).compile(), function.cache_info())
    if any(program.key == id(report.program.executable) for program in found.programs):
        report.profile = found
    return report


def _run(script: str, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The globals of a script that has run, with ``sys.argv`` and the path as Python sets them."""
    argv, path = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        return runpy.run_path(script, run_name=name)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise LookupError(f"{script} ended with {end.code!r}") from end
        raise LookupError(f"{script} called sys.exit, which ends it before it can be looked at") from end
    finally:
        sys.argv, sys.path[0] = argv, path

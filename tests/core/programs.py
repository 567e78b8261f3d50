"""A small language of its own for tests of core: a few primitives, and functions recorded from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core
from weft.core import effects, primitive
from weft.core.programs import check
from weft.runtime import ShapedArray

F32 = np.dtype("float32")
I32 = np.dtype("int32")


def aval(*shape: int, dtype: np.dtype = F32, weak_type: bool = False) -> ShapedArray:
    return ShapedArray(shape, dtype, weak_type)


def _primitive(name: str, **settings: Any) -> core.Primitive:
    """A primitive that is not entered into weft's registry."""
    before = dict(primitive.registry)
    made = core.Primitive(name, **settings)
    primitive.registry.clear()
    primitive.registry.update(before)
    return made


def _same(x: Any, *others: Any) -> Any:
    if any(other.shape not in (x.shape, ()) for other in others):
        raise TypeError(f"shapes differ: {x.shape} and {[other.shape for other in others]}")
    return x


neg_p = _primitive("neg")
neg_p.def_abstract_eval(_same)
add_p = _primitive("add")
add_p.def_abstract_eval(_same)
pair_p = _primitive("pair", multiple_results=True)
pair_p.def_abstract_eval(lambda x, **params: (x, x))
print_p = _primitive("show", multiple_results=True)
print_p.def_effectful_abstract_eval(lambda x: ((), {effects.debug_effect}))


def record(fun: Callable[..., Any], *avals: ShapedArray, names: tuple[str, ...] | None = None) -> core.ClosedJaxpr:
    """The program of a function of flat values (one result or a list of them)."""

    def flat(*args: Any) -> list[Any]:
        out = fun(*args)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    code = fun.__code__
    info = core.DebugInfo("jit", f"{fun.__name__} at {code.co_filename}:{code.co_firstlineno}", names)
    closed, _ = core.trace_to_jaxpr(flat, avals, info)
    check.check_jaxpr(closed)
    return closed

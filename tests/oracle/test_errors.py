"""Bad programs: the same class of error as JAX, and the same first sentences, while something is traced."""

from __future__ import annotations

import re
import types

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy
from tests.oracle.differential import error_of
from weft.errors import AxisError, ShapeError

ARRAY = np.arange(3, dtype=np.float32)


def _if(J, x, y):
    if x > 0:
        return x
    return y


def _leak_from_jit(J):
    kept = []

    @J.jit
    def leak(x):
        kept.append(x + 1)
        return x

    leak(1.0)
    return kept[0] + 1


def _leak_into_jit(J):
    kept = []

    @J.jit
    def leak(x):
        kept.append(x + 1)
        return x

    leak(1.0)
    return J.jit(lambda z: z + kept[0])(1.0)


def _closure_condition(J, x):
    @J.jit
    def inner(y):
        return y if x > 0 else 3

    return inner(2.0)


# Traced functions with the arguments, and how many lines of the message are JAX's own.
TRACED = {
    "if": (_if, (1.0, 2.0), 2),
    "range": (lambda J, x, n: list(range(n)), (1, 2), 2),
    "float of two": (lambda J, x, y: float(x * y + 1), (1.0, 2.0), 3),
    "int": (lambda J, x: int(x), (1.0,), 3),
    "complex": (lambda J, x: complex(x), (1.0,), 3),
    "list index": (lambda J, x: [1, 2, 3][x], (1,), 2),
    "float list index": (lambda J, x: [1, 2, 3][x], (1.0,), 1),
    "asarray": (lambda J, x: np.asarray(x), (1,), 2),
    "numpy.sin": (lambda J, x: np.sin(x), (1,), 2),
    "item": (lambda J, x: x.item(), (1,), 3),
    "tolist": (lambda J, x: x.tolist(), (1,), 3),
    "len": (lambda J, x: len(x), (1,), 1),
    "iter": (lambda J, x: list(x), (1,), 1),
    "hash": (lambda J, x: hash(x), (1,), 1),
    "attribute": (lambda J, x: x.foo, (1,), 1),
    "boolean index": (lambda J, x: x[x > 0], (ARRAY,), 1),
    "bool of many": (lambda J, x: bool(x), (ARRAY,), 1),
    "bool of none": (lambda J, x: bool(x), (ARRAY[:0],), 1),
    "float of many": (lambda J, x: float(x), (ARRAY,), 1),
    "format": (lambda J, x: f"{x:.3f}", (ARRAY,), 1),
    "dict of arguments": (lambda J, d, *a, **k: bool(d["a"] + a[1]), ({"a": 1, "b": 2}, 2, 3), 2),
    "arange": (lambda J, n: J.numpy.arange(n), (3,), 3),
    "string result": (lambda J, x: (x, [x, "a"]), (1,), 1),
    "object result": (lambda J, x: {"b": object()}, (1,), 1),
    "string operand": (lambda J, x: x + "a", (1,), 1),
    "block": (lambda J, x: x.block_until_ready(), (ARRAY,), 2),
    "devices": (lambda J, x: x.devices(), (ARRAY,), 3),
    "memoryview": (lambda J, x: memoryview(x), (ARRAY,), 1),
    "closure": (_closure_condition, (1,), 1),
    "argmax axis": (lambda J, x: J.numpy.argmax(x, axis=1), (ARRAY,), 0),
    "argmin axis of a scalar": (lambda J, x: J.numpy.argmin(x, axis=-1), (1.0,), 0),
    "nanargmax axis": (lambda J, x: J.numpy.nanargmax(x, axis=-2), (ARRAY,), 0),
    "argmax axes": (lambda J, x: J.numpy.argmax(x, axis=(0,)), (ARRAY,), 1),
    "argmax axis name": (lambda J, x: J.numpy.argmax(x, axis="a"), (ARRAY,), 1),
    "array_equiv": (lambda J, x: J.numpy.array_equiv(x, np.ones(4, np.float32)), (ARRAY,), 0),
    "float seed": (lambda J, x: J.random.key(x), (1.5,), 1),
    "own error": (lambda J, x: 1 / 0, (1,), 1),
}
CALLED = {
    "leak": (_leak_from_jit, 2),
    "leak into jit": (_leak_into_jit, 2),
    "string argument": (lambda J: J.jit(lambda x: x)("a"), 1),
    "object argument": (lambda J: J.jit(lambda x: x)([1, object()]), 1),
    "dtype object": (lambda J: J.jit(lambda x: x)(np.zeros(3, object)), 0),
    "large int": (lambda J: J.jit(lambda x: x)(2**40), 1),
    "named scope": (lambda J: J.named_scope(3), 1),
    "float seed": (lambda J: J.random.key(1.5), 0),
    "float array seed": (lambda J: J.random.PRNGKey(np.float32(1.5)), 0),
    "option": (lambda J: J.config.update("jax_foo", 1), 1),
}


def _lines(error, n):
    """The first lines of a message without addresses, and with one file name."""
    text = re.sub(r"0x[0-9a-f]+", "0x", str(error))
    return [re.sub(r"jax\.(jit|Array)", r"weft.\1", line).rstrip() for line in text.splitlines()[:n]]


def _class_name(error):
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in LIBRARIES)


LIBRARIES = ("builtins", "jax", "weft")


def _compare(expected, found, n):
    assert expected is not None and found is not None, (expected, found)
    if not (isinstance(found, AxisError | ShapeError) and isinstance(found, type(expected))):  # of both JAX's classes
        assert _class_name(found) == _class_name(expected), (expected, found)
    for ours, theirs in zip(_lines(found, n), _lines(expected, n), strict=True):
        assert ours.startswith(theirs)


@pytest.mark.parametrize("name", TRACED)
def test_while_tracing(name):
    fun, arguments, n = TRACED[name]

    def adapted(J: types.ModuleType):
        return J.jit(_with_signature(fun, J))(*arguments)

    _compare(error_of(jax, adapted), error_of(weft, adapted), n)
    assert weft.jit(lambda x: x + 1)(1) == 2


def _with_signature(fun, J):
    """``fun`` with its first parameter filled, its other parameters under their own names."""
    code = fun.__code__
    names = code.co_varnames[1 : code.co_argcount]
    star = ", *a, **k" if "**" in repr(fun) or code.co_flags & 0x04 else ""
    source = f"def traced({', '.join(names)}{star}): return fun(J, {', '.join(names)}{', *a, **k' if star else ''})"
    scope = {"fun": fun, "J": J}
    exec(compile(source, __file__, "exec"), scope)
    return scope["traced"]


@pytest.mark.parametrize("name", CALLED)
def test_calls(name):
    fun, n = CALLED[name]
    _compare(error_of(jax, fun), error_of(weft, fun), n)
    assert weft.jit(lambda x: x + 1)(1) == 2


def test_error_classes_have_the_bases_of_jax():
    for name in dir(jax.errors):
        theirs = getattr(jax.errors, name)
        if isinstance(theirs, type):
            ours = getattr(weft.errors, name)
            assert [kind.__name__ for kind in ours.__mro__ if "Mixin" not in kind.__name__] == [
                kind.__name__ for kind in theirs.__mro__ if "Mixin" not in kind.__name__
            ]

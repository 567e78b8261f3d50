"""What a traced value can do without a value, and the errors of what it cannot."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

from tests.core.programs import I32, add_p, aval, neg_p, record
from weft import core, errors
from weft.core.tracing import provenance

BOOL = np.dtype(bool)


def during(use, *avals, names=None):
    """What ``use`` gives when called on tracers."""
    found = []

    def f(*args):
        found.append(use(*args))
        return []

    record(f, *avals, names=names)
    return found[0]


def message(use, kind, *avals, names=None):
    with pytest.raises(kind) as caught:
        during(use, *avals, names=names)
    return str(caught.value)


def test_what_follows_from_the_type():
    facts = during(lambda x: (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.itemsize, x.weak_type, len(x)), aval(2, 3))
    assert facts == ((2, 3), np.dtype("float32"), 2, 6, 24, 4, False, 2)
    assert during(repr, aval(2, 3)) == "JitTracer(float32[2,3])"
    assert during(repr, aval(weak_type=True)) == "JitTracer(~float32[])"
    assert during(lambda x: isinstance(x, core.Tracer), aval()) is True
    assert during(lambda x: copy.deepcopy(x) is x and copy.copy(x) is x, aval()) is True
    assert during(lambda x: hasattr(x, "block_until_ready"), aval()) is False


def test_zero_dimensional_arrays_have_no_length():
    assert message(len, TypeError, aval()) == "len() of unsized object"
    assert message(iter, TypeError, aval()) == "iteration over a 0-d array"


def test_unhashable():
    assert message(hash, TypeError, aval()) == "unhashable type: 'DynamicJaxprTracer'"


def test_immutable():
    def use(x):
        x[0] = 1

    assert "x.at[idx].set(y)" in message(use, TypeError, aval(3))


def test_unknown_attribute():
    assert message(lambda x: x.foo, AttributeError, aval()) == "DynamicJaxprTracer has no attribute foo"


def test_truth_value():
    text = message(bool, errors.TracerBoolConversionError, aval(dtype=BOOL), names=("x",))
    lines = text.splitlines()
    assert lines[0] == "Attempted boolean conversion of traced array with shape bool[]."
    assert re.fullmatch(
        r"The error occurred while tracing the function f at .*test_tracer.py:\d+ for jit. This concrete value was not "
        r"available in Python because it depends on the value of the argument x.",
        lines[1],
    )
    assert "weft.numpy.where(" in text and "weft.lax.cond(" in text and "weft.jit(f, static_argnames=('x',))" in text


def test_truth_value_of_many_elements():
    assert "more than one element is ambiguous" in message(bool, ValueError, aval(3))
    assert "empty array is ambiguous" in message(bool, ValueError, aval(0))


def test_the_user_line_is_named():
    def use(x):
        if add_p.bind(x, x):
            return 1

    text = message(use, errors.TracerBoolConversionError, aval(dtype=BOOL), names=("x",))
    assert f"The value was needed at {__file__}:{use.__code__.co_firstlineno + 1} (" in text
    assert "weft.numpy.where(add_p.bind(x, x), if_true, if_false)" in text
    assert "if add_p.bind(x, x):" in text


@pytest.mark.parametrize("kind", [int, float, complex])
def test_python_scalars(kind):
    text = message(kind, errors.ConcretizationTypeError, aval(), names=("x",))
    name = kind.__name__
    assert text.splitlines()[:2] == [
        "Abstract tracer value encountered where concrete value is expected: traced array with shape float32[]",
        f"The problem arose with the `{name}` function. If trying to convert the data type of a value, try using "
        f"`x.astype({name})` or `jnp.array(x, {name})` instead.",
    ]
    assert message(kind, TypeError, aval(3)) == "Only scalar arrays can be converted to Python scalars; got arr.ndim=1"


def test_index():
    text = message(lambda x: [1, 2][x], errors.TracerIntegerConversionError, aval(dtype=I32), names=("n",))
    assert text.startswith("The __index__() method was called on traced array with shape int32[]\n")
    assert "weft.lax.fori_loop(0, n, body, init)" in text
    scalar = "Only integer scalar arrays can be converted to a scalar index."
    assert message(lambda x: [1, 2][x], TypeError, aval()) == scalar
    assert message(lambda x: [1, 2][x], TypeError, aval(3, dtype=I32)) == scalar


def test_numpy():
    text = message(np.asarray, errors.TracerArrayConversionError, aval(3), names=("x",))
    first = "The numpy.ndarray conversion method __array__() was called on traced array with shape float32[3]\n"
    assert text.startswith(first)
    assert "weft.numpy" in text


@pytest.mark.parametrize("method", ["item", "tolist", "tobytes", "devices", "delete", "unsafe_buffer_pointer"])
def test_methods_that_need_a_value(method):
    assert f"{method}() method" in message(lambda x: getattr(x, method)(), errors.ConcretizationTypeError, aval())


def test_pickling():
    assert "serialize/pickle a traced value" in message(pickle.dumps, errors.ConcretizationTypeError, aval())


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda x, y, z: bool(neg_p.bind(y)), "the value of the argument d['b']."),
        (lambda x, y, z: bool(add_p.bind(x, z)), "the values of the arguments d['a'] and k."),
        (lambda x, y, z: bool(add_p.bind(add_p.bind(x, y), z)), "the values of the arguments d['a'], d['b'], and k."),
    ],
)
def test_arguments_behind_a_value(use, sentence):
    names = ("d['a']", "d['b']", "k")
    text = message(use, errors.TracerBoolConversionError, aval(), aval(), aval(), names=names)
    assert f"because it depends on {sentence}" in text


def test_a_value_that_depends_on_no_argument():
    def use():
        value = neg_p.bind(1.0)
        for _ in range(7):
            value = add_p.bind(value, 2.0)
        return bool(value)

    text = message(use, errors.TracerBoolConversionError, names=())
    assert "This value became a tracer due to JAX operations on these lines:" in text
    assert "  operation a:f32[] = neg 1.0:f32[]\n    from line " in text
    assert text.count("  operation ") == 5
    assert "(Additional originating lines are not shown.)" in text


def test_hierarchy():
    assert errors.TracerBoolConversionError.__mro__[1:4:1][0] is errors.ConcretizationTypeError
    for kind in (errors.ConcretizationTypeError, errors.TracerIntegerConversionError, errors.UnexpectedTracerError):
        assert issubclass(kind, TypeError) and issubclass(kind, errors.JAXTypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, IndexError)


def test_boolean_index():
    text = during(lambda x: str(errors.NonConcreteBooleanIndexError(x)), aval(3, dtype=BOOL), names=("mask",))
    assert text.startswith("Array boolean indices must be concrete; got bool[3]\n")


def test_concrete_or_error():
    assert core.concrete_or_error(int, 3.7) == 3
    text = message(
        lambda x: core.concrete_or_error(int, x, "It arose in the jnp.arange argument 'stop'"),
        errors.ConcretizationTypeError,
        aval(dtype=I32),
    )
    assert "It arose in the jnp.arange argument 'stop'" in text


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("if x > 0:", "x > 0"),
        ("elif (x>0).all(): return x", "(x>0).all()"),
        ("while not done and i < n:", "~done & (i < n)"),
        ("assert 0 < x < 1 or y, 'message'", "(0 < x) & (x < 1) | y"),
        ("return x", ""),
        ("if this is no python:", ""),
    ],
)
def test_conditions_as_arrays_need_them(line, condition):
    assert provenance._condition(line) == condition


def test_values_captured_from_an_enclosing_function():
    def outer(x):
        def inner(y):
            bool(add_p.bind(x, 1.0))
            return y

        record(inner, aval(), names=("y",))
        return x

    with pytest.raises(errors.TracerBoolConversionError) as caught:
        record(outer, aval(), names=("x",))
    text = str(caught.value)
    assert "while tracing the function inner at" in text
    assert "The value was captured from the enclosing function outer, where it depends on x." in text
    assert "weft.jit(outer, static_argnames=('x',))" in text

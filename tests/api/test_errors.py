"""The errors of the tutorials: what a user reads who needs a value while tracing, and that the cures work."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors


def test_if_on_an_argument() -> None:
    def f(x):
        if x > 0:
            return x
        return 2 * x

    with pytest.raises(errors.TracerBoolConversionError) as caught:
        weft.jit(f)(10)
    text = str(caught.value)
    assert "Attempted boolean conversion of traced array with shape bool[]" in text
    assert f"while tracing the function f at {__file__}:{f.__code__.co_firstlineno} for jit" in text
    assert "depends on the value of the argument x" in text
    assert f"{__file__}:{f.__code__.co_firstlineno + 1}" in text
    assert "weft.numpy.where" in text
    assert "static_argnames=('x',)" in text
    assert isinstance(caught.value, errors.ConcretizationTypeError)
    assert isinstance(caught.value, TypeError)
    assert weft.jit(f, static_argnums=0)(10) == 10
    assert weft.jit(lambda x: wnp.where(x > 0, x, 2 * x))(-3) == -6


def test_while_on_an_argument() -> None:
    def g(x, n):
        i = 0
        while i < n:
            i += 1
        return x + i

    with pytest.raises(errors.TracerBoolConversionError, match="the argument n"):
        weft.jit(g)(10, 20)
    assert weft.jit(g, static_argnames=["n"])(10, 20) == 30


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: int(x), errors.ConcretizationTypeError),
        (lambda x: float(x), errors.ConcretizationTypeError),
        (lambda x: complex(x), errors.ConcretizationTypeError),
        (lambda x: x.item(), errors.ConcretizationTypeError),
        (lambda x: list(range(x)), errors.TracerIntegerConversionError),
        (lambda x: [1, 2, 3][x], errors.TracerIntegerConversionError),
        (lambda x: np.sin(x), errors.TracerArrayConversionError),
        (lambda x: np.asarray(x), errors.TracerArrayConversionError),
        (lambda x: assert_positive(x), errors.TracerBoolConversionError),
    ],
    ids=lambda value: getattr(value, "__name__", "case"),
)
def test_values_needed_while_tracing(function, error) -> None:
    with pytest.raises(error) as caught:
        weft.jit(function)(1)
    assert type(caught.value) is error
    assert "the argument x" in str(caught.value)


def assert_positive(x):
    assert x > 0
    return x


def test_boolean_mask_of_unknown_size() -> None:
    with pytest.raises(errors.NonConcreteBooleanIndexError):
        weft.jit(lambda x: x[x > 0])(wnp.ones(3))


def test_leaked_values() -> None:
    kept = []

    @weft.jit
    def f(x):
        kept.append(x + 1)
        return x

    f(1.0)
    with pytest.raises(errors.UnexpectedTracerError, match="escape") as caught:
        kept[0] + 1
    assert "test_errors.py" in str(caught.value)
    with pytest.raises(errors.UnexpectedTracerError):
        weft.jit(lambda x: x)(kept[0])
    with weft.checking_leaks(), pytest.raises(Exception, match="Leaked"):
        weft.jit(lambda x: (kept.append(x), x)[1])(1.0)


def test_tracebacks_show_the_users_frames_only() -> None:
    @weft.jit
    def f(x):
        return helper(x)

    def helper(x):
        return wnp.reshape(x, (7, 7))

    with pytest.raises(TypeError) as caught:
        f(wnp.ones(3))
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert files == {__file__}
    assert "[reshape]" in str(caught.value) or "reshape" in str(caught.value)


def test_tracebacks_are_whole_on_request() -> None:
    with weft.config.context("traceback_filtering", "off"), pytest.raises(KeyError) as caught:
        weft.jit(lambda x: {}[1])(1.0)
    files = {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert any("weft" in name and "dispatch" in name for name in files)


def test_the_process_goes_on_after_bad_input() -> None:
    bad = ["s", [[1.0], [1.0, 2.0]], object(), np.array([object()]), {"a": object()}, {1, 2}]
    for value in bad:
        with pytest.raises((TypeError, ValueError)):
            weft.jit(lambda x: x)(value)
            wnp.asarray(value)
            raise TypeError("accepted as a pytree")
    assert weft.jit(lambda x: x + 1)(1.0) == 2.0


def test_running_out_of_memory_names_the_program_and_the_sizes() -> None:
    @weft.jit
    def outer(x):
        return x[:, None] * x

    large = wnp.ones(1 << 20)
    with pytest.raises(weft.errors.OutOfMemoryError) as info:
        outer(large)
    assert isinstance(info.value, (MemoryError, weft.errors.JaxRuntimeError))
    assert isinstance(info.value, RuntimeError)
    assert str(info.value).startswith("RESOURCE_EXHAUSTED: Out of memory: [outer] result 0, f32[1048576,1048576]: ")
    assert "4.0 TiB (4398046511104 bytes) requested" in str(info.value)
    assert "the limit is" in str(info.value)
    with pytest.raises(MemoryError, match="RESOURCE_EXHAUSTED"):
        wnp.ones((1 << 24, 1 << 24))

"""Tracebacks: weft's frames are hidden, or not, as the option says."""

from __future__ import annotations

import traceback

import pytest

import weft
import weft.numpy as wnp
from weft import config
from weft.core.tracing import source_info, tracebacks


def frames(error):
    return [entry.name for entry in traceback.extract_tb(error.__traceback__)]


def internal_frames(error):
    return [e for e in traceback.extract_tb(error.__traceback__) if source_info.is_internal(e.filename)]


def inner(x):
    if x > 0:
        return x
    return -x


@weft.jit
def outer(x):
    return inner(x * 2)


def raised(use):
    try:
        use()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_frames_of_weft_are_removed():
    error = raised(lambda: outer(1.0))
    assert isinstance(error, weft.errors.TracerBoolConversionError)
    assert frames(error)[-2:] == ["outer", "inner"]
    assert internal_frames(error) == []
    assert error.__notes__ == [tracebacks.NOTE]


@pytest.mark.parametrize(("mode", "hidden", "noted"), [("off", False, False), ("quiet_remove_frames", True, False)])
def test_modes(mode, hidden, noted):
    with config.context("traceback_filtering", mode):
        error = raised(lambda: outer(1.0))
    assert (internal_frames(error) == []) is hidden
    assert bool(getattr(error, "__notes__", [])) is noted


def test_hidden_from_debuggers():
    with config.context("traceback_filtering", "tracebackhide"):
        error = raised(lambda: outer(1.0))
    assert internal_frames(error)


def test_the_users_own_errors_keep_their_frames_and_cause():
    @weft.jit
    def f(x):
        try:
            inner(x)
        except TypeError as error:
            raise ValueError("mine") from error

    error = raised(lambda: f(1.0))
    assert isinstance(error, ValueError) and str(error) == "mine"
    assert frames(error)[-1] == "f"
    assert isinstance(error.__cause__, weft.errors.TracerBoolConversionError)
    assert internal_frames(error.__cause__) == []


def test_errors_of_array_operations():
    error = raised(lambda: wnp.ones(3) + wnp.ones(4))
    assert isinstance(error, TypeError)
    assert internal_frames(error) == []


def test_a_boundary_leaves_no_frame_of_its_own():
    @tracebacks.boundary
    def entry():
        raise KeyError("user")

    assert frames(raised(entry)) == ["raised", "entry"]


def test_boundaries_nest():
    @tracebacks.boundary
    def entry(depth):
        if depth == 0:
            raise KeyError
        entry(depth - 1)

    error = raised(lambda: entry(3))
    assert frames(error).count("entry") == 4
    assert error.__notes__ == [tracebacks.NOTE]

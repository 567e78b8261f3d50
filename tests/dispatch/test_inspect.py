"""Looking into a jitted function without running it."""

from __future__ import annotations

import pytest

import weft
import weft.numpy as wnp
from weft import inspect


def test_explain_says_what_a_call_would_do() -> None:
    def f(x, n=1):
        return x * n

    jitted = weft.jit(f, static_argnames="n")
    assert "f would be traced" in inspect.explain(jitted, wnp.ones(3))
    jitted(wnp.ones(3))
    assert "reuses" in inspect.explain(jitted, wnp.ones(3))
    assert "different input shape at x, now f32[4] and before f32[3]" in inspect.explain(jitted, wnp.ones(4))
    assert "static argument n" in inspect.explain(jitted, wnp.ones(3), n=2)
    assert jitted.cache_info().traces == 1
    with pytest.raises(TypeError, match=r"\[explain\] takes a jitted function"):
        inspect.explain(f, wnp.ones(3))


def test_explain_says_that_a_function_object_is_new() -> None:
    def make():
        return weft.jit(lambda x: x * 7)

    first = make()
    first(1.0)
    assert "was traced for these arguments" in inspect.explain(first, 1.0)
    text = inspect.explain(make(), 1.0)
    assert "another function object of the same code was traced before" in text and "jit the function once" in text


def test_report_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    report = inspect.report(lambda x: wnp.sin(x) * 2 + x, weft.ShapeDtypeStruct((8,), wnp.float32))
    assert set(report.forms) == set(inspect.report.__globals__["FORMS"])
    assert all(report.forms.values())
    assert "sin" in str(report)
    page = report.html()
    assert page.startswith("<!doctype html>")
    assert "&lt;lambda&gt;" in page
    inspect.show(lambda x: wnp.cos(x), 1.0, forms=("jaxpr",))
    assert "cos a" in capsys.readouterr().out

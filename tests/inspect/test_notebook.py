"""What notebooks show of programs, compiled functions and counts: HTML with the text in it, escaped."""

from __future__ import annotations

import html.parser
from typing import Any

import pytest

import weft
import weft.numpy as jnp


class Reader(html.parser.HTMLParser):
    """Collects the text, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Any) -> str:
    reader = Reader()
    reader.feed(value._repr_html_())
    reader.close()
    assert not reader.open
    return reader.text


f = weft.jit(lambda x: jnp.sum(jnp.sin(x) ** 2))


def test_programs() -> None:
    x = jnp.ones((3, 4))
    closed = weft.make_jaxpr(f)(x)
    assert str(closed) in shown(closed), "with the < and > of <lambda>"
    assert shown(closed).startswith("jaxpr: 1 equation, 1 argument, 1 result")
    assert str(closed.jaxpr) in shown(closed.jaxpr)
    assert shown(f.trace(x)) == shown(f.trace(x).jaxpr)
    assert "0 equations, 0 arguments, 0 results" in shown(weft.make_jaxpr(lambda: ())())


def test_compiled_functions_and_counts() -> None:
    x = jnp.ones((3, 4))
    f(x)
    compiled = f.lower(x).compile()
    text = shown(compiled)
    assert "argument bytes48" in text and "flops" in text and compiled.as_text("plan").splitlines()[0] in text
    info = shown(f.cache_info())
    assert (f"traces{f.cache_info().traces}" in info and "codegen, ms" in info) or "link, ms" in info


def test_a_long_program_is_cut() -> None:
    def long(x: Any) -> Any:
        for _ in range(2000):
            x = jnp.sin(x)
        return x

    text = shown(weft.make_jaxpr(long)(1.0))
    assert "more characters: print it" in text and len(text) < 25_000


@pytest.mark.parametrize("value", [jnp.arange(3), jnp.float32(1), weft.random.key(0)])
def test_arrays_are_shown_as_text(value: Any) -> None:
    assert repr(value).startswith("Array(") and not hasattr(type(value), "_repr_html_")

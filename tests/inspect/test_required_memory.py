"""What is required of memory holds or raises when a function is compiled: used donations, updates without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

LONG = weft.ShapeDtypeStruct((5000,), jnp.float32)


def compile_donating(f: Any, *args: Any, **options: Any) -> Any:
    return weft.jit(f, donate_argnums=0, **options).lower(*args).compile()


def test_donations_that_are_used_compile_and_run() -> None:
    f = weft.jit(lambda x, y: (x + y, y * 2), donate_argnums=0, donate="require")
    x = jnp.arange(5000.0)
    pointer = x.unsafe_buffer_pointer()
    out, twice = f(x, jnp.ones(5000))
    assert out.unsafe_buffer_pointer() == pointer
    assert x.is_deleted()
    assert float(out[3]) == 4
    assert float(twice[3]) == 2
    decorated = weft.jit(donate_argnames="x", donate="require")(lambda x: x * 2)
    assert float(decorated(x=jnp.ones(5000))[0]) == 2


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: jnp.sum(x), "x f32.5000., 20000 bytes.*no result has its size"),
        (lambda x: jnp.ones(5000), "the program does not read it"),
        (lambda x: (jnp.cumsum(x)[None, ::2], x[::-1]), "donated and cannot be reused"),
    ],
)
def test_donations_that_cannot_be_used_raise(function: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)donate='require': .*{reason}"):
        compile_donating(function, LONG, donate="require")
    f = weft.jit(function, donate_argnums=0, donate="require")
    for _ in range(2):  # nothing of the refusal is remembered
        with pytest.raises(ValueError, match="donate='require'"):
            f(jnp.ones(5000))


def test_the_option_is_checked() -> None:
    with pytest.raises(ValueError, match="'require' or left out, not 'please'"):
        weft.jit(lambda x: x, donate_argnums=0, donate="please")
    with pytest.raises(ValueError, match="needs donate_argnums"):
        weft.jit(lambda x: x, donate="require")
    with pytest.raises(ValueError, match="'require' or left out, not True"):
        weft.jit(lambda x: x.at[0].set(1.0, inplace=True))(jnp.ones(3))


def test_updates_in_place_compile_and_run() -> None:
    f = weft.jit(lambda x, i: x.at[i].set(7.0, inplace="require"), donate_argnums=0)
    x = jnp.zeros(5000)
    pointer = x.unsafe_buffer_pointer()
    out = f(x, 3)
    assert out.unsafe_buffer_pointer() == pointer
    assert float(out[3]) == 7
    assert float(jnp.sum(out)) == 7
    for update in (
        lambda x: x.at[2:9].add(1.0, inplace="require"),
        lambda x: x.at[jnp.array([4, 4, 5])].add(1.0, inplace="require"),
        lambda x: x.at[0].max(3.0, inplace="require").at[1].multiply(2.0, inplace="require"),
    ):
        x = jnp.ones(5000)
        pointer = x.unsafe_buffer_pointer()
        assert weft.jit(update, donate_argnums=0)(x).unsafe_buffer_pointer() == pointer


def test_updates_inside_a_loop() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 10, lambda i, c: c.at[i].set(i * 1.0, inplace="require"), x)

    np.testing.assert_array_equal(weft.jit(f, donate_argnums=0)(jnp.zeros(5000))[:10], np.arange(10.0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.at[i].set(7.0, inplace="require"),  # not donated
        lambda x, i: (x.at[i].set(7.0, inplace="require"), x * 2),
    ],
)
def test_updates_that_copy_raise_with_line_and_reason(function: Any) -> None:
    line = function.__code__.co_firstlineno
    with pytest.raises(
        ValueError, match=rf"(?s)test_required_memory\.py:{line}.*would copy 20000 bytes: .*not donated"
    ):
        weft.jit(function).lower(LONG, 3).compile()
    equal = weft.jit(lambda x, i: x.at[i].set(7.0))(jnp.zeros(5000), 3)  # without the requirement it is a copy
    assert float(equal[3]) == 7
    with pytest.raises(ValueError, match="would copy"):
        weft.jit(function)(jnp.zeros(5000), 3)


def used_after_its_update(x: Any, i: Any) -> Any:
    updated = x.at[i].set(7.0, inplace="require")
    return updated, x[jnp.argmax(updated)]


def test_donated_and_used_later_raises() -> None:
    with pytest.raises(ValueError, match="would copy 20000 bytes"):
        compile_donating(used_after_its_update, LONG, 3)


def test_outside_of_jit_and_whole_array_operations() -> None:
    with pytest.raises(ValueError, match="outside of jit"):
        jnp.ones(3).at[0].set(1.0, inplace="require")
    with pytest.raises(NotImplementedError, match="divide computes the whole array"):
        jnp.ones(3).at[0].divide(2.0, inplace="require")
    with pytest.raises(NotImplementedError, match="power"):
        jnp.ones(3).at[0].power(2.0, inplace="require")

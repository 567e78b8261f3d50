"""A warning names the user's line, however deep in weft it was found."""

import linecache
import warnings
from collections.abc import Callable

import pytest

import weft
import weft.numpy as jnp

CASES: dict[str, Callable[[], object]] = {
    "a dtype": lambda: jnp.zeros(3, "float64"),
    "a dtype under jit": lambda: weft.jit(lambda: jnp.zeros(3, "float64"))(),
    "a cast": lambda: jnp.ones(3, "complex64").astype("float32"),
    "a donation": lambda: weft.jit(lambda x: x[:2], donate_argnums=0)(jnp.ones(10)),
    "an update": lambda: jnp.arange(3).at[0].set(2.5),
    "what is no array": lambda: jnp.shape("text"),
}


@pytest.mark.parametrize("name", CASES)
def test_warnings_name_the_users_line(name: str) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        CASES[name]()
    assert [warning.filename for warning in given] == [__file__]
    assert f'"{name}": ' in linecache.getline(__file__, given[0].lineno)

"""The leak checker raises for traced values that outlive their trace, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
import weft.numpy as jnp
from weft import lax

KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with weft.checking_leaks():
        yield
    KEPT.clear()


class Holder:
    """Refers to something, by however many steps."""

    def __init__(self, held: Any) -> None:
        self.held = held


CLEAN: dict[str, Callable[[], Any]] = {
    "remat": lambda: weft.grad(weft.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(1.0),
    "jit of remat": lambda: weft.jit(weft.grad(weft.checkpoint(lambda x: jnp.sin(jnp.sin(x)))))(1.0),
    "derivative of scan": lambda: weft.grad(lambda x: lax.scan(lambda c, a: (c * a, c), x, jnp.ones(3))[0])(1.0),
    "vmap of jit": lambda: weft.vmap(weft.jit(lambda x: x * 2))(jnp.ones(3)),
    "hessian": lambda: weft.hessian(lambda x: weft.nn.relu(x) * x)(1.0),
    "dropped": lambda: weft.jit(lambda x: (KEPT.append(x), KEPT.clear(), x)[2])(1.0),
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_leaks_nothing_passes(name: str) -> None:
    CLEAN[name]()


@pytest.mark.parametrize("keep", [lambda x: x, lambda x: Holder(Holder({"a": [x]})), lambda x: lambda: x])
@pytest.mark.parametrize("transform", [weft.jit, weft.vmap, weft.checkpoint])
def test_leaks_are_found_through_chains(transform: Any, keep: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception, match="Leaked trace"):
        transform(lambda x: (KEPT.append(keep(x + 1)), x)[1])(jnp.ones(3))


def test_errors_are_not_taken_for_leaks() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    for transform in (weft.jit, weft.vmap, weft.grad):
        with pytest.raises(KeyError, match="mine"):
            transform(fails)(jnp.ones(()) if transform is weft.grad else jnp.ones(2))
    assert weft.jit(lambda x: x + 1)(1.0).item() == 2.0

"""weft.numpy, nn, random, scipy.special and lax print the programs that JAX prints, character for character."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.oracle import differential, jaxpr_cases, jaxpr_cases_indexing, jaxpr_cases_structure

_ROWS = [
    (group.lower(), line.strip())
    for group, text in {**jaxpr_cases.ALL, **jaxpr_cases_structure.ALL, **jaxpr_cases_indexing.ALL}.items()
    for line in text.strip().splitlines()
]  # fmt: skip


def _namespace(J: Any) -> dict[str, Any]:
    return {
        "jnp": J.numpy, "lax": J.lax, "nn": J.nn, "random": J.random, "special": J.scipy.special, "ops": J.ops,
        "np": np, "J": J,
    }  # fmt: skip


def _printed(J: Any, expression: str, types: list[str]) -> str:
    names = ", ".join("xyz"[: len(types)])
    function = eval(f"lambda {names}: {expression}", _namespace(J))
    arguments = [J.random.key(0) if text == "key" else differential.argument(text) for text in types]
    return differential.normalized(str(J.make_jaxpr(function)(*arguments)))


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize(("group", "row"), _ROWS, ids=[f"{group}-{row}" for group, row in _ROWS])
def test_prints_as_jax(group: str, row: str) -> None:
    expression, _, types = row.partition(" |")
    expected = _printed(differential.namespace("jax"), expression, types.split())
    found = _printed(differential.namespace("weft"), expression, types.split())
    assert found == expected, f"\n--- jax\n{expected}\n--- weft\n{found}"


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize(("group", "row"), _ROWS, ids=[f"{group}-{row}" for group, row in _ROWS])
def test_prints_as_jax_with_x64(group: str, row: str) -> None:
    expression, _, types = row.partition(" |")
    jax, weft = differential.namespace("jax"), differential.namespace("weft")
    with jax.enable_x64(True), weft.enable_x64(True):
        try:
            expected = _printed(jax, expression, types.split())
        except TypeError:  # mixed index types, that the default mode takes
            with pytest.raises(TypeError):
                _printed(weft, expression, types.split())
            return
        found = _printed(weft, expression, types.split())
    assert found == expected, f"\n--- jax\n{expected}\n--- weft\n{found}"


def test_the_table_covers_enough() -> None:
    text = "\n".join(row for _, row in _ROWS)
    functions = set(re.findall(r"\b(?:jnp|lax|nn|random|special)\.[a-z]\w+", text))
    assert len(functions) >= 150, len(functions)
    assert len([name for name in functions if name.startswith("jnp.")]) >= 80


def test_namespaces_of_both_systems_have_the_same_names() -> None:
    jax, weft = differential.namespace("jax"), differential.namespace("weft")
    for module in ("numpy", "nn", "random"):
        missing = [
            name
            for name in dir(getattr(jax, module))
            if not name.startswith("_") and name not in ("linalg", "fft", "initializers", "random_gamma_p")
            and not hasattr(getattr(weft, module), name)
        ]  # fmt: skip
        assert missing == [], (module, missing)

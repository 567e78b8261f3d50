"""weft.numpy, nn, random, scipy.special and lax print the programs that JAX prints, character for character.

Programs that docs/JAXPRS.md names are made otherwise: the tables there hold those of the catalogue, and no others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import (
    differential,
    jaxpr_cases,
    jaxpr_cases_indexing,
    jaxpr_cases_options,
    jaxpr_cases_structure,
    jaxpr_cases_transformed,
)

_CATALOGUE = [
    (group.lower(), line.strip())
    for module in (
        jaxpr_cases,
        jaxpr_cases_structure,
        jaxpr_cases_indexing,
        jaxpr_cases_options,
        jaxpr_cases_transformed,
    )
    for group, text in module.ALL.items()
    for line in text.strip().splitlines()
]
_MARK = "differs: "
_ROWS = [(group, row) for group, row in _CATALOGUE if not row.startswith(_MARK)]
_OTHERS = [row.removeprefix(_MARK) for _, row in _CATALOGUE if row.startswith(_MARK)]
_PAGE = Path(__file__).parents[2] / "docs" / "JAXPRS.md"


def _namespace(J: Any) -> dict[str, Any]:
    return {
        "jnp": J.numpy, "lax": J.lax, "nn": J.nn, "random": J.random, "special": J.scipy.special, "ops": J.ops,
        "np": np, "J": J,
    }  # fmt: skip


def _parted(row: str) -> tuple[str, str]:
    """``vmap of jnp.sin(x)`` as transformation and program; no transformation is an empty one."""
    how, found, program = row.partition(" of ")
    return (how, program) if found and how in _TRANSFORMED else ("", row)


def _printed(J: Any, row: str) -> str:
    how, program = _parted(row)
    expression, _, types = program.partition(" |")
    function = eval(f"lambda {', '.join('xyz'[: len(types.split())])}: {expression}", _namespace(J))
    arguments = [J.random.key(0) if text == "key" else differential.argument(text) for text in types.split()]
    if how:
        function, arguments = _TRANSFORMED[how](J, function, arguments)
    return differential.normalized(str(J.make_jaxpr(function)(*arguments)))


def _mapped(J: Any, function: Any, arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The function of two of each array at once."""
    axes = tuple([0 if isinstance(x, np.ndarray) else None for x in arguments])
    return J.vmap(function, axes), [x if axis is None else np.stack([x, x]) for x, axis in zip(arguments, axes)]


def _of_floats(J: Any, function: Any, arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The function as one of its floating arrays alone, that gives its floating results."""
    indices = [i for i, x in enumerate(arguments) if isinstance(x, np.ndarray) and J.numpy.isdtype(x.dtype, _INEXACT)]

    def of_floats(*given: Any) -> list[Any]:
        operands = [*arguments]
        for index, x in zip(indices, given, strict=True):
            operands[index] = x
        return [x for x in J.tree.leaves(function(*operands)) if J.numpy.isdtype(J.numpy.result_type(x), _INEXACT)]

    return of_floats, [arguments[index] for index in indices]


def _pushed(J: Any, function: Any, arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The function's values and tangents."""
    function, primals = _of_floats(J, function, arguments)
    return lambda x, t: J.jvp(function, tuple(x), tuple(t)), [primals, primals]


def _pulled(J: Any, function: Any, arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The function's cotangents."""
    function, primals = _of_floats(J, function, arguments)
    cotangents = [np.ones(x.shape, x.dtype) for x in J.eval_shape(function, *primals)]
    return lambda x, ct: J.vjp(function, *x)[1](ct), [primals, cotangents]


_INEXACT = ("real floating", "complex floating")
_TRANSFORMED = {"vmap": _mapped, "jvp": _pushed, "vjp": _pulled}


def _with_plain_integers(text: str) -> str:
    """A printed program with NumPy's integers as Python's, without white space, which their length shifts."""
    return re.sub(r"\s|,(?=\))", "", re.sub(r"np\.int64\((-?\d+)\)", r"\1", text))


def _same(found: str, expected: str) -> bool:
    if "np.int64(" not in expected:
        return found == expected
    return _with_plain_integers(found) == _with_plain_integers(expected)


def _check_printed(weft: Any, row: str, expected: str) -> None:
    """weft prints ``expected``, with empty caches at the latest.

    The caches' budget may have dropped an inner program that another still names; it is then printed twice.
    """
    if _same(_printed(weft, row), expected):
        return
    weft.clear_caches()
    found = _printed(weft, row)
    assert _same(found, expected), f"\n--- jax\n{expected}\n--- weft\n{found}"


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize(("group", "row"), _ROWS, ids=[f"{group}-{row}" for group, row in _ROWS])
def test_prints_as_jax(group: str, row: str) -> None:
    jax, weft = differential.namespace("jax"), differential.namespace("weft")
    _check_printed(weft, row, _printed(jax, row))


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize(("group", "row"), _ROWS, ids=[f"{group}-{row}" for group, row in _ROWS])
def test_prints_as_jax_with_x64(group: str, row: str) -> None:
    jax, weft = differential.namespace("jax"), differential.namespace("weft")
    with jax.enable_x64(True), weft.enable_x64(True):
        try:
            expected = _printed(jax, row)
        except TypeError:  # mixed index types, that the default mode takes
            with pytest.raises(TypeError):
                _printed(weft, row)
            return
        _check_printed(weft, row, expected)


@pytest.mark.parametrize("row", _OTHERS)
def test_a_program_marked_as_another_is_another(row: str) -> None:
    expected, found = (_printed(differential.namespace(name), row) for name in ("jax", "weft"))
    assert not _same(found, expected), "the mark of this row, and perhaps a line of docs/JAXPRS.md, is to be removed"


def _subject(row: str) -> str:
    """What a row is about: ``jnp.diag``, or ``vmap of lax.cond``, or ``hessian``."""
    how, row = _parted(row)
    function = re.search(r"\b(?:jnp\.linalg|jnp|lax|nn|random|special|ops)\.\w+", row)
    transformation = re.match(r"J\.(\w+)", row)
    parts = [found for found in (how, transformation and transformation[1], function and function[0]) if found]
    return " of ".join(parts)


def test_the_page_names_the_functions_whose_programs_are_others_and_no_more() -> None:
    lines = [line for line in _PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert len(named) == len(set(named))
    assert set(named) == {_subject(row) for row in _OTHERS}


def test_the_table_covers_enough() -> None:
    text = "\n".join(row for _, row in _ROWS)
    functions = set(re.findall(r"\b(?:jnp|lax|nn|random|special)\.[a-z]\w+", text))
    assert len(functions) >= 150, len(functions)
    assert len([name for name in functions if name.startswith("jnp.")]) >= 80
    assert len([row for _, row in _ROWS if _parted(row)[0]]) >= 300


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

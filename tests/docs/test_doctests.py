"""Every example in a docstring runs, with the names a reader would have: weft, jnp, np."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest

import weft
import weft.experimental.pallas
import weft.lax
import weft.nn
import weft.numpy
import weft.random
import weft.scipy.special

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
NAMES: dict[str, Any] = {"weft": weft, "jnp": weft.numpy, "lax": weft.lax, "np": np, "P": weft.P}
NAMES["pallas"] = weft.experimental.pallas


def modules_of_weft() -> list[str]:
    names = (m.name for m in pkgutil.walk_packages(weft.__path__, "weft."))
    return sorted(n for n in names if not n.endswith(("__main__", "_native")))


def test_documented_examples_exist() -> None:
    examples = [t for name in modules_of_weft() for t in examples_of(name)]
    assert len(examples) > 100, "the public functions carry examples"


def examples_of(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(module, name, extraglobs=NAMES)
    for jitted, value in vars(module).items():  # the finder knows functions, not jitted callables
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and getattr(wrapped, "__module__", None) == name and not callable_found(found, jitted):
            found += finder.find(wrapped, f"{name}.{jitted}", module=module, extraglobs=NAMES)
    return [t for t in found if t.examples and not installed_from_elsewhere(module, t)]


def installed_from_elsewhere(module: Any, test: doctest.DocTest) -> bool:
    """A property that another module puts on a class; its example runs where the function stands."""
    value = module
    for part in test.name.removeprefix(module.__name__ + ".").split("."):
        value = inspect.getattr_static(value, part, None)
    getter = getattr(value, "fget", None)
    return getter is not None and getattr(getter, "__module__", None) != module.__name__


def callable_found(found: list[doctest.DocTest], name: str) -> bool:
    return any(t.name.rpartition(".")[2] == name for t in found)


@pytest.mark.every_case
@pytest.mark.parametrize("name", modules_of_weft())
def test_examples(name: str) -> None:
    for test in examples_of(name):
        lines: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        result = runner.run(test, out=lines.append)
        assert not result.failed, f"{test.filename}:{test.lineno} {test.name}\n{''.join(lines)}"

"""The examples in the docstrings of weft.numpy, nn, random and scipy.special."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import weft
import weft.numpy as wnp

MODULES = [
    f"{package}.{info.name}"
    for package in (
        *(f"weft.numpy{room}" for room in ("", ".array_creation", ".linear_algebra", ".pointwise", ".subscripts")),
        *("weft.nn", "weft.random", "weft.scipy"),
    )
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    names = {"weft": weft, "wnp": wnp, "np": np}
    for value in list(vars(module).values()):
        text = getattr(value, "__doc__", None)
        owner = getattr(value, "__module__", None)
        if owner == name and text and ">>>" in text:
            for example in finder.find(
                value, name=getattr(value, "__name__", name), module=False, globs=vars(module) | names
            ):
                runner.run(example)
    assert runner.failures == 0

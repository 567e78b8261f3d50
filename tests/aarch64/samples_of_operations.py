"""Every line of the table of samples as a program: (label, function, operands, whether with 64-bit types)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import weft.lax as lax
from tests.operations import samples

Sample = tuple[str, Callable[..., Any], tuple[Any, ...], bool]


def elementwise() -> Iterator[Sample]:
    """Every elementwise operation on every dtype, on random and special values."""
    for operation in samples.ELEMENTWISE:
        for dtype in operation.dtypes:
            args = tuple([samples.values(operation, dtype, i) for i in range(operation.operands)])
            yield f"{operation.name} of {dtype}", getattr(lax, operation.name), args, True


def others() -> Iterator[Sample]:
    """The calls of all other operations."""
    for name, calls in samples.PROGRAMS.items():
        for number, (function, args) in enumerate(calls):
            yield f"{name}, call {number}", functools.partial(function, lax), args, False

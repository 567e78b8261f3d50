"""The source of kernels that users wrote for ``pallas_call``, found by the lines that their operations come from."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

from weft.control.grid_loop import grid_loop_p
from weft.core.programs.jaxpr import Jaxpr, jaxprs_in_params


def kernel_sources(jaxpr: Jaxpr) -> dict[str, str]:
    """Name and source of each kernel that a program runs on the cells of a grid, at any depth."""
    found: dict[str, str] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is not grid_loop_p:
            for inner in jaxprs_in_params(eqn.params):
                found.update(kernel_sources(inner))
            continue
        name, codes = eqn.params["name"], list(_codes(eqn.params["body"].jaxpr))
        own = [code for code in codes if code.co_name == name] or codes
        if own:
            try:
                found[name] = inspect.getsource(own[0])
            except OSError:  # typed at a prompt
                found[name] = f"{own[0].co_filename}:{own[0].co_firstlineno}"
    return found


def _codes(jaxpr: Jaxpr) -> Iterator[CodeType]:
    """The functions that operations come from, in order, those in inner programs too."""
    for eqn in jaxpr.eqns:
        if eqn.source is not None:
            yield eqn.source[0]
        for inner in jaxprs_in_params(eqn.params):
            yield from _codes(inner)

"""The table of custom kernels (Pallas) on a GPU: the bits of the CPU."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import weft
from tests.gpu import native_build
from tests.gpu.beside_the_cpu import check
from tests.pallas import kernels_blocks, kernels_inside, table

assert kernels_blocks and kernels_inside  # they fill the table
MODULES = table.of_weft()

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.name)
def test_a_kernel(device: Any, case: table.Case) -> None:
    build = functools.partial(case.build, MODULES, functools.partial(MODULES.pl.pallas_call, interpret=False))
    leaves, structure = weft.tree.flatten(case.args)
    check(device, lambda *given: build()(*structure.unflatten(given)), tuple(leaves))

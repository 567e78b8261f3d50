"""Every operation says what its derivative is, or says that it has none."""

from __future__ import annotations

import pytest

import weft.debug
import weft.lax
import weft.random  # noqa: F401 - their operations are in the registry
from weft.core import primitive
from weft.core.primitive import MISSING

# Differentiating these raises NotImplementedError, until their rules are written.
TO_COME = {"cond", "scan", "while"}
STATED = sorted({*primitive.registry} - TO_COME)


@pytest.mark.parametrize("name", STATED)
def test_forward_rule_is_given_or_none(name: str) -> None:
    p = primitive.registry[name]
    ways = [p.jvp is not MISSING, p.partials is not None, p.linear is not None, p.expansion is not None]
    assert sum(ways) == 1, f"{name} states its derivative {sum(ways)} times"


@pytest.mark.parametrize("name", STATED)
def test_backward_rule_is_given_or_none(name: str) -> None:
    p = primitive.registry[name]
    assert p.transpose is not MISSING
    if p.linear is not None and name != "empty":
        assert p.transpose is not None, f"{name} is linear, so that it has a transpose"

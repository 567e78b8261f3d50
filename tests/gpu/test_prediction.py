"""Prototypes that ran on an H100 give the right results in the machine, and its predicted times are those measured."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import native_build, prediction, prototypes
from tests.gpu.ptx_machine import Module

pytestmark = [
    pytest.mark.skipif(native_build.compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.every_case,
]
WITHIN = 0.25


@pytest.mark.parametrize("name", list(prototypes.MEASURED))
def test_a_prototype_computes_what_it_should_with_every_check(name: str) -> None:
    case, measured = prototypes.case(name), prototypes.MEASURED[name]
    module = Module(prototypes.text(name))
    module.launch(prototypes.kernel_name(name), case.blocks, measured.threads, *case.arguments, seed=5)
    got = case.result.read(case.expected.shape, case.expected.dtype)
    if case.relative:
        np.testing.assert_allclose(got, case.expected, rtol=case.relative, atol=case.relative)
    else:
        np.testing.assert_array_equal(got, case.expected)


@pytest.mark.parametrize("name", list(prototypes.MEASURED))
def test_the_predicted_time_is_the_measured_one(name: str) -> None:
    case, measured = prototypes.case(name), prototypes.MEASURED[name]
    predicted = prediction.measured_part(
        Module(prototypes.text(name)),
        prototypes.kernel_name(name),
        measured.blocks,
        measured.threads,
        case.arguments,
        measured.registers,
        case.blocks,
        case.whole,
    )
    time = prediction.LAUNCH + (predicted.time - prediction.LAUNCH) * case.repeats
    assert abs(time / measured.microseconds - 1) < WITHIN, (time, measured, predicted)

"""Modules that others wrote: constants, what is computed while reading, regions, and damaged text."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
import weft.extend.core as core
from weft import config
from weft.stablehlo import parser, reader


def results(text: str, *operands: Any) -> list[np.ndarray]:
    """What weft computes for a module."""
    with config.context("enable_x64", True):
        return [np.asarray(x) for x in core.jaxpr_as_fun(reader.program(text))(*operands)]


def test_integers_keep_all_bits() -> None:
    c, zeros = np.array([2**64 - 1, 1], np.uint64), np.zeros(2, np.uint64)
    with config.context("enable_x64", True):
        text = weft.jit(lambda x: x ^ c).lower(zeros).as_text("stablehlo")
    np.testing.assert_array_equal(results(text, zeros)[0], c)
    np.testing.assert_array_equal(parser.constant("dense<[0xFF, 0x7F, -1]> : tensor<3xi8>"), np.int8([-1, 127, -1]))
    ends = parser.constant("dense<[-9223372036854775808, 9223372036854775807]> : tensor<2xi64>")
    assert ends.tolist() == [-(2**63), 2**63 - 1]

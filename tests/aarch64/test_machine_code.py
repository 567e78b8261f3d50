"""Every sample's kernels are emitted for AArch64, verified, assembled and self-contained; it needs no such machine."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.aarch64 import programs, samples_of_operations
from tests.aarch64.samples_of_operations import Sample
from weft import config
from weft._base import target

AARCH64 = target.named("aarch64")
MACHINE = 183  # EM_AARCH64 of the ELF standard


@pytest.mark.parametrize(
    ("samples", "at_least"), [(samples_of_operations.elementwise, 500), (samples_of_operations.others, 250)]
)
def test_every_sample_becomes_self_contained_code(samples: Callable[[], Iterator[Sample]], at_least: int) -> None:
    seen = set()
    for label, function, args, wide in samples():
        with config.context("enable_x64", wide):
            for nest in programs.nests(programs.traced(function, args), AARCH64):
                if nest in seen:
                    continue
                seen.add(nest)
                made = programs.checked(nest, AARCH64)
                assert struct.unpack_from("<H", made.bytes, 18) == (MACHINE,), label
    assert len(seen) >= at_least

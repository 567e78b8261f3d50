"""An example and programs of the tour on the device of a plugin."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.tour import programs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_mlp.py"


@pytest.fixture
def restored_platforms() -> Iterator[None]:
    """The option ``platforms`` as it was, afterwards."""
    before = weft.config.read("platforms")
    yield
    weft.config.update("platforms", before)


def test_digits_mlp(backend: Any, tmp_path: Path, restored_platforms: None) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    result = main(["--epochs", "3", "--platform", backend.platform, "--plot", str(tmp_path / "loss.png")])
    assert weft.default_backend() == backend.platform and weft.numpy.zeros(1).devices() == {backend.devices()[0]}
    assert result.losses[-1] < 0.5 < 1.0 < result.losses[0] and result.accuracy > 0.9


def test_programs_of_the_tour(backend: Any, restored_platforms: None) -> None:
    weft.config.update("platforms", backend.platform)
    rows = programs.selu_on_a_million()
    assert rows.largest_error < 1e-4
    assert backend.platform in programs.machine() and "stablehlo" in programs.stages_of_a_program().kernel

"""An example and programs of the tour on the device of a plugin."""

from __future__ import annotations

import runpy
import subprocess
import sys
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
    result = main(["--epochs", "3", "--platform", backend.name, "--plot", str(tmp_path / "loss.png")])
    assert weft.default_backend() == backend.name and weft.numpy.zeros(1).devices() == {backend.devices()[0]}
    assert result.losses[-1] < 0.5 < 1.0 < result.losses[0] and result.accuracy > 0.9


def test_platforms_of_the_environment(libraries: list[Path]) -> None:
    """Found at the first use; the import of weft loads no plugin."""
    code = """
import sys
import weft
assert "weft.dispatch.devices.plugins" not in sys.modules
print(weft.numpy.zeros(1).devices() == set(weft.devices("mine")[:1]), weft.default_backend())
"""
    root = str(Path(weft.__file__).parents[1])
    for named in ("WEFT_PLATFORMS", "WEFT_DEFAULT_DEVICE"):
        environment = {"PYTHONPATH": root, "PATH": "", "PJRT_NAMES_AND_LIBRARY_PATHS": f"mine:{libraries[0]}"}
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env={**environment, named: "mine"}, capture_output=True, text=True, timeout=120)
        assert done.stdout.split() == ["True", "mine" if named == "WEFT_PLATFORMS" else "cpu"], done.stderr
        done = subprocess.run(words, env={**environment, named: "other"}, capture_output=True, text=True, timeout=120)
        assert "Unknown backend other. Available backends are ['cpu', 'mine'" in done.stderr


def test_programs_of_the_tour(backend: Any, restored_platforms: None) -> None:
    weft.config.update("platforms", backend.name)
    rows = programs.selu_on_a_million()
    assert rows.largest_error < 1e-4
    assert backend.name in programs.machine() and "stablehlo" in programs.stages_of_a_program().kernel

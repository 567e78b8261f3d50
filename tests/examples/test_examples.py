"""Every program of ``examples/`` runs in a short form and reaches what it promises."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {
        "digits_mlp", "transformer", "ode_fit", "mcmc_walkers",
        "data_parallel", "tensor_parallel", "halo",  # in test_examples_on_meshes
    }  # fmt: skip


def test_digits_mlp(tmp_path: pathlib.Path, capsys: Any) -> None:
    result = example("digits_mlp").main(["--epochs", "40", "--plot", str(tmp_path / "loss.png")])
    assert result.accuracy >= 0.97
    assert result.losses[-1] < 0.05 < result.losses[0]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "held-out accuracy" in capsys.readouterr().out


def test_transformer(tmp_path: pathlib.Path, capsys: Any) -> None:
    text = tmp_path / "verse.txt"
    text.write_text("the rose is red, the violet is blue, and so are you. " * 20)
    result = example("transformer").main(["--text", str(text), "--steps", "60"])
    assert result.losses[0] > 2.5
    assert np.mean(result.losses[-5:]) < 1.0
    assert len(result.text) == 200
    assert set(result.text) <= set(text.read_text())
    short = tmp_path / "short.txt"
    short.write_text("too short")
    with pytest.raises(SystemExit, match="9 characters"):
        example("transformer").main(["--text", str(short)])


def test_ode_fit(tmp_path: pathlib.Path, capsys: Any) -> None:
    module = example("ode_fit")
    result = module.main(["--iterations", "400", "--plot", str(tmp_path / "orbits.png")])
    np.testing.assert_allclose(result.constants, module.TRUE, rtol=0.05)
    assert result.losses[-1] < 0.004
    assert (tmp_path / "orbits.png").exists()


def test_the_derivative_that_ode_fit_descends() -> None:
    module = example("ode_fit")
    at = np.log(module.GUESS)
    measured = np.asarray(module.solve(module.TRUE))[:: module.EVERY]
    gradient = np.asarray(module.weft.grad(module.loss)(at, measured))
    for i in range(4):
        nudge = np.zeros(4, np.float32)
        nudge[i] = 1e-2
        slope = (float(module.loss(at + nudge, measured)) - float(module.loss(at - nudge, measured))) / 2e-2
        np.testing.assert_allclose(gradient[i], slope, rtol=5e-2, atol=1e-3)


def test_mcmc_walkers(capsys: Any) -> None:
    result = example("mcmc_walkers").main(["--samples", "60"])
    assert result.samples.shape == (100, 60, 11)
    assert 0.6 < result.accepted <= 1
    assert result.accuracy > 0.93
    assert result.r_hat.max() < 1.3
    assert np.isfinite(result.samples).all()

"""Libraries written for JAX do real work on weft, unmodified, with the results they have on JAX.

Each program of ``programs`` is run twice as it is: by ``weft run``, and by Python with the real JAX. It is skipped
where its library is not installed: ``pip install weft[test]`` has those of Python alone, ``weft[libraries]`` all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(weft.__file__).parents[1]
LIBRARIES = {
    "blackjax_sampling": "blackjax",
    "brax_physics": "brax",
    "chex_checks": "chex",
    "diffrax_equations": "diffrax",
    "distrax_distributions": "distrax",
    "einops_patches": "einops",
    "equinox_training": "equinox",
    "flax_linen_training": "flax",
    "flax_nnx_training": "flax",
    "haiku_training": "haiku",
    "jaxopt_solvers": "jaxopt",
    "jaxtyping_shapes": "jaxtyping",
    "jraph_networks": "jraph",
    "keras_training": "keras",
    "lineax_systems": "lineax",
    "mjx_physics": "mujoco",
    "numpyro_inference": "numpyro",
    "optax_training": "optax",
    "optimistix_solvers": "optimistix",
    "tfp_substrate": "tensorflow_probability",
}
FEWEST = 8  # programs that run wherever CI does: the extra ``test`` has their libraries
# relative to 1 or to the value, whichever is larger: dozens of float32 steps after one another
TOLERANCE = 1e-4


def test_every_program_is_listed() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} - {"results"} == set(LIBRARIES)


@pytest.mark.oracle
@pytest.mark.skipif("CI" not in os.environ, reason="what is installed is the user's choice outside of CI")
def test_ci_runs_many_of_them() -> None:
    assert sum(importlib.util.find_spec(library) is not None for library in LIBRARIES.values()) >= FEWEST


def results(*command: str) -> dict[str, np.ndarray]:
    """What the program shows, run by Python with these arguments."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "WEFT_CHECK": "0", "WEFT_CACHE": "on"}
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    done = subprocess.run([sys.executable, "-W", "ignore", *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULTS "))
    return {name: np.asarray(value, float) for name, value in json.loads(line.removeprefix("RESULTS ")).items()}


@pytest.mark.every_case
@pytest.mark.oracle
@pytest.mark.parametrize("program", LIBRARIES)
def test_a_library_computes_on_weft_what_it_computes_on_jax(program: str) -> None:
    for needed in (LIBRARIES[program], "jax"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install weft[libraries]")
    script = str(PROGRAMS / f"{program}.py")
    expected, found = results(script), results("-m", "weft", "run", script)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        error = np.abs(found[name] - value) / np.maximum(1, np.abs(value))
        assert np.all(error <= TOLERANCE), f"{name}: {found[name]} on weft, {value} on JAX"

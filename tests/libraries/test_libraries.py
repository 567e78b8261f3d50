"""Libraries written for JAX do real work on weft, unmodified, with the results they have on JAX.

Each program of ``programs`` is run as it is by ``weft run``, and its results are compared with those that the real JAX
had, which are kept in ``results_on_jax.json`` (``--update-golden`` writes them anew). Where they differ, where none are
kept of the JAX that is installed, and where every case of the tests runs, JAX itself runs the program. It is skipped
where its library is not installed: ``pip install weft[test]`` has those of Python alone, ``weft[libraries]`` all.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

PROGRAMS = Path(__file__).parent / "programs"
KEPT = Path(__file__).parent / "results_on_jax.json"
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
    return read(json.loads(line.removeprefix("RESULTS ")))


def read(lists: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, float) for name, value in lists.items()}


def all_kept() -> dict[str, Any]:
    """The results of each program that are kept; none if another JAX than the one installed had them."""
    kept = json.loads(KEPT.read_text())
    return kept["results"] if kept["jax"] == importlib.metadata.version("jax") else {}


def keep(program: str, found: dict[str, np.ndarray]) -> None:
    """Write what JAX computes to the file, a line for each program."""
    kept = {**all_kept(), program: {name: value.tolist() for name, value in found.items()}}
    lines = ",\n".join([f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)])
    version = json.dumps(importlib.metadata.version("jax"))
    KEPT.write_text(f'{{\n"jax": {version},\n"results": {{\n{lines}\n}}\n}}\n')


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str | None:
    """The first result that is not the expected one; None if all are."""
    if found.keys() != expected.keys():
        return f"the results {sorted(found)} for {sorted(expected)}"
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return f"{name} of shape {found[name].shape} for {value.shape}"
        if not np.all(np.abs(found[name] - value) <= TOLERANCE * np.maximum(1, np.abs(value))):
            return f"{name}: {found[name]} on weft, {value} on JAX"
    return None


@pytest.mark.every_case
@pytest.mark.oracle
@pytest.mark.parametrize("program", LIBRARIES)
def test_a_library_computes_on_weft_what_it_computes_on_jax(program: str, request: pytest.FixtureRequest) -> None:
    for needed in (LIBRARIES[program], "jax"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install weft[libraries]")
    script = str(PROGRAMS / f"{program}.py")
    found, kept = results("-m", "weft", "run", script), all_kept().get(program)
    update = bool(request.config.getoption("--update-golden"))
    if kept is None or update or os.environ.get("WEFT_TESTS") == "all" or difference(found, read(kept)):
        on_jax = results(script)
        assert not (error := difference(found, on_jax)), error
        if update:
            keep(program, on_jax)
        elif kept is None or difference(read(kept), on_jax):
            note = f"{KEPT.name} has other results of {program}: pytest tests/libraries --update-golden"
            request.node.user_properties.append(("summary", note))

"""The plugins that these tests run on: those named by WEFT_PJRT_TEST_PLUGINS, or the packages that are installed."""

from __future__ import annotations

import importlib.machinery
import os
from pathlib import Path
from typing import Any

import pytest

import weft

# packages of the index that bring a plugin for the host's processor: xla-cpu-pjrt, lammps-jax-pjrt-cpu
_PACKAGES = {
    "xla_plugins": "xla_cpu_pjrt/xla_cpu_pjrt.so",
    "lammps_jax_pjrt_cpu": "pjrt_c_api_cpu_plugin.so",
}


def plugin_paths() -> list[Path]:
    """The libraries that are there."""
    given = os.environ.get("WEFT_PJRT_TEST_PLUGINS")
    if given is not None:
        return [Path(path) for path in given.split(os.pathsep) if path]
    found: list[Path] = []
    for package, file in _PACKAGES.items():
        spec = importlib.machinery.PathFinder.find_spec(package)
        folders = spec.submodule_search_locations if spec is not None else None
        found += [path for folder in folders or () if (path := Path(folder, file)).exists()]
    return found


@pytest.fixture(scope="session")
def libraries() -> list[Path]:
    """All plugins of this environment; without one the test is skipped."""
    paths = plugin_paths()
    if not paths:
        pytest.skip("no plugin: pip install xla-cpu-pjrt, or set WEFT_PJRT_TEST_PLUGINS to the paths of libraries")
    return paths


@pytest.fixture(scope="session")
def backend(libraries: list[Path]) -> Any:
    """The first plugin, loaded as ``first``."""
    return weft.pjrt.load(libraries[0], "first")


@pytest.fixture(scope="session")
def device(backend: Any) -> Any:
    return backend.devices()[0]


@pytest.fixture(scope="session")
def other(libraries: list[Path], backend: Any) -> Any:
    """A device beside ``device``: of another plugin, or the second one of the same."""
    if len(libraries) > 1:
        return weft.pjrt.load(libraries[1], "second").devices()[0]
    if len(backend.devices()) > 1:
        return backend.devices()[1]
    pytest.skip("one device only")

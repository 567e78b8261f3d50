"""A typed program passes mypy and pyright in strict mode with weft installed as users have it; editors find names."""

from __future__ import annotations

import importlib
import inspect
import json
import pydoc
import rlcompleter
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.numpy as jnp
from docs import stubs
from tests.typing import sample

HERE = Path(__file__).parent
LIMIT = 300  # seconds, of which the checkers need five


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample, and an environment whose installed packages are weft and those of this one."""
    folder = tmp_path_factory.mktemp("typed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True, timeout=LIMIT)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    (packages / "weft").symlink_to(Path(weft.__file__).parent)
    (packages / "more.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "sample.py").write_text((HERE / "sample.py").read_text())
    return folder


def check(project: Path, *command: str | Path) -> None:
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sample_runs() -> None:
    sample.main()


def test_mypy(project: Path) -> None:
    pytest.importorskip("mypy", reason="a checker of its own, in the test extra")
    python = project / "env" / "bin" / "python"
    check(project, sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "sample.py")


def test_pyright(project: Path) -> None:
    pytest.importorskip("pyright", reason="a checker of its own, in the test extra")
    settings = {"typeCheckingMode": "strict", "include": ["sample.py"], "venvPath": ".", "venv": "env"}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    check(project, sys.executable, "-m", "pyright", "-p", project)


def test_the_package_says_that_it_is_typed() -> None:
    folder = Path(weft.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "runtime" / "_native.pyi").exists()


@pytest.mark.parametrize("package", stubs.PACKAGES)
def test_packages_offer_their_names_to_checkers(package: str) -> None:
    """Written again, the stub is the same; it says what importing each name gives."""
    text = stubs.path_of(package).read_text()
    assert text == stubs.stub(package), "stale: run python docs/stubs.py"
    offered: dict[str, Any] = {}
    exec(text, offered)
    module = importlib.import_module(package)
    for name in module._NAMES.modules:
        assert offered[name] is getattr(module, name), name


@pytest.mark.parametrize("module", stubs.MADE)
def test_functions_of_tables_are_known_to_checkers(module: str) -> None:
    """Written again, the stub is the same; it has the names, parameters and defaults of the module."""
    text = stubs.path_of(module).read_text()
    assert text == stubs.stub(module), "stale: run python docs/stubs.py"
    offered: dict[str, Any] = {"__name__": module}
    exec(text, offered)
    functions = {name: value for name, value in vars(importlib.import_module(module)).items() if name[0] != "_"}
    assert functions.keys() == {name for name, value in offered.items() if inspect.isfunction(value)}
    for name, function in functions.items():
        assert inspect.signature(function) == inspect.signature(offered[name], eval_str=True), name


@pytest.mark.parametrize("name", ["sin", "sum", "linspace", "where", "add", "linalg.solve", "fft.fft"])
def test_help(name: str) -> None:
    value = jnp
    for part in name.split("."):
        value = getattr(value, part)
    shown = pydoc.plain(pydoc.render_doc(value))
    assert (inspect.getdoc(value) or "").partition("\n")[0] in shown
    assert str(inspect.signature(value)).count("(") >= 1


def test_dir_and_completion() -> None:
    assert {"sin", "linalg", "float32"} <= set(dir(jnp))
    assert {"jit", "grad", "numpy", "Array", "random"} <= set(dir(weft))
    assert {"lower", "trace", "cache_info"} <= set(dir(weft.jit(jnp.sin)))
    assert {"sum", "at", "T", "block_until_ready"} <= set(dir(jnp.ones(3)))
    completer = rlcompleter.Completer({"weft": weft, "jnp": jnp, "x": jnp.ones(3)})
    assert "jnp.arctanh(" in [completer.complete("jnp.arct", i) for i in range(4)]
    assert "weft.value_and_grad(" in [completer.complete("weft.val", i) for i in range(2)]
    assert "x.block_until_ready(" in [completer.complete("x.block", i) for i in range(2)]

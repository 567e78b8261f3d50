"""Unmodified JAX programs started on weft: by the command, in a program, under pytest, in child processes."""

from __future__ import annotations

import dis
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.launch import followed, names, requests

ROOT = Path(weft.__file__).parents[1]
# pickle.dumps((jnp.arange(3) * 2, jnp.asarray(1.5), jax.tree_util.Partial)) as JAX 0.10.2 writes it, in base 64
PICKLED_BY_JAX = (
    "gASVOAEAAAAAAACMDmpheC5fc3JjLmFycmF5lIwSX3JlY29uc3RydWN0X2FycmF5lJOUKIwWbnVtcHkuX2NvcmUubXVsdGlhcnJh"
    "eZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOUSwCFlEMBYpSHlChLAUsDhZRoBowFZHR5cGWUk5SMAmk0lImI"
    "h5RSlChLA4wBPJROTk5K/////0r/////SwB0lGKJQwwAAAAAAgAAAAQAAACUdJR9lIwJd2Vha190eXBllIlzdJRSlGgCKGgFaAhL"
    "AIWUaAqHlChLASloDowCZjSUiYiHlFKUKEsDaBJOTk5K/////0r/////SwB0lGKJQwQAAMA/lHSUfZRoF4hzdJRSlIwNamF4LnRy"
    "ZWVfdXRpbJSMB1BhcnRpYWyUk5SHlC4="
)


def environment(**extra: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WEFT_AS_JAX")}
    return {**clean, "PYTHONPATH": str(ROOT), "WEFT_CHECK": "0", **extra}


def start(*arguments: str | Path, expect: int = 0, cwd: Path | None = None, **extra: str) -> tuple[str, str]:
    """Standard output and standard error of a Python process."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment(**extra), cwd=cwd
    )
    assert done.returncode == expect, done.stderr
    return done.stdout, done.stderr


PROGRAM = """
import base64, importlib.metadata, importlib.util, inspect, multiprocessing, pickle, subprocess, sys
import jax, jax.numpy as jnp, jaxlib, jax.version, numpy as np
from jax import lax
from jax.sharding import SingleDeviceSharding
import jax.experimental.ode as ode
import weft


def squared(v):
    return type(v).__name__, "weft" in sys.modules and float(np.asarray(jnp.sum(jnp.asarray(v) ** 2)))


def missing(action):
    try:
        action()
    except (ImportError, AttributeError, NotImplementedError) as error:
        print("ERROR", type(error).__name__, error)


def from_import():
    from jax.numpy import nonsuch


def module_import():
    import jax.no_module.inside


if __name__ == "__main__":
    assert jax is weft and jnp is weft.numpy and lax is weft.lax and ode is weft.experimental.ode
    assert SingleDeviceSharding is weft.sharding.SingleDeviceSharding and jax.__spec__.name == "weft"
    names = [name for name in sys.modules if name.startswith("jax")]
    assert all(sys.modules[name].__file__.startswith(sys.argv[1]) for name in names if sys.modules[name].__file__)
    versions = {jax.__version__, jaxlib.__version__, jax.version.__version__, jaxlib.version.__version__}
    versions |= {importlib.metadata.version("jax"), importlib.metadata.version("jaxlib")}
    print("VERSION", *versions, jax.__version_info__)
    assert importlib.util.find_spec("jax.no_module") is None and importlib.util.find_spec("jax.numpy") is not None
    a, b, partial = pickle.loads(base64.b64decode(sys.argv[2]))
    assert isinstance(a, jax.Array) and a.tolist() == [0, 2, 4] and b.weak_type and partial is weft.tree_util.Partial
    assert jax.config.jax_enable_x64 and jnp.arange(2.0).dtype == np.float64
    import jax._src.traceback_util as traceback_util
    from jax._src.tree_util import _registry
    assert dict in _registry and int not in _registry and callable(traceback_util.api_boundary)
    from jax._src.api_util import infer_argnums_and_argnames
    given = inspect.signature(lambda a, b, *, c=0: None)
    assert infer_argnums_and_argnames(given, 1, None) == ((1,), ("b",))
    assert infer_argnums_and_argnames(given, None, "a") == ((0,), ("a",))
    assert infer_argnums_and_argnames(given, (0,), ["c"]) == ((0,), ("c",))
    assert infer_argnums_and_argnames(given, None, None) == ((), ())
    assert callable(jax._src.random.threefry2x32.threefry_2x32)
    assert jax._src.pjit.jit_p is jax.extend.core.primitives.jit_p and jax._src.lax.lax.add_p is lax.add_p
    for kind, value in (("Int", 3), ("Float", -2.5), ("Complex", 1 - 2j)):
        typed = getattr(jax._src.literals, f"Typed{kind}")(value, np.dtype(np.complex64))
        read = jnp.asarray(typed, dtype=typed.dtype)
        assert not isinstance(value, type(typed)) and read.dtype == typed.dtype == "c8" and read == value
    assert [jax._src.dtypes.to_complex_dtype(d) for d in ("f4", "f8", "i4")] == ["c8", "c16", "c8"]
    jax._src.public_test_util.check_close({"a": np.float32([1])}, {"a": np.float64([1 + 1e-8])})
    try:
        jax._src.public_test_util.check_close([np.float32([1])], [np.float64([1 + 1e-4])])
    except AssertionError:
        print("FAR")
    assert not hasattr(jax, "nonsuch")
    missing(from_import)
    missing(module_import)
    missing(lambda: jnp.nonsuch)
    missing(lambda: jax.nn.get_scaled_dot_general_config())
    child = "import sys; assert 'weft' not in sys.modules; import jax, weft; print('CHILD', jax is weft)"
    print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("SPAWNED", pool.apply(squared, (jnp.arange(3.0),)))
    print("ARGV", sys.argv[3:])
"""


def test_a_program_is_started_as_python_starts_it(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    package = str(Path(weft.__file__).parent)
    out, err = start(
        "-m", "weft", "run", "--missing", script, package, PICKLED_BY_JAX, "--flag", "-m", "x",
        cwd=tmp_path, JAX_ENABLE_X64="1",
    )  # fmt: skip
    assert "VERSION 0.10.2 (0, 10, 2)" in out and "ARGV ['--flag', '-m', 'x']" in out
    assert "FAR" in out
    assert "CHILD True" in out and "SPAWNED ('ArrayImpl', 5.0)" in out.replace("'Array'", "'ArrayImpl'")
    errors = [line for line in out.splitlines() if line.startswith("ERROR")]
    where = re.escape(f"__main__, {script}:")
    wanted = [
        rf"ERROR ImportError weft has no jax\.numpy\.nonsuch \(asked for by {where}\d+\)",
        rf"ERROR ModuleNotFoundError weft has no module jax\.no_module \(asked for by {where}\d+\)",
        rf"ERROR AttributeError weft has no jax\.numpy\.nonsuch \(asked for by {where}\d+\)",
        rf"ERROR NotImplementedError weft\.nn\.get_scaled_dot_general_config is not .*\(asked for by {where}\d+\)",
    ]
    assert [bool(re.fullmatch(*pair)) for pair in zip(wanted, errors, strict=True)] == [True] * 4, errors
    assert "4 names of JAX that weft lacks" in err
    assert re.findall(r"^  (\S+)  \((\w+): __main__", err, re.M) == [
        ("jax.nn.get_scaled_dot_general_config", "call"), ("jax.no_module", "import"), ("jax.nonsuch", "attribute"),
        ("jax.numpy.nonsuch", "attribute"), ("jax.numpy.nonsuch", "import"),
    ]  # fmt: skip


def test_modules_and_code_are_run_too_and_a_hidden_sitecustomize_still_is(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('CUSTOM')")
    (tmp_path / "inside.py").write_text("import jax, sys; print(jax.__name__, sys.argv[1:])")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    out, err = start("-m", "weft.run", "--missing", "-m", "inside", "a", cwd=tmp_path, PYTHONPATH=path)
    assert out.split("\n")[:2] == ["CUSTOM", "CUSTOM"] or out.startswith("CUSTOM"), out
    assert "weft ['a']" in out and "every name of JAX that was asked for exists" in err
    out, _ = start("-m", "weft", "run", "-c", "import sys; sys.exit(3)", expect=3)
    _, err = start("-m", "weft", "run", "-I", "x.py", expect=2)
    assert "-I" in err
    assert "usage: weft run" in start("-m", "weft", "run", "--help")[0]


IN_A_PROGRAM = """
import sys, types
import weft
before = list(sys.meta_path), weft.__version__
sys.modules["jax"] = types.ModuleType("jax")
sys.modules["jax"].__file__ = "/elsewhere/jax/__init__.py"
try:
    weft.install_as_jax()
except ImportError as error:
    print("REFUSED", error)
assert before == (list(sys.meta_path), weft.__version__)
del sys.modules["jax"]
weft.load_ipython_extension(None)
weft.install_as_jax()
import jax
assert jax is weft and sum(type(finder).__name__ == "JaxFinder" for finder in sys.meta_path) == 1
"""


def test_a_program_that_has_imported_jax_is_refused() -> None:
    out, _ = start("-c", IN_A_PROGRAM)
    assert "the real jax (/elsewhere/jax/__init__.py) was already imported" in out and "weft run" in out


def test_pytest_runs_tests_of_jax_on_weft(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import jax, weft, pytest\ndef test_same():\n    assert jax is weft\n"
        "def test_missing():\n    with pytest.raises(AttributeError):\n        jax.nonsuch\n"
    )
    out, _ = start("-m", "pytest", "-p", "weft.pytest_as_jax", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "2 passed" in out and "weft stands in for it" in out
    assert "jax.nonsuch  (attribute: test_it" in out


def test_which_module_stands_for_which() -> None:
    assert names.counterpart("jax.scipy.linalg") == "weft.scipy.linalg"
    assert names.counterpart("jax.runtime") is None  # an internal of weft that happens to bear a name like JAX's
    assert names.counterpart("jax.nonsuch") is None and names.counterpart("numpy") is None
    assert names.counterpart("jaxlib.version") == followed.__name__ and not names.is_jax("jaxopt.linear_solve")


def test_the_listing_is_in_alphabetical_order() -> None:
    asked = [requests.Request(name, "attribute", "library", "file.py", 3) for name in ("jax.b", "jax.a")]
    assert requests.listing(asked).splitlines()[1:] == [
        f"  jax.{name}  (attribute: library, file.py:3)" for name in "ab"
    ]


def test_an_instruction_that_dis_does_not_name_asks_for_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of Python may import by other instructions."""
    code = compile("from m import n\nm.n", "file.py", "exec")
    asking = [step for step in dis.get_instructions(code) if step.opname in ("IMPORT_FROM", "LOAD_ATTR")]
    frames: Any = [SimpleNamespace(f_code=code, f_lasti=step.offset) for step in asking]
    assert [requests.is_from_import(frame) for frame in frames] == [True, False]
    monkeypatch.setattr(dis, "get_instructions", lambda code: [step._replace(opname="<250>") for step in asking])
    assert not any(map(requests.is_from_import, frames))


EXPORTING = """
import sys

import jax
import numpy as np
from jax import export

exported = export.export(jax.jit(lambda x: jax.numpy.sin(x) * 2))(jax.ShapeDtypeStruct((3,), "float32"))
blob = exported.serialize(vjp_order=1)
assert export.deserialize(blob).call(np.ones(3, np.float32)).shape == (3,)
open(sys.argv[1], "wb").write(blob)
print(jax.__name__, sys.modules["jaxlib"].__name__)
"""


def test_files_written_where_weft_stands_in_for_jax_are_read_by_jax(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax", reason="it reads the file")
    script, file = tmp_path / "exporting.py", tmp_path / "exported"
    script.write_text(EXPORTING)
    out, _ = start("-m", "weft", "run", script, file, cwd=tmp_path)
    assert out.split() == ["weft", "weft.launch.jaxlib"]
    found = jax.export.deserialize(file.read_bytes()).call(np.ones(3, np.float32))
    np.testing.assert_allclose(found, 2 * np.sin(np.ones(3)), rtol=1e-6)

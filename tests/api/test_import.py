"""What importing weft costs and offers: lightness, every documented name, the command line."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from docs import unbuilt
from weft import operations
from weft._base import cli
from weft.core import Primitive


def in_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_no_heavy_library() -> None:
    heavy = ["llvmlite", "scipy", "opt_einsum", "rich", "matplotlib", "jax", "weft.compiler", "weft.codegen"]
    heavy += ["dataclasses", "difflib", "hashlib", "logging"]  # of the standard library, and not loaded by NumPy
    heavy += [
        "weft.operations.pointwise.special",
        "weft.control.scan",
        "weft.batching.vmap",
        "weft.batching.batch_trace",
    ]
    heavy += [
        "weft.autodiff.gradients",
        "weft.autodiff.custom_jvp",
        "weft.numpy.sets",
        "weft.numpy.pointwise.ufuncs",
        "weft.lax",
    ]
    loaded = json.loads(in_fresh_process("import weft, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in heavy if name in loaded] == []
    loaded = json.loads(in_fresh_process("import weft.numpy, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in heavy if name in loaded] == []


def test_import_loads_few_modules_of_numpy_and_the_standard_library() -> None:
    # what finds weft where it is installed in place loads importlib.util
    before = "import sys, importlib.util, numpy, ml_dtypes"
    count = f"{before}; old = set(sys.modules); import weft.numpy; new = set(sys.modules) - old"
    others = in_fresh_process(f"{count}; print(*[name for name in new if name.split('.')[0] != 'weft'])").split()
    assert set(others) <= {"__future__", "atexit", "gc", "threading"}
    assert (
        int(in_fresh_process(f"{count}; print(len(new))")) <= 125
    )  # each costs a quarter of a millisecond, an empty room 0.06


LAZY = {"weft": Path(weft.__file__), "weft.numpy": Path(jnp.__file__), "weft.operations": Path(operations.__file__)}
for _name in ("nn", "random", "scipy.linalg", "experimental.sparse"):
    LAZY[f"weft.{_name}"] = Path(weft.__file__).parent.joinpath(*_name.split("."), "__init__.py")


def test_operations_loaded_later_are_those_type_checkers_see() -> None:
    """The stubs of other packages are written from their tables: tests/typing."""
    blocks = [node for node in ast.parse(LAZY["weft.operations"].read_text()).body if isinstance(node, ast.If)]
    nodes = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {
        name: node.module
        for node in nodes
        for alias in node.names
        for name in (importlib.import_module(node.module or "").__all__ if alias.name == "*" else [alias.name])
    }
    assert operations._NAMES.modules == seen


@pytest.mark.parametrize("package", LAZY)
def test_names_loaded_later_are_no_modules_of_their_package(package: str) -> None:
    folder, names = LAZY[package].parent, importlib.import_module(package)._NAMES.modules
    assert [name for name in names if (folder / f"{name}.py").exists() or (folder / name).exists()] == []


@pytest.mark.parametrize("package", LAZY)
def test_names_loaded_later_are_found_in_every_way(package: str) -> None:
    module = importlib.import_module(package)
    code = (
        f"import sys; names = {{}}; exec('from {package} import *', names); m = sys.modules[{package!r}]; "
        "print(all(names[n] is getattr(m, n) is vars(m)[n] for n in m._NAMES.modules), '__all__' in names)"
    )
    assert in_fresh_process(code).split() == ["True", "False"]
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense
    assert not hasattr(module, "nonsense")


def test_methods_loaded_later_stand_in_the_class_once_asked_for() -> None:
    code = (
        "import sys, inspect, weft.numpy as jnp; x = jnp.ones((2, 3)); kind = type(x); "
        "print('weft.numpy.sorting' in sys.modules, 'argsort' in dir(x), inspect.isfunction(vars(kind)['argsort'])); "
        "x.argsort(); print('weft.numpy.sorting' in sys.modules, inspect.isfunction(vars(kind)['argsort'])); "
        "print(x.T.shape, isinstance(vars(kind)['T'], property), kind.mean.__name__, x[1:].shape, x.at[0].set(7).sum())"
    )
    assert in_fresh_process(code).split("\n")[:3] == [
        "False True False", "True True", "(3, 2) True mean (1, 3) 24.0",
    ]  # fmt: skip


SCAN = (
    "import weft; from weft.control.scan import scan; "
    "f = lambda x: scan(lambda c, _: (c * x, None), x, None, length=2)[0]; "
)
DIFFERENTIATED = {
    "weft.grad(f)(2.0)": 12.0, "weft.value_and_grad(f)(2.0)[1]": 12.0, "weft.jvp(f, (2.0,), (1.0,))[1]": 12.0,
    "weft.linearize(f, 2.0)[1](1.0)": 12.0, "weft.vjp(f, 2.0)[1](1.0)[0]": 12.0, "weft.jacfwd(f)(2.0)": 12.0,
    "weft.jacrev(f)(2.0)": 12.0, "weft.hessian(f)(2.0)": 12.0, "weft.grad(weft.checkpoint(f))(2.0)": 12.0,
    "weft.grad(weft.jit(f))(2.0)": 12.0,
    "weft.linear_transpose(lambda x: scan(lambda c, _: (c * 2, None), x, None, length=2)[0], 1.0)(1.0)[0]": 4.0,
}  # fmt: skip


@pytest.mark.parametrize("expression", DIFFERENTIATED)
def test_loops_have_derivatives_whoever_asks_first(expression: str) -> None:
    assert float(in_fresh_process(f"{SCAN}print(float({expression}))")) == DIFFERENTIATED[expression]


# What stands for a method until its module is loaded takes what the method takes, keywords too.
WITH_KEYWORDS = (
    "x.__array_namespace__(api_version='2024.12').sum(x)", "x.__round__(ndigits=0)[1, 0]",
    "x.__getitem__((1, 2))", "x.__matmul__(x.T)[0, 0]", "x.__neg__()[0, 1]",
    "x.astype(dtype='int32')[1, 2]", "x.clip(min=1, max=3)[0, 0]",
    "x.compress(condition=x[:, 0] > 1, axis=0, size=1).sum()",
    "x.dot(b=x.T)[0, 0]", "x.flatten(order='F')[1]", "x.reshape((3, 2), order='F')[0, 1]", "x.std(axis=1, ddof=1)[0]",
    "x.trace(offset=1)", "x.transpose(1, 0)[2, 1]", "x.var(axis=0, keepdims=True)[0, 0]", "x.view(dtype='int32')[0, 0]",
    "x[0].searchsorted(v=1.5, side='right')", "x.diagonal(offset=1)[0]", "x.ravel(order='F')[1]",
    "x[None].squeeze(axis=0)[0, 1]", "x.swapaxes(axis1=0, axis2=1)[1, 0]", "x.all(axis=None, keepdims=True)[0, 0]",
    "x.argmax(axis=1, keepdims=True)[0, 0]", "x.cumsum(axis=1, dtype='float32')[1, 2]",
    "x.max(axis=0, initial=1, keepdims=True)[0, 0]", "x.prod(axis=1, where=x > 0)[0]",
    "x.sum(axis=0, keepdims=True)[0, 1]",
    "x.round(decimals=1)[0, 1]", "x.conj()[0, 1]", "x.argpartition(kth=1, axis=1)[0, 0]",
    "x.argsort(axis=1, descending=True)[0, 0]", "x.sort(axis=1, descending=True)[0, 0]",
    "x.mean(axis=1, keepdims=True)[0, 0]", "x.repeat(repeats=2, axis=0)[1, 1]",
    "x.take(indices=1, axis=1, mode='clip')[0]",
    "x.at[0].set(7.0, mode='drop').sum()",
)  # fmt: skip


@pytest.mark.parametrize("first", [0, 1, 27])
def test_methods_loaded_later_take_keywords_at_their_first_use_in_a_trace(first: int) -> None:
    """In a fresh process, the one numbered ``first`` before all others."""
    calls = [WITH_KEYWORDS[first], *WITH_KEYWORDS]
    listed = ", ".join(f"lambda x: {text}" for text in calls)
    code = (
        "import weft, numpy as np; x = weft.device_put(np.float32([[0, 1, 2], [3, 4, 5]])); "
        f"print([float(weft.jit(f)(x)) for f in [{listed}]])"
    )
    x = jnp.asarray(np.float32([[0, 1, 2], [3, 4, 5]]))
    expected = [float(eval(text, {"x": x})) for text in calls]
    assert eval(in_fresh_process(code)) == pytest.approx(expected)


def test_operators_work_after_import_weft_alone() -> None:
    code = (
        "import weft; x = weft.device_put(2.0); "
        "print(float(x + 1), float(3 - x), float(weft.jit(lambda y: y.T * 2)(x)))"
    )
    assert in_fresh_process(code).split() == ["3.0", "1.0", "4.0"]


def test_numpy_ma_is_not_loaded_to_ask_whether_an_array_is_masked() -> None:
    code = (
        "import sys, numpy as np, weft, weft.numpy as jnp; x = np.ones(3); weft.jit(lambda x: x + 1)(x); "
        "jnp.asarray(x); print('numpy.ma' in sys.modules)"
    )
    assert in_fresh_process(code).split() == ["False"]


DOCUMENTED = sorted({*unbuilt.FUNCTIONS["weft"].split(), *unbuilt.CLASSES["weft"].split()})


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_name_exists(name: str) -> None:
    assert getattr(weft, name) is not None


def test_names_not_built_raise_naming_themselves() -> None:
    for module, name in ((weft.profiler, "start_server"), (weft.nn, "get_scaled_dot_general_config")):
        with pytest.raises(NotImplementedError, match=name):
            getattr(module, name)(lambda x: x)
    with pytest.raises(AttributeError, match="nonsense"):
        weft.nonsense
    assert not hasattr(weft, "nonsense")


def test_primitives_have_their_public_names() -> None:
    names = unbuilt.PRIMITIVES["weft.lax"].split()
    built = [name for name in names if isinstance(getattr(weft.lax, name), Primitive)]
    assert len(built) > 100
    stubs = {name: getattr(weft.lax, name) for name in names if name not in built}
    for name, stub in stubs.items():
        with pytest.raises(NotImplementedError, match=rf"weft\.lax\.{name} is not built"):
            stub.bind(1.0)
        with pytest.raises(NotImplementedError, match=rf"weft\.lax\.{name} is not built"):
            stub.def_impl
        assert {stub: 1}[getattr(weft.lax, name)] == 1
    with pytest.raises(AttributeError, match="nonsense_p"):
        weft.lax.nonsense_p


@pytest.mark.oracle
def test_primitives_are_called_as_in_jax() -> None:
    jax_lax = importlib.import_module("jax.lax")
    assert {name for name in dir(jax_lax) if name.endswith("_p")} == set(unbuilt.PRIMITIVES["weft.lax"].split())
    for name in unbuilt.PRIMITIVES["weft.lax"].split():
        ours = getattr(weft.lax, name)
        if isinstance(ours, Primitive):
            assert ours.name == getattr(jax_lax, name).name


def test_modules_not_built_import_and_raise_when_used() -> None:
    colocated = importlib.import_module("weft.experimental.colocated_python")
    with pytest.raises(NotImplementedError, match=r"weft\.experimental\.colocated_python\.colocated_cpu_devices"):
        colocated.colocated_cpu_devices()
    with pytest.raises(NotImplementedError, match=r"weft\.profiler\.start_server"):
        weft.profiler.start_server(9999)
    with weft.profiler.StepTraceAnnotation("step", step_num=1), pytest.raises(TypeError, match="named by a string"):
        weft.profiler.TraceAnnotation(3)  # type: ignore[arg-type]
    assert weft.profiler.annotate_function(divmod, name="parts")(7, 2) == (3, 1)
    with pytest.raises(ImportError):
        importlib.import_module("weft.nonsense")


def test_all_documented_modules_import() -> None:
    for name in sorted({*unbuilt.FUNCTIONS, *unbuilt.CLASSES, *unbuilt.EMPTY_MODULES.split()}):
        module = importlib.import_module(name)
        for public in unbuilt.FUNCTIONS.get(name, "").split():
            assert callable(getattr(module, public)), f"{name}.{public}"
        for public in unbuilt.CLASSES.get(name, "").split():
            assert getattr(module, public) is not None, f"{name}.{public}"


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_documented_names_are_jaxs() -> None:
    """What docs/unbuilt.py lists exists in JAX, in a module (or, of the policies, a namespace) of that name."""
    for table in (unbuilt.FUNCTIONS, unbuilt.CLASSES, unbuilt.PRIMITIVES):
        for module, names in table.items():
            _, *parts = module.split(".")
            policies = parts == ["checkpoint_policies"]
            theirs = importlib.import_module("jax" if policies else ".".join(["jax", *parts]))
            theirs = theirs.checkpoint_policies if policies else theirs
            assert not [name for name in names.split() if not hasattr(theirs, name)], module


def test_the_table_of_names_that_are_not_built_is_fresh() -> None:
    """In a process of its own, where no test has loaded a module or given one a name."""
    code = "from docs import unbuilt; print(unbuilt.table() == unbuilt.TARGET.read_text(encoding='utf-8'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=unbuilt.TARGET.parents[2]
    )
    assert done.stdout == "True\n", "stale: run python docs/unbuilt.py"


def test_environment_report(capsys: pytest.CaptureFixture[str]) -> None:
    text = weft.print_environment_info(return_string=True)
    assert text is not None
    assert "python:" in text
    assert "numpy:" in text
    weft.print_environment_info()
    assert capsys.readouterr().out == text + "\n"


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    assert capsys.readouterr().out.startswith("cpu:0")
    assert cli.main(["env"]) == 0
    assert "weft:" in capsys.readouterr().out
    assert cli.main([]) == 0
    assert "tour" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["nonsense"])


def test_configuration_names() -> None:
    weft.config.update("jax_enable_x64", True)
    try:
        assert weft.typeof(1.5).dtype == "float64"
    finally:
        weft.config.update("enable_x64", False)
    with weft.enable_x64(True):
        assert weft.typeof(1).dtype == "int64"
    assert weft.typeof(1).dtype == "int32"


LISTED = [
    *LAZY,
    "weft.lax.linalg",
    "weft.numpy.linalg",
    "weft.random",
    *[f"weft.scipy.{m}" for m in ("signal", "special", "stats")],
]


@pytest.mark.parametrize("package", LISTED)
def test_names_loaded_later_are_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module._NAMES.modules) <= set(dir(module))

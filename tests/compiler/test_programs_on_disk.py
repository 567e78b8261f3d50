"""Whole programs on disk: a second process compiles none, and runs none of another jaxpr or setting."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import config, lax, nn, random, runtime
from weft._base import cli
from weft.compiler.sizes import other_sizes
from weft.compiler.storage import disk, stored, version

X = np.linspace(-2.0, 2.0, 60, dtype=np.float32).reshape(5, 12)

# Calls ``call()`` of every module in the folder that it is given; prints for each [type, weak type and bits of every
# leaf of the result, programs compiled, executables, kernels built], and of the process whether llvmlite is loaded.
DRIVER = """
import importlib, json, os, sys
import numpy as np
import weft
sys.path.insert(0, sys.argv[1])
answers = {}
for name in sorted(name.removesuffix(".py") for name in os.listdir(sys.argv[1]) if name.startswith("case_")):
    module = importlib.import_module(name)
    f = module.f if hasattr(module.f, "cache_info") else weft.jit(module.f)
    leaves = weft.tree_util.tree_leaves(module.call(f) if hasattr(module, "call") else f(module.X))
    words = [weft.random.key_data(x) if "key" in str(x.dtype) else x for x in leaves]
    facts = [[str(x.dtype), x.weak_type, np.asarray(word).tobytes().hex()] for x, word in zip(leaves, words)]
    info = f.cache_info()
    answers[name] = [facts, int("codegen" in info.milliseconds), info.executables, info.kernels_built]
print(json.dumps([answers, "llvmlite" in sys.modules]))
"""
PRELUDE = """
import functools, math
import numpy as np
import weft
import weft.numpy as jnp
from weft import lax, nn, random
X = np.linspace(-2.0, 2.0, 60, dtype=np.float32).reshape(5, 12)
"""


def write(folder: Path, cases: dict[str, str], **modules: str) -> Path:
    """A folder of modules: one for every case, and what they import."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, source in cases.items():
        (folder / f"case_{name}.py").write_text(PRELUDE + source)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(PRELUDE + source)
    return folder


def start(modules: Path, cache: Path | None, **more: str) -> subprocess.Popen[str]:
    where = {"WEFT_CACHE": "off"} if cache is None else {"WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(cache)}
    environment = {**os.environ, "WEFT_CHECK": "0", **where, **more}
    return subprocess.Popen(
        [sys.executable, "-B", "-W", "ignore", "-c", DRIVER, str(modules)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, list[Any]], bool]:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    answers, has_llvm = json.loads(out.splitlines()[-1])
    return answers, has_llvm


def run(modules: Path, cache: Path | None, **more: str) -> tuple[dict[str, list[Any]], bool]:
    return finish(start(modules, cache, **more))


def facts(answers: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: answer[0] for name, answer in answers.items()}


def compiled(answers: dict[str, list[Any]]) -> dict[str, int]:
    return {name: answer[1] for name, answer in answers.items()}


# programs: what a second process computes without compiling

PROGRAMS = {
    "add": "f = lambda x: x + 1",
    "weak": "f = lambda x: (x * 2, 3 + x.shape[0], 1.5)\n",
    "softmax": "f = lambda x: nn.softmax(x)",
    "layernorm": "f = lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)",
    "reductions": "f = lambda x: (x.sum(), x.max(0), jnp.argmin(x, axis=1), jnp.cumsum(x, axis=1), jnp.prod(x))",
    "integers": "f = lambda x: (x.astype(jnp.int32) % 3, x > 0, x[::-1, 1:5])",
    "half": "f = lambda x: jnp.tanh(x.astype(jnp.bfloat16)) * 2",
    "complex": "f = lambda x: jnp.exp(x * 1j).conj()",
    "contraction": "f = lambda x: nn.relu(x @ x.T + x[:, 0])",
    "einsum": "f = lambda x: jnp.einsum('ij,kj,kl->il', x, x, x)",
    "constant": "f = lambda x: x * jnp.arange(12.0) + np.arange(12, dtype=np.float32)",
    "gather": "f = lambda x: x[jnp.array([3, 0, 0])].at[1, 2:4].add(5.0)",
    "scan": "f = lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x)",
    "scalars": "f = lambda x: lax.fori_loop(0, 20, lambda i, c: (c[0] * 0.9 + i, c[1] - c[0]), (x[0, 0], x[1, 1]))",
    "while": "f = lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * c + 1, x)",
    "cond": "f = lambda x: lax.cond(x[0, 0] > 0, lambda v: v @ v.T, lambda v: v @ v.T - 1, x)",
    "random": "f = lambda x: random.normal(random.key(3), x.shape) + random.uniform(random.PRNGKey(1), x.shape)",
    "keys": "f = lambda k: (random.split(k), random.bits(k, (3,)))\ncall = lambda f: f(random.key(7))",
    "tree": "f = lambda t: {'b': [t['a'] * 2, None], 'c': (t['x'][0], {})}\ncall = lambda f: f({'x': [X], 'a': 1.5})",
    "empty": "f = lambda x: (x[:0] * 2, x[:, :0].sum(1), ())",
    "identity": "f = lambda x, y: (x, x, y.T)\ncall = lambda f: f(jnp.asarray(X), X)",
    "gradient": """
def loss(p, x):
    h = nn.relu(x @ p['w'] + p['b'])
    return -jnp.mean(nn.log_softmax(h @ p['v'])[:, 0])
def f(p, x):
    value, g = weft.value_and_grad(loss)(p, x)
    return value, weft.tree.map(lambda a, b: a - 0.1 * b, p, g)
P = {'w': X.T @ X[:, :7], 'b': X[0, :7], 'v': X[:3, :7].T}
call = lambda f: f(P, X)
""",
    "static": """
@functools.partial(weft.jit, static_argnums=1, static_argnames='kind')
def f(x, n, kind='a'):
    return sum(x * i for i in range(n)) if kind == 'a' else x
call = lambda f: f(X, 3, kind='a')
""",
    "donated": """
@functools.partial(weft.jit, donate_argnums=0)
def f(x, y):
    return x + y
def call(f):
    x = jnp.asarray(X)
    out = f(x, X)
    assert x.is_deleted()
    return out
""",
    "unused": "f = weft.jit(lambda x, y: x - 1, keep_unused=True)\ncall = lambda f: f(X, X)",
    "partial": "f = functools.partial(lambda a, x: a * x, 2.5)",
    "helper": "from helpers import scaled\nf = lambda x: scaled(x) + 1",
    "grad": "f = weft.jit(weft.grad(lambda x: jnp.sum(jnp.tanh(x) ** 3)))",
    "vmap": "f = weft.jit(weft.vmap(weft.value_and_grad(lambda r, y: (r * y).sum()), (0, None)))\n"
    "call = lambda f: f(X, X[0])",
    "hessian": "f = weft.jit(weft.hessian(lambda r: jnp.sum(jnp.exp(A @ r))))\nA = jnp.asarray(X)\n"
    "call = lambda f: f(X[0])",
    "gradient_inside": "g = weft.grad(lambda x: (x ** 3).sum())\nf = lambda x: x - g(x) * 0.1",
    "array": "A, B = jnp.arange(12.0), jnp.ones(12)\nf = lambda x: weft.jit(lambda y: y * B)(x + A) * A.tolist()[1]",
}
HELPERS = "def scaled(x): return inner(x) * FACTOR\ndef inner(x): return jnp.sin(x)\nFACTOR = 1.5\n"


def test_a_second_process_compiles_nothing_and_gives_the_bits(tmp_path: Path) -> None:
    modules, cache = write(tmp_path / "modules", PROGRAMS, helpers=HELPERS), tmp_path / "cache"
    plain, _ = run(modules, None)
    first, _ = run(modules, cache)
    assert set(compiled(first).values()) == {1}
    assert facts(first) == facts(plain)
    second, has_llvm = run(modules, cache)
    assert {name for name, count in compiled(second).items() if count} == set()
    assert {tuple(answer[2:]) for answer in second.values()} == {(1, 0)} and not has_llvm
    assert facts(second) == facts(plain)


# what must be seen: (before, after) of every kind of change

CHANGES = {
    "literal": ("f = lambda x: x + 1", "f = lambda x: x + 2"),
    "literal_type": ("f = lambda x: x.astype(int) + 1", "f = lambda x: x.astype(int) + 1.0"),
    "zero_sign": ("f = lambda x: x * 0.0", "f = lambda x: x * -0.0"),
    "operator": ("f = lambda x: x * x", "f = lambda x: x - x"),
    "name": ("f = lambda x: jnp.sin(x)", "f = lambda x: jnp.cos(x)"),
    "alias": (
        "from weft.numpy import sin as g\nf = lambda x: g(x)",
        "from weft.numpy import cos as g\nf = lambda x: g(x)",
    ),
    "module": ("m = jnp\nf = lambda x: m.log(abs(x))", "m = np\nf = lambda x: jnp.log(abs(x)) * m.log(2.0)"),
    "builtin": ("g = max\nf = lambda x: x * g(2, 3)", "g = min\nf = lambda x: x * g(2, 3)"),
    "math": ("g = math.sin\nf = lambda x: x * g(2.0)", "g = math.cos\nf = lambda x: x * g(2.0)"),
    "global": ("C = 2.0\nf = lambda x: x * C", "C = 3.0\nf = lambda x: x * C"),
    "global_type": ("C = 1\nf = lambda x: x.astype(int) * C", "C = True\nf = lambda x: x.astype(int) * C"),
    "global_width": ("C = 2\nf = lambda x: x.astype(int) * C", "C = 2.0\nf = lambda x: x.astype(int) * C"),
    "global_sign": ("C = 0.0\nf = lambda x: x * C", "C = -0.0\nf = lambda x: x * C"),
    "global_text": ("C = 'a'\nf = lambda x: x if C == 'a' else -x", "C = 'b'\nf = lambda x: x if C == 'a' else -x"),
    "global_tuple": ("C = (1, 2)\nf = lambda x: x[C]", "C = (2, 1)\nf = lambda x: x[C]"),
    "global_set": (
        "C = frozenset([1, 2])\nf = lambda x: x * sum(C)",
        "C = frozenset([1, 3])\nf = lambda x: x * sum(C)",
    ),
    "global_none": ("C = None\nf = lambda x: x.sum(C)", "C = 0\nf = lambda x: x.sum(C)"),
    "global_complex": ("C = 1j\nf = lambda x: x * C", "C = 2j\nf = lambda x: x * C"),
    "global_dtype": (
        "C = jnp.dtype('int32')\nf = lambda x: x.astype(C)",
        "C = jnp.dtype('int8')\nf = lambda x: x.astype(C)",
    ),
    "global_scalar_type": ("C = jnp.float32\nf = lambda x: x.astype(C)", "C = jnp.float16\nf = lambda x: x.astype(C)"),
    "default": ("def f(x, c=2.0): return x * c", "def f(x, c=3.0): return x * c"),
    "keyword_default": ("def f(x, *, c=2.0): return x * c", "def f(x, *, c=3.0): return x * c"),
    "closure": (
        "def make(c): return lambda x: x * c\nf = make(2.0)",
        "def make(c): return lambda x: x * c\nf = make(3.0)",
    ),
    "closure_function": (
        "def make(g): return lambda x: g(x) * 2\nf = make(lambda x: x + 1)",
        "def make(g): return lambda x: g(x) * 2\nf = make(lambda x: x + 2)",
    ),
    "partial": (
        "f = functools.partial(lambda a, x: a * x, 2.0)", "f = functools.partial(lambda a, x: a * x, 3.0)",
    ),
    "partial_keyword": (
        "f = functools.partial(lambda x, a: a * x, a=2.0)", "f = functools.partial(lambda x, a: a * x, a=3.0)",
    ),
    "nested_code": (
        "def f(x):\n    def g(y): return y + 1\n    return g(x)",
        "def f(x):\n    def g(y): return y + 2\n    return g(x)",
    ),
    "comprehension": ("f = lambda x: sum([x * i for i in (1, 2)])", "f = lambda x: sum([x * i for i in (1, 3)])"),
    "helper": (
        "from helpers import scaled\nf = lambda x: scaled(x)",
        "from helpers import scaled\nf = lambda x: scaled(x)",
    ),
    "helper_module": (
        "from helpers import scaled as g\nf = lambda x: g(x) + 1",
        "from others import scaled as g\nf = lambda x: g(x) + 1",
    ),
    "jitted_helper": (
        "g = weft.jit(lambda x: x * 2)\nf = lambda x: g(x) + 1",
        "g = weft.jit(lambda x: x * 3)\nf = lambda x: g(x) + 1",
    ),
    "argument_order": (
        "f = lambda x, y: x - y\ncall = lambda f: f(X, X[0])",
        "f = lambda y, x: x - y\ncall = lambda f: f(X, X[0])",
    ),
    "static": (
        "f = weft.jit(lambda x, n: x * n, static_argnums=1)\ncall = lambda f: f(X, 2)",
        "f = weft.jit(lambda x, n: x * n, static_argnums=1)\ncall = lambda f: f(X, 2.0)",
    ),
    "array": ("A = jnp.arange(12.0)\nf = lambda x: x * A", "A = jnp.arange(12.0) + 1\nf = lambda x: x * A"),
    "array_dtype": (
        "A = jnp.arange(12)\nf = lambda x: x.astype(int) * A",
        "A = jnp.arange(12).view(jnp.float32)\nf = lambda x: x.astype(int) * A",
    ),
    "array_inside": (
        "A = jnp.arange(12.0)\nf = lambda x: weft.jit(lambda y: y * A)(x)",
        "A = jnp.arange(12.0) + 1\nf = lambda x: weft.jit(lambda y: y * A)(x)",
    ),
    "differentiated": (
        "f = weft.jit(weft.grad(lambda x: (x ** 2).sum()))", "f = weft.jit(weft.grad(lambda x: (x ** 3).sum()))",
    ),
    "argnums": (
        "f = weft.jit(weft.grad(lambda x, y: (x * y ** 2).sum()))\ncall = lambda f: f(X, X)",
        "f = weft.jit(weft.grad(lambda x, y: (x * y ** 2).sum(), 1))\ncall = lambda f: f(X, X)",
    ),
    "mapped_axis": (
        "f = weft.jit(weft.vmap(lambda r: r / r.sum(), 0))", "f = weft.jit(weft.vmap(lambda r: r / r.sum(), 1))",
    ),
    "transformation": (
        "f = weft.jit(weft.jacfwd(lambda r: r * r))\nX = X[0, 0]",
        "f = weft.jit(weft.grad(lambda r: r * r))\nX = X[0, 0]",
    ),
    "helper_of_gradient": (
        "from helpers import inner\nf = weft.jit(weft.grad(lambda x: inner(x).sum()))",
        "from helpers import inner\nf = weft.jit(weft.grad(lambda x: inner(x).sum()))",
    ),
    "shape": ("f = lambda x: x.sum()", "f = lambda x: x.sum()\nX = X[1:]"),
    "dtype": ("f = lambda x: x * 2", "f = lambda x: x * 2\nX = X.astype(np.int32)"),
    "weak_type": ("f = lambda x: x * 2\nX = np.float32(3)", "f = lambda x: x * 2\nX = 3.0"),
    "structure": (
        "f = lambda t: t[0] * 2\ncall = lambda f: f((X,))",
        "f = lambda t: t[0] * 2\ncall = lambda f: f([X])",
    ),
    "keys": (
        "f = lambda t: sum(t.values())\ncall = lambda f: f({1: X})",
        "f = lambda t: sum(t.values())\ncall = lambda f: f({True: X})",
    ),
    "donation": (
        "f = weft.jit(lambda x: x + 5)\ncall = lambda f: f(jnp.asarray(X))",
        "f = weft.jit(lambda x: x + 5, donate_argnums=0)\ncall = lambda f: f(jnp.asarray(X))",
    ),
    "unused": (
        "f = weft.jit(lambda x, y: x - 1)\ncall = lambda f: f(X, X)",
        "f = weft.jit(lambda x, y: x - 1, keep_unused=True)\ncall = lambda f: f(X, X)",
    ),
}  # fmt: skip


def test_every_change_is_seen_and_the_rest_is_found(tmp_path: Path) -> None:
    modules, cache = tmp_path / "modules", tmp_path / "cache"
    before = {name: source for name, (source, _) in CHANGES.items()} | {"moved": "f = lambda x: x * 7"}
    after = {name: source for name, (_, source) in CHANGES.items()} | {"moved": "# moved down\n\nf = lambda x: x * 7"}
    others = HELPERS.replace("1.5", "2.5")
    first, _ = run(write(modules, before, helpers=HELPERS, others=others), cache)
    again, _ = run(modules, cache)
    assert {name for name, count in compiled(again).items() if count} == set() and facts(again) == facts(first)
    second, _ = run(write(modules, after, helpers=HELPERS.replace("jnp.sin", "jnp.cos"), others=others), cache)
    assert compiled(second)["case_moved"] == 0
    plain, _ = run(modules, None)
    assert facts(second) == facts(plain)


# what a list of pure things would have to know: a second process sees it, since it traces

READS = {
    "key": "K = random.key(1)\nf = lambda x: x * random.normal(K)",
    "large_array": "A = jnp.ones(600_000)\nf = lambda x: x.sum() * A",
    "list": "A = [float(os.environ['WORD'])]\nf = lambda x: x * A[0]",
    "object": "class C: a = float(os.environ['WORD'])\nf = lambda x: x * C.a",
    "enum": "import enum\nclass C(enum.Enum):\n    a = 2\n    def __call__(self, x): return x * V\n"
    "V = float(os.environ['WORD'])\nf = lambda x: C.a(x)",
    "environment": "f = lambda x: x * float(os.environ['WORD'])",
    "file": "f = lambda x: x * len(open(__file__).read()) * float(os.environ['WORD'])",
    "devices": "f = lambda x: x * weft.device_count()",
    "process": "f = lambda x: x * (os.getpid() > 0) + weft.process_index()",
    "set": "f = lambda x: sum((x * i * len(w) for i, w in enumerate({'a', 'bb', 'ccc', 'dddd'})), x * 0)",
    "hash": "f = lambda x: x * (hash('abc') % 1000)",
    "state": "np.seterr(divide='warn' if os.environ['WORD'] == '2' else 'ignore')\n"
    "f = lambda x: x * (np.geterr()['divide'] == 'warn')",
    "printing": "np.set_printoptions(precision=int(os.environ['WORD']))\n"
    "f = lambda x: x * np.get_printoptions()['precision']",
    "now": "f = lambda x: x * (np.datetime64('now') > np.datetime64('2020-01-01'))",
    "store": "n = 0\ndef f(x):\n    global n\n    n += 1\n    return x * n * float(os.environ['WORD'])",
    "stale": """
exec("def scale(x): return x * 1000.0 * float(os.environ['WORD'])", globals())
g = weft.jit(lambda x: scale(x) + 1)
def call(f):
    g(X)
    if os.environ['WORD'] == '1':
        exec("def scale(x): return x * 2.0", globals())
    return f(X)
f = lambda x: g(x).sum()
""",
}
_STATES: tuple[dict[str, str], ...] = (
    {"WORD": "1", "PYTHONHASHSEED": "1"},
    {"WORD": "2", "PYTHONHASHSEED": "2"},
    {"WORD": "2", "PYTHONHASHSEED": "3", "WEFT_NUM_CPU_DEVICES": "4"},
)


def test_what_a_function_reads_is_seen_in_every_process(tmp_path: Path) -> None:
    cases = {name: f"import os\n{source}" for name, source in READS.items()}
    modules, cache = write(tmp_path / "modules", cases), tmp_path / "cache"
    for state in (*_STATES, *_STATES):
        plain, _ = run(modules, None, **state)
        found, _ = run(modules, cache, **state)
        assert facts(found) == facts(plain)
    assert set(compiled(found).values()) == {0}


def test_a_corrected_helper_is_seen_by_every_later_process(tmp_path: Path) -> None:
    """A notebook corrects a helper after a function that calls it was traced: this process stays stale, as in JAX."""
    body = """
for name in ("jit", "scan", "cond", "while"):
    exec(f"def scale(x): return x * {factor}", globals())
    def body(c): return scale(c) + 1
    inner = {
        "jit": weft.jit(body),
        "scan": lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=1)[0],
        "cond": lambda x: lax.cond(x[0] >= 0, body, body, x),
        "while": lambda x: lax.while_loop(lambda c: c[1] < 1, lambda c: (body(c[0]), c[1] + 1), (x, 0))[0],
    }[name]
    inner(jnp.arange(3.0))
    if factor != "2.0":
        exec("def scale(x): return x * 2.0", globals())
    answers.append(float(weft.jit(lambda x: inner(x).sum())(jnp.arange(3.0))))
print(json.dumps(answers))
"""
    environment = {
        **os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    for factor in ("1000.0", "2.0"):
        program = (
            f"import json\nimport weft, weft.numpy as jnp\nfrom weft import lax\nfactor, answers = {factor!r}, []\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program + body], env=environment, capture_output=True, text=True, check=True
        )
        answers = json.loads(done.stdout)
    assert answers == [9.0] * 4


CALLS = {
    "print": "f = lambda x: (weft.debug.print('{}', x[0, 0]), x + 1)[1]",
    "callback": "f = lambda x: weft.pure_callback(np.sin, x, x)",
}


def test_what_calls_python_is_compiled_in_every_process(tmp_path: Path) -> None:
    modules, cache = write(tmp_path / "modules", CALLS), tmp_path / "cache"
    first, _ = run(modules, cache)
    second, _ = run(modules, cache)
    assert set(compiled(second).values()) == {1}
    assert facts(first) == facts(second)
    assert not list(cache.glob("*.program"))


def test_options_are_part_of_the_key(tmp_path: Path) -> None:
    cases = {"f": "f = lambda x: (x.astype(int) * 2, x @ x.T)"}
    modules, cache = write(tmp_path / "modules", cases), tmp_path / "cache"
    run(modules, cache)
    changed, _ = run(modules, cache, WEFT_ENABLE_X64="1")
    assert changed["case_f"][1] == 1 and changed["case_f"][0][0][0] == "int64"
    again, _ = run(modules, cache, WEFT_ENABLE_X64="1")
    assert again["case_f"][1] == 0 and facts(again) == facts(changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_programs", False), ("check", True), ("debug_nans", True), ("default_matmul_precision", "highest"),
        ("skip", "simplify"), ("checks", "nan"), ("enable_x64", True),
    ],
)  # fmt: skip
def test_options_under_which_a_program_is_compiled(folder: Path, name: str, value: Any) -> None:
    fresh()
    with config.context(name, value):
        assert not loaded(fresh()[1])
    assert loaded(fresh()[1])


def test_eight_processes_at_once(tmp_path: Path) -> None:
    few = {name: PROGRAMS[name] for name in ("softmax", "scan", "cond", "tree")}
    modules, cache = write(tmp_path / "modules", few), tmp_path / "cache"
    plain, _ = run(modules, None)
    for process in [start(modules, cache) for _ in range(8)]:
        assert facts(finish(process)[0]) == facts(plain)
    assert set(compiled(run(modules, cache)[0]).values()) == {0}


THREADS = """
import threading
F = [weft.jit(eval(f"lambda x: jnp.sin(x) * {n} + x")) for n in range(6)]
f = F[0]
def call(f):
    threads = [threading.Thread(target=g, args=(X,)) for g in F]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    child = os.fork()
    if child == 0:
        os._exit(not np.array_equal(weft.jit(lambda x: x * 3 + 1)(X), X * 3 + 1))
    assert os.waitpid(child, 0)[1] == 0
    return [g(X) for g in F]
"""


def test_threads_forks_and_kills(tmp_path: Path) -> None:
    modules, cache = write(tmp_path / "modules", {"threads": "import os\n" + THREADS}), tmp_path / "cache"
    plain, _ = run(modules, None)
    for tenths in (4, 7, 10):
        process = start(modules, cache)
        time.sleep(tenths / 10)
        process.kill()
        process.communicate()
    for count in (None, 0):
        answers, _ = run(modules, cache)
        assert facts(answers) == facts(plain) and (count is None or answers["case_threads"][1] == count)
    found = disk.DiskCache(str(cache), 1 << 28, bytes(16)).verify()
    assert found.whole > 6 and not found.removed


# in one process: caches are cleared, so that the next call finds what is on disk


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, which this process uses; stages are not checked."""
    path = tmp_path / "cache"
    before = {name: config.read(name) for name in ("cache", "cache_dir", "cache_disk_bytes", "check")}
    config.update("cache_dir", str(path))
    config.update("cache", True)
    config.update("check", False)
    weft.clear_caches()
    try:
        yield path
    finally:
        for name, value in before.items():
            config.update(name, value)
        weft.clear_caches()


def programs(folder: Path) -> list[Path]:
    stored.flush()
    return sorted(folder.glob("*.program"))


def restart() -> None:
    """From here on nothing is known but what is on disk."""
    stored.flush()
    weft.clear_caches()


def function(x: Any) -> Any:
    return wnp.tanh(x) * 0.75 + lax.cumsum(x, axis=1)


def fresh(f: Any = function, *args: Any) -> tuple[Any, Any]:
    """A result as if the process had just started, and the counts of the function."""
    restart()
    jitted = weft.jit(f)
    result = jitted(*(args or (X,)))
    return result, jitted.cache_info()


def loaded(info: Any) -> bool:
    """Whether all that a function ran came from disk."""
    return "load" in info.milliseconds and "fuse" not in info.milliseconds


def check(count: int, f: Any = function) -> None:
    """The function gives its result with so many compilations."""
    with config.context("cache", False):
        expected = np.asarray(fresh(f)[0])
    result, info = fresh(f)
    stored.flush()
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert (not loaded(info), info.executables) == (bool(count), 1)


def test_what_cache_info_says_of_a_program_from_disk(folder: Path) -> None:
    _, made = fresh()
    _, found = fresh()
    n_kernels = made.kernels_built + made.kernels_loaded
    assert made.traces == 1 and n_kernels > 0
    assert found[:-1] == (0, 1, 1, 0, n_kernels, 0) and list(found.milliseconds) == ["trace", "load"]


def test_the_rest_of_a_program_is_compiled_when_it_is_asked_for(folder: Path) -> None:
    fresh()
    restart()
    jitted = weft.jit(function)
    result = np.asarray(jitted(X))
    assert loaded(jitted.cache_info())
    assert "tanh" in str(jitted.trace(X).jaxpr) and jitted.cache_info().traces == 1
    assert "kernel" in jitted.lower(X).compile().as_text("plan")
    np.testing.assert_array_equal(np.asarray(weft.vmap(jitted, in_axes=1, out_axes=1)(X[:, None])[:, 0]), result)
    gradient = weft.grad(lambda x: jitted(x).sum())(X)
    np.testing.assert_array_equal(gradient, weft.grad(lambda x: function(x).sum())(X))
    np.testing.assert_array_equal(jitted(X), result)
    np.testing.assert_array_equal(jitted(X[1:]), function(wnp.asarray(X[1:])))


def test_equal_functions_and_second_objects_read_the_disk_once(folder: Path) -> None:
    def make(c: float) -> Any:
        return lambda x: x * c

    fresh(make(2.0))
    restart()
    functions = [weft.jit(make(2.0)) for _ in range(3)] + [weft.jit(make(2.0), donate_argnums=0)]
    for f in functions:
        np.testing.assert_array_equal(f(wnp.asarray(X)), X * 2)
    assert [loaded(f.cache_info()) for f in functions] == [True, False, False, False]
    assert [list(f.cache_info().milliseconds) for f in functions[1:3]] == [["trace"]] * 2  # the same program


def test_only_the_first_calls_of_a_code_are_kept(folder: Path) -> None:
    for number in range(40):
        weft.jit(lambda x, c=float(number): x * c)(X)
    assert len(programs(folder)) == 16
    jitted = weft.jit(lambda x: x * x.shape[0])  # no two are like each other: those are not kept
    for count in range(1, 41):
        jitted(np.ones(count, np.float32))
    assert len(programs(folder)) == 32


def test_programs_at_other_sizes_are_kept_unless_they_are_made_from_like_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one is like no other: its number follows from an extent in a way that nobody looks for."""

    def numbered(x: Any) -> Any:
        return function(x) + 1.37 ** x.shape[0]

    sought: set[bytes] = set()  # two for each: it alone, and those that are like it
    load = disk.DiskCache.load

    def counted(cache: disk.DiskCache, key: bytes, suffix: str = disk.KERNEL) -> Any:
        sought.update([key] if suffix == disk.PROGRAM else [])
        return load(cache, key, suffix)

    jitted = weft.jit(numbered)
    jitted(X)
    stored.flush()  # which reads what is there already
    monkeypatch.setattr(disk.DiskCache, "load", counted)
    for rows in (4, 3, 2):
        jitted(X[:rows])
    assert len(sought) == 6
    jitted(X.astype(np.int32))
    assert len(sought) == 8
    assert len(programs(folder)) == 5
    restart()
    again = weft.jit(numbered)
    for rows in (4, 3, 2):
        np.testing.assert_array_equal(again(X[:rows]), jitted(X[:rows]))
    assert loaded(again.cache_info())  # each was found


def test_the_writing_thread_sleeps_is_called_and_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.flush()
    monkeypatch.setattr(stored, "_DELAY_S", 0.01)
    monkeypatch.setattr(stored, "_IDLE_ROUNDS", 1)
    monkeypatch.setattr(stored, "_STAY_S", 0.5)
    monkeypatch.setattr(stored, "_asleep", None)

    def files_after(count: int) -> int:
        limit = time.monotonic() + 20
        while len(list(folder.glob("*.program"))) < count and time.monotonic() < limit:
            time.sleep(0.01)
        return len(list(folder.glob("*.program")))

    for number in (1, 2, 3):  # new thread, called from its sleep, new thread after it has ended
        weft.jit(lambda x, c=float(number): x * c)(X)
        assert files_after(number) == number
        asleep = stored._asleep
        limit = time.monotonic() + 20
        while not asleep.locked() and time.monotonic() < limit:
            time.sleep(0.01)
        if number >= 2:
            while stored._asleep is not None and time.monotonic() < limit:
                time.sleep(0.01)
            assert stored._asleep is None
    monkeypatch.undo()
    stored._asleep = None  # the thread of before may have ended meanwhile


CHILD = """
import os, time
import numpy as np
import weft
weft.jit(lambda x: x * 3)(np.ones(5, np.float32))
if os.fork() == 0:
    weft.jit(lambda x: x * 7)(np.ones(5, np.float32))
    time.sleep(1)  # long enough for a thread of its own; _exit runs nothing at the end
    os._exit(0)
os.wait()
"""


def test_a_child_process_writes_by_itself(tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "on", "WEFT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CHILD], env=environment, check=True, timeout=120)
    assert len(programs(tmp_path)) == 2


def test_a_program_that_cannot_be_written_leaves_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = stored._write

    def failing(wanted: Any, program: Any) -> None:
        if "bad" in program.name:
            raise MemoryError
        write(wanted, program)

    def bad(x: Any) -> Any:
        return x * 5

    monkeypatch.setattr(stored, "_write", failing)
    with caplog.at_level(logging.WARNING, "weft.compiler"):
        weft.jit(bad)(X)
        weft.jit(lambda x: x * 3)(X)
        assert len(programs(folder)) == 1
    assert "bad could not be kept: MemoryError" in caplog.text


def test_donated_arguments_are_deleted_and_unusable_ones_warned_of_again(folder: Path) -> None:
    for count in (1, 0):
        restart()
        jitted = weft.jit(lambda x, y: x[0] + y, donate_argnums=(0, 1))
        x, y = wnp.asarray(X), wnp.asarray(X[0])
        with pytest.warns(UserWarning, match="donated buffers were not usable"):
            jitted(x, y)
        assert y.is_deleted() and not x.is_deleted() and loaded(jitted.cache_info()) == (not count)


def test_errors_of_arguments_stay(folder: Path) -> None:
    fresh()
    restart()
    jitted = weft.jit(function)
    jitted(X)
    with pytest.raises(TypeError, match="argument"):
        jitted("no array")
    with pytest.raises(TypeError):
        jitted(X, X)


def test_checks_of_numbers_hold_for_programs_from_disk(folder: Path) -> None:
    f = lambda x: wnp.log(x)
    fresh(f)
    with config.context("debug_nans", True), pytest.raises(FloatingPointError, match="log"):
        fresh(f)


def test_log_lines_say_that_a_program_came_from_disk(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    fresh()
    with config.context("log_compiles", True), caplog.at_level(logging.WARNING, "weft"):
        fresh()
    traced, found = caplog.records
    assert "Finished tracing function" in traced.message
    assert "loading function from disk" in found.message and "kernels loaded" in found.message


def test_damaged_truncated_and_foreign_entries_are_traced_and_replaced(folder: Path) -> None:
    check(1)
    (path,) = programs(folder)
    content = path.read_bytes()
    key, of_version = bytes.fromhex(path.stem), version.compiler_version()
    assert of_version is not None
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 4
    bodies = [b"", b"i\1\0\0\0", b"(\0\0\0\0", disk.unpack(content, key).bytes[:-9]]
    whole = [disk.pack(of_version, key, "program", body) for body in bodies]
    kernel = next(folder.glob("*.kernel")).read_bytes()
    for damaged in (b"", content[:40], content[:-1], content + b"x", bytes(flipped), b"foreign", kernel, *whole):
        path.write_bytes(damaged)
        check(1)
        assert path.read_bytes() == content
        check(0)


def test_a_program_whose_kernel_is_gone_is_traced_and_kept_again(folder: Path) -> None:
    check(1)
    for path in folder.glob("*.kernel"):
        path.unlink()
    check(1)
    check(0)


def with_branches(x: Any) -> Any:
    """A program with others inside of it, which serves no other sizes."""
    return lax.cond(x[0, 0] > 0, lambda v: v @ v.T, lambda v: v @ v.T - 1, wnp.tanh(x))


def entry(path: Path) -> tuple[Any, Any]:
    """What is in an entry, and what writes another content."""
    key, of_version = bytes.fromhex(path.stem), version.compiler_version()
    assert of_version is not None

    def write(content: Any) -> None:
        path.write_bytes(disk.pack(of_version, key, "program", stored.marshal.dumps(content)))

    return stored.marshal.loads(disk.unpack(path.read_bytes(), key).bytes), write


def test_numbers_out_of_range_are_refused(folder: Path) -> None:
    """Whole entries with wrong content, as a bug would write them: the runtime checks them, and nothing is run."""
    check(1, with_branches)
    (avals, kernels, program, consts, out_avals), write = entry(*programs(folder))
    n_inputs, outputs, temps, arena, made, name, in_avals = program
    assert len(made[0]) == 13  # a kernel
    wrong = [
        (n_inputs + 1, outputs, temps, arena, made, name, in_avals),
        (n_inputs, [(0, 3, 0)], temps, arena, made, name, in_avals),
        (n_inputs, outputs, temps, arena, [(0, 99, *made[0][2:])], name, in_avals),
        (n_inputs, outputs, temps, arena, [(7, 1, 2, 3)], name, in_avals),
        (n_inputs, outputs, temps, arena, [(99, 1)], name, in_avals),
        (n_inputs, outputs, temps, arena, [(*made[0][:2], ((77, 0, -1),), *made[0][3:])], name, in_avals),
    ]
    contents = [(avals, kernels, bad, consts, out_avals) for bad in wrong]
    contents += [(avals, kernels, program, consts, wrong) for wrong in ([9], [-9])]
    for content in contents:
        write(content)
        check(1, with_branches)
        check(0, with_branches)


def test_wrong_content_of_families_is_refused(folder: Path) -> None:
    check(1)
    (member,), write = entry(*programs(folder))
    numbers, made, guards, body = stored.marshal.loads(member)
    keys, outlines, plan, out_avals = stored.marshal.loads(body)
    number, n_inputs, outputs, temps, arena, instructions, on_gpu = plan
    first = instructions[1][0]
    bodies = [
        (keys[:-1], outlines, plan, out_avals),
        ((b"0" * 32, *keys[1:]), outlines, plan, out_avals),
        (keys, (7,) * len(keys), plan, out_avals),
        (keys, outlines, [number, n_inputs, outputs, temps, [999], instructions, on_gpu], out_avals),
        (keys, outlines, [99, n_inputs], out_avals),
        (keys, outlines, [number, n_inputs], out_avals),
        (
            keys,
            outlines,
            [number, n_inputs, outputs, temps, arena, [3, ([*first[:2], ((77, 0, -1),), ()],)], on_gpu],
            (),
        ),
    ]
    members = [(numbers, made, guards, stored.marshal.dumps(bad)) for bad in bodies]
    members += [(numbers, made, [("breakpoint", 0, 0, True)], body), (numbers, made, guards)]
    for content in members:
        write([stored.marshal.dumps(content)])
        check(1)
        check(0)


# families


def test_one_size_on_disk_serves_others(folder: Path) -> None:
    """Sizes at which guards do not hold are compiled, and join those on disk."""
    f = lambda x: nn.softmax(x * 2.5) if x.ndim == 2 else lax.scan(lambda c, r: (c * 0.5 + r, c), 1.0, x)
    shapes = [(300, 100), (301, 900), (5, 7), (1, 20), (400,), (30,)]
    operands = [np.random.default_rng(k).normal(size=shape).astype(np.float32) for k, shape in enumerate(shapes)]
    with config.context("cache", False):
        expected = [weft.jit(f)(x) for x in operands]
    from_disk = []
    for _ in range(2):
        for x, known in zip(operands, expected, strict=True):
            result, info = fresh(f, x)
            from_disk.append(loaded(info))
            for leaf, other in zip(weft.tree.leaves(result), weft.tree.leaves(known), strict=True):
                np.testing.assert_array_equal(leaf, other)
                assert (leaf.dtype, leaf.weak_type) == (other.dtype, other.weak_type)
    assert from_disk == [False, True, False, False, False, True, *[True] * len(shapes)]


def test_two_sizes_in_the_second_process_read_the_disk_once(folder: Path) -> None:
    x = np.linspace(-1, 1, 6020, dtype=np.float32).reshape(301, 20)
    fresh(function, x[1:])
    restart()
    jitted = weft.jit(function)
    jitted(x[1:])
    np.testing.assert_array_equal(jitted(x), function(wnp.asarray(x)))
    assert list(jitted.cache_info().milliseconds) == ["trace", "load", "sizes"]


def test_a_family_has_few_members_and_other_programs_are_kept_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_sizes, "MOST_MEMBERS", 2)
    f, counts = lambda x: lax.sort(nn.softmax(x)), []
    operands = [np.ones(shape, np.float32) for shape in ((300, 20), (2, 20), (300, 2))]
    for x in operands:
        fresh(f, x)
        counts.append(sorted([len(entry(path)[0]) for path in programs(folder)]))
    assert counts == [[1], [2], [2, 5]]  # members; a program that is kept alone has 5 parts
    assert all(loaded(fresh(f, x)[1]) for x in operands)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read(folder: Path) -> None:
    check(1)
    folder.chmod(0o500)
    try:
        check(0)
        assert not loaded(fresh(lambda x: x * 9)[1])
    finally:
        folder.chmod(0o700)


def test_another_version_of_weft_is_a_miss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(1)
    stamps = runtime.source_stamps

    def edited(path: str) -> list[tuple[str, int, int]]:
        return [(name, n + (name == "nn/activations.py"), at) for name, n, at in stamps(path)]

    known = version.compiler_version()
    monkeypatch.setattr(runtime, "source_stamps", edited)
    other = version.compiler_version.__wrapped__()
    assert other not in (None, known)
    monkeypatch.setattr(disk, "compiler_version", lambda: other)
    disk._opened.cache_clear()
    try:
        check(1)
        check(0)
        assert len(programs(folder)) == 2
    finally:
        disk._opened.cache_clear()


def test_the_command_counts_verifies_and_clears_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh()
    stored.flush()
    assert cli.main(["cache", "info"]) == 0 and "programs 1\n" in capsys.readouterr().out
    (path,) = programs(folder)
    path.write_bytes(path.read_bytes()[:-1])
    assert cli.main(["cache", "verify"]) == 1 and path.name in capsys.readouterr().out
    fresh()
    stored.flush()
    assert cli.main(["cache", "clear"]) == 0 and not programs(folder)


def test_the_bound_holds_for_programs(folder: Path) -> None:
    config.update("cache_disk_bytes", 16 << 10)
    for number in range(12):
        fresh(eval(f"lambda x: x * {number}.5 + {'x * ' * number}x"))
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 24 << 10


def test_a_replaced_library_function_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = lambda x: nn.relu(x)
    fresh(f)
    monkeypatch.setattr(nn, "relu", nn.softmax)
    result, info = fresh(f)
    assert not loaded(info)
    np.testing.assert_array_equal(result, nn.softmax(wnp.asarray(X)))


def test_typed_keys(folder: Path) -> None:
    f = lambda k: random.split(k)[0]
    one, two = fresh(f, random.key(3)), fresh(f, random.key(3))
    assert not loaded(one[1]) and loaded(two[1]) and two[0].dtype == one[0].dtype
    np.testing.assert_array_equal(random.key_data(one[0]), random.key_data(two[0]))

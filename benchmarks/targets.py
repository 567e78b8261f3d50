"""The figures weft promises, measured here: first calls in fresh processes, dispatch, tracing, import.

    python benchmarks/targets.py            # every row, weft and (where installed) JAX, about two minutes
    python benchmarks/targets.py --only first

First-call rows: median of five fresh processes, after one call of an unrelated jitted function of another dtype
and rank, so that libraries are loaded. The kernel cache on disk is off, but in the rows named ``second process``,
where ``cache_info`` must show that no kernel was built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import derivatives

HERE = Path(__file__).resolve().parent

WARM_UP = """
import time, sys, os, importlib
import numpy as np
J, jnp, nn, lax = (importlib.import_module({system!r} + part) for part in ('', '.numpy', '.nn', '.lax'))
J.block_until_ready(J.jit(lambda x: x * 2)(np.ones((2, 2, 2), np.int32)))
clock = time.perf_counter
def normal(*shape): return jnp.asarray(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
def layernorm(x):
    m = x.mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
def first(f, *args):
    J.block_until_ready(args); start = clock(); J.block_until_ready(f(*args)); return clock() - start
def best(f, *args, n=2000, rounds=15):
    out = f(*args); b = 1e9
    for _ in range(rounds):
        start = clock()
        for _ in range(n): out = f(*args)
        t = (clock() - start) / n; J.block_until_ready(out); b = min(b, t)
    return b
"""

SECOND_SHAPES = {
    "mean": ("lambda x: jnp.mean(x)", "(1000,)", "(1300,)"),
    "mean axis 1": ("lambda x: jnp.mean(x, axis=1)", "(64, 100)", "(80, 120)"),
    "layernorm": ("layernorm", "(64, 100)", "(80, 120)"),
    "layernorm batch 1": ("layernorm", "(64, 100)", "(1, 100)"),
    "layernorm batch 0": ("layernorm", "(64, 100)", "(0, 100)"),
    "softmax batch 1": ("lambda x: nn.softmax(x)", "(64, 100)", "(1, 100)"),
    "pad": ("lambda x: jnp.pad(x, 3)", "(64, 100)", "(80, 120)"),
    "slice": ("lambda x: x[2:, ::2] * 2", "(64, 100)", "(80, 120)"),
    "concatenate": ("lambda x: jnp.concatenate([x, x * 2], axis=1)", "(64, 100)", "(80, 120)"),
    "concatenate batch 1": ("lambda x: jnp.concatenate([x, x * 2], axis=1)", "(64, 100)", "(1, 120)"),
}

FIRST_CALLS = {
    "x+1": ("lambda x: x + 1", "normal(1000)"),
    "softmax": ("lambda x: nn.softmax(x)", "normal(128, 256)"),
    "layernorm": ("layernorm", "normal(128, 256)"),
}

PROGRAMS = {
    "call of jitted x+1, 3-vector": "f = J.jit(lambda x: x + 1); print(best(f, normal(3)))",
    "jitted 50-leaf dict": (
        "f = J.jit(lambda d: {k: v + 1 for k, v in d.items()})\n"
        "print(best(f, {f'k{i:02d}': normal(3) for i in range(50)}, n=200))"
    ),
    "eager x+1, 3-vector": "x = normal(3); print(best(lambda v: v + 1, x))",
    "fresh lambda in a loop of 20": (
        "g = lambda i: i + 1\ndef run():\n    i = 0\n    while i < 20: i = J.jit(lambda a: g(a))(i)\n    return i\n"
        "run(); print(best(run, n=1, rounds=9))"
    ),
    "fresh partial in a loop of 20": (
        "import functools\ng = lambda i: i + 1\ndef run():\n    i = 0\n"
        "    while i < 20: i = J.jit(functools.partial(g))(i)\n    return i\nrun(); print(best(run, n=1, rounds=9))"
    ),
    "same function in a loop of 20": (
        "g = lambda i: i + 1\ndef run():\n    i = 0\n    while i < 20: i = J.jit(g)(i)\n    return i\n"
        "run(); print(best(run, n=1, rounds=9))"
    ),
    "tracing, per primitive, 10,000": (
        "def f(x):\n    for _ in range(5000): x = lax.mul(lax.add(x, x), x)\n    return x\n"
        "x = normal(3); J.make_jaxpr(lambda x: x * x)(x)\n"
        "start = clock(); J.make_jaxpr(f)(x); print((clock() - start) / 10000)"
    ),
    "tracing jnp, per primitive, 10,000": (
        "def f(x):\n    for _ in range(5000): x = (x + x) * x\n    return x\n"
        "x = normal(3); J.make_jaxpr(lambda x: x * x)(x)\n"
        "start = clock(); J.make_jaxpr(f)(x); print((clock() - start) / 10000)"
    ),
    "tracing, per primitive, 40,000": (
        "def f(x):\n    for _ in range(20000): x = lax.mul(lax.add(x, x), x)\n    return x\n"
        "x = normal(3); J.make_jaxpr(lambda x: x * x)(x)\n"
        "start = clock(); J.make_jaxpr(f)(x); print((clock() - start) / 40000)"
    ),
    "tracing, per primitive, 200,000": (
        "def f(x):\n    for _ in range(100000): x = lax.mul(lax.add(x, x), x)\n    return x\n"
        "x = normal(3); J.make_jaxpr(lambda x: x * x)(x)\n"
        "start = clock(); J.make_jaxpr(f)(x); print((clock() - start) / 200000)"
    ),
}
for _name, (_f, _one, _two) in SECOND_SHAPES.items():
    PROGRAMS[f"second shape: {_name}"] = (
        f"f = J.jit({_f}); first(f, normal(*{_one})); y = normal(*{_two})\n"
        "built = f.cache_info().kernels_built if hasattr(f, 'cache_info') else 0\n"
        "print(first(f, y))\nif hasattr(f, 'cache_info'): assert f.cache_info().kernels_built == built, 'LLVM ran'"
    )
for _name, (_f, _x) in FIRST_CALLS.items():
    PROGRAMS[f"first call {_name}"] = f"print(first(J.jit({_f}), {_x}))"
    PROGRAMS[f"second process {_name}"] = (
        f"f = J.jit({_f}); print(first(f, {_x}))\n"
        "if hasattr(f, 'cache_info') and 'FILLING' not in os.environ:\n"
        "    assert f.cache_info().kernels_built == 0, 'LLVM ran'"
    )

for _name in derivatives.MEASURED:
    PROGRAMS[_name] = f"import derivatives; print(derivatives.warm(J, {_name!r}))"
for _label, _case in (("MLP training step", "training_step"), ("hessian", "hessian")):
    PROGRAMS[f"first call {_label}"] = f"import derivatives; f, a = derivatives.{_case}(J); print(first(f, *a))"
    PROGRAMS[f"second process {_label}"] = PROGRAMS[f"first call {_label}"]
for _count in (2000, 8000):
    PROGRAMS[f"tracing grad of {_count:,} equations"] = f"import derivatives; print(derivatives.tracing(J, {_count}))"

# rows that are promised beside JAX: what part of its time
BESIDE_JAX = {
    "hessian, 100 parameters": 1.0,
    "first call hessian": 1.0,
    "import": 0.27,
    "tracing grad of 2,000 equations": 1 / 3,
    "tracing grad of 8,000 equations": 1 / 3,
}
LIMITS = {
    **{name: limit for name, (_, _, limit) in derivatives.MEASURED.items()},
    "first call MLP training step": 70e-3,
    "second process MLP training step": 30e-3,
    "second process hessian": 30e-3,
    "call of jitted x+1, 3-vector": 0.15e-6,
    "jitted 50-leaf dict": 3e-6,
    "eager x+1, 3-vector": 0.6e-6,
    "first call x+1": 5e-3,
    "first call softmax": 10e-3,
    "first call layernorm": 10e-3,
    "second process x+1": 2e-3,
    "second process softmax": 2e-3,
    "second process layernorm": 2e-3,
    "fresh lambda in a loop of 20": 0.5e-3,
    "fresh partial in a loop of 20": 0.5e-3,
    "same function in a loop of 20": 0.5e-3,
    "tracing, per primitive, 10,000": 6e-6,
    "tracing jnp, per primitive, 10,000": 10e-6,
    "tracing, per primitive, 40,000": 6e-6,
    "tracing, per primitive, 200,000": 6e-6,
}


def once(python: str, source: str, **environment: str) -> float:
    """Run a program in a fresh process, without the kernel cache on disk unless told so; it prints seconds."""
    env = {**os.environ, "WEFT_CACHE": "off", **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an import that compiles every module is not what is measured
    command = [python, "-W", "ignore", "-c", source]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=HERE, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no output")
    return float(done.stdout.split()[-1])


def second(python: str, source: str, runs: int) -> float | str:
    """Median over fresh processes that find their kernels in the folder which an earlier one filled."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"WEFT_CACHE": "on", "WEFT_CACHE_DIR": folder}
        filled = median(lambda: once(python, source, FILLING="1", **cache), 1)
        return filled if isinstance(filled, str) else median(lambda: once(python, source, **cache), runs)


def median(measure: Callable[[], float], runs: int) -> float | str:
    try:
        return statistics.median(measure() for _ in range(runs))
    except RuntimeError as e:
        return str(e)[:70]


def import_seconds(python: str, system: str) -> float:
    """A fresh process that imports the system, less one that imports nothing."""
    timer = "import time; s = time.perf_counter(); import {0}.numpy, {0}; print(time.perf_counter() - s)"
    return once(python, timer.format(system))


def text_of(value: float | str) -> str:
    if isinstance(value, str):
        return value
    for unit, scale in (("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="weft's promises, measured in fresh processes")
    parser.add_argument("--only", default="")
    parser.add_argument("--systems", default="weft,jax")
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=PATH")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "targets.jsonl")
    return parser.parse_args()


def main() -> None:
    options = parse()
    pythons = dict(entry.split("=", 1) for entry in options.python)
    systems, record = options.systems.split(","), {}
    print(f"{'measure':38} {'target':>10}  " + "  ".join(f"{s:>12}" for s in systems))
    for name in [*PROGRAMS, "import"]:
        if not re.search(options.only, name):
            continue
        row = {}
        for system in systems:
            python = pythons.get(system, sys.executable)
            if name == "import":
                row[system] = median(lambda p=python, s=system: import_seconds(p, s), options.runs)
            elif name.startswith("second process"):
                row[system] = second(python, WARM_UP.format(system=system) + PROGRAMS[name], options.runs)
            else:
                source = WARM_UP.format(system=system) + PROGRAMS[name]
                row[system] = median(lambda p=python, s=source: once(p, s), options.runs if "first" in name else 3)
        record[name] = row
        target = LIMITS.get(name, 1e-3)
        if name in BESIDE_JAX:
            target = BESIDE_JAX[name] * row["jax"] if isinstance(row.get("jax"), float) else float("inf")
        ours = row.get("weft")
        mark = "" if not isinstance(ours, float) else "ok" if ours <= target else "MISSED"
        print(
            f"{name:38} {text_of(target):>10}  " + "  ".join(f"{text_of(row[s]):>12}" for s in systems),
            mark,
            flush=True,
        )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with options.json.open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

"""numba beside weft in one process: it makes the machine code it makes alone, before and after weft compiles."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

NUMBA = """
    import re, sys
    import numba, numpy as np

    def code():
        '''The assembly of functions whose loops LLVM's switches would change; addresses and counted names left out.'''
        def sines(x):
            total = 0.0
            for i in range(x.size):
                total += np.sin(x[i]) * x[i] if x[i] > 0 else x[i] ** 3
            return total

        def wide(x, y):
            for i in range(x.size):
                y[i] = (x[i] + 3 * y[i]) / (1 + x[i] * x[i] + y[i])

        floats = numba.float64[::1]
        made = [numba.njit(floats_in, fastmath=True)(function) for floats_in, function in
                (((floats,), sines), ((numba.float32[::1], numba.float32[::1]), wide))]
        texts = [text for function in made for text in function.inspect_asm().values()]
        return [re.sub(r'_ZN\\w+|\\b\\d{9,}\\b|0x[0-9a-f]{6,}|"<dynamic>"|\\.const\\.[^\\s,]*', "", t) for t in texts]
"""
WEFT = """
    import weft, weft.numpy as jnp
    weft.config.update("cache", False)

    def compile_some():
        for size in (7, 1 << 12):
            x = jnp.linspace(0.0, 1.0, size)
            weft.jit(lambda x: (jnp.sin(x) * x).sum())(x).block_until_ready()
            weft.jit(weft.grad(lambda x: (x / (1 + x * x)).sum()))(x).block_until_ready()
"""
AFTER = """
    compile_some()
    first = code()
    compile_some()
    assert code() == first, "after weft compiled once more"
"""


def run(program: str) -> str:
    lines = [line.removeprefix("    ") for line in program.splitlines()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="needs numba, see CONTRIBUTING.md")
def test_numba_makes_the_code_that_it_makes_alone() -> None:
    alone = run(f"{NUMBA}\n    print(code())")
    assert alone.count("ret") >= 2
    assert run(f"{NUMBA}\n{WEFT}\n{AFTER}\n    print(first)") == alone
    assert run(f"{WEFT}\n    compile_some()\n{NUMBA}\n{AFTER}\n    print(first)") == alone


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="needs numba, see CONTRIBUTING.md")
def test_the_switches_of_weft_would_change_that_code() -> None:
    """So that the test above can fail."""
    left_on = """
    import llvmlite.binding as llvm
    from weft.codegen import llvm as ours
    for name, (our, _) in ours.SWITCHES.items():
        llvm.set_option("t", f"-{name}={our}")
"""
    assert run(f"{NUMBA}\n{left_on}\n    print(code())") != run(f"{NUMBA}\n    print(code())")

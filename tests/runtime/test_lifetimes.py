"""Nothing is left behind: calls hold no more memory than before, and cycles through jitted functions are collected."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import types
import weakref
from typing import Any

import pytest

import weft
import weft.numpy as jnp
from weft.core.caches.budget import BUDGET

CALLS = """
import gc, sys
import numpy as np
import weft, weft.numpy as jnp
from tests.runtime.held_memory import native_bytes, python_blocks
from weft import lax

f = weft.jit(lambda x: x + 1)
g = weft.jit(lambda tree, n: {"a": tree["a"] * n, "b": (tree["b"][0], [tree["a"]])})
large = weft.jit(lambda x: jnp.sum(x * 2))
donor = weft.jit(lambda x: x * 3, donate_argnums=0)
method = type("Model", (), {"__call__": weft.jit(lambda self, x: x * 2, static_argnums=0)})()
remade = weft.grad(weft.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()))
x, host, big = jnp.ones(3), np.ones(3, np.float32), jnp.ones(200_000)
tree = {"a": x, "b": (x, None)}

def failing():
    try:
        f("text")
    except TypeError:
        pass

kinds = {
    "jitted": lambda: f(x),
    "tree": lambda: g(tree, 2.0),
    "host": lambda: f(host),
    "eager": lambda: x * x + 1,
    "method": lambda: method(x),
    "read": lambda: (float(x[0]), np.asarray(x), x.tolist()),
    "donated": lambda: donor(jnp.zeros(5)),
    "stream": lambda: large(big),
    "failing": failing,
    "fresh": lambda: weft.jit(lambda x: x - 1)(x),
    "fresh bodies": lambda: lax.scan(lambda c, t: (c + t, c), 0.0, lax.cond(True, lambda x: x, lambda x: x * 2, x)),
    "checkpoint": lambda: remade(x),
    "fresh callbacks": lambda: weft.pure_callback(lambda a: a, x, x),
    "fresh computations": lambda: lax.reduce(x, 0.0, lambda a, b: a + b * b, (0,)),
}
def call(kind, count):
    function = kinds[kind]
    for _ in range(count):
        function()
kind, count = sys.argv[1], int(sys.argv[2])
call(kind, count // 5)
gc.collect()
blocks, native = python_blocks(), native_bytes()
call(kind, count)
gc.collect()
print(python_blocks() - blocks, native_bytes() - native)
"""
COUNTS = {
    "jitted": 100_000, "tree": 100_000, "host": 100_000, "eager": 100_000, "method": 100_000, "read": 20_000,
    "donated": 20_000, "stream": 5_000, "failing": 5_000, "fresh": 5_000, "fresh bodies": 1_000, "checkpoint": 1_000,
    "fresh callbacks": 2_000, "fresh computations": 2_000,
}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTS)
def test_calls_hold_no_more_memory_than_before(kind: str) -> None:
    """100,000 calls of each kind (fewer of the slow ones)."""
    count = 100_000 if os.environ.get("WEFT_STRESS") == "1" else COUNTS[kind]
    process = subprocess.run(
        [sys.executable, "-c", CALLS, kind, str(count)],
        capture_output=True, text=True, timeout=600, env={**os.environ, "WEFT_CHECK": "0"}, check=True,
    )  # fmt: skip
    blocks, native = (int(word) for word in process.stdout.split())
    assert blocks < 200 and native < 64 << 10


def collected(make: Any) -> bool:
    """Whether what ``make`` gives a weak reference to dies with the collector's next run."""
    reference = make()
    gc.collect()
    return reference() is None


def test_a_function_that_closes_over_itself_is_collected() -> None:
    def make() -> weakref.ref[Any]:
        @weft.jit
        def f(x: Any, again: bool = False) -> Any:
            return f.__wrapped__(x) if again else x + 1

        f(jnp.ones(3))
        return weakref.ref(f)

    assert collected(make)


def test_a_module_with_jitted_functions_is_collected() -> None:
    def make() -> weakref.ref[Any]:
        module = types.ModuleType("temporary")
        source = (
            "import weft\nscale = 2.0\n@weft.jit\ndef f(x): return helper(x) * scale\ndef helper(x): return x + 1\n"
        )
        exec(source, module.__dict__)
        module.f(jnp.ones(3))
        module.itself = module  # type: ignore[attr-defined]
        reference = weakref.ref(module.f)
        return reference

    assert collected(make)


def test_a_bound_method_kept_on_its_object_is_collected() -> None:
    class Model:
        def __init__(self) -> None:
            self.weights = jnp.ones(3)
            self.step = weft.jit(self.forward)

        def forward(self, x: Any) -> Any:
            return x * self.weights

    def make() -> weakref.ref[Any]:
        model = Model()
        model.step(jnp.ones(3))
        return weakref.ref(model)

    assert collected(make)


def test_static_arguments_and_callbacks_go_with_the_cache() -> None:
    """Traces own both, so that a cycle through one lives until its trace is dropped or cleared."""

    class Model:
        @functools.partial(weft.jit, static_argnums=0)
        def forward(self, x: Any) -> Any:
            weft.debug.callback(lambda value: (value, self), x)
            return x * 2

    model = Model()
    model.forward(jnp.ones(3)).block_until_ready()
    reference = weakref.ref(model)
    del model
    BUDGET.shrink(0)
    gc.collect()
    assert reference() is None


def test_a_cycle_through_a_result_is_collected() -> None:
    def make() -> weakref.ref[Any]:
        class Box:
            pass

        box = Box()
        box.f = weft.jit(lambda x: x + 1)  # type: ignore[attr-defined]
        box.f.box = box  # type: ignore[attr-defined]
        box.value = box.f(jnp.ones(3))  # type: ignore[attr-defined]
        return weakref.ref(box)

    assert collected(make)

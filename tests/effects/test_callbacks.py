"""pure_callback, io_callback and debug.callback: values, order, errors and programs beside JAX's."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.experimental
import jax.numpy
import numpy as np
import pytest

import weft
import weft.experimental
import weft.numpy as jnp
from weft import errors, lax
from weft.experimental import io_callback

F32 = weft.ShapeDtypeStruct((), "float32")


class Library:
    """One of the two libraries under common names, and what its callbacks saw."""

    def __init__(self, name: str) -> None:
        self.api: Any = weft if name == "weft" else jax
        self.lax = lax if name == "weft" else jax.lax
        self.jnp = jnp if name == "weft" else jax.numpy
        self.io_callback = weft.experimental.io_callback if name == "weft" else jax.experimental.io_callback
        self.seen: list[object] = []

    def see(self, *values: Any) -> None:
        self.seen.append([(np.shape(v), np.asarray(v).tolist()) for v in values])

    def seeing(self, result: Any) -> Any:
        def call(*values: object) -> object:
            self.see(*values)
            return result(*values) if callable(result) else result

        return call

    def pure(self, result: Any, *args: Any, shape: tuple[int, ...] = (), **kwargs: Any) -> Any:
        return self.api.pure_callback(self.seeing(result), self.api.ShapeDtypeStruct(shape, "float32"), *args, **kwargs)

    def io(self, *args: Any, result: Any = None, **kwargs: Any) -> Any:
        struct = None if result is None else self.api.ShapeDtypeStruct((), "float32")
        return self.io_callback(self.seeing(result), struct, *args, **kwargs)

    def debug(self, *args: Any, **kwargs: Any) -> None:
        self.api.debug.callback(self.see, *args, **kwargs)


def add(x: object, y: object) -> object:
    return np.asarray(np.asarray(x) + np.asarray(y), np.float32)


def double(x: object) -> object:
    return np.asarray(np.asarray(x) * 2, np.float32)


def mapped(method: str) -> str:
    return f"m.api.vmap(lambda x, y: m.pure(add, x, y, vmap_method={method!r}), (0, None))(x, 1.0)"


METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")
PURE = {
    "plain": "m.pure(double, x[1])",
    "array": "m.pure(double, x, shape=(3,)) + 1",
    "two": "m.pure(add, x[0], x[2])",
    "scan": "m.lax.scan(lambda c, v: (c + m.pure(double, v), c), 0.0, x)",
    "fori": "m.lax.fori_loop(0, 4, lambda i, s: m.pure(double, s), 1.0)",
    "while": "m.lax.while_loop(lambda s: s < 9, lambda s: m.pure(double, s), x[1])",
    "while_cond": "m.lax.while_loop(lambda s: m.pure(double, s) < 9, lambda s: s + 1, x[1])",
    "cond": "m.lax.cond(x[1] > 0, lambda v: m.pure(double, v), lambda v: v, x[1])",
    "cond_other": "m.lax.cond(x[1] > 5, lambda v: m.pure(double, v), lambda v: v, x[1])",
    "dropped": "(m.pure(double, x[0]), x)[1]",
    "vmap_scan": "m.api.vmap(lambda v: m.lax.scan(lambda c, u: (wide(c, u), u), v, x)[0])(x)",
    "two_maps": "m.api.vmap(m.api.vmap(wide, (0, None)), (None, 0))(x, x)",
    "other_axis": "m.api.vmap(lambda v: m.pure(double, v, shape=(2,), vmap_method='broadcast_all'), 1)(ones)",
    **{f"vmap_{method}": mapped(method) for method in METHODS},
}  # fmt: skip
EFFECTS = {
    "io": "m.io(x)",
    "io_result": "m.io(x, result=np.float32(3)) + 1",
    "io_unused": "(m.io(x, result=np.float32(3)), x)[1]",
    "io_order": "[m.io(v, ordered=True) for v in x]",
    "io_scan": "m.lax.scan(lambda c, v: (c + m.io(v, result=double, ordered=True), None), 0.0, x)[0]",
    "io_vmap": "m.api.vmap(lambda v: m.io(v, result=double))(x)",
    "debug": "m.debug(x, k=x[0]) if False else m.debug(x)",
    "debug_scan": "m.lax.scan(lambda c, v: (m.debug(c, v), (c + v, c))[1], 0.0, x)",
    "debug_while": "m.lax.while_loop(lambda s: s < 3, lambda s: (m.debug(s), s + 1)[1], x[0])",
    "debug_in_test": "m.lax.while_loop(lambda s: (m.debug(s), s < 3)[1], lambda s: s + 1, x[0])",
    "debug_cond": "m.lax.cond(x[1] > 0, lambda v: (m.debug(v), v)[1], lambda v: (m.debug(-v), v)[1], x[1])",
    "debug_switch": "m.lax.switch(2, [lambda v: v, lambda v: v, lambda v: (m.debug(v), v)[1]], x[1])",
    "debug_vmap": "m.api.vmap(lambda v: m.debug(v, 2.0))(x)",
    "debug_vmap_cond": "m.api.vmap(lambda v: m.lax.cond(v > 1, lambda v: (m.debug(v), v)[1], lambda v: v, v))(x)",
    "debug_grad": "m.api.grad(lambda v: (m.debug(v), m.jnp.sum(v * v))[1])(x)",
    "debug_jvp": "m.api.jvp(lambda v: (m.debug(v), v * v)[1], (x,), (x,))",
    "debug_linearize": "m.api.linearize(lambda v: (m.debug(v), v * v)[1], x)[1](x)",
    "debug_grad_scan": "m.api.grad(lambda v: m.lax.scan(lambda c, u: (m.debug(c), (c * u, None))[1], v, x)[0])(x[1])",
    "debug_remat": "m.api.grad(m.api.checkpoint(lambda v: (m.debug(v), m.jnp.sin(v))[1]))(x[1])",
    "debug_jit": "m.api.jit(lambda v: m.api.jit(lambda u: (m.debug(u), u)[1])(v) + 1)(x)",
    "debug_ordered": "[m.debug(v, ordered=True) for v in x]",
}


def outcome(name: str, text: str, jitted: bool) -> tuple[object, list[object]]:
    m = Library(name)

    def wide(a: object, b: object) -> object:
        return m.pure(add, a, b, vmap_method="expand_dims")

    names = {"m": m, "np": np, "add": add, "double": double, "wide": wide, "ones": m.jnp.ones((2, 3))}
    function = eval(f"lambda x: {text}", names)
    result = (m.api.jit(function) if jitted else function)(m.jnp.arange(3.0))
    result = jax.tree.map(np.asarray, result)
    m.api.effects_barrier()
    return result, m.seen


def assert_outcomes_agree(text: str, jitted: bool) -> None:
    (ours, seen), (theirs, expected) = (outcome(name, text, jitted) for name in ("weft", "jax"))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-6)
    assert seen == expected


@pytest.mark.oracle
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PURE)
def test_pure_callbacks_see_and_give_what_jax_s_do(name: str, jitted: bool) -> None:
    assert_outcomes_agree(PURE[name], jitted)


@pytest.mark.oracle
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", EFFECTS)
def test_effects_happen_as_often_and_in_the_order_of_jax_s(name: str, jitted: bool) -> None:
    assert_outcomes_agree(EFFECTS[name], jitted)


PRINTED = {
    "pure": "m.api.pure_callback(double, m.api.ShapeDtypeStruct((), 'float32'), x[0])",
    "pure_tree": "m.api.pure_callback(double, {'a': m.api.ShapeDtypeStruct((2,), 'int32')}, {'b': x}, k=x)",
    "io": "m.io_callback(double, m.api.ShapeDtypeStruct((), 'float32'), x[0], ordered=True)",
    "sequential": "m.api.vmap(lambda v: m.api.pure_callback(double, m.api.ShapeDtypeStruct((), 'float32'), v,"
    " vmap_method='sequential'))(x)",
    "mapped": "m.api.vmap(lambda v: m.api.pure_callback(double, m.api.ShapeDtypeStruct((), 'float32'), v,"
    " vmap_method='expand_dims'))(x)",
    "debug": "m.api.debug.callback(double, x, ordered=True)",
    "debug_vmap": "m.api.vmap(lambda v: m.api.debug.callback(double, v))(x)",
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", PRINTED)
def test_programs_print_as_jax_s(name: str) -> None:
    texts = []
    for library in ("weft", "jax"):
        m = Library(library)
        printed = str(
            m.api.make_jaxpr(eval(f"lambda x: {PRINTED[name]}", {"m": m, "double": double}))(m.jnp.arange(3.0))
        )
        printed = re.sub(r"at 0x\w+", "", printed)
        texts.append(re.sub(r"<function \S*flat_callback ", "<function ", printed))
    assert texts[0] == texts[1]


def _bad(*args: object) -> object:
    raise ValueError("the callback's own error")


ALL_WRONG = {
    "method": (lambda m: m.pure(1.0, 2.0, vmap_method="foo"), ValueError, "vmap_method must be on of"),
    "no method": (lambda m: m.api.vmap(lambda v: m.pure(1.0, v))(m.jnp.ones(2)), NotImplementedError, "method=None"),
    "64 bits": (lambda m: m.api.pure_callback(double, m.api.ShapeDtypeStruct((), "int64"), 1.0), ValueError, "64-bit"),
    "grad": (lambda m: m.api.grad(lambda v: m.pure(double, v))(1.0), ValueError, "Pure callbacks do not support JVP"),
    "grad io": (lambda m: m.api.grad(lambda v: m.io(v, result=1.0))(1.0), ValueError, "IO callbacks do not support"),
    "vmap io": (lambda m: m.api.vmap(lambda v: m.io(v, ordered=True))(m.jnp.ones(2)), ValueError, "ordered IO call"),
    "io cond": (
        lambda m: m.api.vmap(lambda v: m.lax.cond(v > 1, lambda v: m.io(v, result=1.0), lambda v: v, v))(m.jnp.ones(2)),
        NotImplementedError, "IO effect not supported in vmap-of-cond",
    ),
    "no function": (lambda m: m.api.debug.callback(3), TypeError, "must be callable"),
    "two calls": (lambda m: m.api.debug.callback(x=3), TypeError, "two-call form"),
    "shape": (lambda m: m.pure(np.ones(3, np.float32), 1.0), RuntimeError, "Incorrect output shape for return value"),
    "dtype": (lambda m: m.pure(np.int32(1), 1.0), RuntimeError, "Incorrect output dtype for return value #0"),
    "count": (lambda m: m.pure((1.0, 2.0), 1.0), RuntimeError, "Mismatched number of outputs from callback"),
    "nothing": (lambda m: m.pure(lambda v: None, 1.0), RuntimeError, "Mismatched number of outputs from callback"),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", ALL_WRONG)
def test_wrong_use_raises_what_jax_raises(name: str) -> None:
    attempt, error, text = ALL_WRONG[name]
    for library in ("weft", "jax"):
        with pytest.raises(error, match=re.escape(text)):
            jax.tree.map(np.asarray, attempt(Library(library)))


def test_results_may_be_any_tree_dtype_and_empty() -> None:
    S = weft.ShapeDtypeStruct
    tree = {"a": S((), "float32"), "b": (S((2, 0), "int8"), S((3,), "bool"))}
    made = {"a": 2.5, "b": (np.zeros((2, 0), np.int8), np.array([True, False, True]))}
    out = weft.jit(lambda: weft.pure_callback(lambda: made, tree))()
    assert float(out["a"]) == 2.5 and out["b"][0].shape == (2, 0) and out["b"][1].tolist() == [True, False, True]
    for dtype in ("bfloat16", "float16", "complex64", "uint8", "int32"):
        x = jnp.asarray([1, 2, 3], dtype)
        y = weft.jit(lambda x: weft.pure_callback(lambda v: v + v, S(x.shape, x.dtype), x))(x)
        assert y.dtype == x.dtype and np.asarray(y).astype("complex64").tolist() == [2, 4, 6]
    with weft.enable_x64(True):
        y = weft.jit(lambda x: weft.pure_callback(lambda v: np.asarray(v) / 3, S((), "float64"), x))(1.0)
        assert float(y) == 1 / 3


def test_arguments_keep_their_values_after_the_call() -> None:
    kept = []

    @weft.jit
    def f(x):
        def step(s, _):
            weft.debug.callback(kept.append, s)
            return s * 2, None

        return lax.scan(step, x + 1, None, length=5)[0]

    f(jnp.zeros(1000)).block_until_ready()
    weft.effects_barrier()
    assert [float(v[-1]) for v in kept] == [1, 2, 4, 8, 16]
    assert all(isinstance(v, weft.Array) for v in kept)


def test_callbacks_may_call_weft() -> None:
    product = weft.jit(lambda a: (a @ a).sum() + jnp.sin(a).sum() * 0)
    f = weft.jit(lambda a: weft.pure_callback(product, F32, a) * 2)
    a = jnp.ones((64, 64))
    assert float(f(a)) == 2 * 64**3
    assert float(weft.jit(lambda a: lax.fori_loop(0, 3, lambda i, s: s + f(a), 0.0))(a)) == 6 * 64**3


def test_an_error_reaches_the_caller_with_its_traceback() -> None:
    @weft.jit
    def f(x):
        weft.debug.callback(_bad, x)
        return x + 1

    with pytest.raises(ValueError, match="own error") as raised:
        f(jnp.ones(3)).block_until_ready()
    assert any(entry.name == "_bad" for entry in raised.traceback)
    with pytest.raises(ValueError, match="own error"):  # nobody uses the result: the barrier tells
        f(jnp.ones(3))
        weft.effects_barrier()
    weft.effects_barrier()
    for program in (
        lambda x: lax.scan(lambda c, v: (c + weft.pure_callback(_bad, F32, v), None), 0.0, x)[0],
        lambda x: lax.cond(x[0] > 0, lambda v: weft.pure_callback(_bad, F32, v), lambda v: v[0], x),
        lambda x: lax.while_loop(lambda v: v < 5, lambda v: weft.pure_callback(_bad, F32, v), x[0]),
        weft.vmap(lambda v: weft.pure_callback(_bad, F32, v, vmap_method="sequential")),
    ):
        for run in (program, weft.jit(program)):
            with pytest.raises(ValueError, match="own error"):
                weft.block_until_ready(run(jnp.ones(3)))


def test_ordered_effects_keep_their_order_over_calls_and_threads() -> None:
    seen: list[int] = []

    def note(i):
        seen.append(int(i))

    def run(start, n):
        def step(i):
            weft.experimental.io_callback(note, None, i, ordered=True)
            return i + 1

        return lax.while_loop(lambda i: i < start + n, step, start)

    f = weft.jit(run)
    for start in range(0, 40, 10):
        f(start, 10)
        weft.debug.callback(note, -start)  # outside of jit: after what was launched before
    weft.effects_barrier()
    assert seen == [i for start in range(0, 40, 10) for i in (*range(start, start + 10), -start)]
    seen.clear()
    threads = [threading.Thread(target=lambda k=k: f(1000 * k, 50)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    weft.effects_barrier()
    for k in range(4):
        assert [i for i in seen if i // 1000 == k] == list(range(1000 * k, 1000 * k + 50))


def test_equal_callbacks_share_one_program() -> None:
    a = weft.make_jaxpr(lambda x: weft.pure_callback(double, F32, x))(1.0)
    b = weft.make_jaxpr(lambda x: weft.pure_callback(double, F32, x))(1.0)
    assert a.eqns[0].params["callback"] == b.eqns[0].params["callback"]
    traced = [weft.jit(lambda x: weft.pure_callback(double, F32, x)) for _ in range(3)]
    assert [float(f(2.0)) for f in traced] == [4.0, 4.0, 4.0]


EXIT = """
import time, weft, weft.numpy as jnp
def slow(x):
    time.sleep(0.05)
    print("slow", float(x[0]), flush=True)
def bad(x):
    raise ValueError("unseen")
f = weft.jit(lambda x, c: (weft.debug.callback(slow, x), x + 1)[1])
x = jnp.ones(1_000_000)
for _ in range(3):
    x = f(x, 1)
weft.jit(lambda x: (weft.debug.callback(bad, x), x + 1)[1])(x)
print("exit", flush=True)
"""


def test_callbacks_finish_before_the_interpreter_ends() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert sorted(done.stdout.split("\n")) == ["", "exit", "slow 1.0", "slow 2.0", "slow 3.0"]
    assert "ValueError: unseen" in done.stderr


def test_callbacks_get_keys_as_keys() -> None:
    keys = weft.random.split(weft.random.key(0), 3)
    seen: list[object] = []
    note = weft.jit(lambda k: weft.debug.callback(lambda k: seen.append((k.shape, str(k.dtype))), k))
    note(keys)
    note(keys[0])
    weft.effects_barrier()
    assert seen == [((3,), "key<fry>"), ((), "key<fry>")]

    def draw(key):
        return weft.pure_callback(lambda k: weft.random.uniform(k), F32, key, vmap_method="sequential")

    expected = weft.vmap(weft.random.uniform)(keys).tolist()
    assert weft.vmap(draw)(keys).tolist() == weft.jit(weft.vmap(draw))(keys).tolist() == expected


@pytest.mark.parametrize("kind", ["pure", "io", "ordered"])
@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_callbacks_give_keys(kind: str, wrap: Any) -> None:
    keys = weft.random.split(weft.random.key(0), 3)
    call = {"pure": weft.pure_callback, "io": io_callback, "ordered": functools.partial(io_callback, ordered=True)}[
        kind
    ]

    def later(key: Any) -> Any:
        return call(lambda k: weft.random.fold_in(k, 7), weft.ShapeDtypeStruct(key.shape, key.dtype), key)

    def both(k: Any, x: Any) -> Any:
        types = weft.ShapeDtypeStruct((2,), k.dtype), weft.ShapeDtypeStruct(x.shape, x.dtype)
        return call(lambda k, x: (weft.random.split(k), x * 2), types, k, x)

    words = lambda k: np.asarray(weft.random.key_data(k)).tolist()
    wanted = weft.vmap(lambda k: weft.random.fold_in(k, 7))(keys)
    assert words(wrap(later)(keys[1])) == words(wanted[1])
    assert float(wrap(lambda k: weft.random.normal(later(k)))(keys[1])) == float(weft.random.normal(wanted[1]))
    assert words(wrap(lambda ks: weft.lax.scan(lambda c, k: (c, later(k)), 0, ks)[1])(keys)) == words(wanted)
    pair, doubled = wrap(both)(keys[0], jnp.ones(2))
    assert words(pair) == words(weft.random.split(keys[0])) and doubled.tolist() == [2, 2]


KEY = weft.random.key(0)
ONE_KEY = weft.ShapeDtypeStruct((), KEY.dtype)
BROKEN = {
    "shape of keys": (weft.random.split(KEY), ONE_KEY, "shape"),
    "words": (np.uint32([1, 2]), ONE_KEY, "shape"),
    "float for key": (np.float32(1), ONE_KEY, "dtype"),
    "key for float": (KEY, F32, "dtype"),
}


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(("result", "promised", "wrong"), BROKEN.values(), ids=BROKEN)
def test_callbacks_that_give_other_keys_than_promised(result: Any, promised: Any, wrong: str, wrap: Any) -> None:
    with pytest.raises(errors.JaxRuntimeError, match=f"Incorrect output {wrong} for return value #0"):
        weft.block_until_ready(wrap(lambda: weft.pure_callback(lambda: result, promised))())


JOINS = """
import faulthandler, sys, threading
import numpy as np
import weft, weft.experimental, weft.numpy as jnp
faulthandler.dump_traceback_later(40, exit=True)
F32 = weft.ShapeDtypeStruct((), np.float32)
total = weft.jit(lambda x: jnp.sin(x).sum())
large = jnp.full((1500, 1500), 0.5)
wanted = float(total(large))
before = total(large * 2)
again = weft.jit(lambda x: weft.pure_callback(lambda v: np.float32(v), F32, x) + 1)
nested = weft.jit(lambda x: weft.pure_callback(lambda v: joined("large", v), F32, x))
KINDS = {
    "small": lambda: float(jnp.float32(1) + 1) == 2,
    "large": lambda: float(total(large)) == wanted,
    "chain": lambda: float(total(total(large) * large) * 0 + 3) == 3,
    "pending": lambda: np.isfinite(float(before + 1)),
    "callback": lambda: float(again(1.0)) == 2,
    "eager": lambda: float(weft.pure_callback(lambda v: np.float32(v), F32, 1.0)) == 1,
    "barrier": lambda: weft.effects_barrier() is None,
    "nested": lambda: float(nested(1.0)) == 1,
}

def joined(kind, _):
    out = []
    thread = threading.Thread(target=lambda: out.append(KINDS[kind]()))
    thread.start()
    thread.join()
    return np.float32(out[0])

for kind in KINDS:
    f = weft.jit(lambda x, kind=kind: weft.pure_callback(lambda v: joined(kind, v), F32, jnp.sin(x).sum()))
    behind = f(large), total(large)
    assert float(behind[0]) == 1 and float(behind[1]) == wanted, kind
    assert float(f(1.0)) == 1, kind
print("done")
"""


def test_callbacks_may_join_threads_that_call_weft() -> None:
    done = subprocess.run([sys.executable, "-c", JOINS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_what_one_thread_prints_stays_in_order_while_a_callback_is_slow() -> None:
    seen: list[str] = []
    started = threading.Event()

    def slow(value: Any) -> None:
        started.set()
        threading.Event().wait(0.2)
        seen.append("slow")

    first = weft.jit(lambda x: weft.debug.callback(slow, x, ordered=True))
    second = weft.jit(lambda x: (weft.debug.callback(lambda v: seen.append("next"), x, ordered=True), x + 1)[1])
    first(1.0)
    value = second(1.0)
    assert started.wait(30)
    assert float(weft.jit(jnp.sum)(jnp.ones((600, 600)))) == 360_000  # computes nothing that has to wait
    assert float(value) == 2
    assert seen == ["slow", "next"]

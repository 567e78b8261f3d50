"""A trace belongs to a function object: one made anew is traced anew, and so sees everything that has changed.

What it records may be what an earlier one recorded; then it runs the same program.
"""

from __future__ import annotations

import builtins
import enum
import functools
import gc
import math
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import compiler, lax, random, tree_util
from weft.compiler import context
from weft.core.caches import fingerprint
from weft.core.caches.store import TRACES
from weft.dispatch.programs import trace_cache
from weft.extend.random import define_prng_impl
from weft.operations.pointwise.elementwise import FLOAT, elementwise

X = wnp.arange(3.0)


def built() -> int:
    return compiler.stats()["programs_built"]


def test_equal_functions_made_anew_run_one_program() -> None:
    def make(c: float) -> Any:
        return lambda x: wnp.tanh(x) * c

    results = [weft.jit(make(2.0))(X)]
    before = built()
    for _ in range(20):
        jitted = weft.jit(make(2.0))
        results.append(jitted(X))
        assert jitted.cache_info().traces == 1
    assert built() == before
    assert all(np.array_equal(results[0], other) for other in results)
    other = weft.jit(make(3.0))(X)
    assert built() > before
    np.testing.assert_array_equal(other, wnp.tanh(X) * 3.0)


SCALE: Any = 2.0


def helper(x):
    return x * SCALE


def outer_helper(x):
    return helper(x) + 1


class Mode(enum.Enum):
    SCALED = "scaled"

    def __call__(self, x):
        return x * SCALE


class Model:
    scale = 2.0

    def __call__(self, x):
        return x * self.scale

    def method(self, x):
        return x * self.scale


TABLE = {"scale": 2.0}
MODEL = Model()

# each gives a new function object that reads the global state
MAKERS: dict[str, Callable[[], Callable[..., Any]]] = {
    "global": lambda: lambda x: x * SCALE,
    "helper": lambda: lambda x: helper(x),
    "helper of a helper": lambda: lambda x: outer_helper(x) - 1,
    "partial": lambda: functools.partial(lambda a, x: a * x, SCALE),
    "default": lambda: types.FunctionType((lambda x, a=0: x * a).__code__, globals(), "f", (SCALE,)),
    "closure": lambda: (lambda c: lambda x: x * c)(SCALE),
    "inner code": lambda: lambda x: (lambda a: a * SCALE)(x),
    "jit": lambda: (lambda f: lambda x: f(x))(weft.jit(lambda x: helper(x))),
    "scan": lambda: lambda x: lax.scan(lambda c, _: (c, helper(c)), x, None, length=2)[1][0],
    "while": lambda: lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, helper(c[1])), (0, x))[1],
    "fori": lambda: lambda x: lax.fori_loop(0, 1, lambda i, c: helper(c), x),
    "cond": lambda: lambda x: lax.cond(x[0] < 1, lambda v: helper(v), lambda v: v, x),
    "vmap": lambda: weft.vmap(lambda x: helper(x)),
    "grad": lambda: weft.grad(lambda x: (helper(x) * weft.lax.stop_gradient(x)).sum()),
    "checkpoint": lambda: weft.checkpoint(lambda x: helper(x)),
    "custom_jvp": lambda: _with_rule(lambda x: helper(x)),
    "enum": lambda: lambda x: Mode.SCALED(x),
    "table": lambda: lambda x: x * TABLE["scale"],
    "object": lambda: lambda x: MODEL(x),
    "method": lambda: MODEL.method,
    "text": lambda: lambda x: x * float(f"{SCALE:.1f}"),
    "evaluated": lambda: eval("lambda x: x * SCALE", globals()),
}


def _with_rule(f):
    made = weft.custom_jvp(f)
    made.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))
    return made


@pytest.mark.parametrize("name", MAKERS)
def test_a_function_made_anew_sees_what_has_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (2.0, 3.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        monkeypatch.setitem(TABLE, "scale", value)
        monkeypatch.setattr(Model, "scale", value)
        np.testing.assert_array_equal(weft.jit(MAKERS[name]())(X), np.arange(3) * value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True), (1, 1.0), (1, 2), (0.0, -0.0), (1.0, 1 + 0j), (0j, complex(0.0, -0.0)), ((1, 2, 3), (1, 3, 3)),
        (np.float32(1), np.float64(1)), (np.int8(1), np.uint8(1)), (np.ones(3), np.zeros(3)),
        (wnp.arange(3.0), wnp.ones(3)), ([1.0], [2.0]),
    ],
    ids=repr,
)  # fmt: skip
def test_values_of_closures_are_told_apart(first: Any, second: Any) -> None:
    def make(value: Any) -> Any:
        return lambda x: x * wnp.asarray(value)

    for value in (first, second, first):
        found, right = weft.jit(make(value))(X), make(value)(X)
        assert found.dtype == right.dtype
        assert np.asarray(found).tobytes() == np.asarray(right).tobytes()


def test_the_object_itself_is_not_looked_at_again() -> None:
    value = 1.0

    def f(x):
        return x * value

    assert weft.jit(f)(2.0) == 2.0
    value = 3.0
    assert weft.jit(f)(2.0) == 2.0  # as in JAX: the same function object, the same trace
    assert weft.jit(f)(wnp.ones(2)).tolist() == [3.0, 3.0]


def test_static_functions_met_before_are_told_apart() -> None:
    """A function that is met a second time, as another argument."""

    def double(x):
        return x * 2

    def more(x):
        return x + 10

    def make():
        return weft.jit(lambda x, a, b: a(b(double(x))), static_argnums=(1, 2))

    for one, other in ((more, double), (more, more), (double, more), (double, double)):
        np.testing.assert_array_equal(make()(X, one, other), one(other(double(X))))


def test_what_numpy_and_types_carry_is_seen() -> None:
    def make(value: Any) -> Any:
        return lambda x: x * (1.0 if value.sharding is None else 2.0)

    device = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    structs = [weft.ShapeDtypeStruct((2,), "int8"), weft.ShapeDtypeStruct((2,), "int8", sharding=device)]
    assert [float(weft.jit(make(struct))(1.0)) for struct in structs] == [1.0, 2.0]
    with np.errstate(divide="ignore"):
        found = [float(weft.jit(lambda x: x * (np.geterr()["divide"] == "ignore"))(1.0))]
    found.append(float(weft.jit(lambda x: x * (np.geterr()["divide"] == "ignore"))(1.0)))
    assert found == [1.0, 0.0]
    with np.printoptions(precision=3):
        assert weft.jit(lambda x: x * np.get_printoptions()["precision"])(1.0) == 3.0
    assert weft.jit(lambda x: x * np.get_printoptions()["precision"])(1.0) == 8.0


def test_builtins_and_modules_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def make():
        return lambda x: x * divmod(7, 4)[0] * math.floor(math.pi)

    assert weft.jit(make())(1.0) == 3.0
    monkeypatch.setattr(math, "pi", 4.5)
    assert weft.jit(make())(1.0) == 4.0
    monkeypatch.setattr(builtins, "divmod", lambda a, b: (7, 7))
    assert weft.jit(make())(1.0) == 28.0
    monkeypatch.undo()
    monkeypatch.setattr(wnp, "sin", wnp.cos)
    assert weft.jit(lambda x: wnp.sin(x))(0.0) == 1.0


def test_primitives_of_one_name_are_told_apart() -> None:
    """A user defines an operation, and defines it again, as in a notebook."""

    def defined(factor: float) -> Any:
        made = elementwise(
            "times_something",
            FLOAT,
            scalar=lambda emit, x: emit.mul(x, emit.constant(factor, x.dtype) if hasattr(x, "dtype") else factor),
            partials=(None,),
            reference=lambda x: np.asarray(x * factor, x.dtype),
        )
        return lambda x: made.bind(x)

    assert not elementwise_is_own(defined(2.0))
    for operation in (lax.sin_p, lax.add_p, lax.reduce_sum_p):
        assert operation.is_own
    one, other = (weft.make_jaxpr(defined(factor))(X) for factor in (2.0, 3.0))
    assert fingerprint.fingerprint(one) != fingerprint.fingerprint(other)
    assert not fingerprint.holds_everywhere(fingerprint.fingerprint(one))


def elementwise_is_own(bound: Any) -> bool:
    return weft.make_jaxpr(bound)(X).eqns[0].primitive.is_own


def test_generators_of_one_name_are_told_apart() -> None:
    def defined(value: int) -> Any:
        return define_prng_impl(
            key_shape=(1,),
            seed=lambda s: wnp.asarray(s, "uint32")[None],
            split=lambda key, shape: wnp.broadcast_to(key, (*shape, 1)),
            random_bits=lambda key, width, shape: wnp.full(shape, value, f"uint{width}"),
            fold_in=lambda key, data: key,
            name="mine",
            tag="m",
        )

    for value in (5, 9):
        key = random.key(1, impl=defined(value))
        assert weft.jit(lambda key: random.bits(key))(key) == value


def test_digests_of_programs_hold_everywhere_unless_they_name_an_object() -> None:
    def digest(f: Any, *args: Any) -> str:
        return fingerprint.fingerprint(weft.make_jaxpr(f)(*args))

    plain = [
        (lambda x: wnp.sin(x).sum(), X),
        (lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x), X),
        (lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x), X),
        (lambda k: random.normal(k, (3,)), random.key(1)),
        (lambda x: wnp.argsort(x), X),
        (lambda x: weft.nn.relu(x), X),
    ]
    for f, x in plain:
        assert fingerprint.holds_everywhere(digest(f, x))
        assert digest(f, x) == digest(f, x)
    called = lambda x: weft.pure_callback(lambda y: y, x, x)
    assert not fingerprint.holds_everywhere(digest(called, X))


def test_arrays_are_not_kept_longer_than_their_function() -> None:
    def make(w):
        inner = weft.jit(lambda x: x + w)
        return lambda x: inner(x) + w

    a = wnp.ones(3)
    assert weft.jit(make(a))(X)[0] == 2.0
    reference = weakref.ref(a)
    del a
    gc.collect()
    assert reference() is None
    for value in range(5):  # new arrays, perhaps at the old address
        assert weft.jit(make(wnp.full(3, float(value))))(X)[0] == 2 * value


def test_traces_go_with_their_functions() -> None:
    def many(count: int) -> None:
        for number in range(count):
            weft.jit(lambda x, n=number: x * n)(X)

    many(20)
    gc.collect()
    before = len(TRACES.entries), len(trace_cache.records), weft.runtime.dispatch_count()
    many(300)
    gc.collect()
    after = len(TRACES.entries), len(trace_cache.records), weft.runtime.dispatch_count()
    assert all(now <= then + 5 for now, then in zip(after, before, strict=True))


def test_tracers_of_other_traces_are_not_shared() -> None:
    def make(w):
        return lambda x: x + w

    @weft.jit
    def outer(a, b):
        return weft.jit(make(a))(1.0), weft.jit(make(b))(1.0)

    assert [float(value) for value in outer(1.0, 5.0)] == [2.0, 6.0]


def test_names_are_kept_apart() -> None:
    def make(name):
        f = lambda x: x * 11
        f.__name__ = name
        return f

    assert weft.jit(make("a")).trace(1.0).fun_name == "a"
    assert weft.jit(make("b")).trace(1.0).fun_name == "b"


def test_contexts_tell_programs_apart() -> None:
    here = context.current()
    assert here.key == context.current().key
    changes = [("process", 1), ("processes", 2), ("devices", 7), ("token", -1)]
    assert len({here.key, *[here._replace(**{name: value}).key for name, value in changes]}) == 1 + len(changes)
    other = here.target.replace(features=here.target.features + ",+other")
    assert here._replace(target=other).key != here.key
    plain = here._replace(check=False)
    texts = {plain.text, *[plain._replace(**{name: value}).text for name, value in changes[:3]]}
    assert None not in texts and len(texts) == 4
    assert (
        plain._replace(skip="fuse").text is plain._replace(show="fuse").text is plain._replace(check=True).text is None
    )
    with weft.enable_x64(True):
        assert context.current()._replace(check=False).text not in texts
    tree_util.tree_map(hash, here.key)


def test_a_program_that_is_used_again_stays_however_often_its_functions_die() -> None:
    weft.jit(lambda x: wnp.cosh(x) * 1.375)(X)
    before = built()
    for _ in range(300):
        weft.jit(lambda x: wnp.cosh(x) * 1.375)(X)
    assert built() == before

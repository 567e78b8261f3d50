"""When a function object made anew shares an earlier trace, and when it must not.

Every test calls two functions made alike and asks whether the second was traced: sharing is allowed only when
everything the code reads is the same, and a changed value of every kind must be seen.
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
from weft import tree_util
from weft.core.store import TRACES
from weft.dispatch import jit

X = wnp.arange(3.0)


def name_of(value: Any) -> str:
    """A test id that is the same in every process."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def traces(function: Callable[..., Any], *args: Any, **options: Any) -> int:
    """How often a fresh jitted ``function`` is traced by one call."""
    jitted = weft.jit(function, **options)
    jitted(*(args or (X,)))
    return jitted.cache_info().traces


def closure(value: Any) -> Callable[..., Any]:
    def f(x):
        return (x, value)[0] * 2

    return f


class Mode(enum.Enum):
    A = 1
    B = 2


class Sneaky(int):
    pass


def test_the_loops_of_the_tutorial() -> None:
    def body(i):
        return i + 1

    makers = (lambda: lambda x: body(x), lambda: functools.partial(body), lambda: body)
    for make in makers:
        i, count = weft.device_put(0), 0
        for _ in range(20):
            jitted = weft.jit(make())
            i = jitted(i)
            count += jitted.cache_info().traces
        assert int(i) == 20
        assert count <= 1


EQUAL_VALUES = [
    (None, None), (True, True), (7, 7), (2.5, 2.5), (float("nan"), float("nan")), (1 + 2j, 1 + 2j), ("a", "a"),
    (b"a", b"a"), (Mode.A, Mode.A), (np.dtype("float32"), np.dtype("float32")),
    (weft.ShapeDtypeStruct((2,), "int8"), weft.ShapeDtypeStruct((2,), "int8")),
    (tree_util.tree_structure((1, [2])), tree_util.tree_structure((3, [4]))),
    ((1, (2.0, "x")), (1, (2.0, "x"))), (frozenset({1, 2}), frozenset({2, 1})), (wnp.sin, wnp.sin),
    (math.pi, math.pi), (X, X), (np.float32, np.float32), (wnp.float32, wnp.float32),
]  # fmt: skip

CHANGED_VALUES = [
    (None, False), (1, True), (1, 1.0), (1, 2), (2.0, 2.5), (0.0, -0.0), (1.0, 1 + 0j), (0j, complex(0.0, -0.0)),
    ("a", "b"), ("a", b"a"), (Mode.A, Mode.B), (np.dtype("float32"), np.dtype("int32")),
    (weft.ShapeDtypeStruct((2,), "int8"), weft.ShapeDtypeStruct((3,), "int8")),
    (tree_util.tree_structure((1, [2])), tree_util.tree_structure([1, [2]])),
    ((1, 2), (1, 3)), ((1, 2), (1, 2, 3)), ((1,), (True,)), (frozenset({1}), frozenset({2})), (wnp.sin, wnp.cos),
    (wnp.arange(3.0), wnp.arange(3.0)), (np.float32, np.float64),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), EQUAL_VALUES, ids=name_of)
def test_equal_values_share(first: Any, second: Any) -> None:
    assert traces(closure(first)) <= 1
    assert traces(closure(second)) == 0


@pytest.mark.parametrize(("first", "second"), CHANGED_VALUES, ids=name_of)
def test_changed_closure_values_do_not(first: Any, second: Any) -> None:
    weft.clear_caches()
    assert [traces(closure(first)) for _ in range(3)] == [1, 0, 0]  # found by identity, then by the call before
    assert [traces(closure(second)) for _ in range(3)] == [1, 0, 0]
    assert traces(closure(first)) == 0


@pytest.mark.parametrize(
    "value",
    [
        [1], {"a": 1}, {1}, np.ones(2), np.float32(1), object(), Sneaky(1), types.SimpleNamespace(a=1), (1, [2]),
        types.ModuleType("mine"), math, iter([1]), functools.lru_cache(lambda: 1), Mode, bytearray(b"a"), range(3),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_values_that_may_change_are_never_shared(value: Any) -> None:
    assert traces(closure(value)) == 1
    assert traces(closure(value)) == 1


def with_defaults(value: Any, other: Any) -> Callable[..., Any]:
    def f(x, a=value, *, b=other):
        return x * 2

    return f


def test_defaults() -> None:
    assert traces(with_defaults(1, 2)) == 1
    assert traces(with_defaults(1, 2)) == 0
    assert traces(with_defaults(2, 2)) == 1
    assert traces(with_defaults(1, 3)) == 1
    assert traces(with_defaults(1, [2])) == 1
    assert traces(with_defaults(1, [2])) == 1


SCALE = 2.0


def read_global() -> Callable[..., Any]:
    return lambda x: x * SCALE


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [weft.jit(read_global())(X)[1]]
    assert traces(read_global()) == 0
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    results.append(weft.jit(read_global())(X)[1])
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert traces(read_global()) == 1
    monkeypatch.setitem(globals(), "SCALE", [3.0][0])
    assert traces(read_global()) == 0
    assert [float(value) for value in results] == [2.0, 3.0]


def helper(x):
    return x * SCALE


def inner_helper(x):
    return helper(x) + 1


def test_globals_of_functions_that_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def make():
        return lambda x: inner_helper(x)

    assert traces(make()) == 1
    assert traces(make()) == 0
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert traces(make()) == 1
    assert weft.jit(make())(1.0) == 6.0
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    assert weft.jit(make())(1.0) == 1.0


def test_closures_of_functions_that_are_called() -> None:
    def make(c):
        def g(x):
            return x * c

        return lambda x: g(x)

    assert traces(make(2.0)) == 1
    assert traces(make(2.0)) == 0
    assert traces(make(3.0)) == 1
    assert traces(make([2.0][0])) == 0


def test_builtins(monkeypatch: pytest.MonkeyPatch) -> None:
    def make():
        return lambda x: x * divmod(7, 4)[0]

    assert traces(make()) == 1
    assert traces(make()) == 0
    monkeypatch.setattr(builtins, "divmod", lambda a, b: (7, 7))
    try:
        count = traces(make())
    finally:
        monkeypatch.undo()
    assert count == 1


def test_module_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    def make():
        return lambda x: wnp.sin(x) * math.pi

    assert traces(make()) == 1
    assert traces(make()) == 0
    monkeypatch.setattr(math, "pi", 3.0)
    assert traces(make()) == 1
    monkeypatch.undo()
    monkeypatch.setattr(wnp, "sin", lambda x: x)
    assert weft.jit(make())(1.0) == np.float32(math.pi)


def test_cells_that_change_between_calls() -> None:
    value = 1.0

    def make():
        return lambda x: x * value

    assert weft.jit(make())(2.0) == 2.0
    assert weft.jit(make())(2.0) == 2.0
    value = 3.0
    assert weft.jit(make())(2.0) == 6.0


def test_the_object_itself_is_not_looked_at_again() -> None:
    value = 1.0

    def f(x):
        return x * value

    assert weft.jit(f)(2.0) == 2.0
    value = 3.0
    assert weft.jit(f)(2.0) == 2.0  # as in JAX: the same function object, the same trace
    assert weft.jit(f)(wnp.ones(2)).tolist() == [3.0, 3.0]


def test_partials() -> None:
    def f(a, x, b=1.0):
        return x * a * b

    def make(a, **kwargs):
        return functools.partial(f, a, **kwargs)

    assert traces(make(2.0)) == 1
    assert traces(make(2.0)) == 0
    assert traces(make(2)) == 1
    assert traces(make(2.0, b=1.0)) == 1
    assert traces(make(2.0, b=1.0)) == 0
    assert traces(make(2.0, b=2.0)) == 1
    assert traces(make([2.0][0])) == 0
    assert weft.jit(make(3.0, b=2.0))(1.0) == 6.0


def test_jitted_callables() -> None:
    def make(c, **options):
        inner = weft.jit(lambda x, n=1: x * c, **options)
        return lambda x: inner(x)

    assert traces(make(2.0)) == 1
    assert traces(make(2.0)) == 0
    assert traces(make(3.0)) == 1
    assert traces(make(2.0, static_argnums=1)) == 1
    assert traces(make(2.0, static_argnums=1)) == 0


def test_arrays_count_by_identity_and_are_held_weakly() -> None:
    def make(w):
        return lambda x: x + w

    a, b = wnp.ones(3), wnp.ones(3)
    assert traces(make(a)) == 1
    assert traces(make(a)) == 0
    assert traces(make(b)) == 1
    assert weft.jit(make(a))(X).tolist() == [1.0, 2.0, 3.0]
    reference = weakref.ref(a)
    del a
    gc.collect()
    assert reference() is None
    for value in range(5):  # new arrays, perhaps at the old address
        assert weft.jit(make(wnp.full(3, float(value))))(X)[0] == value


def test_arrays_in_inner_functions_are_held_weakly() -> None:
    def make(w):
        inner = weft.jit(lambda x: x + w)
        return lambda x: inner(x)

    a = wnp.ones(3)
    assert weft.jit(make(a))(X)[0] == 1.0
    reference = weakref.ref(a)
    del a
    gc.collect()
    assert reference() is None


LOG: list[Any] = []


def stores_item(x):
    table = {}
    table["a"] = x
    return table["a"]


def appends_to_global(x):
    LOG.append(x.shape)
    return x


def stores_attribute(x):
    stores_item.seen = 1
    return x


def stores_global(x):
    global COUNT
    COUNT = 1
    return x


def reads_function_attribute(x):
    return x * helper.__defaults__ if helper.__defaults__ else x


def reads_alias_attribute(x):
    h = helper
    return x if h.__doc__ is None else x * 2


def imports(x):
    import math as m  # noqa: PLC0415 - an import inside the function is what is tested

    return x * m.pi


def prints(x):
    print(end="")
    return x


def uses_getattr(x):
    return getattr(x, "T")  # noqa: B009 - getattr of a constant name is what is tested


def uses_random(x):
    return x * np.random.normal()


def opens_file(x):
    with open(__file__) as file:
        return x * len(file.name)


def uses_config(x):
    return x if weft.config.read("fast") else -x


REFUSED = [
    stores_item, appends_to_global, stores_attribute, stores_global, reads_function_attribute, reads_alias_attribute,
    imports, prints, uses_getattr, uses_random, opens_file, uses_config,
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_code_that_is_never_shared(function: Any) -> None:
    def again() -> Any:
        return types.FunctionType(function.__code__, function.__globals__, function.__name__)

    assert traces(again()) == 1
    assert traces(again()) == 1


def test_nonlocal_stores_are_never_shared() -> None:
    count = 0

    def make():
        def f(x):
            nonlocal count
            count += 1
            return x

        return f

    weft.jit(make())(X)
    weft.jit(make())(X)
    assert count == 2


def test_objects_and_methods_are_never_shared() -> None:
    class Model:
        scale = 2.0

        def __call__(self, x):
            return x * self.scale

        def method(self, x):
            return x * self.scale

    model = Model()
    assert weft.jit(lambda x: model(x))(1.0) == 2.0
    model.scale = 3.0
    assert weft.jit(lambda x: model(x))(1.0) == 3.0
    assert weft.jit(model.method)(1.0) == 3.0
    model.scale = 4.0
    assert weft.jit(model.method)(1.0) == 4.0


def test_tracers_are_never_shared() -> None:
    def make(w):
        return lambda x: x + w

    @weft.jit
    def outer(a, b):
        return weft.jit(make(a))(1.0), weft.jit(make(b))(1.0)

    assert [float(value) for value in outer(1.0, 5.0)] == [2.0, 6.0]


def test_nested_functions_and_comprehensions_share() -> None:
    def make(c):
        def f(x):
            y = wnp.sin(x)
            scaled = [y * k for k in range(3)]
            total = sum(v for v in scaled)
            return tree_util.tree_map(lambda a: a * c + y, total)

        return f

    assert traces(make(2.0)) == 1
    assert traces(make(2.0)) == 0
    assert traces(make(3.0)) == 1


def test_inner_code_counts() -> None:
    def make(c):
        def f(x):
            return (lambda a: a * c)(x)

        return f

    assert weft.jit(make(2.0))(1.0) == 2.0
    assert weft.jit(make(3.0))(1.0) == 3.0


def test_attributes_of_traced_values_share() -> None:
    def make():
        return lambda x: x.T.sum() * x.shape[0]

    assert traces(make()) == 1
    assert traces(make()) == 0


def test_containers_of_user_types_are_never_shared() -> None:
    @tree_util.register_pytree_node_class
    class Box:
        def __init__(self, value):
            self.value = value

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    def make():
        return lambda box: box.value * 2

    assert traces(make(), Box(1.0)) == 1
    assert traces(make(), Box(1.0)) == 1
    assert traces(lambda p: p["a"] * 2, {"a": 1.0}) == 1


def test_static_arguments_are_part_of_the_identity() -> None:
    def make():
        return lambda x, n: x * n

    options = {"static_argnums": 1}
    assert traces(make(), X, 2, **options) == 1
    assert traces(make(), X, 2, **options) == 0
    assert traces(make(), X, 2.0, **options) == 1
    assert traces(make(), X, 3, **options) == 1
    functions = [lambda x: x + 1, lambda x: x + 2]
    results = [weft.jit(lambda x, f: f(x), **options)(1.0, f) for f in functions]
    assert [float(value) for value in results] == [2.0, 3.0]


def test_argument_types_are_part_of_the_key() -> None:
    def make():
        return lambda x: x * 2

    assert traces(make(), X) == 1
    assert traces(make(), wnp.ones(4)) == 1
    assert traces(make(), X) == 0
    assert traces(make(), 1.0) == 1
    assert traces(make(), wnp.float32(1.0)) == 1
    with weft.enable_x64(True):
        assert traces(make(), 1.0) == 1
    assert traces(make(), 1.0) == 0


def test_names_are_kept_apart() -> None:
    def make(name):
        f = closure(11)
        f.__name__ = name
        return f

    assert weft.jit(make("a")).trace(1.0).fun_name == "a"
    assert weft.jit(make("b")).trace(1.0).fun_name == "b"


def test_sharing_can_be_turned_off() -> None:
    weft.config.share_equal_functions = False
    try:
        assert traces(closure(21)) == 1
        assert traces(closure(21)) == 1
    finally:
        weft.config.share_equal_functions = True
    assert [traces(closure(21)) for _ in range(3)] == [1, 0, 0]
    with weft.share_equal_functions(False):
        assert traces(closure(21)) == 1
    weft.config.share_equal_functions = False
    try:
        assert traces(closure(21)) == 1
    finally:
        weft.config.share_equal_functions = True


@pytest.mark.parametrize("calls", [1, 3])
def test_clearing_one_function_clears_what_it_shares(calls: int) -> None:
    for _ in range(calls):
        jitted = weft.jit(closure(31))
        jitted(X)
    jitted.clear_cache()
    assert traces(closure(31)) == 1


@pytest.mark.parametrize(
    "argument",
    [X, 3, 2.5, 1j, True, np.arange(3, dtype="int16"), np.float16(2), np.arange(6.0)[::2], [X, (2, {"a": X})]],
    ids=name_of,
)  # fmt: skip
def test_equal_functions_after_the_second_run_what_those_ran(argument: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return weft.jit(lambda tree: weft.tree.map(lambda x: x * 2, tree))

    first = make()(argument)
    make()(argument)
    monkeypatch.setattr(jit.JitState, "seek", lambda *_: pytest.fail("looked for a trace"))
    jitted = make()
    for found in (jitted(argument), jitted(argument)):
        assert weft.tree.structure(found) == weft.tree.structure(first)
        for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(first), strict=True):
            np.testing.assert_array_equal(one, other)
            assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
    assert (jitted.cache_info().hits, jitted.cache_info().traces) == (1, 0)


def test_a_function_jitted_anew_runs_what_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    def triple(x):
        return x * 3

    weft.jit(triple)(X)
    monkeypatch.setattr(jit.JitState, "seek", lambda *_: pytest.fail("looked for a trace"))
    jitted = weft.jit(triple)
    np.testing.assert_array_equal(jitted(X), np.arange(3.0) * 3)
    assert jitted.cache_info().traces == 0


def test_options_count_for_calls_that_equal_functions_answered() -> None:
    def call(x: Any) -> Any:
        return weft.jit(lambda x: wnp.log(x) * 1.5)(x)

    for _ in range(3):
        assert wnp.isnan(call(-1.0))
    with weft.debug_nans(True), pytest.raises(FloatingPointError):
        call(-1.0)
    with weft.enable_x64(True):
        assert call(2.0).dtype == np.float64
    with weft.disable_jit():
        assert call(np.float32(1)) == 0
    assert call(1).dtype == np.float32
    with pytest.raises(OverflowError):
        call(2**40)


def test_a_program_that_left_the_caches_answers_no_equal_function() -> None:
    def make() -> Any:
        return weft.jit(closure(41))

    jitted = [make() for _ in range(3)]
    for function in jitted:
        function(X)
    found = jitted[0]._state.record()
    for trace in [TRACES.entries[key] for key in found.keys]:
        TRACES.drop(trace)
    assert not any(function._cache_size() for function in jitted)
    del function, trace, found
    assert traces(closure(41)) == 1


def _helper(x):
    return x * _FACTOR


_FACTOR = 2


def test_what_a_remembered_identity_rests_on_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def make():
        return lambda x: _helper(x) + abs(1)

    helper = _helper
    assert [traces(make()) for _ in range(3)] == [1, 0, 0]
    monkeypatch.setitem(globals(), "_FACTOR", 3)
    assert [traces(make()) for _ in range(2)] == [1, 0]
    monkeypatch.setitem(globals(), "_FACTOR", 2)
    assert traces(make()) == 0
    monkeypatch.setattr(helper, "__code__", (lambda x: x * _FACTOR * 5).__code__)
    assert [traces(make()) for _ in range(2)] == [1, 0]
    monkeypatch.setattr(helper, "__defaults__", (4,))
    assert traces(make()) == 1
    monkeypatch.setitem(globals(), "abs", lambda x: x + 1)
    assert traces(make()) == 1


def test_remembered_identities_keep_no_function_alive() -> None:
    def scope() -> Any:
        def inner(x):
            return x + 1

        for _ in range(3):
            weft.jit(lambda x: inner(x))(X)
        return weakref.ref(inner)

    reference = scope()
    gc.collect()
    assert reference() is None


def test_partials_without_arguments_share_and_see_changes() -> None:
    def make(value: int) -> Any:
        return functools.partial(lambda x: x * value)

    assert [traces(make(7)) for _ in range(3)] == [1, 0, 0]
    assert [traces(make(8)) for _ in range(2)] == [1, 0]
    assert traces(make(7)) == 0

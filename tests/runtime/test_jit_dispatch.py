"""JitFunction: which calls share a program, which go to Python, and that no mistake of either side crashes."""

from __future__ import annotations

import collections
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.runtime import machine_code
from weft import runtime
from weft.compiler.plans.instructions import DonatedOutput, InputOutput, NewOutput

Answer = tuple[Any, runtime.CacheEntry | None]


class AddOne:
    """A slow path for f(tree) = tree + 1 that counts its calls; static arguments are ignored."""

    def __init__(
        self, static_argnums: tuple[int, ...] = (), static_argnames: tuple[str, ...] = (), donate: bool = False
    ) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.static_argnums, self.static_argnames, self.donate = static_argnums, static_argnames, donate
        self.function = runtime.JitFunction(self, static_argnums, static_argnames)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        self.calls.append((args, kwargs))
        args = tuple(a for i, a in enumerate(args) if i not in self.static_argnums)
        kwargs = {k: v for k, v in kwargs.items() if k not in self.static_argnames}
        leaves, _ = runtime.tree_flatten((args, kwargs))
        tree = args[0] if len(args) == 1 and not kwargs else (args, kwargs)
        _, out_tree = runtime.tree_flatten(tree)
        kinds = tuple(
            leaf.aval if isinstance(leaf, runtime.Array) else machine_code.aval(np.shape(leaf)) for leaf in leaves
        )
        n = len(leaves)
        kernel = machine_code.unary_kernel("fadd", "1.0")
        steps = [machine_code.unary_step(kernel, i, n + i, kind.size) for i, kind in enumerate(kinds)]
        outputs = [
            DonatedOutput(i, k.nbytes, k) if self.donate else NewOutput(k.nbytes, k) for i, k in enumerate(kinds)
        ]
        executable = runtime.Executable(n, outputs, [], 0, steps, "add_one", kinds)
        arrays = [leaf if isinstance(leaf, runtime.Array) else machine_code.array(leaf) for leaf in leaves]
        results = executable.run(arrays, (self.donate,) * n)
        entry = runtime.CacheEntry(executable, tuple(range(n)), (), out_tree, kinds, (self.donate,) * n)
        return runtime.tree_unflatten(out_tree, results), entry


def values(tree: Any) -> Any:
    return runtime.tree_map(lambda leaf: np.asarray(leaf).tolist(), tree)


array = machine_code.array


def test_a_known_signature_never_reaches_python() -> None:
    slow = AddOne()
    for _ in range(5):
        assert values(slow.function(array([1, 2]))) == [2, 3]
    assert values(slow.function(array([1, 2, 3]))) == [2, 3, 4]
    assert (len(slow.calls), slow.function.hits, slow.function.cache_size()) == (2, 4, 2)


class Point(NamedTuple):
    x: Any
    y: Any


class Box:
    def __init__(self, content: Any, label: str) -> None:
        self.content, self.label = content, label


runtime.register_node(Box, lambda box: ((box.content,), box.label), lambda label, children: Box(children[0], label))


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"b": array([1]), "a": array([2, 3])},
        lambda: {"a": array([2, 3]), "b": array([1])},
        lambda: [array(1), (array(2), None, {"z": array(3), "": array(4)})],
        lambda: Point({2: array(1), 1: array(2)}, [array(3)]),
        lambda: collections.OrderedDict([("b", array(1)), ("a", array(2))]),
        lambda: collections.defaultdict(list, b=array(1), a=[array(2)]),
        lambda: {(1, "x"): array(1), (0, "y"): array(2)},
        lambda: {"long key " * 3 + str(1): array(1), "a": array(5)},
        lambda: {10**30: array(1), 5: array(5)},
        list,
        lambda: None,
        lambda: 1.5,
        lambda: [1.5, np.float32(2.5), np.arange(3.0), np.arange(12.0).reshape(3, 4).T[::2]],
    ],
)
def test_containers(make: Callable[[], Any]) -> None:
    slow = AddOne()
    first, second, third = (slow.function(make()) for _ in range(3))
    assert len(slow.calls) == 1
    assert type(second) is type(first)
    assert values(first) == values(second) == values(third)


def test_registered_classes_are_told_apart_by_their_data() -> None:
    slow = AddOne()
    for label in ("a", "b", "a", "b"):
        result = slow.function(Box(array([1]), label))
        assert (result.label, values(result.content)) == (label, [2])
    assert len(slow.calls) == 2


def test_structure_is_part_of_the_signature() -> None:
    slow = AddOne()
    x = array(1)
    trees = [x, [x], (x,), [[x]], {"a": x}, {"b": x}, [x, None], [None, x], (x, ()), Point(x, None), [x, x], {1: x}]
    for tree in trees:
        slow.function(tree)
    assert len(slow.calls) == len(trees)
    slow.function(x, None)
    slow.function(a=x)
    slow.function(b=x)
    assert len(slow.calls) == len(trees) + 3


def test_keyword_arguments_come_in_any_order() -> None:
    slow = AddOne()
    for _ in range(3):
        (_, kwargs) = slow.function(array(1), b=array(2), a=array(3))
        assert values(kwargs) == {"a": 4, "b": 3}
        (_, kwargs) = slow.function(array(1), a=array(3), b=array(2))
        assert values(kwargs) == {"a": 4, "b": 3}
    assert len(slow.calls) == 2


def test_scalar_types_are_told_apart_but_not_their_values() -> None:
    slow = AddOne()
    for x in (1.0, 2.0, -0.0, float("inf")):
        assert values(slow.function(x)) == x + 1
    assert len(slow.calls) == 1
    for x in (1, 2, 3):
        assert values(slow.function(x)) == x + 1
    assert len(slow.calls) == 2
    assert [values(slow.function(np.float32(x))) for x in (1, 2)] == [2, 3]
    assert [values(slow.function(np.float64(x))) for x in (1, 2)] == [2, 3]
    assert [values(slow.function(np.int8(x))) for x in (1, 2)] == [2, 3]
    assert len(slow.calls) == 5


def test_scalars_of_extra_dtypes() -> None:
    slow = AddOne()
    assert [values(slow.function(ml_dtypes.bfloat16(x))) for x in (1, 2, 1.5)] == [2, 3, 2.5]
    assert len(slow.calls) == 1
    assert runtime.JitFunction(lambda args, kwargs, caller: ("slow", None), (), ())(np.str_("x")) == "slow"


def integer_slow(dtype: str) -> tuple[runtime.JitFunction, list[Any]]:
    seen: list[Any] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        seen.append(args)
        kind = machine_code.aval((), dtype)
        executable = runtime.Executable(1, [InputOutput(0, kind)], [], 0, [], "identity", (kind,))
        _, tree = runtime.tree_flatten(0)
        return None, runtime.CacheEntry(executable, (0,), (), tree, (kind,), (False,))

    return runtime.JitFunction(slow, (), ()), seen


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_that_do_not_fit_take_the_slow_path(dtype: str) -> None:
    function, seen = integer_slow(dtype)
    info = np.iinfo(dtype)
    function(0)
    low, high = int(info.min), min(int(info.max), 2**63 - 1)
    assert [int(np.asarray(function(x))) for x in (1, low, high)] == [1, low, high]
    assert len(seen) == 1
    for x in (low - 1, int(info.max) + 1, 10**30, -(10**30)):
        assert function(x) is None
    assert len(seen) == 5


def test_static_arguments_by_type_and_equality() -> None:
    slow = AddOne((1,), ("mode",))
    x = array(1)
    for static in ("a", "b", 1, 1.0, True, (1, 2), None, "a", 1, 1.0, True, (1, 2), None):
        slow.function(x, static)
    assert len(slow.calls) == 7
    slow.function(x, "a", mode="fast")
    slow.function(x, "a", mode="".join(["fa", "st"]))
    slow.function(x, "a", mode="slow")
    assert len(slow.calls) == 9


def test_unhashable_static_arguments_are_left_to_python() -> None:
    slow = AddOne((1,))
    for _ in range(3):
        slow.function(array(1), [1])
    assert (len(slow.calls), slow.function.cache_size()) == (3, 0)


class Awkward:
    """A static value whose comparison can raise, or change the table it is compared in."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.action = action

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.action()
        return True


def test_a_raising_comparison() -> None:
    slow = AddOne((1,))

    def fail() -> None:
        raise ZeroDivisionError

    slow.function(array(1), Awkward(fail))
    with pytest.raises(ZeroDivisionError):
        # The lookup's error goes to the slow path, which succeeds; installing meets it again.
        slow.function(array(1), Awkward(fail))


def test_a_comparison_that_clears_the_table() -> None:
    slow = AddOne((1,))
    clears: list[int] = []

    def clear() -> None:
        clears.append(1)
        if len(clears) < 20:
            slow.function.clear_cache()
            gc.collect()

    for _ in range(5):
        assert values(slow.function(array(1), Awkward(clear))) == 2


def test_reentrant_slow_path() -> None:
    inner: list[Any] = []
    depth: list[int] = []

    class Reentrant(AddOne):
        def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
            if len(depth) < 3:
                depth.append(1)
                inner.append(values(self.function(*args)))
                self.function.clear_cache()
                for size in range(40):
                    self.function(array(np.zeros(size + 5)))
            return super().__call__(args, kwargs, caller)

    slow = Reentrant()
    assert values(slow.function(array([1, 2]))) == [2, 3]
    assert values(slow.function(array([1, 2]))) == [2, 3]
    assert inner[0] == [2, 3]


def test_exceptions_of_the_slow_path_propagate() -> None:
    error = KeyError("mine")

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        raise error

    function = runtime.JitFunction(slow, (), ())
    for _ in range(3):
        with pytest.raises(KeyError) as info:
            function(array(1))
        assert info.value is error


@pytest.mark.parametrize("answer", [None, 1, (1,), (1, 2, 3), (1, 2), [1, None]])
def test_wrong_answers_of_the_slow_path(answer: Any) -> None:
    function = runtime.JitFunction(lambda args, kwargs, caller: answer, (), ())
    with pytest.raises(TypeError, match="slow path"):
        function(array(1))


def test_a_program_alone_is_installed_and_run() -> None:
    entry = AddOne()((array([1, 2]),), {}, False)[1]
    asked: list[Any] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Any:
        asked.append(caller)
        return ("slow", None) if caller is None else entry

    function = runtime.JitFunction(slow, (), ())
    assert [values(function(array(given))) for given in ([1, 2], [3, 4])] == [[2, 3], [4, 5]]
    assert values(function(np.array([1, 2], np.float32))) == [2, 3]
    assert (asked, function.hits) == ([function, function], 1)
    assert function("text") == "slow"  # no leaf that the native side knows
    assert function(np.zeros((2, 1), np.float32)) == "slow"  # which the program does not take
    assert asked[2:] == [None, function, None]
    with pytest.raises(ValueError, match="fewer bytes"):
        function(array([1]))
    always = runtime.JitFunction(lambda args, kwargs, caller: entry, (), ())
    with pytest.raises(TypeError, match="slow path"):
        always("text")


def test_entries_that_do_not_fit_are_refused() -> None:
    small, large = machine_code.aval((2,)), machine_code.aval((1000,))
    executable = runtime.Executable(1, [InputOutput(0, large)], [], 0, [], "identity", (large,))
    _, leaf = runtime.tree_flatten(0)
    entry = runtime.CacheEntry(executable, (0,), (), leaf, (large,), ())
    with pytest.raises(ValueError, match="fewer bytes"):
        runtime.JitFunction(lambda args, kwargs, caller: (None, entry), (), ())(array([1, 2]))
    with pytest.raises(ValueError, match="scalar"):
        runtime.JitFunction(lambda args, kwargs, caller: (None, entry), (), ())(1.0)
    far = runtime.CacheEntry(executable, (3,), (), leaf, (large,), ())
    with pytest.raises(ValueError, match="leaf 3"):
        runtime.JitFunction(lambda args, kwargs, caller: (None, far), (), ())(array([1, 2]))
    pair = runtime.tree_flatten((0, 0))[1]
    for wrong in [
        (executable, (0, 1), (), leaf, (large,), ()),
        (executable, (), (), leaf, (large,), ()),
        (executable, (0,), (), pair, (large,), ()),
        (executable, (0,), (), leaf, (large, large), ()),
        (executable, (0,), (), leaf, (machine_code.aval((2000,)),), ()),
        (executable, (-1,), (), leaf, (large,), ()),
        (executable, (0,), (), leaf, (1,), ()),
        (executable, (0,), (), leaf, (small,), (True, False)),
        (executable, (), (1,), leaf, (small,), ()),
    ]:
        with pytest.raises(ValueError, match="CacheEntry"):
            runtime.CacheEntry(*wrong)
    with pytest.raises(TypeError):
        runtime.CacheEntry(executable, (), (array([1, 2]),), leaf, (large,), ())
    with pytest.raises(TypeError):
        runtime.CacheEntry(1, (0,), (), leaf, (large,), ())


@pytest.mark.parametrize(
    "leaf", ["text", b"bytes", object(), 1 + 2j, np.array(["a"]), np.ma.zeros(2), {1, 2}, range(3), len]
)
def test_foreign_leaves_take_the_slow_path(leaf: Any) -> None:
    seen: list[Any] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        seen.append(args[0])
        return "slow", None

    function = runtime.JitFunction(slow, (), ())
    assert [function(leaf), function([leaf])] == ["slow", "slow"]
    assert seen[0] is leaf


def test_self_containing_and_deep_containers_reach_python() -> None:
    function = runtime.JitFunction(lambda args, kwargs, caller: ("slow", None), (), ())
    loop: list[Any] = []
    loop.append(loop)
    assert function(loop) == "slow"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert function(deep) == "slow"
    while deep:
        deep = deep[0]


def test_tracing_and_config() -> None:
    slow = AddOne()
    x = array(1)
    slow.function(x)
    runtime.set_tracing(True)
    try:
        slow.function(x)
        assert len(slow.calls) == 2
    finally:
        runtime.set_tracing(False)
    slow.function(x)
    assert len(slow.calls) == 2
    token = runtime.get_config_token()
    runtime.set_config_token(12345)
    try:
        slow.function(x)
        slow.function(x)
        assert len(slow.calls) == 3
    finally:
        runtime.set_config_token(token)
    slow.function(x)
    assert len(slow.calls) == 3


def test_config_and_tracing_are_of_the_thread() -> None:
    slow = AddOne()
    slow.function(array(1))
    runtime.set_tracing(True)
    try:
        thread = threading.Thread(target=lambda: slow.function(array(1)))
        thread.start()
        thread.join()
    finally:
        runtime.set_tracing(False)
    assert len(slow.calls) == 1


def test_threads_follow_the_default_configuration() -> None:
    slow = AddOne()
    before = runtime.get_config_token()
    runtime.set_config_token(2**64 - 1)

    def elsewhere() -> list[int]:
        tokens: list[int] = []

        def work() -> None:
            tokens.append(runtime.get_config_token())
            slow.function(array(1))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return tokens

    try:
        default = runtime.get_config_token()
        elsewhere()
        runtime.set_default_config_token(77)
        assert (runtime.get_config_token(), elsewhere(), len(slow.calls)) == (77, [77], 2)
        runtime.set_default_config_token(default)
        elsewhere()
        assert len(slow.calls) == 2
        with pytest.raises(TypeError):
            runtime.set_config_token("x")  # type: ignore[arg-type]
    finally:
        runtime.set_config_token(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_traceback_hook() -> None:
    seen: list[BaseException] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        raise KeyError("mine")

    def hook(error: BaseException) -> None:
        seen.append(error)
        error.__traceback__ = None
        raise RuntimeError("ignored")

    function = runtime.JitFunction(slow, (), ())
    before = runtime.set_traceback_hook(hook)
    try:
        with pytest.raises(KeyError) as info:
            function(1)
    finally:
        runtime.set_traceback_hook(before)
    assert seen == [info.value]
    assert [entry.name for entry in info.traceback] == ["test_the_traceback_hook"]


def test_errors_of_the_traceback_hook_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    test_the_traceback_hook()
    assert [str(error) for error in reported] == ["ignored"]


class Interrupted:
    """A value on which the user presses Control-C while it is hashed or compared."""

    def __init__(self, hash_at: int = 0) -> None:
        self.hashed, self.hash_at = 0, hash_at

    def __hash__(self) -> int:
        self.hashed += 1
        if self.hashed == self.hash_at:
            raise KeyboardInterrupt
        return 7

    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt


def test_interrupts_in_static_arguments_reach_the_caller() -> None:
    slow = AddOne((1,))
    for hash_at in (1, 2):  # in the lookup; while the entry for the slow path is written
        with pytest.raises(KeyboardInterrupt):
            slow.function(array(1), Interrupted(hash_at))
    assert (len(slow.calls), slow.function.cache_size()) == (0, 0)
    slow.function(array(1), Interrupted())
    assert len(slow.calls) == 1
    with pytest.raises(KeyboardInterrupt):
        slow.function(array(1), Interrupted())
    assert len(slow.calls) == 1


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    _, leaf = runtime.tree_flatten(0)
    kind = machine_code.aval(())
    executable = runtime.Executable(1, [InputOutput(0, kind)], [], 0, [], "identity", (kind,))
    calls: list[int] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        calls.append(args[1])
        return None, runtime.CacheEntry(executable, (0,), (), leaf, (kind,), ())

    function = runtime.JitFunction(slow, (1,), ())
    for i in range(5000):
        function(1.0, i)
    assert function.cache_size() == 4096
    assert len(calls) == 5000
    function(1.0, 4999)
    function(1.0, 5000 - 4096)
    assert len(calls) == 5000
    function(1.0, 0)
    assert len(calls) == 5001
    function.clear_cache()
    assert function.cache_size() == 0


def test_retired_programs_leave_every_table() -> None:
    """Entries are taken out in random order; those that stay are found as before."""
    _, leaf = runtime.tree_flatten(0)
    kind = machine_code.aval(())
    executable = runtime.Executable(1, [InputOutput(0, kind)], [], 0, [], "identity", (kind,))
    programs = [runtime.CacheEntry(executable, (0,), (), leaf, (kind,), ()) for _ in range(40)]
    calls: list[int] = []

    def slow(args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any) -> Answer:
        calls.append(args[1])
        return None, programs[args[1] % len(programs)]

    functions = [runtime.JitFunction(slow, (1,), ()) for _ in range(2)]
    for function in functions:
        for i in range(1000):
            function(1.0, i)
    rng, left = np.random.default_rng(0), set(range(1000))
    for number in rng.permutation(len(programs)).tolist():
        gone = {i for i in left if i % len(programs) == number}
        assert programs[number].retire() == 2 * len(gone)
        assert programs[number].retire() == 0
        left -= gone
        calls.clear()
        for function in functions:
            assert function.cache_size() == len(left)
            for i in left:
                function(1.0, i)
        assert not calls
    functions[0](1.0, 7)
    assert calls == [7] and functions[0].cache_size() == 1
    reference = weakref.ref(functions[0])
    del functions, function
    gc.collect()
    assert reference() is None
    assert programs[7].retire() == 0


def test_donation_deletes_the_argument() -> None:
    slow = AddOne(donate=True)
    for _ in range(3):
        x = array([1, 2])
        pointer = x.unsafe_buffer_pointer()
        result = slow.function(x)
        assert values(result) == [2, 3]
        assert x.is_deleted() and result.unsafe_buffer_pointer() == pointer
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[2\]"):
            slow.function(x)
    x = array([1, 2])
    view = np.asarray(x)
    result = slow.function(x)
    assert view.tolist() == [1, 2] and values(result) == [2, 3]
    assert x.is_deleted()


def test_donating_one_array_twice() -> None:
    slow = AddOne(donate=True)
    assert values(slow.function([array([1]), array([5])])) == [[2], [6]]
    x = array([1])
    with pytest.raises(RuntimeError, match="donated in the same call"):
        slow.function([x, x])
    assert not x.is_deleted() and values(slow.function([x, array([5])])) == [[2], [6]]
    assert x.is_deleted()


def test_deleted_arguments_raise() -> None:
    slow = AddOne()
    slow.function(array([1, 2, 3]))
    x = array([1, 2, 3])
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        slow.function(x)


def test_methods_attributes_and_weak_references() -> None:
    slow = AddOne((0,))

    class Model:
        step = slow.function

    model = Model()
    assert values(model.step(array(1))) == 2
    assert slow.calls[0][0][0] is model
    assert Model.step is slow.function
    slow.function.__name__ = "step"
    slow.function.lower = 5
    assert (slow.function.__name__, slow.function.lower) == ("step", 5)
    assert weakref.ref(slow.function)() is slow.function
    assert slow.function.static_argnums == (0,)


def test_cycles_are_collected() -> None:
    def make() -> weakref.ref[Any]:
        slow = AddOne()
        slow.function(array(1))
        slow.function.loop = slow
        return weakref.ref(slow.function)

    gone = make()
    gc.collect()
    assert gone() is None


def test_no_references_leak() -> None:
    slow = AddOne((2,))
    x, static, tree = array([1, 2]), ("static", 1), {"k" * 40: array(1), "b": [array(2), 1.5]}

    def once() -> None:
        slow.function(x, tree, static)
        slow.function({(1, 2): x}, np.arange(3.0), "other")
        slow.function.clear_cache()

    once()
    slow.calls.clear()
    gc.collect()
    before = [sys.getrefcount(o) for o in (x, static, tree, x.aval, tree["b"], machine_code.aval((2,)))]
    arrays = runtime.buffer_references(x)
    for _ in range(20):
        once()
    slow.calls.clear()
    gc.collect()
    assert [sys.getrefcount(o) for o in (x, static, tree, x.aval, tree["b"], machine_code.aval((2,)))] == before
    assert runtime.buffer_references(x) == arrays


@pytest.mark.parametrize("arguments", [(), (1,), (len, 1), (len, (-1,)), (len, (), (1,)), (len, ("a",))])
def test_wrong_constructor_arguments(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        runtime.JitFunction(*arguments)


def test_operators() -> None:
    calls: list[str] = []
    slow = AddOne()

    def fallback(*args: Any) -> Any:
        calls.append("fallback")
        return NotImplemented

    neg = runtime.UnaryOperator(slow.function, fallback)
    assert values(neg(array([1]))) == [2]
    assert neg("x") is NotImplemented
    add = runtime.BinaryOperator(slow.function, fallback)
    radd = runtime.BinaryOperator(slow.function, fallback, reflected=True)
    (args, _) = add(array(1), 2.0)
    assert values(args) == (2, 3)
    (args, _) = radd(array(1), 2.0)
    assert values(args) == (3, 2)
    assert add(array(1), "x") is NotImplemented and calls == ["fallback"] * 2
    with pytest.raises(TypeError):
        add(array(1))
    with pytest.raises(TypeError):
        add(array(1), 2, 3)
    with pytest.raises(TypeError):
        runtime.BinaryOperator(1, 2)

    class Number:
        value = array(1)
        __add__ = runtime.BinaryOperator(lambda a, b: "plain", lambda a, b: "fallback")

    assert Number() + 1 == "fallback"


def test_many_threads() -> None:
    slow = AddOne()
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            size = int(rng.integers(1, 40))
            result = slow.function({"a": array(np.full(size, 3.0)), "b": [1.0]})
            if values(result) != {"a": [4.0] * size, "b": [2.0]}:
                failures.append(size)
            if rng.random() < 0.05:
                slow.function.clear_cache()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures

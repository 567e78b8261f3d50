"""jit as a user meets it: arguments, static values, donation, nesting, stages."""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import threading

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import config, lax, runtime
from weft.dispatch.calls import policies


class Counter:
    """Counts the traces of a function it is called from."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def traced() -> Counter:
    return Counter()


def test_the_counting_demo_of_the_tutorial() -> None:
    n_traces = 0

    @weft.jit
    def f(x):
        nonlocal n_traces
        n_traces += 1
        return x * 2

    f(wnp.arange(10.0))
    f(wnp.arange(10.0))
    f(wnp.arange(20.0))
    with pytest.warns(UserWarning, match="float64"):
        x = wnp.arange(20.0, dtype=wnp.float64)
    f(x)
    assert n_traces == 2


def test_print_while_tracing(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.jit
    def add_one(x):
        print("TRACING!")
        return x + 1

    add_one(wnp.array([1.0, 2.0]))
    add_one(wnp.array([3.0, 4.0]))
    assert capsys.readouterr().out == "TRACING!\n"
    add_one(wnp.array([1.0, 2.0, 3.0]))
    assert capsys.readouterr().out == "TRACING!\n"


def test_forms_of_application() -> None:
    def scale(x, factor=2.0):
        """Doc."""
        return x * factor

    assert weft.jit(scale)(3.0) == 6.0
    assert weft.jit()(scale)(3.0, factor=1.0) == 3.0
    assert functools.partial(weft.jit, static_argnames="factor")(scale)(3.0, factor=4.0) == 12.0
    jitted = weft.jit(scale)
    assert (jitted.__name__, jitted.__doc__, jitted.__wrapped__) == ("scale", "Doc.", scale)
    assert repr(jitted) == f"<PjitFunction of {scale!r}>"


def test_static_arguments_by_number_name_and_inference(traced: Counter) -> None:
    def power(x, n, *, sign=1):
        traced()
        for _ in range(n - 1):
            x = x * x
        return x * sign

    by_number = weft.jit(power, static_argnums=1)
    assert by_number(2.0, 2) == 4.0
    assert by_number(2.0, n=2) == 4.0
    assert by_number(2.0, n=3) == 16.0
    by_name = weft.jit(power, static_argnames=["n", "sign"])
    assert by_name(2.0, 2, sign=-1) == -4.0
    assert by_name(2.0, n=2, sign=-1) == -4.0
    negative = weft.jit(lambda x, n: x * n if isinstance(n, int) else x, static_argnums=-1)
    assert negative(2.0, 3) == 6.0
    variadic = weft.jit(lambda *args: args[0] if args[-1] == "a" else args[1], static_argnums=-1)
    assert variadic(1.0, 2.0, "a") == 1.0
    assert variadic(1.0, 2.0, "b") == 2.0


def test_static_values_differ_by_type_and_value(traced: Counter) -> None:
    @functools.partial(weft.jit, static_argnames="k")
    def f(x, k):
        traced()
        return x

    for k in (1, 1.0, True, 1):
        f(1.0, k=k)
    assert traced.count == 3


def test_tutorial_static_cures() -> None:
    def f(x):
        return x if x > 0 else 2 * x

    def g(x, n):
        i = 0
        while i < n:
            i += 1
        return x + i

    assert weft.jit(f, static_argnums=0)(10) == 10
    assert weft.jit(g, static_argnames=["n"])(10, 20) == 30
    body = weft.jit(lambda i: i + 1)
    i = 0
    while i < 20:
        i = body(i)
    assert repr(10 + i) == "Array(30, dtype=int32, weak_type=True)"


def _wrapped(x, /, n, *rest, sign=1, **named):
    return x


@functools.wraps(_wrapped)
def _wrapper(*args, **kwargs):
    return _wrapped(*args, **kwargs)


class _Callable:
    def __call__(self, x, n, *, sign=1):
        return x


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda x, n, sign=1: x, (1, 2)),
        (lambda x, /, n, *, sign: x, (1,)),
        (lambda n, /, sign, **named: n, (0, 1)),
        (_wrapped, (1,)),
        (_wrapper, (1,)),
        (functools.partial(_wrapped, 1), (0,)),
        (_Callable(), (1,)),
        (_Callable().__call__, (1,)),
        (functools.partial(max, key=abs), ()),
    ],
    ids=["plain", "keyword only", "positional only", "all kinds", "wrapper", "partial", "object", "method", "builtin"],
)
def test_static_numbers_are_found_from_names_for_every_kind_of_callable(function, numbers):
    assert weft.jit(function, static_argnames=("n", "sign")).static_argnums == numbers


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"static_argnums": 5}, ValueError, r"static_argnums=\(5,\), but only accepts 2 positional arguments"),
        ({"static_argnums": -3}, ValueError, r"static_argnums=\(-3,\), but only accepts 2 positional"),
        ({"donate_argnums": 7}, ValueError, r"donate_argnums=\(7,\), but only accepts 2 positional"),
        ({"static_argnames": "z"}, ValueError, r"invalid argnames \{'z'\} in static_argnames"),
        ({"donate_argnames": "z"}, ValueError, r"invalid argnames \{'z'\} in donate_argnames"),
        ({"static_argnums": 0, "donate_argnums": 0}, ValueError, "cannot intersect"),
        ({"static_argnums": "n"}, TypeError, "cannot be interpreted as an integer"),
        ({"static_argnames": 3}, TypeError, "not iterable"),
        ({"backend": "gpu"}, RuntimeError, "Platforms present are: cpu"),
    ],
)
def test_wrong_options(options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        weft.jit(lambda x, n=3: x, **options)


def test_wrong_functions() -> None:
    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        weft.jit(3)
    with pytest.raises(TypeError, match="generator function"):
        weft.jit(lambda: (yield 1))
    with pytest.raises(TypeError, match="positional argument"):
        weft.jit(lambda x: x)()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        weft.jit(lambda x: x)(1.0, y=2)


def test_unhashable_static() -> None:
    f = weft.jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(ValueError, match="Non-hashable static arguments are not supported") as caught:
        f(1.0, [1, 2])
    assert "[1, 2]" in str(caught.value)
    assert f(1.0, (1, 2)) == 1.0


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        (("hi",), {}, "x"),
        (({"a": [1.0, object()]},), {}, "x['a'][1]"),
        ((1.0,), {"n": object()}, "n"),
        ((1.0, 2, 3, ["s"]), {}, "rest[1][0]"),
        ((1.0,), {"zz": ["s"]}, "more['zz'][0]"),
        ((np.array(["a"]),), {}, "x"),
    ],
)
def test_arguments_that_are_no_arrays(args: tuple, kwargs: dict, path: str) -> None:
    def f(x, n=2, *rest, **more):
        return x

    with pytest.raises(TypeError, match="as an abstract array") as caught:
        weft.jit(f)(*args, **kwargs)
    assert f"at path {path}.\n" in str(caught.value)


def test_python_ints_that_do_not_fit() -> None:
    f = weft.jit(lambda x, n=0: x + n)
    with pytest.raises(OverflowError, match=r"argument path is x.*1099511627776"):
        f(2**40)
    f(1.0, n=3)
    with pytest.raises(OverflowError, match=r"argument path is n"):
        f(1.0, n=-(2**40))
    with weft.enable_x64(True):
        assert f(2**40) == 2**40


@pytest.mark.parametrize("output", ["s", {"a": object()}, [1.0, (2.0, "s")]])
def test_results_that_are_no_arrays(output: object) -> None:
    with pytest.raises(TypeError, match=r"traced for jit returned a value of type"):
        weft.jit(lambda x: output)(1.0)


def test_results_of_all_kinds() -> None:
    out = weft.jit(lambda x: {"a": (x, None), "b": [np.ones(3), 3, True], "c": ()})(1.0)
    assert out["a"][1] is None
    assert out["c"] == ()
    assert repr(out["b"][0]) == "Array([1., 1., 1.], dtype=float32)"
    assert repr(out["b"][1]) == "Array(3, dtype=int32, weak_type=True)"
    assert repr(out["b"][2]) == "Array(True, dtype=bool)"


def test_scalars_and_numpy_arguments(traced: Counter) -> None:
    @weft.jit
    def f(x):
        traced()
        return x

    assert repr(f(1.5)) == "Array(1.5, dtype=float32, weak_type=True)"
    assert repr(f(np.float32(1.5))) == "Array(1.5, dtype=float32)"
    assert repr(f(np.float64(1.5))) == "Array(1.5, dtype=float32)"
    assert repr(f(wnp.float32(1.5))) == "Array(1.5, dtype=float32)"
    assert traced.count == 2
    strided = np.arange(6, dtype="int32").reshape(2, 3).T[::-1]
    assert f(strided).tolist() == strided.tolist()
    with pytest.raises(TypeError, match="at path x"):
        f(np.arange(3, dtype=">i4"))
    values = np.arange(3)
    out = f(values)
    values[:] = 7
    assert out.tolist() == [0, 1, 2]


def test_captured_arrays_are_constants_of_the_trace() -> None:
    w = wnp.arange(3.0)
    f = weft.jit(lambda x: x * w)
    assert f(w).tolist() == [0.0, 1.0, 4.0]
    closed = f.trace(w).jaxpr
    assert str(closed) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = mul b a in (c,) }"
    assert closed.consts[0] is w


def test_methods() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @functools.partial(weft.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

        @weft.jit
        def wrong(self, x):
            return x

    model = Model(3.0)
    assert model(2.0) == 6.0
    assert weft.jit(model.__call__)(2.0) == 6.0
    with pytest.raises(TypeError, match="at path self"):
        model.wrong(1.0)


def test_nested_calls_share_one_program() -> None:
    g = weft.jit(lambda x: x * 2.0)
    closed = weft.make_jaxpr(lambda x: g(x) + g(x))(1.0)
    inner = [eqn.params["jaxpr"] for eqn in closed.eqns if eqn.primitive.name == "jit"]
    assert inner[0].jaxpr is inner[1].jaxpr
    assert str(closed).startswith("let lambda = {")


def test_inline_leaves_no_call() -> None:
    inlined = weft.jit(lambda x: x * 2.0, inline=True)
    closed = weft.make_jaxpr(lambda x: inlined(x) + 1.0)(1.0)
    assert [eqn.primitive.name for eqn in closed.eqns] == ["mul", "add"]


def test_inner_function_over_a_traced_value() -> None:
    @weft.jit
    def outer(x):
        @weft.jit
        def inner(y):
            return y + x

        return inner(x * 2.0)

    assert outer(3.0) == 9.0
    assert outer(4.0) == 12.0


def test_donation() -> None:
    f = weft.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = wnp.ones(3), wnp.ones(3)
    assert f(x, y).tolist() == [2.0, 2.0, 2.0]
    assert x.is_deleted()
    assert not y.is_deleted()
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
        f(x, y)
    by_name = weft.jit(lambda x, y: x + y, donate_argnames="y")
    assert by_name.lower(1.0, 2.0).donate_argnums == (1,)
    assert by_name.lower(1.0, y=2.0).args_info[1]["y"].donated


def test_donations_no_result_can_use() -> None:
    x = wnp.ones(3)
    with pytest.warns(UserWarning, match=r"Some donated buffers were not usable: float32\[3\]"):
        weft.jit(lambda x: x[:1], donate_argnums=0)(x)
    assert not x.is_deleted()
    weft.jit(lambda x, y: y + 1, donate_argnums=0)(x, wnp.ones(3))
    assert not x.is_deleted()  # never read, so not taken
    weft.jit(lambda x: x.astype(int), donate_argnums=0)(x)
    assert x.is_deleted()


def test_exceptions_restore_state() -> None:
    @weft.jit
    def fails(x):
        raise KeyError("inner")

    for _ in range(2):
        with pytest.raises(KeyError, match="inner"):
            fails(1.0)
    assert weft.jit(lambda x: x + 1)(1.0) == 2.0
    assert wnp.ones(2).tolist() == [1.0, 1.0]


def test_recursion_and_reentrancy() -> None:
    @weft.jit
    def forever(x):
        return forever(x)

    with pytest.raises(RecursionError, match="calls itself"):
        forever(1.0)

    @functools.partial(weft.jit, static_argnums=1)
    def countdown(x, n):
        return x if n == 0 else countdown(x + 1.0, n - 1)

    assert countdown(0.0, 5) == 5.0
    assert forever.cache_info().traces == 0


def test_threads_tracing_at_once() -> None:
    results: dict[int, float] = {}

    def work(number: int) -> None:
        for size in range(1, 6):
            results[number] = float(weft.jit(lambda x: (x * number).sum())(wnp.ones(size)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 5.0 * number for number in range(4)}


def test_disable_jit() -> None:
    seen: list[object] = []

    @weft.jit
    def f(x):
        seen.append(x)
        return x + 1

    with weft.disable_jit():
        assert f(1.0) == 2.0
        assert seen == [1.0]
        assert weft.jit(lambda x, s: x if s else 0, static_argnums=1)(1.0, []) == 0
    assert f(1.0) == 2.0
    assert len(seen) == 2


def test_stages() -> None:
    def f(x, n=1.0):
        return {"y": x * n}

    traced = weft.jit(f, donate_argnums=0).trace(wnp.ones(3), n=2.0)
    assert traced.fun_name == "f"
    assert str(traced.out_info) == "{'y': ShapeDtypeStruct(shape=(3,), dtype=float32)}"
    assert str(traced.in_tree) == "PyTreeDef(((*,), {'n': *}))"
    assert "mul" in traced.as_text()
    lowered = traced.lower()
    assert lowered.args_info[0][0].donated
    assert lowered.in_avals[1]["n"].weak_type
    compiled = lowered.compile()
    assert compiled(wnp.ones(3), n=3.0)["y"].tolist() == [3.0, 3.0, 3.0]
    for form in ("jaxpr", "kernel", "loops", "llvm", "asm", "plan"):
        assert compiled.as_text(form)
    with pytest.raises(ValueError, match="unknown form: foo"):
        lowered.as_text("foo")
    assert compiled.memory_analysis()
    assert compiled.cost_analysis()


def test_wrapped_is_a_protocol() -> None:
    assert isinstance(weft.jit(lambda x: x), weft.stages.Wrapped)
    assert not isinstance(lambda x: x, weft.stages.Wrapped)


def test_compiled_refuses_other_arguments() -> None:
    compiled = weft.jit(lambda x: x + 1).lower(weft.ShapeDtypeStruct((3,), wnp.float32)).compile()
    with pytest.raises(TypeError, match=r"'x' compiled with float32\[3\] and called with float32\[4\]"):
        compiled(wnp.ones(4))
    with pytest.raises(TypeError, match=r"called with int32\[3\]"):
        compiled(wnp.ones(3, wnp.int32))
    with pytest.raises(TypeError, match=r"at args\[0\], seen pytree leaf but now given <class 'tuple'>"):
        compiled((wnp.ones(3),))
    with pytest.raises(TypeError, match="seen tuple of length 1 but now given tuple of length 2"):
        compiled(wnp.ones(3), 2)
    with pytest.raises(TypeError, match=r"symmetric difference of key sets: \{'k'\}"):
        compiled(wnp.ones(3), k=2)
    with pytest.raises(TypeError, match="Tracer"):
        weft.jit(compiled.call)(wnp.ones(3))


def test_structs_are_no_values() -> None:
    with pytest.raises(TypeError, match="is not a valid JAX type"):
        weft.jit(lambda x: x)(weft.ShapeDtypeStruct((3,), wnp.float32))


def test_make_jaxpr_and_eval_shape() -> None:
    def f(x, n=2):
        return {"a": x * n}

    assert weft.make_jaxpr(f).__name__ == "make_jaxpr(f)"
    closed, shape = weft.make_jaxpr(f, static_argnums=1, return_shape=True)(1.0, 3)
    assert str(closed) == "{ lambda ; a:f32[]. let b:f32[] = mul a 3.0:f32[] in (b,) }"
    assert str(shape) == "{'a': ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True)}"
    out = weft.eval_shape(lambda x: x @ x.T, weft.ShapeDtypeStruct((3, 4), wnp.float32))
    assert out == weft.ShapeDtypeStruct((3, 3), wnp.float32)
    assert weft.jit(f).eval_shape(wnp.ones(2))["a"].shape == (2,)
    with pytest.raises(TypeError, match="the first argument must be callable"):
        weft.make_jaxpr(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at path x"):
        weft.eval_shape(f, "s")


def test_operations_on_concrete_values_while_tracing() -> None:
    kinds: list[bool] = []

    @weft.jit
    def f(x):
        with weft.ensure_compile_time_eval():
            table = wnp.ones(3) + 1
            kinds.append(isinstance(table, weft.core.Tracer))
        return x + table

    assert f(1.0).tolist() == [3.0, 3.0, 3.0]
    assert kinds == [False]


def test_pickling_and_signature() -> None:
    jitted = pickle.loads(pickle.dumps(weft.jit(np.positive)))
    assert isinstance(jitted, type(weft.jit(lambda x: x)))
    assert str(inspect.signature(weft.jit(lambda x, y=2, *, k=1: x))) == "(x, y=2, *, k=1)"


def test_named_scope_and_call() -> None:
    with weft.named_scope("outer"):
        assert weft.jit(weft.named_call(lambda x: lax.neg(x), name="inner"))(1.0) == -1.0
    with pytest.raises(TypeError, match="must be a string"):
        weft.named_scope(3)  # type: ignore[arg-type]


def test_debug_nans() -> None:
    with weft.debug_nans(True):
        with pytest.raises(FloatingPointError, match="nan"):
            weft.jit(lambda x: wnp.log(x))(-1.0)
        assert weft.jit(lambda x: wnp.log(x))(1.0) == 0.0


def test_no_tracing() -> None:
    f = weft.jit(lambda x: x + 1.5)
    f(1.0)
    with weft.config.context("no_tracing", True):
        assert f(1.0) == 2.5
        with pytest.raises(RuntimeError, match="no_tracing"):
            f(wnp.ones(7))


def test_equations_inside_wefts_functions_have_the_position_of_the_users_call():
    def variance(x):
        with weft.named_scope("outside"):
            return wnp.var(x)

    closed = weft.make_jaxpr(variance)(np.ones((3, 7), np.float32))
    (call,) = closed.jaxpr.eqns
    inner = [eqn.source_info for eqn in call.params["jaxpr"].jaxpr.eqns]
    assert len(inner) > 3
    assert {(source.frame.file_name, source.frame.line) for source in inner} == {
        (__file__, variance.__code__.co_firstlineno + 2)
    }
    assert {source.name_stack for source in inner} == {()}
    assert call.source_info.name_stack == ("outside",)


# -- who answers a call (dispatch.calls.policies) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "recorded with_refs compiled"),
        ({"disable_jit": True}, "without_jit recorded with_refs compiled"),
        ({"debug_nans": True}, "recorded with_refs checking_numbers compiled"),
        ({"transfer_guard": "disallow"}, "guarding_transfers recorded with_refs compiled"),
        (
            {"no_execution": True, "debug_key_reuse": True},
            "recorded forbidding_execution with_refs tracking_keys compiled",
        ),
    ],
)
def test_options_choose_who_may_answer_a_call(options: dict[str, object], names: str) -> None:
    with contextlib.ExitStack() as stack:
        for name, value in options.items():
            stack.enter_context(config.context(name, value))
        chosen = policies.chosen(runtime.get_config_token())
    assert [policy.__name__ for policy in chosen.policies] == names.split()
    sized = [] if options else ["from_other_sizes"]  # such an answer is given without a look at the arguments
    assert [policy.__name__ for policy in chosen.of_own] == sized + names.split()


def test_the_first_policy_with_an_answer_gives_it() -> None:
    ref = weft.new_ref(np.float32(1))
    double = weft.jit(lambda x: x + x)

    @weft.jit
    def count(x):
        ref[...] += x

    with config.context("no_execution", True):
        for call in (double, count):
            with pytest.raises(RuntimeError, match="no_execution"):
                call(np.float32(2))
        with config.context("disable_jit", True):
            assert double(np.float32(2)) == 4  # by NumPy: nothing of ours is executed
    assert float(ref[...]) == 1
    with config.context("transfer_guard", "disallow"):
        for _ in range(2):  # no entry answers the second call
            with pytest.raises(weft.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
                double(np.float32(2))
    count(np.float32(2))
    assert float(ref[...]) == 3 and float(double(np.float32(2))) == 4

"""``jit(f, checks=...)`` and ``weft.checks``: each seeded fault is named with operation, element, operands and line."""

from __future__ import annotations

import linecache
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import errors, lax

INDEX, NAN, OVERFLOW = errors.IndexCheckError, errors.NanCheckError, errors.OverflowCheckError


class Seeded(NamedTuple):
    """A function with one fault, in the line that says HERE."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kind: type[errors.CheckError]
    primitive: str
    index: tuple[int, ...]
    operands: tuple[Any, ...] = ()  # the first of them, where they are scalars
    backward: bool = False


FAULTS: dict[str, Seeded] = {}


def fault(*args: Any, kind: type[errors.CheckError], primitive: str, index: Any = (), operands: Any = (),
          backward: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    def seed(function: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS[function.__name__] = Seeded(function, args, kind, primitive, index, operands, backward)
        return function

    return seed


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


BAD_ROW = np.full((40, 50), 5.0, np.float32)
BAD_ROW[3, 7] = 1.0


# -- floats -----------------------------------------------------------------------------------------------------------


@fault(BAD_ROW, kind=NAN, primitive="log", index=(3, 7), operands=(-1.0,))
def log_between_others(x):
    y = x - 2.0
    return jnp.log(y) * 3.0  # HERE


@fault(f32(1, -4), kind=NAN, primitive="sqrt", index=(1,), operands=(-4.0,))
def sqrt(x):
    return jnp.sqrt(x)  # HERE


@fault(f32(2, 0), kind=NAN, primitive="div", index=(1,), operands=(0.0, 0.0))
def zero_by_zero(x):
    return x / x  # HERE


@fault(f32(2, 0), kind=OVERFLOW, primitive="div", index=(1,), operands=(1.0, 0.0))
def one_by_zero(x):
    return 1.0 / x  # HERE


@fault(f32(1, np.inf), kind=NAN, primitive="sub", index=(1,), operands=(np.inf, np.inf))
def infinities(x):
    return x - x  # HERE


@fault(f32(10, 1000), kind=OVERFLOW, primitive="exp", index=(1,), operands=(1000.0,))
def exponential(x):
    return jnp.exp(x)  # HERE


@fault(np.full((30, 40), 3e38, np.float32), kind=OVERFLOW, primitive="reduce_sum")
def total(x):
    return jnp.sum(x)  # HERE


@fault(np.full((30, 40), 3e38, np.float32), kind=OVERFLOW, primitive="reduce_sum", index=(0,))
def rows(x):
    return x.sum(1)  # HERE


@fault(f32(3e38, 3e38, 1), kind=OVERFLOW, primitive="cumsum", index=(1,))
def running(x):
    return jnp.cumsum(x)  # HERE


@fault(np.full((64, 64), 1e30, np.float32), kind=OVERFLOW, primitive="dot_general", index=(0, 0))
def product(a):
    return a @ a  # HERE


@fault(np.full((256, 256), 1e30, np.float32), kind=OVERFLOW, primitive="dot_general", index=(0, 0))
def product_and_epilogue(a):
    b = a @ a  # HERE
    return jnp.maximum(b + 1, 0)


@fault(-np.eye(40, dtype=np.float32), kind=NAN, primitive="cholesky", index=(0, 0))
def decomposition(a):
    return jnp.linalg.cholesky(a)  # HERE


@fault(np.full(64, 1e38, np.float32), kind=OVERFLOW, primitive="fft", index=(0,))
def transform(x):
    return jnp.fft.fft(x)  # HERE


@fault(np.array([1, 300], np.float16), kind=OVERFLOW, primitive="mul", index=(1,), operands=(300.0, 300.0))
def half(x):
    return x * x  # HERE


@fault(f32(1e6, 1), kind=OVERFLOW, primitive="convert_element_type", index=(0,), operands=(1e6,))
def to_half(x):
    return x.astype(jnp.float16)  # HERE


@fault(f32(0, 1), kind=NAN, primitive="div", index=(0,))
def brain_half(x):
    y = x.astype(jnp.bfloat16)
    return y / y  # HERE


@fault(np.array([1, 0], np.complex64), kind=NAN, primitive="div", index=(1,), operands=(0j, 0j))
def complex_quotient(z):
    return z / z  # HERE


@fault(np.zeros((3, 0), np.float32), kind=NAN, primitive="div", index=(0,), operands=(0.0, 0.0))
def mean_of_nothing(x):
    return jnp.mean(x, 1)  # HERE


@fault(f32(3e38, 1), np.array([0]), kind=OVERFLOW, primitive="scatter-add", index=(0,))
def added_at(x, i):
    return x.at[i].add(3e38)  # HERE


@fault(f32(1, -1), kind=NAN, primitive="pure_callback", index=(0,))
def from_python(x):
    out = np.full(2, np.nan, np.float32)
    return weft.pure_callback(lambda a: out, x, x)  # HERE


# -- integers ---------------------------------------------------------------------------------------------------------


@fault(np.array([1, 2**31 - 1], np.int32), kind=OVERFLOW, primitive="add", index=(1,), operands=(2**31 - 1, 1))
def added(x):
    return x + 1  # HERE


@fault(np.array([7, 0], np.uint8), kind=OVERFLOW, primitive="sub", index=(1,), operands=(0, 1))
def below_zero(x):
    return x - 1  # HERE


@fault(np.array([5, 1 << 20], np.int32), kind=OVERFLOW, primitive="mul", index=(1,), operands=(1 << 20, 1 << 20))
def multiplied(x):
    return x * x  # HERE


@fault(np.array([-(2**15)], np.int16), kind=OVERFLOW, primitive="neg", index=(0,), operands=(-(2**15),))
def negated(x):
    return -x  # HERE


@fault(np.array([0, 2], np.int32), kind=OVERFLOW, primitive="shift_left", index=(1,), operands=(2, 30))
def shifted(x):
    return x << 30  # HERE


@fault(np.array([5, 200], np.int32), kind=OVERFLOW, primitive="convert_element_type", index=(1,), operands=(200,))
def narrowed(x):
    return x.astype(jnp.int8)  # HERE


@fault(f32(5, 3e9), kind=OVERFLOW, primitive="convert_element_type", index=(1,), operands=(3e9,))
def truncated(x):
    return x.astype(jnp.int32)  # HERE


@fault(np.full(5000, 1 << 20, np.int32), kind=OVERFLOW, primitive="reduce_sum")
def integer_total(x):
    return x.sum()  # HERE


# -- indices ----------------------------------------------------------------------------------------------------------


@fault(np.arange(5), np.array([1, 2, 9], np.int32), kind=INDEX, primitive="gather", index=(2,), operands=(9, 5))
def gathered(x, i):
    return x[i] * 2  # HERE


@fault(
    np.ones((5, 3)), np.array([[1, 2], [3, 9]], np.int32), kind=INDEX, primitive="gather", index=(1, 1), operands=(9, 5)
)
def rows_gathered(x, i):
    return x[i].sum()  # HERE


@fault(np.arange(5), np.int32(7), kind=INDEX, primitive="dynamic_slice", operands=(7, 5), index=(0,))
def one_element(x, i):
    return x[i]  # HERE


@fault(np.arange(5), kind=INDEX, primitive="dynamic_slice", operands=(7, 5), index=(0,))
def known_index(x):
    return x[7]  # HERE


@fault(np.arange(9.0), np.int32(7), kind=INDEX, primitive="dynamic_slice", operands=(7, 9), index=(0,))
def long_slice(x, i):
    return lax.dynamic_slice(x, (i,), (3,))  # HERE


@fault(np.zeros(4), np.array([1, 5], np.int32), kind=INDEX, primitive="scatter", index=(1,), operands=(5, 4))
def set_at(x, i):
    return x.at[i].set(7)  # HERE


@fault(np.zeros(4), np.array([1, 5], np.int32), kind=INDEX, primitive="gather", index=(1,), operands=(5, 4))
def taken(x, i):
    return jnp.take(x, i)  # HERE


# -- loops, branches, transformations ---------------------------------------------------------------------------------


@fault(f32(1, 2, -1, 3), kind=NAN, primitive="log", operands=(-2.0,))
def in_scan(xs):
    def body(c, x):
        c = c * x
        return c, jnp.log(c)  # HERE

    return lax.scan(body, 1.0, xs)


@fault(np.ones((4, 60, 60), np.float32), kind=NAN, primitive="log", operands=(-1e9,))
def in_long_scan(xs):
    def body(c, x):
        c = jnp.tanh(c @ x)
        return c, jnp.log(c[0, 0] * 0 - 1e9)  # HERE

    return lax.scan(body, xs[0], xs)


@fault(np.int32(2), kind=OVERFLOW, primitive="mul", operands=(774840978, 3))
def in_fori(n):
    return lax.fori_loop(0, 40, lambda i, x: x * 3, n)  # HERE


@fault(f32(*range(8)), kind=INDEX, primitive="dynamic_slice", index=(0,), operands=(8, 8))
def index_in_fori(a):
    return lax.fori_loop(0, 10, lambda i, x: x + a[i], 0.0)  # HERE


@fault(np.ones(3000, np.float32), kind=NAN, primitive="log", index=(0,))
def in_while(x):
    def body(s):
        return jnp.log(s[0] - 0.5), s[1] + 1  # HERE

    return lax.while_loop(lambda s: s[1] < 5, body, (x, 0))


@fault(f32(-1, -1), kind=NAN, primitive="sqrt", index=(0,))
def in_cond(x):
    return lax.cond(x[0] > 0, jnp.log, jnp.sqrt, x)  # HERE


@fault(f32(1, -1), kind=NAN, primitive="log", index=(1,), operands=(-1.0,))
def mapped(xs):
    return weft.vmap(lambda x: jnp.log(x))(xs)  # HERE


@fault(np.ones((3, 4)), np.array([1, 9, 2], np.int32), kind=INDEX, primitive="gather", index=(1,), operands=(9, 4))
def mapped_index(xs, i):
    return weft.vmap(lambda x, k: x[k])(xs, i)  # HERE


@fault(f32(1, 0), kind=OVERFLOW, primitive="div", index=(1,), operands=(0.5, 0.0))
def slope(x):
    return weft.grad(lambda x: jnp.sum(jnp.sqrt(x)))(x)  # HERE


@fault(f32(1, 0), kind=NAN, primitive="mul", index=(1,), backward=True)
def slope_of_where(x):
    def f(x):
        y = jnp.sqrt(x)  # HERE
        return jnp.sum(jnp.where(x > 0, y, 0.0))

    return weft.grad(f)(x)


@weft.custom_vjp
def own_rule(x):
    return x * 2


own_rule.defvjp(lambda x: (own_rule(x), x), lambda r, ct: (jnp.log(r) * ct,))


@fault(f32(-1, 4), kind=NAN, primitive="log", index=(0,), backward=True)
def own_backward(x):
    return weft.grad(lambda x: own_rule(x).sum())(x)


@fault(f32(0.0), kind=OVERFLOW, primitive="div", index=(0,))
def checkpointed(x):
    return weft.grad(lambda x: weft.checkpoint(lambda y: jnp.sqrt(y))(x).sum())(x)  # HERE


def line_of(error: errors.CheckError) -> str:
    file, line, *_ = error.line.rsplit(":", 2)
    return linecache.getline(file, int(line))


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_named(name: str) -> None:
    seeded = FAULTS[name]
    jitted = weft.jit(seeded.function, checks="all")
    with pytest.raises(seeded.kind) as caught:
        jitted(*seeded.args)
    error = caught.value
    assert (error.primitive, error.index, error.backward) == (seeded.primitive, seeded.index, seeded.backward)
    for found, wanted in zip(error.operands, seeded.operands, strict=False):
        assert found == wanted or np.isclose(np.asarray(found, complex), wanted, rtol=1e-3), str(error)
    if name != "own_backward":
        assert "HERE" in line_of(error), str(error)
    with pytest.raises(seeded.kind):  # a warm call
        jitted(*seeded.args)


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 40


@pytest.mark.parametrize("name", ["sqrt", "one_by_zero", "added", "gathered", "known_index", "total", "set_at"])
def test_operations_outside_of_jit_are_checked(name: str) -> None:
    seeded = FAULTS[name]
    args = [jnp.asarray(arg) for arg in seeded.args]
    for _ in range(2):
        with weft.checks("all"), pytest.raises(seeded.kind) as caught:
            seeded.function(*args)
        assert "HERE" in line_of(caught.value)
    seeded.function(*args)


def benign(x: Any) -> Any:
    y = jnp.where(x > 0, x, -jnp.inf)  # an infinity that the program writes
    z = jnp.where(jnp.isnan(jnp.log(x - 2)), 0.0, 1.0)  # a NaN that nobody stores
    return weft.nn.softmax(y) + z + x % 3 + jnp.interp(x, x, x)


def test_what_is_meant_is_no_fault() -> None:
    x = jnp.arange(1.0, 9.0)
    run = weft.jit(benign, checks="all")
    np.testing.assert_array_equal(run(x), weft.jit(benign)(x))
    index = jnp.array([0, 9])
    for f in (
        lambda x: x.at[index].set(1, mode="drop"),
        lambda x: x.at[index].get(mode="clip"),
        lambda x: jnp.take(x, index, mode="wrap"),
        lambda x: weft.ops.segment_sum(x[:2], index, 4),
        lambda x: x[-8] + x[jnp.array([-1])],
    ):
        np.testing.assert_array_equal(weft.jit(f, checks="all")(x), f(x))
    for f in (weft.random.normal, weft.random.bits, weft.random.permutation):
        args = (weft.random.key(1), 7) if f is weft.random.permutation else (weft.random.key(1), (7,))
        np.testing.assert_array_equal(weft.jit(f, checks="all", static_argnums=1)(*args), f(*args))


@pytest.mark.parametrize("words", ["nan", "all"])
def test_a_fill_that_is_asked_for_is_no_fault_outside_of_jit(words: str) -> None:
    x, index = jnp.ones(3), jnp.array([1, 9])
    calls = [
        lambda mode: jnp.take(x, index, mode=mode),
        lambda mode: jnp.take(x, 9, mode=mode),
        lambda mode: x.at[index].get(mode=mode),
        lambda mode: x.at[np.array([1, 9])].get(mode=mode),
        lambda mode: x.at[index, None].get(mode=mode),
        lambda mode: jnp.take_along_axis(x, index, 0, mode=mode),
    ]
    for call in calls:
        for _ in range(2):  # in both orders, since programs are kept
            with weft.checks(words):
                assert np.isnan(call("fill")).any()
            if words == "all":
                with weft.checks(words), pytest.raises(INDEX):
                    call(None)


def test_what_is_meant_is_no_fault_beside_random_keys() -> None:
    """Programs with keys are written anew on words: their equations keep lines and marks."""
    x = jnp.arange(-4.0, 4.0)

    def f(x: Any) -> Any:
        key = weft.random.key(3)
        counts = jnp.histogram(x, 4, range=(-2.0, 2.0))[0]
        narrow = weft.random.normal(key, (4,), np.float16) + weft.random.uniform(key, (4,), jnp.bfloat16)
        return counts + narrow + weft.random.bits(key, (4,), np.uint8)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of counts, which no check sees
        np.testing.assert_array_equal(weft.jit(f, checks="all")(x), weft.jit(f)(x))

    def g(key: Any, x: Any) -> Any:
        y = weft.random.uniform(key, x.shape)
        return y + jnp.log(x)  # HERE

    with pytest.raises(NAN) as caught:
        weft.jit(g, checks="all")(weft.random.key(0), x)
    assert "HERE" in line_of(caught.value)


@pytest.mark.parametrize(
    "function", [jnp.nonzero, lambda x: jnp.unique(x.astype(int), size=2)], ids=["nonzero", "unique"]
)
def test_results_that_are_cut_off_are_no_fault(function: Any) -> None:
    x = jnp.arange(-4.0, 4.0)
    call = (lambda v: function(v, size=3)) if function is jnp.nonzero else function
    expected = call(x)
    with warnings.catch_warnings(), weft.checks("all"):
        warnings.simplefilter("ignore")  # of counts, which no check sees
        np.testing.assert_array_equal(call(x), expected)


def test_a_nan_that_is_given_is_no_fault() -> None:
    run = weft.jit(lambda x: jnp.sin(x) + 1, checks=("nan", "overflow"))
    assert np.isnan(run(jnp.array([np.nan, 1.0]))[0])
    with pytest.raises(NAN) as caught:
        run(jnp.array([np.nan, np.inf]))
    assert caught.value.primitive == "sin" and caught.value.index == (1,)


def test_the_words() -> None:
    x = jnp.array([-1.0, 1.0])
    assert np.isnan(weft.jit(jnp.log, checks=("index", "overflow"))(x)[0])
    with pytest.raises(ValueError, match="'foo' is not one of"):
        weft.jit(jnp.log, checks="foo")
    with pytest.raises(TypeError, match="checks takes words"):
        weft.jit(jnp.log, checks=3)
    with weft.checks("nan"):
        assert weft.config.read("checks") == "nan"
        with pytest.raises(NAN):
            weft.jit(lambda x: jnp.log(x))(x)
        assert np.isnan(weft.jit(jnp.log, checks=())(x)[0])
    assert np.isnan(weft.jit(lambda x: jnp.log(x))(x)[0])


def test_a_nested_function_keeps_its_own_checks() -> None:
    x = jnp.array([-1.0, 1.0])
    inner, free = weft.jit(lambda x: jnp.log(x), checks="nan"), weft.jit(lambda x: jnp.log(x), checks=())
    with pytest.raises(NAN):
        weft.jit(lambda x: inner(x) + 1)(x)
    weft.jit(lambda x: free(x) + 1, checks="nan")(x)
    with pytest.raises(NAN):
        weft.jit(lambda x: lax.scan(lambda c, a: (c, inner(a)), 0.0, x)[1])(x)

    def partly(x):
        with weft.checks("nan"):
            y = jnp.log(x)
        return jnp.sqrt(-x), y

    with pytest.raises(NAN) as caught:
        weft.jit(partly)(x)
    assert caught.value.primitive == "log"


def test_iterations_are_numbered() -> None:
    with pytest.raises(NAN, match="in iteration 2 of a loop"):
        weft.jit(FAULTS["in_scan"].function, checks="nan")(*FAULTS["in_scan"].args)
    with pytest.raises(NAN, match="in iteration 1 of a loop"):
        weft.jit(FAULTS["in_while"].function, checks="nan")(*FAULTS["in_while"].args)


def test_donated_arguments_are_still_shown() -> None:
    x = jnp.array(np.r_[np.ones(5000), -2.0].astype(np.float32))
    with pytest.raises(NAN) as caught:
        weft.jit(lambda x: jnp.log(x), donate_argnums=0, checks="nan")(x)
    assert caught.value.operands == (-2.0,) and x.is_deleted()


def test_an_update_in_place_says_that_its_operands_are_gone() -> None:
    run = weft.jit(lambda x: lax.fori_loop(0, 5, lambda i, s: s.at[i].set(s[i] / (i - 3)), x), checks="all")
    with pytest.raises(OVERFLOW, match="updated in place at element 3"):
        run(jnp.ones(5000))


def test_ahead_of_time_and_pickled() -> None:
    compiled = weft.jit(jnp.log, checks="nan").lower(jnp.ones(2)).compile()
    with pytest.raises(NAN):
        compiled(-jnp.ones(2))


def test_several_threads() -> None:
    run, found = weft.jit(lambda x: jnp.log(x), checks="nan"), []

    def call(number: int) -> None:
        x = np.ones(4000, np.float32)
        x[number] = -1
        try:
            run(x)
        except errors.CheckError as error:
            found.append((number, error.index))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [(number, (number,)) for number in range(8)]


def test_what_no_check_sees_is_named_in_a_warning() -> None:
    def f(x: Any) -> Any:
        return x.at[0].add(2), x.reshape(2, 3) @ x.reshape(3, 2)

    with pytest.warns(UserWarning, match="no check sees whether these overflow") as given:
        weft.jit(f, checks="overflow")(jnp.arange(6))
    text = str(given[0].message)
    assert "test_checks.py" in text
    assert "scatter-add" in text
    assert "dot_general" in text
    weft.jit(f, checks="nan")(jnp.arange(6))
    weft.jit(f, checks="overflow")(jnp.arange(6.0))

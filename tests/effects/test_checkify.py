"""checkify beside JAX's: messages and results of user, NaN, division and index checks through every transformation."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.checkify
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.operations import samples
from weft import lax
from weft.core.primitive import registry
from weft.experimental import checkify, nan_operations


class Library:
    """One of the two libraries under common names, with functions that hold checks."""

    def __init__(self, name: str) -> None:
        ours = name == "weft"
        self.api: Any = weft if ours else jax
        self.jnp: Any = jnp if ours else jax.numpy
        self.lax: Any = lax if ours else jax.lax
        self.c: Any = checkify if ours else jax.experimental.checkify
        self.custom: Any = self.api.custom_jvp(self.positive)
        self.custom.defjvp(lambda primals, tangents: (self.custom(*primals), tangents[0] * 3))
        self.reverse: Any = self.api.custom_vjp(self.positive)
        self.reverse.defvjp(lambda x: (self.reverse(x), x), lambda x, ct: (ct * 2,))

    def positive(self, x: Any) -> Any:
        self.c.check(self.jnp.all(x > 0), "{} is not positive, {x}", x, x=x)
        return x * x

    def branch(self, x: Any) -> Any:
        def small(x: Any) -> Any:
            self.c.check(x < 5, "big {x}", x=x)
            return self.jnp.log(x)

        return self.lax.cond(x > 0, small, lambda x: self.jnp.sqrt(x), x)

    def scanned(self, x: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            self.c.check(v < 2, "v is {v}, c is {c}", v=v, c=c)
            return c + v, c / v

        return self.lax.scan(step, 0.0, x)[0]

    def counted(self, n: Any) -> Any:
        def step(i: Any) -> Any:
            self.c.check(i < 3, "i is {i}", i=i)
            return i + 1

        return self.lax.while_loop(lambda i: i < n, step, 0)

    def tested(self, n: Any) -> Any:
        def test(i: Any) -> Any:
            self.c.check(i != 3, "i is {i} in the test", i=i)
            return i < n

        return self.lax.while_loop(test, lambda i: i + 1, 0)

    def again(self, x: Any) -> Any:
        error, out = self.api.jit(self.c.checkify(self.positive))(x)
        self.c.check_error(error)
        return out

    def two(self, x: Any) -> Any:
        self.c.check(x > -2, "first")
        self.c.check(x > 1, "second")
        return x


X = "m.jnp.arange(3.0)"
ONE = "m.jnp.float32(-1.0)"
PROGRAMS: dict[str, tuple[str, str]] = {
    "check": ("m.positive", ONE),
    "fine": ("m.positive", "m.jnp.float32(1.0)"),
    "array": ("m.positive", X),
    "nan": ("m.jnp.log", "-1.0"),
    "sin": ("m.jnp.sin", "m.jnp.inf"),
    "division": ("lambda x: 1.0 / x", "m.jnp.float32(0.0)"),
    "zero by zero": ("lambda x: x / x", "m.jnp.float32(0.0)"),
    "integer division": ("lambda x: x // 0", "m.jnp.int32(3)"),
    "remainder": ("lambda x: x % 0", "m.jnp.int32(3)"),
    "empty mean": ("lambda x: m.jnp.mean(x[:0])", X),
    "sum": ("lambda x: m.jnp.sum(x * m.jnp.array([1, -1, 1]) * m.jnp.inf)", X),
    "product": ("lambda x: m.jnp.outer(x, x) @ (m.jnp.inf * x)", X),
    "softmax": ("lambda x: m.api.nn.softmax(x * m.jnp.inf)", X),
    "index": ("lambda x: x[5]", X),
    "traced index": ("lambda x, i: x[i]", f"{X}, 5"),
    "negative index": ("lambda x, i: x[i]", f"{X}, -5"),
    "index vector": ("lambda x, i: x[i, 1]", "m.jnp.ones((3, 3)), m.jnp.array([0, 7])"),
    "second axis": ("lambda x, i: x[0, i]", "m.jnp.ones((3, 2)), m.jnp.array([0, 7, 9])"),
    "set": ("lambda x, i: x.at[i].set(1.0)", f"{X}, 5"),
    "add": ("lambda x, i: x.at[i].add(1.0)", f"{X}, m.jnp.array([1, 9])"),
    "take": ("lambda x, i: m.jnp.take(x, i)", f"{X}, 4"),
    "dynamic slice": ("lambda x, i: m.lax.dynamic_slice(x, (i,), (2,))", f"{X}, 2"),
    "dynamic update": ("lambda x, i: m.lax.dynamic_update_slice(x, x[:2], (i,))", f"{X}, 2"),
    "scan": ("m.scanned", X),
    "while": ("m.counted", "5"),
    "while fine": ("m.counted", "2"),
    "test": ("m.tested", "5"),
    "fori": ("lambda x: m.lax.fori_loop(0, 3, lambda i, s: s / x[i], 1.0)", X),
    "cond fine": ("m.branch", "1.0"),
    "cond check": ("m.branch", "6.0"),
    "cond nan": ("m.branch", "-1.0"),
    "switch": ("lambda i: m.lax.switch(i, [lambda: i * 1.0, lambda: 1.0 / (i * 0.0), lambda: 1.0])", "m.jnp.int32(1)"),
    "vmap": ("lambda x: m.api.vmap(m.positive)(x - 1)", X),
    "vmap cond": ("lambda x: m.api.vmap(m.branch)(x + 4.0)", X),
    "jit": ("lambda x: m.api.jit(m.positive)(x) * 2", ONE),
    "grad": ("lambda x: m.api.grad(m.positive)(x)", ONE),
    "grad nan": ("lambda x: m.api.grad(lambda x: m.jnp.sqrt(x) * 0.0)(x)", "0.0"),
    "remat": ("lambda x: m.api.grad(m.api.checkpoint(m.positive))(x)", ONE),
    "custom_jvp": ("lambda x: m.custom(x)", ONE),
    "grad custom_jvp": ("lambda x: m.api.grad(m.custom)(x)", ONE),
    "custom_vjp": ("lambda x: m.reverse(x)", ONE),
    "grad custom_vjp": ("lambda x: m.api.grad(m.reverse)(x)", ONE),
    "relu": ("lambda x: m.api.nn.relu(x)", ONE),
    "debug_check": ("lambda x: (m.c.debug_check(x > 0, 'debug'), x)[1]", ONE),
    "again": ("m.again", ONE),
    "second": ("m.two", ONE),
    "first": ("m.two", "m.jnp.float32(-3.0)"),
    "nan first": ("lambda x: (m.jnp.log(x), m.two(x))[1]", ONE),
    "Python value": ("lambda x: x if x > 0 else m.jnp.log(x)", "-3.0"),
    "tree": ("lambda d: {'a': m.positive(d['a']), 'b': (d['a'], m.jnp.ones(2))}", "{'a': m.jnp.float32(-1.0)}"),
    "key": ("lambda k: m.api.random.bits(k, (2,))", "m.api.random.key(0)"),
}
CATEGORIES = ("all_checks", "user_checks", "nan_checks", "div_checks", "index_checks")


def outcome(name: str, text: str, args: str, category: str, jitted: bool) -> tuple[str | None, Any]:
    m = Library(name)
    function = eval(text, {"m": m})
    checked = m.c.checkify(function, errors=getattr(m.c, category))
    if jitted:
        checked = m.api.jit(checked, static_argnums=0 if "if x" in text else ())
    error, out = checked(*eval(f"({args},)", {"m": m}))
    return error.get(), jax.tree.map(np.asarray, out)


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_messages_and_results_are_jax_s(name: str) -> None:
    text, args = PROGRAMS[name]
    theirs = outcome("jax", text, args, "all_checks", True)
    for jitted in (False, True):
        ours = outcome("weft", text, args, "all_checks", jitted)
        assert ours[0] == theirs[0]
        assert jax.tree.structure(ours[1]) == jax.tree.structure(theirs[1])
        for left, right in zip(jax.tree.leaves(ours[1]), jax.tree.leaves(theirs[1]), strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left, right, rtol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("category", CATEGORIES[1:])
@pytest.mark.parametrize("name", ["scan", "cond check", "fori", "nan first", "zero by zero", "index vector", "again"])
def test_categories_choose_as_in_jax(name: str, category: str) -> None:
    text, args = PROGRAMS[name]
    assert outcome("weft", text, args, category, True)[0] == outcome("jax", text, args, category, True)[0]


@pytest.mark.oracle
def test_mapped_errors_tell_of_every_element() -> None:
    messages = []
    for name in ("weft", "jax"):
        m = Library(name)
        error, _ = m.api.vmap(m.c.checkify(m.positive))(m.jnp.arange(4.0) - 1)
        fine, _ = m.api.jit(m.api.vmap(m.c.checkify(m.positive)))(m.jnp.arange(4.0) + 1)
        with pytest.raises(m.c.JaxRuntimeError) as raised:
            error.throw()
        messages.append((error.get(), fine.get(), str(raised.value)))
    assert messages[0] == messages[1]
    assert messages[0][0].startswith("at mapped index 0: -1.0 is not positive")


@pytest.mark.oracle
def test_differentiating_a_checked_function() -> None:
    for function in ("positive", "custom", "reverse", "branch"):
        found = []
        for name in ("weft", "jax"):
            m = Library(name)
            checked = m.c.checkify(getattr(m, function))
            gradient, error = m.api.grad(lambda x, checked=checked: checked(x)[::-1], has_aux=True)(m.jnp.float32(6.0))
            found.append((float(gradient), error.get()))
        assert found[0] == pytest.approx(found[1]) if found[0][1] is None else found[0] == found[1]


WRONG: dict[str, Callable[[Any], Any]] = {
    "condition": lambda m: m.c.check(m.jnp.ones(2) > 0, "x"),
    "format": lambda m: m.c.check(True, "{}", 1),
    "error": lambda m: m.c.check_error(3),
    "jit": lambda m: m.api.jit(m.positive)(m.jnp.float32(1.0)),
    "scan": lambda m: m.lax.scan(lambda c, v: (m.positive(c), None), m.jnp.float32(1.0), None, length=2),
    "while": lambda m: m.counted(2),
    "mapped while": lambda m: m.c.checkify(m.api.vmap(m.counted))(m.jnp.arange(5)),
    "eager": lambda m: m.positive(m.jnp.float32(-1.0)),
    "again": lambda m: m.again(m.jnp.float32(-1.0)),
    "throw": lambda m: m.c.checkify(m.positive)(m.jnp.float32(-1.0))[0].throw(),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_and_failures_raise_what_jax_raises(name: str) -> None:
    raised = []
    for library in ("weft", "jax"):
        with pytest.raises(Exception) as error:
            WRONG[name](Library(library))
        raised.append(error.value)
    assert type(raised[0]).__name__ == type(raised[1]).__name__
    assert isinstance(raised[0], (ValueError, TypeError))
    if name not in ("format", "error", "condition"):  # those name classes
        assert str(raised[0]) == str(raised[1])


def test_checks_for_debugging_vanish_from_compiled_programs() -> None:
    def f(x):
        checkify.debug_check(x > 0, "x is {}", x)
        return x + 1

    assert float(weft.jit(f)(-1.0)) == 0.0
    assert float(f(jnp.float32(-1.0))) == 0.0
    assert "check" not in str(weft.jit(f).lower(-1.0).compile().as_text("plan"))


def test_errors_are_values() -> None:
    error, _ = checkify.checkify(Library("weft").positive)(jnp.float32(-2.0))
    passed = weft.jit(lambda e: e)(error)
    assert passed.get() == error.get() == "-2.0 is not positive, -2.0 (`check` failed)"
    assert repr(error) == f"Error({error.get()})"
    assert isinstance(error.get_exception(), checkify.FailedCheckError)
    with pytest.raises(checkify.JaxRuntimeError) as raised:
        error.throw()
    assert isinstance(raised.value.__cause__, checkify.FailedCheckError)
    assert __file__ in raised.value.__notes__[0]


def test_programs_without_checks_stay_as_they_are() -> None:
    def f(x):
        return weft.jit(lambda y: y * 2)(x)

    jaxpr = weft.make_jaxpr(lambda x: checkify.checkify(f)(x)[1])(1.0)
    assert str(jaxpr) == str(weft.make_jaxpr(f)(1.0))


def test_a_checked_function_is_traced_once_under_jit() -> None:
    f = weft.jit(checkify.checkify(Library("weft").scanned, errors=checkify.all_checks))
    for _ in range(3):
        assert f(jnp.arange(3.0))[0].get() == "v is 2.0, c is 1.0 (`check` failed)"
    assert f.cache_info().traces == 1


_INDEX = np.array([0, 1], np.int16)
STRICT: dict[str, Callable[[Library, Any, Any], Any]] = {
    "gather": lambda of, x, i: x[i],
    "gather of pairs": lambda of, x, i: x[i, i],
    "gather by bytes": lambda of, x, i: x[i.astype("uint8")],
    "take_along_axis": lambda of, x, i: of.jnp.take_along_axis(x, i[:, None], 1),
    "slice": lambda of, x, i: of.lax.dynamic_slice(x, (i[0], i[1]), (1, 1)),
    "update": lambda of, x, i: of.lax.dynamic_update_slice(x, x[:1, :1], tuple(i.astype("int32"))),
    "scatter": lambda of, x, i: x.at[i, i].add(2.0),
    "outside": lambda of, x, i: x[i + of.jnp.int16(5)],
    "division": lambda of, x, i: i // (i - of.jnp.int16(1)),
    "nan": lambda of, x, i: of.jnp.log(x - 5.0),
    "scan": lambda of, x, i: of.lax.scan(lambda c, k: (c + x[0, 0], x[k, 0]), x[0, 0], i),
    "while": lambda of, x, i: of.lax.fori_loop(0, 2, lambda k, c: c + x[k], x[0]),
    "branch": lambda of, x, i: of.lax.cond(i[0] == 0, lambda: x[i[0]], lambda: x[i[1]]),
    "vmap": lambda of, x, i: of.api.vmap(lambda k: x[k, k])(i),
    "grad": lambda of, x, i: of.api.grad(lambda y: y[i, i].sum())(x),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", STRICT)
def test_strict_modes_raise_about_the_user_alone(name: str) -> None:
    said = []
    for of in (Library("weft"), Library("jax")):
        x, i = of.jnp.arange(6, dtype="float32").reshape(2, 3), of.jnp.asarray(_INDEX)
        checked = of.c.checkify(lambda x, i, of=of: STRICT[name](of, x, i), errors=of.c.all_checks)
        with of.api.numpy_dtype_promotion("strict"), of.api.numpy_rank_promotion("raise"):
            error, out = checked(x, i)
        message = error.get()
        said.append((None if message is None else message.partition(" at ")[0][:40], of.api.tree.leaves(out)))
    assert said[0][0] == said[1][0]
    for ours, theirs in zip(said[0][1], said[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def makes_nan(operation: samples.Operation, dtype: np.dtype) -> bool:
    """Whether NumPy's reference of an elementwise operation makes NaN of special numbers that are none."""
    grid = [axis.ravel() for axis in np.meshgrid(*[samples.specials(dtype)] * operation.operands)]
    numbers = ~np.any([np.isnan(values) for values in grid], axis=0)
    with np.errstate(all="ignore"):
        out = np.asarray(registry[operation.primitive_name].kind.reference(*[values[numbers] for values in grid]))
    return out.dtype.kind in "fc" and bool(np.isnan(out).any())


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of SciPy's functions, outside of their domains
def test_the_operations_that_are_asked_for_nan_are_jaxs_and_those_that_make_it() -> None:
    written = importlib.import_module("docs.nan_operations")  # it imports JAX
    assert written.TARGET.read_text(encoding="utf-8") == written.text(), "stale: run python docs/nan_operations.py"
    asked = set(nan_operations.NAMES.split())
    few = [operation for operation in samples.ELEMENTWISE if operation.operands <= 2 and operation.name != "round"]
    dtypes = [
        (operation, dtype) for operation in few for dtype in (samples.F32, samples.C64) if dtype in operation.dtypes
    ]
    makers = {operation.primitive_name for operation, dtype in dtypes if makes_nan(operation, dtype)}
    assert len(makers) > 20
    assert makers - asked == {"div", "exp2", "sign", "square"}  # a rule of its own; the others JAX does not ask either


@pytest.mark.oracle
@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_every_update_checks_its_indices(method: str) -> None:
    """Also those that carry the program of their update."""
    found = []
    for ours, c in ((jnp, checkify), (jax.numpy, jax.experimental.checkify)):
        f = c.checkify(lambda x, ours=ours: getattr(x.at[ours.array([0, 7])], method)(1), errors=c.index_checks)
        found.append(f(ours.arange(3))[0].get())
    assert found[0] == found[1] is not None


@pytest.mark.oracle
def test_a_solution_that_is_not_a_number() -> None:
    found = []
    for ours, c in ((jnp, checkify), (jax.numpy, jax.experimental.checkify)):
        f = c.checkify(ours.linalg.inv, errors=c.float_checks)
        assert f(ours.eye(2))[0].get() is None
        found.append(f(ours.zeros((2, 2)))[0].get().strip())
    assert found[0] == found[1]


@pytest.mark.parametrize("jitted", [False, True])
def test_errors_of_shards(jitted: bool) -> None:
    mesh = weft.sharding.Mesh(weft.devices()[:1], ("i",))
    spec = weft.sharding.PartitionSpec("i")

    def of_shard(x: Any) -> Any:
        checkify.check(lax.psum(x.sum(), "i") < 6, "{} is large", x[0])
        return jnp.log(x)

    f = checkify.checkify(weft.shard_map(of_shard, mesh=mesh, in_specs=spec, out_specs=spec), checkify.all_checks)
    f = weft.jit(f) if jitted else f
    assert f(jnp.ones(4))[0].get() is None
    assert f(jnp.float32([-1, 1]))[0].get() == "nan generated by primitive: log."
    error, out = f(jnp.float32([4, 5]))
    assert error.get() == "4.0 is large (`check` failed)"
    np.testing.assert_allclose(out, np.log([4, 5]), rtol=1e-6)
    mapped = checkify.checkify(weft.pmap(jnp.log), errors=checkify.nan_checks)
    assert "nan generated by primitive: log" in str(mapped(-jnp.ones(1))[0].get())

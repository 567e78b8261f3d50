"""Mutable references: values, printed programs, writes and errors are JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import jax.ref
import numpy as np
import pytest

import weft
import weft.numpy as wnp

WEFT = SimpleNamespace(jax=weft, np=wnp, lax=weft.lax, ref=weft.ref)
JAX = SimpleNamespace(jax=jax, np=jnp, lax=jax.lax, ref=jax.ref)
X = np.arange(12, dtype=np.float32).reshape(4, 3)
V = np.arange(4, dtype=np.float32)


def accesses(J: Any, r: Any, i: Any) -> Any:
    read = r[0], r[1:3], r[i], r[...], r[:, 1], r[1:3, i], r[i, ...], r[-1], r[0:4], r[:2]
    r[0] = J.np.zeros(3)
    r[i] = J.np.ones(3)
    r[:, 1] = r[:, 2] * 2
    r[0, 0] = 1.0
    r[0, 0] += 1.0
    r[i, i] = 7.0
    J.ref.addupdate(r, 0, J.np.ones(3))
    J.ref.addupdate(r, (i, 0), 1.0)
    J.ref.addupdate(r, ..., r[...])
    J.ref.set(r, (0, 0), 1.0)
    before = J.ref.swap(r, (0, 0), 2.0)
    whole = J.ref.swap(r, ..., r[...] + 1)
    r.at[1:3][0, 1] = 3.0
    return *read, before, whole, J.ref.get(r), J.ref.get(r, (1, 1)), r.at[1:3][1], J.ref.get(r.at[i], 2)


def index_arrays(J: Any, r: Any, i: Any) -> Any:
    k = J.np.array([0, 2])
    read = r[k], r[:, k], r[k, k], r[k + i - 1, 1:], r[J.np.array([[0], [1]]), k], r[i, k], r[J.np.array([-1, 9])]
    r[k] = J.np.ones((2, 3))
    r[:, k] = J.np.full((4, 2), 2.0)
    r[k, k] = J.np.array([5.0, 6.0])
    J.ref.addupdate(r, (J.np.array([1, 1]), 1), J.np.array([10.0, 20.0]))
    return read


def inside(J: Any, x: Any) -> Any:
    r = J.jax.new_ref(x)
    r[0] = r[0] * 2
    return J.jax.freeze(r)


def control(J: Any, x: Any) -> Any:
    """Every form of control flow on one reference."""
    r = J.jax.new_ref(x)

    def step(i: Any, state: Any) -> Any:
        r[i] = r[i] * 2
        return state

    def add(total: Any, x: Any) -> Any:
        r[...] += x
        return total + r[0], r[1]

    def body(i: Any) -> Any:
        r[i] = r[0] + 9.0
        return i + 1

    J.lax.fori_loop(0, 4, step, None)
    J.lax.cond(x[1] > 0, lambda: r.__setitem__(0, 1.0), lambda: r.__setitem__(1, 2.0))
    total, ys = J.lax.scan(add, 0.0, x)
    J.lax.while_loop(lambda i: (i < 3) & (r[3] > 0), body, 0)
    z = J.lax.switch(2, [lambda r: r[0], lambda r: r[1], lambda r: J.ref.swap(r, 2, 5.0)], r)
    return r[...], total, ys, z


def nested_jit(J: Any, x: Any) -> Any:
    r = J.jax.new_ref(x)

    @J.jax.jit
    def twice(r: Any, y: Any) -> Any:
        r[0] += y
        r[1] = r[0]
        return r[2]

    def step(i: Any, state: Any) -> Any:
        return state + twice(r, 1.0)

    z = J.lax.fori_loop(0, 3, step, 0.0)
    return r[...], z, J.jax.jit(lambda: r[1])()


def inputs_of_scan(J: Any, x: Any) -> Any:
    r = J.jax.new_ref(x)

    def step(total: Any, row: Any) -> Any:
        row[...] = row[...] * 2
        return total + row[...], None

    return J.lax.scan(step, 0.0, r)[0], r[...]


def empty(J: Any, x: Any) -> Any:
    r = J.jax.empty_ref(J.jax.ShapeDtypeStruct((4,), J.np.float32))
    r[...] = x
    y = r[1]
    J.jax.free_ref(r)
    return y


def run(J: Any, function: Callable[..., Any], *arrays: Any) -> Any:
    """What a jitted function of a reference gives, and what the reference holds after two calls."""
    r = J.jax.new_ref(J.np.asarray(arrays[0]))
    jitted = J.jax.jit(functools.partial(function, J))
    return [jitted(r, *arrays[1:]), jitted(r, *arrays[1:]), r[...]]


def assert_same(ours: Any, theirs: Any) -> None:
    ours, theirs = jax.tree.leaves(weft.device_get(ours)), jax.tree.leaves(jax.device_get(theirs))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


@functools.cache
def jaxs_result(function: Any) -> Any:
    return run(JAX, function, X, np.int32(1))


@pytest.mark.parametrize("function", [accesses, index_arrays])
def test_a_reference_as_argument(function: Any) -> None:
    assert_same(run(WEFT, function, X, np.int32(1)), jaxs_result(function))


def test_eager_accesses_are_those_of_jit() -> None:
    for function in (accesses, index_arrays):
        r = weft.new_ref(X)
        eager = [function(WEFT, r, np.int32(1)), function(WEFT, r, np.int32(1)), r[...]]
        assert_same(eager, jaxs_result(function))


@pytest.mark.parametrize("function", [inside, control, nested_jit, inputs_of_scan])
def test_references_made_inside(function: Any) -> None:
    expected = jax.jit(functools.partial(function, JAX))(V)
    assert_same(function(WEFT, wnp.asarray(V)), expected)
    assert_same(weft.jit(functools.partial(function, WEFT))(V), expected)


def test_empty_references() -> None:
    assert weft.jit(functools.partial(empty, WEFT))(V) == 1.0
    assert empty(WEFT, wnp.asarray(V)) == 1.0


def printed(J: Any, function: Callable[..., Any], *args: Any) -> str:
    return str(J.jax.make_jaxpr(functools.partial(function, J))(*args))


@pytest.mark.parametrize("function", [inside, control, nested_jit, inputs_of_scan, empty])
def test_programs_are_printed_as_jaxs(function: Any) -> None:
    assert printed(WEFT, function, V) == printed(JAX, function, V)


def test_accesses_are_printed_as_jaxs() -> None:
    args = [(J, accesses, J.jax.new_ref(J.np.asarray(X)), np.int32(1)) for J in (WEFT, JAX)]
    assert printed(*args[0]) == printed(*args[1])


# -- transformations --------------------------------------------------------------------------------------------------


def smooth(J: Any, x: Any) -> Any:
    """A function of one array that works through a reference, in a scan and outside."""
    r = J.jax.new_ref(x)
    total = J.jax.new_ref(0.0)

    def step(c: Any, x: Any) -> Any:
        r[0] = J.np.sin(r[0]) * x
        total[...] += r[0] * c
        J.ref.addupdate(r, 1, r[0] * c)
        return c * 0.5, r[1]

    _, ys = J.lax.scan(step, 1.0, x)
    r[2:] = r[2:] * r[0]
    return total[...] + (r[...] ** 2).sum() + ys.sum()


def smooth_by_hand(x: Any) -> Any:
    """The same without references, for JAX."""

    def step(state: Any, x: Any) -> Any:
        c, r, total = state
        r = r.at[0].set(jnp.sin(r[0]) * x)
        total = total + r[0] * c
        r = r.at[1].add(r[0] * c)
        return (c * 0.5, r, total), r[1]

    (_, r, total), ys = jax.lax.scan(step, (1.0, x, 0.0), x)
    r = r.at[2:].set(r[2:] * r[0])
    return total + (r**2).sum() + ys.sum()


def test_derivatives() -> None:
    x = V + 0.5
    ours, theirs = functools.partial(smooth, WEFT), smooth_by_hand
    expected, second = jax.jit(lambda x: (jax.grad(theirs)(x), jax.hessian(theirs)(x)))(x)
    np.testing.assert_allclose(weft.grad(weft.jit(ours))(x), expected, rtol=1e-5)
    np.testing.assert_allclose(weft.jit(weft.hessian(ours))(x), second, rtol=1e-4, atol=1e-5)


def test_checkpointed_functions() -> None:
    def function(x: Any) -> Any:
        r = weft.new_ref(x)
        r[...] = wnp.sin(r[...])
        return r[...]

    np.testing.assert_allclose(weft.grad(weft.checkpoint(function))(2.0), np.cos(2.0), rtol=1e-6)
    r = weft.new_ref(3.0)
    np.testing.assert_allclose(weft.grad(weft.checkpoint(lambda x: x * r[...]))(2.0), 3.0)


def test_vectorisation() -> None:
    xs = np.stack([V + 0.5, V - 0.25])
    ours = functools.partial(smooth, WEFT)
    expected, gradients = jax.jit(jax.vmap(jax.value_and_grad(smooth_by_hand)))(xs)
    values, found = weft.jit(weft.vmap(weft.value_and_grad(ours)))(xs)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(found, gradients, rtol=1e-5)
    rows = weft.vmap(weft.jit(functools.partial(control, WEFT)))(xs)
    theirs = jax.jit(functools.partial(control, JAX))
    for number, x in enumerate(xs):
        assert_same([row[number] for row in rows], theirs(x))


def test_references_are_mapped_as_arrays_are() -> None:
    def write(J: Any, r: Any, x: Any) -> Any:
        r[0] = x
        J.ref.addupdate(r, 1, r[0] * 2)
        return r[2]

    for jit in (False, True):
        results = []
        for J in (WEFT, JAX):
            r = J.jax.new_ref(J.np.asarray(X))
            mapped = J.jax.vmap(functools.partial(write, J), in_axes=(1, 0))
            results.append([(J.jax.jit(mapped) if jit else mapped)(r, V[:3]), r[...]])
        assert_same(*results)


def test_references_from_outside_of_a_transformation() -> None:
    r = weft.new_ref(V)
    assert weft.grad(lambda x: r[3] * x)(1.0) == 3.0
    np.testing.assert_array_equal(weft.vmap(lambda i: r[i])(np.array([2, 0], np.int32)), [2.0, 0.0])
    assert weft.jit(weft.grad(lambda x, r: r[3] * x), static_argnums=())(1.0, r) == 3.0

    def scaled(x: Any) -> Any:
        r[0] = 8.0  # a write of what is not differentiated
        return weft.jit(lambda y: y * r[0])(x)

    assert weft.grad(scaled)(2.0) == 8.0
    assert r[0] == 8.0
    for act in (
        lambda: weft.grad(lambda x: (r.__setitem__(0, x), x)[1])(1.0),
        lambda: weft.vmap(lambda x: r.__setitem__(0, x))(V),
        lambda: weft.vmap(lambda x: weft.jit(lambda: r.addupdate(x, 0))())(V),
        lambda: weft.jit(lambda r: weft.vmap(lambda x: r.__setitem__(0, x))(V))(r),
    ):
        with pytest.raises(ValueError, match="Move the array reference to be an argument"):
            act()


# -- arguments and constants of jitted functions ----------------------------------------------------------------------


def test_a_call_writes_what_it_was_given() -> None:
    r, other = weft.new_ref(V), weft.new_ref(np.float32(1.0))

    @weft.jit
    def step(state: Any, x: Any) -> Any:
        state["r"][0] += x
        other[...] = other[...] * 2
        return state["r"][0]

    assert [float(step({"r": r}, 1.0)) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert r[0] == 3.0 and other[...] == 8.0
    assert step({"r": weft.new_ref(V + 1)}, 1.0) == 2.0
    assert other[...] == 16.0 and r[0] == 3.0


def test_values_read_before_a_write_stay() -> None:
    r = weft.new_ref(V)
    before = r[...]
    r[0] = 5.0
    frozen = weft.freeze(r)
    r[1] = 6.0
    weft.jit(lambda r: r.__setitem__(2, 7.0))(r)
    held = r[...]
    weft.jit(lambda r: r.__setitem__(2, 8.0))(r)
    np.testing.assert_array_equal(before, V)
    np.testing.assert_array_equal(frozen, [5.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(held, [5.0, 6.0, 7.0, 3.0])
    np.testing.assert_array_equal(r[...], [5.0, 6.0, 8.0, 3.0])
    x = wnp.arange(3.0)
    s = weft.new_ref(x)
    s[0] = 9.0
    assert x[0] == 0.0


def test_writes_are_in_place() -> None:
    r = weft.new_ref(np.zeros(1000, np.float32))
    r[0] = 1.0  # the first write leaves the array that it was made of
    pointer = r.unsafe_buffer_pointer()
    r[1] = 2.0
    weft.jit(lambda r: r.__setitem__(2, 3.0))(r)
    assert r.unsafe_buffer_pointer() == pointer
    assert r[1] == 2.0 and r[2] == 3.0


def test_references_to_keys() -> None:
    def draw(key: Any) -> Any:
        r = weft.new_ref(key)
        first = weft.random.uniform(r[...])
        r[...] = weft.random.split(r[...])[0]
        return first, weft.random.uniform(r[...])

    key = weft.random.key(0)
    for drawn in (draw(key), weft.jit(draw)(key)):
        assert drawn == (weft.random.uniform(key), weft.random.uniform(weft.random.split(key)[0]))


def test_what_a_reference_says_of_itself() -> None:
    r = weft.new_ref(X)
    assert (r.shape, r.dtype, r.ndim, r.size, len(r)) == ((4, 3), np.float32, 2, 12, 4)
    assert repr(weft.typeof(r)) == repr(jax.typeof(jax.new_ref(X))) == "Ref{float32[4,3]}"
    assert repr(weft.new_ref(V)) == repr(jax.new_ref(V))
    assert isinstance(r, weft.Ref) and not isinstance(r[...], weft.Ref)
    seen = []
    weft.jit(lambda r: seen.append((isinstance(r, weft.Ref), r.shape, len(r), r.aval)))(r)
    assert seen == [(True, (4, 3), 4, weft.ref.AbstractRef(r.aval.inner_aval))]
    assert weft.eval_shape(lambda r: r[0], r).shape == (3,)


def test_slices_of_traced_start() -> None:
    def program(J: Any, r: Any, i: Any) -> Any:
        r[J.jax.ds(i, 2)] = r[J.jax.ds(0, 2)] + 1.0
        return r[J.jax.ds(i, 2), 1]

    assert_same(run(WEFT, program, X, np.int32(1)), run(JAX, program, X, np.int32(1)))


ERRORS = {
    "shape": lambda J, r: r.__setitem__(slice(1, 3), J.np.zeros(3)),
    "no broadcasting": lambda J, r: r.__setitem__(..., 1.0),
    "dtype": lambda J, r: r.__setitem__(0, 1),
    "wider dtype": lambda J, r: r.__setitem__(0, 1j),
    "dtype of what is added": lambda J, r: J.ref.addupdate(r, 0, J.np.int32(1)),
    "too many indices": lambda J, r: r[0, 0],
    "position outside": lambda J, r: r[4],
    "negative step": lambda J, r: r[::-1],
    "boolean index": lambda J, r: r[J.np.array([True, False, True, False])],
    "no reference": lambda J, r: J.ref.get(J.np.ones(3), 0),
    "value that is no array": lambda J, r: r.__setitem__(0, "x"),
    "arithmetic": lambda J, r: r + 1,
    "mathematics": lambda J, r: J.np.sin(r),
    "float": lambda J, r: float(r),
    "no array to start with": lambda J, r: J.jax.new_ref([1.0]),
    "passed twice": lambda J, r: J.jax.jit(lambda a, b: a[0] + b[0])(r, r),
    "passed twice under jit": lambda J, r: J.jax.jit(lambda r: J.jax.jit(lambda a, b: a[0] + b[0])(r, r))(r),
    "passed and closed over": lambda J, r: J.jax.jit(lambda a: a[0] + r[0])(r),
    "returned": lambda J, r: J.jax.jit(lambda a: a)(r),
    "made and returned": lambda J, r: J.jax.jit(lambda: J.jax.new_ref(1.0))(),
    "state of a scan": lambda J, r: J.lax.scan(lambda c, x: (c, x), r, J.np.zeros(3)),
    "state of a while loop": lambda J, r: J.lax.while_loop(lambda c: False, lambda c: c, r),
    "returned by a branch": lambda J, r: J.lax.cond(True, lambda r: r, lambda r: r, r),
    "moved to a device": lambda J, r: J.jax.device_put(r),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors_are_of_jaxs_classes(what: str) -> None:
    raised = []
    for J in (WEFT, JAX):
        with pytest.raises(Exception) as caught:
            ERRORS[what](J, J.jax.new_ref(J.np.asarray(V)))
        raised.append(caught.type)
    assert raised[0].__name__ == raised[1].__name__


@pytest.mark.oracle
def test_programs_compiled_ahead_of_time_take_references() -> None:
    """Arguments, in containers, closed over, beside static ones; an array instead of a reference is only read."""

    def doubled(r: Any) -> Any:
        r[...] = r[...] * 2
        return r[0] + 1

    def used(module: Any) -> list[Any]:
        r, s, t = [module.new_ref(module.numpy.arange(3.0) + 1) for _ in range(3)]
        lowered = module.jit(doubled).lower(r)
        compiled = lowered.compile()
        made = [compiled(r), r[...], compiled(r), r[...], compiled(s), s[...], compiled(module.numpy.arange(3.0))]
        assert "multiply" in lowered.as_text()
        closed = module.jit(lambda x: doubled(t) + x).lower(1.0).compile()
        made += [closed(1.0), closed(2.0), t[...]]
        stored_by = module.jit(stored, static_argnums=1).lower({"a": r, "b": s[...]}, 3).compile()
        made += [stored_by({"a": s, "b": r[...]}), s[...], module.jit(doubled).trace(r).lower().compile()(r), r[...]]
        with pytest.raises(TypeError, match="Argument types differ"):
            compiled(module.new_ref(module.numpy.arange(4.0)))
        return [np.asarray(x).tolist() for x in made]

    def stored(tree: Any, n: int) -> Any:
        tree["a"][...] = tree["b"] * n
        return tree["a"][...].sum()

    assert used(weft) == used(jax)


def test_errors_of_our_own() -> None:
    r = weft.new_ref(V)
    with pytest.raises(TypeError, match="no derivative with respect to a mutable array reference"):
        weft.grad(lambda r: r[0])(r)
    with pytest.raises(TypeError, match="a reference holds an array"):
        weft.new_ref(r)
    with pytest.raises(ValueError, match="no index None"):
        r[None]
    with pytest.raises(weft.errors.UnexpectedTracerError):
        leaked = []
        weft.jit(lambda r: leaked.append(r))(r)
        leaked[0][0]


def test_what_a_program_closes_over_is_read_in_each_call() -> None:
    r = weft.new_ref(V)
    slope, rows = weft.jit(weft.grad(lambda x: r[3] * x)), weft.jit(weft.vmap(lambda i: r[i]))

    @weft.jit
    @weft.grad
    def counting(x: Any) -> Any:
        r[0] += 1.0
        return x * r[0]

    assert slope(1.0) == 3.0 and rows(np.arange(2)).tolist() == [0.0, 1.0]
    assert [float(counting(1.0)) for _ in range(3)] == [1.0, 2.0, 3.0]
    r[3] = 8.0
    assert slope(1.0) == 8.0 and rows(np.arange(2)).tolist() == [3.0, 1.0]


def test_memory_seen_as_another_array() -> None:
    """Reads and writes of what a reference is seen as, beside NumPy's views of the same memory."""
    x = np.arange(48, dtype=np.uint8).reshape(8, 6)
    ref = weft.new_ref(wnp.asarray(x))
    words = x.reshape(2, 4, 6).swapaxes(1, 2).copy().view(np.uint32)[..., 0]
    np.testing.assert_array_equal(ref.bitcast(wnp.uint32)[...], words)
    ref.bitcast(wnp.uint32)[0, 1] = wnp.uint32(0xFFFFFFFF)
    x[:4, 1] = 255
    ref.reshape(4, -1)[1, 2:4] = wnp.uint8([7, 7])
    x.reshape(4, 12)[1, 2:4] = 7
    ref.at[1:3].T.reshape(3, 4)[0] = wnp.zeros(4, "uint8")
    part = x[1:3].T.copy().reshape(3, 4)
    part[0] = 0
    x[1:3] = part.reshape(6, 2).T
    ref.transpose(1, 0).addupdate(wnp.ones(8, "uint8"), 5)
    x[:, 5] += 1
    assert ref.T.at[0].reshape(2, 4).swap(wnp.uint8(3), (0, 1)) == x[1, 0]
    x[1, 0] = 3
    np.testing.assert_array_equal(ref[...], x)


def test_memory_seen_as_another_array_in_programs() -> None:
    def f(x):
        ref = weft.new_ref(x)
        ref.reshape(2, 3)[1] = ref.reshape(2, 3)[0] * 2.0
        return ref[...]

    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(weft.jit(f)(x), [0, 1, 2, 0, 2, 4])
    np.testing.assert_array_equal(weft.grad(lambda x: f(x).sum())(x), [3, 3, 3, 0, 0, 0])
    np.testing.assert_array_equal(weft.vmap(f)(x[None])[0], [0, 1, 2, 0, 2, 4])


@pytest.mark.parametrize(
    ("see", "error", "text"),
    [
        (lambda ref: ref.reshape(5), ValueError, r"shape \(4, 3\) has 12 elements, which is not shape \(5,\)"),
        (lambda ref: ref.reshape(-1, 5), ValueError, r"which is not shape \(-1, 5\)"),
        (lambda ref: ref.transpose(0, 0), ValueError, r"by \(0, 0\): that is no permutation"),
        (
            lambda ref: ref.at[0].bitcast("uint8"),
            ValueError,
            r"float32\[3\] as uint8: elements of 4 bytes become .* of 1",
        ),
        (lambda ref: ref.bitcast("int4"), NotImplementedError, "less than a byte"),
    ],
)
def test_what_memory_cannot_be_seen_as(see: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        see(weft.new_ref(wnp.asarray(X)))


def _refused(module: Any, where: str, ref: Any) -> Any:
    """A call with one reference twice, or once and closed over, which raises."""
    lax = module.lax
    if where == "scan":
        return lax.scan(lambda c, _: (None, None), (ref, ref), None, length=1)
    if where == "cond":
        return lax.cond(True, lambda a, b: None, lambda a, b: None, ref, ref)
    if where == "custom_vjp":
        f = module.custom_vjp(lambda a, b: None)
        f.defvjp(lambda a, b: (None, None), lambda _, ct: (None, None))
        return f(ref, ref)
    if where == "scan that captured":
        return lax.scan(lambda own, _: (ref[...] + own[...], None), ref, None, length=1)
    return lax.cond(True, lambda own: ref[...] + own[...], lambda own: own[...], ref)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("scan", r"only one reference to a mutable array may be passed.*c\[0\] and c\[1\]"),
        ("cond", "only one reference to a mutable array may be passed.*a and b"),
        ("custom_vjp", "only one reference to a mutable array may be passed.*a and b"),
        ("scan that captured", "was both closed over and passed as the argument own"),
        ("cond that captured", "was both closed over and passed as the argument own"),
    ],
)
def test_a_reference_that_comes_in_by_two_ways_is_named(where: str, text: str) -> None:
    for module in (weft, jax):
        with pytest.raises(ValueError, match=text):
            _refused(module, where, module.new_ref(0.0))

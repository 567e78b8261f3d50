"""cond, switch, while_loop, fori_loop, scan, map and associative_scan: programs, values and errors beside JAX's."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from tests.control.programs import PROGRAMS, WRONG
from weft import lax
from weft.compiler.plans.instructions import DonatedOutput

ARGS = (np.arange(3, dtype=np.float32), np.int32(5), np.arange(12, dtype=np.float32).reshape(4, 3))


def function(text: str, module: object, numpy: object) -> object:
    return eval(f"lambda x, n, m: {text}", {"lax": module, "jnp": numpy, "np": np})


def leaves(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.tree.map(np.asarray, tree))]


def assert_same(ours: object, theirs: object) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxpr_is_jax_s(name: str) -> None:
    ours = weft.make_jaxpr(function(PROGRAMS[name], lax, jnp))(*ARGS)
    theirs = jax.make_jaxpr(function(PROGRAMS[name], jax.lax, jax.numpy))(*ARGS)
    assert str(ours) == str(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_jax_s(name: str) -> None:
    reference = function(PROGRAMS[name], jax.lax, jax.numpy)
    given = [jax.numpy.asarray(x) for x in ARGS]
    run = function(PROGRAMS[name], lax, jnp)
    arrays = [jnp.asarray(x) for x in ARGS]
    assert_same(run(*arrays), reference(*given))
    assert_same(weft.jit(run)(*arrays), jax.jit(reference)(*given))


@pytest.mark.oracle
@pytest.mark.parametrize("text", WRONG)
def test_wrong_use_raises_jax_s_class_and_says_why(text: str) -> None:
    arrays = [jnp.asarray(x) for x in ARGS]
    with pytest.raises(Exception) as theirs:
        jax.make_jaxpr(function(text, jax.lax, jax.numpy))(*ARGS)
    calls = [weft.make_jaxpr(function(text, lax, jnp)), function(text, lax, jnp)]
    for call in calls[: 1 if "unroll=2" in text else 2]:  # outside a trace the bound is known
        with pytest.raises(type(theirs.value)) as ours:
            call(*arrays)
        assert WRONG[text] in str(ours.value)
    assert WRONG[text] in str(theirs.value)


def test_disable_jit_runs_the_loops_in_python() -> None:
    seen: list[float] = []

    def body(total: object, x: object) -> object:
        seen.append(float(x))
        return total + x, total

    with weft.disable_jit():
        total, before = lax.scan(body, 0.0, jnp.arange(3.0))
        assert lax.cond(True, lambda: 1, lambda: 2) == 1
        assert lax.while_loop(lambda s: s < 3, lambda s: s + 1, 0) == 3
        assert lax.fori_loop(0, 3, lambda i, s: s + i, 0) == 3
    assert seen == [0.0, 1.0, 2.0]
    assert float(total) == 3.0 and before.tolist() == [0.0, 0.0, 1.0]


def test_only_the_branch_taken_runs() -> None:
    compiled = weft.jit(lambda p, x: lax.cond(p, lambda: x @ x, lambda: x)).lower(True, jnp.ones((8, 8))).compile()
    assert "cond" in compiled.as_text("plan") and "gemm" not in compiled.as_text("plan")


def test_state_is_updated_in_place() -> None:
    """A loop that writes one row at a time copies nothing: its body is one kernel, and holds no temporary array."""

    def fill(x: object) -> object:
        return lax.fori_loop(0, 64, lambda i, s: lax.dynamic_update_slice(s, jnp.ones((1, 4096)), (i, 0)), x)

    traced = weft.jit(fill).trace(jnp.zeros((64, 4096)))
    program = traced.lower().compile()._compiled.program
    body = program.nested[0]
    assert body.executable.n_kernels == 2 and body.executable.temp_bytes <= 64  # the clamped start
    assert any(type(output) is DonatedOutput for output in body.plan.outputs)
    assert np.asarray(weft.jit(fill)(jnp.zeros((64, 4096)))).min() == 1


def test_initial_values_stay_as_they_were() -> None:
    x = jnp.arange(4.0)
    weft.jit(lambda x: lax.fori_loop(0, 5, lambda i, s: s * 2, x))(x)
    lax.while_loop(lambda s: s[0] < 9, lambda s: s + 1, x)
    assert x.tolist() == [0, 1, 2, 3]


def test_a_body_is_traced_once_for_one_function_object() -> None:
    traced = 0

    def body(i: object, s: object) -> object:
        nonlocal traced
        traced += 1
        return s + i

    for _ in range(3):
        lax.fori_loop(0, 4, body, 0)
        weft.jit(lambda n: lax.fori_loop(0, n, body, 0))(4)
    assert traced == 2  # as a scan, and as a while loop


def test_keys_may_be_carried() -> None:
    def step(key: object, _: object) -> object:
        key, use = weft.random.split(key)
        return key, weft.random.bits(use, (2,))

    key = weft.random.key(3)
    _, drawn = lax.scan(step, key, None, length=3)
    expected = []
    for _ in range(3):
        key, row = step(key, None)
        expected.append(np.asarray(row))
    assert np.array_equal(drawn, np.stack(expected))


@settings(max_examples=40, deadline=None)
@given(
    permutation=st.permutations(range(4)),
    updates=st.lists(st.sampled_from(["keep", "scale", "add", "constant", "first"]), min_size=4, max_size=4),
    trips=st.integers(0, 7),
    wide=st.booleans(),
)
def test_any_shuffle_of_the_state_is_what_python_computes(
    permutation: list[int], updates: list[str], trips: int, wide: bool
) -> None:
    """Parts of the state are exchanged, stay, are shared, are overwritten: whatever memory they lie in."""
    shape = (70,) if wide else ()
    captured = np.full(shape, 3, np.float32)

    def body(i: int, state: tuple) -> tuple:
        moved = [state[p] for p in permutation]
        out = []
        for value, how in zip(moved, updates, strict=True):
            if how == "scale":
                value = value * 2
            elif how == "add":
                value = value + moved[0]
            elif how == "constant":
                value = captured
            elif how == "first":
                value = moved[0]
            out.append(value)
        return tuple(out)

    start = tuple(np.full(shape, k + 1, np.float32) for k in range(4))
    expected = start
    for i in range(trips):
        expected = body(i, expected)
    run = weft.jit(lambda state, n: lax.fori_loop(0, n, lambda i, s: tuple(map(jnp.asarray, body(i, s))), state))
    found = run(tuple(map(jnp.asarray, start)), trips)
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "bounds",
    [(0.0, 3.0), (0.5, 3.2), (np.float32(0), np.float32(2)), (False, True), (-1.5, 1), (3.0, 0.0)],
    ids=["floats", "fractions", "float32", "bools", "mixed", "none"],
)
def test_loops_with_bounds_that_are_no_integers(bounds: tuple[Any, Any]) -> None:
    def outcome(module: Any, traced: bool) -> Any:
        body = lambda i, s: (s[0] + i, s[1] + 1)
        run = lambda a, b: module.lax.fori_loop(a, b, body, (0.0, 0))
        try:
            outs = module.jit(run)(*bounds) if traced else run(*bounds)
        except TypeError:
            return TypeError
        return [(float(out), str(out.dtype), out.weak_type) for out in outs]

    assert outcome(weft, False) == outcome(jax, False)
    if bounds != (False, True):  # jax adds 1 to a traced bool without end
        assert outcome(weft, True) == outcome(jax, True)


def test_gradient_through_a_loop_with_float_bounds() -> None:
    assert float(weft.grad(lambda x: lax.fori_loop(0.0, 3.0, lambda i, s: s * x + i, x))(2.0)) == 33
    for bad in (float("nan"), float("inf")):
        with pytest.raises((ValueError, OverflowError)):
            lax.fori_loop(0.0, bad, lambda i, s: s, 0)
    with pytest.raises(TypeError, match="real numbers"):
        lax.fori_loop(0j, 3j, lambda i, s: s, 0)


@pytest.mark.parametrize("loop", ["while", "scan", "fori"])
def test_a_state_that_changes_its_dtype_is_no_longer_weak(loop: str) -> None:
    """As in JAX: a Python int that becomes a float is a float32, and what keeps its dtype stays weak."""
    body = lambda s: (s[0] + 1.0, s[1] + 1)
    run = {
        "while": lambda: lax.while_loop(lambda s: s[1] < 3, body, (0, 0)),
        "scan": lambda: lax.scan(lambda s, _: (body(s), None), (0, 0), None, length=3)[0],
        "fori": lambda: lax.fori_loop(0, 3, lambda i, s: body(s), (0, 0)),
    }[loop]
    for changed, kept in (run(), weft.jit(run)()):
        assert (float(changed), changed.dtype, changed.weak_type) == (3, np.float32, False)
        assert (int(kept), kept.dtype, kept.weak_type) == (3, np.int32, True)


BRANCHES = {
    "weak constant": lambda m, x: 1.0,
    "operand": lambda m, x: x,
    "weak product": lambda m, x: x * 2.0,
    "strong constant": lambda m, x: m.numpy.float32(3),
}


@pytest.mark.oracle
@pytest.mark.parametrize("one", BRANCHES)
@pytest.mark.parametrize("other", BRANCHES)
@pytest.mark.parametrize("x", [2.0, np.float32(2)], ids=["weak", "strong"])
def test_branches_of_different_weakness_give_jax_s_programs_and_types(one: str, other: str, x: Any) -> None:
    def made(m: Any) -> Any:
        f, g = [lambda x, name=name: BRANCHES[name](m, x) for name in (one, other)]
        choices = [lambda p, x: m.lax.cond(p, f, g, x), lambda p, x: m.lax.switch(p * 1, [f, g, g], x)]
        narrow = lambda choose: lambda p, x: choose(p, x) + m.numpy.bfloat16(1)
        values = [m.jit(fun)(True, x) for choose in choices for fun in (choose, narrow(choose))]
        return [str(m.make_jaxpr(choose)(True, x)) for choose in choices], values

    (programs, values), (their_programs, their_values) = made(weft), made(jax)
    assert programs == their_programs
    for a, b in zip(values, their_values, strict=True):
        assert (a.dtype, a.weak_type, float(a)) == (b.dtype, b.weak_type, float(b))


@pytest.mark.oracle
def test_errors_name_the_function_that_was_called() -> None:
    for name, call in (
        ("switch", lambda m: m.lax.switch(0, [lambda x: x, lambda x: (x, x)], 1.0)),
        ("switch", lambda m: m.lax.switch(0, [lambda x: x, lambda x: x > 1], 1.0)),
        ("cond", lambda m: m.lax.cond(True, lambda x: x, lambda x: x > 1, 1.0)),
    ):
        for m in (weft, jax):
            with pytest.raises(TypeError, match=f"^{name} branch"):
                call(m)


@pytest.mark.oracle
def test_a_traced_length_of_scan_says_what_to_use_instead() -> None:
    def counted(m: Any, n: Any) -> Any:
        return m.lax.scan(lambda c, _: (c, c), 0, None, n)

    for m in (weft, jax):
        with pytest.raises(m.errors.ConcretizationTypeError, match="fori_loop"):
            m.jit(functools.partial(counted, m))(3)

"""Programs with callbacks on the device of a plugin: parts for the device and steps on the host, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import io_callback

X = np.arange(3, dtype=np.float32)
SEEN: list[Any] = []


def spec(*shape: int) -> Any:
    return weft.ShapeDtypeStruct(shape, "float32")


def note(*values: Any) -> None:
    SEEN.append([np.asarray(value).tolist() for value in values])


def straight(x: Any) -> Any:
    a = wnp.sin(x)
    b = weft.pure_callback(lambda v: np.asarray(v) * 2, spec(3), a)
    weft.debug.callback(note, b, ordered=True)
    io_callback(note, None, a + b, ordered=True)
    weft.pure_callback(lambda v: (note(v), v)[1], spec(3), a)  # nobody reads it
    return {"sum": a + b, "input": x, "constant": 2.0, "first": a}


def in_a_scan(x: Any) -> Any:
    def body(state: Any, y: Any) -> Any:
        io_callback(note, None, state, ordered=True)
        return state + y, (state * y, weft.pure_callback(lambda v: np.asarray(v) * 3, spec(), state))

    return lax.scan(body, wnp.float32(1), x), lax.scan(body, wnp.float32(2), x, reverse=True)


def in_an_empty_scan(x: Any) -> Any:
    return lax.scan(lambda s, y: (s + io_callback(lambda v: v, spec(), y), y), wnp.float32(1), x[:0])


def in_a_while(x: Any) -> Any:
    def going(state: Any) -> Any:
        io_callback(note, None, state[1], ordered=True)
        return state[1] < 3

    def body(state: Any) -> Any:
        return weft.pure_callback(lambda v: np.asarray(v) * 2, spec(3), state[0]), state[1] + 1

    return lax.while_loop(going, body, (x, 0))


def in_branches(x: Any) -> Any:
    def negative(v: Any) -> Any:
        return weft.pure_callback(lambda w: -np.asarray(w), spec(3), v)

    return [lax.switch(i, [negative, wnp.cos, lambda v: v * 2], x) for i in (-1, 1, 2, 9)]


def in_inner_functions(x: Any) -> Any:
    inner = weft.jit(lambda v: weft.pure_callback(lambda w: np.asarray(w) + 1, spec(3), v * 2))
    return inner(inner(x)), weft.checkpoint(inner)(x)


def of_several_shapes(x: Any) -> Any:
    """Scalars, no elements, bfloat16, complex numbers and integers."""
    values = (x[0], x[:0], x.astype(wnp.bfloat16), x * 1j, x.astype(wnp.int8), x > 1)
    types = tuple([weft.ShapeDtypeStruct(v.shape, v.dtype) for v in values])
    return weft.pure_callback(lambda *vs: vs, types, *values)


def of_random_keys(x: Any) -> Any:
    def body(state: Any, key: Any) -> Any:
        weft.debug.callback(note, state, ordered=True)
        return state + weft.random.uniform(key), weft.random.fold_in(key, 1)

    total, keys = lax.scan(body, x[0], weft.random.split(weft.random.key(1), 3))
    return total, weft.random.key_data(keys)


def mapped(x: Any) -> Any:
    return weft.vmap(lambda v: weft.pure_callback(lambda w: np.asarray(w) ** 2, spec(), v, vmap_method="sequential"))(x)


def without_a_form(x: Any) -> Any:
    """Eigenvalues of general matrices, which StableHLO has not: a library of the host computes them."""
    matrix = wnp.outer(x, x) + wnp.arange(9.0).reshape(3, 3)
    return wnp.sort(wnp.linalg.eigvals(matrix)) + 1


PROGRAMS: list[Callable[[Any], Any]] = [
    straight, in_a_scan, in_an_empty_scan, in_a_while, in_branches, in_inner_functions, of_several_shapes,
    of_random_keys, mapped, without_a_form,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_and_effects_are_those_of_the_cpu(program: Any, device: Any) -> None:
    SEEN.clear()
    expected = weft.jit(program)(X)
    weft.effects_barrier()
    seen = [*SEEN]
    f = weft.jit(program)
    for _ in range(2):  # the second call finds the program
        SEEN.clear()
        found = f(weft.device_put(X, device))
        weft.effects_barrier()
        assert len(SEEN) == len(seen)
        for ours, theirs in zip(SEEN, seen, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert weft.tree.structure(found) == weft.tree.structure(expected)
        for ours, theirs in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
            assert ours.devices() == {device} and ours.committed and ours.aval == theirs.aval
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)
    assert f.cache_info().executables == 1


def test_printing(device: Any, capfd: pytest.CaptureFixture[str]) -> None:
    weft.jit(lambda x: weft.debug.print("x is {}", x * 2), device=device)(X)
    weft.effects_barrier()
    assert capfd.readouterr().out.strip() == "x is [0. 2. 4.]"


def test_what_is_computed_in_a_callback_is_computed_on_the_cpu(device: Any) -> None:
    def look(v: Any) -> Any:
        note(v.devices() == set(weft.devices("cpu")), (v + 1).devices() == set(weft.devices("cpu")))
        return v + 1

    SEEN.clear()
    with weft.default_device(device):
        assert weft.jit(lambda x: weft.pure_callback(look, spec(3), x))(X).tolist() == [1.0, 2.0, 3.0]
        assert weft.pure_callback(look, spec(3), wnp.asarray(X)).tolist() == [1.0, 2.0, 3.0]
    assert SEEN[0] == [True, True]


def test_errors_of_callbacks(device: Any) -> None:
    def fails(v: Any) -> Any:
        raise ZeroDivisionError("mine")

    f = weft.jit(lambda x: weft.pure_callback(fails, spec(3), x), device=device)
    with pytest.raises(Exception, match="mine"):
        f(X).block_until_ready()
    wrong = weft.jit(lambda x: weft.pure_callback(lambda v: np.zeros(4, np.float32), spec(3), x), device=device)
    with pytest.raises(weft.errors.JaxRuntimeError, match="Incorrect output shape"):
        wrong(X).block_until_ready()
    assert weft.jit(lambda x: x + 1, device=device)(X).tolist() == [1.0, 2.0, 3.0]


def test_donated_and_compiled_ahead_of_time(device: Any, tmp_path: Any) -> None:
    f = weft.jit(lambda x: weft.pure_callback(lambda v: np.asarray(v) + 1, spec(3), x * 2), donate_argnums=0)
    x = weft.device_put(X, device)
    assert f(x).tolist() == [1.0, 3.0, 5.0] and x.is_deleted()
    compiled = f.lower(weft.device_put(X, device)).compile()
    assert compiled(weft.device_put(X, device)).tolist() == [1.0, 3.0, 5.0]
    assert "multiply" in compiled.as_text() and "pure_callback" in compiled.as_text("jaxpr")
    for refused in (compiled.cost_analysis, compiled.memory_analysis, lambda: compiled.save(tmp_path / "f.weft")):
        with pytest.raises(NotImplementedError, match="steps on the host"):
            refused()

"""Programs on a mesh: the programs of all devices, under vmap, give what the whole program gives on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.partitioning.namespaces import MESH, WEFT, arguments
from tests.partitioning.programs import PROGRAMS, SIZES
from weft import lax, partitioning, random
from weft.partitioning import by_vmap, verify
from weft.sharding import PartitionSpec as P


def both(function: Any, args: Any, in_specs: Any, out_specs: Any = None, values: Any = None) -> Any:
    """Partition (under WEFT_CHECK, which compares in NumPy) and compare machine code with machine code."""
    closed = weft.make_jaxpr(function)(*args)
    made = partitioning.partition(closed, SIZES, in_specs, out_specs)
    want = [np.asarray(x) for x in weft.tree_util.tree_leaves(weft.jit(function)(*args))]
    shapes = [x.shape for x in want]
    flat = weft.tree_util.tree_leaves(args) if values is None else values
    found = by_vmap.run(made.local, flat, made.in_specs, made.out_specs, shapes, SIZES)
    for left, right in zip(want, found, strict=True):
        assert verify.same(left, right, made.is_exact), (left, right)
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_shards_give_the_whole(name: str) -> None:
    program = PROGRAMS[name]
    both(program.make(WEFT), arguments(program), [a.spec for a in program.arguments])


X = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)
TABLE = np.random.default_rng(2).standard_normal((32, 8)).astype(np.float32)
ROWS = np.array([[0, 31, 40, -3], [5, 6, 7, 8], [-40, 100, 16, 15], [1, 1, 1, 1]], np.int32)
UPDATES = np.random.default_rng(3).standard_normal((4, 4, 8)).astype(np.float32)


def collectives(made: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.name, each.axes) for each in made.moved]


@pytest.mark.parametrize("mode", ["clip", "fill", None])
@pytest.mark.parametrize("axes", ["y", ("x", "y")])
def test_rows_are_looked_up_where_they_lie(mode: str | None, axes: Any) -> None:
    made = both(lambda t, i: t.at[i].get(mode=mode), [TABLE, ROWS], [(axes,), None])
    assert [name for name, _ in collectives(made)] == ["psum"]


def test_two_components_of_an_index() -> None:
    both(lambda t, i: t[i, i % 8], [TABLE, np.abs(ROWS) % 32], [("x", "y"), None])


@pytest.mark.parametrize("operation", ["add", "max", "set", "multiply"])
@pytest.mark.parametrize("specs", [("y", None, None), (None, "x", "x"), ("y", "x", "x")])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_rows_are_updated_where_they_lie(operation: str, specs: Any, mode: str) -> None:
    def update(t: Any, i: Any, u: Any) -> Any:
        return getattr(t.at[i], operation)(u, mode=mode)

    made = both(update, [TABLE, ROWS, UPDATES], [(spec,) for spec in specs])
    if specs[1] is None and mode == "drop":
        assert not made.moved


def test_random_bits_are_those_of_one_device() -> None:
    key = random.key(3)
    for function in (lambda k: random.bits(k, (16, 8)), lambda k: random.normal(k, (16, 8))):
        made = both(function, [key], [None], [("x", "y")], [np.asarray(random.key_data(key))])
        assert not made.moved
    keys = random.split(key, 16)
    made = both(
        weft.vmap(lambda k: random.uniform(k, (3,))), [keys], [("x",)], None, [np.asarray(random.key_data(keys))]
    )
    assert made.out_specs == ((("x",), ()),) and not made.moved


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint32", "complex64", "float32"])
def test_indices_are_counted_once(dtype: str) -> None:
    def function(x: Any) -> Any:
        return x + jnp.arange(4096).astype(dtype), lax.iota(jnp.dtype(dtype), 4096)

    made = both(function, [np.zeros(4096, jnp.dtype(dtype))], [("y",)], [None, ("y",)])
    assert not made.moved


@pytest.mark.parametrize(
    ("name", "function", "shape", "spec"),
    [
        ("reduction", lambda x: (x.sum(0), x.max(1, initial=0)), (0, 8), ("x", "y")),
        ("elementwise", lambda x: x * 2, (8, 0), ("x",)),
        ("scalar", lambda x: x + 1, (), ()),
        ("literal result", lambda x: (1.0, x), (16, 8), ("x",)),
        ("unused", lambda x: 3.0, (16, 8), ("x",)),
        ("uneven", lambda x: x.reshape(6, 3)[:, :2].sum(1), (18,), ("x",)),
    ],
)
def test_edges(name: str, function: Any, shape: Any, spec: Any) -> None:
    both(function, [np.ones(shape, np.float32)], [spec])


def test_a_value_lies_in_two_ways() -> None:
    made = both(lambda x: (x, x, x + 1), [X], [("x",)], [("x",), (None, "x"), None])
    assert made.out_specs == ((("x",), ()), ((), ("x",)), (("x",), ()))
    assert collectives(made) == [("all_to_all", ("x",))]


def test_half_precision_and_complex_sums() -> None:
    both(lambda x: x.sum(0), [X.astype(jnp.bfloat16)], [("x", "y")])
    both(lambda x: (x @ x.T).sum(0), [X.astype(np.complex64)], [("x", "y")])


def test_own_derivatives_and_checkpoints() -> None:
    @weft.custom_vjp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x),))
    both(weft.grad(lambda x: sine(x).sum()), [X], [("x",)])
    weights = X[:8]
    layer = weft.checkpoint(lambda w, x: jnp.tanh(x @ w).sum())
    made = both(weft.grad(layer), [weights, X], [None, ("x",)])
    assert collectives(made) == [("psum", ("x",))]


def test_control_flow() -> None:
    branches = [jnp.sin, lambda x: x @ x.T @ x, lambda x: x * 0]
    both(lambda i, x: lax.switch(i, branches, x), [np.int32(1), X], [None, ("x", "y")])
    both(lambda x: lax.fori_loop(0, 3, lambda i, s: s + s.T, x), [X @ X.T], [("x", "y")])

    def inner(c: Any, xs: Any) -> Any:
        return lax.scan(lambda d, v: (d + v, d.sum(0)), c, xs)

    both(lambda x: lax.scan(inner, x, jnp.ones((2, 3, 16, 8))), [X], [("x", "y")])
    made = both(lambda xs: lax.scan(lambda c, x: (c + x, c * x), jnp.zeros(8), xs), [X], [("x", "y")])
    assert collectives(made) == [("all_gather", ("x",))]  # a loop runs along all of its first dimension
    both(lambda a, b: lax.fori_loop(0, 3, lambda i, s: (s[1], s[0] * 2), (a, b)), [X, X], [("x",), ("y",)])
    both(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + x), (0, x)), [X], [("x",)])


def test_linear_algebra_along_a_batch() -> None:
    a = np.eye(4, dtype=np.float32)[None].repeat(8, 0) * 2 + 0.1
    made = both(lambda a, b: jnp.linalg.solve(a, b), [a, np.ones((8, 4, 2), np.float32)], [("x",), ("x",)])
    assert not made.moved


def test_a_wrong_local_program_is_found() -> None:
    made = partitioning.partition(weft.make_jaxpr(lambda x: x.sum(0))(X), SIZES, [("x",)])
    broken = made.local.jaxpr.replace(eqns=made.local.eqns[:-1], outvars=made.local.eqns[-2].outvars)
    with pytest.raises(weft.errors.InternalError, match="partition"):
        verify.verified(made._replace(local=made.local.replace(jaxpr=broken)))


def test_bad_specs_are_told() -> None:
    closed = weft.make_jaxpr(lambda x: x * 2)(X)
    for specs, words in [
        ([("z",)], "names 'z'"),
        ([("x", "x")], "'x' twice"),
        ([("x", None, "y")], "has 3 entries"),
        ([], "1 specs for 1 inputs and 1 results"),
    ]:
        with pytest.raises(ValueError, match=words):
            partitioning.partition(closed, SIZES, specs, [None])
    with pytest.raises(ValueError, match="extent 15, cannot be cut into 2 equal parts"):
        partitioning.partition(weft.make_jaxpr(lambda x: x)(X[:15]), SIZES, [("x",)])


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_program_of_shards_is_run_as_the_user_wrote_it(check_vma: bool) -> None:
    def ring(a: Any) -> Any:
        return lax.psum(lax.ppermute(a, "x", [(0, 1), (1, 0)]) * 2, "y")

    mapped = weft.shard_map(ring, mesh=MESH, in_specs=P("x", "y"), out_specs=P("x"), check_vma=check_vma)
    made = both(lambda a, w: jnp.tanh(mapped(a * 2) @ w), [X, X[:2]], [None, None])
    assert made.in_specs[0] == (("x",), ("y",)) and made.out_specs == ((("x",), ()),)
    assert not made.moved  # what the user wrote is not listed
    names = [eqn.primitive.name for eqn in made.local.eqns]
    assert names[:4] == ["mul", "ppermute", "mul", "psum"]
    moved = both(lambda a: mapped(a), [X], [("y",)])
    assert [name for name, _ in collectives(moved)] == ["all_to_all"]

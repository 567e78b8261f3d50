"""Symbolic sizes: what Python is told of them, constraints, and functions exported for them, against ``jax.export``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import export
from weft.errors import InconclusiveDimensionOperation

pytestmark = pytest.mark.oracle

EXPRESSIONS = """
b+2*c-1; c+b; 2*b*c+b*b-3; b//2; (b+1)//2; b%3; -b; b-c; b*b*b; c*b+c*c+b*b; b//c; b%c; (2*b)//2; (2*b+4)//2; b**2
(2*b+3)//2; (4*b)%2; (b*c)//b; -b//2; 1-b; 2*(b//2)+b%2; b-b%8; divmod(b,4); np.int32(3)*b; b+np.int64(2); bool(b)
b in (1,2,b); b in (1,2,3); b==1; b==0; b!=0; b>=1; b>=0; b<1; b>0; 2*b>=b; max(b,0); min(b,0); max(b,1); b%3<3
b//2<=b; b//2<b; b//2>=0; sum([b,c]); math.prod([b,c,2]); np.prod([b,c,2]); b==c; b==b+1; (b*c+3*b)//b; (b+c)//c
(b+2)%2; (2*b+1)%2; b>10; b*c>=b; b>=c; max(b,c); min(b,1); int(b); range(b); np.zeros(b); float(b)
b//0; b**-1; b&1; abs(b); [1,2,3][b]; hash(b) == hash(b+0); len({b, b+0, c}); f"{b} {2*b}"
"""


def outcome(text: str, names: dict[str, Any]) -> str:
    try:
        return repr(eval(text, names))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("text", [part.strip() for part in EXPRESSIONS.replace("\n", ";").split(";") if part.strip()])
def test_python_computes_and_compares_as_with_those_of_jax(text: str) -> None:
    found = []
    for module in (export, jax.export):
        b, c = module.symbolic_shape("b, c")
        found.append(outcome(text, {"b": b, "c": c, "np": np, "math": math}))
    assert found[0] == found[1]


CONSTRAINED = [
    (["b >= 4"], "b>=4, b>3, b-4, 2*b>=8"),
    (["b == 5"], "b, a+b"),
    (["mod(b, 8) == 0"], "b%8, b//8, b//8*8, b%4, (b//8)*8==b, (2*b)%8"),
    (["a == 2*b"], "a, a//2, a==2*b, a>=b"),
    (["a >= b"], "a>=b, a-b>=0, 2*a>=b"),
    (["a <= 10"], "a<=10, a<11"),
    (["a + b <= 10"], "a<=10, a+b<=10, a<10"),
    (["a*b == 12"], "a*b, 2*a*b"),
    (["floordiv(a, 2) == b"], "a//2"),
    (["a >= b", "b >= 7"], "a>=7, a>6"),
    (["a > 3"], "a"),
    (["1 >= 3"], "a"),
    ("a>=4", "a"),
]


@pytest.mark.parametrize(("constraints", "text"), CONSTRAINED)
def test_constraints_decide_as_in_jax(constraints: Any, text: str) -> None:
    found = []
    for module in (export, jax.export):
        try:
            a, b = module.symbolic_shape("a, b", constraints=constraints)
            found.append(outcome(f"({text},)", {"a": a, "b": b}))
        except ValueError:
            found.append("ValueError")
    assert found[0] == found[1]


SPECS = ["b,", "(b, 2)", "-b", "b-1", "b^2", "floordiv(b,2)", "mod(b, 3), max(b, 2)", "", "x-x", "b-b+3", "b + -1"]
WRONG = ["b c", "b+", "b**2", "1.5", "b,...", "_", "b*", "3, b ; d", "2*(b+1)", "b//2", "a.b"]


@pytest.mark.parametrize("spec", SPECS + WRONG)
def test_shapes_are_read_as_by_jax(spec: str) -> None:
    ours, theirs = [outcome("shape(spec)", {"shape": m.symbolic_shape, "spec": spec}) for m in (export, jax.export)]
    assert ours == theirs and (ours == "ValueError") == (spec in WRONG)


def specs_of(module: Any, shapes: tuple[str, ...], constraints: tuple[str, ...] = ()) -> list[Any]:
    scope = module.export.SymbolicScope(constraints)
    return [module.ShapeDtypeStruct(module.export.symbolic_shape(s, scope=scope), np.float32) for s in shapes]


BRANCHES: list[Callable[..., Any]] = [
    lambda J, x: x * 2 if x.shape[0] > 10 else x * 3,
    lambda J, x: x * 2 if x.size > 10 else x,
    lambda J, x: x * 2 if np.prod(x.shape) > 10 else x,
    lambda J, x: x * 2 if J.numpy.shape(x)[0] > 10 else x,
    lambda J, x: x * 2 if J.numpy.size(x) > 10 else x,
    lambda J, x: x * 2 if np.shape(x)[0] > 10 else x,
    lambda J, x: x * 2 if J.typeof(x).shape[0] > 10 else x,
    lambda J, x: x * 2 if J.eval_shape(J.numpy.sin, x).shape[0] > 10 else x,
    lambda J, x: x * 2 if J.numpy.concatenate([x, x]).shape[0] > 10 else x,
    lambda J, x: J.jit(lambda y: y * 2 if y.shape[0] > 10 else y)(x),
    lambda J, x: J.vmap(lambda y: y * 2 if y.shape[0] > 10 else y)(x[None]),
    lambda J, x: J.grad(lambda y: y.sum() if y.shape[0] > 10 else y.max())(x),
    lambda J, x: x * max(x.shape[0], 2),
    lambda J, x: x * int(x.shape[0]),
    lambda J, x: x * len(x),
    lambda J, x: sum(x[i] for i in range(x.shape[0])),
    lambda J, x: sum(row for row in x),
    lambda J, x: x * [1, 2, 3][x.shape[0] % 3],
    lambda J, x: x * np.ones(x.shape[0], np.float32),
    lambda J, x: x + J.numpy.ones(4),
    lambda J, x: J.numpy.linspace(0.0, 1.0, x.shape[0]),
    lambda J, x: x.reshape(2, -1),
]


@pytest.mark.parametrize("function", BRANCHES)
def test_what_an_unknown_size_does_not_decide_is_refused_as_by_jax(function: Callable[..., Any]) -> None:
    kinds = []
    for module in (weft, jax):
        with pytest.raises(Exception) as caught:
            module.export.export(module.jit(lambda x, m=module: function(m, x)))(*specs_of(module, ("b",)))
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


def test_branches_that_constraints_decide_are_exported() -> None:
    def function(x: Any) -> Any:
        y = x * 2 if x.shape[0] >= 1 and 2 * x.shape[0] > x.shape[0] else x
        return y if x.shape[0] % 2 == 0 else y + 1  # equality that is not decided is False, as in JAX

    exported = export.export(weft.jit(function))(*specs_of(weft, ("b",)))
    for call in (exported.call, export.deserialize(exported.serialize()).call):
        assert call(np.float32([1, 2])).tolist() == [3.0, 5.0]
    above = export.export(weft.jit(lambda x: x if x.shape[0] > 3 else -x))(*specs_of(weft, ("b",), ("b >= 4",)))
    assert above.call(np.ones(4, np.float32)).tolist() == [1.0] * 4


def test_eval_shape_tells_sizes_too() -> None:
    (struct,) = specs_of(weft, ("b, c",))
    found = weft.eval_shape(lambda x: (x.reshape(-1), x[::2], jnp.zeros(x.shape[0] % 3)), struct)
    assert [str(s.shape) for s in found] == ["(b*c,)", "(floordiv(b + 1, 2), c)", "(mod(b, 3),)"]
    with pytest.raises(InconclusiveDimensionOperation, match="'b' > '10'"):
        weft.eval_shape(lambda x: x if x.shape[0] > 10 else x.T, struct)


CALLS = [
    (("b",), ("b >= 4",), ((2,),), "b >= 4.*'b - 4'.*found -2"),
    (("b",), ("b <= 4",), ((5,),), "b <= 4"),
    (("b",), ("mod(b, 8) == 0",), ((9,),), r"mod\(b, 8\) == 0"),
    (("b",), ("b == 5",), ((4,),), "5"),
    (("a", "b"), ("a >= b",), ((1,), (2,)), "a >= b.*found -1"),
    (("a", "b"), ("a == 2*b",), ((3,), (2,)), "Division had remainder 1"),
    (("2*b",), (), ((3,),), "Division had remainder 1"),
    (("b, b",), (), ((2, 3),), "Found inconsistency"),
    (("b",), (), ((0,),), "Expected value >= 1"),
]


@pytest.mark.parametrize(("shapes", "constraints", "given", "words"), CALLS)
def test_calls_hold_constraints(shapes: Any, constraints: Any, given: Any, words: str) -> None:
    exported = export.export(weft.jit(lambda *xs: [x.sum() for x in xs]))(*specs_of(weft, shapes, constraints))
    blob = exported.serialize()
    for call in (exported.call, export.deserialize(blob).call):
        with pytest.raises(ValueError, match=words):
            call(*[np.ones(shape, np.float32) for shape in given])
    with pytest.raises(ValueError):
        jax.export.deserialize(blob).call(*[np.ones(shape, np.float32) for shape in given])


def test_sizes_that_cannot_be_found_are_value_errors() -> None:
    for shapes in (("b*c",), ("b + c",), ("max(b, 3)",)):
        with pytest.raises(ValueError, match="Cannot solve for values of dimension variables"):
            export.export(weft.jit(jnp.sin))(*specs_of(weft, shapes))
    one, other = export.symbolic_shape("b"), export.symbolic_shape("b")
    with pytest.raises(ValueError, match="mixing of symbolic scopes"):
        export.export(weft.jit(jnp.add))(*[weft.ShapeDtypeStruct(s, np.float32) for s in (one, other)])
    with pytest.raises(ValueError, match="mixing of symbolic scopes"):
        one[0] + other[0]


# -- functions ---------------------------------------------------------------------------------------------------------

Case = tuple[Callable[..., Any], tuple[str, ...], tuple[str, ...]]
CASES: dict[str, Case] = {}


def case(name: str, function: Callable[..., Any], *shapes: str, cons: tuple[str, ...] = ()) -> None:
    CASES[name] = function, shapes, cons


B, BC, BB = "b", "b, c", "b, b"
case("stack", lambda J, n, x: n.stack([x, x * 2]), B)
case("stack1", lambda J, n, x: n.stack([x, x * 2], axis=1), BC)
case("tile", lambda J, n, x: n.tile(x, 3), B)
case("tile2", lambda J, n, x: n.tile(x, (2, 3)), BC)
case("tile_b", lambda J, n, x: n.tile(n.arange(3.0), x.shape[0]), B)
case("repeat", lambda J, n, x: n.repeat(x, 3, axis=0), BC)
case("repeat_b", lambda J, n, x: n.repeat(n.arange(3.0), x.shape[0], axis=0), B)
case("rot", lambda J, n, t: n.stack([n.stack([n.cos(t), -n.sin(t)], -1), n.stack([n.sin(t), n.cos(t)], -1)], -2), B)
case("rot2", lambda J, n, t: n.array([[n.cos(t), -n.sin(t)], [n.sin(t), n.cos(t)]]), B)
case("concat", lambda J, n, x, y: n.concatenate([x, y]), "b, 3", "c, 3")
case("append", lambda J, n, x: n.append(x, n.ones(2)), B)
case("hstack", lambda J, n, x: n.hstack([x, x]), BC)
case("vstack", lambda J, n, x: n.vstack([x, x]), B)
case("dstack", lambda J, n, x: n.dstack([x, x]), BC)
case("column_stack", lambda J, n, x: n.column_stack([x, x]), B)
case("block", lambda J, n, x: n.block([[x, x], [x, x]]), BC)
case("pad", lambda J, n, x: n.pad(x, ((1, 2), (0, 1))), BC)
case("roll_ax", lambda J, n, x: n.roll(x, -2, axis=1), BC)
case("meshgrid", lambda J, n, x, y: n.meshgrid(x, y), "b", "c")
case("kron", lambda J, n, x, y: n.kron(x, y), "b, 2", "c, 3")
case("outer", lambda J, n, x, y: n.outer(x, y), "b", "c")
case("reshape-1", lambda J, n, x: n.reshape(x, -1), BC)
case("reshape_split", lambda J, n, x: x.reshape(x.shape[0], -1), "b, c, 4")
case("reshape_2", lambda J, n, x: x.reshape(2, -1), "2*b")
case("arange", lambda J, n, x: n.arange(x.shape[0]) + x, B)
case("arange_step", lambda J, n, x: n.arange(0, 2 * x.shape[0], 2), B)
case("eye", lambda J, n, x: n.eye(x.shape[0]) @ x, BC)
case("diag", lambda J, n, x: n.diag(x), B)
case("diagonal", lambda J, n, x: n.diagonal(x), BB)
case("slice3", lambda J, n, x: x[3:], B)
case("slice_to3", lambda J, n, x: x[:3], B)
case("slice_rev", lambda J, n, x: x[::-1], B)
case("slice_step3", lambda J, n, x: x[1::3], B)
case("slice_b", lambda J, n, x: x[: x.shape[0] // 2], B)
case("last", lambda J, n, x: x[-1], BC)
case("take", lambda J, n, x: n.take(x, n.arange(x.shape[0])[::-1], axis=0), BC)
case("inv n", lambda J, n, x: x * (1.0 / x.shape[0]), B)
case("sqrt n", lambda J, n, x: x / n.sqrt(x.shape[0]), B)
case("mul n", lambda J, n, x: x * x.shape[0] + x.size, BC)
case("cumsum", lambda J, n, x: n.cumsum(x, 0), BC)
case("median", lambda J, n, x: n.median(x, axis=0), BC)
case("diff", lambda J, n, x: n.diff(x), B)
case("einsum3", lambda J, n, x, y, z: n.einsum("bc,cd,de->be", x, y, z), "b, c", "c, d", "d, 2")
case("dpa", lambda J, n, q: J.nn.dot_product_attention(q, q, q), "b, t, 2, 4")
case("scan", lambda J, n, x: J.lax.scan(lambda c, r: (c + r, c * 2), n.zeros(x.shape[1]), x), BC)
case("fori", lambda J, n, x: J.lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0), B)
case("at_add", lambda J, n, x: x.at[n.array([0, 1])].add(1.0), BC)
case("dynamic_slice", lambda J, n, x: J.lax.dynamic_slice(x, (1,), (x.shape[0] - 1,)), B)
case("split", lambda J, n, x: n.split(x, 2, axis=0), "2*b, c")
case("polyval", lambda J, n, x: n.polyval(n.array([1.0, 2.0, 3.0]), x), B)
case("avgpool_h", lambda J, n, x: J.lax.reduce_window(x, 0.0, J.lax.add, (1, 2), (1, 1), "SAME"), BC)
case("triangular", lambda J, n, x: n.linalg.inv(x @ x.T + 3 * n.eye(x.shape[0])), "b, 3")
case("jit_inner", lambda J, n, x: J.jit(lambda y: y * y.shape[0])(x), B)
case("floordiv_shape", lambda J, n, x: n.zeros(x.shape[0] // 2 + 1), B)
case("mod_shape", lambda J, n, x: n.zeros(x.shape[0] % 3 + 1), B)
case("products", lambda J, n, x: n.zeros((x.shape[0] * x.shape[1] + 2,)), BC)
case("insert", lambda J, n, x: n.insert(x, 0, 5.0), B)
case("delete", lambda J, n, x: n.delete(x, 0), B)
case("mod8", lambda J, n, x: x.reshape(-1, 8).sum(1), "b", cons=("mod(b, 8) == 0",))
case("a2b", lambda J, n, x, y: x.reshape(2, -1) + y, "a", "b", cons=("a == 2*b",))

SIZES = ({"a": 32, "b": 16, "c": 5, "d": 4, "t": 7}, {"a": 2, "b": 1, "c": 1, "d": 1, "t": 1})
HARD = {"triangular", "dpa", "median"}  # compiled slowly: one size


@pytest.mark.parametrize("name", CASES)
def test_functions_of_unknown_sizes_are_those_of_jax(name: str) -> None:
    function, shapes, constraints = CASES[name]
    exported = export.export(weft.jit(lambda *xs: function(weft, jnp, *xs)))(*specs_of(weft, shapes, constraints))
    blob = exported.serialize()
    calls = (exported.call, export.deserialize(blob).call, jax.export.deserialize(blob).call)
    rng = np.random.default_rng(0)
    for sizes in SIZES[: 1 if name in HARD else 2]:
        sizes = {**sizes, "b": 8} if name == "mod8" else sizes
        extents = [[eval(n, dict(sizes)) for n in shape.split(",")] for shape in shapes]
        args = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in extents]
        wanted = jax.tree.leaves(jax.jit(lambda *xs: function(jax, jax.numpy, *xs))(*args))
        shown = [tuple(x.shape) for x in exported.out_avals]
        assert len(shown) == len(wanted)
        for call in calls if sizes["b"] > 1 else calls[:2]:
            for found, expected in zip(jax.tree.leaves(call(*args)), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-4, atol=2e-5)
                assert np.asarray(found).dtype == expected.dtype


LARGE: list[tuple[str, Callable[..., Any]]] = [
    ("floordiv(b, 200)", lambda n, x: n.zeros(x.shape[0] // 200)),
    ("b", lambda n, x: x * (x.shape[0] // 4000)),
    ("floordiv(b + 128, 129)", lambda n, x: x[::129]),
    ("floordiv(b + 8, 65)", lambda n, x: n.concatenate([x, n.zeros(8)])[64::65]),
    ("mod(- b, 200) + b", lambda n, x: n.pad(x, (0, -x.shape[0] % 200))),
    ("floordiv(b, 128)", lambda n, x: x[: x.shape[0] // 128 * 128].reshape(-1, 128).sum(1)),
]


@pytest.mark.parametrize(("shape", "function"), LARGE)
def test_what_large_sizes_alone_show(shape: str, function: Callable[..., Any]) -> None:
    """Quotients by numbers that are larger than many sizes."""
    exported = export.export(weft.jit(lambda x: function(jnp, x)))(*specs_of(weft, ("b",), ("b >= 64",)))
    assert str(exported.out_avals[0].shape) == f"({shape},)"
    for size in (100, 777, 778, 8001):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(exported.call(x), function(np, x))


def test_sizes_that_no_array_tells_apart_are_refused() -> None:
    with pytest.raises(InconclusiveDimensionOperation, match="differ, but not at sizes below"):
        export.export(weft.jit(lambda x: x * (x.shape[0] // 2**30)))(*specs_of(weft, ("b",)))


@pytest.mark.parametrize("name", ["stack", "tile2", "reshape-1", "slice_to3", "slice_step3", "kron", "a2b", "block"])
def test_types_of_results_are_written_as_by_jax(name: str) -> None:
    function, shapes, constraints = CASES[name]
    found = []
    for module in (weft, jax):
        specs = specs_of(module, shapes, constraints)
        made = module.export.export(module.jit(lambda *xs, m=module: function(m, m.numpy, *xs)))(*specs)
        found.append([str(x.shape).replace("min(3, b)", "min(b, 3)") for x in made.out_avals])
    assert found[0] == found[1]

"""Programs for ``shard_map`` on 8 devices, for weft and for JAX: run as ``python shard_map_cases.py weft FILE``.

Each case is a function of the module's names that gives a function and its arguments. What is written to FILE, for each
case: the values of a call outside of jit, of one inside, the text of the jaxpr (cases marked ``text``), or the class of
the error.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

CASES: dict[str, Any] = {}
TEXT: set[str] = set()
X = np.arange(8, dtype=np.float32) / 4 - 1
XX = np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8)
Y = np.cos(np.arange(32, dtype=np.float32)).reshape(8, 4)


def case(text: bool = False) -> Any:
    def add(make: Any) -> Any:
        CASES[make.__name__] = make
        if text:
            TEXT.add(make.__name__)
        return make

    return add


def modules(name: str) -> SimpleNamespace:
    module = importlib.import_module(name)
    jnp, lax = importlib.import_module(f"{name}.numpy"), importlib.import_module(f"{name}.lax")
    sharding = module.sharding
    auto = sharding.AxisType.Auto
    mesh = module.make_mesh((4, 2), ("i", "j"), axis_types=(auto, auto))
    line = module.make_mesh((8,), ("d",), axis_types=(auto,))

    def sh(f: Any, in_specs: Any, out_specs: Any, over: Any = mesh, **options: Any) -> Any:
        return module.shard_map(f, mesh=over, in_specs=in_specs, out_specs=out_specs, **options)

    return SimpleNamespace(
        jax=module, jnp=jnp, lax=lax, P=sharding.PartitionSpec, mesh=mesh, line=line, sh=sh, sharding=sharding
    )


# -- values and texts -------------------------------------------------------------------------------------------------


@case(text=True)
def psum(m):
    return m.sh(lambda x: m.lax.psum(x, "i"), m.P("i"), m.P()), X


@case(text=True)
def psum_over_two(m):
    return m.sh(lambda x: m.lax.psum(x, ("i", "j")), m.P(("i", "j")), m.P()), X


@case()
def psum_in_other_order(m):
    return m.sh(lambda x: m.lax.psum(x, ("j", "i")), m.P(("j", "i")), m.P()), X


@case(text=True)
def psum_of_same(m):
    return m.sh(lambda x: m.lax.psum(x, "i"), m.P(), m.P()), X


@case(text=True)
def psum_unchecked(m):
    return m.sh(lambda x: m.lax.psum(x, "i"), m.P("i"), m.P(), check_vma=False), X


@case()
def psum_of_constant(m):
    return m.sh(lambda x: x * m.lax.psum(1, "i") + m.lax.axis_size("j"), m.P("i"), m.P("i")), X


@case(text=True)
def pmean_pmax(m):
    def f(x):
        return m.lax.pmean(x, ("i", "j")), m.lax.pmax(x, "i"), m.lax.pmin(x, "j")

    return m.sh(f, m.P(("i", "j")), (m.P(), m.P("j"), m.P("i"))), X


@case(text=True)
def literals_and_index(m):
    return m.sh(lambda x: x * 2 + m.lax.axis_index("i"), m.P(), m.P("i")), X


@case()
def index_over_two(m):
    return m.sh(lambda x: x + m.lax.axis_index(("j", "i")), m.P(("i", "j")), m.P(("i", "j"))), X


@case(text=True)
def product_of_two_axes(m):
    return m.sh(lambda x, y: x @ y, (m.P("i"), m.P(None, "j")), m.P("i", "j")), XX, XX


@case()
def product_with_reduction(m):
    return m.sh(lambda x, y: m.lax.psum(x @ y, "j"), (m.P("i", "j"), m.P("j")), m.P("i")), XX, Y


@case(text=True)
def gather(m):
    return m.sh(lambda x: m.lax.all_gather(x, "i"), m.P("i"), m.P(None, "i")), X


@case()
def gather_tiled_two(m):
    return m.sh(lambda x: m.lax.all_gather(x, ("j", "i"), tiled=True, axis=1), m.P("i", "j"), m.P("i", "j")), XX


@case(text=True)
def gather_invariant(m):
    return m.sh(lambda x: m.lax.all_gather(x, "i", tiled=True, to="invarying"), m.P("i"), m.P()), X


@case(text=True)
def scatter_sum(m):
    return m.sh(lambda x: m.lax.psum_scatter(x, "i", tiled=True), m.P(), m.P("i")), X


@case()
def scatter_sum_untiled(m):
    return m.sh(lambda x: m.lax.psum_scatter(x, "i", scatter_dimension=1), m.P("j"), m.P("j", "i")), XX[:, :4]


@case(text=True)
def permute(m):
    return m.sh(lambda x: m.lax.ppermute(x, "i", [(0, 1), (1, 2), (3, 0)]), m.P("i"), m.P("i")), X


@case(text=True)
def all_to_all(m):
    return m.sh(lambda x: m.lax.all_to_all(x, "i", 1, 0, tiled=True), m.P("i"), m.P(None, "i")), XX


@case()
def all_to_all_untiled(m):
    return m.sh(lambda x: m.lax.all_to_all(x, "i", 1, 0), m.P(None, "i"), m.P(None, "i")), np.tile(XX, (1, 2))


@case()
def shuffle_and_swap(m):
    def f(x):
        return m.lax.pshuffle(x, "i", [2, 0, 3, 1]), m.lax.pswapaxes(x, "i", 1)

    return m.sh(f, m.P("i"), (m.P("i"), m.P("i"))), XX[:, :4]


@case(text=True)
def captured_array(m):
    c = m.jnp.arange(2.0)
    return m.sh(lambda x: x + c, m.P("i"), m.P("i")), X


@case()
def tree_and_prefix(m):
    def f(tree, y):
        return {"s": tree["a"] + tree["b"][0], "t": (y, m.lax.psum(y, "j"))}

    specs = (m.P("i"), m.P("j"))
    outs = {"s": m.P("i"), "t": (m.P("j"), m.P())}
    return m.sh(f, specs, outs), {"a": X, "b": [X * 2]}, X


@case()
def static_argument(m):
    return m.sh(lambda x, n: x * n if n == 3 else x, (m.P("i"), None), m.P("i")), X, 3


@case(text=True)
def partial_axes(m):
    return m.sh(lambda x: m.lax.psum(x, "i") * 1.5, m.P("i"), m.P(), axis_names={"i"}), X


@case()
def result_of_unnamed_axes(m):
    return m.sh(lambda x: x[:2] * 3, m.P(), m.P("j")), X


@case()
def nested(m):
    def outer(x):
        inner = m.jax.shard_map(
            lambda y: m.lax.psum(y, "j") + m.lax.axis_index("i"), in_specs=m.P("j"), out_specs=m.P(), axis_names={"j"}
        )
        return inner(x)

    return m.jax.jit(m.sh(outer, m.P("i"), m.P("i"), axis_names={"i"})), X


@case()
def mesh_of_context(m):
    def f(x):
        with m.jax.set_mesh(m.mesh):
            return m.jax.shard_map(lambda y: m.lax.psum(y, "i"), in_specs=m.P("i"), out_specs=m.P())(x)

    return f, X


@case()
def smap(m):
    def f(x):
        with m.jax.set_mesh(m.mesh):
            return m.jax.smap(lambda y: m.lax.psum(y, "i") + y, in_axes=1, out_axes=1, axis_name="i")(x)

    return f, XX


@case(text=True)
def while_loop(m):
    def f(x):
        return m.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, x))

    return m.sh(f, m.P("i"), (m.P(), m.P("i"))), X


@case(text=True)
def counted_loop(m):
    return m.sh(lambda x: m.lax.fori_loop(0, 3, lambda i, c: c + x, m.jnp.zeros_like(x)), m.P("i"), m.P("i")), X


@case()
def scan_with_cast(m):
    def f(x):
        total, ys = m.lax.scan(lambda c, y: (c + y, c), m.lax.pcast(0.0, ("i",), to="varying"), x)
        return total[None], ys

    return m.sh(f, m.P("i"), (m.P("i"), m.P("i"))), X


@case()
def scan_with_collective(m):
    def f(x):
        return m.lax.scan(lambda c, y: (c + m.lax.psum(y, "i"), y * c), 1.0, x)

    return m.sh(f, m.P("i"), (m.P(), m.P("i"))), X


@case(text=True)
def branches(m):
    return m.sh(lambda x: m.lax.cond(True, lambda x: x, lambda x: x * 0, x), m.P("i"), m.P("i")), X


@case()
def branch_by_device(m):
    def f(x):
        return m.lax.switch(m.lax.axis_index("i"), [lambda x: x, lambda x: -x, lambda x: x * x, m.jnp.sin], x)

    return m.sh(f, m.P("i"), m.P("i")), X


@case(text=True)
def jit_inside(m):
    inner = m.jax.jit(lambda y: m.lax.psum(m.jnp.sin(y), "i"))
    return m.sh(lambda x: inner(x), m.P("i"), m.P()), X


@case(text=True)
def vmapped(m):
    return m.jax.vmap(m.sh(lambda x: m.lax.psum(x, "i"), m.P("i"), m.P())), XX


@case()
def vmapped_elsewhere(m):
    f = m.sh(lambda x, y: (x * y, m.lax.psum(x, "i")), (m.P("i"), m.P()), (m.P("i"), m.P()))
    return m.jax.vmap(f, in_axes=(1, None), out_axes=(1, 0)), XX, np.float32(2)


@case(text=True)
def vmapped_along_mesh(m):
    return m.jax.vmap(m.sh(lambda x: m.jnp.sin(x), m.P("i"), m.P("i")), spmd_axis_name="j"), XX


@case()
def checkpointed(m):
    f = m.jax.checkpoint(lambda x: m.jnp.sin(m.lax.psum(m.jnp.sin(x), "i")) * x)
    g = m.sh(f, m.P("i"), m.P("i"))
    return m.jax.grad(lambda x: m.jnp.sum(g(x))), X


@case()
def custom_rule(m):
    f = m.jax.custom_vjp(lambda x: m.jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * ct * m.jnp.cos(x),))
    g = m.sh(f, m.P("i"), m.P("i"))
    return m.jax.grad(lambda x: m.jnp.sum(g(x) * X)), X


@case(text=True)
def tangents(m):
    f = m.sh(lambda x: m.lax.psum(m.jnp.sin(x), "i"), m.P("i"), m.P())
    return lambda x, t: m.jax.jvp(f, (x,), (t,)), X, X


@case()
def pmapped(m):
    f = m.jax.pmap(lambda x, y: (x / m.lax.psum(x, "i"), y * 2), axis_name="i", in_axes=(1, None), out_axes=(1, 0))
    return f, XX, X


@case()
def pmapped_tree(m):
    f = m.jax.pmap(lambda t, *, k: {"r": t["a"] - m.lax.pmean(k, "i")}, axis_name="i")
    return lambda x: f({"a": x}, k=x), XX


@case()
def send_and_receive(m):
    def f(x):
        ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
        return m.lax.ppermute(x, "i", ring)

    return m.sh(f, m.P(None, "i"), m.P(None, "i")), XX


@case()
def halves_and_whole_numbers(m):
    f = m.sh(lambda x, y: (m.lax.psum(x, "i"), m.lax.psum(y, "i")), m.P("i"), m.P())
    return f, m.jnp.arange(8, dtype=m.jnp.bfloat16), np.arange(8)


@case()
def empty_shards(m):
    return m.sh(lambda x: m.lax.psum(x, "i"), m.P("i"), m.P()), np.zeros((0, 3), np.float32)


@case()
def keys(m):
    def f(key, x):
        return m.jax.random.uniform(m.jax.random.fold_in(key, m.lax.axis_index("i")), (2,)) + x

    return lambda x: m.sh(f, (m.P(), m.P("i")), m.P("i"))(m.jax.random.key(3), x), X


@case()
def groups(m):
    def f(x):
        own = {"axis_index_groups": [[0, 2], [3, 1]]}
        return (
            m.lax.psum(x, "i", **own),
            m.lax.pmax(x, "i", **own),
            m.lax.all_gather(x, "i", tiled=True, **own),
            m.lax.psum_scatter(x, "i", tiled=True, **own),
            m.lax.all_to_all(x, "i", 1, 0, tiled=True, **own),
        )

    return m.sh(f, m.P("i"), m.P("i"), check_vma=False), XX


@case()
def explicit_mesh(m):
    mesh = m.jax.make_mesh((4, 2), ("i", "j"), axis_types=(m.sharding.AxisType.Explicit,) * 2)
    x = m.jax.device_put(XX, m.sharding.NamedSharding(mesh, m.P("i", "j")))
    f = m.jax.shard_map(lambda x: m.lax.psum(x, "i"), mesh=mesh, out_specs=m.P(None, "j"))

    def both(x):
        return f(x), m.jax.grad(lambda x: m.jnp.sum(m.jnp.sin(f(x))))(x)

    return lambda: m.jax.jit(both)(x)


@case()
def error_explicit_mesh_and_other_specs(m):
    mesh = m.jax.make_mesh((8,), ("d",), axis_types=(m.sharding.AxisType.Explicit,))
    return m.sh(lambda x: x, m.P("d"), m.P("d"), over=mesh), X


@case()
def error_inferred_on_automatic_axes(m):
    return m.jax.shard_map(lambda x: x, mesh=m.mesh, out_specs=m.P("i")), X


# -- gradients --------------------------------------------------------------------------------------------------------


def _of_sum(m, f):
    return lambda *args: m.jax.grad(lambda *a: m.jnp.sum(m.jnp.sin(f(*a))), argnums=tuple(range(len(args))))(*args)


@case()
def gradient_of_psum(m):
    return _of_sum(m, m.sh(lambda x: m.lax.psum(x * x, "i"), m.P("i"), m.P())), X


@case()
def gradient_unchecked(m):
    return _of_sum(m, m.sh(lambda w, x: m.lax.psum(w * x * x, "i"), (m.P(), m.P("i")), m.P(), check_vma=False)), 2.0, X


@case()
def gradient_of_same(m):
    f = m.sh(lambda w, x: m.lax.psum(m.jnp.sum(m.jnp.sin(w * x)), "i"), (m.P(), m.P("i")), m.P())
    return _of_sum(m, f), np.float32(1.5), X


@case()
def gradient_of_sum_with_same(m):
    return _of_sum(m, m.sh(lambda b, x: x + b, (m.P(), m.P("i")), m.P("i"))), np.float32(1.5), X


@case()
def gradient_of_layer(m):
    def f(w, b, x):
        return m.lax.psum(m.jnp.tanh(x @ w + b), "j") / m.lax.axis_size("j")

    return _of_sum(m, m.sh(f, (m.P(None, "j"), m.P("j"), m.P("i")), m.P("i"))), XX, X, XX


@case()
def gradient_of_exchanges(m):
    def f(x):
        y = m.lax.ppermute(m.jnp.sin(x), "i", [(0, 1), (1, 2), (2, 3), (3, 0)])
        z = m.lax.all_gather(y, "i", tiled=True) * m.lax.axis_index("i")
        return m.lax.psum_scatter(z * z, "i", tiled=True) + y

    return _of_sum(m, m.sh(f, m.P("i"), m.P("i"))), X


@case()
def gradient_of_all_to_all(m):
    def f(x):
        return m.lax.all_to_all(x * x, "i", 1, 0, tiled=True)

    return _of_sum(m, m.sh(f, m.P("i"), m.P(None, "i"))), XX


@case()
def gradient_of_invariant_gather(m):
    def f(x):
        return m.jnp.sin(m.lax.all_gather(x, "i", tiled=True, to="invarying")) * 2

    return _of_sum(m, m.sh(f, m.P("i"), m.P())), X


@case()
def gradient_of_scan(m):
    def f(w, x):
        return m.lax.scan(lambda c, y: (m.jnp.sin(c * w + m.lax.psum(y, "i")), c * w), m.jnp.float32(1), x)

    g = m.sh(f, (m.P(), m.P("i")), (m.P(), m.P()))
    return m.jax.grad(lambda w, x: m.jnp.sum(g(w, x)[1]) + g(w, x)[0], argnums=(0, 1)), np.float32(0.7), X


@case()
def gradient_inside(m):
    def f(w, x):
        return m.jax.grad(lambda w: m.jnp.sum(m.jnp.sin(w * x)))(w)

    return m.sh(f, (m.P(), m.P("i")), m.P()), np.float32(0.7), X


@case()
def second_gradient(m):
    f = m.sh(lambda x: m.lax.psum(m.jnp.sum(m.jnp.sin(x) ** 2), "i"), m.P("i"), m.P())
    return m.jax.hessian(f), X


@case()
def gradient_of_pmap(m):
    f = m.jax.pmap(lambda w, x: m.lax.pmean(m.jnp.sin(w * x), "i"), axis_name="i", in_axes=(None, 0))
    return m.jax.grad(lambda w, x: m.jnp.sum(f(w, x))), np.float32(0.3), XX


# -- errors -----------------------------------------------------------------------------------------------------------


@case()
def error_not_the_same(m):
    return m.sh(lambda x: x, m.P("i"), m.P()), X


@case()
def error_not_the_same_along_one(m):
    return m.sh(lambda x: m.lax.psum(x, "i"), m.P(("i", "j")), m.P()), X


@case()
def error_not_divided(m):
    return m.sh(lambda x: x, m.P("i"), m.P("i")), X[:6]


@case()
def error_rank(m):
    return m.sh(lambda x: x, m.P("i", "j"), m.P("i")), X


@case()
def error_rank_of_result(m):
    return m.sh(lambda x: m.jnp.sum(x), m.P("i"), m.P("i")), X


@case()
def error_unknown_axis(m):
    return m.sh(lambda x: x, m.P("k"), m.P()), X


@case()
def error_axis_not_mapped(m):
    return m.sh(lambda x: x, m.P("j"), m.P("j"), axis_names={"i"}), X


@case()
def error_no_spec(m):
    return m.sh(lambda x: x, "i", m.P()), X


@case()
def error_structure(m):
    return m.sh(lambda x: (x, x), m.P("i"), (m.P("i"),)), X


@case()
def error_structure_of_arguments(m):
    return m.sh(lambda x: x, (m.P("i"), m.P("i")), m.P("i")), X


@case()
def error_no_mesh(m):
    return m.jax.shard_map(lambda x: x, in_specs=m.P("i"), out_specs=m.P("i")), X


@case()
def error_axis_names_no_set(m):
    return m.sh(lambda x: x, m.P("i"), m.P("i"), axis_names=["i"]), X


@case()
def error_carry(m):
    return m.sh(lambda x: m.lax.scan(lambda c, y: (c + y, c), 0.0, x)[1], m.P("i"), m.P("i")), X


@case()
def error_branches(m):
    return m.sh(lambda x: m.lax.cond(x[0] > 0, lambda x: x, lambda x: m.jnp.ones(2), x), m.P("i"), m.P("i")), X


@case()
def error_cast_twice(m):
    return m.sh(lambda x: m.lax.pcast(x, "i", to="varying"), m.P("i"), m.P("i")), X


@case()
def error_cast_to_what(m):
    return m.sh(lambda x: m.lax.pcast(x, "i", to="other"), m.P(), m.P("i")), X


@case()
def error_spmd_axis_used(m):
    return m.jax.vmap(m.sh(lambda x: x, m.P("j"), m.P("j")), spmd_axis_name="j"), XX


@case()
def error_pmap_too_long(m):
    return m.jax.pmap(lambda x: x), np.zeros((9, 2), np.float32)


@case()
def error_pmap_axis_size(m):
    return m.jax.pmap(lambda x: x, axis_size=4), XX


@case()
def error_smap_axes(m):
    return lambda x: m.jax.smap(lambda y: y, in_axes="i", out_axes=0, axis_name="i")(x), X


@case()
def error_other_mesh_in_context(m):
    def f(x):
        with m.jax.set_mesh(m.line):
            return m.sh(lambda x: x, m.P("i"), m.P("i"))(x)

    return f, X


# -- run --------------------------------------------------------------------------------------------------------------


def types_seen(m: SimpleNamespace) -> list[str]:
    """The types of values inside a shard_map, as text, and the axes along which they vary."""
    seen: list[str] = []

    def look(x: Any) -> Any:
        y = m.lax.psum(x, "i")
        z = m.lax.all_gather(x, "i")
        for value in (x, y, z, x + y, m.lax.axis_index("j"), x + m.lax.axis_index("j"), m.lax.pmax(x, "j"), x * 2 > y):
            aval = m.jax.typeof(value)
            seen.append(f"{aval.str_short(True)} {sorted(aval.mat.varying)}")
        return y

    m.jax.make_jaxpr(m.sh(look, m.P("i"), m.P()))(X)
    return seen


def run(name: str, words: list[str]) -> dict[str, Any]:
    m = modules(name)
    found: dict[str, Any] = {"types": types_seen(m)}
    for word in words:
        try:
            made = CASES[word](m)
            f, *args = made if isinstance(made, tuple) else (made,)
            run = [_jitted(m, word, f)] if name == "jax" else [f, _jitted(m, word, f)]
            values = [m.jax.tree_util.tree_leaves(g(*args)) for g in run]
            found[word] = [[np.asarray(x, np.float32) for x in leaves] for leaves in values]
            if word in TEXT:
                found[f"{word}: text"] = str(m.jax.make_jaxpr(f)(*args)).replace(
                    "frozenset({'j', 'i'})", "frozenset({'i', 'j'})"
                )
        except Exception as error:  # its class is the result
            found[word] = type(error).__name__, str(error)
    return found


def _jitted(m: SimpleNamespace, word: str, f: Any) -> Any:
    if word in (
        "static_argument",
        "mesh_of_context",
        "smap",
        "explicit_mesh",
    ):  # no arrays, contexts
        return f
    return m.jax.jit(f)


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(run(sys.argv[1], sys.argv[3:]), file)

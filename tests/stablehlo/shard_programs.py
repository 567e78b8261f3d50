"""Programs over 8 devices, written for JAX and weft alike: each takes the library and gives a jitted function.

``ARGUMENTS`` has what a program is called with, and how each argument is sharded (a spec, or None).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 8)).astype(np.float32)
V = np.arange(16, dtype=np.float32)
W1 = RNG.normal(size=(8, 16)).astype(np.float32)
W2 = RNG.normal(size=(16, 4)).astype(np.float32)
KEY = np.array([1, 2], np.uint32)
BOTH = ("x", "y")


class Library:
    """JAX or weft, with the meshes of the programs."""

    def __init__(self, J: Any) -> None:
        self.J, self.np, self.lax = J, J.numpy, J.lax
        kinds = J.sharding.AxisType
        self.P = J.sharding.PartitionSpec
        self.mesh = J.make_mesh((4, 2), BOTH, axis_types=(kinds.Auto,) * 2)
        self.line = J.make_mesh((8,), ("z",), axis_types=(kinds.Auto,))
        self.typed = J.make_mesh((4, 2), BOTH, axis_types=(kinds.Explicit,) * 2)

    def lies(self, *spec: Any, mesh: Any = None) -> Any:
        return self.J.sharding.NamedSharding(self.mesh if mesh is None else mesh, self.P(*spec))

    def keep(self, x: Any, *spec: Any, mesh: Any = None) -> Any:
        return self.lax.with_sharding_constraint(x, self.lies(*spec, mesh=mesh))

    def mapped(self, f: Any, ins: Any, outs: Any, **given: Any) -> Any:
        return self.J.jit(self.J.shard_map(f, mesh=self.mesh, in_specs=ins, out_specs=outs, **given))


def loss(L: Library, w1: Any, w2: Any, x: Any, hidden: Any = None) -> Any:
    h = L.np.tanh(x @ w1)
    return L.np.mean((L.keep(h, *hidden) if hidden else h) @ w2) ** 2


def data_parallel(L: Library) -> Any:
    ins = (L.lies(), L.lies(), L.lies("x"))
    grad = L.J.grad(lambda w1, w2, x: loss(L, w1, w2, x), (0, 1))
    return L.J.jit(grad, in_shardings=ins, out_shardings=L.lies())


def tensor_parallel(L: Library) -> Any:
    ins = (L.lies(None, "y"), L.lies("y"), L.lies("x"))
    grad = L.J.grad(lambda w1, w2, x: loss(L, w1, w2, x, ("x", "y")), (0, 1))
    return L.J.jit(grad, in_shardings=ins, out_shardings=ins[:2])


def in_loops(L: Library) -> Any:
    def step(c: Any, row: Any) -> Any:
        c = L.keep(L.np.sin(c) + row, "x")
        return c, L.lax.cond(c.sum() > 0, lambda: L.keep(c * 2, "y"), lambda: c)

    return L.J.jit(lambda v, x: L.lax.scan(step, v[:8], x))


def typed(L: Library) -> Any:
    def function(x: Any) -> Any:
        return L.np.sin(x) + L.J.sharding.reshard(x, L.lies(None, "y", mesh=L.typed)).sum(), x.T

    return L.J.jit(function)


def collectives(L: Library) -> Any:
    """Every collective, some over two axes; of shards f32[2,4]."""

    def f(x: Any) -> Any:
        lax = L.lax
        index = lax.axis_index("x") * 10 + lax.axis_index("y")
        return (
            lax.psum(x, "x")[None], lax.psum(x, ("y", "x"))[None], lax.pmax(x, BOTH)[None], lax.pmin(x, "y")[None],
            lax.pmean(x, "x")[None], lax.all_gather(x, "x")[None], lax.all_gather(x, "y", axis=1, tiled=True)[None],
            lax.all_gather(x, ("y", "x"), axis=1)[None], lax.all_to_all(x, "y", 1, 0, tiled=True)[None],
            lax.all_to_all(x, "y", 0, 1)[None], lax.psum_scatter(x, "y", tiled=True)[None],
            lax.psum_scatter(lax.all_gather(x, BOTH), BOTH)[None], lax.ppermute(x, "x", [(0, 1), (1, 2), (2, 0)])[None],
            lax.ppermute(x, BOTH, [(k, (k + 3) % 8) for k in range(8)])[None], lax.pshuffle(x, "y", [1, 0])[None],
            lax.psum(index, "y")[None], lax.axis_index(BOTH)[None], index[None], lax.psum(x > 0, "x")[None],
            lax.psum(x.astype(L.np.bfloat16), "x")[None], lax.psum(x * 1j, "y")[None],
        )  # fmt: skip

    return L.mapped(f, L.P("x", "y"), L.P(BOTH), check_vma=False)


def groups(L: Library) -> Any:
    def f(x: Any) -> Any:
        pairs = [[0, 3], [1, 2]]
        return (
            L.lax.psum(x, "x", axis_index_groups=pairs), L.lax.pmax(x, "x", axis_index_groups=pairs),
            L.lax.all_gather(x, "x", axis_index_groups=pairs, tiled=True),
        )  # fmt: skip

    return L.mapped(f, L.P("x", "y"), L.P("x", "y"), check_vma=False)


def with_types(L: Library) -> Any:
    """Types say what varies: psum makes the same everywhere, pcast lets it vary again."""

    def f(x: Any, w: Any) -> Any:
        total = L.lax.psum(x @ w, "x")
        return total, L.lax.pcast(L.lax.pmax(x, BOTH), BOTH, to="varying") * x

    return L.mapped(f, (L.P("x"), L.P(None, "y")), (L.P(None, "y"), L.P("x", "y")))


def gradient(L: Library) -> Any:
    def f(w: Any, x: Any) -> Any:
        h = L.lax.all_gather(L.np.tanh(x @ w), "y", axis=1, tiled=True)
        return L.lax.psum((h**2).sum(), "x")

    mapped = L.J.shard_map(f, mesh=L.mesh, in_specs=(L.P(None, "y"), L.P("x")), out_specs=L.P(), check_vma=False)
    return L.J.jit(L.J.grad(lambda w, x: mapped(w, x).sum(), (0, 1)))


def partly(L: Library) -> Any:
    """By hand along x only; the compiler decides about y."""

    def f(x: Any) -> Any:
        inner = L.lax.psum(L.np.sin(x), "x") + L.lax.axis_index("x")
        return inner + L.lax.with_sharding_constraint(x * 2, L.P(None, "y"))

    def function(x: Any) -> Any:
        with L.J.sharding.use_abstract_mesh(L.mesh.abstract_mesh):
            return L.J.shard_map(f, in_specs=L.P("x"), out_specs=L.P("x"), axis_names={"x"}, check_vma=False)(x)

    return L.J.jit(function)


def nested(L: Library) -> Any:
    def inner(x: Any) -> Any:
        return L.lax.psum(x, "y") + L.lax.axis_index("y"), L.lax.all_gather(x, "x", tiled=True).sum()[None]

    def outer(x: Any) -> Any:
        specs = (L.P(None, None), L.P("y"))
        return L.J.shard_map(inner, in_specs=L.P(None, "y"), out_specs=specs, axis_names={"y"}, check_vma=False)(x)

    def function(x: Any) -> Any:
        with L.J.sharding.use_abstract_mesh(L.mesh.abstract_mesh):
            outs = (L.P("x"), L.P("x"))
            return L.J.shard_map(outer, in_specs=L.P("x"), out_specs=outs, axis_names={"x"}, check_vma=False)(x)

    return L.J.jit(function)


def inside(L: Library) -> Any:
    """Loops, branches and calls in the program of a shard."""
    doubled = L.J.jit(lambda x: L.lax.psum(L.np.sin(x), "x") * 2)

    def f(x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            c = L.lax.ppermute(c, "y", [(0, 1), (1, 0)]) + row
            return c, L.lax.psum(c, "y")

        c, ys = L.lax.scan(step, x[0], x)
        picked = L.lax.cond(L.lax.axis_index("y") > 0, lambda: c, lambda: -c)
        return doubled(x) + doubled(x + 1), ys, picked[None]

    return L.mapped(f, L.P("x", "y"), (L.P("x", "y"), L.P("x", "y"), L.P("x", "y")), check_vma=False)


def two_meshes(L: Library) -> Any:
    def function(x: Any) -> Any:
        y = L.keep(L.np.cos(x), "x", L.P.UNCONSTRAINED)
        return L.keep(y * 2, None, "z", mesh=L.line), y.sum()

    return L.J.jit(function, out_shardings=(L.lies("z", mesh=L.line), None))


def one_axis(L: Library) -> Any:
    mapped = L.J.shard_map(lambda v: L.lax.psum(v, "z"), mesh=L.line, in_specs=L.P("z"), out_specs=L.P())
    return L.J.jit(lambda v: (mapped(v), v * 2))


def random_bits(L: Library) -> Any:
    def function(key: Any) -> Any:
        return L.J.random.normal(key, (8, 3)), L.keep(L.J.random.bits(key, (8,), "uint32"), "x")

    return L.J.jit(function, out_shardings=(L.lies("x"), None))


PROGRAMS: dict[str, Callable[[Library], Any]] = {
    "data parallel": data_parallel, "tensor parallel": tensor_parallel, "in loops": in_loops, "typed": typed,
    "collectives": collectives, "groups": groups, "with types": with_types, "gradient": gradient, "partly": partly,
    "nested": nested, "inside": inside, "two meshes": two_meshes, "one axis": one_axis, "random bits": random_bits,
    "sharded": lambda L: L.J.jit(lambda x, v: (x * 2, (x[0] * v[:8]).sum())),
    "rows": lambda L: L.J.jit(lambda x, v: L.np.sort(L.keep(x, BOTH), axis=0) + v[:8], in_shardings=(None, L.lies())),
}  # fmt: skip
Arguments = tuple[tuple[np.ndarray, tuple[Any, ...] | None], ...]
_X: Arguments = ((X, ("x", "y")),)
ARGUMENTS: dict[str, Arguments] = {
    "data parallel": ((W1, ()), (W2, ()), (X, ("x",))),
    "tensor parallel": ((W1, (None, "y")), (W2, ("y",)), (X, ("x",))),
    "in loops": ((V, ("x",)), (X, None)), "with types": ((X, ("x",)), (W1, (None, "y"))),
    "gradient": ((W1, (None, "y")), (X, ("x",))), "one axis": ((V, ("z",)),), "random bits": ((KEY, ()),),
    "sharded": ((X, ("x", "y")), (V, ("y",))), "rows": ((X, None), (V, ())),
}  # fmt: skip
ARGUMENTS = {name: ARGUMENTS.get(name, _X) for name in PROGRAMS}


def sharded(L: Library, name: str) -> list[Any]:
    """The arguments of a program, on its devices."""
    mesh = {"typed": L.typed, "one axis": L.line}.get(name, L.mesh)
    return [
        value if spec is None else L.J.device_put(value, L.lies(*spec, mesh=mesh)) for value, spec in ARGUMENTS[name]
    ]


def described(exported: Any) -> tuple[Any, ...]:
    """What an exported function says of devices, as text."""
    return (
        exported.nr_devices, *map(str, (*exported._in_named_shardings, *exported._out_named_shardings)),
        *map(str, exported.in_avals), *map(str, exported.out_avals),
    )  # fmt: skip

"""A job of several processes: every collective in a program of shards, along axes between, within and across processes.

Each process compares its shards with those that one process gets from the same program on an abstract mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft import lax
from weft.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from weft.sharding import PartitionSpec as P

X = np.random.default_rng(0).integers(-8, 8, (8, 16)).astype(np.float32)
S = P("x")


def check(f: Callable[..., Any], mesh: Mesh, spec: P, out: Any, vma: bool = True, eager: bool = False) -> None:
    """``f`` of shards of X, in one process and in all."""
    abstract = AbstractMesh(mesh.axis_sizes, mesh.axis_names, mesh.axis_types)
    options: dict[str, Any] = {"in_specs": (spec,), "out_specs": out, "check_vma": vma}
    want = weft.jit(weft.shard_map(f, mesh=abstract, **options))(X)
    here = weft.shard_map(f, mesh=mesh, **options)
    found = (here if eager else weft.jit(here))(weft.device_put(X, NamedSharding(mesh, spec)))
    for mine, whole in zip(weft.tree.leaves(found), weft.tree.leaves(want), strict=True):
        assert mine.shape == whole.shape and mine.dtype == whole.dtype
        for shard in mine.addressable_shards:
            assert np.array_equal(np.asarray(shard.data), np.asarray(whole)[shard.index]), (mesh, spec, shard)


def ring(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


def one_axis(mesh: Mesh, n: int) -> None:
    """Collectives along one axis, which all devices are on."""
    check(lambda x: lax.psum(x, "x"), mesh, S, P(), eager=True)
    check(lambda x: lax.psum(x > 0, "x"), mesh, S, P())
    check(lambda x: lax.psum(x.astype("bfloat16") / 8, "x"), mesh, S, P())
    check(lambda x: lax.psum(x * (1 + 1j), "x"), mesh, S, P())
    check(lambda x: lax.psum(x[:, :0], "x"), mesh, S, P())
    check(lambda x: (lax.pmax(x, "x"), lax.pmin(x, "x")), mesh, S, (P(), P()), vma=False)
    check(lambda x: lax.pmean(x, "x"), mesh, S, P())
    check(lambda x: x + lax.axis_index("x"), mesh, S, S)
    check(lambda x: lax.all_gather(x, "x", tiled=True), mesh, S, P(), vma=False)
    check(lambda x: lax.all_gather(x, "x", axis=1), mesh, S, S)
    check(lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True), mesh, S, P(None, "x"))
    check(lambda x: lax.psum_scatter(x[:, :n], "x", scatter_dimension=1), mesh, S, S)
    check(lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), mesh, S, P(None, "x"))
    check(lambda x: lax.all_to_all(x[:, :n], "x", 1, 0), mesh, S, P("x"))
    check(lambda x: lax.ppermute(x, "x", ring(n)), mesh, S, S, eager=True)
    check(lambda x: lax.ppermute(x, "x", [(0, n - 1)]), mesh, S, S)
    check(lambda x: lax.pbroadcast(x, "x", n - 1), mesh, S, S, vma=False)
    check(lambda x: lax.pshuffle(x, "x", list(range(n))[::-1]), mesh, S, S)


def programs(mesh: Mesh, n: int) -> None:
    """Collectives in loops and branches, under derivatives and vmap."""

    def step(x: Any, _: Any) -> tuple[Any, Any]:
        return lax.ppermute(x, "x", ring(n)) * 0.5, lax.psum(x.sum(), "x")

    def doubled(x: Any) -> Any:
        first = abs(x), lax.psum(0 * x[0, 0], "x")
        return lax.while_loop(lambda c: lax.psum(c[0].sum(), "x") < 1e4, lambda c: (c[0] * 2, c[1] + 1), first)

    def chosen(x: Any) -> Any:
        total = lax.psum(x.sum(), "x")
        return lax.cond(total > 0, lambda x: lax.psum(x, "x"), lambda x: lax.pmax(x, "x") * 1.0, x)

    def norm(x: Any) -> Any:
        return lax.psum((x**2).sum(), "x")

    check(lambda x: lax.scan(step, x, None, length=5), mesh, S, (S, P()))
    check(doubled, mesh, S, (S, P()))
    check(chosen, mesh, S, P(), vma=False)
    check(weft.grad(norm), mesh, S, S)
    check(weft.vmap(lambda row: lax.psum(row, "x"), in_axes=1, out_axes=1), mesh, S, P())
    check(lambda x: weft.jvp(norm, (x,), (x,)), mesh, S, (P(), P()))


def two_axes(mesh: Mesh, names: Sequence[str], n: int) -> None:
    """Collectives along one and both of two axes."""
    a, b = names
    both = P((a, b))
    check(lambda x: lax.psum(x, a), mesh, P(a, b), P(None, b))
    check(lambda x: lax.psum(x, b), mesh, P(a, b), P(a))
    check(lambda x: lax.psum(x, (a, b)), mesh, both, P())
    check(lambda x: x + lax.axis_index((b, a)), mesh, both, both)
    check(lambda x: lax.all_gather(x, (b, a), tiled=True), mesh, both, P(), vma=False)
    check(lambda x: lax.all_to_all(x, b, 1, 0, tiled=True), mesh, P(a, b), P(a, b))
    check(lambda x: lax.ppermute(x, (a, b), ring(n)), mesh, both, both)
    check(lambda x: lax.psum_scatter(x, (a, b), scatter_dimension=1, tiled=True), mesh, both, P(None, (a, b)))


def main() -> None:
    weft.distributed.initialize()
    n = weft.device_count()
    auto = (AxisType.Auto,)
    line = weft.make_mesh((n,), ("x",), axis_types=auto)
    one_axis(line, n)
    programs(line, n)
    two_axes(weft.make_mesh((2, n // 2), ("x", "y"), axis_types=auto * 2), ("x", "y"), n)
    print("all equal", flush=True)


if __name__ == "__main__":
    main()

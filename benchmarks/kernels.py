"""Custom kernels (Pallas) beside what weft makes of plain code, and beside JAX's interpreter on the smallest sizes.

    python benchmarks/kernels.py             # a minute
    python benchmarks/kernels.py --jax       # also what JAX takes to interpret the same kernel

A ratio is plain seconds over the kernel's: above 1 the kernel is faster. Both are warm calls of a jitted function,
in turns, and the least of several counts.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TURNS, SECONDS = 7, 0.2  # how often each is timed, and for how long at a time


class Kernels:
    """The kernels and the plain functions, in the names of ``jax`` or ``weft``."""

    def __init__(self, library: str, **options: Any) -> None:
        self.jax = importlib.import_module(library)
        self.jnp = importlib.import_module(f"{library}.numpy")
        self.pl = importlib.import_module(f"{library}.experimental.pallas")
        self.options = options

    def call(self, kernel: Callable[..., None], like: Any, **how: Any) -> Callable[..., Any]:
        shape = self.jax.ShapeDtypeStruct(like.shape, like.dtype)
        return self.pl.pallas_call(kernel, out_shape=shape, **how, **self.options)

    def rows(self, kernel: Callable[..., None], x: Any, block: int) -> Any:
        """A kernel on blocks of whole rows."""
        spec = self.pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
        return self.call(kernel, x, grid=(x.shape[0] // block,), in_specs=[spec], out_specs=spec)(x)

    # ---- softmax and layer norm

    def softmax(self, x: Any) -> Any:
        e = self.jnp.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def softmax_kernel(self, x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = self.softmax(x_ref[...])

        return self.rows(kernel, x, 64)

    def layer_norm(self, x: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred * self.jax.lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)

    def layer_norm_kernel(self, x: Any) -> Any:
        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = self.layer_norm(x_ref[...])

        return self.rows(kernel, x, 64)

    # ---- a product with a fused end

    def product(self, a: Any, b: Any) -> Any:
        return self.jnp.maximum(a @ b, 0.0)

    def product_kernel(self, a: Any, b: Any) -> Any:
        size = min(256, a.shape[0])

        def kernel(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
            k = self.pl.program_id(2)

            @self.pl.when(k == 0)
            def _() -> None:
                o_ref[...] = self.jnp.zeros_like(o_ref)

            o_ref[...] += self.jnp.dot(a_ref[...], b_ref[...])

            @self.pl.when(k == self.pl.num_programs(2) - 1)
            def _() -> None:
                o_ref[...] = self.jnp.maximum(o_ref[...], 0.0)

        spec = self.pl.BlockSpec
        return self.call(
            kernel,
            self.jnp.zeros((a.shape[0], b.shape[1]), a.dtype),
            grid=(a.shape[0] // size, b.shape[1] // size, a.shape[1] // size),
            in_specs=[spec((size, size), lambda i, j, k: (i, k)), spec((size, size), lambda i, j, k: (k, j))],
            out_specs=spec((size, size), lambda i, j, k: (i, j)),
        )(a, b)

    # ---- causal attention, with the softmax found block by block

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = self.jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
        rows, columns = (self.jax.lax.broadcasted_iota("int32", scores.shape, dim) for dim in (1, 2))
        return self.jnp.einsum("hqk,hkd->hqd", self.softmax(self.jnp.where(rows >= columns, scores, -1e30)), v)

    def attention_kernel(self, q: Any, k: Any, v: Any) -> Any:
        heads, length, depth = q.shape
        size = min(128, length)

        def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
            jnp, lax, number = self.jnp, self.jax.lax, self.pl.program_id(1)
            q = q_ref[...] / np.sqrt(depth).astype(np.float32)
            rows = number * size + lax.broadcasted_iota("int32", (size, size), 0)

            def step(j: Any, state: Any) -> Any:
                out, most, total = state
                at = self.pl.ds(j * size, size)
                scores = jnp.dot(q, k_ref[at, :].T)
                columns = j * size + lax.broadcasted_iota("int32", (size, size), 1)
                scores = jnp.where(rows >= columns, scores, -1e30)
                now = jnp.maximum(most, scores.max(axis=-1))
                weights, kept = jnp.exp(scores - now[:, None]), jnp.exp(most - now)
                out = out * kept[:, None] + jnp.dot(weights, v_ref[at, :])
                return out, now, total * kept + weights.sum(axis=-1)

            first = jnp.zeros((size, depth)), jnp.full((size,), -1e30), jnp.zeros((size,))
            out, _, total = lax.fori_loop(0, number + 1, step, first)
            o_ref[...] = out / total[:, None]

        some = self.pl.BlockSpec((None, size, depth), lambda h, i: (h, i, 0))
        whole = self.pl.BlockSpec((None, length, depth), lambda h, i: (h, 0, 0))
        how = {"grid": (heads, length // size), "in_specs": [some, whole, whole], "out_specs": some}
        return self.call(kernel, q, **how)(q, k, v)


SIZES = {
    "softmax": [(4096, 1024)],
    "layer_norm": [(4096, 1024)],
    "product": [(1024, 1024), (1024, 1024)],
    "attention": [(8, 1024, 64)] * 3,
}
SMALL = {
    "softmax": [(128, 64)],
    "layer_norm": [(128, 64)],
    "product": [(128, 128)] * 2,
    "attention": [(2, 128, 16)] * 3,
}


def seconds(call: Callable[[], Any]) -> float:
    """The seconds of one call, over as many as fit into ``SECONDS``."""
    count, begin = 0, time.perf_counter()
    while (now := time.perf_counter() - begin) < SECONDS or not count:
        call()
        count += 1
    return now / count


def in_turns(calls: list[Callable[[], Any]]) -> list[float]:
    rounds = [[seconds(call) for call in calls] for _ in range(TURNS)]
    return [min(some) for some in zip(*rounds, strict=True)]


def ready(function: Callable[..., Any], arguments: list[Any]) -> Any:
    return function(*arguments).block_until_ready()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", action="store_true", help="time JAX's interpreter too, on small sizes")
    with_jax = parser.parse_args().jax
    rng, weft = np.random.default_rng(0), Kernels("weft")
    peer = Kernels("jax", interpret=True) if with_jax else None
    print(
        f"{'kernel':12} {'plain':>10} {'kernel':>10} {'ratio':>6}"
        + ("   small: kernel, interpreted by JAX" if peer else "")
    )
    for name in SIZES:
        given = [weft.jnp.asarray(rng.standard_normal(shape), "float32") for shape in SIZES[name]]
        plain, own = (weft.jax.jit(getattr(weft, name + suffix)) for suffix in ("", "_kernel"))
        np.testing.assert_allclose(np.asarray(own(*given)), np.asarray(plain(*given)), rtol=2e-4, atol=2e-4)
        first, second = in_turns([functools.partial(ready, f, given) for f in (plain, own)])
        line = f"{name:12} {first * 1e3:8.3f}ms {second * 1e3:8.3f}ms {first / second:6.2f}"
        if peer is not None:
            some = [rng.standard_normal(shape).astype(np.float32) for shape in SMALL[name]]
            ours, theirs = weft.jax.jit(getattr(weft, name + "_kernel")), peer.jax.jit(getattr(peer, name + "_kernel"))
            np.testing.assert_allclose(np.asarray(ours(*some)), np.asarray(theirs(*some)), rtol=2e-4, atol=2e-4)
            small = in_turns([functools.partial(ready, f, some) for f in (ours, theirs)])
            line += f"   {small[0] * 1e6:9.1f}us {small[1] * 1e6:10.1f}us  {small[1] / small[0]:8.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()

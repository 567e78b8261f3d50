"""The shardings that JAX gives the results of the programs: a process on 8 virtual devices, which prints JSON."""

from __future__ import annotations

import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.partitioning.programs import PROGRAMS, SIZES


def main() -> None:
    mesh = jax.make_mesh(tuple(SIZES.values()), tuple(SIZES), axis_types=(jax.sharding.AxisType.Auto,) * len(SIZES))
    namespace = types.SimpleNamespace(
        np=jnp, lax=jax.lax, nn=jax.nn, grad=jax.grad, vmap=jax.vmap, P=P,
        constrain=lambda x, spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec)),
    )  # fmt: skip
    found = {}
    for name, program in PROGRAMS.items():
        structs = []
        for argument in program.arguments:
            dtype = np.int32 if argument.top else np.float32
            sharding = None if argument.spec is None else NamedSharding(mesh, P(*argument.spec))
            structs.append(jax.ShapeDtypeStruct(argument.shape, dtype, sharding=sharding))
        compiled = jax.jit(program.make(namespace)).lower(*structs).compile()
        leaves = jax.tree_util.tree_leaves(compiled.output_shardings)
        ranks = [x.ndim for x in jax.tree_util.tree_leaves(jax.eval_shape(program.make(namespace), *structs))]
        found[name] = [spec(each, rank) for each, rank in zip(leaves, ranks, strict=True)]
    print(json.dumps(found))


def spec(sharding: Any, rank: int) -> list[list[str]]:
    if not isinstance(sharding, NamedSharding):
        sharding = jax.sharding.NamedSharding(sharding._mesh, P()) if sharding.is_fully_replicated else sharding
    entries = [*sharding.spec, *[None] * (rank - len(sharding.spec))]
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in entries]


if __name__ == "__main__":
    main()

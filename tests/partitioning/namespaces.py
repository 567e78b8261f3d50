"""The words that the programs of ``programs.py`` use, in weft, and arguments for them."""

from __future__ import annotations

import types

import numpy as np

import weft
import weft.numpy as jnp
from tests.partitioning.programs import SIZES, Program
from weft import lax, nn
from weft.sharding import AbstractMesh, NamedSharding, PartitionSpec

MESH = AbstractMesh(tuple(SIZES.values()), tuple(SIZES))
WEFT = types.SimpleNamespace(
    np=jnp, lax=lax, nn=nn, grad=weft.grad, vmap=weft.vmap, P=PartitionSpec,
    constrain=lambda x, spec: lax.with_sharding_constraint(x, NamedSharding(MESH, spec)),
)  # fmt: skip


def arguments(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        np.asarray(rng.integers(0, a.top, a.shape), np.int32)
        if a.top
        else np.asarray(rng.standard_normal(a.shape), np.float32)
        for a in program.arguments
    ]

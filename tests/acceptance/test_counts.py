"""One kernel and no temporary array: variations of the named programs over dtypes, ranks and extents."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, nn

SHAPES = [(), (1,), (0,), (17,), (1_000_003,), (17, 33), (4, 1, 9), (3, 4, 5, 6), (2, 3, 1, 4, 5)]
DTYPES = ["int8", "int32", "bfloat16", "float16", "float32", "complex64"]


def _layernorm(x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * 3 + x


# name: (function, least rank, whether empty and complex operands are legal)
PROGRAMS: dict[str, tuple[Callable[..., Any], int, bool, bool]] = {
    "selu": (nn.selu, 0, True, False),
    "elu": (lambda x: jnp.where(x > 0, x, 1.5 * jnp.expm1(x)), 0, True, False),
    "sum of cubes and cosines": (lambda x: jnp.sum(x**3 + jnp.cos(x)), 0, True, True),
    "sincos-sum": (lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x)), 0, True, True),
    "softmax": (nn.softmax, 1, True, False),
    "softmax along axis 0": (lambda x: nn.softmax(x, axis=0), 1, True, False),
    "log_softmax": (nn.log_softmax, 1, True, False),
    "layernorm with residual": (_layernorm, 1, True, False),
    "rms norm": (lambda x: x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6), 1, True, False),
    "variance": (jnp.var, 0, True, False),
    "deviation along axis 0": (lambda x: jnp.std(x, axis=0), 1, True, False),
    "sum and max": (lambda x: (jnp.sum(x), jnp.max(x)), 0, False, False),
    "three reductions": (lambda x: (jnp.sum(x * x), jnp.sum(x), jnp.prod(x)), 0, True, False),
    "cross entropy": (lambda x: -jnp.sum(nn.log_softmax(x, axis=-1) * x, axis=-1), 1, False, False),
}


def _counts(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Kernels and bytes of temporaries of the compiled function."""
    compiled = weft.jit(function).lower(*args).compile()
    lines = compiled.as_text("plan").splitlines()
    return sum(line.strip().startswith("kernel") for line in lines), compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_and_no_temporary(name: str) -> None:
    function, rank, empty, complex_too = PROGRAMS[name]
    for index, shape in enumerate(SHAPES):
        dtypes = [DTYPES[index % 5], DTYPES[(index + 3) % 5]] + ["complex64"] * complex_too
        for dtype in dtypes:
            if len(shape) < rank or (0 in shape and not empty):
                continue
            kernels, temporaries = _counts(function, weft.ShapeDtypeStruct(shape, dtype))
            assert kernels <= 1 and temporaries == 0, (shape, dtype)


@pytest.mark.parametrize("seed", range(8))
def test_forty_operations_over_broadcast_inputs(seed: int) -> None:
    generator = random.Random(seed)
    shape = generator.choice([(17, 33), (3, 4, 5), (2, 3, 4, 5), (1000,), (3, 1, 3, 1, 4)])
    shapes = [shape] + [
        tuple(n if generator.random() < 0.6 else 1 for n in shape[generator.randrange(len(shape)) :]) for _ in range(3)
    ]
    steps = [(generator.randrange(len(_STEPS)), generator.random(), generator.random()) for _ in range(40)]

    def chain(*xs: Any) -> Any:
        values = list(xs)
        last = xs[0]
        for step, position, keep in steps:
            last = _STEPS[step](last, values[int(position * len(values))])
            if keep < 0.4:
                values.append(last)
        return last

    operands = [np.random.default_rng(seed).normal(size=s).astype(np.float32) for s in shapes]
    assert _counts(chain, *operands) == (1, 0)
    eager = chain(*[jnp.asarray(x) for x in operands])
    assert np.asarray(weft.jit(chain)(*operands)).tobytes() == np.asarray(eager).tobytes()


_STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x - y,
    lambda x, y: jnp.maximum(x, y),
    lambda x, y: jnp.where(x > y, x, y * 2),
    lambda x, y: jnp.sin(x),
    lambda x, y: jnp.tanh(x),
    lambda x, y: -jnp.abs(x),
    lambda x, y: jnp.exp2(jnp.clip(x, -3, 3)),
    lambda x, y: jnp.sqrt(jnp.abs(x)),
    lambda x, y: jnp.square(x),
]

"""The programs that are timed: one entry gives the inputs, a float64 reference and each system's function.

``xp`` is written once for every NumPy-like namespace (weft.numpy, jax.numpy, numpy); ``jx`` replaces it where weft
and JAX need more than the namespace; ``torch`` and ``numba`` are given where the peer has an equivalent. ``bytes``
and ``flops`` are the physical work of one call, from which the machine's limit is computed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

M1, M16 = 1_000_000, 16_000_000
ROWS, COLS = 4096, 1024


@dataclass(frozen=True)
class Workload:
    """``inputs(rng, grow)``: grow > 0 gives the slightly larger second shape. ``own_jit``: no jit around it."""

    name: str
    inputs: Callable[[np.random.Generator, int], list[Any]]
    reference: Callable[..., Any]
    xp: Callable[[Any], Callable[..., Any]] | None = None
    jx: Callable[[Any], Callable[..., Any]] | None = None
    torch: Callable[[Any], Callable[..., Any]] | None = None
    numba: Callable[[Any], Callable[..., Any]] | None = None
    tolerance: float = 1e-5
    bytes: int | None = None
    flops: int | None = None
    own_jit: bool = False
    bfloat16: bool = False
    x64: bool = False
    burst: bool = False  # time calls without blocking, one wait at the end


REGISTRY: dict[str, Workload] = {}


def work(name: str, inputs: Callable[..., list[Any]], reference: Callable[..., Any], **fields: Any) -> None:
    REGISTRY[name] = Workload(name, inputs, reference, **fields)


def normal(*shape: int) -> Callable[[np.random.Generator, int], list[Any]]:
    """One float32 array; the first extent grows by 16 for the second shape."""
    return lambda rng, grow: [rng.standard_normal((shape[0] + 16 * grow, *shape[1:]), dtype=np.float32)]


def counting(size: int, dtype: Any) -> Callable[[np.random.Generator, int], list[Any]]:
    return lambda rng, grow: [np.arange(size + 16 * grow, dtype=dtype)]


def same(function: Callable[[Any], Callable[..., Any]]) -> dict[str, Any]:
    """One definition for every namespace that spells the operations alike, torch included."""
    return {"xp": function, "torch": function}


def numba_loop(expression: str, dtype: str = "float32") -> Callable[[Any], Callable[..., Any]]:
    """A parallel numba loop over one array; ``a`` is the element."""

    def build(numba: Any) -> Callable[..., Any]:
        source = (
            f"def f(x):\n    out = np.empty(x.size, np.{dtype})\n    for i in numba.prange(x.size):\n"
            f"        a = np.{dtype}(x[i])\n        out[i] = {expression}\n    return out\n"
        )
        scope = {"np": np, "numba": numba, "math": math, "F": np.float32}
        exec(source, scope)  # numba needs source text of its own for each expression
        return numba.njit(parallel=True, fastmath=True)(scope["f"])

    return build


# ---------------------------------------------------------------------------- elementwise and full reductions
def sum_square_sin(m: Any) -> Callable[..., Any]:
    return lambda x: m.sum(x**2 + m.sin(x))


def sincos_sum(m: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        y, z = m.sin(x), m.cos(x)
        return m.sum(y * z + y**2)

    return f


def selu(m: Any) -> Callable[..., Any]:
    return lambda x: 1.05 * m.where(x > 0, x, 1.67 * m.exp(x) - 1.67)


work(
    "sum_x2_sin_1M", counting(M1, np.float32), sum_square_sin(np), **same(sum_square_sin), bytes=4 * M1, tolerance=1e-4
)
for _size in (1000, 10_000, M1):
    work(f"sincos_sum_{_size}", normal(_size), sincos_sum(np), **same(sincos_sum), bytes=4 * _size, tolerance=1e-4)
for _name, _dtype in (("f32", np.float32), ("int32", np.int32)):
    work(
        f"selu_{_name}_1M",
        counting(M1, _dtype),
        lambda x: selu(np)(x.astype(np.float64)),
        **same(selu),
        numba=numba_loop("F(1.05)*a if a > 0 else F(1.05)*(F(1.67)*math.exp(a)-F(1.67))"),
        bytes=8 * M1,
    )
work(
    "sqrt_affine_2048",
    lambda rng, grow: [rng.random((2048 + 8 * grow, 2048), dtype=np.float32)],
    lambda x: (x * 2 + 1) ** 0.5,
    **same(lambda m: lambda x: (x * 2 + 1) ** 0.5),
    bytes=8 * 2048**2,
)
for _function in ("exp", "log", "tanh", "log1p", "sin", "cos"):
    work(
        f"{_function}_1M",
        (lambda rng, grow: [rng.random(M1 + 16 * grow, dtype=np.float32) * 4 + np.float32(1e-3)]),
        getattr(np, _function),
        **same(lambda m, name=_function: lambda x: getattr(m, name)(x)),
        numba=numba_loop(f"math.{_function}(a)"),
        bytes=8 * M1,
    )
for _function, _size in (("exp", M16), ("sqrt", M16)):
    work(
        f"{_function}_16M",
        (lambda rng, grow, size=_size: [rng.random(size + 16 * grow, dtype=np.float32) * 4]),
        getattr(np, _function),
        **same(lambda m, name=_function: lambda x: getattr(m, name)(x)),
        bytes=8 * _size,
    )
work(
    "where_16M",
    lambda rng, grow: [rng.standard_normal(M16 + 16 * grow, dtype=np.float32) for _ in range(2)],
    lambda x, y: np.where(x > y, x - y, x * y),
    **same(lambda m: lambda x, y: m.where(x > y, x - y, x * y)),
    bytes=12 * M16,
)
work(
    "int32_mix_1M",
    lambda rng, grow: [rng.integers(0, 1 << 20, M1 + 16 * grow, dtype=np.int32) for _ in range(2)],
    lambda x, y: ((x * 31) ^ (y >> 3)) & 0xFFFF,
    **same(lambda m: lambda x, y: ((x * 31) ^ (y >> 3)) & 0xFFFF),
    bytes=12 * M1,
)
work(
    "int32_mod_1M",
    lambda rng, grow: [
        rng.integers(-(1 << 30), 1 << 30, M1 + 16 * grow, dtype=np.int32),
        rng.integers(1, 1000, M1 + 16 * grow, dtype=np.int32),
    ],
    lambda x, y: x % y,
    **same(lambda m: lambda x, y: x % y),
    bytes=12 * M1,
)
for _name, _operation, _torch in (("pow", "power", "pow"), ("atan2", "arctan2", "atan2")):
    work(
        f"{_name}_1M",
        lambda rng, grow: [rng.random(M1 + 16 * grow, dtype=np.float32) * 4 + np.float32(0.1) for _ in range(2)],
        getattr(np, _operation),
        xp=lambda m, name=_operation: lambda x, y: getattr(m, name)(x, y),
        torch=lambda T, name=_torch: lambda x, y: getattr(T, name)(x, y),
        bytes=12 * M1,
    )
work(
    "erf_1M",
    normal(M1),
    lambda x: erf_float64(x),
    jx=lambda J: lambda x: J.scipy.special.erf(x),
    torch=lambda T: lambda x: T.erf(x),
    numba=numba_loop("math.erf(a)"),
    bytes=8 * M1,
)
work(
    "gelu_1M",
    normal(M1),
    lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    jx=lambda J: lambda x: J.nn.gelu(x),
    torch=lambda T: lambda x: T.nn.functional.gelu(x, approximate="tanh"),
    bytes=8 * M1,
)
work(
    "float64_exp_sin_1M",
    lambda rng, grow: [rng.standard_normal(M1 + 16 * grow)],
    lambda x: np.exp(x) * np.sin(x),
    **same(lambda m: lambda x: m.exp(x) * m.sin(x)),
    numba=numba_loop("math.exp(a) * math.sin(a)", "float64"),
    x64=True,
    bytes=16 * M1,
)
work(
    "bfloat16_1M",
    lambda rng, grow: [rng.standard_normal(M1 + 16 * grow, dtype=np.float32)],
    lambda x: np.exp(x) + x * 1.5,
    jx=lambda J: lambda x: J.numpy.exp(x) + x * 1.5,
    torch=lambda T: lambda x: T.exp(x) + x * 1.5,
    bfloat16=True,
    tolerance=4e-2,
    bytes=4 * M1,
)


def black_scholes(m: Any, erf: Callable[[Any], Any]) -> Callable[..., Any]:
    def f(spot: Any, strike: Any, time: Any, volatility: Any) -> Any:
        spread = volatility * m.sqrt(time)
        d1 = (m.log(spot / strike) + (0.03 + 0.5 * volatility * volatility) * time) / spread

        def cdf(z: Any) -> Any:
            return 0.5 * (1.0 + erf(z * 0.7071067811865476))

        return spot * cdf(d1) - strike * m.exp(-0.03 * time) * cdf(d1 - spread)

    return f


def option_inputs(rng: np.random.Generator, grow: int) -> list[Any]:
    size = M1 + 16 * grow
    bounds = ((50, 150), (50, 150), (0.1, 2), (0.1, 0.5))
    return [(low + (high - low) * rng.random(size, dtype=np.float32)).astype(np.float32) for low, high in bounds]


def erf_float64(x: Any) -> Any:
    return np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64)).astype(np.float64)


work(
    "black_scholes_1M",
    option_inputs,
    black_scholes(np, erf_float64),
    jx=lambda J: black_scholes(J.numpy, J.scipy.special.erf),
    torch=lambda T: black_scholes(T, T.erf),
    bytes=20 * M1,
    tolerance=1e-4,
)


# ---------------------------------------------------------------------------- rows, columns, layout
def softmax(m: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        e = m.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return f


def layernorm(m: Any) -> Callable[..., Any]:
    return lambda x: (x - x.mean(-1, keepdims=True)) / m.sqrt(x.var(-1, keepdims=True) + 1e-5)


work(
    "softmax_4096x1024",
    normal(ROWS, COLS),
    softmax(np),
    jx=lambda J: lambda x: J.nn.softmax(x, axis=-1),
    torch=lambda T: lambda x: T.softmax(x, -1),
    bytes=8 * ROWS * COLS,
)
work(
    "layernorm_4096x1024",
    normal(ROWS, COLS),
    layernorm(np),
    xp=layernorm,
    torch=lambda T: lambda x: T.nn.functional.layer_norm(x, (COLS,)),
    bytes=8 * ROWS * COLS,
)
for (_function, _bytes), _axis in itertools.product((("sum", 4), ("cumsum", 8)), (0, 1)):
    work(
        f"{_function}_axis{_axis}",
        normal(ROWS, COLS),
        lambda x, name=_function, axis=_axis: getattr(x, name)(axis),
        **same(lambda m, name=_function, axis=_axis: lambda x: getattr(x, name)(axis)),
        bytes=_bytes * ROWS * COLS,
        tolerance=1e-4,
    )
work(
    "argmax_axis1",
    normal(ROWS, COLS),
    lambda x: x.argmax(1),
    **same(lambda m: lambda x: x.argmax(1)),
    bytes=4 * ROWS * COLS,
)
work(
    "transpose_2048",
    normal(2048, 2048),
    lambda x: x.T,
    xp=lambda m: lambda x: m.ascontiguousarray(x.T) if m is np else x.T,  # a copy=True keeps the order of x
    torch=lambda T: lambda x: x.T.contiguous(),
    bytes=8 * 2048**2,
)
work(
    "pad_2048",
    normal(2048, 2048),
    lambda x: np.pad(x, 8),
    xp=lambda m: lambda x: m.pad(x, 8),
    torch=lambda T: lambda x: T.nn.functional.pad(x, (8, 8, 8, 8)),
    bytes=8 * 2048**2,
)

# ---------------------------------------------------------------------------- contractions
for _n in (64, 256, 1024, 2048):
    work(
        f"matmul_{_n}",
        lambda rng, grow, n=_n: [rng.standard_normal((n + 8 * grow,) * 2, dtype=np.float32) for _ in range(2)],
        lambda a, b: a @ b,
        **same(lambda m: lambda a, b: a @ b),
        flops=2 * _n**3,
        tolerance=1e-4,
    )
work(
    "sincos_matmul_2048",
    lambda rng, grow: [rng.standard_normal((2048 + 8 * grow,) * 2, dtype=np.float32) / np.float32(45.0)],
    lambda x: np.sin(x @ x) + np.cos(x @ x),
    **same(lambda m: lambda x: m.sin(x @ x) + m.cos(x @ x)),
    flops=2 * 2048**3,
    tolerance=1e-4,
)
work(
    "matmul_1024_bfloat16",
    lambda rng, grow: [rng.standard_normal((1024 + 8 * grow,) * 2, dtype=np.float32) for _ in range(2)],
    lambda a, b: a @ b,
    jx=lambda J: lambda a, b: a @ b,
    torch=lambda T: lambda a, b: a @ b,
    flops=2 * 1024**3,
    bfloat16=True,
    tolerance=4e-2,
)
LAYERS = (784, 1024, 1024, 10)


def mlp(relu: Callable[[Any], Any]) -> Callable[..., Any]:
    def forward(x: Any, *parameters: Any) -> Any:
        for i in range(0, 4, 2):
            x = relu(x @ parameters[i] + parameters[i + 1])
        return x @ parameters[4] + parameters[5]

    return forward


def mlp_inputs(rng: np.random.Generator, grow: int) -> list[Any]:
    inputs = [rng.random((128 + 8 * grow, LAYERS[0]), dtype=np.float32)]
    for rows, columns in itertools.pairwise(LAYERS):
        inputs.append(rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(math.sqrt(2 / rows)))
        inputs.append(rng.standard_normal(columns, dtype=np.float32) * np.float32(0.01))
    return inputs


work(
    "mlp_forward",
    mlp_inputs,
    mlp(lambda x: np.maximum(x, 0)),
    xp=lambda m: mlp(lambda x: m.maximum(x, 0)),
    jx=lambda J: mlp(J.nn.relu),
    torch=lambda T: mlp(T.relu),
    flops=2 * 128 * sum(a * b for a, b in itertools.pairwise(LAYERS)),
    tolerance=1e-4,
)

# ---------------------------------------------------------------------------- dispatch
_three = normal(3)
work("dispatch_3", _three, lambda x: x + 1, **same(lambda m: lambda x: x + 1), burst=True)
work(
    "dispatch_dict50",
    lambda rng, grow: [{f"k{i:02d}": rng.standard_normal(3, dtype=np.float32) for i in range(50)}],
    lambda d: {k: v + 1 for k, v in d.items()},
    **same(lambda m: lambda d: {k: v + 1 for k, v in d.items()}),
    burst=True,
)
work("eager_add_3", _three, lambda x: x + 1, **same(lambda m: lambda x: x + 1), own_jit=True, burst=True)


def plus_one(i: Any) -> Any:
    return i + 1


def jit_in_a_loop(kind: str) -> Callable[[Any], Callable[..., Any]]:
    def build(J: Any) -> Callable[..., Any]:
        fresh = {
            "lambda": lambda: J.jit(lambda a: plus_one(a)),
            "partial": lambda: J.jit(functools.partial(plus_one)),
            "same": lambda: J.jit(plus_one),
        }[kind]

        def run(x: Any, n: Any) -> Any:
            i = 0
            while i < n:
                i = fresh()(i)
            return x + i

        return run

    return build


for _kind in ("lambda", "partial", "same"):
    work(
        f"jit_in_loop_{_kind}_20", lambda rng, grow: [10, 20], lambda x, n: x + n, jx=jit_in_a_loop(_kind), own_jit=True
    )

"""Random array programs as data: a list of steps over a growing pool of values, written out as Python when one fails.

A program is drawn by hypothesis (so that failures shrink), runs over any NumPy-like namespace that knows JAX's
names, and prints as a function a reader can paste into a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "uint8", "uint32", "int64")
DTYPES = ("float32", "float32", "float32", "int32", "bool", "bfloat16", "float16", "uint8", "int8", "uint32")
EXTENTS = (0, 1, 2, 3, 5, 17)

UNARY = {
    "float": (
        *("sin", "cos", "exp", "tanh", "abs", "negative", "floor", "ceil", "sign", "square", "sqrt", "log1p", "isnan"),
        *("exp2", "expm1", "log", "log2", "arctan", "sinh", "arcsinh", "reciprocal", "rint", "isfinite", "signbit"),
        *("tan", "cosh", "cbrt", "trunc", "isinf", "sinc", "deg2rad", "positive", "nan_to_num"),
    ),
    "int": ("abs", "negative", "sign", "square", "invert", "bitwise_count", "isfinite"),
    "bool": ("logical_not", "invert"),
}
BOOLEAN_RESULT = ("isnan", "isfinite", "isinf", "signbit", "logical_not")
BINARY = (
    *("add", "subtract", "multiply", "maximum", "minimum", "less", "greater_equal", "equal", "where"),
    *("floor_divide", "remainder", "fmax", "not_equal"),
)
BINARY_FLOAT = ("divide", "arctan2", "hypot", "logaddexp", "copysign", "nextafter", "heaviside", "power")
BINARY_INT = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
BINARY_BOOL = ("logical_and", "logical_or", "logical_xor", "equal")
COMPARISONS = ("less", "greater_equal", "equal", "not_equal")
REDUCE = {
    "float": ("sum", "max", "min", "mean", "prod", "argmax", "argmin", "std", "var", "ptp", "nansum", "count_nonzero"),
    "int": ("sum", "max", "min", "prod", "argmax", "any", "mean"),
    "bool": ("any", "all", "sum", "count_nonzero"),
}


@dataclass(frozen=True)
class Step:
    """``name(*pool[i] for i in args, **static)``; the result joins the pool."""

    name: str
    args: tuple[int, ...]
    static: tuple[tuple[str, Any], ...] = ()

    def text(self) -> str:
        static = "".join(f", {k}={v!r}" for k, v in self.static)
        return f"{self.name}({', '.join(f'v{i}' for i in self.args)}{static})"


@dataclass(frozen=True)
class Program:
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    seed: int

    def arrays(self) -> list[np.ndarray]:
        """Inputs in a range where float programs stay finite mostly, with a few special values sprinkled in."""
        rng = np.random.default_rng(self.seed)
        return [_array(rng, dtype, shape) for dtype, shape in self.inputs]

    def run(self, m: Any, *inputs: Any) -> tuple[Any, ...]:
        pool = list(inputs)
        for step in self.steps:
            pool.append(apply(m, step, [pool[i] for i in step.args]))
        return tuple(pool[i] for i in self.outputs)

    def repro(self) -> str:
        """A file that runs the program with jit and without, and compares."""
        n = len(self.inputs)
        lines = [f"    v{n + k} = {_code(step)}" for k, step in enumerate(self.steps)]
        arrays = [f"    {_literal(array)}," for array in self.arrays()]
        return "\n".join(
            [
                *("import ml_dtypes", "import numpy as np", "import weft", "import weft.numpy as m", ""),
                f"def f({', '.join(f'v{i}' for i in range(n))}):",
                *(*lines, f"    return [{', '.join(f'v{i}' for i in self.outputs)}]", ""),
                *("inputs = [", *arrays, "]"),
                *("jitted = weft.jit(f)(*inputs)", "eager = f(*[m.asarray(x) for x in inputs])"),
                *("for a, b in zip(jitted, eager):", "    a, b = np.asarray(a), np.asarray(b)"),
                "    assert a.dtype == b.dtype and ((a == b) | ((a != a) & (b != b))).all(), (a, b)",
                'print("jit and eager agree")',
                "",
            ]
        )

    def source(self) -> str:
        n = len(self.inputs)
        lines = [
            f"def f({', '.join(f'v{i}' for i in range(n))}):  # {', '.join(f'{d}{list(s)}' for d, s in self.inputs)}"
        ]
        lines += [f"    v{n + k} = {step.text()}" for k, step in enumerate(self.steps)]
        return "\n".join([*lines, f"    return {', '.join(f'v{i}' for i in self.outputs)}"])


def _literal(array: np.ndarray) -> str:
    """An expression that gives the array again, bit for bit."""
    name = array.dtype.name
    dtype = f"ml_dtypes.{name}" if name == "bfloat16" else f"np.dtype({name!r})"
    return f"np.frombuffer(bytes.fromhex({array.tobytes().hex()!r}), {dtype}).reshape({array.shape})"


def _code(step: Step) -> str:
    """A step as Python over the namespace ``m``."""
    static, args = dict(step.static), [f"v{i}" for i in step.args]
    if step.name == "where":
        return f"m.where({args[0]} > {args[1]}, {args[0]}, {args[1]})"
    if step.name == "slice":
        return f"{args[0]}[{static['index']!r}]"
    if step.name == "expand":
        return f"m.broadcast_to({args[0]}[..., None], (*{args[0]}.shape, {static['size']}))"
    if step.name == "concatenate":
        return f"m.concatenate([{args[0]}, {args[1]}], axis={static['axis']})"
    if step.name == "astype":
        return f"{args[0]}.astype({static['dtype']!r})"
    if step.name == "take":
        return f"m.take({args[0]}, np.int32({static['index']}), axis={static['axis']}, mode={static['mode']!r})"
    if step.name == "at":
        rows = f"m.take({args[0]}, np.int32({static['source']}), axis=0, mode='clip')"
        return f"{args[0]}.at[np.int32({static['index']})].{static['method']}({rows}, mode={static['mode']!r})"
    return f"m.{step.name}({', '.join([*args, *[f'{k}={v!r}' for k, v in step.static]])})"


def _array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = kind_of(dtype)
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind == "int":
        low = 0 if dtype.startswith("u") else -100
        return rng.integers(low, 100, shape).astype(dtype)
    values = np.asarray(rng.standard_normal(shape) * 3)
    special = rng.random(shape) < 0.04
    values = np.where(special, rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e5]), shape), values)
    with np.errstate(over="ignore"):  # 1e5 is infinite in half precision
        return values.astype(np_dtype(dtype))


def np_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def kind_of(dtype: Any) -> str:
    name = str(dtype)
    return "bool" if name == "bool" else "int" if "int" in name else "float"


def apply(m: Any, step: Step, args: list[Any]) -> Any:
    """One step over namespace ``m`` (weft.numpy)."""
    static = dict(step.static)
    if step.name == "where":
        return m.where(args[0] > args[1], args[0], args[1])
    if step.name == "slice":
        return args[0][static["index"]]
    if step.name == "expand":
        return m.broadcast_to(args[0][..., None], (*args[0].shape, static["size"]))
    if step.name == "concatenate":
        return m.concatenate([args[0], args[1]], axis=static["axis"])
    if step.name == "astype":
        return args[0].astype(static["dtype"])
    if step.name == "take":
        return m.take(args[0], np.int32(static["index"]), axis=static["axis"], mode=static["mode"])
    if step.name == "at":
        rows = m.take(args[0], np.int32(static["source"]), axis=0, mode="clip")
        target = args[0].at[np.int32(static["index"])]
        return getattr(target, static["method"])(rows, mode=static["mode"])
    return getattr(m, step.name)(*args, **static)


@dataclass
class Shape:
    """What the generator knows of a value."""

    dtype: str
    shape: tuple[int, ...]


@st.composite
def programs(draw: Any, max_steps: int = 12) -> Program:
    """A program of up to ``max_steps`` steps over one to three inputs of broadcastable shapes, ranks 0 to 5."""
    rank = draw(st.integers(0, 5))
    full = tuple(draw(st.sampled_from(EXTENTS)) for _ in range(rank))
    if int(np.prod(full)) > 3000:
        full = full[-2:]
    pool: list[Shape] = []
    for _ in range(draw(st.integers(1, 3))):
        drop = draw(st.integers(0, len(full)))
        shape = tuple(draw(st.sampled_from((n, n, 1))) for n in full[drop:])
        pool.append(Shape(draw(st.sampled_from(DTYPES)), shape))
    inputs = tuple((v.dtype, v.shape) for v in pool)
    steps = []
    for _ in range(draw(st.integers(1, max_steps))):
        step, result = draw(next_step(pool))
        steps.append(step)
        pool.append(result)
    last = len(pool) - 1
    outputs = tuple(sorted({last, draw(st.integers(len(inputs), last))}))
    return Program(inputs, tuple(steps), outputs, draw(st.integers(0, 2**16)))


@st.composite
def next_step(draw: Any, pool: list[Shape]) -> tuple[Step, Shape]:
    i = draw(st.integers(0, len(pool) - 1))
    value = pool[i]
    families = [unary, unary, binary, binary, cast]
    if value.shape:
        families += [reduce_, move, cut, glue, pick, put]
    return draw(draw(st.sampled_from(families))(pool, i))


@st.composite
def unary(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    name = draw(st.sampled_from(UNARY[kind_of(value.dtype)]))
    dtype = "bool" if name in BOOLEAN_RESULT else value.dtype
    return Step(name, (i,)), Shape(dtype, value.shape)


@st.composite
def binary(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    partners = [j for j, other in enumerate(pool) if broadcastable(value.shape, other.shape)] or [i]
    j = draw(st.sampled_from(partners))
    kinds = {kind_of(value.dtype), kind_of(pool[j].dtype)}
    names = BINARY_BOOL if kinds == {"bool"} else BINARY
    if kinds == {"float"}:
        names += BINARY_FLOAT
    elif kinds == {"int"}:
        names += BINARY_INT
    name = draw(st.sampled_from(names))
    shape = np.broadcast_shapes(value.shape, pool[j].shape)
    if name in (*COMPARISONS, *BINARY_BOOL):
        return Step(name, (i, j)), Shape("bool", shape)
    if name == "subtract" and "bool" in (value.dtype, pool[j].dtype):
        name = "add"
    return Step(name, (i, j)), Shape(promoted(value.dtype, pool[j].dtype), shape)


def broadcastable(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(a, b))) <= 6000
    except ValueError:
        return False


def promoted(a: str, b: str) -> str:
    """Good enough to choose the next step: only the kind matters."""
    if a == b:
        return a
    kinds = {kind_of(a), kind_of(b)}
    if "float" in kinds:
        floats = [d for d in (a, b) if kind_of(d) == "float"]
        return floats[0] if len(floats) == 1 else "float32"
    return a if kind_of(b) == "bool" else b if kind_of(a) == "bool" else "int32"


@st.composite
def cast(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    dtype = draw(st.sampled_from(("float32", "int32", "bool", "bfloat16", "uint8", "float16")))
    return Step("astype", (i,), (("dtype", dtype),)), Shape(dtype, pool[i].shape)


@st.composite
def reduce_(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    name = draw(st.sampled_from(REDUCE[kind_of(value.dtype)]))
    axis = draw(st.integers(-len(value.shape), len(value.shape) - 1))
    if value.shape[axis] == 0 and name in ("max", "min", "argmax", "argmin", "ptp"):
        name = "any" if value.dtype == "bool" else "sum"
    keepdims = draw(st.booleans())
    kept = list(value.shape)
    kept[axis] = 1
    if not keepdims:
        del kept[axis]
    dtype = {"any": "bool", "all": "bool", "argmax": "int32", "argmin": "int32", "count_nonzero": "int32"}.get(
        name, value.dtype
    )
    if name == "mean" and kind_of(dtype) != "float":
        dtype = "float32"
    if name in ("sum", "prod") and kind_of(dtype) == "bool":
        dtype = "int32"
    return Step(name, (i,), (("axis", axis), ("keepdims", keepdims))), Shape(dtype, tuple(kept))


@st.composite
def move(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    rank = len(value.shape)
    which = draw(st.sampled_from(("transpose", "reshape", "flip", "expand", "cumsum", "roll", "tile", "diff")))
    if which == "transpose":
        axes = tuple(draw(st.permutations(range(rank))))
        return Step("transpose", (i,), (("axes", axes),)), Shape(value.dtype, tuple(value.shape[a] for a in axes))
    if which == "reshape" or (which == "cumsum" and value.dtype == "bool"):
        size = int(np.prod(value.shape))
        shape = draw(st.sampled_from([(size,), (1, size), (size, 1), value.shape[::-1]]))
        return Step("reshape", (i,), (("shape", shape),)), Shape(value.dtype, shape)
    if which == "expand" and np.prod(value.shape) < 1500 and rank < 5:
        return Step("expand", (i,), (("size", 3),)), Shape(value.dtype, (*value.shape, 3))
    axis = draw(st.integers(0, rank - 1))
    if which == "tile" and np.prod(value.shape) < 1500:
        repeats = tuple(2 if k == axis else 1 for k in range(rank))
        shape = tuple(n * r for n, r in zip(value.shape, repeats, strict=True))
        return Step("tile", (i,), (("reps", repeats),)), Shape(value.dtype, shape)
    if which == "diff" and value.dtype != "bool" and value.shape[axis] > 0:
        shape = tuple(n - (k == axis) for k, n in enumerate(value.shape))
        return Step("diff", (i,), (("axis", axis),)), Shape(value.dtype, shape)
    if which == "roll":
        return Step("roll", (i,), (("shift", 2), ("axis", axis))), value
    return Step("cumsum" if which == "cumsum" else "flip", (i,), (("axis", axis),)), value


@st.composite
def cut(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    index = []
    for extent in value.shape:
        start = draw(st.integers(0, extent))
        stop = draw(st.integers(start, extent))
        step = draw(st.sampled_from((1, 1, 2, 3)))
        index.append(slice(start, stop, step))
    shape = tuple(len(range(*s.indices(n))) for s, n in zip(index, value.shape, strict=True))
    return Step("slice", (i,), (("index", tuple(index)),)), Shape(value.dtype, shape)


@st.composite
def pick(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    """Positions along one axis, some of them outside."""
    value = pool[i]
    axis = draw(st.integers(0, len(value.shape) - 1))
    if not value.shape[axis]:
        return draw(cut(pool, i))
    index = tuple(draw(st.lists(st.integers(-value.shape[axis] - 2, value.shape[axis] + 1), min_size=1, max_size=7)))
    mode = draw(st.sampled_from(("clip", "fill", "wrap")))
    shape = (*value.shape[:axis], len(index), *value.shape[axis + 1 :])
    return Step("take", (i,), (("index", index), ("axis", axis), ("mode", mode))), Shape(value.dtype, shape)


@st.composite
def put(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    """Rows of a value combined into rows of its own, some of them twice, some outside."""
    value = pool[i]
    if not value.shape[0]:
        return draw(cut(pool, i))
    rows = st.integers(-value.shape[0] - 1, value.shape[0])
    index = tuple(draw(st.lists(rows, min_size=1, max_size=7)))
    source = tuple(draw(st.lists(rows, min_size=len(index), max_size=len(index))))
    method = draw(
        st.sampled_from(("set", "max", "min") if value.dtype == "bool" else ("set", "add", "max", "multiply"))
    )
    mode = draw(st.sampled_from(("drop", "clip")))
    static = (("index", index), ("source", source), ("method", method), ("mode", mode))
    return Step("at", (i,), static), value


@st.composite
def glue(draw: Any, pool: list[Shape], i: int) -> tuple[Step, Shape]:
    value = pool[i]
    axis = draw(st.integers(0, len(value.shape) - 1))
    if draw(st.booleans()):
        width = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in value.shape)
        shape = tuple(n + a + b for n, (a, b) in zip(value.shape, width, strict=True))
        return Step("pad", (i,), (("pad_width", width),)), Shape(value.dtype, shape)
    mates = [
        j
        for j, other in enumerate(pool)
        if len(other.shape) == len(value.shape)
        and other.dtype == value.dtype
        and all(a == b for k, (a, b) in enumerate(zip(value.shape, other.shape, strict=True)) if k != axis)
    ]
    j = draw(st.sampled_from(mates))
    shape = list(value.shape)
    shape[axis] += pool[j].shape[axis]
    return Step("concatenate", (i, j), (("axis", axis),)), Shape(value.dtype, tuple(shape))

"""Random programs over sizes 0 and 1, all integer types and floats: calls, ``jit``, ``vjp`` under ``jit``; no error.

    python tests/fuzz/zero_sizes.py [PROGRAMS [SEED]]

A program grows step by step on concrete values, so that every step is valid where it stands: one that raises in weft is
left out if it raises in JAX too. Then the program and its ``vjp`` run under ``jit`` and without, and must give the same
bits (of sums of products: the same within rounding). A failure is printed as a program that runs by itself.
"""

from __future__ import annotations

import random
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from weft.errors import InternalError

jax: Any
try:
    import jax
except ImportError:
    jax = None

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "int4", "uint4")
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "complex64")
EXTENTS = (0, 0, 1, 1, 2, 3, 5)
MAX_SIZE = 400

Pick = random.Random
Step = Callable[[Pick, list[Any]], str | None]
"""Gives the source of a step over the values v0, v1, ..., or None where it has no meaning for what it picked."""

UNARY = [
    "np.sin({})", "np.exp({})", "np.sqrt({})", "np.tanh({})", "np.log1p({})", "np.cbrt({})", "np.arctan({})",
    "np.abs({})", "-{}", "np.sign({})", "np.square({})", "np.floor({})", "np.rint({})", "np.isfinite({})", "~{}",
    "np.reciprocal({})", "np.bitwise_count({})", "lax.population_count({})", "lax.clz({})", "lax.integer_pow({}, 3)",
    "lax.integer_pow({}, 7)", "{} ** 2", "{} ** 5", "np.nan_to_num({})", "m.nn.relu({})", "m.nn.gelu({})",
    "np.conj({})", "np.real({})", "np.imag({})", "np.angle({})", "np.spacing({})", "m.checkpoint(lambda a: a * a)({})",
    "lax.rsqrt({})", "m.jit(lambda a: a + a)({})", "lax.stop_gradient({})",
    "m.vmap(lambda a: a + a)({})", "np.i0({})", "lax.lgamma({})",
]  # fmt: skip
BINARY = [
    "{} + {}", "{} - {}", "{} * {}", "np.maximum({}, {})", "np.minimum({}, {})", "{} < {}", "{} == {}", "{} // {}",
    "{} % {}", "np.fmod({}, {})", "np.power({}, {})", "{} / {}", "np.divmod({}, {})[1]", "np.float_power({}, {})",
    "{} & {}", "{} | {}", "{} ^ {}", "np.left_shift({}, {})", "np.right_shift({}, {})", "np.gcd({}, {})",
    "np.lcm({}, {})", "np.arctan2({}, {})", "np.hypot({}, {})", "np.copysign({}, {})", "np.nextafter({}, {})",
    "np.logaddexp({}, {})", "np.where({} > 0, {}, 0)", "np.clip({}, 0, {})", "np.heaviside({}, {})", "np.ldexp({}, {})",
    "np.subtract.outer({}, {})", "np.outer({}, {})", "np.kron({}, {})",
]  # fmt: skip
SAME_TYPE = ["lax.div({}, {})", "lax.rem({}, {})", "lax.pow({}, {})", "lax.shift_right_logical({}, {})"]
REDUCE = ["sum", "prod", "any", "all", "mean", "var", "std", "nansum", "nanmean", "count_nonzero", "max", "min"]
REDUCE += ["argmax", "argmin", "median", "ptp", "nanmax", "nanstd", "average", "nanprod"]
ALONG = ["cumsum", "cumprod", "sort", "argsort", "flip", "diff", "nancumsum", "gradient", "trapezoid", "unwrap"]
LAX_ALONG = ["cummax", "cummin", "cumlogsumexp", "cumsum", "cumprod"]


def value(pick: Pick, pool: list[Any], wanted: Callable[[Any], bool] = lambda v: True) -> Any:
    """The number of a value of the pool, later ones more often."""
    found = [i for i, v in enumerate(pool) if wanted(v)]
    return pick.choice([*found, *found[-4:]]) if found else None


def elementwise(pick: Pick, pool: list[Any]) -> str | None:
    return pick.choice(UNARY).format(f"v{value(pick, pool)}")


def pairs(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool)
    if pick.random() < 0.3:
        j = value(pick, pool, lambda v: v.dtype == pool[i].dtype and v.shape == pool[i].shape)
        return pick.choice(SAME_TYPE).format(f"v{i}", f"v{j}")
    return pick.choice(BINARY).format(f"v{i}", f"v{value(pick, pool, lambda v: _fit(v, pool[i]))}")


def _fit(a: Any, b: Any) -> bool:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True


def convert(pick: Pick, pool: list[Any]) -> str | None:
    dtype = pick.choice(INTEGERS + FLOATS + ("bool",))
    how = pick.choice(("v{}.astype({!r})", "lax.convert_element_type(v{}, {!r})", "lax.reduce_precision(v{}, 5, 7)"))
    return how.format(value(pick, pool), dtype)


def _axes(pick: Pick, v: Any) -> Any:
    count = pick.randint(0, v.ndim)
    return pick.choice((None, tuple(pick.sample(range(v.ndim), count)), pick.randrange(-v.ndim, v.ndim)))


def reduction(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool, lambda v: v.ndim)
    if i is None:
        return None
    v = pool[i]
    form = pick.randrange(4)
    if form == 0:
        return f"lax.{pick.choice(LAX_ALONG)}(v{i}, {pick.randrange(v.ndim)}, reverse={pick.random() < 0.3})"
    if form == 1:
        return f"np.{pick.choice(ALONG)}(v{i}, axis={pick.randrange(-v.ndim, v.ndim)})"
    name = pick.choice(REDUCE)
    axis = pick.randrange(v.ndim) if name in ("argmax", "argmin") else _axes(pick, v)
    return f"np.{name}(v{i}, axis={axis}, keepdims={pick.random() < 0.5})"


def _factored(pick: Pick, size: int) -> tuple[int, ...]:
    if size == 0:
        shape = [pick.choice(EXTENTS) for _ in range(pick.randint(1, 3))]
        shape[pick.randrange(len(shape))] = 0
        return tuple(shape)
    shape, left = [], size
    while left > 1:
        factor = next(f for f in range(2, left + 1) if left % f == 0)
        shape.append(factor)
        left //= factor
    pick.shuffle(shape)
    return tuple(shape + [1] * pick.randint(0, 2))


def movement(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool)
    v = pool[i]
    if not v.ndim:
        shape = tuple(pick.choice(EXTENTS) for _ in range(pick.randint(0, 3)))
        return pick.choice((f"np.broadcast_to(v{i}, {shape})", f"np.full({shape}, v{i})", f"np.atleast_2d(v{i})"))
    axis = pick.randrange(v.ndim)
    return pick.choice((
        f"np.transpose(v{i}, {tuple(pick.sample(range(v.ndim), v.ndim))})",
        f"np.reshape(v{i}, {_factored(pick, v.size)})", f"np.ravel(v{i})", f"np.expand_dims(v{i}, {axis})",
        f"np.squeeze(v{i})", f"np.tile(v{i}, {pick.choice((0, 1, 2))})", f"np.flip(v{i}, {axis})",
        f"np.repeat(v{i}, {pick.choice((0, 1, 3))}, axis={axis})", f"np.roll(v{i}, {pick.randint(-3, 3)}, axis={axis})",
        f"np.broadcast_to(v{i}, {(pick.choice(EXTENTS), *v.shape)})", f"np.triu(v{i})", f"np.diag(v{i})",
        f"np.diagonal(v{i})", f"np.trace(v{i})", f"np.split(v{i}, [{pick.randint(0, 2)}], axis={axis})[0]",
        f"np.rot90(v{i})", f"np.moveaxis(v{i}, {axis}, 0)", f"lax.collapse(v{i}, 0, {axis + 1})",
        f"lax.top_k(v{i}, {pick.randint(0, v.shape[-1])})[{pick.randint(0, 1)}]", f"np.unstack(v{i})[0]",
    ))  # fmt: skip


def region(pick: Pick, pool: list[Any]) -> str | None:
    """A part of an array: slices, of which the place may be known only at run time and may lie outside."""
    i = value(pick, pool, lambda v: v.ndim)
    if i is None:
        return None
    v = pool[i]
    sizes = tuple(pick.randint(0, n) for n in v.shape)
    starts = [pick.choice((str(pick.randint(-3, 7)), f"np.int32({pick.randint(-3, 7)})")) for _ in v.shape]
    index = f"s{pick.randint(0, 1)}"
    if pick.random() < 0.4:
        starts = [index if pick.random() < 0.5 else "np.int32(1)" for _ in v.shape]
    at = f"({', '.join(starts)},)"
    low = [pick.randint(0, n) for n in v.shape]
    high = [pick.randint(a, n) for a, n in zip(low, v.shape, strict=True)]
    axis = pick.randrange(v.ndim)
    widths = [(pick.randint(-2, 2), pick.randint(-2, 2), pick.randint(0, 2)) for _ in v.shape]
    update = f"np.ones({sizes}, v{i}.dtype)"
    same = value(pick, pool, lambda w: w.ndim == v.ndim and w.dtype == v.dtype and _inside(w.shape, v.shape))
    if same is not None and pick.random() < 0.6:
        update = f"v{same}"
    return pick.choice((
        f"lax.dynamic_slice(v{i}, {at}, {sizes})", f"lax.dynamic_slice(v{i}, {at}, {sizes})",
        f"lax.dynamic_update_slice(v{i}, {update}, {at})", f"lax.dynamic_update_slice(v{i}, {update}, {at})",
        f"lax.slice(v{i}, {low}, {high}, {[pick.randint(1, 3) for _ in low]})",
        f"lax.dynamic_index_in_dim(v{i}, {index}, {axis}, keepdims={pick.random() < 0.5})",
        f"v{i}[::{pick.choice((-1, -2, 2))}]", f"v{i}[..., {pick.randint(-1, 2)}:]", f"v{i}[{index}]",
        f"lax.pad(v{i}, np.zeros((), v{i}.dtype), {widths})",
        f"np.pad(v{i}, {pick.randint(0, 2)}, mode={pick.choice(('constant', 'edge', 'wrap', 'reflect'))!r})",
        f"v{i}.at[{low[0]}:{high[0]}].set(3)", f"v{i}.at[..., {low[-1]}:{high[-1]}].{_method(pick)}(2)",
    ))  # fmt: skip


def _inside(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(small, large, strict=True))


def _method(pick: Pick) -> str:
    return pick.choice(("set", "add", "multiply", "max", "min"))


def positions(pick: Pick, pool: list[Any]) -> str | None:
    """Rows by number, some of them outside: gathers and scatters."""
    i = value(pick, pool, lambda v: v.ndim)
    if i is None:
        return None
    v = pool[i]
    axis, count = pick.randrange(v.ndim), pick.choice((0, 0, 1, 2, 4))
    shape = pick.choice(((count,), (count, 2), (1, count)))
    numbers = np.array([pick.randint(-6, 6) for _ in range(int(np.prod(shape)))]).reshape(shape)
    at = f"np.array({numbers.tolist()}, dtype={pick.choice(('int32', 'int8', 'uint8'))!r}).reshape({shape})"
    if numbers.size and numbers.min() < 0:
        at = f"np.array({numbers.tolist()}, dtype='int32').reshape({shape})"
    index = ", ".join([*[":"] * axis, at])
    j = value(pick, pool, lambda w: w.dtype == "int32" and w.ndim == v.ndim)
    along = f"v{j}" if j is not None else f"np.zeros({v.shape}, 'int32')"
    get, put = pick.choice(("fill", "clip", "wrap")), pick.choice(("drop", "clip"))
    rows = f"np.take(v{i}, {at}, axis={axis}, mode='clip')"
    return pick.choice((
        f"np.take(v{i}, {at}, axis={axis}, mode={get!r})", f"v{i}[{index}]",
        f"v{i}.at[{index}].{_method(pick)}(3, mode={put!r})", f"v{i}.at[{index}].{_method(pick)}({rows}, mode={put!r})",
        f"np.take_along_axis(v{i}, {along}, axis={axis})", f"np.searchsorted(np.ravel(v{i}), v{value(pick, pool)})",
        f"m.ops.segment_sum(v{i}, np.zeros(v{i}.shape[0], 'int32'), num_segments={pick.randint(0, 2)})",
        f"np.bincount(np.ravel(v{i}).astype('int32'), length={pick.randint(0, 3)})", f"v{i}[np.newaxis, {index}]",
    ))  # fmt: skip


def joining(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool, lambda v: v.ndim)
    if i is None:
        return None
    v = pool[i]
    axis = pick.randrange(v.ndim)
    j = value(
        pick, pool,
        lambda w: w.ndim == v.ndim and all(a == b or k == axis for k, (a, b) in enumerate(zip(w.shape, v.shape))),
    )  # fmt: skip
    same = value(pick, pool, lambda w: w.shape == v.shape)
    return pick.choice((
        f"np.concatenate([v{i}, v{j}], axis={axis})", f"np.stack([v{i}, v{same}], axis={axis})",
        f"np.concatenate([v{j}, v{i}[:0], v{i}], axis=0)", f"np.append(v{i}, v{j})", f"np.hstack([v{i}, v{same}])",
        f"lax.select(np.equal(v{i}, v{i}), v{i}, v{same}.astype(v{i}.dtype))",
        f"np.meshgrid(np.ravel(v{i}), np.ravel(v{j}))[1]", f"lax.select_n(v{i} > 0, v{same}, v{same})",
        f"lax.sort((v{i}, v{same}), dimension={axis})[1]", f"lax.clamp(v{i}, v{i}, v{i})",
    ))  # fmt: skip


def products(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool, lambda v: v.ndim and v.dtype != "bool")
    if i is None:
        return None
    v = pool[i]
    a, b = pick.randrange(v.ndim), pick.randrange(v.ndim)
    j = value(pick, pool, lambda w: w.ndim and w.shape[0] == v.shape[-1])
    k = value(pick, pool, lambda w: w.ndim and w.dtype == v.dtype and v.shape[a] in w.shape)
    w = pool[k] if k is not None else v
    ones = (1,) * v.ndim
    matching = w.shape.index(v.shape[a])
    return pick.choice((
        f"np.matmul(v{i}, v{j})", f"np.tensordot(v{i}, v{j}, 1)", f"np.vdot(v{i}, v{i})", f"np.dot(v{i}, v{j})",
        f"lax.dot_general(v{i}, v{k if k is not None else i}, ((({a},), ({matching},)), ((), ())))",
        f"np.einsum('...i,...i->...', v{i}, v{i})", f"np.linalg.norm(v{i}, axis={b})",
        f"v{i} @ np.swapaxes(v{i}, -1, -2)",
        f"np.convolve(np.ravel(v{i}), np.ones(2, v{i}.dtype), mode='full')", f"m.nn.softmax(v{i}, axis={b})",
        f"m.nn.logsumexp(v{i}, axis={b})", f"np.cov(v{i}[None].reshape(1, -1))", f"np.linalg.det(v{i} @ v{i}.T)",
        f"lax.reduce_window(v{i}, np.zeros((), v{i}.dtype), lax.add, {(2,) * v.ndim}, {(1,) * v.ndim}, 'SAME')",
        f"lax.reduce_window(v{i}, np.zeros((), v{i}.dtype), lax.add, {(1,) * v.ndim}, {(2,) * v.ndim}, 'VALID')",
        f"lax.conv_general_dilated(v{i}[None, None], np.ones({(1, 1) + (2,) * v.ndim}, v{i}.dtype), {ones}, 'SAME')",
    ))  # fmt: skip


def loops(pick: Pick, pool: list[Any]) -> str | None:
    i = value(pick, pool)
    v, n = pool[i], pick.choice((0, 0, 1, 3))
    forms = [
        f"lax.fori_loop(0, {n}, lambda k, a: a * a, v{i})", f"lax.cond(s0 > 3, lambda a: a + a, lambda a: a * a, v{i})",
        f"lax.scan(lambda c, _: (c + c, c), v{i}, None, length={n})[{pick.randint(0, 1)}]",
        f"lax.switch(s1, [lambda a: a, lambda a: a + a], v{i})", f"m.linearize(lambda a: a * a, v{i})[0]",
        f"lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + c[1]), (0, v{i}))[1]",
        f"m.vmap(lambda k: v{i} * k)(np.arange({n}))",
    ]  # fmt: skip
    if v.ndim:
        forms += [
            f"lax.scan(lambda c, x: (c + np.sum(x).astype('float32'), x * x), np.float32(0), v{i})[1]",
            f"lax.map(lambda x: x + x, v{i})", f"lax.associative_scan(lax.add, v{i})",
            f"m.vmap(lambda x: np.sum(x), in_axes={pick.randrange(v.ndim)})(v{i})",
            f"m.vmap(lambda x: lax.dynamic_slice(x, (s0,), (0,)), in_axes=-1)(np.ravel(v{i})[:, None])",
            f"m.vmap(lambda k: lax.dynamic_index_in_dim(v{i}, k, 0))(np.arange({n}))",
            f"lax.reduce(v{i}, np.zeros((), v{i}.dtype), lax.{pick.choice(('add', 'max', 'mul'))}, (0,))",
        ]  # fmt: skip
    return pick.choice(forms)


FAMILIES: list[Step] = [
    *(elementwise, pairs, pairs, convert, reduction, reduction, movement, movement, region, region, region),
    *(positions, positions, joining, products, loops),
]


@dataclass
class Program:
    """The types of its inputs (v0, v1, ...), the sources of the steps after them, and the seed of the values."""

    seed: int
    inputs: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(self.seed)
        return [np.asarray(rng.normal(size=shape) * 3).astype(dtype_of(name)) for name, shape in self.inputs]

    def source(self) -> str:
        first = len(self.inputs)
        names = ", ".join([f"v{i}" for i in range(first)])
        lines = [f"    v{first + k} = {step}" for k, step in enumerate(self.steps)]
        outputs = ", ".join([f"v{i}" for i in range(first, first + len(self.steps))])
        return "\n".join([f"def f({names}{', ' if names else ''}s0, s1):", *lines, f"    return [{outputs}]"])

    def repro(self) -> str:
        return f"# inputs {self.inputs}, seed {self.seed}; s0 = int32(5), s1 = int32(-1)\n{self.source()}"


def dtype_of(name: str) -> Any:
    return np.dtype(weft.numpy.dtype(name))


def names_of(module: Any) -> dict[str, Any]:
    return {"m": module, "np": module.numpy, "lax": module.lax}


STARTS = (np.int32(5), np.int32(-1))
EAGER_EVERY = 8  # programs whose steps are run one by one too, and of which JAX is asked about refusals
INNER = ("/compiler/", "/loops/", "/codegen/", "/runtime/", "/dispatch/")
USER_ERRORS = (TypeError, ValueError, IndexError, NotImplementedError, OverflowError)


class Finding(Exception):
    """A program that shows a fault: what happened, and where."""


def is_internal(error: BaseException) -> bool:
    """Whether an error is none of those that tell a user what is wrong with a program."""
    if not isinstance(error, USER_ERRORS) or isinstance(error, (UnicodeError, InternalError)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return "[executable]" in str(error) or any(part in frames[-1].filename for part in INNER[:4])


def grow(seed: int, steps: int = 6) -> Program:
    """A program of which every step has a type."""
    pick = Pick(seed)
    program = Program(seed)
    for _ in range(pick.randint(1, 3)):
        shape = tuple(pick.choice(EXTENTS) for _ in range(pick.choice((0, 1, 1, 2, 2, 2, 3))))
        program.inputs.append((pick.choice(FLOATS if pick.random() < 0.6 else INTEGERS), shape))
    pool: list[Any] = [weft.ShapeDtypeStruct(shape, dtype_of(name)) for name, shape in program.inputs]
    for _ in range(pick.randint(1, steps)):
        source = pick.choice(FAMILIES)(pick, pool)
        if source is None or "vNone" in source:  # no value has what the step needs
            continue
        made = _typed(program, source, pool)
        if made is not None and made.size <= MAX_SIZE and made.ndim < 5:
            program.steps.append(source)
            pool.append(made)
    return program


def _stepper(module: Any, source: str, count: int) -> Callable[..., Any]:
    names = ", ".join([*[f"v{i}" for i in range(count)], "s0", "s1"])
    return eval(f"lambda {names}: {source}", names_of(module))


def _typed(program: Program, source: str, pool: list[Any]) -> Any:
    """The type of a step's result; None where weft refuses the step, or where it is no array."""
    try:
        made = weft.eval_shape(_stepper(weft, source, len(pool)), *pool, *STARTS)
    except Exception as error:
        if is_internal(error) or (program.seed % EAGER_EVERY == 0 and _typed_by_jax(source, pool)):
            trial = Program(program.seed, program.inputs, [*program.steps, source])
            raise Finding(f"{'' if is_internal(error) else 'refused: '}{_told(error)}\n{trial.repro()}") from error
        return None
    return made if isinstance(made, weft.ShapeDtypeStruct) else None


def _typed_by_jax(source: str, pool: list[Any]) -> bool:
    if jax is None:
        return False
    try:
        structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in pool]
        jax.eval_shape(_stepper(jax, source, len(pool)), *structs, *STARTS)
    except Exception:
        return False
    return True


def _told(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/weft/" in f.filename]
    place = f" ({frames[-1].filename.rpartition('/weft/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{place}"


def pulled(f: Callable[..., Any], moving: list[int]) -> Callable[..., Any]:
    """The function of (inputs, s0, s1) that gives the results of ``f`` and the cotangents of its float inputs."""

    def run(inputs: list[Any], s0: Any, s1: Any) -> Any:
        def of_floats(*floats: Any) -> Any:
            found = list(inputs)
            for i, x in zip(moving, floats, strict=True):
                found[i] = x
            outs = f(*found, s0, s1)
            return [y for y in outs if weft.numpy.issubdtype(y.dtype, weft.numpy.inexact)], outs

        outs, pull, every = weft.vjp(of_floats, *[inputs[i] for i in moving], has_aux=True)
        return every, pull([weft.numpy.ones_like(y) for y in outs])

    return run


def check(program: Program) -> None:
    """``jit`` of the program with its ``vjp``, where it has one; now and then beside eager calls."""
    scope = names_of(weft)
    exec(program.source(), scope)
    f, inputs = scope["f"], [weft.numpy.asarray(x) for x in program.arrays()]
    moving = [i for i, x in enumerate(inputs) if weft.numpy.issubdtype(x.dtype, weft.numpy.inexact)]
    forms = [(pulled(f, moving), (inputs, *STARTS))] if moving else []
    for function, args in [*forms, (f, (*inputs, *STARTS))]:
        try:
            got = weft.jit(function)(*args)
            want = function(*args) if program.seed % EAGER_EVERY == 0 else got
        except Exception as error:
            if is_internal(error):
                raise Finding(f"{_told(error)}\n{program.repro()}") from error
            continue  # it has no derivative, say: the program alone is run next
        rounded = any(word in program.source() for word in ROUNDED)
        leaves = zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True)
        for number, (a, b) in enumerate(leaves):
            if not _same(np.asarray(a), np.asarray(b), rounded):
                raise Finding(f"jit and eager differ: result {number}: {a!r} {b!r}\n{program.repro()}")
        return


ROUNDED = ("@", "dot", "matmul", "einsum", "conv", "kron", "det", "norm", "softmax", "cov")


def _same(a: np.ndarray, b: np.ndarray, rounded: bool) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind in "biu" or "int" in a.dtype.name:
        return False
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = a.astype(wide), b.astype(wide)
        return bool(np.array_equal(a, b, equal_nan=True) or (rounded and np.allclose(a, b, 0.05, 0.1, equal_nan=True)))


def run_one(seed: int) -> str | None:
    """What is wrong with the program of a seed, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = grow(seed)
            if program.steps:
                check(program)
        except Finding as finding:
            return f"seed {seed}: {finding}"
    return None


def main() -> int:
    count, first = int((*sys.argv, 1000)[1]), int((*sys.argv, 0, 0)[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + count):
        told = run_one(seed)
        if told is not None:
            failed += 1
            print(told, flush=True)
        if (seed + 1) % 1000 == 0:
            weft.clear_caches()
            print(f"{seed + 1 - first} programs, {failed} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""Steps of random programs, as sources over the values v0, v1, ...: what a program of arrays may do next.

Each family of steps picks values that fit and writes one call of weft.numpy (np), weft.lax (lax) or weft (m); the same
source is one of JAX's. A step may turn out to have no meaning for its operands: who grows the program leaves it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "int4", "uint4", "int2", "uint2")
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "complex64")
BYTES = (
    *("float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
)
EXTENTS = (0, 0, 1, 1, 2, 3, 5)

Pick = random.Random
Step = Callable[[Pick, list[Any]], str | None]
"""Gives the source of a step over the values v0, v1, ..., or None where it has no meaning for what it picked."""

UNARY = [
    "np.sin({})", "np.exp({})", "np.sqrt({})", "np.tanh({})", "np.log1p({})", "np.cbrt({})", "np.arctan({})",
    "np.abs({})", "-{}", "np.sign({})", "np.square({})", "np.floor({})", "np.rint({})", "np.isfinite({})", "~{}",
    "np.reciprocal({})", "np.bitwise_count({})", "lax.population_count({})", "lax.clz({})", "lax.integer_pow({}, 3)",
    "lax.integer_pow({}, 7)", "{} ** 2", "{} ** 5", "np.nan_to_num({})", "m.nn.relu({})", "m.nn.gelu({})",
    "np.exp2({})", "np.expm1({})", "np.log({})", "np.cos({})", "np.arcsinh({})", "np.ceil({})", "np.trunc({})",
    "np.isnan({})", "np.signbit({})", "np.logical_not({})", "np.round({}, 1)", "np.frexp({})[0]", "np.modf({})[1]",
    "{} + 1", "2 - {}", "{} * 0.5", "{} / 3", "{} // 2", "{} % 3", "{} > 0", "{} == 1", "abs({})", "lax.erf({})",
    "lax.logistic({})", "lax.round({})", "m.nn.silu({})", "lax.reduce_precision({}, 4, 3)", "np.asarray({}).T",
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
SAME_TYPE = [
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "np.maximum({}, {})", "{} < {}", "lax.nextafter({}, {})",
    "lax.atan2({}, {})", "lax.max({}, {})", "lax.complex({}, {})", "np.where({} < 1, {}, 2)", "lax.ge({}, {})",
    "lax.div({}, {})", "lax.rem({}, {})", "lax.pow({}, {})", "lax.shift_right_logical({}, {})",
]  # fmt: skip
REDUCE = ["sum", "prod", "any", "all", "mean", "var", "std", "nansum", "nanmean", "count_nonzero", "max", "min"]
REDUCE += ["nanmin", "nanmedian", "linalg.norm", "nancumsum"]
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
    dtype = pick.choice(pick.choice((INTEGERS, FLOATS, BYTES, ("bool",))))
    how = pick.choice(("v{0}.astype({1!r})", "lax.convert_element_type(v{0}, {1!r})", "np.asarray(v{0}, {1!r})",
                       "lax.bitcast_convert_type(v{0}, {1!r})", "v{0}.astype({1!r}).astype(v{0}.dtype)"))  # fmt: skip
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
        names = LAX_ALONG if wnp.issubdtype(v.dtype, wnp.inexact) else [n for n in LAX_ALONG if n != "cumlogsumexp"]
        return f"lax.{pick.choice(names)}(v{i}, {pick.randrange(v.ndim)}, reverse={pick.random() < 0.3})"
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
    """A part of an array: slices, whose start may be known only at run time and may lie outside."""
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
        f"m.ops.segment_max(v{i}, np.arange({v.shape[0]}) % 2, num_segments=2)", f"np.nonzero(v{i}, size=2)[0]",
        f"v{i}.at[{index}].mul({rows}, mode={put!r}, unique_indices=False)", f"v{i}.at[{index}].apply(np.square)",
        f"v{i}.at[{index}].get(mode='fill', fill_value=1)", f"np.unique(v{i}, size=3)",
        f"np.argsort(v{i}, axis={axis})",
        f"v{i}[np.argsort(v{i}[..., 0] if v{i}.ndim > 1 else v{i}, axis=0)]", f"np.partition(v{i}, 0, axis={axis})",
        f"np.take_along_axis(v{i}, np.argmax(v{i}, axis={axis}, keepdims=True), axis={axis})",
        f"v{i}.at[..., np.clip(s0, 0, 1)].{_method(pick)}(1)", f"np.roll(v{i}, s0, axis={axis})",
        f"np.where(np.arange({v.shape[0]}) < s0, 1, 0) @ v{i}", f"np.extract(v{i} > 0, v{i}, size=2, fill_value=0)",
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
        f"lax.sort((v{i}, v{same}), dimension={axis}, num_keys=2)[0]", f"np.select([v{i} > 0], [v{i}], v{same})",
        f"np.concatenate([v{i}, v{i} + v{i}], axis={axis})", f"np.column_stack([v{i}, v{same}])",
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
    ones, twos = (1,) * v.ndim, (2,) * v.ndim
    matching = w.shape.index(v.shape[a])
    return pick.choice((
        f"np.matmul(v{i}, v{j})", f"np.tensordot(v{i}, v{j}, 1)", f"np.vdot(v{i}, v{i})", f"np.dot(v{i}, v{j})",
        f"lax.dot_general(v{i}, v{k if k is not None else i}, ((({a},), ({matching},)), ((), ())))",
        f"np.einsum('i...,i...', v{i}, v{i})", f"np.inner(v{i}, v{i})", f"np.fft.fft(v{i}.astype('float32'), axis={a})",
        f"lax.dot_general(v{i}, v{i}, (((), ()), ((), ())))", f"np.matmul(v{i}, np.swapaxes(v{i}, -1, -2))",
        f"lax.batch_matmul(v{i}[None, None].reshape(1, -1, 1), v{i}.reshape(1, 1, -1))",
        f"np.matmul(v{i}.reshape(-1, 1), v{i}.reshape(1, -1), preferred_element_type='float32')",
        f"lax.reduce_window(v{i}, -np.inf, lax.max, {(2,) * v.ndim}, {(2,) * v.ndim}, 'SAME')",
        f"lax.conv_general_dilated(v{i}[None, None], np.ones({(1, 1) + (2,) * v.ndim}, v{i}.dtype), {twos}, 'VALID')",
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
        f"lax.while_loop(lambda c: (c[0] < s0) & (c[0] < {n}), lambda c: (c[0] + 1, c[1] + c[0].astype(c[1].dtype)),"
        f" (0, v{i}))[1]",
        f"lax.cond(np.sum(v{i}) > 0, lambda a: (a, a * a), lambda a: (a * a, a), v{i})[{pick.randint(0, 1)}]",
        f"lax.scan(lambda c, k: (lax.cond(k > 0, lambda a: a + a, lambda a: a, c), k), v{i}, np.arange({n}))[0]",
        f"lax.fori_loop(0, s0, lambda k, a: np.where(k % 2 == 0, a + a, a), v{i})",
        f"lax.scan(lambda c, k: ((c[1], c[0] * c[1]), c[0]), (v{i}, v{i}), np.arange({n}), reverse=True)[1]",
        f"lax.switch(s0, [lambda a: a, lambda a: -a, lambda a: a * 2], v{i})",
        f"m.checkpoint(lambda a: np.sin(a) * a)(v{i})",
        f"m.vmap(lambda k: lax.fori_loop(0, k, lambda j, a: a + a, v{i}))(np.arange({n}))",
        f"m.vmap(lambda k: lax.cond(k > 1, lambda a: a, lambda a: a * a, v{i}))(np.arange({n}))",
        f"m.jit(lambda a, b: a * b)(v{i}, v{i})", f"m.grad(lambda a: np.sum(np.sin(a) * a))(v{i})",
        f"m.jvp(lambda a: a * a, (v{i},), (v{i},))[1]", f"m.vjp(lambda a: a * a, v{i})[1](v{i})[0]",
    ]  # fmt: skip
    if v.ndim:
        forms += [
            f"lax.scan(lambda c, x: (c + x, c * x), np.zeros({v.shape[1:]}, v{i}.dtype), v{i}, reverse={n > 1})[1]",
            f"lax.scan(lambda c, x: (np.maximum(c, x), x[..., None]), v{i}[0], v{i}, unroll=2)[1]",
            f"lax.fori_loop(0, {v.shape[0]}, lambda k, a: a.at[k].{_method(pick)}(a[k] + a[0]), v{i})",
            f"lax.scan(lambda c, k: (c.at[k].set(c[-1 - k]), c[k]), v{i}, np.arange({min(n, v.shape[0])}))[0]",
            f"lax.associative_scan(lambda a, b: a * b + b, v{i}, reverse={n > 1})",
            f"lax.map(lambda x: lax.cond(np.any(x > 0), np.sum, np.max, x) if x.size else np.sum(x), v{i})",
            f"m.vmap(lambda x: x[s0], in_axes={pick.randrange(v.ndim)})(v{i}[..., None])",
            f"m.vmap(np.cumsum)(v{i})", f"m.vmap(np.sort)(np.atleast_2d(v{i}))",
            f"m.jacfwd(np.sin)(np.ravel(v{i})[:3])",
            f"lax.reduce((v{i}, v{i}), (0 * v{i}.sum(),) * 2, lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))[0]",
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
    *(positions, positions, joining, products, loops, loops),
]

"""Programs on a mesh of x=2, y=4, with the shardings of their arguments, in words that weft and JAX both read.

A program is a function of a namespace (``m.np``, ``m.lax``, ``m.nn``, ``m.grad``, ``m.vmap``, ``m.P`` and
``m.constrain``), which gives a function of the arguments. An argument is a shape with a spec, of float32, or of int32
below ``top``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

SIZES = {"x": 2, "y": 4}


class Argument(NamedTuple):
    shape: tuple[int, ...]
    spec: tuple[Any, ...] | None  # None: no sharding is given
    top: int = 0


class Program(NamedTuple):
    make: Callable[[Any], Callable[..., Any]]
    arguments: tuple[Argument, ...]


PROGRAMS: dict[str, Program] = {}


def arg(shape: tuple[int, ...], *spec: Any, top: int = 0) -> Argument:
    return Argument(shape, spec, top)


def free(*shape: int) -> Argument:
    return Argument(shape, None)


def program(*arguments: Argument) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        PROGRAMS[make.__name__] = Program(make, arguments)
        return make

    return add


def short(name: str, function: Callable[[Any], Any], *arguments: Argument) -> None:
    PROGRAMS[name] = Program(function, arguments)


X = arg((16, 8), "x")
XY = arg((16, 8), "x", "y")

# -- elementwise, broadcasts

short("sin", lambda m: lambda a: m.np.sin(a) * 2 + 1, XY)
short("add_same", lambda m: lambda a, b: a + b, XY, XY)
short("add_free", lambda m: lambda a, b: a + b, XY, free(16, 8))
short("add_replicated", lambda m: lambda a, b: a + b, XY, arg((16, 8)))
short("add_other_dimension", lambda m: lambda a, b: a + b, X, arg((16, 8), None, "y"))
short("add_conflict", lambda m: lambda a, b: a + b, X, arg((16, 8), "y"))
short("add_longer", lambda m: lambda a, b: a + b, X, arg((16, 8), ("x", "y")))
short("add_row", lambda m: lambda a, b: a + b, X, arg((8,), "y"))
short("add_column", lambda m: lambda a, b: a + b[:, None], arg((16, 8), None, "y"), arg((16,), "x"))
short("outer_sum", lambda m: lambda a, b: a[:, None] + b[None, :], arg((16,), "x"), arg((8,), "y"))
short("where", lambda m: lambda a, b: m.np.where(a > 0, a, b), X, free(16, 8))
short("clip", lambda m: lambda a: m.np.clip(a, -1.0, 1.0), XY)
short("cast", lambda m: lambda a: (a * 3).astype("int32") % 3, XY)
short("times_iota", lambda m: lambda a: a * m.np.arange(8.0), XY)
short("one_hot", lambda m: lambda a: m.nn.one_hot(a, 8), arg((16,), "x", top=8))

# -- reductions

short("sum_all", lambda m: lambda a: m.np.sum(a), XY)
short("sum_cut", lambda m: lambda a: m.np.sum(a, 0), XY)
short("sum_whole", lambda m: lambda a: m.np.sum(a, 1), X)
short("max_cut", lambda m: lambda a: m.np.max(a, 1), XY)
short("mean_kept", lambda m: lambda a: a - m.np.mean(a, 1, keepdims=True), XY)
short("var", lambda m: lambda a: m.np.var(a, 0), XY)
short("prod", lambda m: lambda a: m.np.prod(a, 0), XY)
short("any_all", lambda m: lambda a: (m.np.any(a > 0, 0), m.np.all(a > 0, 1)), XY)
short("argmax", lambda m: lambda a: m.np.argmax(a, 1), X)
short("argmax_cut", lambda m: lambda a: m.np.argmax(a, 0), X)
short("logsumexp", lambda m: lambda a: m.np.log(m.np.sum(m.np.exp(a - m.np.max(a, 1, keepdims=True)), 1)), XY)
short("softmax", lambda m: lambda a: m.nn.softmax(a, 1), XY)
short("cumsum", lambda m: lambda a: m.np.cumsum(a, 1), X)
short("cumsum_cut", lambda m: lambda a: m.np.cumsum(a, 0), X)

# -- moves of elements

short("transpose", lambda m: lambda a: a.T, XY)
short("transpose_four", lambda m: lambda a: m.np.transpose(a, (0, 2, 1, 3)), arg((4, 8, 4, 2), "x", None, "y"))
short("reshape_join", lambda m: lambda a: a.reshape(128), XY)
short("reshape_join_whole", lambda m: lambda a: a.reshape(128), X)
short("reshape_split", lambda m: lambda a: a.reshape(4, 4, 8), arg((16, 8), "y"))
short("reshape_split_two", lambda m: lambda a: a.reshape(2, 8, 8), arg((16, 8), ("x", "y")))
short("reshape_heads", lambda m: lambda a: a.reshape(4, 8, 4, 4), arg((4, 8, 16), "x", None, "y"))
short("reshape_heads_back", lambda m: lambda a: a.reshape(4, 8, 16), arg((4, 8, 4, 4), "x", None, "y"))
short("reshape_unit", lambda m: lambda a: a.reshape(16, 1, 8), XY)
short("squeeze", lambda m: lambda a: m.np.squeeze(a, 1), arg((16, 1, 8), "x", None, "y"))
short("broadcast_to", lambda m: lambda a: m.np.broadcast_to(a, (4, 16, 8)), XY)
short("slice_whole", lambda m: lambda a: a[:, 2:6], X)
short("slice_cut", lambda m: lambda a: a[:8], X)
short("reverse", lambda m: lambda a: a[:, ::-1], X)
short("concatenate", lambda m: lambda a, b: m.np.concatenate([a, b], 1), X, X)
short("concatenate_cut", lambda m: lambda a, b: m.np.concatenate([a, b], 0), X, X)
short("stack", lambda m: lambda a, b: m.np.stack([a, b]), XY, XY)
short("pad", lambda m: lambda a: m.np.pad(a, ((0, 0), (1, 1))), X)
short("tile", lambda m: lambda a: m.np.tile(a, (1, 2)), X)
short("roll", lambda m: lambda a: m.np.roll(a, 1, 1), X)
short("sort", lambda m: lambda a: m.np.sort(a, 1), X)
short("top_k", lambda m: lambda a: m.lax.top_k(a, 3), X)
short("dynamic_slice", lambda m: lambda a, i: m.lax.dynamic_slice_in_dim(a, i, 4, 1), X, arg((), top=4))
short("dynamic_update", lambda m: lambda a, b: m.lax.dynamic_update_slice_in_dim(a, b, 2, 1), X, arg((16, 2), "x"))

short("sort_cut", lambda m: lambda a: m.np.sort(a, 0), X)
short("reverse_cut", lambda m: lambda a: a[::-1], X)
short("pad_cut", lambda m: lambda a: m.np.pad(a, ((8, 8), (0, 0))), X)
short("roll_cut", lambda m: lambda a: m.np.roll(a, 1, 0), X)
short("slice_strided", lambda m: lambda a: a[::2], X)
short("slice_uneven", lambda m: lambda a: a[:7], X)
short("dynamic_slice_cut", lambda m: lambda a, i: m.lax.dynamic_slice_in_dim(a, i, 4, 0), X, arg((), top=4))
short("dynamic_update_cut", lambda m: lambda a, b: m.lax.dynamic_update_slice_in_dim(a, b, 2, 0), X, free(4, 8))
short("top_k_cut", lambda m: lambda a: m.lax.top_k(a.T, 4), X)
short("fft_cut", lambda m: lambda a: m.np.abs(m.np.fft.fft(a, axis=0)), X)

# -- gathers and scatters

short("embedding", lambda m: lambda t, i: t[i], arg((32, 8)), arg((16, 4), "x", top=32))
short("embedding_columns", lambda m: lambda t, i: t[i], arg((32, 8), None, "y"), arg((16, 4), "x", top=32))
short("embedding_rows", lambda m: lambda t, i: t[i], arg((32, 8), "y"), arg((16, 4), "x", top=32))
short("take_along", lambda m: lambda a, i: m.np.take_along_axis(a, i, 1), X, arg((16, 2), "x", top=8))
short("scatter_add", lambda m: lambda a, i, u: a.at[i].add(u),
      arg((32, 8), None, "y"), arg((16,), top=32), arg((16, 8), None, "y"))  # fmt: skip
short("scatter_batch", lambda m: lambda a, i, u: a.at[i].add(u), arg((32, 8)), arg((16,), "x", top=32), X)
short("set_column", lambda m: lambda a: a.at[:, 0].set(1.0), X)

# -- products

short("product_data", lambda m: lambda a, w: a @ w, arg((16, 8), "x"), arg((8, 4)))
short("product_columns", lambda m: lambda a, w: a @ w, arg((16, 8)), arg((8, 4), None, "y"))
short("product_both", lambda m: lambda a, w: a @ w, arg((16, 8), "x"), arg((8, 4), None, "y"))
short("product_summed", lambda m: lambda a, w: a @ w, arg((16, 8), None, "y"), arg((8, 4), "y"))
short("product_summed_one", lambda m: lambda a, w: a @ w, arg((16, 8), None, "y"), arg((8, 4)))
short("product_fsdp", lambda m: lambda a, w: a @ w, arg((16, 8), "x"), arg((8, 4), "x"))
short("product_conflict", lambda m: lambda a, w: a @ w, arg((16, 8), "x"), arg((8, 4), None, "x"))
short("product_batch", lambda m: lambda a, b: a @ b, arg((4, 8, 4), "x"), arg((4, 4, 8), "x", None, "y"))
short("vector_product", lambda m: lambda a, b: a @ b, arg((16,), "x"), arg((16,), "x"))
short("einsum", lambda m: lambda a, b: m.np.einsum("bij,bjk->bik", a, b),
      arg((4, 8, 4), "x", "y"), arg((4, 4, 8), "x"))  # fmt: skip
short("outer", lambda m: lambda a, b: m.np.outer(a, b), arg((16,), "x"), arg((8,), "y"))


# -- networks


def _mlp(m: Any, w1: Any, w2: Any, x: Any) -> Any:
    return m.np.maximum(x @ w1, 0) @ w2


short("mlp_data", lambda m: lambda a, b, x: _mlp(m, a, b, x), arg((8, 16)), arg((16, 4)), X)
short("mlp_tensor", lambda m: lambda a, b, x: _mlp(m, a, b, x),
      arg((8, 16), None, "y"), arg((16, 4), "y"), X)  # fmt: skip
short("mlp_fsdp", lambda m: lambda a, b, x: _mlp(m, a, b, x),
      arg((8, 16), "x", "y"), arg((16, 4), "y", "x"), X)  # fmt: skip


def _mlp_loss(m: Any, w1: Any, w2: Any, x: Any) -> Any:
    return m.np.mean(m.np.tanh(x @ w1) @ w2)


short("mlp_grad_data", lambda m: lambda a, b, x: m.grad(lambda a, b: _mlp_loss(m, a, b, x), (0, 1))(a, b),
      arg((8, 16)), arg((16, 4)), X)  # fmt: skip
short("mlp_grad_tensor", lambda m: lambda a, b, x: m.grad(lambda a, b: _mlp_loss(m, a, b, x), (0, 1))(a, b),
      arg((8, 16), None, "y"), arg((16, 4), "y"), X)  # fmt: skip


@program(arg((8, 16)), arg((16, 4)), X)
def sgd_step(m: Any) -> Any:
    def step(w1: Any, w2: Any, x: Any) -> Any:
        one, two = m.grad(lambda a, b: _mlp_loss(m, a, b, x), (0, 1))(w1, w2)
        return w1 - 0.1 * one, w2 - 0.1 * two

    return step


@program(X, arg((8,)), arg((8,)))
def layernorm(m: Any) -> Any:
    def f(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - m.np.mean(x, -1, keepdims=True)
        return centred / m.np.sqrt(m.np.mean(centred**2, -1, keepdims=True) + 1e-5) * scale + shift

    return f


@program(X, arg((8,)))
def layernorm_grad(m: Any) -> Any:
    def f(x: Any, scale: Any) -> Any:
        centred = x - m.np.mean(x, -1, keepdims=True)
        return m.np.sum((centred / m.np.sqrt(m.np.mean(centred**2, -1, keepdims=True) + 1e-5) * scale) ** 2)

    return m.grad(f, (0, 1))


def _attention(m: Any, x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    batch, length, width = x.shape
    heads = 4
    q, k, v = ((x @ w).reshape(batch, length, heads, width // heads) for w in (q, k, v))
    scores = m.np.einsum("bqhd,bkhd->bhqk", q, k) / 2.0
    mixed = m.np.einsum("bhqk,bkhd->bqhd", m.nn.softmax(scores, -1), v)
    return mixed.reshape(batch, length, width) @ o


def _heads(*spec: Any) -> tuple[Argument, ...]:
    return tuple(arg((16, 16), *spec) for _ in range(3))


short("attention_data", lambda m: lambda *a: _attention(m, *a), arg((4, 8, 16), "x"), *_heads(), arg((16, 16)))
short("attention_heads", lambda m: lambda *a: _attention(m, *a),
      arg((4, 8, 16), "x"), *_heads(None, "y"), arg((16, 16), "y"))  # fmt: skip
short("attention_grad", lambda m: lambda *a: m.grad(lambda *w: m.np.sum(_attention(m, a[0], *w)), (0, 3))(*a[1:]),
      arg((4, 8, 16), "x"), *_heads(None, "y"), arg((16, 16), "y"))  # fmt: skip


@program(arg((16, 8), "x"), arg((3, 8, 8)))
def scan_layers(m: Any) -> Any:
    return lambda x, ws: m.lax.scan(lambda c, w: (m.np.tanh(c @ w), None), x, ws)[0]


@program(arg((16, 8), "x"), arg((3, 8, 8), None, None, "y"))
def scan_layers_tensor(m: Any) -> Any:
    return lambda x, ws: m.lax.scan(lambda c, w: (m.np.tanh(c @ w), m.np.sum(c, 1)), x, ws)


@program(arg((16, 8), "x"), arg((3, 8, 8), None, None, "y"))
def scan_grad(m: Any) -> Any:
    def loss(ws: Any, x: Any) -> Any:
        return m.np.sum(m.lax.scan(lambda c, w: (m.np.tanh(c @ w), None), x, ws)[0])

    return lambda x, ws: m.grad(loss)(ws, x)


@program(arg((16, 8), "x"))
def while_halving(m: Any) -> Any:
    return lambda x: m.lax.while_loop(lambda s: m.np.max(m.np.abs(s)) > 0.1, lambda s: s * 0.5, x)


@program(arg((16, 8), "x"), arg((), top=2))
def cond(m: Any) -> Any:
    return lambda x, i: m.lax.cond(i > 0, m.np.sin, lambda y: y * 2, x)


@program(arg((5, 16, 8), None, "x"))
def scan_inputs(m: Any) -> Any:
    return lambda xs: m.lax.scan(lambda c, x: (c + x, c * x), m.np.zeros((16, 8)), xs)


short("conv_batch", lambda m: lambda a, w: m.lax.conv(a, w, (1, 1), "SAME"), arg((8, 3, 6, 6), "x"), arg((4, 3, 3, 3)))
short("conv_features", lambda m: lambda a, w: m.lax.conv(a, w, (1, 1), "SAME"),
      arg((8, 3, 6, 6), "x"), arg((4, 3, 3, 3), "y"))  # fmt: skip
short("conv_inputs", lambda m: lambda a, w: m.lax.conv(a, w, (1, 1), "VALID"),
      arg((8, 4, 6, 6), "x", "y"), arg((4, 4, 3, 3), None, "y"))  # fmt: skip
short("conv_grad", lambda m: lambda a, w: m.grad(lambda w: m.np.sum(m.lax.conv(a, w, (1, 1), "SAME") ** 2))(w),
      arg((8, 3, 6, 6), "x"), arg((4, 3, 3, 3)))  # fmt: skip


short("conv_cut_space", lambda m: lambda a, w: m.lax.conv(a, w, (1, 1), "SAME"),
      arg((8, 3, 6, 6), None, None, "x"), arg((4, 3, 3, 3)))  # fmt: skip


@program(arg((8, 4, 4, 4), None, "x"))
def max_pool_cut(m: Any) -> Any:
    return lambda a: m.lax.reduce_window(a, -m.np.inf, m.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@program(arg((8, 6, 6, 4), "x"))
def max_pool(m: Any) -> Any:
    return lambda a: m.lax.reduce_window(a, -m.np.inf, m.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


# -- constraints, maps, decompositions

short("constraint", lambda m: lambda a: m.constrain(m.np.sin(a), m.P(None, "y")) + 1, X)
short("constraint_backward", lambda m: lambda a: m.constrain(m.np.sin(a) + 1, m.P("x", "y")), free(16, 8))
short("constraint_inside", lambda m: lambda a, w: m.np.tanh(m.constrain(a @ w, m.P(None, "y"))) * 2, X, arg((8, 8)))
short("vmapped_product", lambda m: m.vmap(lambda a, w: a @ w, (0, None)), arg((8, 4, 8), "x"), arg((8, 4), None, "y"))
short("cholesky", lambda m: lambda a: m.np.linalg.cholesky(a @ m.np.swapaxes(a, 1, 2) + 9 * m.np.eye(4)),
      arg((8, 4, 4), "x"))  # fmt: skip
short("fft", lambda m: lambda a: m.np.abs(m.np.fft.fft(a, axis=1)), X)
short("cross_entropy", lambda m: lambda a, i: -m.np.mean(
    m.np.take_along_axis(m.nn.log_softmax(a, -1), i[:, None], 1)), X, arg((16,), "x", top=8))  # fmt: skip
short("nothing", lambda m: lambda a: a, XY)
short("constants", lambda m: lambda a: (m.np.zeros((16, 8)), a), XY)

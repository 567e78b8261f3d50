"""weft.experimental.rnn: LSTM layers, one or both directions, sequences of different lengths in one batch.

The layout of weights is the one of cuDNN that JAX documents: for each layer and direction W_ih and W_hh, and after all
of those b_ih and b_hh, each with the rows of the input, forget, cell and output gates one after the other. The products
of a layer's input are one matrix product for all times; ``lax.scan`` runs over the products of the state.

    i, f, o = sigmoid(...)   g = tanh(...)   c' = f c + i g   h' = o tanh(c')
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import weft.numpy as jnp
from weft import random
from weft.autodiff import derivatives
from weft.control import scan
from weft.nn import sigmoid
from weft.numpy import tanh

__all__ = [
    "get_num_params_in_lstm", "init_lstm_weight", "lstm", "lstm_bwd", "lstm_fwd", "lstm_ref", "sigmoid",
    "swap_lstm_gates", "tanh", "unpack_lstm_weights",
]  # fmt: skip

Shapes = list[tuple[tuple[int, ...], tuple[int, ...]]]
Weights = dict[int, Any]
_GATES = 4


def _directions(bidirectional: bool) -> int:
    return 2 if bidirectional else 1


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> tuple[Shapes, Shapes]:
    """For each layer and direction the shapes of (W_ih, W_hh), and of (b_ih, b_hh)."""
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value < 1:
            raise ValueError(f"[lstm] `{name}` must be at least 1, got {value}")
    rows, directions = _GATES * hidden_size, _directions(bidirectional)
    matrices: Shapes = []
    for layer in range(num_layers):
        width = input_size if layer == 0 else hidden_size * directions
        matrices += [((rows, width), (rows, hidden_size))] * directions
    return matrices, [((rows,), (rows,))] * len(matrices)


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """How many weights an LSTM has.

    >>> get_num_params_in_lstm(input_size=2, hidden_size=3, num_layers=1, bidirectional=False)
    84
    """
    groups = _shapes(input_size, hidden_size, num_layers, bidirectional)
    return sum(math.prod(shape) for group in groups for pair in group for shape in pair)


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """Weights of an LSTM, uniform between -k and k with k = 1 / sqrt(hidden_size)."""
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    bound = math.sqrt(1 / hidden_size)
    return random.uniform(rng, shape=(count,), dtype=jnp.float32, minval=-bound, maxval=bound)


def _pieces(weights: Any, shapes: Sequence[Sequence[tuple[int, ...]]]) -> list[list[Any]]:
    """A vector of weights cut into arrays, in order."""
    count = sum(math.prod(shape) for group in shapes for shape in group)
    if weights.shape != (count,):
        raise ValueError(f"[lstm] weights have the shape ({count},) for these sizes, got {weights.shape}")
    start, cut = 0, []
    for group in shapes:
        cut.append([])
        for shape in group:
            stop = start + math.prod(shape)
            cut[-1].append(weights[start:stop].reshape(shape))
            start = stop
    return cut


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[Weights, Weights, Weights, Weights]:
    """The vector of weights as (W_ih, W_hh, b_ih, b_hh), each a dict with an array for each layer and direction.

    ``W_ih[k]`` is f32[4*hidden, input], ``W_hh[k]`` f32[4*hidden, hidden], the biases f32[4*hidden]; with two
    directions, k counts the forward and backward half of the first layer, then those of the next.
    """
    groups = _shapes(input_size, hidden_size, num_layers, bidirectional)
    cut = _pieces(weights, [*groups[0], *groups[1]])
    count = len(groups[0])
    matrices, biases = cut[:count], cut[count:]
    return (
        {k: pair[0] for k, pair in enumerate(matrices)},
        {k: pair[1] for k, pair in enumerate(matrices)},
        {k: pair[0] for k, pair in enumerate(biases)},
        {k: pair[1] for k, pair in enumerate(biases)},
    )


def swap_lstm_gates(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """The vector of weights with the rows of the cell and output gates exchanged, as some libraries order them."""
    groups = _shapes(input_size, hidden_size, num_layers, bidirectional)
    swapped = []
    for pair in _pieces(jnp.asarray(weights), [*groups[0], *groups[1]]):
        for piece in pair:
            i, f, g, o = jnp.split(piece, _GATES, axis=0)
            swapped += [part.ravel() for part in (i, f, o, g)]
    return jnp.concatenate(swapped)


def lstm(
    x: Any, h_0: Any, c_0: Any, weights: Any, seq_lengths: Any, input_size: int, hidden_size: int, num_layers: int,
    dropout: float, bidirectional: bool, precision: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """An LSTM over a batch of sequences; gives (y, h_n, c_n).

    ``x`` is f32[batch, time, input], ``h_0`` and ``c_0`` f32[layers*directions, batch, hidden], ``weights`` a vector as
    ``init_lstm_weight`` makes it, ``seq_lengths`` i32[batch]. ``y`` is f32[batch, time, hidden*directions], zero past
    the end of each sequence; ``h_n`` and ``c_n`` are the states there. NotImplementedError for ``dropout`` above 0.

    >>> weights = init_lstm_weight(weft.random.key(0), 2, 3, 1, False)
    >>> state = jnp.zeros((1, 4, 3))
    >>> y, h, c = lstm(jnp.ones((4, 5, 2)), state, state, weights, jnp.full(4, 5), 2, 3, 1, 0.0, False)
    >>> y.shape, h.shape
    ((4, 5, 3), (1, 4, 3))
    """
    given = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    sizes = (input_size, hidden_size, num_layers)
    return _lstm(x, h_0, c_0, *given, seq_lengths, *sizes, dropout, bidirectional, precision)


def lstm_ref(
    x: Any, h_0: Any, c_0: Any, W_ih: Weights, W_hh: Weights, b_ih: Weights, b_hh: Weights, seq_lengths: Any,
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """``lstm`` with the weights as ``unpack_lstm_weights`` gives them."""
    sizes = (input_size, hidden_size, num_layers)
    return _lstm(x, h_0, c_0, W_ih, W_hh, b_ih, b_hh, seq_lengths, *sizes, dropout, bidirectional, None)


def _lstm(
    x: Any, h_0: Any, c_0: Any, W_ih: Weights, W_hh: Weights, b_ih: Weights, b_hh: Weights, seq_lengths: Any,
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool, precision: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    if dropout > 0:
        raise NotImplementedError(f"[lstm] dropout is not supported, got {dropout}: pass 0")
    x, h_0, c_0, lengths = [jnp.asarray(value) for value in (x, h_0, c_0, seq_lengths)]
    directions = _directions(bidirectional)
    _check(x, h_0, c_0, lengths, input_size, (num_layers * directions, hidden_size))
    seen = jnp.arange(x.shape[1])[:, None] < lengths  # (time, batch)
    y = x.swapaxes(0, 1)
    states: list[tuple[Any, Any]] = []
    for layer in range(num_layers):
        halves = []
        for direction in range(directions):
            k = layer * directions + direction
            half, state = _layer(
                y, h_0[k], c_0[k], W_ih[k], W_hh[k], b_ih[k] + b_hh[k], seen, direction == 1, precision
            )
            halves.append(half)
            states.append(state)
        y = halves[0] if directions == 1 else jnp.concatenate(halves, axis=-1)
    return y.swapaxes(0, 1), jnp.stack([h for h, _ in states]), jnp.stack([c for _, c in states])


def _layer(
    x: Any, h_0: Any, c_0: Any, W_ih: Any, W_hh: Any, bias: Any, seen: Any, reverse: bool, precision: Any
) -> tuple[Any, tuple[Any, Any]]:
    """One direction of one layer: its outputs (time, batch, hidden), and its last state.

    Past the end of a sequence the state stays as it is, so that backwards it starts at the sequence's last element.
    """
    driven = jnp.matmul(x, W_ih.T, precision=precision) + bias
    recurrent = W_hh.T

    def step(state: tuple[Any, Any], inputs: tuple[Any, Any]) -> Any:
        h, c = state
        gates, inside = inputs
        i, f, g, o = jnp.split(gates + jnp.matmul(h, recurrent, precision=precision), _GATES, axis=-1)
        new_c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        new_h = sigmoid(o) * tanh(new_c)
        inside = inside[:, None]
        return (jnp.where(inside, new_h, h), jnp.where(inside, new_c, c)), jnp.where(inside, new_h, 0)

    state, y = scan.scan(step, (h_0, c_0), (driven, seen), reverse=reverse)
    return y, state


def _check(x: Any, h_0: Any, c_0: Any, lengths: Any, input_size: int, state: tuple[int, int]) -> None:
    if x.ndim != 3 or x.shape[2] != input_size:
        raise ValueError(f"[lstm] x has the shape (batch, time, {input_size}), got {x.shape}")
    wanted = (state[0], x.shape[0], state[1])
    for name, value in (("h_0", h_0), ("c_0", c_0)):
        if value.shape != wanted:
            raise ValueError(
                f"[lstm] {name} has the shape {wanted}, (layers * directions, batch, hidden), got {value.shape}"
            )
    if lengths.shape != (x.shape[0],):
        raise ValueError(f"[lstm] seq_lengths has the shape ({x.shape[0]},), got {lengths.shape}")


# -- the two halves of its derivative ---------------------------------------------------------------------------------


def lstm_fwd(
    x: Any, h_0: Any, c_0: Any, w: Any, seq_lengths: Any, input_size: int, hidden_size: int, num_layers: int,
    dropout: float, bidirectional: bool, precision: Any,
) -> tuple[tuple[Any, Any, Any], Any]:  # fmt: skip
    """(the results of ``lstm``, what ``lstm_bwd`` needs of it)."""
    sizes = (input_size, hidden_size, num_layers)

    def run(x: Any, h_0: Any, c_0: Any, w: Any) -> Any:
        return lstm(x, h_0, c_0, w, seq_lengths, *sizes, dropout, bidirectional, precision)

    return derivatives.vjp(run, x, h_0, c_0, w)


def lstm_bwd(
    input_size: int, hidden_size: int, num_layers: int, dropout: float, bidirectional: bool, precision: Any,
    residuals: Any, gradients: Any,
) -> tuple[Any, Any, Any, Any, None]:  # fmt: skip
    """The cotangents of (x, h_0, c_0, weights, seq_lengths); the last has none."""
    return (*residuals(tuple(gradients)), None)

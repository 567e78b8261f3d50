"""LSTM beside JAX's reference implementation: values, gradients, lengths, layouts of weights."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import rnn as jax_rnn

import weft
from weft.experimental import rnn

RNG = np.random.default_rng(0)
SIZES = {"input_size": 2, "hidden_size": 3, "num_layers": 2, "bidirectional": True}
COUNT = 432
WEIGHTS = RNG.normal(size=COUNT).astype(np.float32)
X = RNG.normal(size=(4, 5, 2)).astype(np.float32)
H, C = RNG.normal(size=(2, 4, 4, 3)).astype(np.float32)
LENGTHS = np.array([5, 3, 1, 4], np.int32)


def reference(x: Any, h: Any, c: Any, w: Any) -> Any:
    return jax_rnn.lstm_ref(x, h, c, *jax_rnn.unpack_lstm_weights(w, **SIZES), LENGTHS, dropout=0.0, **SIZES)


def test_layout_of_weights() -> None:
    assert rnn.get_num_params_in_lstm(**SIZES) == jax_rnn.get_num_params_in_lstm(**SIZES) == COUNT
    weights = np.arange(COUNT, dtype=np.float32)

    def layout(library: Any, weights: Any) -> Any:
        return library.unpack_lstm_weights(weights, **SIZES), library.swap_lstm_gates(weights, **SIZES)

    found = weft.jit(lambda w: layout(rnn, w))(weights)
    expected = jax.jit(lambda w: layout(jax_rnn, w))(weights)
    jax.tree.map(np.testing.assert_array_equal, weft.device_get(found), jax.device_get(expected))
    first = rnn.init_lstm_weight(weft.random.key(3), **SIZES)
    np.testing.assert_allclose(first, jax_rnn.init_lstm_weight(jax.random.key(3), **SIZES), rtol=0, atol=1e-7)


def test_values_and_gradients_are_jaxs() -> None:
    args = (X, H, C, WEIGHTS)
    cts = tuple([RNG.normal(size=shape).astype(np.float32) for shape in [(4, 5, 6), (4, 4, 3), (4, 4, 3)]])

    @weft.jit
    def both(args: Any, cts: Any) -> Any:
        x, h, c, w = args
        results, residuals = rnn.lstm_fwd(x, h, c, w, LENGTHS, 2, 3, 2, 0.0, True, None)
        return results, rnn.lstm_bwd(2, 3, 2, 0.0, True, None, residuals, cts)

    @jax.jit
    def theirs(args: Any, cts: Any) -> Any:
        results, pull = jax.vjp(reference, *args)
        return results, pull(cts)

    (results, back), (expected, gradients) = both(args, cts), theirs(args, cts)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert not np.asarray(results[0])[1, 3:].any()
    assert back[4] is None
    for one, other in zip(back[:4], gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_one_direction() -> None:
    sizes = {**SIZES, "bidirectional": False, "num_layers": 1}
    weights = WEIGHTS[: rnn.get_num_params_in_lstm(**sizes)]

    def run(library: Any, weights: Any) -> Any:
        given = library.unpack_lstm_weights(weights, **sizes)
        return library.lstm_ref(X, H[:1], C[:1], *given, LENGTHS, dropout=False, **sizes)

    found = weft.jit(lambda w: run(rnn, w))(weights)
    for one, other in zip(found, jax.jit(lambda w: run(jax_rnn, w))(weights), strict=True):
        np.testing.assert_allclose(one, np.asarray(other).reshape(one.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("changed", [
    {"x": X[..., :1]}, {"x": X[0]}, {"h_0": H[:1]}, {"c_0": C[:, :2]}, {"seq_lengths": LENGTHS[:2]},
    {"weights": WEIGHTS[:-1]}, {"num_layers": 0},
])  # fmt: skip
def test_bad_arguments(changed: Any) -> None:
    given = {"x": X, "h_0": H, "c_0": C, "weights": WEIGHTS, "seq_lengths": LENGTHS, "dropout": 0.0, **SIZES}
    with pytest.raises(ValueError, match="lstm"):
        rnn.lstm(**{**given, **changed})


def test_dropout_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="dropout"):
        rnn.lstm(X, H, C, WEIGHTS, LENGTHS, dropout=0.5, **SIZES)

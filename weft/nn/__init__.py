"""Activation functions, softmax and its kin, and small building blocks of neural networks.

Each function is short; where JAX prints an inner ``jit`` under its name, weft does too. ``relu``, ``relu6`` and
``log1mexp`` carry their own derivative.
"""

from __future__ import annotations

from weft._base import unbuilt as _unbuilt
from weft.nn import initializers
from weft.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from weft.nn.attention import dot_product_attention
from weft.nn.normalized import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from weft.nn.scaled import scaled_dot_general, scaled_matmul
from weft.numpy import tanh

__getattr__ = _unbuilt.fallback("weft.nn")

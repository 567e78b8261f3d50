"""Activation functions, softmax and its kin, and small building blocks of neural networks.

Each function is short; where JAX prints an inner ``jit`` under its name, weft does too. ``relu``, ``relu6`` and
``log1mexp`` carry their own derivative.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt
from weft.numpy import tanh as tanh

# Modules are loaded when one of their names is first used. docs/stubs.py tells type checkers so (__init__.pyi).
_NAMES = _lazy.Names(
    "weft.nn",
    {
        "nn.activations": """
            celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp
            log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid
            squareplus swish""",
        "nn.attention": "dot_product_attention",
        "nn.normalized": "log_softmax logmeanexp logsumexp one_hot softmax standardize",
        "nn.scaled": "scaled_dot_general scaled_matmul",
    },
    submodules="initializers",
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.nn", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

"""Activation functions, softmax and its kin, and small building blocks of neural networks.

Each function is short; where JAX prints an inner ``jit`` under its name, weft does too. ``relu``, ``relu6`` and
``log1mexp`` carry their own derivative.
"""

from __future__ import annotations

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt
from weft.numpy import tanh as tanh

if _typing.TYPE_CHECKING:
    from weft.nn import initializers as initializers
    from weft.nn.activations import (
        celu as celu,
        elu as elu,
        gelu as gelu,
        glu as glu,
        hard_sigmoid as hard_sigmoid,
        hard_silu as hard_silu,
        hard_swish as hard_swish,
        hard_tanh as hard_tanh,
        identity as identity,
        leaky_relu as leaky_relu,
        log1mexp as log1mexp,
        log_sigmoid as log_sigmoid,
        mish as mish,
        relu as relu,
        relu6 as relu6,
        selu as selu,
        sigmoid as sigmoid,
        silu as silu,
        soft_sign as soft_sign,
        softplus as softplus,
        sparse_plus as sparse_plus,
        sparse_sigmoid as sparse_sigmoid,
        squareplus as squareplus,
        swish as swish,
    )
    from weft.nn.attention import dot_product_attention as dot_product_attention
    from weft.nn.normalized import (
        log_softmax as log_softmax,
        logmeanexp as logmeanexp,
        logsumexp as logsumexp,
        one_hot as one_hot,
        softmax as softmax,
        standardize as standardize,
    )
    from weft.nn.scaled import scaled_dot_general as scaled_dot_general, scaled_matmul as scaled_matmul

# Modules are loaded when one of their names is first used; the imports above say the same to type checkers.
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

"""Element-wise activation functions, in the dtype of their operand (integers become float where they must).

silu(f32[3])  ->  jit[name=silu]: logistic, mul
relu(f32[3])  ->  custom_jvp_call[name=relu]: jit[name=relu]: max 0
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion

jit = jit_module.jit
inline = functools.partial(jit, inline=True)


@custom.custom_jvp
@jit
def relu(x: Any) -> Array:
    """``max(x, 0)``; its derivative at 0 is 0.

    >>> relu(-2.0).item()
    0.0
    """
    return wnp.maximum(x, 0)


relu.defjvps(lambda t, out, x: lax.select(x > 0, t, lax.full_like(t, 0)))


@custom.custom_jvp
@jit
def relu6(x: Any) -> Array:
    """``x`` limited to 0..6; its derivative at both ends is 0.

    >>> relu6(7.0).item()
    6.0
    """
    return wnp.minimum(wnp.maximum(x, 0), 6.0)


relu6.defjvps(lambda t, out, x: lax.select((x > 0) & (x < 6), t, lax.full_like(t, 0)))


@custom.custom_jvp
@jit
def log1mexp(x: Any) -> Array:
    """``log(1 - exp(-x))`` for positive ``x`` without cancellation.

    >>> log1mexp(float("inf")).item()
    -0.0
    """
    promotion.check_arraylike("log1mexp", x)
    (x,) = promotion.promote_dtypes_inexact(x)
    small = wnp.less(x, wnp.log(2.0))
    near_zero = lax.log(lax.neg(lax.expm1(lax.neg(x))))
    return wnp.where(small, near_zero, lax.log1p(lax.neg(lax.exp(lax.neg(x)))))


log1mexp.defjvps(lambda t, out, x: t / lax.expm1(x))


@inline
def sigmoid(x: Any) -> Array:
    """``1 / (1 + exp(-x))``; TypeError for integers.

    >>> sigmoid(0.0).item()
    0.5
    """
    return lax.logistic(x)


@jit
def softplus(x: Any) -> Array:
    """``log(1 + exp(x))`` without overflow.

    >>> round(softplus(0.0).item(), 4)
    0.6931
    """
    return wnp.logaddexp(x, 0)


@jit
def soft_sign(x: Any) -> Array:
    """``x / (1 + abs(x))``.

    >>> soft_sign(1.0).item()
    0.5
    """
    promotion.check_arraylike("soft_sign", x)
    return x / (wnp.abs(x) + 1)


@jit
def silu(x: Any) -> Array:
    """``x * sigmoid(x)``, also called swish.

    >>> silu(0.0).item()
    0.0
    """
    promotion.check_arraylike("silu", x)
    return x * sigmoid(x)


swish = silu


@jit
def mish(x: Any) -> Array:
    """``x * tanh(softplus(x))``.

    >>> mish(0.0).item()
    0.0
    """
    promotion.check_arraylike("mish", x)
    return x * wnp.tanh(softplus(x))


@jit
def log_sigmoid(x: Any) -> Array:
    """``log(sigmoid(x))`` without underflow.

    >>> round(log_sigmoid(0.0).item(), 4)
    -0.6931
    """
    promotion.check_arraylike("log_sigmoid", x)
    return -softplus(-x)


@jit
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """``x`` where positive, otherwise ``alpha * (exp(x) - 1)``.

    >>> elu(2.0).item()
    2.0
    """
    promotion.check_arraylike("elu", x)
    positive = x > 0
    return wnp.where(positive, x, alpha * wnp.expm1(wnp.where(x > 0, 0.0, x)))


@jit
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Array:
    """``x`` where not negative, otherwise ``negative_slope * x``.

    >>> leaky_relu(-1.0, 0.5).item()
    -0.5
    """
    promotion.check_arraylike("leaky_relu", x)
    return wnp.where(x >= 0, x, negative_slope * x)


@jit
def hard_tanh(x: Any) -> Array:
    """``x`` limited to -1..1.

    >>> hard_tanh(3.0).item()
    1.0
    """
    promotion.check_arraylike("hard_tanh", x)
    above = x > 1
    return wnp.where(above, 1, wnp.where(x < -1, -1, x))


@jit
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """``max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)``.

    >>> celu(2.0).item()
    2.0
    """
    return wnp.maximum(x, 0.0) + alpha * wnp.expm1(wnp.minimum(x, 0.0) / alpha)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@jit
def selu(x: Any) -> Array:
    """``elu`` scaled so that activations keep mean 0 and variance 1.

    >>> selu(0.0).item()
    0.0
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


@functools.partial(inline, static_argnames=("approximate",))
def gelu(x: Any, approximate: bool = True) -> Array:
    """``x`` times the normal distribution function at ``x``, by its tanh approximation unless told otherwise.

    >>> gelu(0.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("gelu", x)
    dtype = promotion.dtype_of(x)
    half, one = np.asarray(0.5).astype(dtype), np.asarray(1).astype(dtype)
    if approximate:
        scale = np.asarray(np.sqrt(2 / np.pi)).astype(dtype)
        cubic = lax.mul(np.asarray(0.044715).astype(dtype), lax.integer_pow(x, 3))
        inner = lax.mul(scale, lax.add(x, cubic))
        return lax.mul(x, lax.mul(half, lax.add(one, lax.tanh(inner))))
    first = lax.mul(half, x)
    scaled = lax.mul(lax.neg(x), np.asarray(np.sqrt(0.5)).astype(dtype))
    return lax.copy_p.bind(lax.mul(first, lax.erfc(scaled)))


@jit(static_argnames=("axis",))
def glu(x: Any, axis: int = -1) -> Array:
    """The first half of ``x`` along ``axis`` times the sigmoid of the second; the extent must be even.

    >>> glu(wnp.ones(4)).shape
    (2,)
    """
    promotion.check_arraylike("glu", x)
    extent = promotion.shape_of(x)[axes.canonical_axis(axis, len(promotion.shape_of(x)))]
    assert extent % 2 == 0, "axis size must be divisible by 2"
    left, right = wnp.split(x, 2, axis)
    return left * sigmoid(right)


@jit
def hard_sigmoid(x: Any) -> Array:
    """``relu6(x + 3) / 6``, a sigmoid of straight lines.

    >>> hard_sigmoid(0.0).item()
    0.5
    """
    return relu6(x + 3.0) / 6.0


@jit
def hard_silu(x: Any) -> Array:
    """``x * hard_sigmoid(x)``, also called hard_swish.

    >>> hard_silu(0.0).item()
    0.0
    """
    promotion.check_arraylike("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@jit
def squareplus(x: Any, b: Any = 4) -> Array:
    """``(x + sqrt(x**2 + b)) / 2``, an algebraic softplus.

    >>> squareplus(0.0).item()
    1.0
    """
    promotion.check_arraylike("squareplus", x, b)
    return (x + wnp.sqrt(wnp.square(x) + b)) / 2


@jit
def sparse_plus(x: Any) -> Array:
    """0 below -1, ``x`` above 1, a parabola between.

    >>> sparse_plus(1.0).item()
    1.0
    """
    promotion.check_arraylike("sparse_plus", x)
    below, above = x <= -1.0, x >= 1.0
    return wnp.where(below, 0.0, wnp.where(above, x, (x + 1.0) ** 2 / 4))


@jit
def sparse_sigmoid(x: Any) -> Array:
    """0 below -1, 1 above 1, a straight line between.

    >>> sparse_sigmoid(0.0).item()
    0.5
    """
    return 0.5 * wnp.clip(x + 1.0, 0.0, 2.0)


@jit
def identity(x: Any) -> Array:
    """``x`` itself, as an array.

    >>> identity(2.0).item()
    2.0
    """
    promotion.check_arraylike("identity", x)
    return promotion.as_array(x)

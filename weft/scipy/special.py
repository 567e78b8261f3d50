"""Special functions: the error function and the gamma family, logarithms and entropies that are safe at 0.

Operands are promoted to floating point and broadcast; most functions are one equation or a few::

    gammaln(f32[3])      ->  lgamma
    xlogy(f32[3], f32[3])->  custom_jvp_call[name=xlogy]: log, mul, and 0 where x is 0
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, nn
from weft import numpy as wnp
from weft import operations as lax
from weft._base import lazy as _lazy
from weft._base import unbuilt as _unbuilt
from weft._base.array import Array as Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.scipy import complex_gamma, gamma_functions
from weft.scipy.gamma_functions import (
    betainc as betainc,
)
from weft.scipy.gamma_functions import (
    gammainc as gammainc,
)
from weft.scipy.gamma_functions import (
    gammaincc as gammaincc,
)
from weft.scipy.gamma_functions import (
    i0 as i0,
)
from weft.scipy.gamma_functions import (
    i0e as i0e,
)
from weft.scipy.gamma_functions import (
    i1 as i1,
)
from weft.scipy.gamma_functions import (
    i1e as i1e,
)
from weft.scipy.gamma_functions import (
    log_ndtr as log_ndtr,
)
from weft.scipy.gamma_functions import (
    ndtri as ndtri,
)
from weft.scipy.gamma_functions import (
    polygamma as polygamma,
)
from weft.scipy.gamma_functions import (
    zeta as zeta,
)

_inline = functools.partial(jit_module.jit, inline=True)
_jit = jit_module.jit
logsumexp = nn.logsumexp


def _const(value: Any, like: Any) -> Any:
    return np.asarray(value).astype(promotion.dtype_of(like))


def _one_equation(name: str, operation: Callable[..., Any], purpose: str) -> Any:
    """A function of one operand that is one equation in floating point."""

    def function(x: Any) -> Any:
        return operation(*promotion.promote_args_inexact(name, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{purpose}, element by element, in floating point; integers are converted first."
    return _inline(function)


erf = _one_equation("erf", lax.erf, "The error function, ``2/sqrt(pi)`` times the integral of ``exp(-t**2)`` to ``x``")
erfc = _one_equation("erfc", lax.erfc, "``1 - erf(x)`` without cancellation for large ``x``")
erfinv = _one_equation("erfinv", lax.erf_inv, "The inverse of ``erf``, for ``x`` in -1..1")
gammaln = _one_equation("gammaln", lax.lgamma, "Logarithm of the absolute value of the gamma function")
digamma = _one_equation("digamma", lax.digamma, "Derivative of the logarithm of the gamma function")
expit = _one_equation("expit", lax.logistic, "``1 / (1 + exp(-x))``")


def _as_logit(x: Any) -> Any:
    (x,) = promotion.promote_args_inexact("logit", x)
    return lax.log(lax.div(x, lax.sub(_const(1, x), x)))


_as_logit.__name__ = "logit"
_logit = custom.custom_jvp(_as_logit)
_logit.defjvps(lambda t, out, x: lax.div(t, lax.mul(x, lax.sub(_const(1, x), x))))


@_inline
def logit(x: Any) -> Array:
    """``log(x / (1 - x))``, the inverse of ``expit``.

    >>> logit(0.5).item()
    0.0
    """
    return _logit(x)


@_inline
def loggamma(x: Any) -> Array:
    """Logarithm of the gamma function; NaN for real ``x`` not above 0; the principal branch for complex ``x``.

    >>> loggamma(1.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("loggamma", x)
    if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        return complex_gamma.log_gamma(x)
    logarithm = lax.lgamma(x)
    return wnp.where(lax.gt(x, _const(0, x)), logarithm, np.nan)


@_jit
def gammasgn(x: Any) -> Array:
    """Sign of the gamma function: 1 or -1, NaN at its poles.

    >>> gammasgn(-0.5).item()
    -1.0
    """
    (x,) = promotion.promote_args_inexact("gammasgn", x)
    floor = lax.floor(x)
    below = lax.lt(x, _const(0, x))
    pole = lax.bitwise_or(lax.bitwise_and(below, lax.eq(x, floor)), lax.ne(x, x))
    odd = lax.ne(wnp.mod(floor, 2), _const(0, x))
    negative = lax.bitwise_and(below, odd)
    at_zero = lax.eq(x, _const(0, x))
    negative = lax.bitwise_or(negative, lax.bitwise_and(at_zero, wnp.signbit(x)))
    return wnp.select([pole, negative], [_const(np.nan, x), _const(-1, x)], _const(1, x))


poch = gamma_functions.make_poch(gammasgn)


@_inline
def gamma(x: Any) -> Array:
    """The gamma function, of real and of complex numbers.

    >>> gamma(4.0).item() > 5.99
    True
    """
    (x,) = promotion.promote_args_inexact("gamma", x)
    if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        return lax.exp(complex_gamma.log_gamma(x))
    return lax.mul(gammasgn(x), lax.exp(lax.lgamma(x)))


@functools.partial(_inline, static_argnames=("exact",))
def factorial(n: Any, exact: bool = False) -> Array:
    """``n!`` in floating point, 0 for negative ``n``; only the inexact form.

    >>> factorial(0).item()
    1.0
    """
    if exact:
        raise NotImplementedError("factorial with exact=True")
    (n,) = promotion.promote_args_inexact("factorial", n)
    negative = lax.lt(n, _const(0, n))
    return promotion.weak_as(wnp.where(negative, 0, lax.exp(lax.lgamma(lax.add(n, _const(1, n))))), n)


# Stirling corrections of log(gamma(b)) - log(gamma(a + b)): the coefficients of 1/b**(2k+1), k = 5 .. 0.
_CORRECTION = (-1.65322962780713e-3, 8.37308034031215e-4, -5.95202931351870e-4, 7.93650666825390e-4,
               -2.77777777760991e-3, 8.33333333333333e-2)  # fmt: skip


def _gamma_ratio(a: Any, b: Any) -> Any:
    """``log(gamma(b)) - log(gamma(a + b))`` for ``b >= 8`` and ``a <= b``, without cancellation (TOMS 708)."""
    one = _const(1, a)
    ratio = lax.div(a, b)
    c = lax.div(ratio, lax.add(one, ratio))
    x = lax.div(one, lax.add(one, ratio))
    d = lax.add(b, lax.sub(a, _const(0.5, a)))
    x2 = lax.mul(x, x)
    sums = [lax.add(one, lax.add(x, x2))]
    for _ in range(4):
        sums.append(lax.add(one, lax.add(x, lax.mul(x2, sums[-1]))))
    inverse = lax.integer_pow(lax.div(one, b), 2)
    total = lax.mul(_const(_CORRECTION[0], a), sums[-1])
    for coefficient, factor in zip(_CORRECTION[1:5], sums[-2::-1], strict=True):
        total = lax.add(lax.mul(total, inverse), lax.mul(_const(coefficient, a), factor))
    total = lax.add(lax.mul(total, inverse), _const(_CORRECTION[5], a))
    correction = lax.mul(total, lax.div(c, b))
    u = lax.mul(d, lax.log1p(lax.div(a, b)))
    v = lax.mul(a, lax.sub(lax.log(b), one))
    return wnp.where(lax.le(u, v), lax.sub(lax.sub(correction, v), u), lax.sub(lax.sub(correction, u), v))


@_inline
def betaln(a: Any, b: Any) -> Array:
    """Logarithm of the absolute value of the beta function, accurate for large arguments.

    >>> betaln(1.0, 1.0).item()
    0.0
    """
    a, b = promotion.promote_args_inexact("betaln", a, b)
    a, b = lax.min(a, b), lax.max(a, b)
    small = lax.add(lax.lgamma(a), lax.sub(lax.lgamma(b), lax.lgamma(lax.add(a, b))))
    large = lax.add(lax.lgamma(a), _gamma_ratio(a, b))
    return promotion.weak_as(wnp.where(lax.lt(b, _const(8, b)), small, large), a, b)


@_inline
def beta(a: Any, b: Any) -> Array:
    """The beta function, ``gamma(a) gamma(b) / gamma(a + b)``.

    >>> beta(1.0, 1.0).item()
    1.0
    """
    a, b = promotion.promote_args_inexact("beta", a, b)
    sign = lax.mul(gammasgn(a), gammasgn(b))
    sign = lax.mul(sign, gammasgn(lax.add(a, b)))
    return lax.mul(sign, lax.exp(betaln(a, b)))


def _safe_product(x: Any, y: Any, logarithm: Callable[[Any], Any]) -> Any:
    """``x * logarithm(y)``, 0 where ``x`` is 0 and ``y`` is no NaN."""
    counts = lax.bitwise_or(lax.ne(x, _const(0, x)), lax.ne(y, y))
    product = lax.mul(x, logarithm(y))
    return wnp.where(counts, product, lax.full_like(product, 0))


def _as_xlogy(x: Any, y: Any) -> Any:
    x, y = promotion.promote_args_inexact("xlogy", x, y)
    return _safe_product(x, y, lax.log)


def _as_xlog1py(x: Any, y: Any) -> Any:
    x, y = promotion.promote_args_inexact("xlog1py", x, y)
    return _safe_product(x, y, lax.log1p)


_as_xlogy.__name__ = "xlogy"
_as_xlog1py.__name__ = "xlog1py"
_xlogy = custom.custom_jvp(_as_xlogy)
_xlog1py = custom.custom_jvp(_as_xlog1py)


@_xlogy.defjvp
def _xlogy_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return xlogy(x, y), lax.add(lax.mul(dx, lax.log(y)), lax.div(lax.mul(dy, x), y))


@_xlog1py.defjvp
def _xlog1py_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return xlog1py(x, y), lax.add(lax.mul(dx, lax.log1p(y)), lax.div(lax.mul(dy, x), lax.add(_const(1, y), y)))


@_inline
def xlogy(x: Any, y: Any) -> Array:
    """``x * log(y)``, 0 where ``x`` is 0.

    >>> xlogy(0.0, 0.0).item()
    0.0
    """
    return _xlogy(*promotion.promote_args_inexact("xlogy", x, y))


@_inline
def xlog1py(x: Any, y: Any) -> Array:
    """``x * log(1 + y)``, 0 where ``x`` is 0.

    >>> xlog1py(0.0, -1.0).item()
    0.0
    """
    return _xlog1py(*promotion.promote_args_inexact("xlog1py", x, y))


@custom.custom_jvp
def _xlogx(x: Any) -> Any:
    return xlogy(x, x)


@_xlogx.defjvp
def _xlogx_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _xlogx(x), lax.mul(t, lax.add(lax.log(x), _const(1, x)))


@_inline
def entr(x: Any) -> Array:
    """``-x * log(x)``: 0 at 0, -inf for negative ``x``.

    >>> entr(0.0).item()
    -0.0
    """
    (x,) = promotion.promote_args_inexact("entr", x)
    below = lax.lt(x, _const(0, x))
    lowest = lax.full_like(x, -np.inf)
    return lax.select(below, lowest, lax.neg(_xlogx(x)))


@_inline
def rel_entr(p: Any, q: Any) -> Array:
    """``p * log(p / q)``: 0 where ``p`` is 0 and ``q`` is not negative, inf outside the domain.

    >>> rel_entr(1.0, 1.0).item()
    0.0
    """
    p, q = promotion.promote_args_inexact("rel_entr", p, q)
    zero = _const(0, p)
    both = lax.bitwise_and(lax.gt(p, zero), lax.gt(q, zero))
    vanishing = lax.bitwise_and(lax.eq(p, zero), lax.ge(q, zero))
    safe_p = wnp.where(both, p, 1)
    safe_q = wnp.where(both, q, 1)
    value = lax.sub(_xlogx(safe_p), xlogy(safe_p, safe_q))
    return promotion.weak_as(wnp.where(both, value, wnp.where(vanishing, zero, np.inf)), p, q)


@_inline
def kl_div(p: Any, q: Any) -> Array:
    """``rel_entr(p, q) - p + q``, the terms of the Kullback-Leibler divergence.

    >>> kl_div(1.0, 1.0).item()
    0.0
    """
    p, q = promotion.promote_args_inexact("kl_div", p, q)
    return promotion.weak_as(lax.add(lax.sub(rel_entr(p, q), p), q), p, q)


def multigammaln(a: Any, d: Any) -> Array:
    """Logarithm of the gamma function of dimension ``d``, a static integer.

    >>> multigammaln(1.0, 1).item()
    0.0
    """
    if promotion.shape_of(d):
        raise TypeError(
            f"[multigammaln] the dimension d must be a single integer, got an array of {promotion.shape_of(d)}"
        )
    d = int(wnp.asarray(d).item()) if not isinstance(d, int) else d
    (a,) = promotion.promote_args_inexact("multigammaln", a)
    size, one = _const(d, a), _const(1, a)
    constant = lax.mul(lax.mul(_const(0.25, a), size), lax.sub(size, one))
    constant = lax.mul(constant, lax.log(_const(np.pi, a)))
    shifts = lax.div(lax.iota(promotion.dtype_of(a), d), _const(2, a))
    rank = len(promotion.shape_of(a))
    spread = lax.expand_dims(a, (rank,))
    rows = lax.lgamma(lax.sub(spread, lax.expand_dims(shifts, tuple(range(rank)))))
    return lax.add(wnp.sum(rows, axis=-1), constant)


@_inline
def ndtr(x: Any) -> Array:
    """The distribution function of the standard normal distribution.

    >>> ndtr(0.0).item()
    0.5
    """
    (x,) = promotion.promote_args_inexact("ndtr", x)
    if promotion.dtype_of(x) not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={promotion.dtype_of(x)} is not supported, see docstring for supported types.")
    half_root, one, two = _const(0.5 * np.sqrt(2), x), _const(1, x), _const(2, x)
    w = lax.mul(x, half_root)
    z = lax.abs(w)
    central = lax.lt(z, half_root)
    middle = lax.add(one, lax.erf(w))
    right = lax.gt(w, _const(0, x))
    upper = lax.sub(two, lax.erfc(z))
    tails = lax.select(right, upper, lax.erfc(z))
    return lax.mul(_const(0.5, x), lax.select(central, middle, tails))


def _box_cox(x: Any, lmbda: Any, logarithm: Callable[[Any], Any]) -> Any:
    flat = lax.eq(lmbda, _const(0, lmbda))
    safe = wnp.where(flat, lax.full_like(lmbda, 1), lmbda)
    logs = logarithm(x)
    return wnp.where(flat, logs, lax.div(lax.expm1(lax.mul(safe, logs)), safe))


@_inline
def boxcox(x: Any, lmbda: Any) -> Array:
    """``(x**lmbda - 1) / lmbda``, ``log(x)`` for ``lmbda`` 0.

    >>> boxcox(1.0, 2.0).item()
    0.0
    """
    x, lmbda = promotion.promote_args_inexact("boxcox", x, lmbda)
    return _box_cox(x, lmbda, lax.log)


@_inline
def boxcox1p(x: Any, lmbda: Any) -> Array:
    """``((1 + x)**lmbda - 1) / lmbda``, ``log(1 + x)`` for ``lmbda`` 0.

    >>> boxcox1p(0.0, 2.0).item()
    0.0
    """
    x, lmbda = promotion.promote_args_inexact("boxcox1p", x, lmbda)
    return _box_cox(x, lmbda, lax.log1p)


@functools.partial(_inline, static_argnames=("repetition",))
def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """How many ways there are to choose ``k`` of ``N`` things, 0 outside the domain.

    >>> round(comb(4, 2).item())
    6
    """
    N, k = promotion.promote_args_inexact("comb", N, k)
    if repetition:  # as many as there are ways to choose k of N + k - 1 things, and one way to choose none of none
        return wnp.where((N == 0) & (k == 0), _const(1, N), comb(N + k - 1, k))
    one, zero = _const(1, N), _const(0, N)
    valid = lax.bitwise_and(lax.bitwise_and(lax.le(k, N), lax.ge(N, zero)), lax.ge(k, zero))
    n, j = wnp.where(valid, N, 0.0), wnp.where(valid, k, 0.0)
    logarithm = lax.sub(lax.lgamma(lax.add(n, one)), lax.lgamma(lax.add(j, one)))
    logarithm = lax.sub(logarithm, lax.lgamma(lax.sub(lax.add(n, one), j)))
    return promotion.weak_as(wnp.where(valid, lax.exp(logarithm), 0.0), N, k)


def softmax(x: Any, /, *, axis: Any = None) -> Array:
    """``exp(x)`` divided by its sum over ``axis`` (None: all axes).

    >>> softmax(0.0).item()
    1.0
    """
    return nn.softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Array:
    """``log(softmax(x))`` over ``axis`` (None: all axes).

    >>> log_softmax(0.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("log_softmax", x)
    return nn.log_softmax(x, axis=axis)


_NAMES = _lazy.Names(
    "weft.scipy.special",
    {
        "scipy.bessel_orders": "bessel_jn",
        "scipy.error_integrals": "dawsn erfcx fresnel owens_t wofz",
        "scipy.exponential_integrals": "exp1 expi expn sici",
        "scipy.hypergeometric": "hyp1f1 hyp2f1",
        "scipy.legendre": "lpmn lpmn_values sph_harm_y",
        "scipy.polylogarithms": "bernoulli spence",
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name) if name in _NAMES.modules else _unbuilt.missing("weft.scipy.special", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

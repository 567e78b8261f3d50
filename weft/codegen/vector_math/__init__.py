"""Vector math: each function is one branch-free expression over ``lanes.V``, with cold blocks for rare lanes.

Bounds are stated in docs/NUMERICS.md and tested over all magnitudes. A function takes the emitter (for shared
work) and its operands, float32 or float64 vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import (
    bessel,
    exponential,
    gamma,
    hyperbolic,
    normal_values,
    powers,
    roots,
    trigonometric,
)
from weft.codegen.vector_math import (
    error_functions as errors,
)

Function = Callable[..., V]


NAMES: dict[str, tuple[Function, Function | None]] = {  # for float32 and for float64; one function if it fits both
    "exp": (exponential.exp_f32, exponential.exp_f64),
    "exp2": (exponential.exp2_f32, exponential.exp2_f64),
    "expm1": (exponential.expm1_f32, exponential.expm1_f64),
    "log": (exponential.log_f32, exponential.log_f64),
    "log1p": (exponential.log1p_f32, exponential.log1p_f64),
    "logistic": (exponential.logistic, exponential.logistic),
    "pow": (powers.pow_f32, powers.pow_f64),
    "sin": (trigonometric.sin_f32, trigonometric.sin_f64),
    "cos": (trigonometric.cos_f32, trigonometric.cos_f64),
    "tan": (trigonometric.tan_f32, trigonometric.tan_f64),
    "asin": (trigonometric.asin_f32, trigonometric.asin_f64),
    "acos": (trigonometric.acos_f32, trigonometric.acos_f64),
    "atan": (trigonometric.atan_f32, trigonometric.atan_f64),
    "atan2": (trigonometric.atan2_f32, trigonometric.atan2_f64),
    "sinh": (hyperbolic.sinh_f32, hyperbolic.sinh_f64),
    "cosh": (hyperbolic.cosh_f32, hyperbolic.cosh_f64),
    "tanh": (hyperbolic.tanh_f32, hyperbolic.tanh_f64),
    "asinh": (hyperbolic.asinh_f32, hyperbolic.asinh_f64),
    "acosh": (hyperbolic.acosh_f32, hyperbolic.acosh_f64),
    "atanh": (hyperbolic.atanh_f32, hyperbolic.atanh_f64),
    "erf": (errors.erf_f32, errors.erf_f64),
    "erfc": (errors.erfc_f32, errors.erfc_f64),
    "erf_inv": (errors.erf_inv_f32, errors.erf_inv_f64),
    "erf_inv_drawn": (normal_values.erf_inv_drawn, normal_values.erf_inv_drawn_f64),
    "sqrt": (roots.sqrt_f32, roots.sqrt_f64),
    "rsqrt": (roots.rsqrt_f32, roots.rsqrt_f64),
    "cbrt": (roots.cbrt_f32, roots.cbrt_f64),
    "lgamma": (gamma.lgamma_f32, gamma.lgamma_f64),
    "digamma": (gamma.digamma_f32, gamma.digamma_f64),
    "bessel_i0e": (bessel.i0e_f32, None),
    "bessel_i1e": (bessel.i1e_f32, None),
}


def function(emit: Sharing, name: str, *args: V) -> V:
    """The function's value on float32 or float64 vectors."""
    single, double = NAMES.get(name, (None, None))
    chosen = single if args[0].element == "float" else double
    if chosen is None:
        raise TypeError(f"[codegen] no vector function named {name!r} of {args[0].element}.")
    return chosen(emit, *args)

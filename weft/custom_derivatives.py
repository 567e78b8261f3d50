"""weft.custom_derivatives: functions with derivatives of their own, and what their rules see."""

from weft._base import unbuilt
from weft.autodiff.custom_jvp import custom_jvp, custom_jvp_call_p
from weft.autodiff.custom_vjp import CustomVJPPrimal, closure_convert, custom_gradient, custom_vjp, custom_vjp_call_p
from weft.autodiff.linear_call import linear_call, linear_call_p
from weft.autodiff.symbolic_zeros import SymbolicZero, zero_from_primal

__all__ = [
    "CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_jvp_call_p",
    "custom_vjp", "custom_vjp_call_p", "linear_call", "linear_call_p", "zero_from_primal",
]  # fmt: skip
__getattr__ = unbuilt.fallback("weft.custom_derivatives")

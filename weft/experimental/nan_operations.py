"""The operations after which ``checkify`` looks for NaN: written by docs/nan_operations.py."""

from __future__ import annotations

NAMES = """
    acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt conv_general_dilated cos cosh
    cumlogsumexp cummax cummin cumprod cumsum custom_linear_solve digamma dot_general erf erf_inv erfc exp expm1 fft
    igamma igamma_grad_a igammac integer_pow lgamma log log1p logistic mul pad pow psum reduce reduce_prod
    reduce_sum reduce_window reduce_window_sum regularized_incomplete_beta rem rng_uniform rsqrt sin sinh sqrt sub
    tan tanh
"""

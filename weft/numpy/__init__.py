"""NumPy's functions on weft arrays, with JAX's signatures and promotion.

Everything documented by JAX exists here; what is not built yet raises NotImplementedError naming itself. The
operators and methods of arrays and tracers (``array_methods``) are loaded at their first use, as all modules are.
"""

from __future__ import annotations

import typing as _typing

import numpy as _np
from numpy import (
    character as character,
    complexfloating as complexfloating,
    dtype as dtype,
    flexible as flexible,
    floating as floating,
    generic as generic,
    get_printoptions as get_printoptions,
    inexact as inexact,
    integer as integer,
    number as number,
    object_ as object_,
    printoptions as printoptions,
    set_printoptions as set_printoptions,
    signedinteger as signedinteger,
    unsignedinteger as unsignedinteger,
)
from numpy.exceptions import ComplexWarning as ComplexWarning

from weft._base import lazy as _lazy, unbuilt as _unbuilt
from weft._base.array import Array as _Array

ndarray = _Array
nan = _np.nan
inf = _np.inf
pi = _np.pi
e = _np.e
__array_api_version__ = "2024.12"
euler_gamma = _np.euler_gamma
newaxis = None
s_ = _np.s_
index_exp = _np.index_exp


# Modules are loaded when one of their names is first used. docs/stubs.py tells type checkers so (__init__.pyi).
_NAMES = _lazy.Names(
    "weft.numpy",
    {
        "numpy.array_api": "__array_namespace_info__",
        "numpy.pointwise.arithmetic": """
            abs absolute divide divmod fabs float_power floor_divide fmax fmin fmod heaviside hypot mod
            positive pow power reciprocal remainder sign square true_divide""",
        "numpy.bins": "digitize histogram histogram2d histogram_bin_edges histogramdd interp searchsorted",
        "numpy.bits": "packbits unpackbits",
        "numpy.pointwise.builtin_ufuncs": """
            add bitwise_and bitwise_or bitwise_xor logaddexp logaddexp2 logical_and logical_or logical_xor maximum
            minimum multiply negative subtract""",
        "numpy.calculus": "corrcoef cov diff ediff1d gradient polyadd polyder polysub polyval trapezoid unwrap",
        "numpy.pointwise.common_divisors": "gcd lcm",
        "numpy.linear_algebra.contractions": "cross dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
        "numpy.convolution": "convolve correlate",
        "numpy.array_creation.creation": """
            arange array asarray astype copy empty empty_like from_dlpack frombuffer fromfile fromiter
            fromstring full full_like indices meshgrid ones ones_like zeros zeros_like""",
        "numpy.array_creation.diagonals": "eye identity tri",
        "numpy.dtype_queries": """
            can_cast finfo iinfo iscomplexobj isdtype isrealobj issubdtype promote_types result_type""",
        "numpy.linear_algebra.einstein": "einsum einsum_path",
        "numpy.pointwise.elementary": """
            acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cbrt cos
            cosh deg2rad degrees exp exp2 expm1 i0 log log1p log2 log10 rad2deg radians sin sinc sinh sqrt tan
            tanh""",
        "numpy.files": "array_repr array_str load save savez",
        "numpy.array_creation.grids": "c_ mgrid ogrid r_",
        "numpy.joining": """
            append array_split block column_stack concat concatenate dsplit dstack hsplit hstack split stack
            unstack vsplit vstack""",
        "numpy.pointwise.logic": """
            allclose array_equal array_equiv bitwise_count bitwise_invert bitwise_left_shift bitwise_not
            bitwise_right_shift equal greater greater_equal invert isclose isfinite isinf isnan isneginf isposinf
            left_shift less less_equal logical_not not_equal right_shift signbit""",
        "numpy.array_creation.matrices": """
            bartlett blackman diag diag_indices diag_indices_from diagflat diagonal hamming hanning ix_ kaiser
            trace tril tril_indices tril_indices_from triu triu_indices triu_indices_from unravel_index vander""",
        "numpy.padding": "pad",
        "numpy.subscripts.edited_copies": "delete fill_diagonal insert place put put_along_axis",
        "numpy.polynomials": "poly polydiv polyfit polyint polymul roots",
        "numpy.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "numpy.rearrange": """
            atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes broadcast_to expand_dims flip
            fliplr flipud isscalar iterable matrix_transpose moveaxis ndim permute_dims ravel reshape resize roll
            rollaxis rot90 shape size squeeze swapaxes tile transpose""",
        "numpy.reductions": """
            all amax amin any argmax argmin count_nonzero cumprod cumsum cumulative_prod cumulative_sum max min
            nancumprod nancumsum prod ptp sum""",
        "numpy.pointwise.rounding": """
            angle around ceil conj conjugate copysign floor frexp imag iscomplex isreal ldexp modf nextafter real
            rint round spacing trunc""",
        "numpy.scalar_types": """
            bfloat16 bool_ cdouble complex64 complex128 complex_ csingle double float4_e2m1fn float6_e2m3fn
            float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
            float8_e5m2fnuz float8_e8m0fnu float16 float32 float64 float_ int1 int2 int4 int8 int16 int32 int64
            int_ single uint uint1 uint2 uint4 uint8 uint16 uint32 uint64 bool""",
        "numpy.searching": "argwhere bincount flatnonzero mask_indices nonzero ravel_multi_index where",
        "numpy.pointwise.selection": "clip nan_to_num select",
        "numpy.sets": """
            intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse
            unique_values""",
        "numpy.sorting": "argpartition argsort compress extract lexsort partition sort sort_complex",
        "numpy.array_creation.even_spacing": "geomspace linspace logspace",
        "numpy.statistics": """
            average mean nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar std var""",
        "numpy.subscripts.taking": "choose repeat take take_along_axis trim_zeros",
        "numpy.pointwise.ufuncs": "frompyfunc ufunc",
        "numpy.pointwise.vectorized": "apply_along_axis apply_over_axes fromfunction piecewise vectorize",
    },
    renamed={"bool": "bool_"},
)  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    if name in _NAMES:
        return _NAMES.find(name)
    if _unbuilt.is_documented_module(f"weft.numpy.{name}"):
        return _lazy.submodule(f"weft.numpy.{name}")
    return _unbuilt.missing("weft.numpy", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

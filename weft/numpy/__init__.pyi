"""The names of weft.numpy, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any as _Any
import numpy as _np
from numpy import (
    character as character, complexfloating as complexfloating, dtype as dtype, flexible as flexible,
    floating as floating, generic as generic, get_printoptions as get_printoptions, inexact as inexact,
    integer as integer, number as number, object_ as object_, printoptions as printoptions,
    set_printoptions as set_printoptions, signedinteger as signedinteger, unsignedinteger as unsignedinteger
)
from numpy.exceptions import ComplexWarning as ComplexWarning
from weft._base.array import Array as _Array
ndarray = _Array
nan = _np.nan
inf = _np.inf
pi = _np.pi
e = _np.e
euler_gamma = _np.euler_gamma
newaxis = None
s_ = _np.s_
index_exp = _np.index_exp

from weft.numpy import fft as fft, linalg as linalg
from weft.numpy.array_api import __array_namespace_info__ as __array_namespace_info__
from weft.numpy.array_creation.creation import (
    arange as arange, array as array, asarray as asarray, astype as astype, copy as copy, empty as empty,
    empty_like as empty_like, from_dlpack as from_dlpack, frombuffer as frombuffer, fromfile as fromfile,
    fromiter as fromiter, fromstring as fromstring, full as full, full_like as full_like, indices as indices,
    meshgrid as meshgrid, ones as ones, ones_like as ones_like, zeros as zeros, zeros_like as zeros_like
)
from weft.numpy.array_creation.diagonals import eye as eye, identity as identity, tri as tri
from weft.numpy.array_creation.even_spacing import geomspace as geomspace, linspace as linspace, logspace as logspace
from weft.numpy.array_creation.grids import c_ as c_, mgrid as mgrid, ogrid as ogrid, r_ as r_
from weft.numpy.array_creation.matrices import (
    bartlett as bartlett, blackman as blackman, diag as diag, diag_indices as diag_indices,
    diag_indices_from as diag_indices_from, diagflat as diagflat, diagonal as diagonal, hamming as hamming,
    hanning as hanning, ix_ as ix_, kaiser as kaiser, trace as trace, tril as tril, tril_indices as tril_indices,
    tril_indices_from as tril_indices_from, triu as triu, triu_indices as triu_indices,
    triu_indices_from as triu_indices_from, unravel_index as unravel_index, vander as vander
)
from weft.numpy.bins import (
    digitize as digitize, histogram as histogram, histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges, histogramdd as histogramdd, interp as interp,
    searchsorted as searchsorted
)
from weft.numpy.bits import packbits as packbits, unpackbits as unpackbits
from weft.numpy.calculus import (
    corrcoef as corrcoef, cov as cov, diff as diff, ediff1d as ediff1d, gradient as gradient, polyadd as polyadd,
    polyder as polyder, polysub as polysub, polyval as polyval, trapezoid as trapezoid, unwrap as unwrap
)
from weft.numpy.convolution import convolve as convolve, correlate as correlate
from weft.numpy.dtype_queries import (
    can_cast as can_cast, finfo as finfo, iinfo as iinfo, iscomplexobj as iscomplexobj, isdtype as isdtype,
    isrealobj as isrealobj, issubdtype as issubdtype, promote_types as promote_types, result_type as result_type
)
from weft.numpy.files import (
    array_repr as array_repr, array_str as array_str, load as load, save as save, savez as savez
)
from weft.numpy.joining import (
    append as append, array_split as array_split, block as block, column_stack as column_stack, concat as concat,
    concatenate as concatenate, dsplit as dsplit, dstack as dstack, hsplit as hsplit, hstack as hstack,
    split as split, stack as stack, unstack as unstack, vsplit as vsplit, vstack as vstack
)
from weft.numpy.linear_algebra.contractions import (
    cross as cross, dot as dot, inner as inner, kron as kron, matmul as matmul, matvec as matvec, outer as outer,
    tensordot as tensordot, vdot as vdot, vecdot as vecdot, vecmat as vecmat
)
from weft.numpy.linear_algebra.einstein import einsum as einsum, einsum_path as einsum_path
from weft.numpy.padding import pad as pad
from weft.numpy.pointwise.arithmetic import (
    abs as abs, absolute as absolute, divide as divide, divmod as divmod, fabs as fabs, float_power as float_power,
    floor_divide as floor_divide, fmax as fmax, fmin as fmin, fmod as fmod, heaviside as heaviside, hypot as hypot,
    mod as mod, positive as positive, pow as pow, power as power, reciprocal as reciprocal, remainder as remainder,
    sign as sign, square as square, true_divide as true_divide
)
from weft.numpy.pointwise.builtin_ufuncs import (
    add as add, bitwise_and as bitwise_and, bitwise_or as bitwise_or, bitwise_xor as bitwise_xor,
    logaddexp as logaddexp, logaddexp2 as logaddexp2, logical_and as logical_and, logical_or as logical_or,
    logical_xor as logical_xor, maximum as maximum, minimum as minimum, multiply as multiply, negative as negative,
    subtract as subtract
)
from weft.numpy.pointwise.common_divisors import gcd as gcd, lcm as lcm
from weft.numpy.pointwise.elementary import (
    acos as acos, acosh as acosh, arccos as arccos, arccosh as arccosh, arcsin as arcsin, arcsinh as arcsinh,
    arctan as arctan, arctan2 as arctan2, arctanh as arctanh, asin as asin, asinh as asinh, atan as atan,
    atan2 as atan2, atanh as atanh, cbrt as cbrt, cos as cos, cosh as cosh, deg2rad as deg2rad, degrees as degrees,
    exp as exp, exp2 as exp2, expm1 as expm1, i0 as i0, log as log, log1p as log1p, log2 as log2, log10 as log10,
    rad2deg as rad2deg, radians as radians, sin as sin, sinc as sinc, sinh as sinh, sqrt as sqrt, tan as tan,
    tanh as tanh
)
from weft.numpy.pointwise.logic import (
    allclose as allclose, array_equal as array_equal, array_equiv as array_equiv, bitwise_count as bitwise_count,
    bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift, bitwise_not as bitwise_not,
    bitwise_right_shift as bitwise_right_shift, equal as equal, greater as greater, greater_equal as greater_equal,
    invert as invert, isclose as isclose, isfinite as isfinite, isinf as isinf, isnan as isnan, isneginf as isneginf,
    isposinf as isposinf, left_shift as left_shift, less as less, less_equal as less_equal,
    logical_not as logical_not, not_equal as not_equal, right_shift as right_shift, signbit as signbit
)
from weft.numpy.pointwise.rounding import (
    angle as angle, around as around, ceil as ceil, conj as conj, conjugate as conjugate, copysign as copysign,
    floor as floor, frexp as frexp, imag as imag, iscomplex as iscomplex, isreal as isreal, ldexp as ldexp,
    modf as modf, nextafter as nextafter, real as real, rint as rint, round as round, spacing as spacing,
    trunc as trunc
)
from weft.numpy.pointwise.selection import clip as clip, nan_to_num as nan_to_num, select as select
from weft.numpy.pointwise.ufuncs import frompyfunc as frompyfunc, ufunc as ufunc
from weft.numpy.pointwise.vectorized import (
    apply_along_axis as apply_along_axis, apply_over_axes as apply_over_axes, fromfunction as fromfunction,
    piecewise as piecewise, vectorize as vectorize
)
from weft.numpy.polynomials import (
    poly as poly, polydiv as polydiv, polyfit as polyfit, polyint as polyint, polymul as polymul, roots as roots
)
from weft.numpy.quantiles import (
    median as median, nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile,
    percentile as percentile, quantile as quantile
)
from weft.numpy.rearrange import (
    atleast_1d as atleast_1d, atleast_2d as atleast_2d, atleast_3d as atleast_3d,
    broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes, broadcast_to as broadcast_to,
    expand_dims as expand_dims, flip as flip, fliplr as fliplr, flipud as flipud, isscalar as isscalar,
    iterable as iterable, matrix_transpose as matrix_transpose, moveaxis as moveaxis, ndim as ndim,
    permute_dims as permute_dims, ravel as ravel, reshape as reshape, resize as resize, roll as roll,
    rollaxis as rollaxis, rot90 as rot90, shape as shape, size as size, squeeze as squeeze, swapaxes as swapaxes,
    tile as tile, transpose as transpose
)
from weft.numpy.reductions import (
    all as all, amax as amax, amin as amin, any as any, argmax as argmax, argmin as argmin,
    count_nonzero as count_nonzero, cumprod as cumprod, cumsum as cumsum, cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum, max as max, min as min, nancumprod as nancumprod, nancumsum as nancumsum,
    prod as prod, ptp as ptp, sum as sum
)
from weft.numpy.scalar_types import (
    bfloat16 as bfloat16, bool_ as bool_, cdouble as cdouble, complex64 as complex64, complex128 as complex128,
    complex_ as complex_, csingle as csingle, double as double, float4_e2m1fn as float4_e2m1fn,
    float6_e2m3fn as float6_e2m3fn, float6_e3m2fn as float6_e3m2fn, float8_e3m4 as float8_e3m4,
    float8_e4m3 as float8_e4m3, float8_e4m3b11fnuz as float8_e4m3b11fnuz, float8_e4m3fn as float8_e4m3fn,
    float8_e4m3fnuz as float8_e4m3fnuz, float8_e5m2 as float8_e5m2, float8_e5m2fnuz as float8_e5m2fnuz,
    float8_e8m0fnu as float8_e8m0fnu, float16 as float16, float32 as float32, float64 as float64, float_ as float_,
    int1 as int1, int2 as int2, int4 as int4, int8 as int8, int16 as int16, int32 as int32, int64 as int64,
    int_ as int_, single as single, uint as uint, uint1 as uint1, uint2 as uint2, uint4 as uint4, uint8 as uint8,
    uint16 as uint16, uint32 as uint32, uint64 as uint64
)
from weft.numpy.searching import (
    argwhere as argwhere, bincount as bincount, flatnonzero as flatnonzero, mask_indices as mask_indices,
    nonzero as nonzero, ravel_multi_index as ravel_multi_index, where as where
)
from weft.numpy.sets import (
    intersect1d as intersect1d, isin as isin, setdiff1d as setdiff1d, setxor1d as setxor1d, union1d as union1d,
    unique as unique, unique_all as unique_all, unique_counts as unique_counts, unique_inverse as unique_inverse,
    unique_values as unique_values
)
from weft.numpy.sorting import (
    argpartition as argpartition, argsort as argsort, compress as compress, extract as extract, lexsort as lexsort,
    partition as partition, sort as sort, sort_complex as sort_complex
)
from weft.numpy.statistics import (
    average as average, mean as mean, nanargmax as nanargmax, nanargmin as nanargmin, nanmax as nanmax,
    nanmean as nanmean, nanmin as nanmin, nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar,
    std as std, var as var
)
from weft.numpy.subscripts.edited_copies import (
    delete as delete, fill_diagonal as fill_diagonal, insert as insert, place as place, put as put,
    put_along_axis as put_along_axis
)
from weft.numpy.subscripts.taking import (
    choose as choose, repeat as repeat, take as take, take_along_axis as take_along_axis, trim_zeros as trim_zeros
)
bool = bool_

def __getattr__(name: str) -> _Any: ...

"""The operations: one block each with kind, typing, scalar expression, derivative and NumPy oracle.

Every public name of ``weft.lax`` that is an operation is re-exported here, with its primitive ``name_p``.
"""

import typing

from weft._base import lazy
from weft.operations import (
    algebra,
    complex_math,
    elementwise,
    indexing_derivatives,
    linear,
    references,
)
from weft.operations.arithmetic import *
from weft.operations.assemble import *
from weft.operations.contract import *
from weft.operations.convert import *
from weft.operations.cumulative import *
from weft.operations.effects import *
from weft.operations.functions import *
from weft.operations.gather import *
from weft.operations.general_reduce import *
from weft.operations.index import *
from weft.operations.index import dynamic_index_in_dim, dynamic_update_index_in_dim
from weft.operations.logic import *
from weft.operations.powers import *
from weft.operations.reductions import *
from weft.operations.scatter import *
from weft.operations.settings import *
from weft.operations.shape import *
from weft.operations.sort import *

if typing.TYPE_CHECKING:
    from weft.operations.algorithms import DotAlgorithmPreset, FftType, RandomAlgorithm
    from weft.operations.convolution import *
    from weft.operations.convolution_numbers import *
    from weft.operations.convolution_patches import *
    from weft.operations.floored import *
    from weft.operations.fourier import fft_p
    from weft.operations.special import *
    from weft.operations.window_padding import *
    from weft.operations.window_selection import *
    from weft.operations.windows import *

# Modules are loaded when one of their names is first used; the imports above are for type checkers.
_NAMES = lazy.Names(
    "weft.operations",
    {
        "operations.algorithms": "DotAlgorithmPreset FftType RandomAlgorithm",
        "operations.convolution": """
            conv conv_general_dilated conv_general_dilated_p conv_transpose conv_with_general_padding""",
        "operations.convolution_numbers": """
            conv_dimension_numbers conv_general_permutations conv_general_shape_tuple conv_shape_tuple
            conv_transpose_shape_tuple""",
        "operations.convolution_patches": "conv_general_dilated_local conv_general_dilated_patches",
        "operations.floored": "floor_div_p",
        "operations.fourier": "fft_p",
        "operations.special": """
            bessel_i0e bessel_i0e_p bessel_i1e bessel_i1e_p betainc digamma digamma_p igamma igamma_grad_a
            igamma_grad_a_p igamma_p igammac igammac_p lgamma lgamma_p polygamma polygamma_p random_gamma_grad
            random_gamma_grad_p regularized_incomplete_beta_p zeta zeta_p""",
        "operations.window_padding": "padtype_to_pads",
        "operations.window_selection": "select_and_gather_add_p select_and_scatter_add_p select_and_scatter_p",
        "operations.windows": """
            reduce_window reduce_window_max_p reduce_window_min_p reduce_window_p reduce_window_shape_tuple
            reduce_window_sum_p""",
    },
)
__getattr__ = _NAMES.find


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

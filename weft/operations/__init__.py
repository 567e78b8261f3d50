"""The operations: one block each with kind, typing, scalar expression, derivative and NumPy oracle.

Every public name of ``weft.lax`` that is an operation is re-exported here, with its primitive ``name_p``.
"""

import typing

from weft._base import lazy
from weft.operations import linear, references
from weft.operations.contract import *
from weft.operations.cumulative import *
from weft.operations.data_movement import indexing_derivatives
from weft.operations.data_movement.assemble import *
from weft.operations.data_movement.gather import *
from weft.operations.data_movement.index import *
from weft.operations.data_movement.index import dynamic_index_in_dim, dynamic_update_index_in_dim
from weft.operations.data_movement.scatter import *
from weft.operations.data_movement.shape import *
from weft.operations.effects import *
from weft.operations.general_reduce import *
from weft.operations.pointwise import algebra, complex_math, elementwise
from weft.operations.pointwise.arithmetic import *
from weft.operations.pointwise.convert import *
from weft.operations.pointwise.functions import *
from weft.operations.pointwise.logic import *
from weft.operations.pointwise.powers import *
from weft.operations.reductions import *
from weft.operations.settings import *
from weft.operations.sort import *

if typing.TYPE_CHECKING:
    from weft.operations.algorithms import DotAlgorithmPreset, FftType, RandomAlgorithm
    from weft.operations.fourier import fft_p
    from weft.operations.pointwise.floored import *
    from weft.operations.pointwise.special import *
    from weft.operations.windowed.convolution import *
    from weft.operations.windowed.convolution_numbers import *
    from weft.operations.windowed.convolution_patches import *
    from weft.operations.windowed.window_padding import *
    from weft.operations.windowed.window_selection import *
    from weft.operations.windowed.windows import *

# Modules are loaded when one of their names is first used; the imports above are for type checkers.
_NAMES = lazy.Names(
    "weft.operations",
    {
        "operations.algorithms": "DotAlgorithmPreset FftType RandomAlgorithm",
        "operations.windowed.convolution": """
            conv conv_general_dilated conv_general_dilated_p conv_transpose conv_with_general_padding""",
        "operations.windowed.convolution_numbers": """
            conv_dimension_numbers conv_general_permutations conv_general_shape_tuple conv_shape_tuple
            conv_transpose_shape_tuple""",
        "operations.windowed.convolution_patches": "conv_general_dilated_local conv_general_dilated_patches",
        "operations.pointwise.floored": "floor_div_p",
        "operations.fourier": "fft_p",
        "operations.pointwise.special": """
            bessel_i0e bessel_i0e_p bessel_i1e bessel_i1e_p betainc digamma digamma_p igamma igamma_grad_a
            igamma_grad_a_p igamma_p igammac igammac_p lgamma lgamma_p polygamma polygamma_p random_gamma_grad
            random_gamma_grad_p regularized_incomplete_beta_p zeta zeta_p""",
        "operations.windowed.window_padding": "padtype_to_pads",
        "operations.windowed.window_selection": "select_and_gather_add_p select_and_scatter_add_p select_and_scatter_p",
        "operations.windowed.windows": """
            reduce_window reduce_window_max_p reduce_window_min_p reduce_window_p reduce_window_shape_tuple
            reduce_window_sum_p""",
    },
)
__getattr__ = _NAMES.find


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})

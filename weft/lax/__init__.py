"""weft.lax: the operations and the primitives that carry programs, under JAX's names. A facade, it holds no code."""

import typing as _typing

from weft._base import lazy as _lazy, unbuilt as _unbuilt
from weft.autodiff.implicit import (
    custom_linear_solve as custom_linear_solve,
    custom_root as custom_root,
    linear_solve_p,
)
from weft.batching.map import map as map
from weft.control.associative import associative_scan as associative_scan
from weft.control.branches import cond as cond, cond_p, platform_dependent as platform_dependent, switch as switch
from weft.control.ragged_products import ragged_dot as ragged_dot, ragged_dot_general as ragged_dot_general
from weft.control.scan import scan as scan, scan_p
from weft.control.while_loop import fori_loop as fori_loop, while_loop as while_loop, while_p
from weft.dispatch.calls.composites import composite as composite
from weft.dispatch.calls.jitted_fourier import fft as fft
from weft.dispatch.calls.jitted_indexing import (
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
)
from weft.dispatch.devices.placement import device_put_p, stage as stage
from weft.dispatch.devices.shardings import with_sharding_constraint as with_sharding_constraint
from weft.numpy.subscripts.taking import index_take as index_take
from weft.operations.algorithms import (
    DotAlgorithmPreset as DotAlgorithmPreset,
    FftType as FftType,
    RandomAlgorithm as RandomAlgorithm,
)
from weft.operations.approximate_top_k import *
from weft.operations.pointwise.arithmetic import *
from weft.operations.data_movement.assemble import *
from weft.operations.collectives import *
from weft.operations.contract import *
from weft.operations.pointwise.convert import *
from weft.operations.windowed.convolution import *
from weft.operations.windowed.convolution_numbers import *
from weft.operations.windowed.convolution_patches import *
from weft.operations.cumulative import *
from weft.operations.effects import *
from weft.operations.exchanges import *
from weft.operations.pointwise.floored import *
from weft.operations.fourier import fft_p
from weft.operations.pointwise.functions import *
from weft.operations.data_movement.gather import *
from weft.operations.general_reduce import *
from weft.operations.data_movement.index import *
from weft.operations.pointwise.logic import *
from weft.operations.pointwise.powers import *
from weft.operations.ragged_exchange import *
from weft.operations.reductions import *
from weft.operations.scaled_products import *
from weft.operations.data_movement.scatter import *
from weft.operations.settings import *
from weft.operations.data_movement.shape import *
from weft.operations.sort import *
from weft.operations.pointwise.special import *
from weft.operations.tokens import *
from weft.operations.windowed.window_padding import *
from weft.operations.windowed.window_selection import *
from weft.operations.windowed.windows import *
from weft.random.bit_generator import rng_bit_generator as rng_bit_generator
from weft.random.unkeyed import rng_uniform as rng_uniform, rng_uniform_p

if _typing.TYPE_CHECKING:
    from weft.lax import linalg


def __getattr__(name: str) -> _typing.Any:
    return _lazy.submodule("weft.lax.linalg") if name == "linalg" else _unbuilt.missing("weft.lax", name)

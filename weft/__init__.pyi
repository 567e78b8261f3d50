"""The names of weft, for type checkers: written by docs/stubs.py from its own table."""

# fmt: off
from typing import Any as _Any
from weft import config as config, dtypes as dtypes, errors as errors
from weft._base import api
from weft._base.api import (
    clear_caches as clear_caches, ensure_compile_time_eval as ensure_compile_time_eval, eval_shape as eval_shape,
    make_jaxpr as make_jaxpr, print_environment_info as print_environment_info, threads as threads, typeof as typeof
)
from weft._base.array import Array as Array, live_arrays as live_arrays
from weft.core.programs.check_scopes import checks as checks
from weft.dispatch.calls.jit import jit as jit
import weft.inspect as inspection
inspect: inspection.Inspect
__version__ = api.VERSION
float0 = dtypes.float0

from weft import (
    ad as ad, ad_checkpoint as ad_checkpoint, api_util as api_util, checkpoint_policies as checkpoint_policies,
    checkpoints as checkpoints, core as core, custom_batching as custom_batching,
    custom_derivatives as custom_derivatives, debug as debug, distributed as distributed, dlpack as dlpack,
    example_libraries as example_libraries, experimental as experimental, export as export, extend as extend,
    ffi as ffi, flatten_util as flatten_util, image as image, interpreters as interpreters, lax as lax,
    memory as memory, monitoring as monitoring, nn as nn, numpy as numpy, ops as ops, pjrt as pjrt,
    profiler as profiler, random as random, ref as ref, scipy as scipy, sharding as sharding, stages as stages,
    test_util as test_util, tree as tree, tree_util as tree_util, typing as typing
)
from weft.autodiff.custom_jvp import custom_jvp as custom_jvp
from weft.autodiff.custom_vjp import (
    closure_convert as closure_convert, custom_gradient as custom_gradient, custom_vjp as custom_vjp
)
from weft.autodiff.derivatives import (
    fwd_and_bwd as fwd_and_bwd, jvp as jvp, linear_transpose as linear_transpose, linearize as linearize, vjp as vjp
)
from weft.autodiff.gradients import grad as grad, value_and_grad as value_and_grad
from weft.autodiff.jacobians import hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev
from weft.batching.pmap import pmap as pmap
from weft.batching.shard_map import shard_map as shard_map, smap as smap
from weft.batching.vmap import vmap as vmap
from weft.checkpoints.remat import checkpoint as checkpoint
from weft.compiler.storage.saved import load as load
from weft.core.caches.user_contexts import make_user_context as make_user_context
from weft.dispatch.calls.call_primitive import named_call as named_call, named_scope as named_scope
from weft.dispatch.calls.struct import ShapeDtypeStruct as ShapeDtypeStruct
from weft.dispatch.devices import (
    Device as Device, PartitionSpec, default_backend as default_backend, device_count as device_count,
    devices as devices, local_device_count as local_device_count, local_devices as local_devices,
    process_count as process_count, process_index as process_index, process_indices as process_indices
)
from weft.dispatch.devices.placement import (
    block_until_ready as block_until_ready, copy_to_host_async as copy_to_host_async, device_get as device_get,
    device_put as device_put, effects_barrier as effects_barrier
)
from weft.dispatch.devices.resharding import reshard as reshard
from weft.dispatch.devices.shardings import (
    NamedSharding as NamedSharding, make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays, make_mesh as make_mesh,
    set_mesh as set_mesh
)
from weft.dispatch.devices.shards import Shard as Shard
from weft.effects.callbacks import pure_callback as pure_callback
from weft.effects.ref_indexing import ds as ds
from weft.inspect.profiling import profile as profile
from weft.launch.install import install_as_jax as install_as_jax, load_ipython_extension as load_ipython_extension
from weft.ref import Ref as Ref, empty_ref as empty_ref, free_ref as free_ref, freeze as freeze, new_ref as new_ref
remat = checkpoint
P = PartitionSpec

def __getattr__(name: str) -> _Any: ...

"""weft: NumPy-style Python functions, traced once, compiled by their own fusing compiler, cached for every later call.

``import weft`` and ``import weft.numpy as wnp`` are what programs need; the names are JAX's. What is documented in
JAX and not built yet exists and raises NotImplementedError naming itself.
"""

from __future__ import annotations

from weft import runtime  # refuses a subinterpreter, before NumPy is loaded there: it can be loaded but once

# isort: split
from typing import TYPE_CHECKING, Any

from weft import config as config, dtypes as dtypes, errors as errors
from weft._base import api, lazy, unbuilt
from weft._base.api import (
    clear_caches as clear_caches,
    ensure_compile_time_eval as ensure_compile_time_eval,
    eval_shape as eval_shape,
    make_jaxpr as make_jaxpr,
    print_environment_info as print_environment_info,
    threads as threads,
    typeof as typeof,
)
from weft._base.array import Array as Array, live_arrays as live_arrays
from weft.core import trace
from weft.core.check_scopes import checks as checks
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls.jit import jit as jit
from weft.dispatch.devices import OWN as _OWN

if TYPE_CHECKING:
    import weft.inspect as inspection
    from weft import (
        ad as ad,
        ad_checkpoint as ad_checkpoint,
        api_util as api_util,
        checkpoint_policies as checkpoint_policies,
        checkpoints as checkpoints,
        custom_batching as custom_batching,
        custom_derivatives as custom_derivatives,
        debug as debug,
        distributed as distributed,
        dlpack as dlpack,
        example_libraries as example_libraries,
        experimental as experimental,
        export as export,
        extend as extend,
        flatten_util as flatten_util,
        image as image,
        interpreters as interpreters,
        lax as lax,
        monitoring as monitoring,
        nn as nn,
        numpy as numpy,
        ops as ops,
        pjrt as pjrt,
        profiler as profiler,
        random as random,
        ref as ref,
        scipy as scipy,
        sharding as sharding,
        stages as stages,
        test_util as test_util,
        tree as tree,
        tree_util as tree_util,
        typing as typing,
    )
    from weft.checkpoints.remat import checkpoint as checkpoint
    from weft.autodiff.custom_jvp import custom_jvp as custom_jvp
    from weft.autodiff.custom_vjp import (
        closure_convert as closure_convert,
        custom_gradient as custom_gradient,
        custom_vjp as custom_vjp,
    )
    from weft.autodiff.derivatives import (
        fwd_and_bwd as fwd_and_bwd,
        jvp as jvp,
        linear_transpose as linear_transpose,
        linearize as linearize,
        vjp as vjp,
    )
    from weft.autodiff.gradients import grad as grad, value_and_grad as value_and_grad
    from weft.autodiff.jacobians import hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev
    from weft.batching.pmap import pmap as pmap
    from weft.batching.shard_map import shard_map as shard_map, smap as smap
    from weft.batching.vmap import vmap as vmap
    from weft.compiler.saved import load as load
    from weft.core.user_contexts import make_user_context as make_user_context
    from weft.dispatch.calls.call_primitive import named_call as named_call, named_scope as named_scope
    from weft.dispatch.devices import (
        Device as Device,
        PartitionSpec,
        default_backend as default_backend,
        device_count as device_count,
        devices as devices,
        local_device_count as local_device_count,
        local_devices as local_devices,
        process_count as process_count,
        process_index as process_index,
        process_indices as process_indices,
    )
    from weft.dispatch.devices.placement import (
        block_until_ready as block_until_ready,
        copy_to_host_async as copy_to_host_async,
        device_get as device_get,
        device_put as device_put,
        effects_barrier as effects_barrier,
    )
    from weft.dispatch.devices.resharding import reshard as reshard
    from weft.dispatch.devices.shardings import (
        NamedSharding as NamedSharding,
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
        make_mesh as make_mesh,
        set_mesh as set_mesh,
    )
    from weft.dispatch.devices.shards import Shard as Shard
    from weft.dispatch.calls.struct import ShapeDtypeStruct as ShapeDtypeStruct
    from weft.effects.callbacks import pure_callback as pure_callback
    from weft.effects.ref_indexing import ds as ds
    from weft.inspect.profiling import profile as profile
    from weft.launch.install import install_as_jax as install_as_jax, load_ipython_extension as load_ipython_extension
    from weft.ref import Ref as Ref, empty_ref as empty_ref, free_ref as free_ref, freeze as freeze, new_ref as new_ref

    inspect: inspection.Inspect
    remat = checkpoint
    P = PartitionSpec

__version__ = api.VERSION


def _compile(*args: Any, **kwargs: Any) -> Any:
    """The first compilation loads the compiler; from then on ``jit`` calls it directly."""
    _OWN.compiler = lazy.compiler.compile_jaxpr
    return lazy.compiler.compile_jaxpr(*args, **kwargs)


def _evaluate(*args: Any, **kwargs: Any) -> Any:
    """The first operation outside of jit loads the compiler; from then on ``bind`` calls it directly."""
    trace.install_evaluate(lazy.compiler.evaluate)
    return lazy.compiler.evaluate(*args, **kwargs)


def _clear_compiler() -> None:
    if "compiler" in vars(lazy):
        lazy.compiler.clear_caches()


_OWN.compiler = _compile
trace.install_evaluate(_evaluate)
jit_module.on_clear_caches(_clear_compiler)
runtime.set_memory_error_type(errors.OutOfMemoryError)
runtime.set_foreign_error_type(errors.JaxRuntimeError)
unbuilt.install()
globals().update(config.CONTEXTS)
float0 = dtypes.float0

# Modules that are loaded when first named, so that importing weft stays light.
_SUBMODULES = frozenset((
    "ad", "ad_checkpoint", "api_util", "checkpoint_policies", "checkpoints", "core", "custom_batching",
    "custom_derivatives", "debug", "distributed", "dlpack", "example_libraries", "experimental", "export", "extend",
    "ffi", "flatten_util", "image", "inspect", "interpreters", "lax", "monitoring", "nn", "numpy", "ops", "pjrt",
    "profiler", "random", "ref", "scipy", "sharding", "stages", "test_util", "tree", "tree_util", "typing",
))  # fmt: skip

# Names whose modules are loaded when one of them is first used; the imports above say the same to type checkers.
_NAMES = lazy.Names(
    "weft",
    {
        "effects.callbacks": "pure_callback",
        "core.user_contexts": "make_user_context",
        "dispatch.calls.call_primitive": "named_call named_scope",
        "checkpoints.remat": "checkpoint remat",
        "autodiff.custom_jvp": "custom_jvp",
        "autodiff.custom_vjp": "closure_convert custom_gradient custom_vjp",
        "autodiff.derivatives": "fwd_and_bwd jvp linear_transpose linearize vjp",
        "compiler.saved": "load",
        "dispatch.devices.shards": "Shard",
        "dispatch.devices": """
            Device P default_backend device_count devices local_device_count local_devices process_count
            process_index process_indices""",
        "autodiff.gradients": "grad value_and_grad",
        "autodiff.jacobians": "hessian jacfwd jacobian jacrev",
        "dispatch.devices.placement": "block_until_ready copy_to_host_async device_get device_put effects_barrier",
        "dispatch.calls.struct": "ShapeDtypeStruct",
        "launch.install": "install_as_jax load_ipython_extension",
        "batching.pmap": "pmap",
        "batching.shard_map": "shard_map smap",
        "inspect.profiling": "profile",
        "batching.vmap": "vmap",
        "dispatch.devices.shardings": """
            NamedSharding make_array_from_callback make_array_from_process_local_data
            make_array_from_single_device_arrays make_mesh set_mesh""",
        "dispatch.devices.resharding": "reshard",
        "effects.ref_indexing": "ds",
        "ref": "Ref empty_ref free_ref freeze new_ref",
    },
    renamed={"remat": "checkpoint", "P": "PartitionSpec"},
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return lazy.submodule(f"weft.{name}")
    return _NAMES.find(name) if name in _NAMES else unbuilt.missing("weft", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_NAMES.modules})

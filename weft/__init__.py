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
from weft.core.tracing import trace
from weft.core.programs.check_scopes import checks as checks
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.calls.jit import jit as jit
from weft.dispatch.devices import OWN as _OWN

if TYPE_CHECKING:
    import weft.inspect as inspection

    inspect: inspection.Inspect

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
    "ffi", "flatten_util", "image", "inspect", "interpreters", "lax", "memory", "monitoring", "nn", "numpy", "ops",
    "pjrt", "profiler", "random", "ref", "scipy", "sharding", "stages", "test_util", "tree", "tree_util", "typing",
))  # fmt: skip

# Names whose modules are loaded when one of them is first used. docs/stubs.py tells type checkers so (__init__.pyi).
_NAMES = lazy.Names(
    "weft",
    {
        "effects.callbacks": "pure_callback",
        "core.caches.user_contexts": "make_user_context",
        "dispatch.calls.call_primitive": "named_call named_scope",
        "checkpoints.remat": "checkpoint remat",
        "autodiff.custom_jvp": "custom_jvp",
        "autodiff.custom_vjp": "closure_convert custom_gradient custom_vjp",
        "autodiff.derivatives": "fwd_and_bwd jvp linear_transpose linearize vjp",
        "compiler.storage.saved": "load",
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

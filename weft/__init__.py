"""weft: NumPy-style Python functions, traced once, compiled by their own fusing compiler, cached for every later call.

``import weft`` and ``import weft.numpy as wnp`` are what programs need; the names are JAX's. What is documented in
JAX and not built yet exists and raises NotImplementedError naming itself.
"""

from __future__ import annotations

from weft import collector

with collector.resting(lasting=True):
    from weft import runtime  # refuses a subinterpreter, before NumPy is loaded there: it can be loaded but once

    # isort: split
    from typing import Any

    from weft import api, config, dtypes, errors, lazy, tree, tree_util, unbuilt
    from weft.api import (
        clear_caches,
        ensure_compile_time_eval,
        eval_shape,
        make_jaxpr,
        print_environment_info,
        threads,
        typeof,
    )
    from weft.array import Array, live_arrays
    from weft.core import trace
    from weft.higher import jit as jit_module
    from weft.higher import loop_derivatives as _loop_derivatives
    from weft.higher import persistent
    from weft.higher.callbacks import pure_callback
    from weft.higher.calls import named_call, named_scope
    from weft.higher.checkpoint import checkpoint
    from weft.higher.custom_jvp import custom_jvp
    from weft.higher.custom_vjp import closure_convert, custom_gradient, custom_vjp
    from weft.higher.derivatives import fwd_and_bwd, jvp, linear_transpose, linearize, vjp
    from weft.higher.devices import (
        Device,
        Shard,
        default_backend,
        device_count,
        devices,
        local_device_count,
        local_devices,
        process_count,
        process_index,
        process_indices,
    )
    from weft.higher.gradients import grad, value_and_grad
    from weft.higher.jacobians import hessian, jacfwd, jacobian, jacrev
    from weft.higher.jit import jit
    from weft.higher.placement import (
        block_until_ready,
        copy_to_host_async,
        device_get,
        device_put,
        effects_barrier,
    )
    from weft.higher.struct import ShapeDtypeStruct
    from weft.higher.vectorize import vmap

__version__ = api.VERSION


def _compile(*args: Any, **kwargs: Any) -> Any:
    """The first compilation loads the compiler; from then on ``jit`` calls it directly."""
    jit_module.install_compiler(lazy.compiler.compile_jaxpr)
    return lazy.compiler.compile_jaxpr(*args, **kwargs)


def _evaluate(*args: Any, **kwargs: Any) -> Any:
    """The first operation outside of jit loads the compiler; from then on ``bind`` calls it directly."""
    trace.install_evaluate(lazy.compiler.evaluate)
    return lazy.compiler.evaluate(*args, **kwargs)


def _clear_compiler() -> None:
    if "compiler" in vars(lazy):
        lazy.compiler.clear_caches()


jit_module.install_compiler(_compile)
persistent.install(
    lambda *request: lazy.compiler.stored.find(*request), lambda *program: lazy.compiler.stored.keep(*program)
)
trace.install_evaluate(_evaluate)
api.on_clear_caches(_clear_compiler)
runtime.set_memory_error_type(errors.OutOfMemoryError)
unbuilt.install()
globals().update(config.CONTEXTS)
float0 = dtypes.float0
remat = checkpoint

# Modules that are loaded when first named, so that importing weft stays light.
_SUBMODULES = frozenset((
    "ad_checkpoint", "checkpoint_policies", "cli", "core", "custom_batching", "custom_derivatives", "debug",
    "distributed", "dlpack", "example_libraries", "experimental", "export", "extend", "ffi", "flatten_util", "image",
    "inspect", "lax", "monitoring", "nn", "numpy", "ops", "profiler", "random", "ref", "scipy", "sharding", "stages",
    "test_util", "tree_util", "typing",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return lazy.submodule(f"weft.{name}")
    return unbuilt.missing("weft", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})

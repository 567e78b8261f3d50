"""Runs programs as StableHLO: by jaxlib's CPU client from their text, by plugins as weft runs programs on devices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

import weft
from weft import runtime, stablehlo

LEVEL = 0  # LLVM's effort: most of a test's time is XLA's


def run(text: str | bytes, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a module's main function."""
    device = jax.devices("cpu")[0]
    options = xla_client.CompileOptions()
    options.executable_build_options.debug_options.xla_backend_optimization_level = LEVEL
    code = text.encode() if isinstance(text, str) else text
    executable = device.client.compile_and_load(code, xla_client.DeviceList((device,)), options)
    with jax.enable_x64(True):
        moved = [jax.device_put(np.asarray(x), device) for x in args]
    results = executable.execute_sharded(moved).disassemble_into_single_device_arrays()
    return [np.asarray(shards[0]) for shards in results]


def exported(function: Callable[..., Any], args: Sequence[Any]) -> tuple[str, list[np.ndarray]]:
    """The text of a function's program, and its leaves."""
    closed = weft.make_jaxpr(function)(*args)
    leaves = [np.asarray(x) for x in runtime.tree_flatten(tuple(args))[0]]
    flat = [leaf.astype(aval.dtype) for leaf, aval in zip(leaves, closed.in_avals, strict=True)]
    return stablehlo.module_text(closed), flat


def together(functions: Sequence[Callable[..., Any]], operands: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
    """The results of many functions, each on its operands, from one module: one compilation."""

    def program(*rows: Any) -> list[Any]:
        return [runtime.tree_flatten(function(*row))[0] for function, row in zip(functions, rows, strict=True)]

    rows = [tuple(row) for row in operands]
    text, flat = exported(program, rows)
    out_tree = runtime.tree_flatten(weft.eval_shape(program, *rows))[1]
    return runtime.tree_unflatten(out_tree, run(text, flat))


@functools.cache
def plugin_device(path: Path) -> Any:
    """The first device of a plugin, which compiles with little effort too."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} --xla_backend_optimization_level={LEVEL}"  # read when it is loaded
    try:
        return weft.pjrt.load(path, f"samples_{path.stem.replace('-', '_')}").devices()[0]
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def on_plugin(
    path: Path, functions: Sequence[Callable[..., Any]], operands: Sequence[Sequence[Any]]
) -> list[list[np.ndarray]]:
    """``together``, by a plugin."""

    def program(*rows: Any) -> list[Any]:
        return [runtime.tree_flatten(function(*row))[0] for function, row in zip(functions, rows, strict=True)]

    found = weft.jit(program, device=plugin_device(path))(*[tuple(row) for row in operands])
    return [[np.asarray(x) for x in row] for row in found]
